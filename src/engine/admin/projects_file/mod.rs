//! Projects, settings and the runner mode as one file, which operators keep in a repository.
//!
//! The file says what is stored: a field that it omits gets its default, and applying an exported file changes nothing.
//! Secrets are never part of it. All changes of a file are stored in one commit, or none.

mod plan;
mod read;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::time_zones;
use domain::audit::Actor;
use domain::mapping::{Mapping, MappingDraft, MappingError};
use domain::time::Timestamp;
use store::settings::{self, OperatorSetting};
use store::{ReadableTx, StoreError, StoreResult, WriteTx, mappings};

use plan::{Plan, project_fields};
use read::{MAPPINGS, RUNNER_MODE, SETTINGS};

use super::mappings::{put_mapping, remove_mapping, ticketing_problems};
use super::runner_mode::put_runner_mode;
use super::settings::put_settings;

pub use plan::{Change, ChangeAction, ChangeTarget, FieldChange};
pub use read::{FileProblem, ProjectsFile};

/// How a file is applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions {
    /// Projects that are not in the file are removed, with their secrets.
    pub prune: bool,
    /// Nothing is stored.
    pub dry_run: bool,
}

/// Result of applying a file.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProjectsFileResult")]
pub struct AppliedFile {
    /// Whether the changes are stored. False for a dry run, and if there are none.
    pub applied: bool,
    /// Differences between the file and what was stored.
    pub changes: Vec<Change>,
}

/// Reason why a file was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The file is invalid.
    #[error("the file is invalid")]
    Invalid(Vec<FileProblem>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the file that describes what is stored. Values that are defaults are left out.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn export(tx: &impl ReadableTx) -> StoreResult<Value> {
    let mut file = Map::new();
    let projects = mappings::all(tx)?;
    let projects = projects.iter().map(|mapping| {
        let key = mapping.team_key.to_string();
        (key, Value::Object(without_defaults(mapping)))
    });
    file.insert(MAPPINGS.to_owned(), Value::Object(projects.collect()));
    let mut values = Map::new();
    for setting in OperatorSetting::ALL {
        let value = settings::get(tx, setting)?;
        values.extend(value.map(|value| (setting.name().to_owned(), json!(value))));
    }
    if !values.is_empty() {
        file.insert(SETTINGS.to_owned(), Value::Object(values));
    }
    if let Some(mode) = settings::runner_mode(tx)? {
        file.insert(RUNNER_MODE.to_owned(), json!(mode.as_str()));
    }
    Ok(Value::Object(file))
}

/// Fields of a project that differ from those of a new one.
fn without_defaults(mapping: &Mapping) -> Map<String, Value> {
    const IDENTITY: [&str; 3] = ["owner", "repo", "defaultBranch"];
    let new = json!({
        "teamKey": mapping.team_key, "owner": mapping.owner, "repo": mapping.repo, "defaultBranch": mapping.default_branch,
    });
    let new = MappingDraft::check(new, &[]).ok();
    let new = new.and_then(|(draft, _)| draft.into_mapping(None, Timestamp::EPOCH));
    let defaults = new.as_ref().map(project_fields).unwrap_or_default();
    let mut fields = project_fields(mapping);
    fields.retain(|name, value| {
        IDENTITY.contains(&name.as_str()) || defaults.get(name) != Some(value)
    });
    for object in fields.values_mut().filter_map(Value::as_object_mut) {
        object.retain(|_, value| !value.is_null());
    }
    fields
}

/// Makes the store match a file.
///
/// # Errors
/// Fails if a project is invalid beside the others, if its ticketing system rejects it, or if the store fails.
pub async fn apply(
    app: &App,
    actor: Actor,
    file: ProjectsFile,
    options: ApplyOptions,
) -> Result<AppliedFile, ApplyError> {
    let now = app.core.now();
    let plan = app
        .core
        .store
        .read(|tx| file.plan(tx, options.prune, now))?
        .map_err(ApplyError::Invalid)?;
    let mut problems = missing_time_zones(&plan);
    problems.extend(rejected_sources(app, &plan).await);
    if !problems.is_empty() {
        return Err(ApplyError::Invalid(problems));
    }
    if options.dry_run || plan.changes.is_empty() {
        let changes = plan.changes;
        return Ok(AppliedFile {
            applied: false,
            changes,
        });
    }
    let stored = app.core.store.write(move |tx| {
        // What was stored since then counts.
        Ok(match file.plan(tx, options.prune, now)? {
            Ok(plan) => Ok(store_plan(tx, &actor, plan, now)?),
            Err(problems) => Err(problems),
        })
    });
    let changes = stored.await?.map_err(ApplyError::Invalid)?;
    app.live.notifiers.poll.notify_one();
    Ok(AppliedFile {
        applied: true,
        changes,
    })
}

/// Problems with the time zones of dispatch windows.
fn missing_time_zones(plan: &Plan) -> Vec<FileProblem> {
    let problems = plan.saved.iter().filter_map(|saved| {
        let problem = MappingError::from(time_zones::missing_data(&saved.mapping)?).problem();
        let place = format!("{MAPPINGS}.{}.{}", saved.mapping.team_key, problem.field);
        Some(FileProblem::new(place, problem.message))
    });
    problems.collect()
}

/// Problems that the ticketing systems have with new sources of tickets.
async fn rejected_sources(app: &App, plan: &Plan) -> Vec<FileProblem> {
    let mut problems = Vec::new();
    let changed = plan.saved.iter().filter(|saved| saved.is_source_changed);
    for saved in changed {
        let place = format!("{MAPPINGS}.{}.ticketingConfig", saved.mapping.team_key);
        let found = ticketing_problems(app, &saved.mapping).await;
        problems.extend(
            found
                .into_iter()
                .map(|message| FileProblem::new(&place, message)),
        );
    }
    problems
}

fn store_plan(
    tx: &WriteTx<'_>,
    actor: &Actor,
    plan: Plan,
    now: Timestamp,
) -> StoreResult<Vec<Change>> {
    for saved in &plan.saved {
        put_mapping(tx, actor, &saved.mapping, saved.is_new, now)?;
    }
    for key in &plan.removed {
        remove_mapping(tx, actor, key, now)?;
    }
    put_settings(tx, actor, &plan.settings, now)?;
    if let Some(mode) = plan.runner_mode {
        put_runner_mode(tx, actor, mode, now)?;
    }
    Ok(plan.changes)
}

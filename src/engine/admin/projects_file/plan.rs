//! Differences between a projects file and what is stored.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use domain::ids::TeamKey;
use domain::mapping::{Mapping, MappingView, find_equal_match, find_overlapping_key};
use domain::runner_mode::RunnerMode;
use domain::session_secrets::SecretScope;
use domain::time::Timestamp;
use store::{ReadableTx, StoreResult, mappings, secrets, settings};

use super::read::{FileProblem, MAPPINGS, ProjectsFile};
use crate::admin::settings::SettingChange;

/// Fields of a project that its other fields determine.
const DERIVED: [&str; 5] = [
    "teamKey",
    "ticketingProvider",
    "createdAt",
    "updatedAt",
    "warnings",
];

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ProjectsFileTarget")]
pub enum ChangeTarget {
    /// A project.
    Mapping,
    /// A setting, which takes effect at a restart.
    Setting,
    /// The runner mode.
    RunnerMode,
}

/// How it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ProjectsFileAction")]
pub enum ChangeAction {
    /// It does not exist yet.
    Create,
    /// It has other values.
    Update,
    /// It is not in the file.
    Remove,
}

/// Change of one field.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ProjectsFileField")]
pub struct FieldChange {
    /// Name of the field.
    pub field: String,
    /// Stored value, `null` if there is none.
    pub before: Value,
    /// Value in the file, `null` if there is none.
    pub after: Value,
}

/// Difference between a file and what is stored.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ProjectsFileChange")]
pub struct Change {
    /// What is changed.
    pub target: ChangeTarget,
    /// How it is changed.
    pub action: ChangeAction,
    /// Key of the project or name of the setting. Empty for the runner mode.
    pub key: String,
    /// Changed fields. For a removed project its secrets, which are removed with it, as `secrets`.
    pub fields: Vec<FieldChange>,
}

/// Changes that make the store match a file.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub changes: Vec<Change>,
    pub saved: Vec<SavedProject>,
    pub removed: Vec<TeamKey>,
    pub settings: Vec<SettingChange>,
    pub runner_mode: Option<RunnerMode>,
}

/// Project to store.
#[derive(Debug)]
pub(super) struct SavedProject {
    pub mapping: Mapping,
    pub is_new: bool,
    /// Whether the ticketing system must check it.
    pub is_source_changed: bool,
}

impl ProjectsFile {
    /// Compares the file with what is stored. `prune`: projects that are not in the file are removed.
    pub(super) fn plan(
        &self,
        tx: &impl ReadableTx,
        prune: bool,
        now: Timestamp,
    ) -> StoreResult<Result<Plan, Vec<FileProblem>>> {
        let stored = mappings::all(tx)?;
        let mut plan = Plan::default();
        let kept = |mapping: &&Mapping| !prune || self.mappings.contains_key(&mapping.team_key);
        let mut problems = Vec::new();
        let mut remaining: Vec<Mapping> = stored.iter().filter(kept).cloned().collect();
        remaining.retain(|mapping| !self.mappings.contains_key(&mapping.team_key));
        for (key, draft) in &self.mappings {
            let place = format!("{MAPPINGS}.{key}");
            let others = stored.iter().filter(kept).map(|mapping| &mapping.team_key);
            if let Some(other) = find_overlapping_key(key, others) {
                let message = format!(
                    "overlaps with the stored project {other}: their secrets could have the same stored names"
                );
                problems.push(FileProblem::new(place, message));
                continue;
            }
            let before = stored.iter().find(|mapping| mapping.team_key == *key);
            // Omitted fields have their defaults. Only the pause of an operator is kept.
            match draft.clone().into_mapping(before, now) {
                Some(mapping) => {
                    let (ticketing, repo) = (&mapping.ticketing, mapping.target_repo());
                    let others = remaining.iter();
                    if let Some(other) = find_equal_match(key, ticketing, Some(&repo), others) {
                        let message = format!("selects the same tickets as {other}");
                        problems.push(FileProblem::new(
                            format!("{place}.ticketingConfig"),
                            message,
                        ));
                    }
                    remaining.push(mapping.clone());
                    plan.save(tx, before, mapping)?;
                }
                None => problems.push(FileProblem::new(place, "is not valid")),
            }
        }
        for mapping in stored.iter().filter(|mapping| !kept(mapping)) {
            plan.remove(tx, &mapping.team_key)?;
        }
        for change in &self.settings {
            let before = settings::get(tx, change.setting())?.unwrap_or_default();
            plan.set(change, &before);
        }
        if let Some(mode) = self.runner_mode {
            plan.set_runner_mode(settings::runner_mode(tx)?.unwrap_or_default(), mode);
        }
        Ok(match problems.is_empty() {
            true => Ok(plan),
            false => Err(problems),
        })
    }
}

impl Plan {
    fn save(
        &mut self,
        tx: &impl ReadableTx,
        before: Option<&Mapping>,
        mut mapping: Mapping,
    ) -> StoreResult<()> {
        if let Some(canonical) = mappings::canonical_repo(tx, &mapping.target_repo())? {
            (mapping.owner, mapping.repo) = (canonical.owner, canonical.name);
        }
        let old = before.map(project_fields).unwrap_or_default();
        let fields = differences(&old, &project_fields(&mapping));
        if before.is_some() && fields.is_empty() {
            return Ok(());
        }
        self.changes.push(Change {
            target: ChangeTarget::Mapping,
            action: match before {
                Some(_) => ChangeAction::Update,
                None => ChangeAction::Create,
            },
            key: mapping.team_key.to_string(),
            fields,
        });
        self.saved.push(SavedProject {
            is_new: before.is_none(),
            is_source_changed: before.is_none_or(|before| before.ticketing != mapping.ticketing),
            mapping,
        });
        Ok(())
    }

    fn remove(&mut self, tx: &impl ReadableTx, key: &TeamKey) -> StoreResult<()> {
        let secrets = secrets::of_scope(tx, &SecretScope::Team(key.clone()))?;
        let names: Vec<String> = secrets.into_iter().map(|row| row.stored_name).collect();
        let secrets = (!names.is_empty()).then(|| FieldChange {
            field: "secrets".to_owned(),
            before: json!(names),
            after: Value::Null,
        });
        self.changes.push(Change {
            target: ChangeTarget::Mapping,
            action: ChangeAction::Remove,
            key: key.to_string(),
            fields: secrets.into_iter().collect(),
        });
        self.removed.push(key.clone());
        Ok(())
    }

    fn set(&mut self, change: &SettingChange, before: &str) {
        if change.value() == before {
            return;
        }
        let name = change.setting().name();
        self.settings.push(change.clone());
        self.change_value(ChangeTarget::Setting, name, before, change.value());
    }

    fn set_runner_mode(&mut self, before: RunnerMode, mode: RunnerMode) {
        if mode == before {
            return;
        }
        self.runner_mode = Some(mode);
        let (before, after) = (before.as_str(), mode.as_str());
        self.change_value(ChangeTarget::RunnerMode, "", before, after);
    }

    fn change_value(&mut self, target: ChangeTarget, key: &str, before: &str, after: &str) {
        let value = |text: &str| match text.is_empty() {
            true => Value::Null,
            false => json!(text),
        };
        self.changes.push(Change {
            target,
            action: ChangeAction::Update,
            key: key.to_owned(),
            fields: vec![FieldChange {
                field: "value".to_owned(),
                before: value(before),
                after: value(after),
            }],
        });
    }
}

/// Fields of a project that operators set.
pub(super) fn project_fields(mapping: &Mapping) -> Map<String, Value> {
    let Value::Object(mut fields) = json!(MappingView::from_mapping(mapping)) else {
        return Map::new();
    };
    fields.retain(|name, _| !DERIVED.contains(&name.as_str()));
    fields
}

/// Fields that differ, in the order of the new values.
fn differences(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<FieldChange> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value =
        |fields: &Map<String, Value>, name: &str| fields.get(name).cloned().unwrap_or_default();
    let change = |name: &String| FieldChange {
        field: name.clone(),
        before: value(before, name),
        after: value(after, name),
    };
    let changes = names.into_iter().map(change);
    changes
        .filter(|change| change.before != change.after)
        .collect()
}

//! Checks of a mapping at the vendors that it names.

use std::time::Duration;

use futures_util::future::{join, join5};

use crate::app::{App, Vendors};
use crate::budget;
use crate::choices::failure_sentence;
use crate::doctor::MODEL_SECRETS;
use crate::time_zones;
use domain::ids::{Repo, TeamKey};
use domain::issue::System;
use domain::mapping::{
    Mapping, MappingDraft, MappingError, MappingProblem, MappingWarning, ModelProvider,
    SOURCE_TEAM_KEY, TicketMatch, TicketingConfig, region_warning,
};
use domain::runner_mode::{RunnerMode, choose_placement};
use domain::session_secrets::{SecretScope, variable_from_stored_name};
use domain::vendor::Vendor;
use serde_json::Value;
use store::{StoreError, StoreResult, mappings, secrets};
use vendors::http::VendorError;
use vendors::ticketing::{GitHubIssues, IssueTracker, Linear, TicketingClient};

/// Timeout of each lookup of a write, whose response waits for it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of labels or projects of a team that are compared with a match.
const MAX_NAMES: usize = 1_000;

/// Timeout of each lookup of a check. They run at the same time.
const CHECK_TIMEOUT: Duration = Duration::from_secs(8);

/// Result of checking a mapping that is not stored yet.
#[derive(Debug, Default)]
pub struct MappingCheck {
    /// What prevents the mapping from being saved or from working.
    pub problems: Vec<MappingProblem>,
    /// What should be known.
    pub warnings: Vec<MappingWarning>,
}

/// Reason why a mapping was not checked.
#[derive(Debug, thiserror::Error)]
pub enum MappingCheckError {
    /// The body is not an object.
    #[error(transparent)]
    Invalid(#[from] MappingError),
    /// There were too many checks. Contains the time to wait.
    #[error("too many checks")]
    TooMany(Duration),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks a body that may become a mapping: every rule, and at the vendors what it names. A vendor that does not
/// respond causes a warning. Stores nothing.
///
/// # Errors
/// Fails if the body is not an object, there were too many checks, or the store cannot be read.
pub async fn check(app: &App, body: Value) -> Result<MappingCheck, MappingCheckError> {
    let now = app.core.now();
    let existing = app.core.store.read(mappings::all)?;
    let (draft, problems) = MappingDraft::check(body, &existing)?;
    app.live
        .form_lookups
        .try_start(now)
        .map_err(MappingCheckError::TooMany)?;
    let mut found = MappingCheck {
        problems,
        warnings: Vec::new(),
    };
    let mode = app.core.store.read(|tx| app.core.runner_mode(tx))?;
    let lookups = join5(
        in_time(app, Lookup::TEAM, check_team(&app.vendors, &draft)),
        in_time(
            app,
            Lookup::REPOSITORY,
            check_repository(&app.vendors, &draft),
        ),
        in_time(app, Lookup::JIRA, check_jira(&app.vendors, &draft)),
        in_time(app, Lookup::ISSUES, check_issues(&app.vendors, &draft)),
        in_time(
            app,
            Lookup::SECRETS,
            check_repo_secrets(&app.vendors, &draft, mode),
        ),
    );
    let (team, repository, jira, issues, secrets) = Box::pin(lookups).await;
    [team, repository, jira, issues, secrets]
        .into_iter()
        .for_each(|one| found.extend(one));
    if let Some(ModelProvider::Cloud { region }) = &draft.provider {
        found.warnings.extend(region_warning(region));
    }
    let stored = draft.team_key.as_ref();
    let stored = stored.and_then(|key| existing.iter().find(|one| one.team_key == *key));
    if let Some(mapping) = draft.into_mapping(stored, now) {
        found.extend(check_runner(app, &mapping)?);
        let missing = time_zones::missing_data(&mapping).map(MappingError::from);
        found.problems.extend(missing.map(|error| error.problem()));
        found.warnings.extend(mapping.warnings());
        let budget = app
            .core
            .store
            .read(|tx| budget::warning(tx, &mapping, now))?;
        found.warnings.extend(budget.map(|message| MappingWarning {
            field: "budgetUsd",
            message,
        }));
    }
    Ok(found)
}

impl MappingCheck {
    fn extend(&mut self, other: Self) {
        self.problems.extend(other.problems);
        self.warnings.extend(other.warnings);
    }

    fn problem(field: &'static str, message: String) -> Self {
        Self {
            problems: vec![MappingProblem { field, message }],
            warnings: Vec::new(),
        }
    }

    fn warning(field: &'static str, message: String) -> Self {
        Self {
            problems: Vec::new(),
            warnings: vec![MappingWarning { field, message }],
        }
    }
}

/// What a lookup reads, for the warning that it failed.
struct Lookup {
    vendor: Vendor,
    field: &'static str,
    subject: &'static str,
}

impl Lookup {
    const TEAM: Self = Self {
        vendor: Vendor::Linear,
        field: "teamKey",
        subject: "The team",
    };
    const REPOSITORY: Self = Self {
        vendor: Vendor::GitHub,
        field: "repo",
        subject: "The repository",
    };
    const JIRA: Self = Self {
        vendor: Vendor::Jira,
        field: "jql",
        subject: "The query",
    };
    const ISSUES: Self = Self {
        vendor: Vendor::GitHub,
        field: "ticketingProvider",
        subject: "The issue tracker",
    };
    const SECRETS: Self = Self {
        vendor: Vendor::GitHub,
        field: "provider",
        subject: "The secrets of the repository",
    };
}

/// Runs a lookup. Without an answer in time, the result is a warning.
async fn in_time(
    app: &App,
    about: Lookup,
    lookup: impl Future<Output = Result<MappingCheck, VendorError>>,
) -> MappingCheck {
    let (vendor, subject) = (about.vendor, about.subject);
    let sentence = match tokio::time::timeout(CHECK_TIMEOUT, lookup).await {
        Ok(Ok(found)) => return found,
        Ok(Err(error)) => failure_sentence(vendor, &app.secrets.redactor, &error),
        Err(_) => format!("{vendor} did not answer in time."),
    };
    MappingCheck::warning(
        about.field,
        format!("{subject} could not be checked. {sentence}"),
    )
}

async fn check_team(vendors: &Vendors, draft: &MappingDraft) -> Result<MappingCheck, VendorError> {
    let (Some(ticketing @ TicketingConfig::Linear { .. }), Some(key)) =
        (&draft.ticketing, &draft.team_key)
    else {
        return Ok(MappingCheck::default());
    };
    let Some(TicketingClient::Linear(linear)) = vendors.account(System::Linear) else {
        return Ok(not_configured(
            "ticketingProvider",
            Vendor::Linear,
            "no ticket is read",
        ));
    };
    Ok(match missing_source(linear, key, ticketing).await? {
        None => MappingCheck::default(),
        Some(missing) if missing.field == MATCH => {
            MappingCheck::warning(missing.field, missing.message)
        }
        Some(missing) => MappingCheck::problem(missing.field, missing.message),
    })
}

async fn check_jira(vendors: &Vendors, draft: &MappingDraft) -> Result<MappingCheck, VendorError> {
    let Some(config @ TicketingConfig::Jira { .. }) = &draft.ticketing else {
        return Ok(MappingCheck::default());
    };
    let Some(TicketingClient::Jira(jira)) = vendors.account(System::Jira) else {
        return Ok(not_configured(
            "ticketingProvider",
            Vendor::Jira,
            "no ticket is read",
        ));
    };
    let problems = jira.validate_ticketing(config).await?.into_iter();
    let problems = problems.map(|(field, message)| MappingProblem { field, message });
    Ok(MappingCheck {
        problems: problems.collect(),
        warnings: Vec::new(),
    })
}

/// Checks whether the repository holds tickets. Another lookup reports that it does not exist.
async fn check_issues(
    vendors: &Vendors,
    draft: &MappingDraft,
) -> Result<MappingCheck, VendorError> {
    let (Some(ticketing @ TicketingConfig::GitHub { .. }), Some(repo)) =
        (&draft.ticketing, draft.target_repo())
    else {
        return Ok(MappingCheck::default());
    };
    let Some(TicketingClient::GitHub(github)) = vendors.account(System::GitHub) else {
        return Ok(MappingCheck::default());
    };
    Ok(match github.issue_tracker(&repo).await? {
        IssueTracker::Invisible => MappingCheck::default(),
        IssueTracker::Enabled => {
            let missing = missing_label(github, &repo, ticketing).await?;
            missing.map_or_else(MappingCheck::default, |missing| {
                MappingCheck::warning(missing.field, missing.message)
            })
        }
        IssueTracker::Disabled => MappingCheck::problem(
            "ticketingProvider",
            format!("Issues are turned off in {repo}. Turn them on in its settings on GitHub."),
        ),
    })
}

async fn check_repository(
    vendors: &Vendors,
    draft: &MappingDraft,
) -> Result<MappingCheck, VendorError> {
    let Some(repo) = draft.target_repo() else {
        return Ok(MappingCheck::default());
    };
    if vendors.github.is_none() {
        return Ok(not_configured("repo", Vendor::GitHub, "no run can start"));
    }
    let missing = missing_repository(vendors, &repo, draft.default_branch.as_deref()).await?;
    Ok(missing.map_or_else(MappingCheck::default, |missing| {
        MappingCheck::problem(missing.field, missing.message)
    }))
}

fn not_configured(field: &'static str, vendor: Vendor, impact: &str) -> MappingCheck {
    let message = format!("{vendor} is not configured for this service: {impact}.");
    MappingCheck::warning(field, message)
}

/// Checks whether the workflows of the repository have a model key.
async fn check_repo_secrets(
    vendors: &Vendors,
    draft: &MappingDraft,
    mode: RunnerMode,
) -> Result<MappingCheck, VendorError> {
    let (Some(github), Some(repo)) = (&vendors.github, draft.target_repo()) else {
        return Ok(MappingCheck::default());
    };
    let runs_in_ci = draft.is_for_ci() && !mode.excludes_ci();
    if draft.provider != Some(ModelProvider::Direct) || !runs_in_ci {
        return Ok(MappingCheck::default());
    }
    let names = match github.secret_names(&repo).await {
        // The check of the repository reports this.
        Err(error) if error.is_not_found() => None,
        names => names?,
    };
    let is_key = |name: &String| MODEL_SECRETS.contains(&name.as_str());
    Ok(match names {
        Some(names) if !names.iter().any(is_key) => MappingCheck::warning(
            "provider",
            format!(
                "{repo} has no Actions secret ANTHROPIC_API_KEY. Add it, unless its organization shares the secret."
            ),
        ),
        _ => MappingCheck::default(),
    })
}

/// Checks whether the runner of the mapping is configured and has a model key.
fn check_runner(app: &App, mapping: &Mapping) -> StoreResult<MappingCheck> {
    let mode = app.core.store.read(|tx| app.core.runner_mode(tx))?;
    let placement = match choose_placement(mode, mapping, app.available_runners()) {
        Ok(placement) => placement,
        // The form cannot change a mode that overrides it.
        Err(reason) if mode == RunnerMode::Default => {
            return Ok(MappingCheck::problem("executionMode", reason));
        }
        Err(reason) => return Ok(MappingCheck::warning("executionMode", reason)),
    };
    let uses_own_keys = placement.runner().host().is_some();
    let is_direct = mapping.provider == ModelProvider::Direct;
    if !uses_own_keys || !is_direct || has_model_key(app, &mapping.team_key)? {
        return Ok(MappingCheck::default());
    }
    let message = "No model key is set for machines and containers. Set ANTHROPIC_API_KEY for the service, or the secret of another agent, such as OPENAI_API_KEY.";
    Ok(MappingCheck::warning("provider", message.to_owned()))
}

fn has_model_key(app: &App, team: &TeamKey) -> StoreResult<bool> {
    if !app.vendors.credentials.model_keys.is_empty() {
        return Ok(true);
    }
    let scopes = [SecretScope::Global, SecretScope::Team(team.clone())];
    app.core.store.read(|tx| {
        for scope in &scopes {
            let rows = secrets::of_scope(tx, scope)?;
            let mut names = rows
                .iter()
                .filter_map(|row| variable_from_stored_name(scope, &row.stored_name));
            if names.any(|name| MODEL_SECRETS.contains(&name)) {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// Returns a warning for each name that does not exist at its vendor, or that this service may not
/// see. A vendor that does not respond in time causes no warning. Jira's queries are checked before
/// a mapping is stored.
pub(super) async fn warnings(vendors: &Vendors, mapping: &Mapping) -> Vec<MappingWarning> {
    let repo = mapping.target_repo();
    let repository = async {
        match vendors.github {
            Some(_) => missing_repository(vendors, &repo, Some(&mapping.default_branch)).await,
            None => Ok(None),
        }
    };
    let lookups = join(
        with_timeout(missing_team(vendors, mapping)),
        with_timeout(repository),
    );
    let (team, repository) = Box::pin(lookups).await;
    team.into_iter().chain(repository).collect()
}

async fn with_timeout(
    lookup: impl Future<Output = Result<Option<MappingWarning>, VendorError>>,
) -> Option<MappingWarning> {
    match tokio::time::timeout(WRITE_TIMEOUT, lookup).await {
        Ok(Ok(warning)) => warning,
        Ok(Err(error)) => {
            tracing::warn!(%error, "Failed to look up the names of a mapping.");
            None
        }
        Err(_) => None,
    }
}

async fn missing_team(
    vendors: &Vendors,
    mapping: &Mapping,
) -> Result<Option<MappingWarning>, VendorError> {
    let ticketing = &mapping.ticketing;
    match vendors.account(mapping.system()) {
        Some(TicketingClient::Linear(linear)) => {
            missing_source(linear, &mapping.team_key, ticketing).await
        }
        Some(TicketingClient::GitHub(github)) => {
            missing_label(github, &mapping.target_repo(), ticketing).await
        }
        Some(TicketingClient::Jira(_)) | None => Ok(None),
    }
}

/// Returns that the repository does not have the label that a mapping of its issues matches. Another lookup reports a
/// missing repository.
pub(crate) async fn missing_label(
    github: &GitHubIssues,
    repo: &Repo,
    ticketing: &TicketingConfig,
) -> Result<Option<MappingWarning>, VendorError> {
    let Some(TicketMatch::Label(name)) = ticketing.ticket_match() else {
        return Ok(None);
    };
    match github.has_label(repo, name).await {
        Ok(false) => Ok(Some(MappingWarning {
            field: MATCH,
            message: format!(
                "GitHub shows no label \"{name}\" in {repo}. No ticket matches until it exists."
            ),
        })),
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(None),
    }
}

/// Field of the tickets of a team that a mapping takes.
const MATCH: &str = "match";

/// Returns what Linear does not have, or does not show to this account: the team, or the label or project that the
/// mapping with this key matches.
pub(crate) async fn missing_source(
    linear: &Linear,
    key: &TeamKey,
    ticketing: &TicketingConfig,
) -> Result<Option<MappingWarning>, VendorError> {
    let team = ticketing.source_team(key);
    if !linear.has_team(team.as_str()).await? {
        let field = if team == key {
            "teamKey"
        } else {
            SOURCE_TEAM_KEY
        };
        let message = missing_team_message(team);
        return Ok(Some(MappingWarning { field, message }));
    }
    let TicketingConfig::Linear { matching, .. } = ticketing else {
        return Ok(None);
    };
    let (what, name, known) = match matching {
        Some(TicketMatch::Label(name)) => {
            let known = linear.label_names(team.as_str(), MAX_NAMES).await?;
            ("label", name, known)
        }
        Some(TicketMatch::Project(name)) => {
            let known = linear.project_names(team.as_str(), MAX_NAMES).await?;
            ("project", name, known)
        }
        Some(TicketMatch::Default) | None => return Ok(None),
    };
    let is_missing = known.len() < MAX_NAMES && !known.contains(name);
    let message = format!(
        "Linear shows no {what} \"{name}\" in team {team}. Upper and lower case matter. No ticket matches until it exists."
    );
    Ok(is_missing.then_some(MappingWarning {
        field: MATCH,
        message,
    }))
}

fn missing_team_message(key: &TeamKey) -> String {
    format!(
        "Linear shows no team \"{key}\". Check the key, and that the account of the Linear key is a member of the team."
    )
}

/// Returns what does not exist, or is not visible to the credentials: the repository, or the branch.
async fn missing_repository(
    vendors: &Vendors,
    repo: &Repo,
    branch: Option<&str>,
) -> Result<Option<MappingWarning>, VendorError> {
    let Some(github) = &vendors.github else {
        return Ok(None);
    };
    let problem = match github.present_name(repo).await {
        Err(error) if error.is_not_found() => Some(format!(
            "GitHub shows no repository {repo}. Check owner and repo, and that the GitHub App is installed on it."
        )),
        present => present?
            .map(|present| format!("The repository is now {present}. Correct owner and repo.")),
    };
    if let Some(message) = problem {
        return Ok(Some(MappingWarning {
            field: "repo",
            message,
        }));
    }
    let Some(branch) = branch else {
        return Ok(None);
    };
    let found = github.branch_sha(repo, branch).await?;
    Ok(found.is_none().then(|| MappingWarning {
        field: "defaultBranch",
        message: format!("{repo} has no branch \"{branch}\". Check the default branch."),
    }))
}

//! Checks of each project: tickets, repository permissions, secrets, workflows, budget and runner.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::stream;

use super::merging;
use super::repository_rights::{repository_rights, token_permissions};
use crate::admin::mapping_check::{missing_label, missing_source};
use crate::app::{App, Core, Vendors};
use crate::budget;
use crate::template_status::{self, ProjectTemplateStatus};
use domain::agent::AgentName;
use domain::check_result::CheckResult;
use domain::job::RunnerKind;
use domain::machine_size::MachineSize;
use domain::mapping::{Mapping, MappingWarning, ModelProvider, TicketingConfig};
use domain::runner_labels;
use domain::runner_mode::{Placement, choose_placement};
use domain::templates::{SYNC_BRANCH, TemplateFileStatus};
use store::StoreResult;
use vendors::http::VendorError;
use vendors::ticketing::{GitHubIssues, IssueTracker, Jira, Linear, SelectField, TicketingClient};

/// Maximum number of projects checked concurrently.
const MAX_CONCURRENT_PROJECTS: usize = 8;

/// Message of a project whose runs need the image of local containers.
pub(super) const RUNS_IN_LOCAL_CONTAINERS: &str = "its runs execute in local containers";

/// Repository secrets that hold a model key for CI runs.
pub(crate) const MODEL_SECRETS: [&str; 4] = [
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
];

/// Checks all projects and returns the results in their order.
pub(super) async fn examine(app: &App, all: &[Mapping]) -> StoreResult<Vec<CheckResult>> {
    let mode = app.core.store.read(|tx| app.core.runner_mode(tx))?;
    let templates = match app.vendors.github {
        Some(_) => template_status::all(app).await?,
        None => Vec::new(),
    };
    let checks = all.iter().map(|mapping| async move {
        let mut found = tickets(app, mapping).await;
        let placed = choose_placement(mode, mapping, app.available_runners());
        let runner = placed.map_or(RunnerKind::Ci, Placement::runner);
        let needed = token_permissions(runner, mapping.system());
        let rights = repository_rights(app, &mapping.target_repo(), &needed).await;
        found.extend(rights.map(|one| one.for_subject(mapping.team_key.as_str())));
        found.extend(merging::examine(app, mapping).await);
        if !mode.excludes_ci() {
            found.extend(model_secret(&app.vendors, mapping).await);
        }
        found
    });
    let checks: Vec<Vec<CheckResult>> = stream::iter(checks)
        .buffered(MAX_CONCURRENT_PROJECTS)
        .collect()
        .await;
    let mut found = Vec::new();
    for (mapping, results) in all.iter().zip(checks) {
        found.extend(results);
        let own = templates
            .iter()
            .find(|one| one.mapping.team_key == mapping.team_key);
        if let Some(own) = own {
            found.push(workflows(&app.vendors, own).await);
        }
        found.extend(budget_warning(&app.core, mapping)?);
        found.extend(runner(
            app,
            mapping,
            choose_placement(mode, mapping, app.available_runners()),
        ));
    }
    Ok(found)
}

fn budget_warning(core: &Core, mapping: &Mapping) -> StoreResult<Option<CheckResult>> {
    let now = core.now();
    let warning = core.store.read(|tx| budget::warning(tx, mapping, now))?;
    Ok(warning.map(|why| {
        CheckResult::warning("project-budget", why)
            .with_impact("The project's budget does not limit its spending.")
            .with_remedy("Use an agent that reports its cost. Without RUNNER_CALLBACK_BASE_URL, sync the workflows, so that CI runs upload their report.")
            .for_subject(mapping.team_key.as_str())
    }))
}

async fn tickets(app: &App, mapping: &Mapping) -> Vec<CheckResult> {
    let team = mapping.team_key.as_str();
    let check = "project-tickets";
    let checked = match app.vendors.account(mapping.system()) {
        Some(TicketingClient::Linear(linear)) => linear_tickets(linear, mapping).await,
        Some(TicketingClient::Jira(jira)) => jira_tickets(jira, mapping).await,
        Some(TicketingClient::GitHub(github)) => github_tickets(github, mapping).await,
        None => Ok(vec![
            CheckResult::error(check, "its ticketing system is not connected")
                .with_impact("The service sees none of its tickets.")
                .with_remedy(
                    "Set the credentials of the system, or map the project to a connected system.",
                ),
        ]),
    };
    let found = checked.unwrap_or_else(|error| {
        vec![
            CheckResult::error(check, app.secrets.redactor.redact(&error.to_string()))
                .with_impact("Its tickets could not be checked.")
                .with_remedy("See the check of the ticketing connection above."),
        ]
    });
    let found = match found.is_empty() {
        true => vec![CheckResult::ok(check, "its tickets can be read")],
        false => found,
    };
    found.into_iter().map(|one| one.for_subject(team)).collect()
}

async fn linear_tickets(
    linear: &Linear,
    mapping: &Mapping,
) -> Result<Vec<CheckResult>, VendorError> {
    let team = mapping.source_team();
    if !linear.has_team(team.as_str()).await? {
        return Ok(vec![
            CheckResult::error("project-tickets", format!("Linear shows no team {team} to this account"))
                .with_impact("The service sees none of its tickets.")
                .with_remedy("Correct the team key of the project, or add the account of the API key to the (private) team."),
        ]);
    }
    let missing = missing_source(linear, &mapping.team_key, &mapping.ticketing).await?;
    let remedy = "Create the label or project in Linear, or correct the match of the project.";
    Ok(missing_match(missing, remedy))
}

fn missing_match(missing: Option<MappingWarning>, remedy: &str) -> Vec<CheckResult> {
    let warning = missing.map(|missing| {
        CheckResult::warning("project-tickets", missing.message)
            .with_impact("The service starts no run for its tickets.")
            .with_remedy(remedy)
    });
    warning.into_iter().collect()
}

async fn github_tickets(
    github: &GitHubIssues,
    mapping: &Mapping,
) -> Result<Vec<CheckResult>, VendorError> {
    let repo = mapping.target_repo();
    Ok(match github.issue_tracker(&repo).await? {
        IssueTracker::Enabled => {
            let missing = missing_label(github, &repo, &mapping.ticketing).await?;
            missing_match(
                missing,
                "Create the label in the repository, or correct the match of the project.",
            )
        }
        IssueTracker::Invisible => vec![
            CheckResult::error("project-tickets", format!("GitHub shows no repository {repo}"))
                .with_impact("The service sees none of its issues.")
                .with_remedy("Check owner and name, and that the GitHub App is installed on the repository."),
        ],
        IssueTracker::Disabled => vec![
            CheckResult::error("project-tickets", format!("issues are turned off in {repo}"))
                .with_impact("The project has no tickets.")
                .with_remedy("Turn on Issues in the settings of the repository, or map the project to another ticketing system."),
        ],
    })
}

async fn jira_tickets(jira: &Jira, mapping: &Mapping) -> Result<Vec<CheckResult>, VendorError> {
    let problems = jira.validate_mapping(mapping).await?;
    let is_valid = problems.is_empty();
    let result = |problem: String| {
        CheckResult::error("project-tickets", problem)
            .with_impact("Its tickets are neither found nor moved.")
            .with_remedy("Correct the query or the fields of the project in the panel (Projects, Edit), or create the fields in Jira.")
    };
    let mut found: Vec<CheckResult> = problems.into_iter().map(result).collect();
    if let (
        true,
        TicketingConfig::Jira {
            repo_field_value, ..
        },
    ) = (is_valid, &mapping.ticketing)
    {
        let [status, repo] = jira.mapping_field_options(mapping).await?;
        let [status_field, repo_field] = SelectField::required(repo_field_value);
        found.extend(missing_options(&status_field, &status));
        found.extend(missing_options(&repo_field, &repo));
    }
    Ok(found)
}

fn missing_options(field: &SelectField, existing: &BTreeSet<String>) -> Option<CheckResult> {
    let wanted = field.options.iter().map(String::as_str);
    let missing: Vec<&str> = wanted.filter(|value| !existing.contains(*value)).collect();
    let field = field.name;
    (!missing.is_empty()).then(|| {
        let options = if missing.len() == 1 { "option" } else { "options" };
        let what = format!("the field {field} lacks the {options} {}", missing.join(", "));
        CheckResult::error("project-tickets", what)
            .with_impact("A ticket cannot be moved to a stage, or assigned to a repository, that the field does not offer.")
            .with_remedy("Add the options to the field, in every context that the project uses.")
    })
}

/// Checks whether the repository has a model key for its workflows.
async fn model_secret(vendors: &Vendors, mapping: &Mapping) -> Option<CheckResult> {
    let (github, check) = (vendors.github.as_ref()?, "project-secrets");
    if mapping.provider != ModelProvider::Direct {
        return None;
    }
    // The check of the permissions reports a failure.
    let names = github.secret_names(&mapping.target_repo()).await.ok()?;
    let missing = names.as_ref().map(|names| missing_secret(mapping, names));
    let found = match missing {
        None => CheckResult::not_configured(
            check,
            "the App may not list the names of the repository's secrets; ANTHROPIC_API_KEY must be among them",
        ),
        Some(None) => CheckResult::ok(check, "the repository has a model key"),
        Some(Some(secret)) => CheckResult::warning(
            check,
            format!("the repository has no secret {secret}"),
        )
        .with_impact(
            "Unless its organization shares the secret, an agent of CI runs cannot call its model.",
        )
        .with_remedy(format!(
            "Add the secret {secret} to the repository (Settings, Secrets and variables, Actions)."
        )),
    };
    Some(found.for_subject(mapping.team_key.as_str()))
}

/// Returns a secret that an agent of the project needs and that is not among the names. If the repository chooses the
/// agent, a secret of any agent is enough.
fn missing_secret(mapping: &Mapping, names: &[String]) -> Option<&'static str> {
    let has = |agent: AgentName| agent.has_credential(names.iter().map(String::as_str));
    let missing = match mapping.agent {
        Some(agent) => Some(agent).filter(|agent| !has(*agent)),
        None if AgentName::ALL.into_iter().any(has) => None,
        None => Some(AgentName::Claude),
    };
    let mut fallback = mapping.fallback_agents.iter().copied();
    let missing = missing.or_else(|| fallback.find(|agent| !has(*agent)))?;
    missing.named().credentials.first().copied()
}

/// URL of the open pull request that syncs the workflows of a project.
async fn open_sync_pull(vendors: &Vendors, mapping: &Mapping) -> Option<String> {
    let github = vendors.github.as_ref()?;
    let open = github
        .find_open_pull(&mapping.target_repo(), SYNC_BRANCH)
        .await
        .ok()??;
    (open.base_branch == mapping.default_branch).then_some(open.url)
}

async fn workflows(vendors: &Vendors, project: &ProjectTemplateStatus) -> CheckResult {
    let check = "project-workflows";
    let impact = "A run starts only if the default branch has the workflow files of this version.";
    let is_current =
        |(_, status): &(String, TemplateFileStatus)| *status == TemplateFileStatus::Current;
    let open_sync = match project.files.iter().all(is_current) {
        true => None,
        false => open_sync_pull(vendors, &project.mapping).await,
    };
    let remedy = match open_sync {
        Some(url) => format!("Merge the pull request that syncs them: {url}"),
        None => format!(
            "Select Sync workflows of project {} in the panel (Projects), then merge the pull request.",
            project.mapping.team_key
        ),
    };
    let result = if let Some(error) = &project.error {
        CheckResult::error(check, error.clone()).with_impact(impact).with_remedy(
            "Check that branch and repository of the project are correct and that the App may read them.",
        )
    } else {
        let with = |wanted| {
            let of = project
                .files
                .iter()
                .filter(move |(_, status)| *status == wanted);
            of.map(|(path, _)| path.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (missing, stale) = (
            with(TemplateFileStatus::Missing),
            with(TemplateFileStatus::Stale),
        );
        match (missing.is_empty(), stale.is_empty()) {
            (false, _) => {
                CheckResult::error(check, format!("missing on the default branch: {missing}"))
                    .with_impact(impact)
                    .with_remedy(remedy)
            }
            (true, false) => CheckResult::warning(check, format!("out of date: {stale}"))
                .with_impact(impact)
                .with_remedy(remedy),
            (true, true) => CheckResult::ok(check, "its workflows are current"),
        }
    };
    result.for_subject(project.mapping.team_key.as_str())
}

fn runner(app: &App, mapping: &Mapping, placed: Result<Placement, String>) -> Vec<CheckResult> {
    let check = "project-runner";
    let mut found = Vec::new();
    match placed {
        Err(why) => found.push(
            CheckResult::error(check, why)
                .with_impact("None of its tickets is dispatched; they wait as ineligible.")
                .with_remedy("Set the missing values, or select another runner in the panel (Runners for all projects, or Projects, Edit)."),
        ),
        Ok(Placement::Ci) => {
            found.push(CheckResult::ok(check, placement_text(Placement::Ci)));
            found.extend(self_hosted_runner(mapping));
        }
        Ok(placement) => {
            found.push(CheckResult::ok(check, placement_text(placement)));
            if matches!(placement, Placement::Vm | Placement::Shadow) {
                found.extend(machine_size(mapping));
            }
            if mapping.provider == ModelProvider::Direct && app.vendors.credentials.model_keys.is_empty() {
                found.push(
                    CheckResult::error("model-key", "no model key is configured for machines and containers")
                        .with_impact("The agent on them cannot call its model.")
                        .with_remedy("Set ANTHROPIC_API_KEY (or CLAUDE_CODE_OAUTH_TOKEN) for the service."),
                );
            }
        }
    }
    let team = mapping.team_key.as_str();
    found.into_iter().map(|one| one.for_subject(team)).collect()
}

/// Requirements of self-hosted runners, which the service cannot check.
fn self_hosted_runner(mapping: &Mapping) -> Option<CheckResult> {
    let labels = &mapping.runs_on;
    runner_labels::are_self_hosted(labels).then(|| {
        let found = format!("its runs need a runner with the labels {}", labels.join(", "));
        CheckResult::warning("project-runner", found)
            .with_impact("The service cannot see these runners. Without one, a run stays queued until it times out.")
            .with_remedy("Run Linux runners with Docker, because the job runs in a container. In Actions Runner Controller, set containerMode to dind, or to kubernetes with an image whose user is not root.")
    })
}

fn machine_size(mapping: &Mapping) -> Option<CheckResult> {
    let warning = MachineSize::from_mapping(mapping).warning()?;
    let found = CheckResult::warning("project-runner", warning)
        .with_impact("Machines have fixed sizes; the next larger one is used.")
        .with_remedy("Set the machine size in the project's settings.");
    Some(found)
}

fn placement_text(placement: Placement) -> &'static str {
    match placement {
        Placement::Ci => "its runs execute in CI",
        Placement::Vm => "its runs execute in virtual machines",
        Placement::Local => RUNS_IN_LOCAL_CONTAINERS,
        Placement::Kubernetes => "its runs execute in Kubernetes",
        Placement::Shadow => "its runs execute in CI, with shadow runs in virtual machines",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn names_the_secret_that_an_agent_lacks() {
        let missing = |fields: Value, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            missing_secret(&test_support::mapping(&fields), &names)
        };
        let (anthropic, openai) = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY");
        assert_eq!(missing(json!({}), &["X"]), Some(anthropic));
        assert_eq!(missing(json!({}), &[openai]), None);
        assert_eq!(
            missing(json!({"agent": "claude"}), &["CLAUDE_CODE_OAUTH_TOKEN"]),
            None
        );
        assert_eq!(
            missing(json!({"agent": "codex"}), &[anthropic]),
            Some(openai)
        );
        let fallback = json!({"fallbackAgents": ["codex"]});
        assert_eq!(missing(fallback.clone(), &[anthropic]), Some(openai));
        assert_eq!(missing(fallback, &[anthropic, openai]), None);
    }

    #[test]
    fn names_what_self_hosted_runners_need() {
        let found = |labels: &[&str]| {
            let mapping = test_support::mapping(&json!({"runsOn": labels}));
            self_hosted_runner(&mapping).map(|found| found.message)
        };
        let message = "its runs need a runner with the labels self-hosted, linux";
        assert_eq!(found(&["self-hosted", "linux"]).as_deref(), Some(message));
        assert_eq!(found(&["ubuntu-latest-16-cores"]), None);
    }

    #[test]
    fn names_missing_options() {
        let existing = BTreeSet::from(["A".to_owned()]);
        let what = |wanted: &[&str]| {
            let field = SelectField {
                name: "Status",
                options: wanted.iter().map(|option| (*option).to_owned()).collect(),
                optional: vec!["D".to_owned()],
            };
            Some(missing_options(&field, &existing)?.message)
        };
        assert_eq!(what(&["A"]), None);
        assert_eq!(
            what(&["A", "B"]).as_deref(),
            Some("the field Status lacks the option B")
        );
        assert_eq!(
            what(&["B", "C"]).as_deref(),
            Some("the field Status lacks the options B, C")
        );
    }
}

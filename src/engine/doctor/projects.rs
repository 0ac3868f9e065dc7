//! Whether each project's tickets are seen, its repository may be worked on, and its runs can start.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::stream;

use crate::app::App;
use crate::budget;
use crate::template_status::{self, ProjectTemplateStatus};
use domain::check_result::CheckResult;
use domain::machine_size::MachineSize;
use domain::mapping::{Mapping, ModelProvider, TicketingConfig};
use domain::runner_mode::{Placement, choose_placement};
use domain::stage::Stage;
use domain::templates::{SYNC_BRANCH, TemplateFileStatus};
use store::StoreResult;
use vendors::http::VendorError;
use vendors::ticketing::{Jira, Linear, TicketingClient};

/// How many projects are looked at at once?
const AT_ONCE: usize = 8;

/// What the App must be allowed on every mapped repository. (README: *Install*)
const RIGHTS: [(&str, &str); 8] = [
    ("actions", "write"),
    ("contents", "write"),
    ("pull_requests", "write"),
    ("issues", "write"),
    ("workflows", "write"),
    ("checks", "read"),
    ("statuses", "read"),
    ("metadata", "read"),
];

/// What is found of a project whose runs need the local image.
pub(super) const RUNS_IN_LOCAL_CONTAINERS: &str = "its runs execute in containers of this machine";

/// The secrets of a repository that hold a model key for its CI runs.
const MODEL_SECRETS: [&str; 4] = [
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
];

/// What there is to say about these projects, in their order.
pub(super) async fn examine(app: &App, all: &[Mapping]) -> StoreResult<Vec<CheckResult>> {
    let mode = app.store.read(|tx| app.runner_mode(tx))?;
    let templates = match app.github {
        Some(_) => template_status::all(app).await?,
        None => Vec::new(),
    };
    let looks = all.iter().map(|mapping| async move {
        let mut found = tickets(app, mapping).await;
        found.extend(rights(app, mapping).await);
        found.extend(model_secret(app, mapping).await);
        found
    });
    let looks: Vec<Vec<CheckResult>> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    let mut found = Vec::new();
    for (mapping, look) in all.iter().zip(looks) {
        found.extend(look);
        let own = templates
            .iter()
            .find(|one| one.mapping.team_key == mapping.team_key);
        if let Some(own) = own {
            found.push(workflows(app, own).await);
        }
        found.extend(budget_of(app, mapping)?);
        found.extend(runner(
            app,
            mapping,
            choose_placement(mode, mapping, app.available_runners()),
        ));
    }
    Ok(found)
}

fn budget_of(app: &App, mapping: &Mapping) -> StoreResult<Option<CheckResult>> {
    let now = app.now();
    let warning = app
        .store
        .read(|tx| budget::warning(tx, app, mapping, now))?;
    Ok(warning.map(|why| {
        CheckResult::warning("project-budget", why)
            .with_impact("Spending is not limited as the project's budget says.")
            .with_remedy(
                "Let runs report to this service, and use an agent that reports what it costs.",
            )
            .for_subject(mapping.team_key.as_str())
    }))
}

async fn tickets(app: &App, mapping: &Mapping) -> Vec<CheckResult> {
    let team = mapping.team_key.as_str();
    let check = "project-tickets";
    let looked = match app.account(mapping.system()) {
        Some(TicketingClient::Linear(linear)) => of_linear(linear, mapping).await,
        Some(TicketingClient::Jira(jira)) => of_jira(jira, mapping).await,
        None => Ok(vec![
            CheckResult::error(check, "its ticketing system is not connected")
                .with_impact("None of its tickets is seen.")
                .with_remedy(
                    "Set the credentials of the system, or map the project to the other one.",
                ),
        ]),
    };
    let found = looked.unwrap_or_else(|error| {
        vec![
            CheckResult::error(check, app.redactor.redact(&error.to_string()))
                .with_impact("Its tickets could not be looked at.")
                .with_remedy("See the ticketing connection above; it is the same account."),
        ]
    });
    let found = match found.is_empty() {
        true => vec![CheckResult::ok(check, "its tickets can be read")],
        false => found,
    };
    found.into_iter().map(|one| one.for_subject(team)).collect()
}

async fn of_linear(linear: &Linear, mapping: &Mapping) -> Result<Vec<CheckResult>, VendorError> {
    let key = mapping.team_key.as_str();
    if linear.has_team(key).await? {
        return Ok(Vec::new());
    }
    Ok(vec![
        CheckResult::error("project-tickets", format!("Linear shows no team {key} to this account"))
            .with_impact("None of its tickets is seen.")
            .with_remedy("Correct the team key of the mapping, or give the key's account access to the (private) team."),
    ])
}

async fn of_jira(jira: &Jira, mapping: &Mapping) -> Result<Vec<CheckResult>, VendorError> {
    let problems = jira.validate_mapping(mapping).await?;
    let is_sound = problems.is_empty();
    let told = |problem: String| {
        CheckResult::error("project-tickets", problem)
            .with_impact("Its tickets are neither found nor moved.")
            .with_remedy("Correct the query or the fields in the project's mapping, or make the fields in Jira.")
    };
    let mut found: Vec<CheckResult> = problems.into_iter().map(told).collect();
    if let (
        true,
        TicketingConfig::Jira {
            repo_field_value, ..
        },
    ) = (is_sound, &mapping.ticketing)
    {
        let [status, repo] = jira.mapping_field_options(mapping).await?;
        let wanted: Vec<&str> = Stage::ALL.map(Stage::jira_status).to_vec();
        found.extend(lacking("Agent-Implement Status", &status, &wanted));
        found.extend(lacking("Agent-Implement Repo", &repo, &[repo_field_value]));
    }
    Ok(found)
}

fn lacking(field: &str, there: &BTreeSet<String>, wanted: &[&str]) -> Option<CheckResult> {
    let missing: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|value| !there.contains(*value))
        .collect();
    (!missing.is_empty()).then(|| {
        let options = if missing.len() == 1 { "option" } else { "options" };
        let what = format!("the field {field} lacks the {options} {}", missing.join(", "));
        CheckResult::error("project-tickets", what)
            .with_impact("A ticket cannot be moved to a stage, or assigned to a repository, that the field does not offer.")
            .with_remedy("Add the options to the field, in every context that the project uses.")
    })
}

async fn rights(app: &App, mapping: &Mapping) -> Option<CheckResult> {
    let github = app.github.as_ref()?;
    let (check, repo) = ("project-rights", mapping.target_repo());
    let found = match github.missing_permissions(&repo, &RIGHTS).await {
        Ok(None) => {
            CheckResult::not_configured(check, "a plain token is used, whose rights nobody tells")
        }
        Ok(Some(lacking)) if lacking.is_empty() => {
            CheckResult::ok(check, format!("the App may do all that it needs on {repo}"))
        }
        Ok(Some(lacking)) => {
            let permissions = if lacking.len() == 1 {
                "permission"
            } else {
                "permissions"
            };
            let what = format!(
                "the App lacks the {permissions} {} on {repo}",
                lacking.join(", ")
            );
            CheckResult::error(check, what)
                .with_impact("Starting runs, pushing, commenting or syncing fails there.")
                .with_remedy(
                    "Add it on the App's settings page, then accept it for the installation.",
                )
        }
        Err(error) if error.is_not_found() => {
            CheckResult::error(check, format!("the App is not installed on {repo}"))
                .with_impact("Nothing of the project can run.")
                .with_remedy(
                    "Install the App on the repository, or correct owner and repo of the mapping.",
                )
        }
        Err(error) => CheckResult::error(check, app.redactor.redact(&error.to_string()))
            .with_impact("Whether the project may run could not be seen.")
            .with_remedy("See the repository host's connection above."),
    };
    Some(found.for_subject(mapping.team_key.as_str()))
}

/// Whether the workflows of the repository are given a model key.
async fn model_secret(app: &App, mapping: &Mapping) -> Option<CheckResult> {
    let (github, check) = (app.github.as_ref()?, "project-secrets");
    if mapping.provider != ModelProvider::Direct {
        return None;
    }
    // What failed there has been told by the rights.
    let names = github.secret_names(&mapping.target_repo()).await.ok()?;
    let is_key = |name: &String| MODEL_SECRETS.contains(&name.as_str());
    let found = match names {
        None => CheckResult::not_configured(
            check,
            "the App may not see the names of the repository's secrets; ANTHROPIC_API_KEY must be among them",
        ),
        Some(names) if names.iter().any(is_key) => {
            CheckResult::ok(check, "the repository has a model key")
        }
        Some(_) => CheckResult::warning(check, "the repository has no secret ANTHROPIC_API_KEY of its own")
            .with_impact("Unless its organization shares one, the agent in a CI run cannot ask its model.")
            .with_remedy("Add the secret ANTHROPIC_API_KEY to the repository (Settings, Secrets and variables, Actions)."),
    };
    Some(found.for_subject(mapping.team_key.as_str()))
}

/// The address of the open pull request that syncs the workflows of a project, if there is one.
async fn waiting_sync(app: &App, mapping: &Mapping) -> Option<String> {
    let github = app.github.as_ref()?;
    let open = github
        .find_open_pull(&mapping.target_repo(), SYNC_BRANCH)
        .await
        .ok()??;
    (open.base_branch == mapping.default_branch).then_some(open.url)
}

async fn workflows(app: &App, project: &ProjectTemplateStatus) -> CheckResult {
    let check = "project-workflows";
    let why =
        "A dispatch needs the workflow files on the default branch, as this version writes them.";
    let is_current =
        |(_, status): &(String, TemplateFileStatus)| *status == TemplateFileStatus::Current;
    let waiting = match project.files.iter().all(is_current) {
        true => None,
        false => waiting_sync(app, &project.mapping).await,
    };
    let mend = match waiting {
        Some(url) => format!("Merge the pull request that syncs them: {url}"),
        None => format!(
            "Sync them: POST /api/mappings/{}/sync-workflows (the panel's Sync workflows), and merge its pull request.",
            project.mapping.team_key
        ),
    };
    let finding = if let Some(error) = &project.error {
        CheckResult::error(check, error.clone()).with_impact(why).with_remedy(
            "See that branch and repository of the mapping are right and the App may read them.",
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
                    .with_impact(why)
                    .with_remedy(mend)
            }
            (true, false) => CheckResult::warning(check, format!("out of date: {stale}"))
                .with_impact(why)
                .with_remedy(mend),
            (true, true) => CheckResult::ok(check, "its workflows are there and current"),
        }
    };
    finding.for_subject(project.mapping.team_key.as_str())
}

fn runner(app: &App, mapping: &Mapping, placed: Result<Placement, String>) -> Vec<CheckResult> {
    let check = "project-runner";
    let mut found = Vec::new();
    match placed {
        Err(why) => found.push(
            CheckResult::error(check, why)
                .with_impact("None of its tickets is dispatched; they wait as ineligible.")
                .with_remedy("Set what is missing, or let its runs execute elsewhere: POST /api/runner-mode, or the mapping's executionMode."),
        ),
        Ok(Placement::Ci) => found.push(CheckResult::ok(check, word(Placement::Ci))),
        Ok(placement) => {
            found.push(CheckResult::ok(check, word(placement)));
            if placement != Placement::Local {
                found.extend(machine_size(mapping));
            }
            if mapping.provider == ModelProvider::Direct && app.config.model_keys.is_empty() {
                found.push(
                    CheckResult::error("model-key", "machines and containers are handed no model key")
                        .with_impact("The agent in them cannot ask its model.")
                        .with_remedy("Set ANTHROPIC_API_KEY (or CLAUDE_CODE_OAUTH_TOKEN) for the service."),
                );
            }
        }
    }
    let team = mapping.team_key.as_str();
    found.into_iter().map(|one| one.for_subject(team)).collect()
}

fn machine_size(mapping: &Mapping) -> Option<CheckResult> {
    let warning = MachineSize::from_mapping(mapping).warning()?;
    let found = CheckResult::warning("project-runner", warning)
        .with_impact("Machines are sold in certain sizes only; the next larger one is taken.")
        .with_remedy("Set the size that runs get in the project's settings.");
    Some(found)
}

fn word(placement: Placement) -> &'static str {
    match placement {
        Placement::Ci => "its runs execute in CI",
        Placement::Vm => "its runs execute in virtual machines",
        Placement::Local => RUNS_IN_LOCAL_CONTAINERS,
        Placement::Shadow => "its runs execute in CI, and virtual machines beside it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_option_or_several_are_missing() {
        let there = BTreeSet::from(["A".to_owned()]);
        let what = |wanted: &[&str]| Some(lacking("Status", &there, wanted)?.message);
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

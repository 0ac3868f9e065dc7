//! Whether each project's tickets are seen, its repository may be worked on, and its runs can start.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::stream;

use crate::app::App;
use crate::budget;
use crate::template_status::{self, ProjectStatus};
use domain::checkup::Finding;
use domain::machine_size::MachineSize;
use domain::mapping::{Mapping, Provider, Ticketing};
use domain::runner_mode::{Placement, place};
use domain::stage::Stage;
use domain::templates::{FileStatus, SYNC_BRANCH};
use store::StoreResult;
use vendors::http::VendorError;
use vendors::ticketing::{Account, Jira, Linear};

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
pub(super) const IN_CONTAINERS: &str = "its runs execute in containers of this machine";

/// The secrets of a repository that hold a model key for its CI runs.
const MODEL_SECRETS: [&str; 4] = [
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
];

/// What there is to say about these projects, in their order.
pub(super) async fn examine(app: &App, all: &[Mapping]) -> StoreResult<Vec<Finding>> {
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
    let looks: Vec<Vec<Finding>> = stream::iter(looks).buffered(AT_ONCE).collect().await;
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
        found.extend(runner(app, mapping, place(mode, mapping, app.available())));
    }
    Ok(found)
}

fn budget_of(app: &App, mapping: &Mapping) -> StoreResult<Option<Finding>> {
    let now = app.now();
    let warning = app
        .store
        .read(|tx| budget::warning(tx, app, mapping, now))?;
    Ok(warning.map(|why| {
        Finding::warning("project-budget", why)
            .because("Spending is not limited as the project's budget says.")
            .mend("Let runs report to this service, and use an agent that reports what it costs.")
            .of(mapping.team_key.as_str())
    }))
}

async fn tickets(app: &App, mapping: &Mapping) -> Vec<Finding> {
    let team = mapping.team_key.as_str();
    let check = "project-tickets";
    let looked = match app.account(mapping.system()) {
        Some(Account::Linear(linear)) => of_linear(linear, mapping).await,
        Some(Account::Jira(jira)) => of_jira(jira, mapping).await,
        None => Ok(vec![
            Finding::error(check, "its ticketing system is not connected")
                .because("None of its tickets is seen.")
                .mend("Set the credentials of the system, or map the project to the other one."),
        ]),
    };
    let found = looked.unwrap_or_else(|error| {
        vec![
            Finding::error(check, app.redactor.redact(&error.to_string()))
                .because("Its tickets could not be looked at.")
                .mend("See the ticketing connection above; it is the same account."),
        ]
    });
    let found = match found.is_empty() {
        true => vec![Finding::ok(check, "its tickets can be read")],
        false => found,
    };
    found.into_iter().map(|one| one.of(team)).collect()
}

async fn of_linear(linear: &Linear, mapping: &Mapping) -> Result<Vec<Finding>, VendorError> {
    let key = mapping.team_key.as_str();
    if linear.has_team(key).await? {
        return Ok(Vec::new());
    }
    Ok(vec![
        Finding::error("project-tickets", format!("Linear shows no team {key} to this account"))
            .because("None of its tickets is seen.")
            .mend("Correct the team key of the mapping, or give the key's account access to the (private) team."),
    ])
}

async fn of_jira(jira: &Jira, mapping: &Mapping) -> Result<Vec<Finding>, VendorError> {
    let problems = jira.check(mapping).await?;
    let is_sound = problems.is_empty();
    let told = |problem: String| {
        Finding::error("project-tickets", problem)
            .because("Its tickets are neither found nor moved.")
            .mend("Correct the query or the fields in the project's mapping, or make the fields in Jira.")
    };
    let mut found: Vec<Finding> = problems.into_iter().map(told).collect();
    if let (
        true,
        Ticketing::B {
            repo_field_value, ..
        },
    ) = (is_sound, &mapping.ticketing)
    {
        let [status, repo] = jira.fields_of(mapping).await?;
        let wanted: Vec<&str> = Stage::ALL.map(Stage::status).to_vec();
        found.extend(lacking("Agent-Implement Status", &status, &wanted));
        found.extend(lacking("Agent-Implement Repo", &repo, &[repo_field_value]));
    }
    Ok(found)
}

fn lacking(field: &str, there: &BTreeSet<String>, wanted: &[&str]) -> Option<Finding> {
    let missing: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|value| !there.contains(*value))
        .collect();
    (!missing.is_empty()).then(|| {
        let options = if missing.len() == 1 { "option" } else { "options" };
        let what = format!("the field {field} lacks the {options} {}", missing.join(", "));
        Finding::error("project-tickets", what)
            .because("A ticket cannot be moved to a stage, or assigned to a repository, that the field does not offer.")
            .mend("Add the options to the field, in every context that the project uses.")
    })
}

async fn rights(app: &App, mapping: &Mapping) -> Option<Finding> {
    let github = app.github.as_ref()?;
    let (check, repo) = ("project-rights", mapping.target());
    let found = match github.lacking(&repo, &RIGHTS).await {
        Ok(None) => Finding::off(check, "a plain token is used, whose rights nobody tells"),
        Ok(Some(lacking)) if lacking.is_empty() => {
            Finding::ok(check, format!("the App may do all that it needs on {repo}"))
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
            Finding::error(check, what)
                .because("Starting runs, pushing, commenting or syncing fails there.")
                .mend("Add it on the App's settings page, then accept it for the installation.")
        }
        Err(error) if error.is_not_found() => {
            Finding::error(check, format!("the App is not installed on {repo}"))
                .because("Nothing of the project can run.")
                .mend(
                    "Install the App on the repository, or correct owner and repo of the mapping.",
                )
        }
        Err(error) => Finding::error(check, app.redactor.redact(&error.to_string()))
            .because("Whether the project may run could not be seen.")
            .mend("See the repository host's connection above."),
    };
    Some(found.of(mapping.team_key.as_str()))
}

/// Whether the workflows of the repository are given a model key.
async fn model_secret(app: &App, mapping: &Mapping) -> Option<Finding> {
    let (github, check) = (app.github.as_ref()?, "project-secrets");
    if mapping.provider != Provider::Direct {
        return None;
    }
    // What failed there has been told by the rights.
    let names = github.secret_names(&mapping.target()).await.ok()?;
    let is_key = |name: &String| MODEL_SECRETS.contains(&name.as_str());
    let found = match names {
        None => Finding::off(
            check,
            "the App may not see the names of the repository's secrets; ANTHROPIC_API_KEY must be among them",
        ),
        Some(names) if names.iter().any(is_key) => {
            Finding::ok(check, "the repository has a model key")
        }
        Some(_) => Finding::warning(check, "the repository has no secret ANTHROPIC_API_KEY of its own")
            .because("Unless its organization shares one, the agent in a CI run cannot ask its model.")
            .mend("Add the secret ANTHROPIC_API_KEY to the repository (Settings, Secrets and variables, Actions)."),
    };
    Some(found.of(mapping.team_key.as_str()))
}

/// The address of the open pull request that syncs the workflows of a project, if there is one.
async fn waiting_sync(app: &App, mapping: &Mapping) -> Option<String> {
    let github = app.github.as_ref()?;
    let open = github
        .open_pull(&mapping.target(), SYNC_BRANCH)
        .await
        .ok()??;
    (open.base_branch == mapping.default_branch).then_some(open.url)
}

async fn workflows(app: &App, project: &ProjectStatus) -> Finding {
    let check = "project-workflows";
    let why =
        "A dispatch needs the workflow files on the default branch, as this version writes them.";
    let is_current = |(_, status): &(String, FileStatus)| *status == FileStatus::Current;
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
        Finding::error(check, error.clone()).because(why).mend(
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
        let (missing, stale) = (with(FileStatus::Missing), with(FileStatus::Stale));
        match (missing.is_empty(), stale.is_empty()) {
            (false, _) => {
                Finding::error(check, format!("missing on the default branch: {missing}"))
                    .because(why)
                    .mend(mend)
            }
            (true, false) => Finding::warning(check, format!("out of date: {stale}"))
                .because(why)
                .mend(mend),
            (true, true) => Finding::ok(check, "its workflows are there and current"),
        }
    };
    finding.of(project.mapping.team_key.as_str())
}

fn runner(app: &App, mapping: &Mapping, placed: Result<Placement, String>) -> Vec<Finding> {
    let check = "project-runner";
    let mut found = Vec::new();
    match placed {
        Err(why) => found.push(
            Finding::error(check, why)
                .because("None of its tickets is dispatched; they wait as ineligible.")
                .mend("Set what is missing, or let its runs execute elsewhere: POST /api/runner-mode, or the mapping's executionMode."),
        ),
        Ok(Placement::Ci) => found.push(Finding::ok(check, word(Placement::Ci))),
        Ok(placement) => {
            found.push(Finding::ok(check, word(placement)));
            if placement != Placement::Local {
                found.extend(machine_size(mapping));
            }
            if mapping.provider == Provider::Direct && app.config.model_keys.is_empty() {
                found.push(
                    Finding::error("model-key", "machines and containers are handed no model key")
                        .because("The agent in them cannot ask its model.")
                        .mend("Set ANTHROPIC_API_KEY (or CLAUDE_CODE_OAUTH_TOKEN) for the service."),
                );
            }
        }
    }
    let team = mapping.team_key.as_str();
    found.into_iter().map(|one| one.of(team)).collect()
}

fn machine_size(mapping: &Mapping) -> Option<Finding> {
    let warning = MachineSize::of(mapping).warning()?;
    let found = Finding::warning("project-runner", warning)
        .because("Machines are sold in certain sizes only; the next larger one is taken.")
        .mend("Set the size that runs get in the project's settings.");
    Some(found)
}

fn word(placement: Placement) -> &'static str {
    match placement {
        Placement::Ci => "its runs execute in CI",
        Placement::Vm => "its runs execute in virtual machines",
        Placement::Local => IN_CONTAINERS,
        Placement::Shadow => "its runs execute in CI, and virtual machines beside it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_option_or_several_are_missing() {
        let there = BTreeSet::from(["A".to_owned()]);
        let what = |wanted: &[&str]| Some(lacking("Status", &there, wanted)?.what);
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

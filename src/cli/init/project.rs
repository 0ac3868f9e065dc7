//! First project: its repository, its source of tickets, and what its runs need.

use anyhow::{Context, bail};
use serde_json::{Value, json};

use domain::check_result::CheckLevel;
use domain::ids::Repo;
use domain::issue::System;
use domain::mapping::is_plain_name;
use domain::sanitize::single_line;
use engine::app::App;
use engine::choices::{ChoiceList, VendorList, vendor_list};
use engine::doctor::repository_rights;
use vendors::http::percent_encode;
use vendors::scm::TokenPermission;

use super::candidate::Candidate;
use super::questions::{Choice, Questions};
use super::temporary_service::TemporaryService;
use super::{InitArgs, Runner};

/// Repository that tickets change.
pub(super) struct Target {
    /// Repository.
    pub(super) repo: Repo,
    /// Branch that pull requests are opened against.
    pub(super) branch: String,
}

/// Source of the tickets: the fields of the project that name it.
pub(super) struct Source {
    /// Suggested key of the project.
    key: String,
    /// Value of `ticketingProvider`.
    provider: &'static str,
    /// Value of `ticketingConfig`.
    config: Value,
    /// Where tickets are flagged, for the next steps.
    pub(super) trigger: String,
}

/// What was set up.
pub(super) struct Outcome {
    /// Repository of the project.
    pub(super) repo: Repo,
    /// Where tickets are flagged.
    pub(super) trigger: String,
    /// Pull request with the workflows, if one is open.
    pub(super) workflows_pull: Option<String>,
}

/// Chooses the repository and checks that the credentials may work in it.
pub(super) async fn choose_repository(
    candidate: &Candidate,
    questions: &Questions,
    arguments: &InitArgs,
    needed: &[TokenPermission],
) -> anyhow::Result<Target> {
    let app = candidate.app().await?;
    let mut given = arguments.repo.clone();
    loop {
        let repo = match given.take() {
            Some(repo) => repo,
            None => ask_repository(&app, questions).await?,
        };
        match check_repository(&app, &repo, needed).await {
            Ok(default) => {
                let branch = arguments.branch.clone().unwrap_or(default);
                println!("Repository: {repo}, branch {branch}");
                return Ok(Target { repo, branch });
            }
            Err(problem) if questions.can_ask() => {
                println!("{problem}");
                if arguments.repo.is_some() {
                    questions
                        .confirm("Check it again?")?
                        .then_some(())
                        .context("stopped")?;
                    given = Some(repo);
                }
            }
            Err(problem) => bail!(problem),
        }
    }
}

async fn ask_repository(app: &App, questions: &Questions) -> anyhow::Result<Repo> {
    let choices = listed(vendor_list(app, VendorList::Repositories).await);
    loop {
        let name =
            questions.choose_name("Which repository do tickets change?", "--repo", &choices)?;
        match Repo::parse(&name) {
            Some(repo) => return Ok(repo),
            None => println!("Enter it as OWNER/NAME."),
        }
    }
}

/// Returns the default branch of a repository that runs can work in. The error is a sentence.
async fn check_repository(
    app: &App,
    repo: &Repo,
    needed: &[TokenPermission],
) -> Result<String, String> {
    let branches = vendor_list(app, VendorList::Branches(repo.clone())).await;
    if let Some(problem) = branches.error {
        return Err(problem);
    }
    let default = branches.choices.into_iter().next();
    let default = default.ok_or_else(|| format!("{repo} has no branch. Push a first commit."))?;
    match repository_rights(app, repo, needed).await {
        Some(rights) if rights.level == CheckLevel::Error => Err(format!(
            "GitHub: {}. {} {}",
            single_line(&rights.message),
            rights.impact,
            rights.remedy
        )),
        _ => Ok(default.value),
    }
}

/// Issues of the repository itself.
pub(super) fn issues_of(target: &Target) -> Source {
    Source {
        key: key_of(&target.repo),
        provider: "C",
        config: json!({"kind": "C"}),
        trigger: format!(
            "Put the label Agent-Implement on an issue of {}.",
            target.repo
        ),
    }
}

/// Chooses the team of Linear.
pub(super) async fn choose_team(
    candidate: &Candidate,
    questions: &Questions,
    arguments: &InitArgs,
) -> anyhow::Result<Source> {
    let team = choose_source(candidate, questions, arguments, System::Linear).await?;
    Ok(Source {
        provider: "A",
        config: json!({"kind": "A"}),
        trigger: format!("Put the label Agent-Implement on an issue of the Linear team {team}."),
        key: team,
    })
}

/// Chooses the project of Jira.
pub(super) async fn choose_jira_project(
    candidate: &Candidate,
    questions: &Questions,
    arguments: &InitArgs,
    target: &Target,
) -> anyhow::Result<Source> {
    let project = choose_source(candidate, questions, arguments, System::Jira).await?;
    Ok(Source {
        provider: "B",
        config: json!({
            "kind": "B",
            "jql": format!("project = \"{project}\""),
            "repoFieldValue": target.repo.name,
        }),
        trigger: format!(
            "Set Agent-Implement Repo of an issue of {project} to {}, then Agent-Implement Status to Ready.",
            target.repo.name
        ),
        key: project,
    })
}

async fn choose_source(
    candidate: &Candidate,
    questions: &Questions,
    arguments: &InitArgs,
    system: System,
) -> anyhow::Result<String> {
    let app = candidate.app().await?;
    let list = vendor_list(&app, VendorList::Teams(system)).await;
    let (what, error) = match system {
        System::Jira => ("Which Jira project?", list.error.clone()),
        _ => ("Which Linear team?", list.error.clone()),
    };
    let choices = listed(list);
    let Some(given) = &arguments.team else {
        return questions.choose_name(what, "--team", &choices);
    };
    let is_listed = choices.iter().any(|choice| choice.value == *given);
    if !is_listed && error.is_none() && !choices.is_empty() {
        let keys: Vec<&str> = choices.iter().map(|choice| choice.value.as_str()).collect();
        bail!(
            "--team {given}: there is no such key. Keys: {}",
            keys.join(", ")
        );
    }
    Ok(given.clone())
}

fn listed(list: ChoiceList) -> Vec<Choice<String>> {
    if let Some(error) = &list.error {
        println!("{}", single_line(error));
    }
    let choices = list.choices.into_iter().map(|choice| {
        let label = match choice.label == choice.value {
            true => choice.label,
            false => format!("{} ({})", choice.value, choice.label),
        };
        Choice::new(choice.value, label)
    });
    choices.collect()
}

/// Key for a project of a repository: its name, with `-` in place of characters that a key cannot have.
fn key_of(repo: &Repo) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let key: String = repo
        .name
        .chars()
        .map(|c| if allowed(c) { c } else { '-' })
        .collect();
    let key = key.trim_start_matches(['-', '_']);
    match is_plain_name(key, allowed) {
        true => key.to_owned(),
        false => "project".to_owned(),
    }
}

/// Stores the runner mode and the project, and opens the pull request with the workflows if runs execute in CI.
pub(super) async fn set_up(
    service: &TemporaryService,
    questions: &Questions,
    arguments: &InitArgs,
    runner: Runner,
    target: &Target,
    source: &Source,
) -> anyhow::Result<Outcome> {
    let key = arguments.project.as_deref().unwrap_or(&source.key);
    set_runner_mode(service, questions, runner, key).await?;
    let body = mapping(arguments, runner, target, source, key);
    store_project(service, key, &body).await?;
    let workflows_pull = match runner {
        Runner::Ci => sync_workflows(service, key).await?,
        Runner::Local | Runner::Vm | Runner::Kubernetes => None,
    };
    Ok(Outcome {
        repo: target.repo.clone(),
        trigger: source.trigger.clone(),
        workflows_pull,
    })
}

/// Local containers are a mode of the whole service; otherwise each project names its runner. A person decides about other
/// projects that the mode moves.
async fn set_runner_mode(
    service: &TemporaryService,
    questions: &Questions,
    runner: Runner,
    key: &str,
) -> anyhow::Result<()> {
    let wanted = match runner {
        Runner::Local => "local",
        Runner::Ci | Runner::Vm | Runner::Kubernetes => "default",
    };
    let current = service.get("/api/runner-mode").await?;
    if current["mode"] == wanted || current["mode"] == runner.mode() {
        return Ok(());
    }
    let stored = service.get("/api/mappings").await?;
    let names = stored.as_object().into_iter().flatten();
    let others: Vec<&str> = names
        .map(|(name, _)| name.as_str())
        .filter(|name| *name != key)
        .collect();
    if !others.is_empty() {
        let change = format!(
            "The runner mode of the service must change from {} to {wanted}, which decides where other projects run, too: \
             {}.",
            current["mode"].as_str().unwrap_or_default(),
            single_line(&others.join(", "))
        );
        if !questions.can_ask() {
            bail!("{change} Change it in the panel first, or run the command without --yes");
        }
        if !questions.confirm(&format!("{change} Change it?"))? {
            bail!("the runner mode stays, and the project is not stored. Choose another --runner");
        }
    }
    service
        .post("/api/runner-mode", &json!({"mode": wanted}))
        .await?;
    Ok(())
}

fn mapping(
    arguments: &InitArgs,
    runner: Runner,
    target: &Target,
    source: &Source,
    key: &str,
) -> Value {
    let execution_mode = match runner {
        Runner::Vm => "vm-machines",
        Runner::Kubernetes => "kubernetes",
        Runner::Ci | Runner::Local => "ci-workflow",
    };
    let mut body = json!({
        "teamKey": key,
        "owner": target.repo.owner,
        "repo": target.repo.name,
        "defaultBranch": target.branch,
        "ticketingProvider": source.provider,
        "ticketingConfig": source.config,
        "executionMode": execution_mode,
    });
    if arguments.planning {
        body["planningEnabled"] = json!(true);
        body["planningWorkflowFile"] = json!(domain::mapping::PLAN_WORKFLOW);
    }
    body
}

/// Stores the project, unless it is stored with the same values.
async fn store_project(service: &TemporaryService, key: &str, body: &Value) -> anyhow::Result<()> {
    let stored = service.get("/api/mappings").await?;
    let fields = body.as_object().into_iter().flatten();
    let mut differing =
        fields.filter(|(name, value)| !contains(&stored[key][name.as_str()], value));
    if differing.next().is_none() {
        println!("Project {key} is stored already.");
        return Ok(());
    }
    let check = service.post("/api/mappings/check", body).await?;
    for (list, label) in [("problems", "Problem"), ("warnings", "Warning")] {
        for one in check[list].as_array().into_iter().flatten() {
            let message = one["message"].as_str().unwrap_or_default();
            println!("{label}: {}", single_line(message));
        }
    }
    if check["ok"] != true {
        bail!("the project cannot be stored; see the problems above");
    }
    service.post("/api/mappings", body).await?;
    println!("Stored project {key}.");
    Ok(())
}

/// Whether a stored value has at least the fields of a wanted one.
fn contains(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => wanted.iter().all(|(name, value)| {
            stored
                .get(name)
                .is_some_and(|stored| contains(stored, value))
        }),
        _ => stored == wanted,
    }
}

/// Opens the pull request with the workflows. Returns its address; `None` if the repository is up to date.
async fn sync_workflows(service: &TemporaryService, key: &str) -> anyhow::Result<Option<String>> {
    let path = format!("/api/mappings/{}/sync-workflows", percent_encode(key));
    let synced = service.post(&path, &json!({})).await;
    let report = synced.context("opening the pull request with the workflows")?;
    let url = report["prUrl"].as_str().map(str::to_owned);
    if let Some(url) = &url {
        println!("Pull request with the workflows: {}", single_line(url));
    }
    Ok(url)
}

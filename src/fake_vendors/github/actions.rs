//! Endpoints of workflows, dispatches and runs.

use serde_json::{Map, Value, json};

use super::GitHubInner;
use super::api_json::workflow_id;
use super::ci::event_runs::DISPATCH;
use super::ci::run_attempt;
use super::ci::workflow::{Workflow, WorkflowInput, plain_text};
use super::model::{RunRecord, RunStatus};
use super::rest::{ApiCall, RepoPath, RestError, RestResult, not_found, ok_json, rest_error};
use crate::clock;
use crate::http::HttpResponse;
use crate::persistence::lock;

/// Maximum number of inputs of one dispatch.
const MAX_INPUTS: usize = 25;
/// Maximum characters of all inputs as compact JSON.
const MAX_INPUT_CHARS: usize = 65_535;

impl ApiCall<'_> {
    /// Returns a workflow's file name, given its name or ID.
    fn workflow_file(
        &self,
        repo_path: &RepoPath<'_>,
        name_or_id: &str,
    ) -> Result<String, RestError> {
        let Ok(id) = name_or_id.parse::<u64>() else {
            return Ok(name_or_id.to_owned());
        };
        let files = self.workflow_files(repo_path)?;
        files
            .into_iter()
            .find(|file| workflow_id(file) == id)
            .ok_or_else(not_found)
    }

    fn workflow_files(&self, repo_path: &RepoPath<'_>) -> Result<Vec<String>, RestError> {
        let branch = self.read_repo(repo_path, |repo| repo.default_branch.clone())?;
        let git = self.host.git(repo_path.owner, repo_path.name);
        let entries = git
            .list_tree(&branch, ".github/workflows")
            .unwrap_or_default();
        Ok(entries.into_iter().map(|entry| entry.path).collect())
    }

    fn workflow_json(&self, repo_path: &RepoPath<'_>, file: &str) -> Result<Value, RestError> {
        let branch = self.read_repo(repo_path, |repo| repo.default_branch.clone())?;
        let path = format!(".github/workflows/{file}");
        let text = self
            .host
            .git(repo_path.owner, repo_path.name)
            .read_file(&branch, &path)
            .ok_or_else(not_found)?;
        let name = Workflow::parse(&String::from_utf8_lossy(&text))
            .ok()
            .and_then(|w| w.name);
        let html = format!(
            "{}/{}/{}/blob/{branch}/{path}",
            self.host.server_url, repo_path.owner, repo_path.name
        );
        Ok(
            json!({"id": workflow_id(file), "name": name.unwrap_or_else(|| path.clone()), "path": path, "state": "active", "html_url": html}),
        )
    }

    pub(super) fn list_workflows(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let files = self.workflow_files(repo_path)?;
        let items: Result<Vec<Value>, RestError> = files
            .iter()
            .map(|file| self.workflow_json(repo_path, file))
            .collect();
        self.paginate(
            items?,
            |total, items| json!({"total_count": total, "workflows": items}),
        )
    }

    pub(super) fn get_workflow(&self, repo_path: &RepoPath<'_>, name_or_id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let file = self.workflow_file(repo_path, name_or_id)?;
        ok_json(self.workflow_json(repo_path, &file)?)
    }

    /// Lists the names of secrets. Values are only available to runs.
    pub(super) fn list_secrets(&self, repo_path: &RepoPath<'_>) -> RestResult {
        self.require_permission(repo_path, "secrets", "read")?;
        let names: Vec<String> =
            self.read_repo(repo_path, |repo| repo.secrets.keys().cloned().collect())?;
        let created_at = "2026-01-01T00:00:00Z";
        let items = names
            .into_iter()
            .map(|name| json!({"name": name, "created_at": created_at, "updated_at": created_at}));
        self.paginate(
            items.collect(),
            |total, items| json!({"total_count": total, "secrets": items}),
        )
    }

    pub(super) fn dispatch(&self, repo_path: &RepoPath<'_>, name_or_id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "write")?;
        if let Some((status, message)) =
            self.read_repo(repo_path, |repo| repo.dispatch_error.clone())?
        {
            return Err(rest_error(status, message));
        }
        let file = self.workflow_file(repo_path, name_or_id)?;
        let branch = self.body_str("ref").unwrap_or_default();
        let branch = branch
            .strip_prefix("refs/heads/")
            .unwrap_or(branch)
            .to_owned();
        let git = self.host.git(repo_path.owner, repo_path.name);
        let sha = git
            .branch_head(&branch)
            .ok_or_else(|| rest_error(422, format!("No ref found for: {branch}")))?;
        let text = git
            .read_file(&sha, &format!(".github/workflows/{file}"))
            .ok_or_else(not_found)?;
        let workflow = Workflow::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
            let message = format!("{error:#}");
            rest_error(
                422,
                if message.starts_with("Workflow does not") {
                    message
                } else {
                    format!("failed to parse workflow: {message}")
                },
            )
        })?;
        let inputs = validate_inputs(&workflow, &self.body["inputs"])?;
        let new = NewRun {
            event: DISPATCH,
            file,
            branch,
            sha,
            inputs,
            actor: &self.require_token()?.login,
        };
        let run = self.host.add_run(repo_path, &workflow, new);
        if self.body["return_run_details"] != Value::Bool(true) {
            return Ok(HttpResponse::empty(204));
        }
        let repo = format!("{}/{}", repo_path.owner, repo_path.name);
        ok_json(json!({
            "workflow_run_id": run,
            "run_url": format!("{}/repos/{repo}/actions/runs/{run}", self.host.api_url),
            "html_url": format!("{}/{repo}/actions/runs/{run}", self.host.server_url),
        }))
    }

    pub(super) fn list_runs(&self, repo_path: &RepoPath<'_>, file: Option<&str>) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let file = file
            .map(|name_or_id| self.workflow_file(repo_path, name_or_id))
            .transpose()?;
        let now = clock::now_ms();
        let status = self.query_param("status");
        let event = self.query_param("event");
        let branch = self.query_param("branch");
        let suite = self.query_param("check_suite_id");
        let suite: Option<u64> = suite.and_then(|id| id.parse().ok());
        let head = self.query_param("head_sha");
        let created = self.query_param("created");
        let items = self.read_repo(repo_path, |repo| {
            let runs = repo.runs.iter().rev().filter(|run| run.listed_from <= now);
            runs.filter(|run| file.as_ref().is_none_or(|file| *file == run.workflow))
                .filter(|run| event.as_ref().is_none_or(|event| *event == run.event))
                .filter(|run| suite.is_none_or(|suite| suite == run.id))
                .filter(|run| head.as_ref().is_none_or(|head| *head == run.sha))
                .filter(|run| branch.as_ref().is_none_or(|branch| *branch == run.branch))
                .filter(|run| {
                    created
                        .as_ref()
                        .is_none_or(|created| in_range(run.created_at, created))
                })
                .filter(|run| {
                    status.as_deref().is_none_or(|status| {
                        status == run.status.as_str() || run.conclusion.as_deref() == Some(status)
                    })
                })
                .map(|run| self.host.run_json(repo, run))
                .collect()
        })?;
        self.paginate(
            items,
            |total, items| json!({"total_count": total, "workflow_runs": items}),
        )
    }

    pub(super) fn find_run(
        &self,
        repo_path: &RepoPath<'_>,
        id: &str,
    ) -> Result<RunRecord, RestError> {
        let id: u64 = id.parse().map_err(|_| not_found())?;
        let run = self.read_repo(repo_path, |repo| {
            repo.runs.iter().find(|run| run.id == id).cloned()
        })?;
        run.ok_or_else(not_found)
    }

    pub(super) fn get_run(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let run = self.find_run(repo_path, id)?;
        ok_json(self.read_repo(repo_path, |repo| self.host.run_json(repo, &run))?)
    }

    pub(super) fn cancel_run(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "write")?;
        let run = self.find_run(repo_path, id)?;
        if run.status == RunStatus::Completed {
            return Err(rest_error(
                409,
                "Cannot cancel a workflow run that is completed.",
            ));
        }
        self.host.model.update(|model| {
            if let Some(run) = model
                .ensure_repo(repo_path.owner, repo_path.name)
                .run_mut(run.id)
            {
                run.cancel_requested_at = run.cancel_requested_at.or(Some(clock::now_ms()));
            }
        });
        if self.host.fake_runs {
            self.host
                .mark_run_completed(repo_path.owner, repo_path.name, run.id, "cancelled");
        }
        Ok(HttpResponse::json(202, &json!({})))
    }
}

impl ApiCall<'_> {
    /// Starts a new attempt of a run, in which the jobs that succeeded are not repeated.
    pub(super) fn rerun_failed_jobs(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "write")?;
        let run = self.find_run(repo_path, id)?;
        if let Some(status) = self.read_repo(repo_path, |repo| repo.rerun_error)? {
            return Err(rest_error(status, "This workflow run cannot be retried"));
        }
        if run.status != RunStatus::Completed || run.conclusion.as_deref() == Some("success") {
            return Err(rest_error(403, "This workflow run cannot be retried"));
        }
        self.host.model.update_and_flush(|model| {
            let repo = model.ensure_repo(repo_path.owner, repo_path.name);
            if let Some(run) = repo.run_mut(run.id) {
                run.attempt += 1;
                run.status = RunStatus::Queued;
                run.conclusion = None;
                run.cancel_requested_at = None;
                run.start_at = clock::now_ms();
                run.updated_at = clock::now_ms();
            }
        });
        Ok(HttpResponse::json(201, &json!({})))
    }
}

fn validate_inputs(workflow: &Workflow, sent: &Value) -> Result<Map<String, Value>, RestError> {
    let mut inputs = match sent {
        Value::Null => Map::new(),
        Value::Object(inputs) => inputs.clone(),
        _ => {
            return Err(rest_error(
                422,
                "Invalid request.\n\nFor 'properties/inputs', value is not an object.",
            ));
        }
    };
    if inputs.len() > MAX_INPUTS {
        return Err(rest_error(
            422,
            format!(
                "Invalid request.\n\nNo more than {MAX_INPUTS} properties are allowed; {} were supplied.",
                inputs.len()
            ),
        ));
    }
    if sent.to_string().chars().map(json_length).sum::<usize>() > MAX_INPUT_CHARS {
        return Err(rest_error(422, "inputs are too large."));
    }
    if inputs
        .values()
        .any(|value| value.is_object() || value.is_array())
    {
        return Err(rest_error(
            422,
            "Invalid request.\n\nFor 'properties/inputs', an input is not a string.",
        ));
    }
    inputs.retain(|_, value| !value.is_null());
    let declared = |name: &String| workflow.inputs.iter().any(|input| input.name == *name);
    let unexpected: Vec<&String> = inputs.keys().filter(|name| !declared(name)).collect();
    if !unexpected.is_empty() {
        return Err(rest_error(
            422,
            format!("Unexpected inputs provided: {}", json!(unexpected)),
        ));
    }
    for input in &workflow.inputs {
        validate_input(input, inputs.get(&input.name))?;
    }
    Ok(inputs)
}

/// Returns the length of a character in compact JSON, with the escapes of GitHub's JSON encoder (`<`,
/// `>` and `&` are escaped).
fn json_length(c: char) -> usize {
    const ESCAPED: usize = r"\u003c".len();
    match c {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => ESCAPED,
        _ => c.len_utf16(),
    }
}

fn validate_input(input: &WorkflowInput, sent: Option<&Value>) -> Result<(), RestError> {
    let value = sent.or(input.default.as_ref()).map(plain_text);
    match value {
        None if input.required => Err(rest_error(
            422,
            format!("Required input '{}' not provided", input.name),
        )),
        Some(value) if input.kind == "choice" && !input.options.contains(&value) => {
            Err(rest_error(
                422,
                format!(
                    "Provided value '{value}' for input '{}' not in the list of allowed values",
                    input.name
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Returns whether a time is in a range: `>=T`, `<=T`, `>T`, `<T`, `A..B` or a day.
fn in_range(time: i64, range: &str) -> bool {
    let whole_second = time / 1_000 * 1_000;
    let bound = |text: &str| clock::parse(text).unwrap_or(0);
    if let Some((from, to)) = range.split_once("..") {
        let after = from == "*" || whole_second >= bound(from);
        return after && (to == "*" || whole_second <= bound(to));
    }
    for (operator, test) in [
        (">=", (|time, bound| time >= bound) as fn(i64, i64) -> bool),
        ("<=", |time, bound| time <= bound),
        (">", |time, bound| time > bound),
        ("<", |time, bound| time < bound),
    ] {
        if let Some(text) = range.strip_prefix(operator) {
            return test(whole_second, bound(text));
        }
    }
    clock::iso(time).starts_with(range)
}

/// Workflow run to add.
pub(super) struct NewRun<'a> {
    /// Event that starts it.
    pub event: &'static str,
    /// File name of the workflow.
    pub file: String,
    pub branch: String,
    pub sha: String,
    pub inputs: Map<String, Value>,
    /// Login of the account that starts it.
    pub actor: &'a str,
}

impl GitHubInner {
    pub(super) fn add_run(
        &self,
        repo_path: &RepoPath<'_>,
        workflow: &Workflow,
        new: NewRun<'_>,
    ) -> u64 {
        let NewRun {
            event,
            file,
            branch,
            sha,
            inputs,
            actor,
        } = new;
        let timing = *lock(&self.timing);
        self.model.update(|model| {
            let now = clock::now_ms();
            let id = model.next_id();
            let repo = model.ensure_repo(repo_path.owner, repo_path.name);
            let number = repo.runs.iter().filter(|run| run.workflow == file).count() as u64 + 1;
            let mut run = RunRecord {
                id,
                number,
                event: event.to_owned(),
                workflow_name: workflow
                    .name
                    .clone()
                    .unwrap_or_else(|| format!(".github/workflows/{file}")),
                workflow: file,
                title: String::new(),
                branch,
                sha,
                actor: actor.to_owned(),
                inputs,
                status: RunStatus::Queued,
                conclusion: None,
                attempt: 1,
                created_at: now,
                updated_at: now,
                start_at: now + timing.start_delay.as_millis() as i64,
                listed_from: now + timing.listing_delay.as_millis() as i64,
                started_at: None,
                timeout_ms: 0,
                runner_labels: Vec::new(),
                cancel_requested_at: None,
            };
            run.title = run_attempt::run_title(workflow, repo, &run);
            run.runner_labels = run_attempt::runner_labels(workflow, repo, &run);
            run.timeout_ms = (run_attempt::timeout_minutes(workflow, repo, &run) * 60_000.0) as i64;
            repo.runs.push(run);
            id
        })
    }
}

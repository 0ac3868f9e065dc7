//! Preparation of an attempt's folder for runner.sh: expressions evaluated, each step as a script.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::{Map, Value, json};

use super::event_runs::DISPATCH;
use super::expression::{ExprContexts, ExprValue, shell_quote};
use super::workflow::{Workflow, WorkflowJob, WorkflowStep, plain_text};
use crate::github::artifacts;
use crate::github::model::{RepoRecord, RunRecord};

const RUNNER: &str = include_str!("runner.sh");

/// Input of an attempt's preparation.
pub(crate) struct RunAttempt<'a> {
    pub repo: &'a RepoRecord,
    pub run: &'a RunRecord,
    pub workflow: &'a Workflow,
    pub token: &'a str,
    pub dir: PathBuf,
    /// Folder of `agent-implement` and `claude`.
    pub bin_dir: &'a Path,
    /// `PATH` of this process.
    pub search_path: &'a str,
    /// Folder of the repository.
    pub git_dir: &'a Path,
    pub api_url: &'a str,
    pub server_url: &'a str,
}

impl RunAttempt<'_> {
    /// Writes the folder and returns the path of the script to run.
    pub(crate) fn write(&self) -> anyhow::Result<PathBuf> {
        for folder in ["work", "temp", "home", "needs", "tools"] {
            fs::create_dir_all(self.dir.join(folder))?;
        }
        fs::write(
            self.dir.join("event.json"),
            serde_json::to_vec_pretty(&self.event())?,
        )?;
        // Stored with the attempt, because its token is removed from the model when the run ends.
        let secrets = self.repo.secrets.values().map(String::as_str);
        let masks: Vec<&str> = secrets.chain([self.token]).collect();
        fs::write(self.dir.join("masks.json"), serde_json::to_vec(&masks)?)?;
        for (at, job) in self.workflow.jobs.iter().enumerate() {
            self.write_job(&self.dir.join(format!("job-{at:02}")), job)
                .with_context(|| format!("job {}", job.id))?;
        }
        let script = self.dir.join("runner.sh");
        fs::write(&script, RUNNER)?;
        Ok(script)
    }

    fn write_job(&self, dir: &Path, job: &WorkflowJob) -> anyhow::Result<()> {
        fs::create_dir_all(dir)?;
        let mut contexts = self.contexts(&job.id);
        let mut env = self.environment(&job.id);
        for (key, value) in self.workflow.env.iter().chain(&job.env) {
            env.push((
                key.clone(),
                contexts
                    .interpolate(&plain_text(value))
                    .map_err(|e| anyhow!(e))?,
            ));
        }
        let declared = env
            .iter()
            .map(|(k, v)| (k.clone(), Value::String(v.clone())));
        contexts
            .0
            .insert("env".into(), Value::Object(declared.collect()));
        let outputs = job
            .outputs
            .iter()
            .map(|(key, value)| Ok((key.clone(), contexts.interpolate(&plain_text(value))?)))
            .collect::<Result<Vec<_>, String>>()
            .map_err(|e| anyhow!(e))?;
        fs::write(dir.join("id"), &job.id)?;
        let name = job.name.as_ref().unwrap_or(&job.id);
        fs::write(
            dir.join("name"),
            contexts.interpolate(name).map_err(|e| anyhow!(e))?,
        )?;
        fs::write(dir.join("env"), nul_separated(&env))?;
        fs::write(dir.join("outputs"), nul_separated(&outputs))?;
        fs::write(dir.join("needs"), job.needs.join("\n") + "\n")?;
        let condition = contexts.condition(job.condition.as_deref());
        fs::write(dir.join("if"), condition.map_err(|e| anyhow!(e))?)?;
        for (at, step) in job.steps.iter().enumerate() {
            self.write_step(&dir.join(format!("step-{at:02}")), &contexts, job, step)
                .map_err(|e| anyhow!(e))
                .with_context(|| format!("step {}", at + 1))?;
        }
        Ok(())
    }

    fn write_step(
        &self,
        dir: &Path,
        contexts: &ExprContexts,
        job: &WorkflowJob,
        step: &WorkflowStep,
    ) -> Result<(), String> {
        let write = |name: &str, text: String| {
            fs::write(dir.join(name), text).map_err(|error| format!("{name}: {error}"))
        };
        fs::create_dir_all(dir).map_err(|error| error.to_string())?;
        let folder = dir
            .file_name()
            .map(|name| name.to_string_lossy().replace('-', "_"));
        let mut step_contexts = ExprContexts(contexts.0.clone());
        let mut env = Vec::new();
        for (key, value) in &step.env {
            env.push((key.clone(), contexts.interpolate(&plain_text(value))?));
        }
        if let Some(Value::Object(env_context)) = step_contexts.0.get_mut("env") {
            env_context.extend(
                env.iter()
                    .map(|(k, v)| (k.clone(), Value::String(v.clone()))),
            );
        }
        write(
            "id",
            step.id
                .clone()
                .unwrap_or_else(|| format!("__{}", folder.unwrap_or_default())),
        )?;
        write("if", step_contexts.condition(step.condition.as_deref())?)?;
        write("env", nul_separated(&env))?;
        write("name", step_name(step, &step_contexts)?)?;
        if step.continue_on_error {
            write("continue", String::new())?;
        }
        let Some(script) = self.step_script(step, &step_contexts)? else {
            return Ok(());
        };
        let shell = step.shell.as_ref().or(job.shell.as_ref());
        let shell = match shell.map(String::as_str) {
            None => "bash -e",
            Some("bash") => "bash --noprofile --norc -eo pipefail",
            Some("sh") => "sh -e",
            Some(other) => other.strip_suffix(" {0}").unwrap_or(other),
        };
        let work = self.dir.join("work");
        let workdir = step.workdir.as_ref().or(job.workdir.as_ref());
        let workdir = match workdir {
            Some(sub) => work.join(step_contexts.interpolate(sub)?),
            None => work,
        };
        write("header", header(&script, shell, &env))?;
        write("script", script)?;
        write("shell", shell.to_owned())?;
        write("workdir", workdir.to_string_lossy().into_owned())
    }

    /// Returns the script of a step. Of all actions, only the upload of an artifact is performed, and the checkout in
    /// runs that an event started.
    fn step_script(
        &self,
        step: &WorkflowStep,
        contexts: &ExprContexts,
    ) -> Result<Option<String>, String> {
        if let Some(run) = &step.run {
            return contexts.interpolate(run).map(Some);
        }
        let uses = step.uses.as_deref().unwrap_or_default();
        if uses.starts_with("actions/checkout@") && self.run.event != DISPATCH {
            let git = shell_quote(&self.git_dir.to_string_lossy());
            return Ok(Some(format!(
                "git --git-dir={git} archive {} | tar -x",
                self.run.sha
            )));
        }
        if !uses.starts_with("actions/upload-artifact@") {
            return Ok(None);
        }
        let input = |name: &str| contexts.interpolate(&plain_text(&step.with[name]));
        let (name, path) = (input("name")?, input("path")?);
        Ok(Some(artifacts::upload_script(&self.dir, &name, &path)))
    }

    fn event(&self) -> Value {
        let repo = self.repo;
        let inputs = self.workflow.event_inputs(&self.run.inputs);
        json!({
            "inputs": if inputs.is_empty() { Value::Null } else { Value::Object(inputs) },
            "ref": format!("refs/heads/{}", self.run.branch),
            "workflow": self.run.workflow,
            "repository": {
                "id": repo.id,
                "name": repo.name,
                "full_name": repo.full_name(),
                "private": true,
                "default_branch": repo.default_branch,
                "html_url": format!("{}/{}", self.server_url, repo.full_name()),
                "clone_url": format!("{}/{}.git", self.server_url, repo.full_name()),
                "owner": {"login": repo.owner, "type": "Organization"},
            },
            "sender": {"login": self.run.actor, "type": "Bot"},
        })
    }

    fn contexts(&self, job: &str) -> ExprContexts {
        let (repo, run) = (self.repo, self.run);
        let mut github = github_context(repo, run, &self.event(), self.api_url, self.server_url);
        github.insert("token".into(), json!(self.token));
        github.insert("job".into(), json!(job));
        github.insert("workspace".into(), json!(self.dir.join("work")));
        github.insert("event_path".into(), json!(self.dir.join("event.json")));
        let mut secrets: Map<String, Value> = repo
            .secrets
            .iter()
            .map(|(k, v)| (k.clone(), json!(v)))
            .collect();
        secrets.insert("GITHUB_TOKEN".into(), json!(self.token));
        let mut contexts = Map::new();
        contexts.insert("github".into(), Value::Object(github));
        contexts.insert("secrets".into(), Value::Object(secrets));
        contexts.insert("vars".into(), json!(repo.variables));
        contexts.insert(
            "inputs".into(),
            Value::Object(self.workflow.typed_inputs(&run.inputs)),
        );
        contexts.insert(
            "runner".into(),
            json!({
                "os": "Linux", "arch": "X64", "name": "sandbox",
                "temp": self.dir.join("temp"), "tool_cache": self.dir.join("tools"),
            }),
        );
        ExprContexts(contexts)
    }

    fn environment(&self, job: &str) -> Vec<(String, String)> {
        let (repo, run) = (self.repo, self.run);
        let at = |name: &str| self.dir.join(name).to_string_lossy().into_owned();
        let pairs = [
            (
                "PATH",
                format!("{}:{}", self.bin_dir.display(), self.search_path),
            ),
            ("HOME", at("home")),
            ("LANG", "C.UTF-8".into()),
            ("CI", "true".into()),
            ("GITHUB_ACTIONS", "true".into()),
            ("GITHUB_EVENT_PATH", at("event.json")),
            ("GITHUB_EVENT_NAME", run.event.clone()),
            ("GITHUB_REPOSITORY", repo.full_name()),
            ("GITHUB_REPOSITORY_ID", repo.id.to_string()),
            ("GITHUB_REPOSITORY_OWNER", repo.owner.clone()),
            ("GITHUB_RUN_ID", run.id.to_string()),
            ("GITHUB_RUN_NUMBER", run.number.to_string()),
            ("GITHUB_RUN_ATTEMPT", run.attempt.to_string()),
            ("GITHUB_WORKFLOW", run.workflow_name.clone()),
            ("GITHUB_JOB", job.to_owned()),
            ("GITHUB_ACTOR", run.actor.clone()),
            ("GITHUB_TRIGGERING_ACTOR", run.actor.clone()),
            ("GITHUB_SERVER_URL", self.server_url.to_owned()),
            ("GITHUB_API_URL", self.api_url.to_owned()),
            (
                "GITHUB_GRAPHQL_URL",
                self.api_url.replace("/api/v3", "/api/graphql"),
            ),
            ("GITHUB_WORKSPACE", at("work")),
            ("GITHUB_SHA", run.sha.clone()),
            ("GITHUB_REF", format!("refs/heads/{}", run.branch)),
            ("GITHUB_REF_NAME", run.branch.clone()),
            ("GITHUB_REF_TYPE", "branch".into()),
            ("RUNNER_TEMP", at("temp")),
            ("RUNNER_TOOL_CACHE", at("tools")),
            ("RUNNER_OS", "Linux".into()),
            ("RUNNER_ARCH", "X64".into()),
            ("RUNNER_NAME", "sandbox".into()),
            ("RUNNER_ENVIRONMENT", "github-hosted".into()),
        ];
        pairs.map(|(key, value)| (key.to_owned(), value)).to_vec()
    }
}

/// Takes the jobs that succeeded in the attempt before over into an attempt, so that they do not run again.
pub(crate) fn carry_over(before: &Path, dir: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(before)? {
        let entry = entry?;
        let (from, to) = (entry.path(), dir.join(entry.file_name()));
        let result = fs::read_to_string(from.join("result")).unwrap_or_default();
        if result.trim() != "success" || !to.is_dir() {
            continue;
        }
        for file in ["result", "started", "finished", "log", "done"] {
            if from.join(file).exists() {
                fs::copy(from.join(file), to.join(file))?;
            }
        }
        let id = fs::read_to_string(from.join("id"))?;
        for need in fs::read_dir(before.join("needs"))? {
            let need = need?.file_name();
            if need.to_string_lossy().starts_with(&format!("{id}.")) {
                fs::copy(
                    before.join("needs").join(&need),
                    dir.join("needs").join(&need),
                )?;
            }
        }
        fs::write(to.join("carried"), "")?;
    }
    Ok(())
}

/// Returns the parts of the `github` context that do not depend on a job.
pub(crate) fn github_context(
    repo: &RepoRecord,
    run: &RunRecord,
    event: &Value,
    api: &str,
    server: &str,
) -> Map<String, Value> {
    let context = json!({
        "repository": repo.full_name(),
        "repository_owner": repo.owner,
        "repository_id": repo.id.to_string(),
        "run_id": run.id.to_string(),
        "run_number": run.number.to_string(),
        "run_attempt": run.attempt.to_string(),
        "workflow": run.workflow_name,
        "actor": run.actor,
        "triggering_actor": run.actor,
        "sha": run.sha,
        "ref": format!("refs/heads/{}", run.branch),
        "ref_name": run.branch,
        "ref_type": "branch",
        "event_name": run.event,
        "event": event,
        "server_url": server,
        "api_url": api,
        "graphql_url": api.replace("/api/v3", "/api/graphql"),
    });
    match context {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Returns the run's title: its `run-name`, else the workflow's name.
pub(crate) fn run_title(workflow: &Workflow, repo: &RepoRecord, run: &RunRecord) -> String {
    let Some(name) = &workflow.run_name else {
        return run.workflow_name.clone();
    };
    let event = json!({"inputs": workflow.event_inputs(&run.inputs)});
    let mut contexts = Map::new();
    contexts.insert(
        "inputs".into(),
        Value::Object(workflow.typed_inputs(&run.inputs)),
    );
    contexts.insert("vars".into(), json!(repo.variables));
    contexts.insert(
        "github".into(),
        Value::Object(github_context(repo, run, &event, "", "")),
    );
    ExprContexts(contexts)
        .interpolate(name)
        .unwrap_or_else(|_| name.clone())
}

/// Returns the timeout of all jobs in minutes. The default per job is 360, GitHub's limit.
pub(crate) fn timeout_minutes(workflow: &Workflow, repo: &RepoRecord, run: &RunRecord) -> f64 {
    let contexts = job_contexts(workflow, repo, run);
    let minutes = |value: &Value| match value {
        Value::String(text) => contexts.interpolate(text).ok()?.parse().ok(),
        number => number.as_f64(),
    };
    let jobs = workflow.jobs.iter();
    let limits = jobs.map(|job| {
        job.timeout_minutes
            .as_ref()
            .and_then(minutes)
            .unwrap_or(360.0)
    });
    limits.sum()
}

/// Returns the runner labels of the first job. Empty if its expression is invalid.
pub(crate) fn runner_labels(
    workflow: &Workflow,
    repo: &RepoRecord,
    run: &RunRecord,
) -> Vec<String> {
    let contexts = job_contexts(workflow, repo, run);
    let declared = workflow.jobs.first().and_then(|job| job.runs_on.clone());
    let expression = declared.as_ref().and_then(Value::as_str);
    let expression = expression
        .and_then(|text| text.trim().strip_prefix("${{"))
        .and_then(|text| text.strip_suffix("}}"));
    let labels = match expression.map(|text| contexts.eval(text)) {
        None => declared,
        Some(Ok(ExprValue::Known(labels))) => Some(labels),
        Some(_) => None,
    };
    match labels {
        Some(Value::Array(labels)) => labels.iter().map(plain_text).collect(),
        Some(Value::String(label)) => vec![label],
        _ => Vec::new(),
    }
}

/// Contexts of the expressions that are evaluated before a job starts.
fn job_contexts(workflow: &Workflow, repo: &RepoRecord, run: &RunRecord) -> ExprContexts {
    let mut contexts = Map::new();
    contexts.insert(
        "inputs".into(),
        Value::Object(workflow.typed_inputs(&run.inputs)),
    );
    contexts.insert("vars".into(), json!(repo.variables));
    ExprContexts(contexts)
}

fn step_name(step: &WorkflowStep, contexts: &ExprContexts) -> Result<String, String> {
    let name = match (&step.name, &step.run, &step.uses) {
        (Some(name), _, _) => contexts.interpolate(name)?,
        (None, Some(run), _) => format!("Run {}", run.lines().next().unwrap_or_default()),
        (None, None, uses) => format!("Run {}", uses.as_deref().unwrap_or_default()),
    };
    Ok(name.replace(['\n', '\t', '\u{2}', '\u{3}'], " "))
}

/// Returns the log lines that GitHub prints before a step. They contain the step's environment, so a
/// secret in it appears in the log unless it is masked.
fn header(script: &str, shell: &str, env: &[(String, String)]) -> String {
    let mut text = format!(
        "##[group]Run {}\n{}\nshell: {shell} {{0}}\n",
        script.lines().next().unwrap_or_default(),
        script.trim_end()
    );
    if !env.is_empty() {
        text.push_str("env:\n");
        for (key, value) in env {
            text.push_str(&format!("  {key}: {value}\n"));
        }
    }
    text + "##[endgroup]"
}

fn nul_separated(pairs: &[(String, String)]) -> String {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| format!("{key}={}\0", value.replace('\0', "")))
        .collect()
}

//! Workflow dispatches, runs, jobs and logs.

use serde_json::{Map, Value, json};

use super::Inner;
use super::ci::workflow::{Input, Workflow, plain};
use super::ci::{job, log};
use super::model::{Run, Status};
use super::rest::{Answer, Call, Place, Refusal, not_found, ok, refuse};
use super::shapes::workflow_id;
use crate::sandbox::clock;
use crate::sandbox::http::Reply;
use crate::sandbox::state::lock;

/// Inputs of one dispatch, and characters of them all as compact JSON.
const INPUTS_MAX: usize = 25;
const INPUT_CHARS_MAX: usize = 65_535;

/// How long the address of a log download works.
const DOWNLOAD_MS: i64 = 60_000;

/// What a download address leads to.
#[derive(Clone)]
pub(crate) struct Download {
    owner: String,
    name: String,
    run: u64,
    /// One job's text, or a zip of all.
    job: Option<usize>,
}

impl Call<'_> {
    /// A workflow's file name, given by name or id.
    fn workflow_file(&self, at: &Place<'_>, asked: &str) -> Result<String, Refusal> {
        let Ok(id) = asked.parse::<u64>() else {
            return Ok(asked.to_owned());
        };
        let files = self.workflow_files(at)?;
        files
            .into_iter()
            .find(|file| workflow_id(file) == id)
            .ok_or_else(not_found)
    }

    fn workflow_files(&self, at: &Place<'_>) -> Result<Vec<String>, Refusal> {
        let branch = self.read(at, |repo| repo.default_branch.clone())?;
        let git = self.host.git(at.owner, at.name);
        let entries = git.list(&branch, ".github/workflows").unwrap_or_default();
        Ok(entries.into_iter().map(|entry| entry.path).collect())
    }

    fn workflow_shape(&self, at: &Place<'_>, file: &str) -> Result<Value, Refusal> {
        let branch = self.read(at, |repo| repo.default_branch.clone())?;
        let path = format!(".github/workflows/{file}");
        let text = self
            .host
            .git(at.owner, at.name)
            .file(&branch, &path)
            .ok_or_else(not_found)?;
        let name = Workflow::parse(&String::from_utf8_lossy(&text))
            .ok()
            .and_then(|w| w.name);
        let html = format!(
            "{}/{}/{}/blob/{branch}/{path}",
            self.host.server, at.owner, at.name
        );
        Ok(
            json!({"id": workflow_id(file), "name": name.unwrap_or_else(|| path.clone()), "path": path, "state": "active", "html_url": html}),
        )
    }

    pub fn list_workflows(&self, at: &Place<'_>) -> Answer {
        self.need(at, "actions", "read")?;
        let files = self.workflow_files(at)?;
        let shapes: Result<Vec<Value>, Refusal> = files
            .iter()
            .map(|file| self.workflow_shape(at, file))
            .collect();
        self.page(
            shapes?,
            |total, items| json!({"total_count": total, "workflows": items}),
        )
    }

    pub fn get_workflow(&self, at: &Place<'_>, asked: &str) -> Answer {
        self.need(at, "actions", "read")?;
        let file = self.workflow_file(at, asked)?;
        ok(self.workflow_shape(at, &file)?)
    }

    pub fn dispatch(&self, at: &Place<'_>, asked: &str) -> Answer {
        self.need(at, "actions", "write")?;
        let file = self.workflow_file(at, asked)?;
        let branch = self.text("ref").unwrap_or_default();
        let branch = branch
            .strip_prefix("refs/heads/")
            .unwrap_or(branch)
            .to_owned();
        let git = self.host.git(at.owner, at.name);
        let sha = git
            .branch(&branch)
            .ok_or_else(|| refuse(422, format!("No ref found for: {branch}")))?;
        let text = git
            .file(&sha, &format!(".github/workflows/{file}"))
            .ok_or_else(not_found)?;
        let workflow = Workflow::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
            let why = format!("{error:#}");
            refuse(
                422,
                if why.starts_with("Workflow does not") {
                    why
                } else {
                    format!("failed to parse workflow: {why}")
                },
            )
        })?;
        let inputs = checked_inputs(&workflow, &self.body["inputs"])?;
        let run = self.host.add_run(
            at,
            file,
            &workflow,
            branch,
            sha,
            inputs,
            &self.token()?.login,
        );
        if self.body["return_run_details"] != Value::Bool(true) {
            return Ok(Reply::empty(204));
        }
        let repo = format!("{}/{}", at.owner, at.name);
        ok(json!({
            "workflow_run_id": run,
            "run_url": format!("{}/repos/{repo}/actions/runs/{run}", self.host.api),
            "html_url": format!("{}/{repo}/actions/runs/{run}", self.host.server),
        }))
    }

    pub fn list_runs(&self, at: &Place<'_>, file: Option<&str>) -> Answer {
        self.need(at, "actions", "read")?;
        let file = file
            .map(|asked| self.workflow_file(at, asked))
            .transpose()?;
        let now = clock::now_ms();
        let status = self.param("status");
        let event = self.param("event");
        let branch = self.param("branch");
        let created = self.param("created");
        let shapes = self.read(at, |repo| {
            let runs = repo.runs.iter().rev().filter(|run| run.listed <= now);
            runs.filter(|run| file.as_ref().is_none_or(|file| *file == run.workflow))
                .filter(|_| {
                    event
                        .as_ref()
                        .is_none_or(|event| event == "workflow_dispatch")
                })
                .filter(|run| branch.as_ref().is_none_or(|branch| *branch == run.branch))
                .filter(|run| {
                    created
                        .as_ref()
                        .is_none_or(|created| in_range(run.at, created))
                })
                .filter(|run| {
                    status.as_deref().is_none_or(|status| {
                        status == run.status.word() || run.conclusion.as_deref() == Some(status)
                    })
                })
                .map(|run| self.host.run_shape(repo, run))
                .collect()
        })?;
        self.page(
            shapes,
            |total, items| json!({"total_count": total, "workflow_runs": items}),
        )
    }

    fn run(&self, at: &Place<'_>, id: &str) -> Result<Run, Refusal> {
        let id: u64 = id.parse().map_err(|_| not_found())?;
        let run = self.read(at, |repo| {
            repo.runs.iter().find(|run| run.id == id).cloned()
        })?;
        run.ok_or_else(not_found)
    }

    pub fn get_run(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need(at, "actions", "read")?;
        let run = self.run(at, id)?;
        ok(self.read(at, |repo| self.host.run_shape(repo, &run))?)
    }

    pub fn cancel_run(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need(at, "actions", "write")?;
        let run = self.run(at, id)?;
        if run.status == Status::Completed {
            return Err(refuse(
                409,
                "Cannot cancel a workflow run that is completed.",
            ));
        }
        self.host.shelf.change(|model| {
            if let Some(run) = model.repo(at.owner, at.name).run_mut(run.id) {
                run.cancelled = run.cancelled.or(Some(clock::now_ms()));
            }
        });
        Ok(Reply::json(202, &json!({})))
    }

    pub fn list_jobs(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need(at, "actions", "read")?;
        let run = self.run(at, id)?;
        let jobs = self.host.job_shapes(at, &run);
        self.page(
            jobs,
            |total, items| json!({"total_count": total, "jobs": items}),
        )
    }

    /// A job's id is its run's id and its place in the workflow.
    fn job_place(&self, at: &Place<'_>, id: &str) -> Result<(Run, usize), Refusal> {
        let id: u64 = id.parse().map_err(|_| not_found())?;
        let run = self.run(at, &(id / 100).to_string())?;
        Ok((run, (id % 100) as usize))
    }

    pub fn get_job(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need(at, "actions", "read")?;
        let (run, place) = self.job_place(at, id)?;
        let jobs = self.host.job_shapes(at, &run);
        ok(jobs.into_iter().nth(place).ok_or_else(not_found)?)
    }

    pub fn job_logs(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need(at, "actions", "read")?;
        let (run, place) = self.job_place(at, id)?;
        self.download(at, run.id, Some(place))
    }

    pub fn run_logs(&self, at: &Place<'_>, id: &str) -> Answer {
        self.need(at, "actions", "read")?;
        let run = self.run(at, id)?;
        self.download(at, run.id, None)
    }

    fn download(&self, at: &Place<'_>, run: u64, job: Option<usize>) -> Answer {
        let secret: String = (0..40).map(|_| fastrand::alphanumeric()).collect();
        let target = Download {
            owner: at.owner.to_owned(),
            name: at.name.to_owned(),
            run,
            job,
        };
        let now = clock::now_ms();
        let mut downloads = lock(&self.host.downloads);
        downloads.retain(|_, (_, until)| *until > now);
        downloads.insert(secret.clone(), (target, now + DOWNLOAD_MS));
        Ok(Reply::empty(302).header("location", format!("{}/_logs/{secret}", self.host.server)))
    }
}

fn checked_inputs(workflow: &Workflow, sent: &Value) -> Result<Map<String, Value>, Refusal> {
    let mut inputs = match sent {
        Value::Null => Map::new(),
        Value::Object(inputs) => inputs.clone(),
        _ => {
            return Err(refuse(
                422,
                "Invalid request.\n\nFor 'properties/inputs', value is not an object.",
            ));
        }
    };
    if inputs.len() > INPUTS_MAX {
        return Err(refuse(
            422,
            format!(
                "Invalid request.\n\nNo more than {INPUTS_MAX} properties are allowed; {} were supplied.",
                inputs.len()
            ),
        ));
    }
    if sent.to_string().chars().count() > INPUT_CHARS_MAX {
        return Err(refuse(422, "inputs are too large."));
    }
    if inputs
        .values()
        .any(|value| value.is_object() || value.is_array())
    {
        return Err(refuse(
            422,
            "Invalid request.\n\nFor 'properties/inputs', an input is not a string.",
        ));
    }
    inputs.retain(|_, value| !value.is_null());
    let declared = |name: &String| workflow.inputs.iter().any(|input| input.name == *name);
    let unexpected: Vec<&String> = inputs.keys().filter(|name| !declared(name)).collect();
    if !unexpected.is_empty() {
        return Err(refuse(
            422,
            format!("Unexpected inputs provided: {}", json!(unexpected)),
        ));
    }
    for input in &workflow.inputs {
        check_input(input, inputs.get(&input.name))?;
    }
    Ok(inputs)
}

fn check_input(input: &Input, sent: Option<&Value>) -> Result<(), Refusal> {
    let value = sent.or(input.default.as_ref()).map(plain);
    match value {
        None if input.required => Err(refuse(
            422,
            format!("Required input '{}' not provided", input.name),
        )),
        Some(value) if input.kind == "choice" && !input.options.contains(&value) => Err(refuse(
            422,
            format!(
                "Provided value '{value}' for input '{}' not in the list of allowed values",
                input.name
            ),
        )),
        _ => Ok(()),
    }
}

/// `>=T`, `<=T`, `>T`, `<T`, `A..B` or a day.
fn in_range(at: i64, range: &str) -> bool {
    let whole_second = at / 1_000 * 1_000;
    let bound = |text: &str| clock::parse(text).unwrap_or(0);
    if let Some((from, to)) = range.split_once("..") {
        let after = from == "*" || whole_second >= bound(from);
        return after && (to == "*" || whole_second <= bound(to));
    }
    for (operator, test) in [
        (">=", (|at, bound| at >= bound) as fn(i64, i64) -> bool),
        ("<=", |at, bound| at <= bound),
        (">", |at, bound| at > bound),
        ("<", |at, bound| at < bound),
    ] {
        if let Some(text) = range.strip_prefix(operator) {
            return test(whole_second, bound(text));
        }
    }
    clock::iso(at).starts_with(range)
}

impl Inner {
    #[expect(clippy::too_many_arguments, reason = "one row's columns, used once")]
    fn add_run(
        &self,
        at: &Place<'_>,
        file: String,
        workflow: &Workflow,
        branch: String,
        sha: String,
        inputs: Map<String, Value>,
        actor: &str,
    ) -> u64 {
        let timing = *lock(&self.timing);
        self.shelf.change(|model| {
            let now = clock::now_ms();
            let id = model.next_id();
            let repo = model.repo(at.owner, at.name);
            let number = repo.runs.iter().filter(|run| run.workflow == file).count() as u64 + 1;
            let mut run = Run {
                id,
                number,
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
                status: Status::Queued,
                conclusion: None,
                attempt: 1,
                at: now,
                updated: now,
                due: now + timing.start_delay.as_millis() as i64,
                listed: now + timing.listing_delay.as_millis() as i64,
                started: None,
                timeout_ms: 0,
                cancelled: None,
            };
            run.title = job::title(workflow, repo, &run);
            run.timeout_ms = (job::timeout_minutes(workflow, repo, &run) * 60_000.0) as i64;
            repo.runs.push(run);
            id
        })
    }

    /// The jobs of a run's latest attempt, as far as its files tell.
    pub fn job_shapes(&self, at: &Place<'_>, run: &Run) -> Vec<Value> {
        let dir = self.attempt_dir(run.id, run.attempt);
        let path = format!(".github/workflows/{}", run.workflow);
        let file = self
            .git(at.owner, at.name)
            .file(&run.sha, &path)
            .unwrap_or_default();
        let Ok(workflow) = Workflow::parse(&String::from_utf8_lossy(&file)) else {
            return Vec::new();
        };
        let jobs = workflow.jobs.iter().enumerate();
        jobs.map(|(place, job)| {
            let folder = dir.join(format!("job-{place:02}"));
            let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
            let ended = run.status == Status::Completed;
            let conclusion = read("result").or_else(|| run.conclusion.clone().filter(|_| ended));
            let started = read("started");
            let status = match (&conclusion, &started) {
                (Some(_), _) => Status::Completed,
                (None, Some(_)) => Status::InProgress,
                (None, None) => Status::Queued,
            };
            json!({
                "id": run.id * 100 + place as u64, "run_id": run.id, "run_attempt": run.attempt,
                "name": job.name.as_ref().unwrap_or(&job.id), "head_sha": run.sha, "head_branch": run.branch,
                "workflow_name": run.workflow_name, "status": status.word(), "conclusion": conclusion,
                "created_at": clock::iso_seconds(run.at), "started_at": started, "completed_at": read("finished"),
                "url": format!("{}/repos/{}/{}/actions/jobs/{}", self.api, at.owner, at.name, run.id * 100 + place as u64),
                "html_url": format!("{}/{}/{}/actions/runs/{}", self.server, at.owner, at.name, run.id),
                "labels": ["ubuntu-latest"], "runner_name": "sandbox",
                "steps": steps(&read("done").unwrap_or_default()),
            })
        })
        .collect()
    }

    /// One job's log as it is served.
    pub fn job_log(&self, at: &Place<'_>, run: &Run, place: usize) -> Option<String> {
        let folder = self
            .attempt_dir(run.id, run.attempt)
            .join(format!("job-{place:02}"));
        let raw = std::fs::read(folder.join("log")).ok()?;
        let secrets = self.shelf.read(|model| {
            let row = model.find(at.owner, at.name)?;
            let secrets = model.repos[row].secrets.values().cloned();
            let tokens = model
                .tokens
                .iter()
                .filter(|(_, token)| token.run == Some(run.id));
            Some(
                secrets
                    .chain(tokens.map(|(text, _)| text.clone()))
                    .collect::<Vec<_>>(),
            )
        });
        Some(log::masked(
            &String::from_utf8_lossy(&raw),
            &secrets.unwrap_or_default(),
        ))
    }

    /// Serves a download address; no credential is asked, the address is one.
    pub fn serve_log(&self, secret: &str) -> Reply {
        let now = clock::now_ms();
        let target = lock(&self.downloads).get(secret).cloned();
        let Some((target, _)) = target.filter(|(_, until)| *until > now) else {
            return Reply::text(404, "expired");
        };
        let at = Place {
            owner: &target.owner,
            name: &target.name,
        };
        let run = self.shelf.read(|model| {
            let row = model.find(at.owner, at.name)?;
            model.repos[row]
                .runs
                .iter()
                .find(|run| run.id == target.run)
                .cloned()
        });
        let Some(run) = run else {
            return Reply::text(404, "gone");
        };
        if let Some(place) = target.job {
            return match self.job_log(&at, &run, place) {
                Some(text) => Reply::text(200, text),
                None => Reply::text(404, "no log"),
            };
        }
        let logs = (0..100).map_while(|place| {
            let text = self.job_log(&at, &run, place)?;
            Some((format!("{place}_job.txt"), text.into_bytes()))
        });
        Reply::new(200, "application/zip", log::zip(&logs.collect::<Vec<_>>()))
    }
}

fn steps(done: &str) -> Vec<Value> {
    let lines = done.lines().enumerate();
    lines
        .map(|(at, line)| {
            let mut parts = line.splitn(4, '\t');
            let mut next = || parts.next().unwrap_or_default();
            json!({"number": at + 1, "status": "completed", "conclusion": next(), "started_at": next(), "completed_at": next(), "name": next()})
        })
        .collect()
}

//! Jobs of a run and their logs, told from the files that the run leaves.

use serde_json::{Value, json};

use super::GitHubInner;
use super::ci::log;
use super::ci::workflow::Workflow;
use super::model::{RunRecord, RunStatus};
use super::rest::{ApiCall, RepoPath, RestError, RestResult, not_found, ok_json};
use crate::clock;
use crate::http::HttpResponse;
use crate::persistence::lock;

/// How long the address of a log download works.
const DOWNLOAD_MS: i64 = 60_000;

/// What a download address leads to.
#[derive(Clone)]
pub(crate) struct LogDownload {
    owner: String,
    name: String,
    run: u64,
    /// One job's text, or a zip of all.
    job: Option<usize>,
}

impl ApiCall<'_> {
    pub fn list_jobs(&self, at: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(at, "actions", "read")?;
        let run = self.find_run(at, id)?;
        let jobs = self.host.jobs_json(at, &run);
        self.paginate(
            jobs,
            |total, items| json!({"total_count": total, "jobs": items}),
        )
    }

    /// A job's id is its run's id and its place in the workflow.
    fn job_place(&self, at: &RepoPath<'_>, id: &str) -> Result<(RunRecord, usize), RestError> {
        let id: u64 = id.parse().map_err(|_| not_found())?;
        let run = self.find_run(at, &(id / 100).to_string())?;
        Ok((run, (id % 100) as usize))
    }

    pub fn get_job(&self, at: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(at, "actions", "read")?;
        let (run, place) = self.job_place(at, id)?;
        let jobs = self.host.jobs_json(at, &run);
        ok_json(jobs.into_iter().nth(place).ok_or_else(not_found)?)
    }

    pub fn job_logs(&self, at: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(at, "actions", "read")?;
        let (run, place) = self.job_place(at, id)?;
        self.download(at, run.id, Some(place))
    }

    pub fn run_logs(&self, at: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(at, "actions", "read")?;
        let run = self.find_run(at, id)?;
        self.download(at, run.id, None)
    }

    fn download(&self, at: &RepoPath<'_>, run: u64, job: Option<usize>) -> RestResult {
        let secret: String = (0..40).map(|_| fastrand::alphanumeric()).collect();
        let target = LogDownload {
            owner: at.owner.to_owned(),
            name: at.name.to_owned(),
            run,
            job,
        };
        let now = clock::now_ms();
        let mut downloads = lock(&self.host.log_downloads);
        downloads.retain(|_, (_, until)| *until > now);
        downloads.insert(secret.clone(), (target, now + DOWNLOAD_MS));
        Ok(HttpResponse::empty(302).header(
            "location",
            format!("{}/_logs/{secret}", self.host.server_url),
        ))
    }
}

impl GitHubInner {
    /// The jobs of a run's latest attempt, as far as its files tell.
    pub fn jobs_json(&self, at: &RepoPath<'_>, run: &RunRecord) -> Vec<Value> {
        let dir = self.attempt_dir(run.id, run.attempt);
        let path = format!(".github/workflows/{}", run.workflow);
        let file = self
            .git(at.owner, at.name)
            .read_file(&run.sha, &path)
            .unwrap_or_default();
        let Ok(workflow) = Workflow::parse(&String::from_utf8_lossy(&file)) else {
            return Vec::new();
        };
        let jobs = workflow.jobs.iter().enumerate();
        jobs.map(|(place, job)| {
            let folder = dir.join(format!("job-{place:02}"));
            let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
            let ended = run.status == RunStatus::Completed;
            let conclusion = read("result").or_else(|| run.conclusion.clone().filter(|_| ended));
            let started = read("started");
            let status = match (&conclusion, &started) {
                (Some(_), _) => RunStatus::Completed,
                (None, Some(_)) => RunStatus::InProgress,
                (None, None) => RunStatus::Queued,
            };
            json!({
                "id": run.id * 100 + place as u64, "run_id": run.id, "run_attempt": run.attempt,
                "name": read("name").unwrap_or_else(|| job.id.clone()), "head_sha": run.sha, "head_branch": run.branch,
                "workflow_name": run.workflow_name, "status": status.as_str(), "conclusion": conclusion,
                "created_at": clock::iso_seconds(run.at), "started_at": started, "completed_at": read("finished"),
                "url": format!("{}/repos/{}/{}/actions/jobs/{}", self.api_url, at.owner, at.name, run.id * 100 + place as u64),
                "html_url": format!("{}/{}/{}/actions/runs/{}", self.server_url, at.owner, at.name, run.id),
                "labels": ["ubuntu-latest"], "runner_name": "sandbox",
                "steps": steps(&read("done").unwrap_or_default()),
            })
        })
        .collect()
    }

    /// One job's log as it is served.
    pub fn job_log(&self, run: &RunRecord, place: usize) -> Option<String> {
        let dir = self.attempt_dir(run.id, run.attempt);
        let raw = std::fs::read(dir.join(format!("job-{place:02}")).join("log")).ok()?;
        let masks = std::fs::read(dir.join("masks.json")).unwrap_or_default();
        let masks: Vec<String> = serde_json::from_slice(&masks).unwrap_or_default();
        Some(log::mask_secrets(&String::from_utf8_lossy(&raw), &masks))
    }

    /// Serves a download address; no credential is asked, the address is one.
    pub fn serve_log(&self, secret: &str) -> HttpResponse {
        let now = clock::now_ms();
        let target = lock(&self.log_downloads).get(secret).cloned();
        let Some((target, _)) = target.filter(|(_, until)| *until > now) else {
            return HttpResponse::text(404, "expired");
        };
        let at = RepoPath {
            owner: &target.owner,
            name: &target.name,
        };
        let run = self.model.read(|model| {
            let row = model.find_repo(at.owner, at.name)?;
            model.repos[row]
                .runs
                .iter()
                .find(|run| run.id == target.run)
                .cloned()
        });
        let Some(run) = run else {
            return HttpResponse::text(404, "gone");
        };
        if let Some(place) = target.job {
            // A job that printed nothing has a log all the same.
            return HttpResponse::text(200, self.job_log(&run, place).unwrap_or_default());
        }
        let logs = (0..100).map_while(|place| {
            let text = self.job_log(&run, place)?;
            Some((format!("{place}_job.txt"), text.into_bytes()))
        });
        HttpResponse::new(
            200,
            "application/zip",
            log::zip_archive(&logs.collect::<Vec<_>>()),
        )
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

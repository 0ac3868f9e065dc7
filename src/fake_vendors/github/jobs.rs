//! Endpoints of jobs and logs, read from the files of the run's latest attempt.

use serde_json::{Value, json};

use super::GitHubInner;
use super::ci::log;
use super::ci::workflow::Workflow;
use super::model::{RunRecord, RunStatus};
use super::rest::{ApiCall, RepoPath, RestError, RestResult, not_found, ok_json};
use super::zip::{ArchiveEntry, zip_archive};
use crate::clock;
use crate::http::HttpResponse;
use crate::persistence::lock;

/// Number of job IDs of a run, and of one attempt.
const JOBS_PER_RUN: u64 = 10_000;
const JOBS_PER_ATTEMPT: u64 = 100;

/// Lifetime of a log download's URL, in milliseconds.
const DOWNLOAD_LIFETIME_MS: i64 = 60_000;

/// What a download URL serves.
#[derive(Clone)]
pub(crate) enum Download {
    Log(LogDownload),
    /// Zip archive of an artifact.
    Archive(Vec<u8>),
}

/// Log that a download URL serves.
#[derive(Clone)]
pub(crate) struct LogDownload {
    owner: String,
    name: String,
    run: u64,
    attempt: u64,
    /// Index of the job whose log is served; `None` serves a zip archive of all logs.
    job: Option<usize>,
}

impl ApiCall<'_> {
    pub(super) fn list_jobs(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let run = self.find_run(repo_path, id)?;
        let jobs = self.host.jobs_json(repo_path, &run);
        self.paginate(
            jobs,
            |total, items| json!({"total_count": total, "jobs": items}),
        )
    }

    /// Resolves a job ID, which combines the run's ID, the attempt and the job's index.
    fn find_job(
        &self,
        repo_path: &RepoPath<'_>,
        id: &str,
    ) -> Result<(RunRecord, usize), RestError> {
        let id: u64 = id.parse().map_err(|_| not_found())?;
        let mut run = self.find_run(repo_path, &(id / JOBS_PER_RUN).to_string())?;
        run.attempt = id % JOBS_PER_RUN / JOBS_PER_ATTEMPT;
        Ok((run, (id % JOBS_PER_ATTEMPT) as usize))
    }

    pub(super) fn get_job(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let (run, index) = self.find_job(repo_path, id)?;
        let jobs = self.host.jobs_json(repo_path, &run);
        ok_json(jobs.into_iter().nth(index).ok_or_else(not_found)?)
    }

    pub(super) fn job_logs(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let (run, index) = self.find_job(repo_path, id)?;
        self.redirect_to_log(repo_path, &run, Some(index))
    }

    pub(super) fn run_logs(&self, repo_path: &RepoPath<'_>, id: &str) -> RestResult {
        self.require_permission(repo_path, "actions", "read")?;
        let run = self.find_run(repo_path, id)?;
        self.redirect_to_log(repo_path, &run, None)
    }

    fn redirect_to_log(
        &self,
        repo_path: &RepoPath<'_>,
        run: &RunRecord,
        job: Option<usize>,
    ) -> RestResult {
        self.redirect_to_download(Download::Log(LogDownload {
            owner: repo_path.owner.to_owned(),
            name: repo_path.name.to_owned(),
            run: run.id,
            attempt: run.attempt,
            job,
        }))
    }

    /// Redirects to an address that needs no token and is valid for a minute.
    pub(super) fn redirect_to_download(&self, target: Download) -> RestResult {
        let secret: String = (0..40).map(|_| fastrand::alphanumeric()).collect();
        let now = clock::now_ms();
        let mut downloads = lock(&self.host.downloads);
        downloads.retain(|_, (_, until)| *until > now);
        downloads.insert(secret.clone(), (target, now + DOWNLOAD_LIFETIME_MS));
        // The caller may know this host by another address.
        let (_, path) = self.host.server_url.split_once("://").unwrap_or_default();
        let (own_host, path) = path.split_once('/').unwrap_or((path, ""));
        let host = self.request.header("host").unwrap_or(own_host);
        let location = format!("http://{host}/{path}/_downloads/{secret}");
        Ok(HttpResponse::empty(302).header("location", location))
    }
}

impl GitHubInner {
    /// Returns the jobs of a run's latest attempt, with the state that its files show.
    pub(crate) fn jobs_json(&self, repo_path: &RepoPath<'_>, run: &RunRecord) -> Vec<Value> {
        let dir = self.attempt_dir(run.id, run.attempt);
        let path = format!(".github/workflows/{}", run.workflow);
        let file = self
            .git(repo_path.owner, repo_path.name)
            .read_file(&run.sha, &path)
            .unwrap_or_default();
        let Ok(workflow) = Workflow::parse_any(&String::from_utf8_lossy(&file)) else {
            return Vec::new();
        };
        let jobs = workflow.jobs.iter().enumerate();
        jobs.map(|(index, job)| {
            let folder = dir.join(format!("job-{index:02}"));
            let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
            let ended = run.status == RunStatus::Completed;
            let conclusion = read("result").or_else(|| run.conclusion.clone().filter(|_| ended));
            let started = read("started");
            let status = match (&conclusion, &started) {
                (Some(_), _) => RunStatus::Completed,
                (None, Some(_)) => RunStatus::InProgress,
                (None, None) => RunStatus::Queued,
            };
            let id = run.id * JOBS_PER_RUN + run.attempt * JOBS_PER_ATTEMPT + index as u64;
            json!({
                "id": id, "run_id": run.id, "run_attempt": run.attempt,
                "name": read("name").unwrap_or_else(|| job.id.clone()), "head_sha": run.sha, "head_branch": run.branch,
                "workflow_name": run.workflow_name, "status": status.as_str(), "conclusion": conclusion,
                "created_at": clock::iso_seconds(run.created_at), "started_at": started, "completed_at": read("finished"),
                "url": format!("{}/repos/{}/{}/actions/jobs/{}", self.api_url, repo_path.owner, repo_path.name, id),
                "html_url": format!("{}/{}/{}/actions/runs/{}/job/{id}", self.server_url, repo_path.owner, repo_path.name, run.id),
                "labels": ["ubuntu-latest"], "runner_name": "sandbox",
                "steps": steps_json(&read("done").unwrap_or_default()),
            })
        })
        .collect()
    }

    /// Returns a job's log with secrets masked.
    pub(crate) fn job_log(&self, run: &RunRecord, index: usize) -> Option<String> {
        let dir = self.attempt_dir(run.id, run.attempt);
        let raw = std::fs::read(dir.join(format!("job-{index:02}")).join("log")).ok()?;
        let masks = std::fs::read(dir.join("masks.json")).unwrap_or_default();
        let masks: Vec<String> = serde_json::from_slice(&masks).unwrap_or_default();
        Some(log::mask_secrets(&String::from_utf8_lossy(&raw), &masks))
    }

    /// Serves a download. The secret in the URL is the credential.
    pub(crate) fn serve_download(&self, secret: &str) -> HttpResponse {
        let now = clock::now_ms();
        let target = lock(&self.downloads).get(secret).cloned();
        match target.filter(|(_, until)| *until > now) {
            None => HttpResponse::text(404, "expired"),
            Some((Download::Archive(archive), _)) => {
                HttpResponse::new(200, "application/zip", archive)
            }
            Some((Download::Log(target), _)) => self.serve_log(&target),
        }
    }

    fn serve_log(&self, target: &LogDownload) -> HttpResponse {
        let repo_path = RepoPath {
            owner: &target.owner,
            name: &target.name,
        };
        let run = self.model.read(|model| {
            let row = model.find_repo(repo_path.owner, repo_path.name)?;
            model.repos[row]
                .runs
                .iter()
                .find(|run| run.id == target.run)
                .cloned()
        });
        let Some(mut run) = run else {
            return HttpResponse::text(404, "gone");
        };
        run.attempt = target.attempt;
        if let Some(index) = target.job {
            // A job without output has an empty log, not a 404.
            return HttpResponse::text(200, self.job_log(&run, index).unwrap_or_default());
        }
        let logs = (0..100).map_while(|index| {
            let text = self.job_log(&run, index)?;
            Some((format!("{index}_job.txt"), text.into_bytes()))
        });
        let logs: Vec<(String, Vec<u8>)> = logs.collect();
        let entries = logs
            .iter()
            .map(|(name, text)| ArchiveEntry::file(name, text));
        match zip_archive(&entries.collect::<Vec<_>>()) {
            Ok(archive) => HttpResponse::new(200, "application/zip", archive),
            Err(error) => HttpResponse::text(500, format!("fake vendor: {error}")),
        }
    }
}

fn steps_json(step_lines: &str) -> Vec<Value> {
    let lines = step_lines.lines().enumerate();
    lines
        .map(|(index, line)| {
            let mut parts = line.splitn(4, '\t');
            let mut next = || parts.next().unwrap_or_default();
            json!({"number": index + 1, "status": "completed", "conclusion": next(), "started_at": next(), "completed_at": next(), "name": next()})
        })
        .collect()
}

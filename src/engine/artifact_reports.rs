//! Reports that CI runs leave as artifacts, for a service that they cannot reach.
//!
//! A report is handled as if the run had posted it: the same checks, the same transaction, and it counts
//! once. If the process dies before that transaction, the run is still found ended without a result, and the
//! artifact is fetched again.

use serde_json::Value;

use crate::app::App;
use crate::evidence::{self, EvidenceError};
use crate::run_reports::{self, ReportError};
use domain::job::Job;
use domain::report::{ProgressReport, StepRecord};
use domain::report_artifact::{self, ArtifactError, ArtifactReport, MAX_BYTES, ReportOrigin};
use domain::transition::MissingReport;
use store::StoreResult;
use vendors::http::{Response, VendorError, run_blocking_if_large};
use vendors::scm::{GitHub, WorkflowRun};

/// Outcome of looking for the report of an ended run.
pub(crate) enum Collected {
    /// The report is recorded.
    Recorded,
    /// There is none that counts.
    Missing(MissingReport),
    /// GitHub does not answer at the moment.
    Unknown,
}

/// Whether the run of a job may have left its report as an artifact.
pub(crate) fn is_expected(app: &App, job: &Job) -> bool {
    !job.has_callbacks || !app.core.config.has_callbacks()
}

/// Fetches and records the report of a CI run that has ended.
///
/// # Errors
/// Fails if the store cannot be read or written.
pub(crate) async fn collect(
    app: &App,
    github: &GitHub,
    job: &Job,
    run: &WorkflowRun,
) -> StoreResult<Collected> {
    let origin = ReportOrigin {
        dispatch_id: job.id.clone(),
        run_id: run.id,
        run_attempt: run.attempt,
    };
    let archive = match download(github, job, &origin).await {
        Ok(Some(archive)) => archive,
        Ok(None) => return Ok(Collected::Missing(MissingReport::NotArrived)),
        Err(error) => {
            tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, %error, "Failed to fetch the report artifact of the run.");
            return Ok(match error.is_permanent() {
                true => Collected::Missing(MissingReport::NotArrived),
                false => Collected::Unknown,
            });
        }
    };
    let refused = match open(app, job, origin, archive).await {
        Ok(report) => match record(app, job, report).await {
            Ok(()) => return Ok(Collected::Recorded),
            Err(ReportError::Store(error)) => return Err(error),
            Err(ReportError::AlreadyReported) => return Ok(Collected::Recorded),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    tracing::warn!(job_id = %job.id, issue = %job.issue.key, team = %job.team, reason = refused, "Refused the report artifact of a run.");
    Ok(Collected::Missing(MissingReport::Refused(refused)))
}

/// Downloads the artifact with the name of the report. The inner result is an archive that may be read.
async fn download(
    github: &GitHub,
    job: &Job,
    origin: &ReportOrigin,
) -> Result<Option<Result<Response, ArtifactError>>, VendorError> {
    let name = origin.artifact_name();
    let found = github.find_artifact(&job.repo, origin.run_id, &name);
    let Some(artifact) = found.await? else {
        return Ok(None);
    };
    let archive = github.download_artifact(&job.repo, &artifact, MAX_BYTES);
    Ok(Some(archive.await?.ok_or(ArtifactError::TooLarge)))
}

async fn open(
    app: &App,
    job: &Job,
    origin: ReportOrigin,
    archive: Result<Response, ArtifactError>,
) -> Result<ArtifactReport, ArtifactError> {
    let (archive, key) = (archive?, app.secrets.run_tokens.report_key(&job.id));
    // A small archive can unpack to megabytes.
    run_blocking_if_large(MAX_BYTES, move || {
        report_artifact::open(&key, &origin, archive.body())
    })
    .await
}

/// Records steps and result. Steps that are not valid are dropped, as if the run had not reported them.
async fn record(app: &App, job: &Job, report: ArtifactReport) -> Result<(), ReportError> {
    for step in report.steps.into_iter().filter_map(progress) {
        run_reports::record_progress(app, &job.id, step, report.bytes).await?;
    }
    if !report.evidence.is_null() {
        record_evidence(app, job, &report.evidence).await?;
    }
    let phase = job.kind.run_phase();
    let warnings =
        run_reports::record_result_body(app, job, phase, report.result, report.bytes).await?;
    for warning in warnings {
        tracing::warn!(job_id = %job.id, warning, "The report artifact of a run has an invalid part.");
    }
    Ok(())
}

/// Records evidence. Evidence that is not kept does not lose the result.
async fn record_evidence(app: &App, job: &Job, report: &Value) -> Result<(), ReportError> {
    match evidence::record(app, &job.id, report).await {
        Ok(warnings) => {
            for warning in warnings {
                tracing::warn!(job_id = %job.id, warning, "The report artifact of a run has evidence that does not count.");
            }
        }
        Err(EvidenceError::Store(error)) => return Err(error.into()),
        Err(error) => {
            tracing::warn!(job_id = %job.id, %error, "Left out the evidence in the report artifact of a run.");
        }
    }
    Ok(())
}

fn progress(step: Value) -> Option<ProgressReport> {
    Some(ProgressReport {
        step: StepRecord::parse(Some(step)).ok()?,
        run_id: None,
        usage: None,
        agent: None,
        model: None,
        log: None,
    })
}

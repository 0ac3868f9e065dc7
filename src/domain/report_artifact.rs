//! Report artifact: the result that a CI run leaves for a service that it cannot reach.
//!
//! The run writes one JSON file and signs its exact bytes with a key of its job. The workflow uploads the
//! file, and the service downloads it after the run has ended. Everything but the signature is hostile: other
//! steps and other workflows can upload artifacts too, and the agent has the same user as the run.

mod zip;

use data_encoding::HEXLOWER;
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::evidence::{self, EvidenceFile};
use crate::ids::JobId;
use crate::report::{ResultReport, StepRecord};
use crate::secret::Secret;

pub use zip::ZipError;

/// Name of the file in the workspace of the CI job, and in the artifact.
pub const FILE: &str = "agent-implement-report.json";

/// Maximum size of an artifact, packed and unpacked, in bytes.
pub const MAX_BYTES: usize = 10 << 20;

/// Maximum number of steps in a report.
pub const MAX_STEPS: usize = 500;

/// Maximum size of the steps in a report together, in bytes of JSON.
const MAX_STEP_BYTES: usize = 1 << 20;

/// Message whose MAC permits the upload. No payload has this text.
const UPLOAD_PERMIT: &[u8] = b"upload";

/// Run that a report belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportOrigin {
    /// Job of the run.
    pub dispatch_id: JobId,
    /// Id of the CI run.
    pub run_id: u64,
    /// Attempt of the CI run, from 1.
    pub run_attempt: u64,
}

impl ReportOrigin {
    /// Returns the name of the artifact. The workflows compute the same name.
    pub fn artifact_name(&self) -> String {
        let Self {
            dispatch_id,
            run_attempt,
            ..
        } = self;
        format!("agent-implement-{dispatch_id}-{run_attempt}")
    }
}

/// Report of a CI run with a verified signature. Its content is untrusted: it comes from a machine on which
/// an agent ran.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactReport {
    /// Body of the result, not parsed yet.
    pub result: Value,
    /// Steps of the run, not parsed yet, in the order of their start.
    pub steps: Vec<Value>,
    /// Report of evidence, not parsed yet; null if there is none.
    pub evidence: Value,
    /// Size of the report, in bytes.
    pub bytes: usize,
}

/// Reason why an artifact is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    /// It is larger than [`MAX_BYTES`].
    #[error("it is larger than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// Its archive is damaged, or holds something other than the report.
    #[error(transparent)]
    Archive(#[from] ZipError),
    /// Its file is not a signed report.
    #[error("its file is not a signed report in JSON")]
    NotAReport,
    /// The signature was not made with the key of the job.
    #[error("its signature is not that of the run")]
    WrongSignature,
    /// It belongs to another job.
    #[error("it is the report of another dispatch, {0}")]
    OtherDispatch(JobId),
    /// It belongs to another CI run.
    #[error("it is the report of another CI run, {0}")]
    OtherRun(u64),
    /// It belongs to another attempt of the CI run.
    #[error("it is the report of attempt {0} of the CI run")]
    OtherAttempt(u64),
}

/// File in the artifact.
#[derive(Serialize, Deserialize)]
struct SignedReport {
    /// JSON of a [`Payload`].
    payload: String,
    /// HMAC-SHA256 of the payload, in lower-case hexadecimal.
    signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    #[serde(flatten)]
    origin: ReportOrigin,
    result: Value,
    #[serde(default)]
    steps: Vec<Value>,
    #[serde(default)]
    evidence: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewPayload<'a> {
    #[serde(flatten)]
    origin: &'a ReportOrigin,
    result: &'a ResultReport,
    steps: &'a [StepRecord],
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<Value>,
}

/// Returns the content of the file that a run leaves. Evidence is left out if the content would be larger than
/// [`MAX_BYTES`] with it.
///
/// # Errors
/// If the report cannot be written as JSON.
pub fn sign(
    key: &Secret,
    origin: &ReportOrigin,
    result: &ResultReport,
    steps: &[StepRecord],
    evidence: &[EvidenceFile],
) -> Result<String, serde_json::Error> {
    if !evidence.is_empty() {
        let report = Some(evidence::report(evidence));
        let content = sign_payload(key, origin, result, steps, report)?;
        if content.len() <= MAX_BYTES {
            return Ok(content);
        }
    }
    sign_payload(key, origin, result, steps, None)
}

fn sign_payload(
    key: &Secret,
    origin: &ReportOrigin,
    result: &ResultReport,
    steps: &[StepRecord],
    evidence: Option<Value>,
) -> Result<String, serde_json::Error> {
    let payload = serde_json::to_string(&NewPayload {
        origin,
        result,
        steps,
        evidence,
    })?;
    let signature = hmac::sign(&hmac_key(key), payload.as_bytes());
    serde_json::to_string(&SignedReport {
        payload,
        signature: HEXLOWER.encode(signature.as_ref()),
    })
}

/// Unpacks and verifies a downloaded artifact.
///
/// # Errors
/// The first reason to refuse it, in the order of the variants of [`ArtifactError`].
pub fn open(
    key: &Secret,
    expected: &ReportOrigin,
    archive: &[u8],
) -> Result<ArtifactReport, ArtifactError> {
    if archive.len() > MAX_BYTES {
        return Err(ArtifactError::TooLarge);
    }
    let content = zip::read_only_file(archive, FILE, MAX_BYTES)?;
    let signed: SignedReport =
        serde_json::from_slice(&content).map_err(|_| ArtifactError::NotAReport)?;
    let signature = HEXLOWER.decode(signed.signature.as_bytes());
    let signature = signature.map_err(|_| ArtifactError::WrongSignature)?;
    hmac::verify(&hmac_key(key), signed.payload.as_bytes(), &signature)
        .map_err(|_| ArtifactError::WrongSignature)?;
    let payload: Payload =
        serde_json::from_slice(signed.payload.as_bytes()).map_err(|_| ArtifactError::NotAReport)?;
    check_origin(payload.origin, expected)?;
    let mut steps = payload.steps;
    steps.truncate(MAX_STEPS);
    Ok(ArtifactReport {
        result: payload.result,
        steps,
        evidence: payload.evidence,
        bytes: signed.payload.len(),
    })
}

fn check_origin(origin: ReportOrigin, expected: &ReportOrigin) -> Result<(), ArtifactError> {
    if origin.dispatch_id != expected.dispatch_id {
        return Err(ArtifactError::OtherDispatch(origin.dispatch_id));
    }
    if origin.run_id != expected.run_id {
        return Err(ArtifactError::OtherRun(origin.run_id));
    }
    if origin.run_attempt != expected.run_attempt {
        return Err(ArtifactError::OtherAttempt(origin.run_attempt));
    }
    Ok(())
}

/// Returns the value with which the run permits the upload of its file. The dispatch names it, too, in the input of
/// the unused progress token, so that the workflow can compare both. The agent can compute and read neither.
pub fn upload_permit(key: &Secret) -> Secret {
    let permit = hmac::sign(&hmac_key(key), UPLOAD_PERMIT);
    Secret::new(HEXLOWER.encode(permit.as_ref()))
}

fn hmac_key(key: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.expose().as_bytes())
}

/// Returns the last record of each step, in the order of their start. Drops the oldest steps of a run with
/// too many or too large steps.
pub fn final_steps(changes: impl IntoIterator<Item = StepRecord>) -> Vec<StepRecord> {
    let mut steps: Vec<StepRecord> = Vec::new();
    let mut positions = std::collections::HashMap::new();
    for change in changes {
        match positions.get(&change.id) {
            Some(&position) => steps[position] = change,
            None => {
                positions.insert(change.id.clone(), steps.len());
                steps.push(change);
            }
        }
    }
    let mut bytes = 0;
    let kept = steps.iter().rev().take(MAX_STEPS).take_while(|step| {
        bytes += serde_json::to_string(step).map_or(MAX_STEP_BYTES, |json| json.len());
        bytes <= MAX_STEP_BYTES
    });
    let dropped = steps.len() - kept.count();
    steps.split_off(dropped)
}

#[cfg(test)]
mod tests;

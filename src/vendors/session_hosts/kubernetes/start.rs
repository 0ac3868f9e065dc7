//! Start of a run: a suspended Job, its Secret, and the resumption of the Job. Every step can be repeated.

use std::time::Duration;

use serde_json::{Value, json};

use super::state::{is_in_deletion, is_suspended, machine};
use super::{Kubernetes, job};
use crate::http::{Method, Request, Response, VendorError, VendorErrorKind};
use crate::session_hosts::MachineStartOutcome;
use domain::machine::{Machine, MachineLabels, MachineSpec};

/// Age from which a Job that was never resumed is replaced. Tokens in its Secret may have expired.
const MAX_SUSPENSION: Duration = Duration::from_secs(10 * 60);

const CREATING: &str = "creating the Job";

/// Job of an earlier attempt to start a run.
enum Existing {
    /// There is none, or the Job of this name is foreign.
    None,
    /// Its Secret may be missing.
    Suspended(Value),
    Resumed(Box<Machine>),
}

impl Kubernetes {
    pub(in crate::session_hosts) async fn start(
        &self,
        spec: &MachineSpec,
        instance: &str,
    ) -> Result<MachineStartOutcome, VendorError> {
        let url = self.jobs("?fieldValidation=Strict");
        let request = Request::new(CREATING, Method::POST, url);
        let created = self
            .create(request, &job::job(spec, &self.settings))
            .await?;
        let job: Value = match created.status() {
            201 => created.json()?,
            _ => match self.existing(spec, instance, &created).await? {
                Existing::Suspended(job) => job,
                Existing::Resumed(machine) => return Ok(MachineStartOutcome::Started(machine)),
                Existing::None => return Ok(refused(&created)),
            },
        };
        let url = self.core("/secrets?fieldValidation=Strict");
        let request = Request::new("creating the Job's Secret", Method::POST, url);
        let created = self.create(request, &job::secret(spec, &job)).await?;
        if created.status() == 409 && !is_taken(&created) {
            return Err(created.refused_for_now());
        }
        // 409: an earlier attempt has created it. Its name is part of the Job.
        if !matches!(created.status(), 201 | 409) {
            // The Job would use up the quota that its next attempt needs.
            self.delete(&spec.name, &job).await?;
            return Ok(refused(&created));
        }
        let resumed = self.suspend(&spec.name, false).await?;
        let resumed: Option<Value> = resumed.json().ok();
        match resumed.and_then(|job| machine(&job, None, instance)) {
            Some(machine) => Ok(MachineStartOutcome::Started(Box::new(machine))),
            None => Err(self.start_later("the Job was deleted during its start")),
        }
    }

    /// Sends a request that creates an object. Returns refusals to the caller.
    async fn create(&self, request: Request, body: &Value) -> Result<Response, VendorError> {
        let refusals = [400, 403, 404, 409, 422];
        let request = refusals.into_iter().fold(request, Request::accept_status);
        self.send(request.json(body)).await
    }

    /// Returns the Job that an earlier attempt has created, after the API server refused to create it. It may exist
    /// whatever the refusal is: the server compares a request with quotas and policies before it looks at the name.
    ///
    /// # Errors
    /// Fails with a transient error if the Job cannot be used, and a later attempt can create a new one.
    async fn existing(
        &self,
        spec: &MachineSpec,
        instance: &str,
        refusal: &Response,
    ) -> Result<Existing, VendorError> {
        let is_conflict = refusal.status() == 409;
        let job = match self.job(&spec.name).await {
            // An account without any rights. The refusal says what it needs first.
            Err(error) if error.is_permanent() && !is_conflict => return Ok(Existing::None),
            job => job?,
        };
        let Some(job) = job else {
            return match is_conflict {
                true if is_taken(refusal) => {
                    Err(self.start_later("the Job of this name was deleted meanwhile"))
                }
                true => Err(refusal.refused_for_now()),
                false => Ok(Existing::None),
            };
        };
        let Some(machine) = machine(&job, None, instance) else {
            return Ok(Existing::None);
        };
        // One that was resumed may have had its run, which must not be repeated.
        if !is_suspended(&job) {
            return Ok(Existing::Resumed(Box::new(machine)));
        }
        if is_in_deletion(&job) {
            return Err(self.start_later("the Job of this name is being deleted"));
        }
        if is_outdated(&machine.labels, spec) {
            self.delete(&spec.name, &job).await?;
            let cause = "the Job of an earlier attempt was too old to be resumed, and was deleted";
            return Err(self.start_later(cause));
        }
        Ok(Existing::Suspended(job))
    }

    fn start_later(&self, cause: &str) -> VendorError {
        let kind = VendorErrorKind::Precondition(cause.to_owned());
        VendorError::new(self.client.vendor(), CREATING, kind)
    }

    /// Suspends or resumes a Job.
    pub(super) async fn suspend(&self, name: &str, on: bool) -> Result<Response, VendorError> {
        let action = match on {
            true => "suspending the Job",
            false => "resuming the Job",
        };
        let request = Request::new(action, Method::PATCH, self.job_url(name)).safe();
        self.patch(request, &json!({"spec": {"suspend": on}})).await
    }
}

/// Returns whether an earlier attempt created a Job too long ago. Both times are those of the service, so that the clock
/// of the cluster does not matter: each attempt states the end of the time budget as it begins.
fn is_outdated(earlier: &MachineLabels, spec: &MachineSpec) -> bool {
    let ends = earlier.expires_at.zip(spec.labels.expires_at);
    ends.is_some_and(|(earlier, now)| now.since(earlier) > MAX_SUSPENSION)
}

/// Returns whether the name of an object is taken. With another 409, the object may not exist: the API server gives up
/// if other requests use the same quota at the same time, and a policy can answer with any status.
fn is_taken(response: &Response) -> bool {
    let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    response.status() == 409 && body["reason"] == "AlreadyExists"
}

/// Builds the outcome of a request that the API server refused.
fn refused(response: &Response) -> MachineStartOutcome {
    let message = response.error_message();
    let error = response.status_error(response.status(), &message);
    if message.contains("exceeded quota") {
        return MachineStartOutcome::NoCapacity(error.to_string());
    }
    MachineStartOutcome::Refused {
        status: Some(response.status()),
        reason: error.to_string(),
    }
}

//! Start of a run: a suspended Job, its Secret, and the resumption of the Job. Every step can be repeated.

use std::time::Duration;

use serde_json::{Value, json};

use super::state::{is_in_deletion, is_suspended, machine};
use super::{Kubernetes, job};
use crate::http::{Method, Request, Response, VendorError, VendorErrorKind};
use crate::session_hosts::MachineStartOutcome;
use domain::machine::{MachineLabels, MachineSpec};

/// Age from which a Job that was never resumed is replaced. Tokens in its Secret may have expired.
const MAX_SUSPENSION: Duration = Duration::from_secs(10 * 60);

const CREATING: &str = "creating the Job";

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
        let job = match created.status() {
            201 => created.json()?,
            409 => match self.adopt(spec, instance).await? {
                Some(job) => job,
                None => return Ok(refused(&created)),
            },
            _ => return Ok(refused(&created)),
        };
        let url = self.core("/secrets?fieldValidation=Strict");
        let request = Request::new("creating the Job's Secret", Method::POST, url);
        let created = self.create(request, &job::secret(spec, &job)).await?;
        // 409: an earlier attempt has created it. Its name is part of the Job.
        if !matches!(created.status(), 201 | 409) {
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

    /// Returns the existing Job of this name, which an earlier attempt has created. `None` if it is foreign.
    ///
    /// # Errors
    /// Fails with a transient error if the Job cannot be used, and a later attempt can create a new one.
    async fn adopt(
        &self,
        spec: &MachineSpec,
        instance: &str,
    ) -> Result<Option<Value>, VendorError> {
        let Some(job) = self.job(&spec.name).await? else {
            return Err(self.start_later("the Job of this name was deleted meanwhile"));
        };
        let Some(machine) = machine(&job, None, instance) else {
            return Ok(None);
        };
        // One that was resumed may have had its run, which must not be repeated.
        if !is_suspended(&job) {
            return Ok(Some(job));
        }
        if is_in_deletion(&job) {
            return Err(self.start_later("the Job of this name is being deleted"));
        }
        if is_outdated(&machine.labels, spec) {
            self.delete(&spec.name, &job).await?;
            let cause = "the Job of an earlier attempt was too old to be resumed, and was deleted";
            return Err(self.start_later(cause));
        }
        Ok(Some(job))
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

/// Builds the outcome of a request that the API server refused.
fn refused(response: &Response) -> MachineStartOutcome {
    let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    let message = body["message"].as_str().unwrap_or_default();
    let error = response.status_error(response.status(), message);
    if message.contains("exceeded quota") {
        return MachineStartOutcome::NoCapacity(error.to_string());
    }
    MachineStartOutcome::Refused {
        status: Some(response.status()),
        reason: error.to_string(),
    }
}

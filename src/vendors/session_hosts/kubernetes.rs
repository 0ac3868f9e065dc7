//! Kubernetes: one Job per session, and one Secret that holds its environment.
//!
//! A Job is created suspended. Then the Secret is created, owned by the Job, and the Job is resumed. So no Job
//! runs without its Secret, and no Secret outlives its Job, wherever a start is interrupted. The Job's name is
//! derived from the dispatch id, so that the API server rejects a second Job of the same dispatch.
//!
//! Own client instead of `kube`, which brings its own HTTP stack: these are a dozen requests over [`Client`], with its
//! limits on time and size and its redaction of secrets.

mod events;
mod job;
mod review;
mod start;
mod state;

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{
    Availability, Client, Method, Redactor, Request, Response, VendorError, VendorErrorKind,
    percent_encode, run_blocking_if_large,
};
use domain::kubeconfig::Material;
use domain::machine::{Machine, MachineLabels};
use domain::sanitize::log_tail;

pub use review::ClusterReport;
use state::{machine, metadata};

/// Pause after a 429 without `Retry-After`. The server sheds load for seconds.
const LIMIT_PAUSE: Duration = Duration::from_secs(2);

/// Number of lines requested for a log tail. Larger than the tail, because some lines may be dropped.
const REQUESTED_LINES: usize = 200;

/// Maximum size of a log tail, in bytes. The server cuts the end of a longer one, so it is larger than
/// [`REQUESTED_LINES`] lines of the maximum length of 16 KiB.
const REQUESTED_BYTES: usize = 4 << 20;

/// Name of the token in the redactor.
const TOKEN: &str = "token of Kubernetes";

/// Media type of a change to some fields of an object.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Settings of the Jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSettings {
    /// Namespace of all Jobs.
    pub namespace: String,
    /// Runtime class of the pods, such as one of gVisor.
    pub runtime_class: Option<String>,
    /// Secret with the credentials of the registry of the images.
    pub pull_secret: Option<String>,
}

/// Client of one namespace of a cluster.
#[derive(Clone)]
pub struct Kubernetes {
    client: Client,
    server: String,
    token: Option<Material>,
    settings: JobSettings,
    redactor: Redactor,
}

impl Kubernetes {
    /// Creates a client of the API server at `server`. The token of a file is read for every request, because
    /// the cluster replaces it.
    pub fn new(
        client: Client,
        server: &str,
        token: Option<Material>,
        settings: JobSettings,
        redactor: Redactor,
    ) -> Self {
        Self {
            client,
            server: server.to_owned(),
            token,
            settings,
            redactor,
        }
    }

    pub(super) fn availability(&self) -> Availability {
        self.client.availability()
    }

    async fn patch(&self, request: Request, change: &Value) -> Result<Response, VendorError> {
        let request = request.json(change).header("content-type", MERGE_PATCH);
        let request = request.accept_status(404).accept_status(409);
        let response = self.send(request).await?;
        match response.status() {
            // The server gave up because of other changes at the same time.
            409 => Err(response.refused_for_now()),
            _ => Ok(response),
        }
    }

    /// Returns the Job of this name.
    async fn job(&self, name: &str) -> Result<Option<Value>, VendorError> {
        let request = Request::get("inspecting the Job", self.job_url(name)).accept_status(404);
        let response = self.send(request).await?;
        match response.status() {
            404 => Ok(None),
            _ => response.json().map(Some),
        }
    }

    /// Returns the Job of this name if it belongs to this instance.
    async fn own_job(&self, name: &str, instance: &str) -> Result<Option<Value>, VendorError> {
        let job = self.job(name).await?;
        Ok(job.filter(|job| machine(job, None, instance).is_some()))
    }

    pub(super) async fn list(&self, instance: &str) -> Result<Vec<Machine>, VendorError> {
        let selector = percent_encode(&MachineLabels::instance_selector(instance));
        let url = self.jobs(&format!("?labelSelector={selector}"));
        let jobs = self.items("listing the Jobs", url).await?;
        let pods = self.pods(&selector).await?;
        Ok(self.machines(&jobs, &pods, instance).await)
    }

    /// Returns the Jobs of this instance, with the state of their pods.
    async fn machines(&self, jobs: &[Value], pods: &[Value], instance: &str) -> Vec<Machine> {
        let with_pod = |job| {
            let uid = &metadata(job)["uid"];
            let mut pods = pods.iter();
            let pod = pods.find(|pod| metadata(pod)["ownerReferences"][0]["uid"] == *uid);
            (job, pod)
        };
        let jobs: Vec<(&Value, Option<&Value>)> = jobs.iter().map(with_pod).collect();
        let events = self.events(&jobs).await;
        let machine = |(job, pod)| {
            let mut machine = machine(job, pod, instance)?;
            machine.problem = machine.problem.or_else(|| events.problem(job, pod));
            if let Some(problem) = &mut machine.problem {
                problem.message = self.redactor.excerpt(&problem.message);
            }
            Some(machine)
        };
        jobs.into_iter().filter_map(machine).collect()
    }

    async fn pods(&self, selector: &str) -> Result<Vec<Value>, VendorError> {
        let url = self.core(&format!("/pods?labelSelector={selector}"));
        self.items("listing the pods", url).await
    }

    /// Returns the pods of one Job, by its label. The cluster sets it.
    async fn pods_of(&self, name: &str, instance: &str) -> Result<Vec<Value>, VendorError> {
        let own = MachineLabels::instance_selector(instance);
        self.pods(&percent_encode(&format!("{own},job-name={name}")))
            .await
    }

    async fn items(&self, action: &'static str, url: String) -> Result<Vec<Value>, VendorError> {
        let mut list: Value = self.send(Request::get(action, url)).await?.json()?;
        Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    }

    pub(super) async fn inspect(
        &self,
        id: &str,
        instance: &str,
    ) -> Result<Option<Machine>, VendorError> {
        let Some(job) = self.own_job(id, instance).await? else {
            return Ok(None);
        };
        let pods = self.pods_of(id, instance).await?;
        Ok(self.machines(&[job], &pods, instance).await.pop())
    }

    /// Ends the pod of a Job and keeps it, because its log is still read. Without a pod, none is created any more.
    pub(super) async fn stop(&self, id: &str, instance: &str) -> Result<(), VendorError> {
        let pods = self.pods_of(id, instance).await?;
        if pods.is_empty() {
            return match self.own_job(id, instance).await? {
                Some(_) => self.suspend(id, true).await.map(drop),
                None => Ok(()),
            };
        }
        for pod in pods {
            let name = percent_encode(metadata(&pod)["name"].as_str().unwrap_or_default());
            let url = self.core(&format!("/pods/{name}"));
            let request = Request::new("stopping the pod", Method::PATCH, url).safe();
            // The kubelet sends SIGTERM to a pod that is older than this, and keeps its record and its log.
            let change = json!({"spec": {"activeDeadlineSeconds": 1}});
            self.patch(request, &change).await?;
        }
        Ok(())
    }

    pub(super) async fn destroy(&self, id: &str, instance: &str) -> Result<(), VendorError> {
        let Some(job) = self.own_job(id, instance).await? else {
            return Ok(());
        };
        self.delete(id, &job).await
    }

    /// Deletes exactly this Job. Another one may have its name by now.
    async fn delete(&self, name: &str, job: &Value) -> Result<(), VendorError> {
        let request = Request::new("deleting the Job", Method::DELETE, self.job_url(name))
            .safe()
            .json(&job::deletion(job))
            .accept_status(404)
            .accept_status(409);
        self.send(request).await.map(drop)
    }

    pub(super) async fn log_tail(
        &self,
        id: &str,
        instance: &str,
    ) -> Result<Option<String>, VendorError> {
        let pods = self.pods_of(id, instance).await?;
        let Some(name) = pods.last().and_then(|pod| metadata(pod)["name"].as_str()) else {
            return Ok(None);
        };
        let url = self.core(&format!(
            "/pods/{}/log?container={}&tailLines={REQUESTED_LINES}&limitBytes={REQUESTED_BYTES}",
            percent_encode(name),
            job::CONTAINER
        ));
        // 400: its container has not started.
        let request = Request::get("reading the pod's log", url).accept_status(400);
        let response = self.send(request.accept_status(404)).await?;
        if response.status() != 200 {
            return Ok(None);
        }
        let bytes = response.body().len();
        let log = run_blocking_if_large(bytes, move || {
            let log = String::from_utf8_lossy(response.body());
            response.sanitized_with(&log, |log| Cow::Owned(log_tail(log.lines())))
        })
        .await;
        Ok((!log.is_empty()).then_some(log))
    }

    /// Returns the URL of the namespace's Jobs.
    fn jobs(&self, rest: &str) -> String {
        let Self {
            server, settings, ..
        } = self;
        format!(
            "{server}/apis/batch/v1/namespaces/{}/jobs{rest}",
            settings.namespace
        )
    }

    fn job_url(&self, name: &str) -> String {
        self.jobs(&format!("/{}", percent_encode(name)))
    }

    /// Returns the URL of a resource of the core API in the namespace.
    fn core(&self, rest: &str) -> String {
        let Self {
            server, settings, ..
        } = self;
        format!("{server}/api/v1/namespaces/{}{rest}", settings.namespace)
    }

    async fn send(&self, request: Request) -> Result<Response, VendorError> {
        let request = request.default_pause(LIMIT_PAUSE);
        let request = match &self.token {
            None => request,
            Some(Material::Text(token)) => request.bearer(token.expose()),
            Some(Material::File(path)) => {
                let read = tokio::fs::read_to_string(path).await;
                let token = read.map_err(|error| {
                    let path = path.display();
                    let cause = format!("cannot read the Kubernetes token {path}: {error}");
                    let kind = VendorErrorKind::Precondition(cause);
                    VendorError::new(self.client.vendor(), request.action(), kind)
                })?;
                self.redactor.learn_current(TOKEN, token.trim());
                request.bearer(token.trim())
            }
        };
        self.client.send(&request).await
    }
}

#[cfg(test)]
mod tests;

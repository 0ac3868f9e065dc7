//! Containers of a Docker engine, or of Podman through its Docker-compatible API.
//!
//! Rightly ours: `bollard` has its own HTTP stack and 15,000 lines of generated models. These are ten requests
//! over [`Client`], with its limits on time and size and its redaction of secrets.

mod build;
mod build_progress;
mod container;
mod log_frames;
mod new_container;
mod pull;
mod tar;

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::MachineStartOutcome;
use crate::http::{
    Availability, Client, Method, Request, Response, VendorError, percent_encode,
    run_blocking_if_large,
};
use domain::machine::{EnvVarMap, Machine, MachineLabels, MachineSpec};
use domain::sanitize::log_tail;

use container::{ContainerDetails, ContainerSummary};
use log_frames::strip_log_frames;
use new_container::{HOST_GATEWAY_IP, body, without_host_gateway};
use pull::Pulls;

pub use build::{ImageBuild, ImageBuildError};
pub use log_frames::container_log_tail;

/// Number of lines requested for a log tail. Larger than the tail, because some lines may be dropped.
const REQUESTED_LINES: usize = 200;

/// Time between SIGTERM and SIGKILL when a container is stopped, in seconds.
const STOP_SECONDS: u32 = 10;

/// Time for which a start waits for the pull of its image. Shorter than one attempt of an effect.
const PULL_WAIT: Duration = Duration::from_secs(150);

/// Client of one container engine.
#[derive(Clone)]
pub struct Docker {
    client: Client,
    base: String,
    pulls: Pulls,
    pull_wait: Duration,
}

impl Docker {
    /// Creates a client of the engine at `base`.
    pub fn new(client: Client, base: &str) -> Self {
        Self {
            client,
            base: base.trim_end_matches('/').to_owned(),
            pulls: Pulls::default(),
            pull_wait: PULL_WAIT,
        }
    }

    /// Pulls of images are left out: they fail if a registry does not answer.
    pub(super) fn availability(&self) -> Availability {
        self.client.availability()
    }

    pub(super) async fn start(
        &self,
        spec: &MachineSpec,
        instance: &str,
    ) -> Result<MachineStartOutcome, VendorError> {
        let mut response = self.create(spec, &body(spec)).await?;
        if response.status() == 404 {
            if let Err(reason) = self.pull(&spec.image).await? {
                return Ok(MachineStartOutcome::Refused {
                    status: Some(404),
                    reason: format!(
                        "image {} not found locally, and pulling it failed: {reason}",
                        spec.image
                    ),
                });
            }
            response = self.create(spec, &body(spec)).await?;
        }
        if response.status() != 201 && response.error_message().contains(HOST_GATEWAY_IP) {
            response = self.create(spec, &without_host_gateway(body(spec))).await?;
        }
        if is_name_in_use(&response) {
            return self.adopt(spec, instance, &response).await;
        }
        if response.status() == 500 {
            return Err(response.status_error(500, &response.error_message()));
        }
        if response.status() != 201 {
            return Ok(refused(&response));
        }
        let created: Created = response.json()?;
        self.start_container(&created.id, instance).await
    }

    async fn create(&self, spec: &MachineSpec, body: &Value) -> Result<Response, VendorError> {
        let url = self.url(&format!(
            "/containers/create?name={}",
            percent_encode(&spec.name)
        ));
        let request = Request::new("creating the container", Method::POST, url)
            .json(body)
            .accept_status(400)
            .accept_status(404)
            .accept_status(409)
            .accept_status(500);
        self.client.send(&request).await
    }

    /// Adopts the existing container of this name if it belongs to this instance, and starts it if necessary.
    async fn adopt(
        &self,
        spec: &MachineSpec,
        instance: &str,
        response: &Response,
    ) -> Result<MachineStartOutcome, VendorError> {
        let own = self.list(instance).await?.into_iter();
        match { own }.find(|machine| machine.name == spec.name) {
            Some(machine) => self.start_container(&machine.id, instance).await,
            None => Ok(refused(response)),
        }
    }

    async fn start_container(
        &self,
        id: &str,
        instance: &str,
    ) -> Result<MachineStartOutcome, VendorError> {
        let url = self.url(&format!("/containers/{}/start", percent_encode(id)));
        let request = Request::new("starting the container", Method::POST, url)
            .accept_status(304)
            .accept_status(400)
            .accept_status(404)
            .accept_status(500);
        let response = self.client.send(&request).await?;
        match response.status() {
            500 if !names_what_is_missing(&response) => {
                return Err(response.status_error(500, &response.error_message()));
            }
            400 | 404 | 500 => {
                // It keeps the name of the run, and can never start.
                self.destroy(id).await?;
                return Ok(refused(&response));
            }
            _ => {}
        }
        match self.inspect(id, instance).await? {
            Some(machine) => Ok(MachineStartOutcome::Started(Box::new(machine))),
            None => Err(response.decode_error("the container was removed right after its start")),
        }
    }

    /// Returns the labels of a local image. `None` if the engine does not have the image.
    ///
    /// # Errors
    /// Fails if the engine rejects the request or does not respond.
    pub async fn image_labels(&self, image: &str) -> Result<Option<EnvVarMap>, VendorError> {
        let name: Vec<_> = image.split('/').map(percent_encode).collect();
        let url = self.url(&format!("/images/{}/json", name.join("/")));
        let request = Request::get("inspecting the image", url).accept_status(404);
        let response = self.client.send(&request).await?;
        if response.status() == 404 {
            return Ok(None);
        }
        let image: ImageDetails = response.json()?;
        let labels = image.config.and_then(|config| config.labels);
        Ok(Some(labels.unwrap_or_default()))
    }

    pub(super) async fn list(&self, instance: &str) -> Result<Vec<Machine>, VendorError> {
        let filters = json!({"label": [MachineLabels::instance_selector(instance)]}).to_string();
        let url = self.url(&format!(
            "/containers/json?all=true&filters={}",
            percent_encode(&filters)
        ));
        let response = self
            .client
            .send(&Request::get("listing the containers", url))
            .await?;
        let containers: Vec<ContainerSummary> = response.json()?;
        Ok(containers
            .into_iter()
            .filter_map(|container| container.into_own_machine(instance))
            .collect())
    }

    pub(super) async fn inspect(
        &self,
        id: &str,
        instance: &str,
    ) -> Result<Option<Machine>, VendorError> {
        let url = self.url(&format!("/containers/{}/json", percent_encode(id)));
        let request = Request::get("inspecting the container", url).accept_status(404);
        let response = self.client.send(&request).await?;
        if response.status() == 404 {
            return Ok(None);
        }
        Ok(response
            .json::<ContainerDetails>()?
            .into_own_machine(instance))
    }

    pub(super) async fn stop(&self, id: &str) -> Result<(), VendorError> {
        let url = self.url(&format!(
            "/containers/{}/stop?t={STOP_SECONDS}",
            percent_encode(id)
        ));
        let request = Request::new("stopping the container", Method::POST, url)
            .safe()
            .accept_status(304)
            .accept_status(404);
        self.client.send(&request).await.map(drop)
    }

    pub(super) async fn destroy(&self, id: &str) -> Result<(), VendorError> {
        let url = self.url(&format!(
            "/containers/{}?force=true&v=true",
            percent_encode(id)
        ));
        let request = Request::new("removing the container", Method::DELETE, url)
            .safe()
            .accept_status(404);
        let response = self.client.send(&request).await;
        match response {
            // The engine is already removing it.
            Err(error) if error.status() == Some(409) => Ok(()),
            response => response.map(drop),
        }
    }

    pub(super) async fn log_tail(&self, id: &str) -> Result<Option<String>, VendorError> {
        let url = self.url(&format!(
            "/containers/{}/logs?stdout=true&stderr=true&tail={REQUESTED_LINES}",
            percent_encode(id)
        ));
        let request = Request::get("reading the container's log", url).accept_status(404);
        let response = self.client.send(&request).await?;
        if response.status() == 404 {
            return Ok(None);
        }
        let bytes = response.body().len();
        let log = run_blocking_if_large(bytes, move || {
            let log = strip_log_frames(response.body());
            response.sanitized_with(&log, |log| Cow::Owned(log_tail(log.lines())))
        })
        .await;
        Ok((!log.is_empty()).then_some(log))
    }

    fn url(&self, rest: &str) -> String {
        format!("{}{rest}", self.base)
    }
}

/// Whether a container of this name exists. Podman answers 500 before version 6.
fn is_name_in_use(response: &Response) -> bool {
    match response.status() {
        409 => true,
        500 => response.error_message().contains("already in use"),
        _ => false,
    }
}

/// Whether a start failed for good, because the image has no such program, or a mount no source. Podman answers 500 to
/// every failure, also to one of its own files.
fn names_what_is_missing(response: &Response) -> bool {
    let message = response.error_message().to_ascii_lowercase();
    let phrases = ["executable file", "command that was not found", "statfs "];
    phrases.iter().any(|phrase| message.contains(phrase))
}

/// Builds the outcome of a rejected request.
fn refused(response: &Response) -> MachineStartOutcome {
    let error = response.status_error(response.status(), &response.error_message());
    MachineStartOutcome::Refused {
        status: Some(response.status()),
        reason: error.to_string(),
    }
}

/// Splits an image reference into name and tag. A colon before the last slash belongs to the registry's
/// port. A reference with a digest has no tag.
fn image_parts(image: &str) -> (&str, &str) {
    let last = image.rfind('/').map_or(0, |slash| slash + 1);
    if image.contains('@') {
        return (image, "");
    }
    match image[last..].find(':') {
        Some(colon) => (&image[..last + colon], &image[last + colon + 1..]),
        None => (image, "latest"),
    }
}

#[derive(Deserialize)]
struct ImageDetails {
    #[serde(rename = "Config")]
    config: Option<ImageConfig>,
}

#[derive(Deserialize)]
struct ImageConfig {
    #[serde(rename = "Labels")]
    labels: Option<EnvVarMap>,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "Id")]
    id: String,
}

#[cfg(test)]
mod tests;

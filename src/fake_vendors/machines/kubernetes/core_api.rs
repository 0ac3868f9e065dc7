//! Core API of the fake cluster: Secrets, pods with their logs, and events.

use serde_json::Value;

use super::objects::{Pod, event, matches_fields, matches_labels, pod_name};
use super::{FakeKubernetes, NAMESPACE, items, not_found, status, valid_object};
use crate::http::{HttpRequest, HttpResponse};
use crate::machines::{FakeMachine, FakeMachineState};
use crate::persistence::lock;

impl FakeKubernetes {
    pub(super) fn core(
        &self,
        method: &str,
        namespace: &str,
        rest: &[&str],
        request: &HttpRequest,
    ) -> HttpResponse {
        match (method, rest) {
            ("POST", ["secrets"]) if namespace == NAMESPACE => self.create_secret(request),
            ("GET", ["pods"]) => {
                let selector = request.query_param("labelSelector").unwrap_or_default();
                items(
                    self.pods()
                        .into_iter()
                        .filter(|pod| matches_labels(pod, &selector)),
                )
            }
            ("GET", ["events"]) => self.events(request),
            (_, ["pods", name, rest @ ..]) => match self.job_of_pod(name) {
                Some(job) => self.pod_request(method, &job, rest, request),
                None => not_found(&format!("pods \"{name}\" not found")),
            },
            _ => not_found("the server could not find the requested resource"),
        }
    }

    fn create_secret(&self, request: &HttpRequest) -> HttpResponse {
        let body = match valid_object(request, "Secret") {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let name = body["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let is_new = self.secrets.update_and_flush(|secrets| {
            let is_new = !secrets.contains_key(&name);
            secrets.entry(name.clone()).or_insert_with(|| body.clone());
            is_new
        });
        match is_new {
            true => HttpResponse::json(201, &body),
            false => status(
                409,
                "AlreadyExists",
                &format!("secrets \"{name}\" already exists"),
            ),
        }
    }

    fn events(&self, request: &HttpRequest) -> HttpResponse {
        let selector = request.query_param("fieldSelector").unwrap_or_default();
        let limit = request.query_param("limit");
        let limit = limit.and_then(|text| text.parse().ok());
        let problem = lock(&self.state).problem.clone();
        let now = self.now_ms();
        let jobs = self.host.machines();
        let events = { jobs.iter() }.filter_map(|job| event(job, problem.as_ref()?, now));
        items(
            events
                .filter(|event| matches_fields(event, &selector))
                .take(limit.unwrap_or(usize::MAX)),
        )
    }

    fn job_of_pod(&self, name: &str) -> Option<FakeMachine> {
        let mut jobs = self.host.machines().into_iter();
        jobs.find(|job| self.pod_json(job).is_some() && pod_name(job) == name)
    }

    fn pod_request(
        &self,
        method: &str,
        job: &FakeMachine,
        rest: &[&str],
        request: &HttpRequest,
    ) -> HttpResponse {
        match (method, rest) {
            ("PATCH", []) => {
                self.host.stop(job);
                HttpResponse::json(200, &self.pod_json(job).unwrap_or_default())
            }
            ("GET", ["log"]) if self.host.state(job) == FakeMachineState::Created => {
                let message = format!(
                    "container \"run\" in pod \"{}\" is waiting to start",
                    pod_name(job)
                );
                status(400, "BadRequest", &message)
            }
            ("GET", ["log"]) => {
                let log = self.host.log(&job.id);
                let lines: Vec<&str> = log.split_inclusive('\n').collect();
                let wanted = request
                    .query_param("tailLines")
                    .and_then(|text| text.parse().ok());
                let tail = lines.len().saturating_sub(wanted.unwrap_or(usize::MAX));
                HttpResponse::text(200, lines[tail..].concat())
            }
            _ => not_found("the server could not find the requested resource"),
        }
    }

    fn pods(&self) -> Vec<Value> {
        let jobs = self.host.machines();
        jobs.iter().filter_map(|job| self.pod_json(job)).collect()
    }

    /// Returns the pod of a Job; `None` if it has none.
    fn pod_json(&self, job: &FakeMachine) -> Option<Value> {
        let state = lock(&self.state);
        let pod = Pod {
            job,
            state: self.host.state(job),
            problem: state.problem.as_ref(),
            times: state.times.get(&job.id).copied(),
            has_sidecar: state.has_sidecar,
            disruption: state.disruptions.get(&job.id),
        };
        pod.to_json()
    }
}

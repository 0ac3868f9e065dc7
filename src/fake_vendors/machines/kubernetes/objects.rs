//! Objects of the fake cluster as its API server returns them, and the rules that it checks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::PodProblem;
use crate::clock;
use crate::machines::{FakeMachine, FakeMachineState, string_map};

/// Returns the unique id of a Job.
pub(super) fn uid(job: &FakeMachine) -> String {
    let uid = job.create_request["metadata"]["uid"].as_str();
    uid.unwrap_or(&job.id).to_owned()
}

pub(super) fn pod_name(job: &FakeMachine) -> String {
    format!("{}-x7k2p", job.name)
}

/// Returns the name of the Secret that the pod of a Job requires.
pub(super) fn secret_name(job: &FakeMachine) -> String {
    let container = &job.create_request["spec"]["template"]["spec"]["containers"][0];
    let name = container["envFrom"][0]["secretRef"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

/// Returns whether an object has all fields of a selector.
pub(super) fn matches_fields(object: &Value, selector: &str) -> bool {
    let mut wanted = selector.split(',').filter_map(|part| part.split_once('='));
    wanted.all(|(path, value)| {
        let field = object.pointer(&format!("/{}", path.replace('.', "/")));
        field.is_some_and(|field| field == value)
    })
}

/// Returns whether an object has all labels of a selector.
pub(super) fn matches_labels(object: &Value, selector: &str) -> bool {
    let wanted = selector.split(',').filter_map(|part| part.split_once('='));
    let labels = string_map(&object["metadata"]["labels"]);
    { wanted }.all(|(name, value)| labels.get(name).is_some_and(|held| held == value))
}

pub(super) fn job_json(job: &FakeMachine, state: FakeMachineState, has_sidecar: bool) -> Value {
    let (labels, annotations): (BTreeMap<&String, &String>, BTreeMap<&String, &String>) =
        { job.labels.iter() }.partition(|(_, value)| is_label_value(value));
    let mut object = match &job.create_request {
        // Somebody else has created it.
        Value::Null => json!({
            "metadata": {
                "name": job.name,
                "uid": uid(job),
                "labels": labels,
                "annotations": annotations,
                "creationTimestamp": clock::iso(job.created_at),
            },
            "spec": {},
        }),
        created => created.clone(),
    };
    let condition = match state {
        FakeMachineState::Created | FakeMachineState::Starting | FakeMachineState::Running => None,
        // A Job ends with its pod, and the sidecar goes on.
        FakeMachineState::Exited { .. } if has_sidecar && job.stop_requested_at.is_none() => None,
        FakeMachineState::Exited { code: 0, .. } => {
            Some(json!({"type": "Complete", "status": "True"}))
        }
        FakeMachineState::Exited { .. } => {
            object["status"] = failed_status("Failed");
            return object;
        }
    };
    let conditions: Vec<Value> = condition.into_iter().collect();
    object["status"] = json!({"conditions": conditions});
    object
}

/// Returns the status of a Job whose pod failed, with this type of its condition.
pub(super) fn failed_status(condition: &str) -> Value {
    json!({"conditions": [{
        "type": condition,
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit",
    }]})
}

/// End of a pod by the cluster, with the condition `DisruptionTarget` of the pod.
pub(super) enum Disruption {
    /// The pod is deleted through the API, as a drain or a preemption does. It disappears when it has exited.
    Deletion(Value),
    /// The kubelet kills the pod. It stays.
    Kill(Value),
}

impl Disruption {
    fn condition(&self) -> &Value {
        match self {
            Self::Deletion(condition) | Self::Kill(condition) => condition,
        }
    }
}

/// Times of a pod, in milliseconds since the epoch.
#[derive(Clone, Copy)]
pub(super) struct PodTimes {
    pub created: i64,
    pub scheduled: Option<i64>,
}

/// Pod of a Job.
pub(super) struct Pod<'a> {
    pub job: &'a FakeMachine,
    pub state: FakeMachineState,
    pub problem: Option<&'a PodProblem>,
    pub times: Option<PodTimes>,
    pub has_sidecar: bool,
    pub disruption: Option<&'a Disruption>,
}

impl Pod<'_> {
    /// Returns whether the cluster has created the pod of a Job.
    pub(super) fn exists(
        job: &FakeMachine,
        state: FakeMachineState,
        problem: Option<&PodProblem>,
    ) -> bool {
        let is_suspended = job.create_request["spec"]["suspend"] == true;
        let is_refused = matches!(problem, Some(PodProblem::NotCreated(_)));
        state != FakeMachineState::Created || !(is_suspended || is_refused)
    }

    /// Returns the object. `None` if the cluster has not created the pod.
    pub(super) fn to_json(&self) -> Option<Value> {
        let job = self.job;
        Self::exists(job, self.state, self.problem).then_some(())?;
        let deletion = match self.disruption {
            Some(Disruption::Deletion(condition)) => &condition["lastTransitionTime"],
            Some(Disruption::Kill(_)) | None => &Value::Null,
        };
        let has_exited = matches!(self.state, FakeMachineState::Exited { .. });
        (deletion.is_null() || !has_exited).then_some(())?;
        let template = &job.create_request["spec"]["template"];
        let mut labels = string_map(&template["metadata"]["labels"]);
        labels.insert("job-name".to_owned(), job.name.clone());
        let mut status = self.status();
        status["conditions"] = self.conditions();
        Some(json!({
            "metadata": {
                "name": pod_name(job),
                "uid": pod_uid(job),
                "creationTimestamp": self.times.map(|times| clock::iso_seconds(times.created)),
                "deletionTimestamp": deletion,
                "labels": labels,
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": uid(job), "controller": true},
                ],
            },
            "spec": template["spec"],
            "status": status,
        }))
    }

    fn status(&self) -> Value {
        let waiting = |reason: &str, message: &str| {
            let state = json!({"waiting": {"reason": reason, "message": message}});
            json!({"phase": "Pending", "containerStatuses": self.containers(&state)})
        };
        match (self.state, self.problem) {
            (FakeMachineState::Created, Some(PodProblem::Waiting(reason, message))) => {
                waiting(reason, message)
            }
            (FakeMachineState::Created, Some(PodProblem::Unschedulable)) => {
                json!({"phase": "Pending"})
            }
            (FakeMachineState::Created, Some(PodProblem::InPreparation(_)))
            | (FakeMachineState::Starting, _) => waiting("ContainerCreating", ""),
            (FakeMachineState::Created, None | Some(PodProblem::NotCreated(_))) => waiting(
                "CreateContainerConfigError",
                &format!("secret \"{}\" not found", secret_name(self.job)),
            ),
            (FakeMachineState::Running, _) => json!({
                "phase": "Running",
                "containerStatuses": self.containers(&json!({"running": {}})),
            }),
            (
                FakeMachineState::Exited {
                    code,
                    out_of_memory,
                },
                _,
            ) => self.exited(code, out_of_memory),
        }
    }

    /// Returns the conditions: whether the pod has a node, and why the cluster ended it.
    fn conditions(&self) -> Value {
        let scheduled = match self.times.and_then(|times| times.scheduled) {
            Some(at) => json!({
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": clock::iso_seconds(at),
            }),
            None => json!({
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient memory.",
            }),
        };
        let disruption = self.disruption.map(Disruption::condition);
        let all = [Some(scheduled), disruption.cloned()];
        all.into_iter().flatten().collect()
    }

    fn containers(&self, run: &Value) -> Value {
        let sidecar = json!({"name": "mesh-proxy", "state": {"running": {}}});
        let all = [
            self.has_sidecar.then_some(sidecar),
            Some(json!({"name": "run", "state": run})),
        ];
        all.into_iter().flatten().collect()
    }

    fn exited(&self, code: i32, out_of_memory: bool) -> Value {
        let reason = match (out_of_memory, code) {
            (true, _) => "OOMKilled",
            (false, 0) => "Completed",
            (false, _) => "Error",
        };
        let state = json!({"terminated": {"exitCode": code, "reason": reason}});
        let phase = match code {
            _ if self.has_sidecar => "Running",
            0 => "Succeeded",
            _ => "Failed",
        };
        let mut status = json!({"phase": phase, "containerStatuses": self.containers(&state)});
        if self.job.stop_requested_at.is_some() {
            status["phase"] = json!("Failed");
            status["reason"] = json!("DeadlineExceeded");
            status["message"] =
                json!("Pod was active on the node longer than the specified deadline");
        }
        status
    }
}

fn pod_uid(job: &FakeMachine) -> String {
    format!("pod-{}", uid(job))
}

/// Returns the event about a Job whose pod has this problem.
pub(super) fn event(job: &FakeMachine, problem: &PodProblem, now: i64) -> Option<Value> {
    let (object, reason, message) = match problem {
        PodProblem::NotCreated(message) => (
            json!({"kind": "Job", "name": job.name, "uid": uid(job)}),
            "FailedCreate",
            message,
        ),
        PodProblem::InPreparation(Some((reason, message))) => (
            json!({"kind": "Pod", "name": pod_name(job), "uid": pod_uid(job)}),
            *reason,
            message,
        ),
        PodProblem::InPreparation(None) | PodProblem::Waiting(..) | PodProblem::Unschedulable => {
            return None;
        }
    };
    Some(json!({
        "type": "Warning",
        "involvedObject": object,
        "reason": reason,
        "message": message,
        "lastTimestamp": clock::iso_seconds(now),
    }))
}

/// Returns the first rule that the metadata of an object violates.
pub(super) fn invalid_metadata(object: &Value) -> Option<String> {
    let about = &object["metadata"];
    let name = about["name"].as_str().unwrap_or_default();
    if !is_dns_label(name) {
        return Some(format!("metadata.name: Invalid value: \"{name}\""));
    }
    let template = &object["spec"]["template"]["metadata"];
    let labels = [about, template].map(|about| string_map(&about["labels"]));
    let invalid = labels
        .iter()
        .flatten()
        .find(|(_, value)| !is_label_value(value));
    if let Some((label, value)) = invalid {
        return Some(format!(
            "metadata.labels: Invalid value: \"{value}\" of {label}"
        ));
    }
    let environment = object["stringData"].as_object().into_iter().flatten();
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut names = environment.map(|(name, _)| name);
    let invalid = names.find(|name| name.is_empty() || !name.chars().all(is_key))?;
    Some(format!("data[{invalid}]: Invalid value"))
}

fn is_dns_label(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |c: char| is_end(c) || c == '-';
    text.len() <= 63
        && text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(is_part)
}

fn is_label_value(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let is_part = |c: char| is_end(c) || matches!(c, '-' | '_' | '.');
    text.is_empty()
        || (text.len() <= 63
            && text.starts_with(is_end)
            && text.ends_with(is_end)
            && text.chars().all(is_part))
}

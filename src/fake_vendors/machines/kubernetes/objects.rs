//! Objects of the fake cluster as its API server returns them, and the rules that it checks.

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

/// Returns whether an object has all labels of a selector.
pub(super) fn matches_labels(object: &Value, selector: &str) -> bool {
    let wanted = selector.split(',').filter_map(|part| part.split_once('='));
    let labels = string_map(&object["metadata"]["labels"]);
    { wanted }.all(|(name, value)| labels.get(name).is_some_and(|held| held == value))
}

pub(super) fn job_json(job: &FakeMachine, state: FakeMachineState) -> Value {
    let mut object = match &job.create_request {
        // Somebody else has created it.
        Value::Null => json!({
            "metadata": {
                "name": job.name,
                "uid": uid(job),
                "labels": job.labels,
                "creationTimestamp": clock::iso(job.created_at),
            },
            "spec": {},
        }),
        created => created.clone(),
    };
    let condition = match state {
        FakeMachineState::Created | FakeMachineState::Starting | FakeMachineState::Running => None,
        FakeMachineState::Exited { code: 0, .. } => {
            Some(json!({"type": "Complete", "status": "True"}))
        }
        FakeMachineState::Exited { .. } => Some(json!({
            "type": "Failed",
            "status": "True",
            "reason": "BackoffLimitExceeded",
            "message": "Job has reached the specified backoff limit",
        })),
    };
    let conditions: Vec<Value> = condition.into_iter().collect();
    object["status"] = json!({"conditions": conditions});
    object
}

/// Returns the pod of a Job. `None` if the cluster has not created it.
pub(super) fn pod_json(
    job: &FakeMachine,
    state: FakeMachineState,
    problem: Option<&PodProblem>,
) -> Option<Value> {
    let is_suspended = job.create_request["spec"]["suspend"] == true;
    let status = match (state, problem) {
        (FakeMachineState::Created, Some(PodProblem::NotCreated(_))) => return None,
        (FakeMachineState::Created, _) if is_suspended => return None,
        (FakeMachineState::Created, Some(PodProblem::Waiting(reason, message))) => {
            waiting(reason, message)
        }
        (FakeMachineState::Created, Some(PodProblem::Unschedulable)) => json!({
            "phase": "Pending",
            "conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient memory.",
            }],
        }),
        (FakeMachineState::Created, None) => waiting(
            "CreateContainerConfigError",
            &format!("secret \"{}\" not found", secret_name(job)),
        ),
        (FakeMachineState::Starting, _) => waiting("ContainerCreating", ""),
        (FakeMachineState::Running, _) => json!({
            "phase": "Running",
            "containerStatuses": [{"name": "run", "state": {"running": {}}}],
        }),
        (
            FakeMachineState::Exited {
                code,
                out_of_memory,
            },
            _,
        ) => exited(job, code, out_of_memory),
    };
    let template = &job.create_request["spec"]["template"];
    let mut labels = string_map(&template["metadata"]["labels"]);
    labels.insert("job-name".to_owned(), job.name.clone());
    Some(json!({
        "metadata": {
            "name": pod_name(job),
            "labels": labels,
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": uid(job), "controller": true},
            ],
        },
        "spec": template["spec"],
        "status": status,
    }))
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"name": "run", "state": {"waiting": {"reason": reason, "message": message}}}],
    })
}

fn exited(job: &FakeMachine, code: i32, out_of_memory: bool) -> Value {
    let reason = match (out_of_memory, code) {
        (true, _) => "OOMKilled",
        (false, 0) => "Completed",
        (false, _) => "Error",
    };
    let mut status = json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "containerStatuses": [
            {"name": "run", "state": {"terminated": {"exitCode": code, "reason": reason}}},
        ],
    });
    if job.stop_requested_at.is_some() {
        status["phase"] = json!("Failed");
        status["reason"] = json!("DeadlineExceeded");
        status["message"] = json!("Pod was active on the node longer than the specified deadline");
    }
    status
}

/// Returns the event about the refusal of the pod of a Job.
pub(super) fn event(job: &FakeMachine, message: &str) -> Value {
    json!({
        "involvedObject": {"kind": "Job", "name": job.name, "uid": uid(job)},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": clock::iso(clock::now_ms()),
    })
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

//! Requests for a new Job and its Secret. The pod meets the Pod Security Standard `restricted`. See
//! docs/behaviour.md#kubernetes-jobs.
//!
//! What all Jobs have in common is in `job.json`. The run is process 1 of the container, for the same reason as
//! in a local container. The cluster deletes a Job four hours after its end, the maximum age of a machine, if the
//! service is gone. A pod is not moved to another node, because its work would be lost. It has no `fsGroup`, with which
//! the kubelet sets the setgid bit of the volumes: their files would have modes that repositories do not expect.

use serde_json::{Value, json};

use super::JobSettings;
use super::state::metadata;
use crate::session_hosts::SESSION_COMMAND;
use domain::kubernetes_labels::is_label_value;
use domain::machine::{EnvVarMap, MachineSpec};

/// Name of the container of the run.
pub(super) const CONTAINER: &str = "run";

/// Disk of the node that is set aside for a run: a clone, dependencies and a build.
const REQUESTED_DISK: &str = "8Gi";

/// Disk of the node at which the kubelet ends a run. Both volumes of `job.json` and the log count.
const MAX_DISK: &str = "40Gi";

/// Fields of every Job.
const TEMPLATE: &str = include_str!("job.json");

/// Builds a suspended Job.
pub(super) fn job(spec: &MachineSpec, settings: &JobSettings) -> Value {
    // A label has a narrow alphabet; an annotation can hold any text.
    let (labels, annotations): (EnvVarMap, EnvVarMap) = { spec.labels.to_map() }
        .into_iter()
        .partition(|(_, value)| is_label_value(value));
    let mut job: Value = serde_json::from_str(TEMPLATE).unwrap_or_default();
    job["metadata"]["name"] = spec.name.as_str().into();
    job["metadata"]["labels"] = json!(labels);
    job["metadata"]["annotations"] = json!(annotations);
    job["spec"]["activeDeadlineSeconds"] = spec.max_lifetime.as_secs().into();
    job["spec"]["template"]["metadata"]["labels"] = json!(labels);
    let pod = &mut job["spec"]["template"]["spec"];
    for (label, value) in &spec.node_selector {
        pod["nodeSelector"][label] = value.as_str().into();
    }
    if let Some(class) = &settings.runtime_class {
        pod["runtimeClassName"] = class.as_str().into();
    }
    if let Some(secret) = &settings.pull_secret {
        pod["imagePullSecrets"] = json!([{"name": secret}]);
    }
    let resources = |disk: &str| {
        json!({
            "cpu": spec.cpus.to_string(),
            "memory": format!("{}Mi", spec.memory_mb),
            "ephemeral-storage": disk,
        })
    };
    let container = &mut pod["containers"][0];
    container["name"] = CONTAINER.into();
    container["image"] = spec.image.as_str().into();
    container["command"] = json!(SESSION_COMMAND);
    container["resources"] =
        json!({"requests": resources(REQUESTED_DISK), "limits": resources(MAX_DISK)});
    // The Secret of an earlier Job of the name may still be in deletion.
    let secret = format!("{}-{:08x}", spec.name, fastrand::u32(..));
    container["envFrom"][0]["secretRef"]["name"] = secret.into();
    job
}

/// Builds the Secret of a created Job, with the name that the Job requires. It is deleted with the Job.
pub(super) fn secret(spec: &MachineSpec, job: &Value) -> Value {
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": container["envFrom"][0]["secretRef"]["name"],
            "labels": metadata(job)["labels"],
            "ownerReferences": [{
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": spec.name,
                "uid": metadata(job)["uid"],
            }],
        },
        "immutable": true,
        "type": "Opaque",
        "stringData": spec.environment,
    })
}

/// Builds the options that delete exactly this Job, with its pods and its Secret.
pub(super) fn deletion(job: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": metadata(job)["uid"]},
    })
}

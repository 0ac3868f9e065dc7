//! State of a Job and its pod, as the machine that all session hosts share.

use std::time::Duration;

use serde_json::Value;

use domain::machine::{
    EnvVarMap, HostKind, Machine, MachineExit, MachineLabels, MachineProblem, MachineState,
};
use domain::time::Timestamp;

const MINUTE: Duration = Duration::from_secs(60);

/// Time for a problem that may pass: an image registry that fails once, a Secret that is not visible yet.
const SHORT_WAIT: Duration = MINUTE.saturating_mul(3);

/// Time for a node or a quota to become free, as for the capacity of other hosts.
const CAPACITY_WAIT: Duration = MINUTE.saturating_mul(30);

/// Reasons why a container waits for ever.
const NEVER_STARTS: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];

/// Reasons why a container waits, and probably for ever.
const RARELY_STARTS: [&str; 5] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// Returns the metadata of an object.
pub(super) fn metadata(object: &Value) -> &Value {
    &object["metadata"]
}

/// Returns the machine of a Job. `None` if it does not belong to this instance.
pub(super) fn machine(job: &Value, pod: Option<&Value>, instance: &str) -> Option<Machine> {
    let about = metadata(job);
    let pairs = [&about["annotations"], &about["labels"]].into_iter();
    let pairs = pairs.filter_map(Value::as_object).flatten();
    let pairs: EnvVarMap = pairs
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    let labels = MachineLabels::read(&pairs, instance)?;
    let name = about["name"].as_str().unwrap_or_default();
    let created_at = about["creationTimestamp"].as_str();
    let (state, exit, problem) = state(job, pod);
    Some(Machine {
        host: HostKind::Kubernetes,
        id: name.to_owned(),
        name: name.to_owned(),
        state: MachineState::new(state),
        exit,
        problem,
        region: None,
        log_url: None,
        created_at: created_at.and_then(Timestamp::parse).unwrap_or_default(),
        labels,
    })
}

type State = (&'static str, Option<MachineExit>, Option<MachineProblem>);

fn state(job: &Value, pod: Option<&Value>) -> State {
    if !metadata(job)["deletionTimestamp"].is_null() {
        return ("destroying", None, None);
    }
    let phase = pod.and_then(|pod| pod["status"]["phase"].as_str());
    if let (Some(pod), Some("Succeeded" | "Failed")) = (pod, phase) {
        return ended(pod);
    }
    if let Some(ended) = condition(job, &["Failed", "FailureTarget"]) {
        return (
            "stopped",
            None,
            Some(problem("its Job failed", ended, Duration::ZERO)),
        );
    }
    if condition(job, &["Complete"]).is_some() {
        return ("stopped", None, None);
    }
    match (pod, phase) {
        _ if job["spec"]["suspend"] == true => ("created", None, None),
        (Some(pod), Some("Pending")) => ("starting", None, waiting(pod)),
        (Some(_), _) => ("started", None, None),
        (None, _) => ("starting", None, None),
    }
}

/// Returns the state of a pod that has ended.
fn ended(pod: &Value) -> State {
    let status = &pod["status"];
    let terminated = &status["containerStatuses"][0]["state"]["terminated"];
    let code = terminated["exitCode"].as_i64();
    let exit = code.map(|code| MachineExit {
        code: i32::try_from(code).ok(),
        out_of_memory: terminated["reason"] == "OOMKilled",
    });
    // The kubelet gives a reason only if the container did not end by itself, such as `Evicted`.
    let is_killed = status["reason"].is_string();
    let problem = is_killed.then(|| problem("its pod ended", status, Duration::ZERO));
    ("stopped", exit.filter(|_| !is_killed), problem)
}

/// Returns why a pod does not start.
fn waiting(pod: &Value) -> Option<MachineProblem> {
    let container = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    let reason = container["reason"].as_str().unwrap_or_default();
    if NEVER_STARTS.contains(&reason) {
        return Some(problem(
            "its container not started",
            container,
            Duration::ZERO,
        ));
    }
    if RARELY_STARTS.contains(&reason) {
        return Some(problem("its container not started", container, SHORT_WAIT));
    }
    let scheduled = condition(pod, &["PodScheduled"]);
    let is_unschedulable = scheduled.is_none();
    let why = pod["status"]["conditions"].as_array().into_iter().flatten();
    let why = { why }.find(|one| one["type"] == "PodScheduled" && one["reason"] == "Unschedulable");
    why.filter(|_| is_unschedulable)
        .map(|why| problem("its pod not scheduled", why, CAPACITY_WAIT))
}

/// Returns the first condition of these types that holds.
fn condition<'a>(object: &'a Value, types: &[&str]) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|one| {
        one["status"] == "True"
            && one["type"]
                .as_str()
                .is_some_and(|kind| types.contains(&kind))
    })
}

/// Builds a problem from an object with a reason and a message.
fn problem(what: &str, why: &Value, permanent_after: Duration) -> MachineProblem {
    let part = |name: &str| why[name].as_str().filter(|text| !text.is_empty());
    let parts: Vec<&str> = [Some(what), part("reason"), part("message")]
        .into_iter()
        .flatten()
        .collect();
    MachineProblem {
        message: parts.join(": "),
        permanent_after,
    }
}

/// Returns whether the cluster has not created the pod of a Job that should run.
pub(super) fn is_without_pod(job: &Value, pod: Option<&Value>) -> bool {
    pod.is_none() && state(job, None).0 == "starting"
}

/// Keeps the events with a message, the latest last.
pub(super) fn failed_creations(mut events: Vec<Value>) -> Vec<Value> {
    events.retain(|event| event["message"].is_string());
    let time = |event: &Value| {
        event["lastTimestamp"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    events.sort_by_cached_key(time);
    events
}

/// Returns why the cluster refused to create the pod of a Job.
pub(super) fn refused_pod(job: &Value, events: &[Value]) -> Option<MachineProblem> {
    let uid = &metadata(job)["uid"];
    let mut events = events.iter().rev();
    let event = events.find(|event| event["involvedObject"]["uid"] == *uid)?;
    let message = event["message"].as_str().unwrap_or_default();
    let permanent_after = match message.contains("exceeded quota") {
        true => CAPACITY_WAIT,
        false => SHORT_WAIT,
    };
    Some(problem("no pod", event, permanent_after))
}

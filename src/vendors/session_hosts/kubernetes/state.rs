//! State of a Job and its pod, as the machine that all session hosts share.

use std::time::Duration;

use serde_json::Value;

use domain::machine::{
    EnvVarMap, HostKind, Machine, MachineExit, MachineLabels, MachineProblem, MachineState,
};
use domain::time::Timestamp;
use domain::transition::FailureKind;

use super::job::CONTAINER;

const MINUTE: Duration = Duration::from_secs(60);

/// Time for a problem that may pass, such as a Secret that is not visible yet.
pub(super) const SHORT_WAIT: Duration = MINUTE.saturating_mul(3);

/// Time in preparation by a node from which a failure of it counts as permanent.
pub(super) const PREPARATION_WAIT: Duration = MINUTE.saturating_mul(10);

/// Time for a node or a quota to become free, as for the capacity of other hosts.
pub(super) const CAPACITY_WAIT: Duration = MINUTE.saturating_mul(30);

/// Reasons why a container will never start.
const NEVER_STARTS: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];

/// Reasons why a container waits for its image. The pull of a large one may fail after minutes, and the next one goes on
/// from there.
const FAILED_PULLS: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// Reasons why a container waits, and will probably never start.
const RARELY_STARTS: [&str; 3] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// Reasons of a container whose pod is being prepared. They do not say what it waits for.
const IN_PREPARATION: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Reason of a Job whose pod failed.
const FAILED_WITH_ITS_POD: &str = "BackoffLimitExceeded";

/// Problem of a Job whose pod was deleted. The cluster deletes a pod that it evicts within seconds.
const POD_DELETED: &str = "its pod was deleted, for example by a drain of its node or a preemption";

/// Reasons of a pod that ended because of its own settings: its deadline, or what a node refuses to any such pod.
const OWN_ENDS: [&str; 3] = ["DeadlineExceeded", "AppArmor", "SysctlForbidden"];

/// Reason of a pod that the kubelet evicted, and the start of its message if the node was short of something. Otherwise
/// the pod had used up its own disk.
const EVICTED: (&str, &str) = ("Evicted", "The node ");

/// Returns the metadata of an object.
pub(super) fn metadata(object: &Value) -> &Value {
    &object["metadata"]
}

/// Returns whether an object is being deleted. It can no longer be used, and its name is still taken.
pub(super) fn is_in_deletion(object: &Value) -> bool {
    !metadata(object)["deletionTimestamp"].is_null()
}

/// Returns whether a Job creates no pod until it is resumed.
pub(super) fn is_suspended(job: &Value) -> bool {
    job["spec"]["suspend"] == true
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
        created_at: time(&about["creationTimestamp"]).unwrap_or_default(),
        labels,
    })
}

type State = (&'static str, Option<MachineExit>, Option<MachineProblem>);

fn state(job: &Value, pod: Option<&Value>) -> State {
    // One that was never resumed has had no run, so that it does not count as started.
    if is_in_deletion(job) && !is_suspended(job) {
        return ("destroying", None, None);
    }
    if let Some(pod) = pod.filter(|pod| has_ended(pod)) {
        return ended(pod);
    }
    if let Some(failed) = condition(job, &["Failed", "FailureTarget"]) {
        let problem = pod.and_then(disruption);
        let problem = problem.or_else(|| deletion(failed, pod));
        let problem =
            problem.unwrap_or_else(|| problem_of(FailureKind::Permanent, "its Job failed", failed));
        return ("stopped", None, Some(problem));
    }
    if condition(job, &["Complete", "SuccessCriteriaMet"]).is_some() {
        // The pod is gone, and with it the exit. A Job completes only if its pod exited with 0.
        return ("stopped", Some(exit(0)), None);
    }
    match (pod, pod.and_then(phase)) {
        _ if is_suspended(job) => ("created", None, None),
        (Some(pod), Some("Pending")) => ("starting", None, waiting(pod)),
        (Some(_), _) => ("started", None, None),
        (None, _) => ("starting", None, None),
    }
}

fn phase(pod: &Value) -> Option<&str> {
    pod["status"]["phase"].as_str()
}

/// Returns the state of the container of the run. A cluster may add containers to the pod, before and after it.
fn container(pod: &Value) -> &Value {
    let containers = pod["status"]["containerStatuses"].as_array();
    let mut containers = containers.into_iter().flatten();
    let run = containers.find(|container| container["name"] == CONTAINER);
    run.map_or(&Value::Null, |run| &run["state"])
}

/// Returns whether the container of the run has ended, for a container of a service mesh may go on.
fn has_ended(pod: &Value) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed")) || container(pod)["terminated"].is_object()
}

fn exit(code: i32) -> MachineExit {
    MachineExit {
        code: Some(code),
        out_of_memory: false,
    }
}

/// Returns the state of a pod that has ended. A disruption, such as the drain of its node, explains an exit code, which
/// is that of SIGTERM or SIGKILL then. A container counts as `OOMKilled` even if only a child of its program was killed,
/// and the program exited with 0.
fn ended(pod: &Value) -> State {
    let status = &pod["status"];
    let terminated = &container(pod)["terminated"];
    let code = terminated["exitCode"].as_i64();
    let exit = code.map(|code| MachineExit {
        code: i32::try_from(code).ok(),
        out_of_memory: terminated["reason"] == "OOMKilled" && code != 0,
    });
    // The kubelet gives a reason only if the container did not end by itself, such as `Evicted`.
    let reason = status["reason"].as_str();
    let killed = reason.map(|reason| {
        let kind = match disruption(pod) {
            Some(disruption) => disruption.kind,
            None => kind_of_end(reason, &status["message"]),
        };
        problem_of(kind, "its pod ended", status)
    });
    let problem = killed
        .or_else(|| disruption(pod).filter(|_| code != Some(0)))
        .or_else(|| runtime_failure(terminated));
    ("stopped", exit.filter(|_| problem.is_none()), problem)
}

/// Returns why the container runtime, and not the program of the run, set the exit code of a container. containerd
/// reports `Unknown` and 255 for a container that was lost in a reboot of its node.
fn runtime_failure(terminated: &Value) -> Option<MachineProblem> {
    let (kind, what) = match terminated["reason"].as_str()? {
        "StartError" | "ContainerCannotRun" => (FailureKind::Permanent, NOT_STARTED),
        "ContainerStatusUnknown" | "Unknown" => (FailureKind::Transient, "its pod ended"),
        _ => return None,
    };
    Some(problem_of(kind, what, terminated))
}

/// Returns the kind of the failure of a pod that ended for this reason.
fn kind_of_end(reason: &str, message: &Value) -> FailureKind {
    let (evicted, of_node) = EVICTED;
    let message = message.as_str().unwrap_or_default();
    match reason {
        reason if reason == evicted && !message.starts_with(of_node) => FailureKind::Permanent,
        reason if OWN_ENDS.contains(&reason) => FailureKind::Permanent,
        _ => FailureKind::Transient,
    }
}

/// Returns the problem of a failed Job whose pod was deleted before its end was known.
fn deletion(failed: &Value, pod: Option<&Value>) -> Option<MachineProblem> {
    let is_deleted = failed["reason"] == FAILED_WITH_ITS_POD && pod.is_none_or(is_in_deletion);
    is_deleted.then(|| problem_of(FailureKind::Transient, POD_DELETED, &Value::Null))
}

/// Returns why the cluster ends a pod: drain or loss of its node, preemption by another pod.
fn disruption(pod: &Value) -> Option<MachineProblem> {
    let disruption = condition(pod, &["DisruptionTarget"]);
    disruption.map(|why| problem_of(FailureKind::Transient, "its pod was disrupted", why))
}

/// Returns why a pod does not start.
fn waiting(pod: &Value) -> Option<MachineProblem> {
    let waiting = &container(pod)["waiting"];
    let reason = waiting["reason"].as_str().unwrap_or_default();
    let permanent_after = match reason {
        reason if NEVER_STARTS.contains(&reason) => Some(Duration::ZERO),
        reason if FAILED_PULLS.contains(&reason) => Some(PREPARATION_WAIT),
        reason if RARELY_STARTS.contains(&reason) => Some(SHORT_WAIT),
        _ => None,
    };
    if let Some(permanent_after) = permanent_after {
        return Some(MachineProblem {
            since: scheduled_at(pod),
            permanent_after,
            ..problem_of(FailureKind::Permanent, NOT_STARTED, waiting)
        });
    }
    let scheduled = conditions(pod).find(|one| one["type"] == "PodScheduled")?;
    let is_unschedulable = scheduled["status"] != "True" && scheduled["reason"] == "Unschedulable";
    is_unschedulable.then(|| MachineProblem {
        since: time(&metadata(pod)["creationTimestamp"]),
        permanent_after: CAPACITY_WAIT,
        ..problem_of(
            FailureKind::Transient,
            "its pod was not scheduled",
            scheduled,
        )
    })
}

/// Start of the message about a container that does not start.
pub(super) const NOT_STARTED: &str = "its container did not start";

/// Returns when a pod got its node. Before that, none of its containers could start.
pub(super) fn scheduled_at(pod: &Value) -> Option<Timestamp> {
    let scheduled = condition(pod, &["PodScheduled"]);
    let scheduled = scheduled.and_then(|scheduled| time(&scheduled["lastTransitionTime"]));
    scheduled.or_else(|| time(&pod["status"]["startTime"]))
}

/// Returns when a Job was resumed. Before that, it could have no pod.
pub(super) fn resumed_at(job: &Value) -> Option<Timestamp> {
    time(&job["status"]["startTime"])
}

/// Returns whether a pod has a node that prepares it, and does not say what it waits for. The sandbox and the volumes of
/// a pod that is ready to start its containers are there, so it waits for an image.
pub(super) fn is_in_preparation(pod: &Value) -> bool {
    let reason = &container(pod)["waiting"]["reason"];
    phase(pod) == Some("Pending")
        && IN_PREPARATION.iter().any(|known| reason == known)
        && condition(pod, &["PodReadyToStartContainers"]).is_none()
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
}

/// Returns the first condition of these types that holds.
fn condition<'a>(object: &'a Value, types: &[&str]) -> Option<&'a Value> {
    conditions(object).find(|one| {
        one["status"] == "True"
            && one["type"]
                .as_str()
                .is_some_and(|kind| types.contains(&kind))
    })
}

fn time(text: &Value) -> Option<Timestamp> {
    text.as_str().and_then(Timestamp::parse)
}

/// Builds a problem, permanent at once, from an object with a reason and a message.
pub(super) fn problem_of(kind: FailureKind, what: &str, why: &Value) -> MachineProblem {
    let part = |name: &str| why[name].as_str().filter(|text| !text.is_empty());
    let parts: Vec<&str> = [Some(what), part("reason"), part("message")]
        .into_iter()
        .flatten()
        .collect();
    MachineProblem {
        message: parts.join(": "),
        kind,
        since: None,
        permanent_after: Duration::ZERO,
    }
}

/// Returns whether the cluster has not created the pod of a Job that should run.
pub(super) fn is_without_pod(job: &Value, pod: Option<&Value>) -> bool {
    pod.is_none() && state(job, None).0 == "starting"
}

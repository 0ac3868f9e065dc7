//! Events of the namespace: why the cluster does not create the pod of a Job, or does not start a pod.

use std::time::Duration;

use serde_json::Value;

use super::Kubernetes;
use super::state::{
    CAPACITY_WAIT, NOT_STARTED, PREPARATION_WAIT, SHORT_WAIT, is_in_preparation, is_without_pod,
    metadata, problem_of, resumed_at, scheduled_at,
};
use crate::http::{now_millis, percent_encode};
use domain::machine::MachineProblem;
use domain::time::Timestamp;
use domain::transition::FailureKind;

/// Maximum number of events of one list.
const MAX_EVENTS: usize = 500;

/// Selector of the events about pods that were not created.
const UNCREATED_PODS: &str = "reason=FailedCreate,involvedObject.kind=Job";

/// Selector of the events about pods that do not start, among others.
const POD_WARNINGS: &str = "type=Warning,involvedObject.kind=Pod";

/// Reasons of events about pods that do not start, and do not say so in their state.
const PREPARATION_FAILURES: [&str; 4] = [
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedAttachVolume",
    "NetworkNotReady",
];

/// Time in preparation until the events of a pod are read. Most pods need less.
const USUAL_PREPARATION: Duration = Duration::from_secs(3 * 60);

/// Age from which an event says nothing about the present. The kubelet repeats it at least every 5 minutes while the
/// failure lasts.
const EVENT_LIFETIME: Duration = Duration::from_secs(8 * 60);

/// Events about the Jobs and pods of one list, as far as these need an explanation.
pub(super) struct Events {
    about_jobs: Vec<Value>,
    about_pods: Vec<Value>,
    now: Timestamp,
}

impl Kubernetes {
    /// Reads the events about these Jobs and their pods, with at most one list per kind.
    pub(super) async fn events(&self, jobs: &[(&Value, Option<&Value>)]) -> Events {
        let now = Timestamp::from_millis(now_millis());
        let has_no_pod = jobs.iter().any(|(job, pod)| is_without_pod(job, *pod));
        let is_stuck = { jobs.iter() }.any(|(_, pod)| pod.is_some_and(|pod| is_stuck(pod, now)));
        Events {
            about_jobs: self.events_if(has_no_pod, UNCREATED_PODS).await,
            about_pods: self.events_if(is_stuck, POD_WARNINGS).await,
            now,
        }
    }

    /// Lists events, the latest last. Without the right to do so, the time budget of the run applies.
    async fn events_if(&self, is_needed: bool, selector: &str) -> Vec<Value> {
        if !is_needed {
            return Vec::new();
        }
        let selector = percent_encode(selector);
        let url = self.core(&format!(
            "/events?fieldSelector={selector}&limit={MAX_EVENTS}"
        ));
        let events = self.items("listing the events", url).await;
        let mut events = events.unwrap_or_default();
        events.retain(|event| event["message"].is_string());
        events.sort_by_cached_key(time);
        events
    }
}

impl Events {
    /// Returns why a Job has no pod, or why its pod does not start, if the events state it.
    pub(super) fn problem(&self, job: &Value, pod: Option<&Value>) -> Option<MachineProblem> {
        match pod {
            None if is_without_pod(job, None) => self.uncreated(job),
            Some(pod) if is_stuck(pod, self.now) => self.stuck(pod),
            _ => None,
        }
    }

    fn uncreated(&self, job: &Value) -> Option<MachineProblem> {
        let event = latest(&self.about_jobs, job, |_| true)?;
        let message = event["message"].as_str().unwrap_or_default();
        let (kind, permanent_after) = match message.contains("exceeded quota") {
            true => (FailureKind::Transient, CAPACITY_WAIT),
            false => (FailureKind::Permanent, SHORT_WAIT),
        };
        Some(MachineProblem {
            since: resumed_at(job),
            permanent_after,
            ..problem_of(kind, "its pod was not created", event)
        })
    }

    fn stuck(&self, pod: &Value) -> Option<MachineProblem> {
        let is_current = |event: &Value| {
            let reason = &event["reason"];
            PREPARATION_FAILURES.iter().any(|known| reason == known)
                && time(event).is_some_and(|at| self.now.since(at) < EVENT_LIFETIME)
        };
        let event = latest(&self.about_pods, pod, is_current)?;
        Some(MachineProblem {
            since: scheduled_at(pod),
            permanent_after: PREPARATION_WAIT,
            ..problem_of(FailureKind::Permanent, NOT_STARTED, event)
        })
    }
}

/// Returns whether a node prepares a pod for longer than usual.
fn is_stuck(pod: &Value, now: Timestamp) -> bool {
    is_in_preparation(pod)
        && scheduled_at(pod).is_some_and(|since| now.since(since) >= USUAL_PREPARATION)
}

/// Returns the latest of these events about an object.
fn latest<'a>(
    events: &'a [Value],
    object: &Value,
    is_wanted: impl Fn(&Value) -> bool,
) -> Option<&'a Value> {
    let uid = &metadata(object)["uid"];
    let mut events = events.iter().rev();
    events.find(|event| event["involvedObject"]["uid"] == *uid && is_wanted(event))
}

/// Returns when an event occurred last. An event that was not repeated may have an `eventTime` only.
fn time(event: &Value) -> Option<Timestamp> {
    let text = |name: &str| event[name].as_str();
    let last = text("lastTimestamp").or_else(|| text("eventTime"));
    last.and_then(Timestamp::parse)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn minutes_after_noon(minutes: u32) -> Value {
        json!(format!("2026-01-02T12:{minutes:02}:00Z"))
    }

    /// A pod that got its node at noon, with this state of the run's container and further conditions.
    fn pod(waiting: &str, conditions: &[&str]) -> Value {
        let other = conditions
            .iter()
            .map(|kind| json!({"type": kind, "status": "True"}));
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastTransitionTime": minutes_after_noon(0),
        });
        let conditions: Vec<Value> = std::iter::once(scheduled).chain(other).collect();
        json!({
            "metadata": {"uid": "p1"},
            "status": {
                "phase": "Pending",
                "conditions": conditions,
                "containerStatuses": [{"name": "run", "state": {"waiting": {"reason": waiting}}}],
            },
        })
    }

    fn event(uid: &str, reason: &str, minute: u32) -> Value {
        json!({
            "involvedObject": {"kind": "Pod", "uid": uid},
            "reason": reason,
            "message": "why",
            "lastTimestamp": minutes_after_noon(minute),
        })
    }

    #[test]
    fn only_a_lasting_failure_explains_a_pod_in_preparation() {
        let creating = pod("ContainerCreating", &[]);
        let mount = event("p1", "FailedMount", 9);
        let rows = [
            ("of the pod", &creating, mount.clone(), 10, true),
            (
                "of an init container",
                &pod("PodInitializing", &[]),
                mount.clone(),
                10,
                true,
            ),
            ("too early", &creating, mount.clone(), 2, false),
            (
                "of another pod",
                &creating,
                event("p2", "FailedMount", 9),
                10,
                false,
            ),
            (
                "another reason",
                &creating,
                event("p1", "BackOff", 9),
                10,
                false,
            ),
            (
                "long ago",
                &creating,
                event("p1", "FailedMount", 1),
                10,
                false,
            ),
            (
                "it pulls its image",
                &pod("ContainerCreating", &["PodReadyToStartContainers"]),
                mount.clone(),
                10,
                false,
            ),
            (
                "it says why itself",
                &pod("ErrImagePull", &[]),
                mount,
                10,
                false,
            ),
        ];
        for (row, pod, event, minute, is_explained) in rows {
            let events = Events {
                about_jobs: Vec::new(),
                about_pods: vec![event],
                now: time(&json!({"eventTime": minutes_after_noon(minute)})).unwrap(),
            };
            let problem = events.problem(&json!({}), Some(pod));
            assert_eq!(problem.is_some(), is_explained, "{row}");
            let Some(problem) = problem else { continue };
            assert_eq!(
                problem.message,
                "its container did not start: FailedMount: why"
            );
            assert_eq!(problem.since, scheduled_at(pod));
            assert_eq!(problem.permanent_after, 10 * MINUTE);
        }
    }
}

use serde_json::{Value, json};

use super::state::machine;
use super::{JobSettings, job};
use domain::ids::{JobId, Repo};
use domain::machine::{Machine, MachineExit, MachineLabels, MachineSpec};
use domain::time::Timestamp;
use domain::transition::FailureKind;

fn spec() -> MachineSpec {
    MachineSpec {
        name: "agent-01j".to_owned(),
        image: "ghcr.io/acme/runner:1".to_owned(),
        cpus: 2,
        memory_mb: 4_096,
        environment: [("TOKEN".to_owned(), "secret".to_owned())].into(),
        socket_folder: None,
        mirror_folder: None,
        is_isolated: false,
        node_selector: [("pool".to_owned(), "agents".to_owned())].into(),
        max_lifetime: std::time::Duration::from_secs(4_200),
        labels: MachineLabels {
            instance: "i1".to_owned(),
            job: JobId::from("01J"),
            issue: Some("acme/shop#12".into()),
            team: Some("ENG".into()),
            repo: Some(Repo::new("acme", "shop")),
            expires_at: Some(Timestamp::from_millis(1_000)),
        },
    }
}

/// A Job as the API server returns it, with these changes.
fn created(changes: &Value) -> Value {
    let settings = JobSettings {
        namespace: "runs".to_owned(),
        runtime_class: Some("gvisor".to_owned()),
        pull_secret: Some("registry".to_owned()),
    };
    let mut created = job::job(&spec(), &settings);
    created["metadata"]["uid"] = "u1".into();
    created["metadata"]["creationTimestamp"] = "2026-01-02T03:04:05Z".into();
    for (path, value) in changes.as_object().unwrap() {
        let (parent, field) = path.rsplit_once('/').unwrap();
        created.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    created
}

fn read(changes: &Value, status: Option<Value>) -> Machine {
    let pod = status.map(|status| json!({"status": status}));
    machine(&created(changes), pod.as_ref(), "i1").unwrap()
}

#[test]
fn every_label_survives_and_identifies_the_instance() {
    let read = read(&json!({}), None);
    assert_eq!(read.labels, spec().labels);
    assert_eq!(
        (read.id.as_str(), read.name.as_str()),
        ("agent-01j", "agent-01j")
    );
    assert_eq!(
        read.created_at,
        Timestamp::parse("2026-01-02T03:04:05Z").unwrap()
    );
    assert_eq!(machine(&created(&json!({})), None, "i2"), None);
    let job = created(&json!({}));
    assert_eq!(job["metadata"]["labels"]["agent_implement_team"], "ENG");
    assert!(job["metadata"]["labels"]["agent_implement_repo"].is_null());
    assert_eq!(
        job["metadata"]["annotations"]["agent_implement_issue"],
        "acme/shop#12"
    );
}

#[test]
fn the_environment_is_in_the_secret_that_the_job_owns() {
    let job = created(&json!({}));
    assert!(!job.to_string().contains("TOKEN"), "{job}");
    let secret = job::secret(&spec(), &job);
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["envFrom"][0]["secretRef"]["name"],
        secret["metadata"]["name"]
    );
    assert_eq!(secret["stringData"], json!({"TOKEN": "secret"}));
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "u1");
    let again = created(&json!({}));
    let other = job::secret(&spec(), &again);
    assert_ne!(
        other["metadata"]["name"], secret["metadata"]["name"],
        "each Job has its own"
    );
}

#[test]
fn a_run_needs_a_linux_node_with_the_labels_of_its_project() {
    let settings = JobSettings {
        namespace: "runs".to_owned(),
        runtime_class: None,
        pull_secret: None,
    };
    for (own, expected) in [
        (json!({}), json!({"kubernetes.io/os": "linux"})),
        (
            json!({"pool": "agents"}),
            json!({"kubernetes.io/os": "linux", "pool": "agents"}),
        ),
        (
            json!({"kubernetes.io/os": "other"}),
            json!({"kubernetes.io/os": "other"}),
        ),
    ] {
        let spec = MachineSpec {
            node_selector: serde_json::from_value(own).unwrap(),
            ..spec()
        };
        let job = job::job(&spec, &settings);
        assert_eq!(job["spec"]["template"]["spec"]["nodeSelector"], expected);
    }
}

/// With `fsGroup`, the kubelet sets the setgid bit of the volumes, and every file in them gets other modes and owners.
#[test]
fn the_volumes_of_a_run_have_no_group() {
    let job = created(&json!({}));
    let security = &job["spec"]["template"]["spec"]["securityContext"];
    assert_eq!(security["runAsGroup"], 1000);
    assert!(security["fsGroup"].is_null());
}

#[test]
fn failures_of_the_cluster_are_transient_and_those_of_the_settings_are_not() {
    let resumed = json!({"/spec/suspend": false});
    let failed = |kind: &str, reason: &str| {
        json!({"/spec/suspend": false, "/status": {"conditions": [
            {"type": kind, "status": "True", "reason": reason, "message": "why"},
        ]}})
    };
    let ended = |reason: &str, message: &str| {
        let status = json!({"phase": "Failed", "reason": reason, "message": message});
        (resumed.clone(), Some(status))
    };
    let exited = |reason: &str| {
        let state = json!({"terminated": {"reason": reason, "exitCode": 255}});
        let containers = json!([{"name": "run", "state": state}]);
        let status = json!({"phase": "Failed", "containerStatuses": containers});
        (resumed.clone(), Some(status))
    };
    let waiting = |reason: &str| {
        let containers = json!([{"name": "run", "state": {"waiting": {"reason": reason}}}]);
        let status = json!({"phase": "Pending", "containerStatuses": containers});
        (resumed.clone(), Some(status))
    };
    let with_condition = |condition: Value, status: Value| {
        let mut status = status;
        status["conditions"] = json!([condition]);
        (resumed.clone(), Some(status))
    };
    let disrupted =
        json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"});
    let unscheduled = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let own_disk = "Pod ephemeral local storage usage exceeds the total limit of containers 40Gi.";
    let transient = [
        (failed("Failed", "BackoffLimitExceeded"), None),
        with_condition(disrupted.clone(), json!({"phase": "Failed"})),
        with_condition(disrupted, json!({"phase": "Failed", "reason": "Evicted"})),
        with_condition(unscheduled, json!({"phase": "Pending"})),
        ended("Evicted", "The node was low on resource: memory."),
        ended("Evicted", "The node had condition: [DiskPressure]."),
        ended(
            "Terminated",
            "Pod was terminated in response to imminent node shutdown.",
        ),
        ended(
            "NodeShutdown",
            "Pod was rejected as the node is shutting down.",
        ),
        ended(
            "NodeLost",
            "Node n1 which was running pod x is unresponsive",
        ),
        ended("Preempting", "Preempted in order to admit critical pod"),
        ended("OutOfcpu", "Node didn't have enough resource: cpu"),
        ended("UnexpectedAdmissionError", "Allocate failed"),
        exited("ContainerStatusUnknown"),
        exited("Unknown"),
    ];
    let permanent = [
        (failed("Failed", "DeadlineExceeded"), None),
        ended(
            "DeadlineExceeded",
            "Pod was active on the node longer than the specified deadline",
        ),
        ended("Evicted", own_disk),
        exited("StartError"),
        waiting("InvalidImageName"),
        waiting("ImagePullBackOff"),
        waiting("CreateContainerConfigError"),
    ];
    let rows = transient
        .into_iter()
        .map(|row| (row, FailureKind::Transient));
    let rows = rows.chain(
        permanent
            .into_iter()
            .map(|row| (row, FailureKind::Permanent)),
    );
    for ((changes, status), kind) in rows {
        let found = read(&changes, status.clone())
            .problem
            .map(|problem| problem.kind);
        assert_eq!(found, Some(kind), "{changes} {status:?}");
    }
}

#[test]
fn a_failed_job_without_its_pod_says_that_the_pod_was_deleted() {
    let deleted = "its pod was deleted, for example by a drain of its node or a preemption";
    let failed = json!({"/spec/suspend": false, "/status": {"conditions": [
        {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "why"},
    ]}});
    let about = |about: Value| json!({"metadata": about, "status": {"phase": "Running"}});
    let terminating = about(json!({"deletionTimestamp": "2026-01-02T03:04:05Z"}));
    let other = "its Job failed: BackoffLimitExceeded: why";
    for (pod, expected) in [
        (None, deleted),
        (Some(terminating), deleted),
        (Some(about(json!({}))), other),
    ] {
        let machine = machine(&created(&failed), pod.as_ref(), "i1").unwrap();
        assert_eq!(machine.state.as_str(), "stopped", "{pod:?}");
        assert_eq!(machine.problem.unwrap().message, expected, "{pod:?}");
    }
}

#[test]
fn a_job_and_its_pod_have_the_state_of_a_machine() {
    let resumed = json!({"/spec/suspend": false});
    let terminated = |reason: &str, code: i32| {
        json!([
            {"name": "mesh-proxy", "state": {"running": {}}},
            {"name": "run", "state": {"terminated": {"reason": reason, "exitCode": code, "message": "why"}}},
        ])
    };
    let disrupted = json!([
        {"type": "Ready", "status": "False"},
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drain"},
    ]);
    let disruption = "its pod was disrupted: EvictionByEvictionAPI: drain";
    let condition = |kind: &str, reason: &str| {
        json!({"/spec/suspend": false, "/status": {"conditions": [
            {"type": kind, "status": "True", "reason": reason, "message": "why"},
        ]}})
    };
    let exit = |code, out_of_memory| {
        Some(MachineExit {
            code: Some(code),
            out_of_memory,
        })
    };
    let rows = [
        (json!({}), None, "created", None, None),
        (resumed.clone(), None, "starting", None, None),
        (
            resumed.clone(),
            Some(json!({"phase": "Pending"})),
            "starting",
            None,
            None,
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Running"})),
            "started",
            None,
            None,
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Unknown"})),
            "started",
            None,
            None,
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Succeeded", "containerStatuses": terminated("Completed", 0)})),
            "stopped",
            exit(0, false),
            None,
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Failed", "containerStatuses": terminated("Error", 3)})),
            "stopped",
            exit(3, false),
            None,
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Failed", "containerStatuses": terminated("OOMKilled", 137)})),
            "stopped",
            exit(137, true),
            None,
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Succeeded", "containerStatuses": terminated("OOMKilled", 0)})),
            "stopped",
            exit(0, false),
            None,
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Failed", "containerStatuses": terminated("Unknown", 255)})),
            "stopped",
            None,
            Some("its pod ended: Unknown: why"),
        ),
        (
            resumed.clone(),
            Some(
                json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}),
            ),
            "stopped",
            None,
            Some("its pod ended: Evicted: The node was low on memory."),
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Failed", "containerStatuses": terminated("StartError", 128)})),
            "stopped",
            None,
            Some("its container did not start: StartError: why"),
        ),
        (
            resumed.clone(),
            Some(
                json!({"phase": "Failed", "containerStatuses": terminated("ContainerStatusUnknown", 137)}),
            ),
            "stopped",
            None,
            Some("its pod ended: ContainerStatusUnknown: why"),
        ),
        (
            resumed.clone(),
            Some(
                json!({"phase": "Failed", "conditions": disrupted, "containerStatuses": terminated("ContainerStatusUnknown", 137)}),
            ),
            "stopped",
            None,
            Some(disruption),
        ),
        (
            condition("Failed", "DeadlineExceeded"),
            None,
            "stopped",
            None,
            Some("its Job failed: DeadlineExceeded: why"),
        ),
        (
            condition("Complete", ""),
            None,
            "stopped",
            exit(0, false),
            None,
        ),
        (
            condition("SuccessCriteriaMet", ""),
            None,
            "stopped",
            exit(0, false),
            None,
        ),
        (
            resumed.clone(),
            Some(json!({"phase": "Running", "containerStatuses": terminated("Error", 3)})),
            "stopped",
            exit(3, false),
            None,
        ),
        (
            resumed.clone(),
            Some(
                json!({"phase": "Failed", "conditions": disrupted, "containerStatuses": terminated("Error", 143)}),
            ),
            "stopped",
            None,
            Some(disruption),
        ),
        (
            resumed.clone(),
            Some(
                json!({"phase": "Succeeded", "conditions": disrupted, "containerStatuses": terminated("Completed", 0)}),
            ),
            "stopped",
            exit(0, false),
            None,
        ),
        (
            condition("FailureTarget", "BackoffLimitExceeded"),
            Some(json!({"phase": "Running", "conditions": disrupted})),
            "stopped",
            None,
            Some(disruption),
        ),
        (
            resumed,
            Some(json!({"phase": "Running", "conditions": disrupted})),
            "started",
            None,
            None,
        ),
        (
            json!({"/metadata/deletionTimestamp": "2026-01-02T03:04:05Z", "/spec/suspend": false}),
            None,
            "destroying",
            None,
            None,
        ),
    ];
    for (changes, status, state, exit, problem) in rows {
        let read = read(&changes, status.clone());
        assert_eq!(read.state.as_str(), state, "{changes} {status:?}");
        assert_eq!(read.exit, exit, "{changes} {status:?}");
        let found = read.problem.map(|problem| problem.message);
        assert_eq!(found.as_deref(), problem, "{changes} {status:?}");
    }
}

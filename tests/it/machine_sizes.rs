//! Machine sizes that the host does not offer: rounded up, or rejected before a run starts.

use domain::ids::TeamKey;
use reqwest::Method;
use serde_json::{Value, json};
use store::mappings;

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

/// Starts an environment, stores a mapping with this machine size, and runs one tick for a ticket. Returns
/// the environment and the response to the mapping.
async fn start_with_size(cpus: u32, memory_mb: Option<u32>) -> (TestEnv, Value) {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: Vec::new(),
        session_hosts: true,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    let body = json!({
        "teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        "executionMode": "vm-machines", "machineCpus": cpus, "machineMemoryMb": memory_mb,
    });
    let (status, saved) = env
        .admin_request(Method::POST, "/api/mappings", Some(body))
        .await;
    assert_eq!(status, 200, "{saved}");
    env.create_labelled_issue("ENG-1", "Add the feature");
    env.tick().await;
    (env, saved)
}

#[tokio::test(flavor = "multi_thread")]
async fn size_not_offered_is_rounded_up_with_a_warning() {
    let rows = [
        (1, None, (2, 4_096)),
        (3, Some(4_096), (4, 4_096)),
        (8, Some(256), (8, 2_048)),
        (2, Some(4_096), (2, 4_096)),
    ];
    for (cpus, memory_mb, (got_cpus, got_memory)) in rows {
        let (env, saved) = start_with_size(cpus, memory_mb).await;
        let machines = env.vendors.fly().host().snapshots();
        assert_eq!(machines.len(), 1, "{saved}: {:?}", env.comments("ENG-1"));
        assert_eq!(
            machines[0].create_request["config"]["guest"],
            json!({"cpu_kind": "shared", "cpus": got_cpus, "memory_mb": got_memory})
        );
        let stored = env
            .store
            .read(|tx| mappings::get(tx, &TeamKey::from("ENG")))
            .unwrap()
            .unwrap();
        assert_eq!(
            stored.machine_cpus, cpus,
            "the requested size must stay stored"
        );
        let exact = (cpus, memory_mb) == (got_cpus, Some(got_memory));
        let warning = saved["warnings"][0]["message"].as_str();
        let suffix = format!("runs get {got_cpus} CPUs and {got_memory} MB.");
        assert_eq!(warning.is_none(), exact, "{saved}");
        assert!(
            warning.is_none_or(|text| text.ends_with(&suffix)),
            "{saved}"
        );
        let listed = env.admin_get("/api/mappings").await;
        assert_eq!(listed["ENG"], saved);
        let same_size = Some(json!({"machineCpus": cpus}));
        let (_, changed) =
            { env.admin_request(Method::PATCH, "/api/mappings/ENG", same_size) }.await;
        assert_eq!(changed["warnings"], saved["warnings"], "{changed}");
        env.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn size_above_the_largest_makes_tickets_ineligible() {
    for (cpus, memory_mb) in [(16, Some(4_096)), (2, Some(100_000))] {
        let (env, saved) = start_with_size(cpus, memory_mb).await;
        assert_eq!(env.vendors.fly().host().created_names(), [""; 0]);
        assert!(env.jobs("ENG-1").is_empty(), "no run must start");
        let warning = &saved["warnings"][0]["message"];
        let why = env.admin_get("/api/why/ENG-1").await;
        assert_eq!(why["decision"]["reason"], "ineligible", "{why}");
        assert_eq!(why["decision"]["message"], *warning, "{why}");
        let text = warning.as_str().unwrap();
        assert!(text.contains("1, 2, 4, 6 or 8 CPUs"), "{text}");
        env.stop().await;
    }
}

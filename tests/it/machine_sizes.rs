//! Machines whose size the host does not sell: rounded up, or refused before anything is started.

use domain::ids::TeamKey;
use reqwest::Method;
use serde_json::{Value, json};
use store::mappings;

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

/// A world whose mapping asks for machines of this size, and what the service answered to it.
async fn mapped(cpus: u32, memory_mb: Option<u32>) -> (TestEnv, Value) {
    let world = TestEnv::with_options(TestEnvOptions {
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
    let (status, saved) = world
        .admin_request(Method::POST, "/api/mappings", Some(body))
        .await;
    assert_eq!(status, 200, "{saved}");
    world.create_labelled_issue("ENG-1", "Add the feature");
    world.tick().await;
    (world, saved)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_is_not_sold_is_rounded_up_and_said() {
    let rows = [
        (1, None, (2, 4_096)),
        (3, Some(4_096), (4, 4_096)),
        (8, Some(256), (8, 2_048)),
        (2, Some(4_096), (2, 4_096)),
    ];
    for (cpus, memory_mb, (got_cpus, got_memory)) in rows {
        let (world, saved) = mapped(cpus, memory_mb).await;
        let made = world.vendors.fly().machines();
        assert_eq!(made.len(), 1, "{saved}: {:?}", world.comments("ENG-1"));
        assert_eq!(
            made[0].create_request["config"]["guest"],
            json!({"cpu_kind": "shared", "cpus": got_cpus, "memory_mb": got_memory})
        );
        let stored = world
            .app
            .store
            .read(|tx| mappings::get(tx, &TeamKey::from("ENG")))
            .unwrap()
            .unwrap();
        assert_eq!(stored.machine_cpus, cpus, "what was asked for is kept");
        let exact = (cpus, memory_mb) == (got_cpus, Some(got_memory));
        let warned = saved["warnings"][0]["message"].as_str();
        let gets = format!("runs get {got_cpus} CPUs and {got_memory} MB.");
        assert_eq!(warned.is_none(), exact, "{saved}");
        assert!(warned.is_none_or(|words| words.ends_with(&gets)), "{saved}");
        let listed = world.admin_get("/api/mappings").await;
        assert_eq!(listed["ENG"], saved);
        let same = Some(json!({"machineCpus": cpus}));
        let (_, changed) = { world.admin_request(Method::PATCH, "/api/mappings/ENG", same) }.await;
        assert_eq!(changed["warnings"], saved["warnings"], "{changed}");
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_beyond_the_largest_waits_as_ineligible() {
    for (cpus, memory_mb) in [(16, Some(4_096)), (2, Some(100_000))] {
        let (world, saved) = mapped(cpus, memory_mb).await;
        assert_eq!(world.vendors.fly().created_names(), [""; 0]);
        assert!(world.jobs("ENG-1").is_empty(), "nothing is started");
        let warned = &saved["warnings"][0]["message"];
        let why = world.admin_get("/api/why/ENG-1").await;
        assert_eq!(why["decision"]["reason"], "ineligible", "{why}");
        assert_eq!(why["decision"]["message"], *warned, "{why}");
        let words = warned.as_str().unwrap();
        assert!(words.contains("1, 2, 4, 6 or 8 CPUs"), "{words}");
        world.stop().await;
    }
}

//! Dispatches that the repository host refuses, and what the ticket says about them.

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

/// A ticket that waits for its run, on an engine that is turned by hand.
async fn flagged() -> TestEnv {
    let world = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping()],
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    })
    .await;
    world.create_labelled_issue("ENG-1", "Add the feature");
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_the_remedy_of_its_cause() {
    let rows = [
        (
            403,
            "Repository was archived so is read-only.",
            "Unarchive the repository",
        ),
        (
            403,
            "Resource not accessible by integration",
            "the permission actions: write",
        ),
        (
            422,
            "Cannot trigger a 'workflow_dispatch' on a disabled workflow",
            "Enable the workflow",
        ),
        (422, "inputs are too large.", "Shorten the ticket"),
    ];
    for (status, said, remedy) in rows {
        let world = flagged().await;
        world.repo().reject_dispatches(status, said);
        world.tick().await;
        let job = world.jobs("ENG-1").pop().unwrap();
        assert_eq!(job.state.status(), "failed", "{said}");
        assert_eq!(job.start_refusal_status, Some(status), "{said}");
        let comments = world.comments("ENG-1").join("\n");
        assert!(comments.contains(remedy), "{comments}");
        assert!(!comments.contains("Sync the workflows"), "{comments}");
        assert!(!comments.contains(".."), "{comments}");
        world.stop().await;
    }
}

/// The host counts some characters as the escapes that it writes them as.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_description_is_cut_to_what_the_host_counts() {
    for filler in ["<", "\u{1}", "\u{2028}", "𝄞", "ä"] {
        let world = flagged().await;
        let ticket = world.vendors.linear().issue("ENG-1");
        ticket.describe(&filler.repeat(40_000));
        world.tick().await;
        let job = world.jobs("ENG-1").pop().unwrap();
        assert!(job.is_active(), "{filler:?}: {:?}", job.state);
        assert_eq!(world.repo().runs().len(), 1, "{filler:?}");
        world.stop().await;
    }
}

//! Dispatches that the repository host refuses, and the advice in the ticket comment.

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping};

/// Environment with a manual engine, fake runs and a labelled ticket.
async fn env_with_labelled_issue() -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping()],
        engine: EngineMode::manual(),
        fake_runs: true,
        ..TestEnvOptions::default()
    })
    .await;
    env.create_labelled_issue("ENG-1", "Add the feature");
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_dispatch_is_reported_with_its_remedy() {
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
    for (status, refusal, remedy) in rows {
        let env = env_with_labelled_issue().await;
        env.repo().reject_dispatches(status, refusal);
        env.tick().await;
        let job = env.jobs("ENG-1").pop().unwrap();
        assert_eq!(job.state.status(), "failed", "{refusal}");
        assert_eq!(job.start_refusal_status, Some(status), "{refusal}");
        let comments = env.comments("ENG-1").join("\n");
        assert!(comments.contains(remedy), "{comments}");
        assert!(!comments.contains("Sync the workflows"), "{comments}");
        assert!(!comments.contains(".."), "{comments}");
        env.stop().await;
    }
}

/// GitHub counts some characters by the length of their escapes.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_description_is_truncated_to_the_input_limit() {
    for filler in ["<", "\u{1}", "\u{2028}", "𝄞", "ä"] {
        let env = env_with_labelled_issue().await;
        let ticket = env.vendors.linear().issue("ENG-1");
        ticket.describe(&filler.repeat(40_000));
        env.tick().await;
        let job = env.jobs("ENG-1").pop().unwrap();
        assert!(job.is_active(), "{filler:?}: {:?}", job.state);
        assert_eq!(env.repo().runs().len(), 1, "{filler:?}");
        env.stop().await;
    }
}

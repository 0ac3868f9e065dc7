use super::*;
use crate::demo::{self, Tracker};
use crate::{FakeService, InjectedFault};

#[tokio::test]
async fn injects_faults_before_or_after_the_effect() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    let post = || {
        client()
            .post(vendors.slack_url())
            .json(&json!({"text": "hi"}))
    };
    let faults = vendors.faults(FakeService::Chat);
    faults.inject_next(InjectedFault::DropRequest);
    assert!(post().send().await.is_err());
    assert_eq!(vendors.chat().messages().len(), 0);
    faults.inject_next(InjectedFault::DropResponse);
    assert!(post().send().await.is_err());
    assert_eq!(vendors.chat().messages().len(), 1);
    faults.set_outage(true);
    assert_eq!(post().send().await.unwrap().status(), 503);
    faults.clear();
    assert_eq!(post().send().await.unwrap().text().await.unwrap(), "ok");
    vendors
        .faults(FakeService::Linear)
        .inject_next(InjectedFault::RateLimited(Duration::from_secs(30)));
    let (status, response) = linear(&vendors, "{ viewer { id } }", json!({})).await;
    assert_eq!(
        (status, &response["errors"][0]["extensions"]["code"]),
        (400, &json!("RATELIMITED"))
    );
    vendors.stop().await;
    let restarted = self::start_fake_vendors(dir.path()).await;
    assert_eq!(restarted.chat().messages().len(), 2);
}

const IMPLEMENT: (&str, &str) = (".github/workflows/agent-implement.yml", WORKFLOW);

#[tokio::test]
async fn seeds_the_demo_once() {
    for tracker in [Tracker::Linear, Tracker::Jira] {
        let dir = tempfile::tempdir().unwrap();
        let vendors = start_fake_vendors(dir.path()).await;
        let repo = demo::seed_demo(&vendors, tracker, &[IMPLEMENT]).unwrap();
        let head = repo.branch_head("main");
        let before = triggered_tickets(&vendors);
        assert_eq!(before.len(), 6, "{before:?}");
        demo::seed_demo(&vendors, tracker, &[IMPLEMENT]).unwrap();
        assert_eq!(repo.branch_head("main"), head);
        assert_eq!(triggered_tickets(&vendors), before);
    }
}

#[tokio::test]
async fn adds_missing_parts_to_a_demo_of_an_older_version() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    let repo = demo::seed_demo(&vendors, Tracker::Linear, &[IMPLEMENT]).unwrap();
    for key in ["DEMO-1", "PLAN-1"] {
        vendors.linear().issue(key).remove_label("Agent-Implement");
    }
    std::fs::remove_file(vendors.dir().join("demo-PLAN-1-is-on-Linear")).unwrap();
    let path = ".github/workflows/agent-plan.yml";
    let more = [IMPLEMENT, (path, "on: workflow_dispatch\n")];
    demo::seed_demo(&vendors, Tracker::Linear, &more).unwrap();
    assert!(repo.read_file("main", path).is_some());
    let missing = ["DEMO-2", "DEMO-3", "DEMO-4", "PLAN-1", "PLAN-2"];
    assert_eq!(triggered_tickets(&vendors), missing);
}

/// Returns the demo's tickets that are labeled for a run, on either tracker.
fn triggered_tickets(vendors: &FakeVendors) -> Vec<&'static str> {
    let keys = demo::DEMO_TICKETS.iter().map(|ticket| ticket.key);
    let is_triggered = |key: &&str| {
        let ready = vendors.jira().issue(key).snapshot();
        vendors.linear().issue(key).labels() == ["Agent-Implement"]
            || ready.is_some_and(|ticket| {
                ticket.status.as_deref() == Some("Ready")
                    && ticket.repo.as_deref() == Some("greeter")
            })
    };
    keys.filter(is_triggered).collect()
}

use super::*;
use crate::demo::{self, Tracker};
use crate::{FakeService, InjectedFault};

#[tokio::test]
async fn faults_strike_before_or_after_the_effect() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    let post = || client().post(town.slack_url()).json(&json!({"text": "hi"}));
    let faults = town.faults(FakeService::Chat);
    faults.inject_next(InjectedFault::DropRequest);
    assert!(post().send().await.is_err());
    assert_eq!(town.chat().messages().len(), 0);
    faults.inject_next(InjectedFault::DropResponse);
    assert!(post().send().await.is_err());
    assert_eq!(town.chat().messages().len(), 1);
    faults.set_outage(true);
    assert_eq!(post().send().await.unwrap().status(), 503);
    faults.clear();
    assert_eq!(post().send().await.unwrap().text().await.unwrap(), "ok");
    town.faults(FakeService::Linear)
        .inject_next(InjectedFault::RateLimited(Duration::from_secs(30)));
    let (status, answer) = linear(&town, "{ viewer { id } }", json!({})).await;
    assert_eq!(
        (status, &answer["errors"][0]["extensions"]["code"]),
        (400, &json!("RATELIMITED"))
    );
    town.stop().await;
    let again = self::start_fake_vendors(dir.path()).await;
    assert_eq!(again.chat().messages().len(), 2);
}

const IMPLEMENT: (&str, &str) = (".github/workflows/agent-implement.yml", WORKFLOW);

#[tokio::test]
async fn the_demo_is_seeded_once() {
    for tracker in [Tracker::Linear, Tracker::Jira] {
        let dir = tempfile::tempdir().unwrap();
        let town = start_fake_vendors(dir.path()).await;
        let repo = demo::seed_demo(&town, tracker, &[IMPLEMENT]).unwrap();
        let head = repo.branch_head("main");
        let before = flagged(&town);
        assert_eq!(before.len(), 4, "{before:?}");
        demo::seed_demo(&town, tracker, &[IMPLEMENT]).unwrap();
        assert_eq!(repo.branch_head("main"), head);
        assert_eq!(flagged(&town), before);
    }
}

#[tokio::test]
async fn a_demo_of_an_older_version_gets_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    let repo = demo::seed_demo(&town, Tracker::Linear, &[IMPLEMENT]).unwrap();
    for key in ["DEMO-1", "PLAN-1"] {
        town.linear().issue(key).remove_label("Agent-Implement");
    }
    std::fs::remove_file(town.dir().join("demo-PLAN-1-is-on-Linear")).unwrap();
    let path = ".github/workflows/agent-plan.yml";
    let more = [IMPLEMENT, (path, "on: workflow_dispatch\n")];
    demo::seed_demo(&town, Tracker::Linear, &more).unwrap();
    assert!(repo.read_file("main", path).is_some());
    assert_eq!(flagged(&town), ["DEMO-2", "DEMO-3", "PLAN-1"]);
}

/// The demo's tickets that ask for a run, on either tracker.
fn flagged(town: &FakeVendors) -> Vec<&'static str> {
    let keys = demo::DEMO_TICKETS.iter().map(|ticket| ticket.key);
    let is_flagged = |key: &&str| {
        let ready = town.jira().issue(key).snapshot();
        town.linear().issue(key).labels() == ["Agent-Implement"]
            || ready.is_some_and(|ticket| {
                ticket.status.as_deref() == Some("Ready")
                    && ticket.repo.as_deref() == Some("greeter")
            })
    };
    keys.filter(is_flagged).collect()
}

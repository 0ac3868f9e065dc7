use super::*;
use crate::sandbox::{Fault, Vendor};

#[tokio::test]
async fn faults_strike_before_or_after_the_effect() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let post = || client().post(town.chat_url()).json(&json!({"text": "hi"}));
    let faults = town.faults(Vendor::Chat);
    faults.next(Fault::DropBefore);
    assert!(post().send().await.is_err());
    assert_eq!(town.chat().messages().len(), 0);
    faults.next(Fault::DropAfter);
    assert!(post().send().await.is_err());
    assert_eq!(town.chat().messages().len(), 1);
    faults.outage(true);
    assert_eq!(post().send().await.unwrap().status(), 503);
    faults.clear();
    assert_eq!(post().send().await.unwrap().text().await.unwrap(), "ok");
    town.faults(Vendor::Linear)
        .next(Fault::RateLimited(Duration::from_secs(30)));
    let (status, answer) = linear(&town, "{ viewer { id } }", json!({})).await;
    assert_eq!(
        (status, &answer["errors"][0]["extensions"]["code"]),
        (400, &json!("RATELIMITED"))
    );
    town.stop().await;
    let again = self::town(dir.path()).await;
    assert_eq!(again.chat().messages().len(), 2);
}

#[tokio::test]
async fn the_demo_is_seeded_once() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let workflows = [(".github/workflows/agent-implement.yml", WORKFLOW)];
    let demo = crate::sandbox::stories::demo(&town, &workflows).unwrap();
    let head = demo.repo.branch_head("main");
    crate::sandbox::stories::demo(&town, &workflows).unwrap();
    assert_eq!(demo.repo.branch_head("main"), head);
    assert_eq!(town.linear().issues().len(), 3);
    assert_eq!(town.linear().issue("DEMO-1").labels(), ["Agent-Implement"]);
    assert_eq!(town.linear().issue("PLAN-1").labels(), ["Agent-Implement"]);
}

#[tokio::test]
async fn a_demo_of_the_time_before_planning_gets_the_new_half_only() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let workflows = [(".github/workflows/agent-implement.yml", WORKFLOW)];
    let demo = crate::sandbox::stories::demo(&town, &workflows).unwrap();
    town.linear()
        .issue("DEMO-1")
        .remove_label("Agent-Implement");
    std::fs::remove_file(town.dir().join("demo-planning-is-seeded")).unwrap();
    let more = [
        workflows[0],
        (
            ".github/workflows/agent-plan.yml",
            "on: workflow_dispatch\n",
        ),
    ];
    crate::sandbox::stories::demo(&town, &more).unwrap();
    assert!(demo.repo.file_at("main", more[1].0).is_some());
    assert_eq!(town.linear().issues().len(), 3);
    assert!(town.linear().issue("DEMO-1").labels().is_empty());
}

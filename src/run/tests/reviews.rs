//! Reviews, and fixes of their findings.

use serde_json::json;

use super::{A_RACE, APPROVE, BRANCH, RunFixture};

#[tokio::test]
async fn opens_a_draft_if_findings_remain() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let review = r#"{"approved":false,"blocking":[{"title":"A race","location":"hello.txt:1","problem":"two writers","requiredFix":"lock"}]}"#;
    let agent = fixture.agent("echo x >> hello.txt", review);
    let mut inputs = fixture.inputs();
    inputs.insert("max_iterations".into(), "2".into());
    assert!(fixture.run(&agent, inputs).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED");
    assert_eq!(
        result["unresolved"],
        json!(["A race (hello.txt:1): two writers"])
    );
    assert_eq!(fixture.pulls.lock().unwrap()[0]["draft"], true);
    let prompt = std::fs::read_to_string(fixture.dir.path().join("prompt-3")).unwrap();
    assert!(prompt.contains("Required fix: lock"), "{prompt}");
    let steps = fixture.steps();
    for id in ["review.2", "mend.1", "gap-analysis.2"] {
        assert!(steps.iter().any(|(step, _)| step == id), "{id}: {steps:?}");
    }
    let comments = fixture.bodies("/repos/o/r/issues/1/comments");
    let comment = comments.last().unwrap()["body"].as_str().unwrap();
    assert!(
        comment.starts_with("<!-- agent-implement-gap-analysis -->")
            && comment.contains("- A race (hello.txt:1): two writers\n"),
        "{comment}"
    );
}

#[tokio::test]
async fn keeps_the_change_if_a_fix_fails() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let out_of_turns = json!({"type": "result", "subtype": "error_max_turns", "is_error": true,
        "num_turns": 9, "result": "", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let implement = format!(
        "if [ -e hello.txt ]; then echo half > half.txt; rm a.txt; echo '{out_of_turns}'; exit 1; fi\n\
         echo hello > hello.txt"
    );
    let agent = fixture.agent(&implement, A_RACE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let (result, steps) = (fixture.result(), fixture.steps());
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    assert_eq!(result["unresolved"][0], "A race: two writers");
    let finding = result["unresolved"][1].as_str().unwrap();
    assert!(finding.starts_with("Fixing stopped early: "), "{finding}");
    assert!(steps.contains(&("implement.2".into(), "failed".into())));
    assert!(!steps.iter().any(|(id, _)| id == "review.2"), "{steps:?}");
    let pushed = fixture.git(&format!("git ls-tree --name-only {BRANCH}"));
    assert_eq!(pushed, "a.txt\nhello.txt");
    assert_eq!(fixture.pulls.lock().unwrap()[0]["draft"], true);
}

#[tokio::test]
async fn does_not_fix_an_unreadable_review() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo x >> hello.txt", "Looks good to me!");
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let (result, steps) = (fixture.result(), fixture.steps());
    let unreadable = "The review could not be read: its answer does not match the schema";
    assert_eq!(result["unresolved"], json!([unreadable]));
    assert!(
        !steps.iter().any(|(id, _)| id == "implement.2"),
        "{steps:?}"
    );
}

#[tokio::test]
async fn skips_fixes_near_the_time_limit() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo x >> hello.txt", A_RACE);
    let mut inputs = fixture.inputs();
    inputs.insert("max_iterations".into(), "2".into());
    inputs.insert("job_timeout_minutes".into(), "8".into());
    assert!(fixture.run(&agent, inputs).await);
    let (result, steps) = (fixture.result(), fixture.steps());
    assert_eq!(
        result["unresolved"],
        json!([
            "A race: two writers",
            "Findings were not fixed: not enough time is left in this run"
        ])
    );
    assert!(!steps.iter().any(|(id, _)| id == "mend.1"), "{steps:?}");
}

#[tokio::test]
async fn an_unreadable_reviewer_of_the_pipeline_has_not_approved() {
    let mut fixture = RunFixture::new("echo a > a.txt").await;
    let root = fixture.dir.path().join("custom");
    let steps = "[{id: clone, type: clone}, {id: work, type: feedback-loop}, {id: push, type: push}, \
                 {id: review, type: post-push-review, inputs: {reviewCheckNames: [lint], reviewWaitTimeoutMs: 1}}]";
    std::fs::create_dir_all(root.join("pipelines")).unwrap();
    let file = root.join("pipelines/autonomous.yml");
    std::fs::write(file, format!("id: autonomous\nsteps: {steps}\n")).unwrap();
    fixture.custom_root = Some(root);
    let agent = fixture.agent("echo h > h", APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    let open = result["unresolved"][0].as_str().unwrap();
    assert!(
        open.starts_with("The reviewers' check runs could not be read"),
        "{open}"
    );
}

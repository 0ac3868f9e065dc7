//! Branches and pull requests of runs.

use super::{A_RACE, APPROVE, BRANCH, REPO_TOKEN, RunFixture, never};
use crate::git::tests::shell;

#[tokio::test]
async fn opens_a_pull_request_for_a_ticket() {
    let fixture = RunFixture::new("echo a > a.txt; printf -- '---\\nsetup: echo built > built.txt\\n---\\nUse tabs.' > WORKFLOW.md").await;
    let agent = fixture.agent(
        "echo hello > hello.txt; git log -1 --format=%s > /dev/null",
        APPROVE,
    );
    assert!(fixture.run(&agent, fixture.inputs()).await);

    let result = fixture.result();
    assert_eq!(result["outcome"], "success", "{result}");
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    assert_eq!(result["runId"], 77);
    assert_eq!(result["usage"]["turns"], 4);
    assert_eq!(result["usage"]["costUsd"], 0.5);

    let pull = fixture.pulls.lock().unwrap()[0].clone();
    assert_eq!(pull["title"], "ENG-1: Say hello");
    assert_eq!(pull["draft"], false);
    let body = pull["body"].as_str().unwrap();
    assert!(body.contains("\nFixes ENG-1\n"), "{body}");
    assert!(body.contains(
        r#"<!-- agent-implement-meta {"issueId":"uuid-1","identifier":"ENG-1","dispatchId":"01JD","jobId":"01JD"} -->"#
    ));
    assert!(
        !body.contains("@octocat") && !body.contains("#1,"),
        "{body}"
    );
    assert!(body.contains("Cost: $0.50"), "{body}");

    assert_eq!(
        fixture.git(&format!("git rev-list --count main..{BRANCH}")),
        "1"
    );
    assert_eq!(
        fixture.git(&format!("git diff --name-only main {BRANCH}")),
        "hello.txt"
    );
    let message = fixture.git(&format!("git log -1 --format=%B {BRANCH}"));
    assert!(
        message.ends_with("Agent-Implement-Dispatch: 01JD"),
        "{message}"
    );

    let steps = fixture.steps();
    let ids: Vec<&str> = steps.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "clone",
            "install",
            "setup",
            "feedback-loop",
            "implement.1",
            "review.1",
            "preflight",
            "push",
            "verify",
            "post-push-review"
        ]
    );
    assert!(
        steps
            .iter()
            .all(|(_, status)| ["passed", "skipped"].contains(&status.as_str())),
        "{steps:?}"
    );
    let parent = &fixture
        .bodies("/runner/progress")
        .into_iter()
        .find(|report| report["step"]["id"] == "implement.1")
        .unwrap();
    assert_eq!(parent["step"]["parent_step_id"], "feedback-loop");

    let env = std::fs::read_to_string(fixture.dir.path().join("agent-env")).unwrap();
    for secret in [REPO_TOKEN, "ghs_workflow", "result.token", "progress.token"] {
        assert!(!env.contains(secret), "{env}");
    }
    let prompt = std::fs::read_to_string(fixture.dir.path().join("prompt-1")).unwrap();
    assert!(prompt.contains("ENG-1") && prompt.contains("Write hello.txt"));
    assert_eq!(
        fixture.bodies("/api/token").len(),
        3,
        "for the clone, the push, and the state of the review"
    );
}

#[tokio::test]
async fn a_second_attempt_reuses_commit_and_pull_request() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo $RANDOM > hello.txt", APPROVE);
    *fixture.reject_pulls.lock().unwrap() = |_| true;
    assert!(
        !fixture.run(&agent, fixture.inputs()).await,
        "failed after the push"
    );
    assert!(
        fixture.result()["failureReason"]
            .as_str()
            .unwrap()
            .starts_with("PR creation failed with HTTP 422")
    );
    let first = fixture.git(&format!("git rev-parse {BRANCH}"));
    *fixture.reject_pulls.lock().unwrap() = never;
    for attempt in ["opens the pull request", "finds it"] {
        assert!(fixture.run(&agent, fixture.inputs()).await, "{attempt}");
        assert_eq!(
            fixture.result()["prUrl"],
            "https://host/o/r/pull/1",
            "{attempt}"
        );
        assert_eq!(fixture.git(&format!("git rev-parse {BRANCH}")), first);
    }
    assert_eq!(fixture.pulls.lock().unwrap().len(), 1);
    let passes = std::fs::read_to_string(fixture.dir.path().join("passes")).unwrap();
    assert_eq!(
        passes.lines().count(),
        4,
        "one implement pass; each attempt reviews, because reviews are not shared between attempts"
    );
}

#[tokio::test]
async fn opens_a_pull_request_where_drafts_are_unsupported() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    *fixture.reject_pulls.lock().unwrap() = |pull| pull["draft"] == true;
    let agent = fixture.agent("echo hello > hello.txt", A_RACE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    assert_eq!(fixture.pulls.lock().unwrap()[0]["draft"], false);
}

#[tokio::test]
async fn keeps_a_branch_created_by_others_and_stores_a_patch() {
    let fixture = RunFixture::new("echo a > a.txt; printf '\\0\\1' > binary").await;
    let host = fixture.dir.path().join("host/o/r.git");
    let agent = fixture.agent(
        &format!(
            "echo hello > hello.txt; printf '\\0\\2' > binary; git --git-dir={} branch {BRANCH} main",
            host.display()
        ),
        APPROVE,
    );
    assert!(!fixture.run(&agent, fixture.inputs()).await);
    let (result, theirs) = (fixture.result(), fixture.git("git rev-parse main"));
    assert_eq!(result["failureCode"], "PUSH_REJECTED");
    let reason = result["failureReason"].as_str().unwrap();
    assert!(
        reason.contains(&format!("somebody pushed {theirs}")),
        "{reason}"
    );
    assert_eq!(fixture.git(&format!("git rev-parse {BRANCH}")), theirs);
    let patch = fixture.dir.path().join("change.patch");
    std::fs::write(&patch, result["patch"].as_str().unwrap()).unwrap();
    let applied = shell(
        fixture.dir.path(),
        "git clone -q host/o/r.git clone && cd clone && git apply ../change.patch && cat hello.txt && od -An -tx1 binary",
    );
    assert_eq!(applied, "hello\n 00 02");
}

#[tokio::test]
async fn never_works_on_the_base_branch() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo h > h", APPROVE);
    let (mut inputs, before) = (fixture.inputs(), fixture.git("git rev-parse main"));
    inputs.insert("branch".into(), "main".into());
    assert!(!fixture.run(&agent, inputs).await);
    let reason = "branch main is the base branch; runs never work on it";
    assert_eq!(fixture.result()["failureReason"], reason);
    assert_eq!(fixture.git("git rev-parse main"), before);
}

#[tokio::test]
async fn leaves_a_branch_of_others_alone() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    fixture.git(&format!(
        "git -c user.name=x -c user.email=x@x branch {BRANCH} $(git -c user.name=x -c user.email=x@x commit-tree -p main -m theirs main^{{tree}})"
    ));
    let agent = fixture.agent("echo h > h", APPROVE);
    assert!(!fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "CLONE_FAILED");
    assert!(
        result["failureReason"]
            .as_str()
            .unwrap()
            .contains("somebody else"),
        "{result}"
    );
}

#[tokio::test]
async fn a_follow_up_uses_the_same_branch_and_adds_a_comment() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    assert!(
        fixture
            .run(
                &fixture.agent("echo hello > hello.txt", APPROVE),
                fixture.inputs()
            )
            .await
    );
    let louder = fixture.agent("echo HELLO > hello.txt", APPROVE);
    assert!(fixture.run(&louder, fixture.follow_up_inputs()).await);
    assert_eq!(fixture.pulls.lock().unwrap().len(), 1);
    assert_eq!(
        fixture.git(&format!("git rev-list --count main..{BRANCH}")),
        "2"
    );
    let result = fixture.result();
    assert_eq!(result["phase"], "gap-analysis");
    assert_eq!(result["prUrl"], "https://host/o/r/pull/1");
    let comments = fixture.bodies("/repos/o/r/issues/1/comments");
    let comment = comments[1]["body"].as_str().unwrap();
    assert!(
        comment.starts_with("<!-- agent-implement-follow-up 02JD -->"),
        "{comment}"
    );
    let prompt = std::fs::read_to_string(fixture.dir.path().join("prompt-3")).unwrap();
    assert!(prompt.contains("Say it louder"));
}

#[tokio::test]
async fn rejects_a_pull_request_that_is_closed_or_of_another_branch() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo hello > hello.txt", APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let change = |pointer: &str, value: &str| {
        let mut pulls = fixture.pulls.lock().unwrap();
        *pulls[0].pointer_mut(pointer).unwrap() = value.into();
    };
    for (pointer, value, reason) in [
        (
            "/head/ref",
            "somebody/else",
            "pull request #1 does not belong to branch",
        ),
        ("/state", "closed", "pull request #1 is no longer open"),
    ] {
        change(pointer, value);
        assert!(!fixture.run(&agent, fixture.follow_up_inputs()).await);
        let failure = fixture.result()["failureReason"].clone();
        assert!(failure.as_str().unwrap().starts_with(reason), "{failure}");
    }
    assert_eq!(fixture.pulls.lock().unwrap().len(), 1);
    let passes = std::fs::read_to_string(fixture.dir.path().join("passes")).unwrap();
    assert_eq!(passes.lines().count(), 2, "the agent was not started again");
}

#[tokio::test]
async fn uses_the_workflow_token_without_an_orchestrator() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent("echo hello > hello.txt", APPROVE);
    let mut inputs = fixture.inputs();
    inputs.remove("callback_url");
    assert!(fixture.run(&agent, inputs).await);
    let pull = fixture.pulls.lock().unwrap()[0].clone();
    assert!(
        pull["body"]
            .as_str()
            .unwrap()
            .contains("The orchestrator could not be reached")
    );
}

#[tokio::test]
async fn names_files_that_belong_into_git_lfs() {
    let pointer = "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:0\\nsize 1\\n'";
    let seed = format!(
        "echo '*.png filter=lfs diff=lfs merge=lfs -text' > .gitattributes; {pointer} > old.png"
    );
    let fixture = RunFixture::new(&seed).await;
    let script =
        format!("printf raw | tee new.png > old.png; {pointer} > other.png; echo h > hello.txt");
    let agent = fixture.agent(&script, APPROVE);
    assert!(
        fixture.run(&agent, fixture.inputs()).await,
        "{}",
        fixture.result()
    );
    let body = fixture.bodies("/repos/o/r/pulls")[0]["body"].to_string();
    let (_, section) = body.split_once("## Not in Git LFS").unwrap();
    assert!(
        section.contains("commit and push:\\n\\n- new.png\\n- old.png\\n\\n"),
        "{body}"
    );
}

//! What becomes of a pull request after its push: reviewers outside are waited for, what they find
//! is mended, and whatever nobody has approved stays a draft.

use std::sync::{Arc, Mutex};

use domain::job::{Job, JobState};
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{CheckKind, CheckReport, FakeRepo, PullSnapshot};
use serde_json::{Value, json};

use crate::canaries::DUMP_CREDENTIALS_SCRIPT;
use crate::gap_fill;
use crate::test_env::{Gate, TestEnv, TestEnvOptions};

/// Marks the comment that tells how a review stands.
pub const GAP_ANALYSIS_MARKER: &str = "<!-- agent-implement-gap-analysis -->";

const CONFIG: &str = ".agent-implement/config.yml";

/// One check is waited for.
const LINT: &str = "reviewCheckNames: [lint]\nreviewWaitPollMs: 200\nreviewWaitTimeoutMs: 60000\n";

/// The same, and not for long.
const IMPATIENT: &str =
    "reviewCheckNames: [lint]\nreviewWaitPollMs: 200\nreviewWaitTimeoutMs: 1000\n";

/// In the prompt of a pass that is to mend what the check found.
const FAILED: &str = "lint failed";

async fn world(config: &str) -> TestEnv {
    configured(TestEnvOptions::default(), config).await
}

async fn configured(making: TestEnvOptions, config: &str) -> TestEnv {
    let world = TestEnv::with_options(making).await;
    let commit = world
        .repo()
        .commit("main", &[(CONFIG, config)], "Configure");
    commit.unwrap();
    world
}

/// A report of the check `lint` by the right App.
fn lint(conclusion: Option<&str>) -> CheckReport<'_> {
    CheckReport {
        name: "lint",
        app: "lint-app",
        kind: CheckKind::CheckRun,
        conclusion,
        summary: "feature.txt is not linted. @octocat ![x](http://evil/x.png) <!-- hidden -->",
        text: "",
    }
}

/// Lets the check pass on commits whose feature is linted, and fail on all others.
fn lint_every_push(repo: &FakeRepo) {
    let host = repo.clone();
    repo.on_push(move |_, commit| {
        let text = host.read_file(commit, "feature.txt").unwrap_or_default();
        let conclusion = match text.contains("linted") {
            true => "success",
            false => "failure",
        };
        host.report_check(commit, lint(Some(conclusion))).unwrap();
    });
}

fn works() -> Script {
    Script::new().pass([
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message("Done."),
    ])
}

fn only_pull(world: &TestEnv) -> PullSnapshot {
    let mut pulls = world.repo().pulls();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    pulls.remove(0)
}

/// The one comment on how the review of the only pull request stands.
fn told(world: &TestEnv) -> String {
    let comments = world.repo().comments(only_pull(world).number);
    let bodies = comments.into_iter().map(|comment| comment.body);
    let mut told: Vec<String> = bodies
        .filter(|body| body.contains(GAP_ANALYSIS_MARKER))
        .collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    told.remove(0)
}

fn unresolved(job: &Job) -> Vec<String> {
    match &job.state {
        JobState::ReviewFailed { unresolved } => unresolved.clone(),
        other => panic!("{other:?}"),
    }
}

async fn step_ids(world: &TestEnv, job: &Job) -> Vec<String> {
    let told = world
        .admin_get(&format!("/api/jobs/{}/steps", job.id))
        .await;
    let steps = told["steps"].as_array().unwrap().iter();
    let ids = steps.map(|step| step["id"].as_str().unwrap().to_owned());
    ids.collect()
}

/// Status, type and text of a job's patch.
async fn patch(world: &TestEnv, job: &Job) -> (u16, String, String) {
    let url = format!("{}/api/jobs/{}/patch", world.address, job.id);
    let request = reqwest::Client::new().get(url);
    let answer = request
        .bearer_auth(world.sign_in().await)
        .send()
        .await
        .unwrap();
    let head = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    let (status, kind) = (answer.status().as_u16(), head("content-type"));
    if status == 200 {
        let saved = head("content-disposition");
        assert_eq!(saved, "attachment; filename=\"work.patch\"");
    }
    (status, kind, answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_check_finds_is_mended_in_the_second_pass_and_the_draft_is_left() {
    let world = world(LINT).await;
    lint_every_push(&world.repo());
    let drafts: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (host, seen) = (world.repo(), drafts.clone());
    world.repo().on_push(move |_, _| {
        let pulls = host.pulls();
        seen.lock()
            .unwrap()
            .extend(pulls.iter().map(|pull| pull.draft));
    });
    let mends = [
        ScriptStep::write("feature.txt", "linted\n"),
        ScriptStep::message("Linted."),
    ];
    world.set_agent_script("ENG-1", works().pass_if_prompt_contains(FAILED, mends));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let log = world.repo().run_log(world.repo().runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");

    let pull = only_pull(&world);
    assert!(!pull.draft);
    assert_eq!(*drafts.lock().unwrap(), [true], "a draft while it was open");
    let commits = world.repo().commits(&pull.head);
    let ours: Vec<&str> = commits
        .iter()
        .map(|commit| commit.message.lines().next().unwrap_or_default())
        .take(2)
        .collect();
    assert_eq!(
        ours,
        [
            "ENG-1: Mend what the review found",
            "ENG-1: Add the feature"
        ]
    );
    assert!(pull.body.contains("Done."), "of the whole: {}", pull.body);
    let told = told(&world);
    let short = &pull.head_sha[..12];
    assert!(told.contains(&format!("## Review of {short}\n\nNothing is left open.")));
    assert!(told.contains("worked on in one more commit."), "{told}");
    let ids = step_ids(&world, &job).await;
    for id in ["post-push-review", "mend.1", "gap-analysis.2"] {
        assert!(ids.iter().any(|known| known == id), "{id} in {ids:?}");
    }
    assert!(!ids.contains(&"gap-analysis.1".to_owned()), "paid for once");
    assert_eq!(patch(&world, &job).await.0, 404);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_blocked_is_a_draft_with_one_comment_that_tells_it() {
    let world = world(LINT).await;
    lint_every_push(&world.repo());
    let tries = [
        ScriptStep::append("feature.txt", "again\n"),
        ScriptStep::message("Tried."),
    ];
    world.set_agent_script("ENG-1", works().pass_if_prompt_contains(FAILED, tries));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;

    let open = unresolved(&job);
    assert_eq!(open.len(), 1, "{open:?}");
    assert!(open[0].starts_with("lint failed: lint feature.txt is not linted."));
    let pull = only_pull(&world);
    assert!(pull.draft);
    let commits = world.repo().commits(&pull.head).len();
    let before = world.repo().commits("main").len();
    assert_eq!(commits - before, 3, "three passes, two of them mended");
    let told = told(&world);
    assert!(
        told.contains("- lint failed: lint feature.txt is not linted."),
        "{told}"
    );
    assert!(told.contains("worked on in 2 more commits."), "{told}");
    for gone in ["@octocat", "![", "hidden"] {
        assert!(!told.contains(gone), "{gone} in {told}");
    }
    let ticket = world.vendors.linear().issue("ENG-1");
    assert_eq!(ticket.labels(), ["Agent-Implement", "Ready for Review"]);
    let said = ticket.comments();
    assert!(
        said[1].starts_with("The pull request stays a draft"),
        "{said:?}"
    );
    world.finish().await;
}

/// Nothing that is no clear word of the right App approves, and nothing of it can be mended.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_not_spoken_in_time_has_not_approved() {
    let world = world(IMPATIENT).await;
    let host = world.repo();
    world.repo().on_push(move |branch, commit| {
        let report = match branch {
            _ if branch.contains("running") => lint(None),
            _ if branch.contains("cancelled") => lint(Some("cancelled")),
            _ if branch.contains("forged") => CheckReport {
                app: "github-actions",
                ..lint(Some("success"))
            },
            _ if branch.contains("pending") => CheckReport {
                kind: CheckKind::CommitStatus,
                ..lint(None)
            },
            _ if branch.contains("older") => CheckReport {
                kind: CheckKind::CommitStatus,
                ..lint(Some("success"))
            },
            _ => return,
        };
        host.report_check(commit, report).unwrap();
    });
    let rows = [
        (
            "ENG-1",
            "Running",
            "lint has not ended: it was still running when the time to wait was over",
        ),
        (
            "ENG-2",
            "Cancelled",
            "lint gave no verdict: it ended as cancelled",
        ),
        (
            "ENG-3",
            "Forged",
            "lint did not review: the check run of this name is reported by github-actions, which does not count",
        ),
        (
            "ENG-4",
            "Absent",
            "lint did not review: no check run of it came for this commit in time",
        ),
        (
            "ENG-5",
            "Pending",
            "lint has not ended: it was still running when the time to wait was over",
        ),
    ];
    for (key, title, _) in rows {
        world.create_labelled_issue(key, title);
    }
    for (key, title, reason) in rows {
        let job = world.wait_for_job_end(key).await;
        assert_eq!(unresolved(&job), [reason], "{title}");
        let ids = step_ids(&world, &job).await;
        assert!(!ids.contains(&"mend.1".to_owned()), "{title}: {ids:?}");
    }
    assert!(world.repo().pulls().iter().all(|pull| pull.draft));

    // A commit status is as good a word as a check run.
    world.create_labelled_issue("ENG-6", "An older App");
    assert_eq!(
        world.wait_for_job_end("ENG-6").await.state,
        JobState::Completed
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_change_blocks_until_it_is_dismissed_and_more_work_leaves_the_draft() {
    let world = configured(gap_fill::options(), LINT).await;
    let bot = "lint-app[bot]";
    let script = works().pass_if_prompt_contains(
        "requests changes",
        [ScriptStep::message("I see nothing to mend.")],
    );
    let louder = [
        ScriptStep::write("feature.txt", "LOUD\n"),
        ScriptStep::message("Louder."),
    ];
    world.set_agent_script(
        "ENG-1",
        script.pass_if_prompt_contains(gap_fill::INSTRUCTION, louder),
    );
    world.create_labelled_issue("ENG-1", "Add the feature");
    world
        .wait_until("it is opened", || world.repo().pulls().len() == 1)
        .await;
    let pull = only_pull(&world);
    let repo = world.repo();
    repo.add_review(pull.number, bot, "CHANGES_REQUESTED", "Say it louder.");
    repo.add_review(
        pull.number,
        "alice",
        "CHANGES_REQUESTED",
        "I am nobody it knows.",
    );
    repo.report_check(&pull.head_sha, lint(Some("success")))
        .unwrap();
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(
        unresolved(&job),
        ["lint-app requests changes: Say it louder."]
    );
    assert!(only_pull(&world).draft);

    // The same words on the new commit, taken back before the check ends.
    let asked = gap_fill::trigger_body("ENG-1", pull.number);
    assert_eq!(gap_fill::send_trigger(&world, asked).await.status, 200);
    world
        .wait_until("it is pushed", || {
            only_pull(&world).head_sha != pull.head_sha
        })
        .await;
    let review = repo.add_review(pull.number, bot, "CHANGES_REQUESTED", "Say it louder.");
    repo.dismiss_review(review);
    let head = only_pull(&world).head_sha;
    repo.report_check(&head, lint(Some("success"))).unwrap();
    let job = world.wait_for_job_end("ENG-1").await;
    let log = repo.run_log(repo.runs()[1].id);
    assert_eq!(job.state, JobState::Completed, "{log}");
    assert!(!only_pull(&world).draft);
    assert!(told(&world).contains("Nothing is left open."));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_managed_review_is_read_by_its_severity_and_its_remarks() {
    let config =
        "reviewProviders: [github-claude-code-review, somebody-else]\nreviewWaitPollMs: 200\n";
    let world = world(config).await;
    let report = |text| CheckReport {
        name: "Claude Code Review",
        app: "claude",
        kind: CheckKind::CheckRun,
        conclusion: Some("neutral"),
        summary: "",
        text,
    };
    let fine =
        "All well.\n<!-- bughunter-severity: {\"normal\":0,\"nit\":2,\"pre_existing\":0} -->";
    let host = world.repo();
    world.repo().on_push(move |_, commit| {
        if host.read_file(commit, "feature.txt").as_deref() == Some("two\n") {
            host.report_check(commit, report(fine)).unwrap();
        }
    });
    let mends = [
        ScriptStep::write("feature.txt", "two\n"),
        ScriptStep::message("Two."),
    ];
    world.set_agent_script(
        "ENG-1",
        works().pass_if_prompt_contains("off by one", mends),
    );
    world.create_labelled_issue("ENG-1", "Add the feature");
    world
        .wait_until("it is opened", || world.repo().pulls().len() == 1)
        .await;
    let (pull, repo) = (only_pull(&world), world.repo());
    let bad = "One.\n<!-- bughunter-severity: {\"normal\":1,\"nit\":0,\"pre_existing\":0} -->";
    let body = "🔴 **Important**: off by one";
    repo.add_review_comment(pull.number, "claude[bot]", "feature.txt", 1, body);
    repo.report_check(&pull.head_sha, report(bad)).unwrap();
    let job = world.wait_for_job_end("ENG-1").await;
    let log = repo.run_log(repo.runs()[0].id);
    assert_eq!(job.state, JobState::Completed, "{log}");
    assert!(
        log.contains("review: Remark of claude (feature.txt:1): 🔴"),
        "{log}"
    );
    assert!(!only_pull(&world).draft);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_pushes_while_findings_are_mended_stays() {
    let world = world(LINT).await;
    lint_every_push(&world.repo());
    let gate = Gate::new(&world);
    let mends = [
        gate.wait_step(),
        ScriptStep::write("feature.txt", "linted\n"),
    ];
    world.set_agent_script("ENG-1", works().pass_if_prompt_contains(FAILED, mends));
    world.create_labelled_issue("ENG-1", "Add the feature");
    world
        .wait_until("its comment is there", || {
            let pulls = world.repo().pulls();
            pulls
                .iter()
                .any(|pull| pull.draft && !world.repo().comments(pull.number).is_empty())
        })
        .await;
    let branch = only_pull(&world).head;
    let theirs = world
        .repo()
        .commit(&branch, &[("a.txt", "theirs\n")], "Mine");
    let theirs = theirs.unwrap();
    gate.open();
    let job = world.wait_for_job_end("ENG-1").await;

    assert_eq!(world.repo().branch_head(&branch), Some(theirs.clone()));
    let open = unresolved(&job);
    assert_eq!(open.len(), 2, "{open:?}");
    assert!(
        open[1].starts_with("Mending ended early: push of") && open[1].contains(&theirs),
        "{open:?}"
    );
    assert!(only_pull(&world).draft);
    assert!(told(&world).contains(&theirs), "{}", told(&world));
    let (status, kind, patch) = patch(&world, &job).await;
    assert_eq!((status, kind.as_str()), (200, "text/plain; charset=utf-8"));
    assert!(patch.contains("-done\n+linted\n"), "{patch}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_pushes_while_more_work_is_done_stays() {
    let world = configured(gap_fill::options(), "").await;
    let gate = Gate::new(&world);
    let louder = [gate.wait_step(), ScriptStep::write("feature.txt", "LOUD\n")];
    world.set_agent_script(
        "ENG-1",
        works().pass_if_prompt_contains(gap_fill::INSTRUCTION, louder),
    );
    world.create_labelled_issue("ENG-1", "Add the feature");
    assert_eq!(
        world.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    let pull = only_pull(&world);
    let asked = gap_fill::trigger_body("ENG-1", pull.number);
    assert_eq!(gap_fill::send_trigger(&world, asked).await.status, 200);
    world
        .wait_until("the agent works", || {
            let runs = world.repo().runs();
            runs.len() == 2 && world.repo().run_log(runs[1].id).contains("agent started")
        })
        .await;
    let theirs = world
        .repo()
        .commit(&pull.head, &[("a.txt", "theirs\n")], "Mine");
    let theirs = theirs.unwrap();
    gate.open();
    let job = world.wait_for_job_end("ENG-1").await;

    let JobState::Failed { code, reason } = &job.state else {
        panic!("{:?}", job.state)
    };
    assert_eq!(*code, Some(FailureCode::PushRejected));
    let expected = format!(
        "push of {} was rejected: somebody pushed {theirs} to it while this run was at work, \
         and nobody's commits are overwritten\nThe work is kept with the job, as a patch.",
        pull.head
    );
    assert_eq!(*reason, expected);
    assert_eq!(world.repo().branch_head(&pull.head), Some(theirs));
    let (status, _, kept) = patch(&world, &job).await;
    assert_eq!(status, 200);
    assert!(kept.contains("-done\n+LOUD\n"), "{kept}");
    let shown = world.admin_get(&format!("/api/jobs/{}", job.id)).await;
    assert_eq!(shown["failureCode"], "PUSH_REJECTED");
    let missing = world.admin_get("/api/jobs/01NOBODY/patch").await;
    assert_eq!(missing, json!({"error": "job not found"}));
    let others = &world.jobs("ENG-1")[0];
    let missing = world
        .admin_get(&format!("/api/jobs/{}/patch", others.id))
        .await;
    assert_eq!(missing, json!({"error": "no patch"}));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_what_was_mended_is_not_pushed_and_not_kept() {
    let world = world(LINT).await;
    lint_every_push(&world.repo());
    let leaks = [
        ScriptStep::write("feature.txt", "linted\n"),
        ScriptStep::write(".env", "PASSWORD=correct-horse\n"),
    ];
    world.set_agent_script("ENG-1", works().pass_if_prompt_contains(FAILED, leaks));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let JobState::Failed { code, .. } = &job.state else {
        panic!("{:?}", job.state)
    };
    assert_eq!(*code, Some(FailureCode::SensitiveFilesBlocked));
    let pull = only_pull(&world);
    assert!(pull.draft);
    let text = world.repo().read_file(&pull.head, "feature.txt");
    assert_eq!(text.as_deref(), Some("done\n"));
    assert_eq!(patch(&world, &job).await.0, 404);
    world.finish().await;
}

/// Every token that the host has ever made.
fn minted(world: &TestEnv) -> Vec<String> {
    let github = std::fs::read(world.vendors.dir().join("github.json")).unwrap();
    let github: Value = serde_json::from_slice(&github).unwrap();
    let tokens = github["tokens"].as_object().unwrap();
    tokens.keys().cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_of_the_repository_lives_while_findings_are_mended() {
    let world = world(LINT).await;
    lint_every_push(&world.repo());
    let found = world.dir().join("agent-found");
    let mends = [
        ScriptStep::run(&format!(
            "{{ {DUMP_CREDENTIALS_SCRIPT} }} >{}",
            found.display()
        )),
        ScriptStep::write("feature.txt", "linted\n"),
    ];
    world.set_agent_script("ENG-1", works().pass_if_prompt_contains(FAILED, mends));
    world.create_labelled_issue("ENG-1", "Add the feature");
    assert_eq!(
        world.wait_for_job_end("ENG-1").await.state,
        JobState::Completed
    );
    let found = std::fs::read_to_string(&found).unwrap();
    assert!(found.contains("agent-implement run"), "{found}");
    let minted = minted(&world);
    assert!(
        minted.len() >= 6,
        "clone, push, review, push, review: {minted:?}"
    );
    for token in minted {
        assert!(!found.contains(&token), "{found}");
    }
    world.finish().await;
}

//! Branches of open pull requests stay mergeable: merges by the host, and runs that resolve conflicts.

mod host_updates;
mod people;

use std::collections::BTreeSet;
use std::time::Duration;

use domain::feedback::{COMMIT_EMAIL, PullRequestId, PullRequestRecord};
use domain::job::{Job, JobKind, JobState, PullRequestRef};
use engine::pull_requests::reconcile;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::json;
use store::{jobs, pull_feedback};

use crate::follow_up::{options, register_webhook};
use crate::test_env::{TestEnv, mapping};
use crate::webhooks::meta_block;

const BOT: &str = "agent-implement[bot]";

/// Author of the commits of runs.
const RUN: (&str, &str) = ("Agent Implement", COMMIT_EMAIL);

/// Text in the prompt of a run for a conflict.
pub const IN_CONFLICT: &str = "Files in conflict.";

/// Environment with a manual engine and webhooks.
async fn start() -> TestEnv {
    let env = TestEnv::with_options(options()).await;
    register_webhook(&env);
    env.repo().set_collaborator_role("mia", "maintain");
    env
}

/// Opens the pull request of a completed run of the ticket, with these files. Returns its number.
async fn open_pull(env: &TestEnv, key: &str, files: &[(&str, &str)]) -> u64 {
    let ticket = || env.vendors.linear().issue(key);
    ticket().title("Add the feature").describe("Please.");
    let mut job = crate::api_server::dispatched_job(&format!("01A{key}"), JobKind::Implementation);
    job.issue.id = ticket().snapshot().unwrap().id.as_str().into();
    job.issue.key = key.into();
    job.branch = branch(key);
    let repo = env.repo();
    repo.commit_as(&job.branch, files, &format!("{key}: Add the feature"), RUN)
        .unwrap();
    let body = meta_block(job.issue.id.as_str(), job.id.as_str());
    let number = repo.open_pull(&job.branch, BOT, &format!("{key}: Add the feature"), &body);
    job.pull = PullRequestRef::from_url(&repo.pull_url(number));
    job.state = JobState::Completed;
    job.reserved_at = env.app.core.now();
    job.finished_at = Some(env.app.core.now());
    let put = env.store.write(move |tx| jobs::put(tx, &job));
    put.await.unwrap();
    number
}

fn branch(key: &str) -> String {
    format!("agent-implement/{}", key.to_lowercase())
}

/// Script of an agent that keeps both sides of the conflicts in a file.
fn keep_both(path: &str) -> Script {
    let steps = [
        ScriptStep::keep_both_sides(path),
        ScriptStep::message("I kept both sides."),
    ];
    Script::new().pass_if_prompt_contains(IN_CONFLICT, steps)
}

/// Reads the state of all pull requests, as the sweep does.
async fn sweep(env: &TestEnv) {
    reconcile::run_once(&env.app).await.unwrap();
}

async fn wait_for_webhooks(env: &TestEnv) {
    env.wait_until("all webhooks are answered", || {
        env.vendors.github().webhooks().is_idle()
    })
    .await;
}

fn record(env: &TestEnv, number: u64) -> PullRequestRecord {
    let pull = PullRequestId {
        repo: mapping().target_repo(),
        number,
    };
    let record = env.store.read(|tx| pull_feedback::get_pull(tx, &pull));
    record.unwrap()
}

/// Whether the service knows that the current head can be merged into the current base.
fn is_mergeable(env: &TestEnv, key: &str, number: u64) -> bool {
    let record = record(env, number);
    let (head, base) = record.commits().unwrap_or_default();
    record.readiness.mergeable == Some(true)
        && env.repo().branch_head(&branch(key)).as_deref() == Some(head)
        && env.repo().branch_head("main").as_deref() == Some(base)
}

/// Runs for conflicts of the ticket's pull request.
fn conflict_jobs(env: &TestEnv, key: &str) -> Vec<Job> {
    let mut jobs = env.jobs(key);
    jobs.retain(|job| job.kind == JobKind::Conflict);
    jobs
}

/// Waits until this number of runs for conflicts has ended. Returns the last.
async fn wait_for_run(env: &TestEnv, key: &str, count: usize) -> Job {
    // Jobs of the same millisecond have no order.
    env.advance_clock(Duration::from_secs(1));
    env.tick_until("the run for the conflict has ended", || {
        let jobs = conflict_jobs(env, key);
        jobs.len() == count && jobs.iter().all(|job| !job.is_active())
    })
    .await;
    env.tick_until_drained().await;
    wait_for_webhooks(env).await;
    conflict_jobs(env, key).pop().unwrap()
}

fn log(env: &TestEnv) -> String {
    let runs = env.repo().runs();
    runs.last()
        .map(|run| env.repo().run_log(run.id))
        .unwrap_or_default()
}

/// Bodies of the service's comments on a pull request.
fn our_comments(env: &TestEnv, number: u64) -> Vec<String> {
    let comments = env.repo().comments(number).into_iter();
    let ours = comments.filter(|comment| comment.author == BOT);
    ours.map(|comment| comment.body).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn five_pull_requests_over_one_file_land_serially() {
    let env = start().await;
    let repo = env.repo();
    repo.commit("main", &[("cart.txt", "cart\n")], "Add the cart")
        .unwrap();
    let mut pulls = Vec::new();
    for at in 1..=5 {
        let key = format!("ENG-{at}");
        env.set_agent_script(&key, keep_both("cart.txt"));
        let text = format!("cart\nline {at}\n");
        let number = open_pull(&env, &key, &[("cart.txt", &text)]).await;
        pulls.push((key, number));
    }
    sweep(&env).await;
    let mut conflicts = BTreeSet::new();
    for (at, (key, number)) in pulls.iter().enumerate() {
        env.tick_until("the next pull request can be merged", || {
            let active = env.store.read(jobs::active).unwrap();
            let active = active.iter().filter(|job| job.kind == JobKind::Conflict);
            assert!(active.count() <= 1, "one run at a time");
            is_mergeable(&env, key, *number)
        })
        .await;
        repo.merge_pull(*number).unwrap();
        let main = repo.branch_head("main").unwrap();
        for (key, number) in &pulls[at + 1..] {
            let head = repo.branch_head(&branch(key)).unwrap();
            if repo.are_in_conflict(&main, &head) {
                conflicts.insert((*number, head, main.clone()));
            }
        }
        wait_for_webhooks(&env).await;
    }
    env.tick_until("no run is active", || {
        env.store.read(jobs::active).unwrap().is_empty()
    })
    .await;
    let text = repo.read_file("main", "cart.txt").unwrap();
    for at in 1..=5 {
        assert!(text.contains(&format!("line {at}\n")), "{text}");
    }
    let mut attempts = Vec::new();
    for (key, number) in &pulls {
        let of_pull = record(&env, *number).updates.attempts;
        assert_eq!(of_pull.len(), conflict_jobs(&env, key).len());
        for attempt in of_pull {
            assert!(
                repo.are_in_conflict(&attempt.base, &attempt.head),
                "{attempt:?}"
            );
            attempts.push((*number, attempt.head, attempt.base));
        }
        for job in conflict_jobs(&env, key) {
            assert_eq!(job.state, JobState::Completed, "{}", log(&env));
        }
    }
    let distinct: BTreeSet<_> = attempts.iter().cloned().collect();
    assert_eq!(
        distinct.len(),
        attempts.len(),
        "one attempt per head and base"
    );
    assert!(
        (4..=conflicts.len()).contains(&attempts.len()),
        "{} runs for {} conflicts",
        attempts.len(),
        conflicts.len()
    );
    let subject = "ENG-2: Merge main into agent-implement/eng-2";
    let merges = repo.commits(&branch("ENG-2"));
    let merge = merges
        .iter()
        .find(|commit| commit.message.starts_with(subject));
    let merge = merge.unwrap_or_else(|| panic!("{merges:#?}"));
    assert_eq!(
        (merge.parents.len(), merge.email.as_str()),
        (2, COMMIT_EMAIL)
    );
    assert_eq!(our_comments(&env, pulls[1].1), [""; 0], "quiet");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_that_cannot_be_resolved_is_tried_once_per_head_and_base() {
    let env = start().await;
    let repo = env.repo();
    repo.commit("main", &[("cart.txt", "cart\n")], "Add the cart")
        .unwrap();
    let number = open_pull(&env, "ENG-1", &[("cart.txt", "ours\n")]).await;
    repo.commit("main", &[("cart.txt", "theirs\n")], "Change the cart")
        .unwrap();
    env.set_agent_script(
        "ENG-1",
        Script::new().pass([ScriptStep::message("I give up.")]),
    );
    let ticket = || format!("{:?}", env.vendors.linear().issue("ENG-1").snapshot());
    let before = ticket();
    sweep(&env).await;
    let job = wait_for_run(&env, "ENG-1", 1).await;
    let JobState::Failed { reason, .. } = &job.state else {
        panic!("{:?} {}", job.state, log(&env));
    };
    assert!(
        reason.contains("conflict markers are left in cart.txt"),
        "{reason}"
    );
    assert_eq!(before, ticket(), "no marker moves");
    let comments = our_comments(&env, number);
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(
        comments[0]
            .starts_with("Conflict resolution failed: the conflicts with main are not resolved")
            && comments[0].contains("Files in conflict with the base branch:\n\n- cart.txt"),
        "{}",
        comments[0]
    );
    for _ in 0..3 {
        env.advance_clock(Duration::from_secs(3_600));
        sweep(&env).await;
        env.tick().await;
    }
    assert_eq!(conflict_jobs(&env, "ENG-1").len(), 1);

    // An operator may try again.
    let retried = env
        .admin_post(&format!("/api/jobs/{}/retry", job.id), json!({}))
        .await;
    let job = wait_for_run(&env, "ENG-1", 2).await;
    assert!(!job.is_active(), "{retried}");

    // A new base is another conflict.
    repo.commit("main", &[("cart.txt", "theirs again\n")], "Change it again")
        .unwrap();
    env.set_agent_script("ENG-1", keep_both("cart.txt"));
    sweep(&env).await;
    let job = wait_for_run(&env, "ENG-1", 3).await;
    assert_eq!(job.state, JobState::Completed, "{}", log(&env));
    let text = repo.read_file(&branch("ENG-1"), "cart.txt").unwrap();
    assert_eq!(text, "ours\ntheirs again\n");
    assert_eq!(our_comments(&env, number).len(), 1, "updated in place");
    let shown = env.admin_get(&format!("/api/jobs/{}", job.id)).await;
    assert!(shown.to_string().contains("\"conflict\""), "{shown}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_merges_after_all_costs_no_attempt() {
    let env = start().await;
    let repo = env.repo();
    repo.commit("main", &[("cart.txt", "cart\n")], "Add the cart")
        .unwrap();
    let number = open_pull(&env, "ENG-1", &[("cart.txt", "ours\n")]).await;
    repo.commit("main", &[("cart.txt", "theirs\n")], "Change the cart")
        .unwrap();
    env.vendors.github().set_start_delay(Duration::from_secs(2));
    sweep(&env).await;
    env.tick().await;
    assert_eq!(conflict_jobs(&env, "ENG-1").len(), 1);
    // Before the run starts, the cause of the conflict is reverted.
    repo.commit(
        "main",
        &[("cart.txt", "cart\n"), ("b.txt", "b\n")],
        "Revert",
    )
    .unwrap();
    let job = wait_for_run(&env, "ENG-1", 1).await;
    assert_eq!(job.state, JobState::Completed, "{}", log(&env));
    let merge = job.merge.as_ref().unwrap();
    assert!(merge.is_clean(), "{merge:?}");
    assert_eq!(
        job.usage.unwrap_or_default().turns,
        0,
        "no pass of the agent"
    );
    let head = repo.commits(&branch("ENG-1")).remove(0);
    assert_eq!((head.parents.len(), head.email.as_str()), (2, COMMIT_EMAIL));
    assert_eq!(
        repo.read_file(&branch("ENG-1"), "b.txt").as_deref(),
        Some("b\n")
    );
    let policy = domain::feedback::FollowUpPolicy {
        max_follow_ups: 1,
        ..Default::default()
    };
    let now = env.app.core.now();
    let limit = domain::feedback::automatic_runs_resume_at(&policy, &[job], now);
    assert_eq!(limit, None);
    assert!(our_comments(&env, number).is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_decides_about_files_without_markers_and_no_driver_runs() {
    let env = start().await;
    let repo = env.repo();
    let trace = env.dir().join("driver-ran");
    let attributes = "* merge=evil filter=evil diff=evil\n";
    let config = format!("[merge \"evil\"]\n\tdriver = touch {}\n", trace.display());
    let seed = [
        ("gone.txt", "a\n"),
        ("image.png", "\0a"),
        (".gitattributes", attributes),
        (".gitconfig", config.as_str()),
    ];
    repo.commit("main", &seed, "Seed").unwrap();
    open_pull(
        &env,
        "ENG-1",
        &[("gone.txt", "ours\n"), ("image.png", "\0ours")],
    )
    .await;
    repo.remove_files("main", &["gone.txt"], "Remove it")
        .unwrap();
    repo.commit("main", &[("image.png", "\0theirs")], "Change the image")
        .unwrap();
    let steps = [
        ScriptStep::delete("gone.txt"),
        ScriptStep::message("It is not needed any more."),
    ];
    env.set_agent_script(
        "ENG-1",
        Script::new().pass_if_prompt_contains(IN_CONFLICT, steps),
    );
    sweep(&env).await;
    let job = wait_for_run(&env, "ENG-1", 1).await;
    assert_eq!(job.state, JobState::Completed, "{}", log(&env));
    let conflicts = job.merge.unwrap().conflicts;
    assert_eq!(conflicts, ["gone.txt", "image.png"]);
    assert_eq!(repo.read_file(&branch("ENG-1"), "gone.txt"), None);
    assert_eq!(
        repo.read_file(&branch("ENG-1"), "image.png").as_deref(),
        Some("\0ours")
    );
    assert!(!trace.exists(), "a merge driver of the repository ran");
    env.finish().await;
}

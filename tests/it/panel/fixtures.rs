//! Data of a service in use, with ordinary or hostile texts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::audit::{Action as AuditAction, Actor};
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::effect::{ChatMessage, Effect};
use domain::ids::Repo;
use domain::issue::{FlaggedIssue, IssueRef, Phase, RelatedIssues, StatusCategory, System};
use domain::job::{Job, JobKind, JobState, PullRequestRef, RunHandle, RunnerKind, TimeoutReason};
use domain::mapping::Mapping;
use domain::reaper::{ReapOutcome, ReaperRule};
use domain::report::{FailureCode, StepRecord, Usage};
use domain::stage::Stage;
use domain::string_arena::ArenaStr;
use domain::time::Timestamp;
use engine::app::PolledIssue;
use reqwest::Method;
use serde_json::json;
use store::dedup::DedupEntry;
use store::dispatch_breaker::ParkedIssue;
use store::reaper_log::ReaperAction;
use store::{
    StoreResult, WriteTx, audit, decisions, dedup, dispatch_breaker, jobs, open_questions, outbox,
    plan_gates, reaper_log, steps,
};

use super::questions;
use super::run_records;
use super::untrusted_text::UntrustedText;
use crate::api_server::dispatched_job;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping_with};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// ID of the job that is running.
pub const RUNNING_JOB_ID: &str = "01M7A";

/// ID of another job's machine.
pub const OTHER_MACHINE_ID: &str = "d8d4e33b";

/// Environment without projects, whose engine is driven manually.
pub async fn empty_env() -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        mappings: Vec::new(),
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await
}

/// Environment with data in every panel.
pub async fn populated_env(texts: &UntrustedText) -> TestEnv {
    populated_env_with(texts, &[]).await
}

/// Environment with data in every panel and additional flags.
pub async fn populated_env_with(texts: &UntrustedText, flags: &[(&'static str, &str)]) -> TestEnv {
    let env = empty_env().await;
    // Stored settings take effect at the next start.
    let settings = json!({"vmSessionsApp": env.vendors.fly().app(), "vmSessionsRegion": "fra"});
    env.admin_post("/api/settings", settings).await;
    let custom = env.dir().join("custom");
    let mut extra_flags = vec![
        ("--vm-sessions-region", "iad".to_owned()),
        ("--reaper-dry-run", "true".to_owned()),
        ("--custom-dir", custom.display().to_string()),
    ];
    extra_flags.extend(
        flags
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned())),
    );
    let options = TestEnvOptions {
        mappings: projects(),
        session_hosts: true,
        omitted_flags: &["--vm-sessions-app"],
        extra_flags,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    };
    let env = env.restart_service(options).await;
    customize(&custom, texts).unwrap();
    let outdated = [(".github/workflows/agent-implement.yml", "name: old\n")];
    let payments = env.vendors.github().repo("acme", "payments");
    payments.seed(&outdated, "Begin").unwrap();
    machines(&env, texts);
    secrets(&env).await;
    insert_records(&env, texts).await;
    engine::reap::run_once(&env.app).await.unwrap();
    env
}

/// Customizations: one file replaces a built-in step, one does not load, and one is unrelated.
fn customize(root: &Path, texts: &UntrustedText) -> std::io::Result<()> {
    let step_file = root.join("steps").join(texts.name);
    let write_executable = |file: &Path, text: &str| {
        std::fs::create_dir_all(file.parent().unwrap())?;
        std::fs::write(file, text)?;
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))
    };
    write_executable(&step_file, "#!/bin/sh\n")?;
    write_executable(&root.join("steps/verify"), "#!/bin/sh\n")?;
    write_executable(&root.join("notes.txt"), "ours\n")?;
    let docs = json!({"id": "docs", "steps": [{"id": "write", "type": (texts.title)(0)}]});
    write_executable(&root.join("pipelines/docs.yml"), &docs.to_string())
}

/// One machine per host: one of a known run and one of an unknown run.
fn machines(env: &TestEnv, texts: &UntrustedText) {
    let labels = |job| {
        [
            ("agent_implement_purpose", "session"),
            (
                "agent_implement_instance",
                env.app.vendors.sessions.instance(),
            ),
            ("agent_implement_dispatch", job),
            ("agent_implement_issue", "OPS-143"),
            ("agent_implement_team", "OPS"),
            ("agent_implement_repo", "acme/infrastructure"),
        ]
    };
    let fly = env.vendors.fly().host();
    fly.add_foreign_machine(OTHER_MACHINE_ID, texts.name, &labels("01M7C"));
    let docker = env.vendors.docker().host();
    docker.add_foreign_machine("5f2c", "agent-local", &labels("01M5A"));
}

async fn secrets(env: &TestEnv) {
    for (path, name) in [
        ("/api/global-secrets", "NPM_TOKEN"),
        ("/api/global-secrets", "SENTRY_DSN"),
        ("/api/mappings/SHOP/secrets", "STRIPE_KEY"),
    ] {
        let secret = json!({"name": name, "value": "hush"});
        let (status, response) = env.admin_request(Method::POST, path, Some(secret)).await;
        assert_eq!(status, 200, "{response}");
    }
}

/// Inserts jobs, decisions, reaper actions and outbox entries.
async fn insert_records(env: &TestEnv, texts: &UntrustedText) {
    let now = env.app.core.now();
    let ago = move |seconds: u64| Timestamp::from_millis(now.as_millis() - seconds * 1000);
    let issue = |n: usize| IssueRef {
        url: format!("{}{}", texts.key_prefix, issue(n, String::new()).key),
        ..issue(n, (texts.title)(n))
    };
    let jobs = history(&issue, &ago);
    let polled_issues = polled_issues(&issue, now);
    let decided: Vec<(IssueRef, Arc<Decision>)> = polled_issues
        .iter()
        .map(|one| (one.issue.issue.clone(), Arc::clone(&one.decision)))
        .collect();
    env.app
        .live
        .poll_snapshots
        .record(System::Linear, polled_issues, &[], now);
    env.app
        .live
        .poll_snapshots
        .count_in_progress(|_| [("SHOP".into(), 3), ("PAY".into(), 1), ("OPS".into(), 1)].into());
    let steps = steps_of(&ago, texts);
    let reaper_actions = reaper_actions(&ago, texts);
    let dedup_entry = DedupEntry {
        issue: issue(3),
        dispatched_at: ago(2 * HOUR),
    };
    let parked = ParkedIssue {
        issue: issue(7),
        repo: Repo::new("acme", "infrastructure"),
        phase: Phase::Implementation,
        failures: 3,
        last_conclusion: "Nothing to commit: no file changes in the working tree".into(),
        parked_at: ago(5 * HOUR),
    };
    let question = questions::question(&issue(8), texts, ago(MINUTE));
    let plan = questions::plan(&issue(9), texts, ago(2 * MINUTE));
    let audit_event =
        Actor::webhook([texts.name]).audit_event(AuditAction::RunDispatched, (texts.title)(0));
    let stored = env.store.write(move |tx| {
        audit::append(tx, &audit_event, now)?;
        for job in &jobs {
            jobs::put(tx, job)?;
        }
        for (order, step) in steps.iter().enumerate() {
            steps::put(tx, &RUNNING_JOB_ID.into(), step, order as u64)?;
        }
        for (issue, decision) in &decided {
            decisions::record(tx, issue, decision)?;
        }
        for action in &reaper_actions {
            reaper_log::record(tx, action)?;
        }
        dedup::put(tx, &dedup_entry)?;
        open_questions::put(tx, &question)?;
        plan_gates::put(tx, &plan)?;
        dispatch_breaker::park(tx, &parked)?;
        push_dead_entry(tx, "Implementation finished", now)?;
        push_dead_entry(tx, "Planning finished", now)?;
        run_records::insert(tx, &jobs, now)
    });
    stored.await.unwrap();
    env.app
        .live
        .log_tails
        .append(&RUNNING_JOB_ID.into(), &texts.log);
}

/// A destroyed machine and one that a dry run would have destroyed.
fn reaper_actions(ago: &dyn Fn(u64) -> Timestamp, texts: &UntrustedText) -> [ReaperAction; 2] {
    let orphan = ReaperAction {
        at: ago(MINUTE),
        rule: ReaperRule::Orphan,
        machine_id: texts.name.to_owned(),
        tenant: Some("SHOP".into()),
        issue: Some("SHOP-104".into()),
        age_seconds: 412,
        outcome: ReapOutcome::DryRun,
    };
    let leftover = ReaperAction {
        at: ago(HOUR),
        rule: ReaperRule::StaleTerminalJob,
        machine_id: "148e2d".to_owned(),
        outcome: ReapOutcome::Destroyed,
        ..orphan.clone()
    };
    [orphan, leftover]
}

/// Projects of the environment.
fn projects() -> Vec<Mapping> {
    vec![
        mapping_with(&json!({"teamKey": "SHOP", "repo": "shop", "maxTurns": 80})),
        mapping_with(&json!({
            "teamKey": "PAY", "repo": "payments", "provider": "cloud", "cloudRegion": "eu-central-1",
            "planningEnabled": true, "planningWorkflowFile": "agent-plan.yml", "maxInProgressAiIssues": 5,
        })),
        Mapping {
            paused: true,
            ..mapping_with(&json!({
                "teamKey": "OPS", "repo": "infrastructure", "executionMode": "vm-machines",
                "ticketingProvider": "B",
                "ticketingConfig": {"kind": "B", "jql": "project = OPS", "repoFieldValue": "infrastructure"},
            }))
        },
    ]
}

/// Adds one dead outbox entry.
fn push_dead_entry(tx: &WriteTx<'_>, title: &str, now: Timestamp) -> StoreResult<()> {
    let message = ChatMessage {
        title: title.into(),
        ..ChatMessage::default()
    };
    outbox::push(tx, &Effect::Chat { message }, now)?;
    let pushed = outbox::pending(tx)?.pop();
    let Some(entry) = pushed else { return Ok(()) };
    if let Some(claimed) = outbox::claim(tx, &entry.queue_key, entry.seq, now)? {
        outbox::mark_dead(tx, &claimed, "the chat answered 410 Gone", now)?;
    }
    Ok(())
}

fn issue(n: usize, title: String) -> IssueRef {
    let team = ["SHOP", "PAY", "SHOP", "OPS"][n % 4];
    IssueRef {
        system: System::Linear,
        id: format!("issue-{n}").as_str().into(),
        key: format!("{team}-{}", 100 + n).as_str().into(),
        title,
        url: format!("https://linear.test/{team}-{}", 100 + n),
        marker_field: None,
    }
}

/// Two days of runs; the latest are active.
fn history(issue: &dyn Fn(usize) -> IssueRef, ago: &dyn Fn(u64) -> Timestamp) -> Vec<Job> {
    let mut jobs = vec![run(0, issue(0), ago(4 * MINUTE), JobState::Running)];
    jobs[0].id = RUNNING_JOB_ID.into();
    jobs[0].group = RUNNING_JOB_ID.into();
    jobs[0].finished_at = None;
    let mut dispatched = run(1, issue(1), ago(MINUTE), JobState::Dispatched);
    dispatched.kind = JobKind::Planning;
    dispatched.finished_at = None;
    jobs.push(dispatched);
    let machine = RunHandle::Machine {
        id: OTHER_MACHINE_ID.into(),
        log_url: None,
    };
    jobs.push(Job {
        id: "01M7C".into(),
        runner: RunnerKind::Vm,
        run: Some(machine),
        finished_at: None,
        ..run(3, issue(43), ago(38 * MINUTE), JobState::Running)
    });
    for n in 9..43 {
        let state = match n % 9 {
            2 => JobState::Failed {
                code: Some(FailureCode::SensitiveFilesBlocked),
                reason: format!(
                    "Push blocked: 1 sensitive file(s) would be committed:\n- .env: {}",
                    issue(n).title
                ),
            },
            5 => JobState::ReviewFailed {
                unresolved: vec!["The total is rounded twice".into()],
            },
            8 => JobState::TimedOut {
                reason: TimeoutReason::RunNotFound,
            },
            _ => JobState::Completed,
        };
        let started = ago((n as u64 - 5) * 37 * MINUTE + 11 * MINUTE);
        jobs.push(run(n, issue(n), started, state));
    }
    jobs
}

fn run(n: usize, issue: IssueRef, started: Timestamp, state: JobState) -> Job {
    // Newer runs have greater IDs.
    let id = format!("01M6{:04}", 9000_usize.abs_diff(n));
    let opened = matches!(state, JobState::Completed | JobState::ReviewFailed { .. });
    let team = issue.key.as_str().split('-').next().unwrap().to_owned();
    let name = match team.as_str() {
        "PAY" => "payments",
        "OPS" => "infrastructure",
        _ => "shop",
    };
    let url = |path: String| format!("https://github.test/acme/{name}/{path}");
    let pull_url = url(format!("pull/{}", 1000_usize.abs_diff(n)));
    let run_url = url(format!("actions/runs/{}", 7000 + n));
    let model = ["claude-sonnet-4-5", "claude-opus-4-1"][n % 3 % 2];
    Job {
        group: id.as_str().into(),
        team: team.as_str().into(),
        repo: Repo::new("acme", name),
        branch: format!("agent-implement/{}", issue.key.as_str().to_lowercase()),
        issue,
        state,
        run: Some(RunHandle::Ci {
            id: 7000 + n as u64,
            url: run_url,
        }),
        pull: PullRequestRef::from_url(&pull_url).filter(|_| opened),
        triggered_at: Some(started),
        reserved_at: started,
        dispatched_at: Some(started),
        started_at: Some(started + Duration::from_secs(9)),
        finished_at: Some(started + Duration::from_secs(240 + 13 * n as u64)),
        agent: Some("claude".to_owned()),
        model: Some(model.to_owned()),
        usage: Some(Usage {
            turns: 12 + n as u64,
            input_tokens: 48_000,
            output_tokens: 6_100,
            cost_usd: Some(0.31 + n as f64 / 50.0),
        }),
        ..dispatched_job(&id, JobKind::Implementation)
    }
}

fn steps_of(ago: &dyn Fn(u64) -> Timestamp, texts: &UntrustedText) -> Vec<StepRecord> {
    let row = |id: &str, status: &str, from: u64, took: Option<u64>| {
        let name = if status == "skipped" {
            "reason"
        } else {
            "note"
        };
        let step = json!({"id": id, "type": id, "status": status, "started_at": ago(from), "elapsed_ms": took,
            "outputs": {name: texts.log.lines().next()}});
        StepRecord::parse(Some(step)).unwrap()
    };
    vec![
        row("clone", "passed", 230, Some(2_140)),
        row("install", "passed", 227, Some(31_800)),
        row("setup", "skipped", 195, Some(0)),
        row("feedback-loop", "running", 190, None),
    ]
}

/// Issues of the latest poll, each with a different decision.
fn polled_issues(issue: &dyn Fn(usize) -> IssueRef, now: Timestamp) -> Vec<PolledIssue> {
    use DecisionOutcome::{Dispatched, Done, InProgress, Waiting};
    let decided = |outcome, reason, message, stage| (outcome, Some(reason), message, stage);
    let waiting = |reason, message| decided(Waiting, reason, message, Stage::Triggered);
    let rows = [
        (
            0,
            (InProgress, None, "A run is at work.", Stage::Implementing),
        ),
        (1, (Dispatched, None, "Dispatched.", Stage::Planning)),
        (
            2,
            waiting(
                WaitReason::Concurrency,
                "SHOP at concurrency cap (3/3). Waiting for a slot.",
            ),
        ),
        (
            3,
            waiting(
                WaitReason::Dedup,
                "Already dispatched recently. Waiting for the in-flight job.",
            ),
        ),
        (
            4,
            waiting(WaitReason::Blocked, "Blocked by SHOP-99, still open."),
        ),
        (
            5,
            waiting(
                WaitReason::NoMapping,
                "No mapping for team WEB. Add one in Projects.",
            ),
        ),
        (
            47,
            decided(
                Waiting,
                WaitReason::Paused,
                "The project is paused.",
                Stage::PlanComplete,
            ),
        ),
        (
            7,
            waiting(WaitReason::Parked, "Parked after 3 failures in a row."),
        ),
        (
            9,
            (Done, None, "The pull request is open.", Stage::PrOpened),
        ),
        (
            43,
            (InProgress, None, "A run is at work.", Stage::Implementing),
        ),
    ];
    let to_polled_issue = |(n, (outcome, reason, message, stage))| {
        let mut issue: IssueRef = issue(n);
        if reason == Some(WaitReason::NoMapping) {
            issue.key = "WEB-105".into();
            issue.url = issue.url.replace("PAY-", "WEB-");
        }
        snapshot_issue(issue, stage, (outcome, reason, message), now)
    };
    rows.into_iter().map(to_polled_issue).collect()
}

/// Polled issue with its decision.
pub fn snapshot_issue(
    issue: IssueRef,
    stage: Stage,
    (outcome, reason, message): (DecisionOutcome, Option<WaitReason>, &str),
    at: Timestamp,
) -> PolledIssue {
    let team: domain::ids::TeamKey = issue.key.as_str().split('-').next().unwrap().into();
    let decision = Decision {
        at,
        issue_identifier: issue.key.clone(),
        team_key: team.clone(),
        outcome,
        reason,
        message: message.to_owned(),
        phase: Some(Phase::Implementation),
    };
    let issue = FlaggedIssue {
        issue,
        team,
        facts: None,
        stage,
        priority: 2,
        created_at: at,
        description: ArenaStr::default(),
        state_name: "In Progress".into(),
        status_category: StatusCategory::Started,
        open_blockers: Vec::new(),
        related: RelatedIssues::default(),
        labels: None,
        agent_choice: Default::default(),
        trigger_author: domain::issue::TriggerAuthor::Trusted,
        has_trigger: true,
        updated_at: None,
    };
    PolledIssue {
        issue: issue.into(),
        decision: decision.into(),
    }
}

/// Environment with 5,000 polled issues and 500 dispatches.
pub async fn large_env() -> TestEnv {
    let env = empty_env().await;
    let now = env.app.core.now();
    let texts = UntrustedText::plain();
    let issues = (0..5000).map(|n| {
        let decision = (
            DecisionOutcome::Waiting,
            Some(WaitReason::Concurrency),
            "At the cap.",
        );
        snapshot_issue(issue(n, (texts.title)(n)), Stage::Triggered, decision, now)
    });
    env.app
        .live
        .poll_snapshots
        .record(System::Linear, issues.collect(), &[], now);
    let runs: Vec<Job> = (0..500)
        .map(|n| run(n, issue(n, (texts.title)(n)), now, JobState::Completed))
        .collect();
    let stored = env
        .store
        .write(move |tx| runs.iter().try_for_each(|job| jobs::put(tx, job)));
    stored.await.unwrap();
    env
}

/// Environment with 5,000 polled issues and 10,000 dispatches, of which the newest 100 are running.
pub async fn busy_env() -> TestEnv {
    let env = large_env().await;
    let now = env.app.core.now();
    let texts = UntrustedText::plain();
    let ago = |seconds: usize| Timestamp::from_millis(now.as_millis() - seconds as u64 * 1000);
    let runs: Vec<Job> = (0..10_000)
        .map(|n| {
            let is_active = n < 100;
            let state = match n % 9 {
                _ if is_active => JobState::Running,
                2 => JobState::TimedOut {
                    reason: TimeoutReason::RunNotFound,
                },
                _ => JobState::Completed,
            };
            let mut job = run(n, issue(n, (texts.title)(n)), ago(n * 60), state);
            // Newer runs have greater IDs.
            job.id = format!("01M8{:06}", 900_000 - n).as_str().into();
            job.group = job.id.as_str().into();
            job.finished_at = job.finished_at.filter(|_| !is_active);
            job
        })
        .collect();
    for part in runs.chunks(1000) {
        let part = part.to_vec();
        let stored = env
            .store
            .write(move |tx| part.iter().try_for_each(|job| jobs::put(tx, job)));
        stored.await.unwrap();
    }
    env
}

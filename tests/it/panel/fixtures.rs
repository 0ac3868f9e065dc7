//! What stands in a service that has been used for a while; in plain words, or in hostile ones.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::audit::{self as deeds, Actor};
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
    StoreResult, WriteTx, audit, decisions, dedup, dispatch_breaker, jobs, outbox, reaper_log,
    steps,
};

use super::untrusted_text::UntrustedText;
use crate::api_server::dispatched_job;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping_with};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// The run that is at work.
pub const RUNNING_JOB_ID: &str = "01M7A";

/// The machine of another.
pub const OTHER_MACHINE_ID: &str = "d8d4e33b";

/// A world whose engine stands still, without a project.
pub async fn empty_env() -> TestEnv {
    TestEnv::with_options(TestEnvOptions {
        mappings: Vec::new(),
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await
}

/// A world that is furnished.
pub async fn populated_env(words: &UntrustedText) -> TestEnv {
    populated_env_with(words, &[]).await
}

/// The same, with other flags.
pub async fn populated_env_with(words: &UntrustedText, flags: &[(&'static str, &str)]) -> TestEnv {
    let world = empty_env().await;
    // What is stored here holds from the next start on.
    let settings = json!({"vmSessionsApp": world.vendors.fly().app(), "vmSessionsRegion": "fra"});
    world.admin_post("/api/settings", settings).await;
    let custom = world.dir().join("custom");
    let mut all = vec![
        ("--vm-sessions-region", "iad".to_owned()),
        ("--reaper-dry-run", "true".to_owned()),
        ("--custom-dir", custom.display().to_string()),
    ];
    all.extend(
        flags
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned())),
    );
    let making = TestEnvOptions {
        mappings: projects(),
        session_hosts: true,
        omitted_flags: &["--vm-sessions-app"],
        extra_flags: all,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    };
    let world = world.restart_service(making).await;
    customize(&custom, words).unwrap();
    let outdated = [(".github/workflows/agent-implement.yml", "name: old\n")];
    let payments = world.vendors.github().repo("acme", "payments");
    payments.seed(&outdated, "Begin").unwrap();
    machines(&world, words);
    secrets(&world).await;
    fill(&world, words).await;
    engine::reap::run_once(&world.app).await.unwrap();
    world
}

/// The operator's own files: one instead of a built-in, one that does not load, one beside them.
fn customize(root: &Path, words: &UntrustedText) -> std::io::Result<()> {
    let own = root.join("steps").join(words.name);
    let put = |file: &Path, text: &str| {
        std::fs::create_dir_all(file.parent().unwrap())?;
        std::fs::write(file, text)?;
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))
    };
    put(&own, "#!/bin/sh\n")?;
    put(&root.join("steps/verify"), "#!/bin/sh\n")?;
    put(&root.join("notes.txt"), "ours\n")?;
    let docs = json!({"id": "docs", "steps": [{"id": "write", "type": (words.title)(0)}]});
    put(&root.join("pipelines/docs.yml"), &docs.to_string())
}

/// One at each host: of a run, and of a run that nobody knows any more.
fn machines(world: &TestEnv, words: &UntrustedText) {
    let stamps = |job| {
        [
            ("agent_implement_purpose", "session"),
            ("agent_implement_instance", world.app.sessions.instance()),
            ("agent_implement_dispatch", job),
            ("agent_implement_issue", "OPS-103"),
            ("agent_implement_team", "OPS"),
            ("agent_implement_repo", "acme/infrastructure"),
        ]
    };
    let fly = world.vendors.fly();
    fly.add_foreign_machine(OTHER_MACHINE_ID, words.name, &stamps("01M7C"));
    let docker = world.vendors.docker();
    docker.add_foreign_container("5f2c", "agent-local", &stamps("01M5A"));
}

async fn secrets(world: &TestEnv) {
    for (path, name) in [
        ("/api/global-secrets", "NPM_TOKEN"),
        ("/api/global-secrets", "SENTRY_DSN"),
        ("/api/mappings/SHOP/secrets", "STRIPE_KEY"),
    ] {
        let secret = json!({"name": name, "value": "hush"});
        let (status, said) = world.admin_request(Method::POST, path, Some(secret)).await;
        assert_eq!(status, 200, "{said}");
    }
}

/// What the service would have come to know.
async fn fill(world: &TestEnv, words: &UntrustedText) {
    let now = world.app.now();
    let ago = move |seconds: u64| Timestamp::from_millis(now.as_millis() - seconds * 1000);
    let issue = |n: usize| IssueRef {
        url: format!("{}{}", words.key_prefix, issue(n, String::new()).key),
        ..issue(n, (words.title)(n))
    };
    let jobs = history(&issue, &ago);
    let sights = sights(&issue, now);
    let ledgered: Vec<(IssueRef, Arc<Decision>)> = sights
        .iter()
        .map(|one| (one.issue.issue.clone(), Arc::clone(&one.decision)))
        .collect();
    world
        .app
        .poll_snapshots
        .record(System::Linear, sights, &[], now);
    world
        .app
        .poll_snapshots
        .count_in_progress(|_| [("SHOP".into(), 2), ("PAY".into(), 5)].into());
    let steps = steps_of(&ago, words);
    let reaped = reaped(&ago, words);
    let held = DedupEntry {
        issue: issue(3),
        dispatched_at: ago(2 * HOUR),
    };
    let parked = ParkedIssue {
        issue: issue(7),
        repo: Repo::new("acme", "shop"),
        phase: Phase::Implementation,
        failures: 3,
        last_conclusion: "Nothing to commit: no file changes in the working tree".into(),
        parked_at: ago(5 * HOUR),
    };
    let deed =
        Actor::webhook([words.name]).audit_event(deeds::Action::RunDispatched, (words.title)(0));
    let stored = world.app.store.write(move |tx| {
        audit::append(tx, &deed, now)?;
        for job in &jobs {
            jobs::put(tx, job)?;
        }
        for (order, step) in steps.iter().enumerate() {
            steps::put(tx, &RUNNING_JOB_ID.into(), step, order as u64)?;
        }
        for (issue, decision) in &ledgered {
            decisions::record(tx, issue, decision)?;
        }
        for action in &reaped {
            reaper_log::record(tx, action)?;
        }
        dedup::put(tx, &held)?;
        dispatch_breaker::park(tx, &parked)?;
        bury(tx, "Implementation finished", now)?;
        bury(tx, "Planning finished", now)
    });
    stored.await.unwrap();
    world
        .app
        .log_tails
        .append(&RUNNING_JOB_ID.into(), &words.log);
}

/// What the reaper did, and would have done.
fn reaped(ago: &dyn Fn(u64) -> Timestamp, words: &UntrustedText) -> [ReaperAction; 2] {
    let orphan = ReaperAction {
        at: ago(MINUTE),
        rule: ReaperRule::Orphan,
        machine_id: words.name.to_owned(),
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

/// The projects of the furnished service.
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

/// One delivery that was given up.
fn bury(tx: &WriteTx<'_>, title: &str, now: Timestamp) -> StoreResult<()> {
    let message = ChatMessage {
        title: title.into(),
        ..ChatMessage::default()
    };
    outbox::push(tx, &Effect::Chat { message }, now)?;
    let pushed = outbox::pending(tx)?.pop();
    let Some(errand) = pushed else { return Ok(()) };
    if let Some(claimed) = outbox::claim(tx, &errand.queue_key, errand.seq, now)? {
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

/// Two days of runs, the latest at work.
fn history(issue: &dyn Fn(usize) -> IssueRef, ago: &dyn Fn(u64) -> Timestamp) -> Vec<Job> {
    let mut all = vec![run(0, issue(0), ago(4 * MINUTE), JobState::Running, ago)];
    all[0].id = RUNNING_JOB_ID.into();
    all[0].group = RUNNING_JOB_ID.into();
    all[0].finished_at = None;
    let mut dispatched = run(1, issue(1), ago(MINUTE), JobState::Dispatched, ago);
    dispatched.kind = JobKind::Planning;
    dispatched.finished_at = None;
    all.push(dispatched);
    let machine = RunHandle::Machine {
        id: OTHER_MACHINE_ID.into(),
        log_url: None,
    };
    all.push(Job {
        id: "01M7C".into(),
        runner: RunnerKind::Vm,
        run: Some(machine),
        finished_at: None,
        ..run(3, issue(3), ago(38 * MINUTE), JobState::Running, ago)
    });
    for n in 4..40 {
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
        let began = ago(n as u64 * 37 * MINUTE + 11 * MINUTE);
        all.push(run(n, issue(n), began, state, ago));
    }
    all
}

fn run(
    n: usize,
    issue: IssueRef,
    began: Timestamp,
    state: JobState,
    _: &dyn Fn(u64) -> Timestamp,
) -> Job {
    // Newer runs have greater ids.
    let id = format!("01M6{:04}", 9000 - n);
    let opened = matches!(state, JobState::Completed | JobState::ReviewFailed { .. });
    let url = format!("https://github.test/acme/shop/pull/{}", 1000 - n);
    Job {
        group: id.as_str().into(),
        team: issue.key.as_str().split('-').next().unwrap().into(),
        issue,
        state,
        run: Some(RunHandle::Ci {
            id: 7000 + n as u64,
            url: format!("https://github.test/acme/shop/actions/runs/{}", 7000 + n),
        }),
        pull: PullRequestRef::from_url(&url).filter(|_| opened),
        reserved_at: began,
        dispatched_at: Some(began),
        started_at: Some(began + Duration::from_secs(9)),
        finished_at: Some(began + Duration::from_secs(240 + 13 * n as u64)),
        usage: Some(Usage {
            turns: 12 + n as u64,
            input_tokens: 48_000,
            output_tokens: 6_100,
            cost_usd: Some(0.31 + n as f64 / 50.0),
        }),
        ..dispatched_job(&id, JobKind::Implementation)
    }
}

fn steps_of(ago: &dyn Fn(u64) -> Timestamp, words: &UntrustedText) -> Vec<StepRecord> {
    let row = |id: &str, status: &str, from: u64, took: Option<u64>| {
        let step = json!({"id": id, "type": id, "status": status, "started_at": ago(from), "elapsed_ms": took,
            "outputs": {"note": words.log.lines().next()}});
        StepRecord::parse(Some(step)).unwrap()
    };
    vec![
        row("clone", "passed", 230, Some(2_140)),
        row("install", "passed", 227, Some(31_800)),
        row("setup", "skipped", 195, Some(0)),
        row("feedback-loop", "running", 190, None),
    ]
}

/// Issues as the last poll saw them, each with another decision.
fn sights(issue: &dyn Fn(usize) -> IssueRef, now: Timestamp) -> Vec<PolledIssue> {
    let rows: [(DecisionOutcome, Option<WaitReason>, &str, Stage); 9] = [
        (
            DecisionOutcome::InProgress,
            None,
            "A run is at work.",
            Stage::Implementing,
        ),
        (
            DecisionOutcome::Dispatched,
            None,
            "Dispatched.",
            Stage::Planning,
        ),
        (
            DecisionOutcome::Waiting,
            Some(WaitReason::Concurrency),
            "SHOP at concurrency cap (3/3). Waiting for a slot.",
            Stage::Triggered,
        ),
        (
            DecisionOutcome::Waiting,
            Some(WaitReason::Dedup),
            "Already dispatched recently. Waiting for the in-flight job.",
            Stage::Triggered,
        ),
        (
            DecisionOutcome::Waiting,
            Some(WaitReason::Blocked),
            "Blocked by SHOP-99, still open.",
            Stage::Triggered,
        ),
        (
            DecisionOutcome::Waiting,
            Some(WaitReason::NoMapping),
            "No mapping for team WEB. Add one in Projects.",
            Stage::Triggered,
        ),
        (
            DecisionOutcome::Waiting,
            Some(WaitReason::Paused),
            "The project is paused.",
            Stage::PlanComplete,
        ),
        (
            DecisionOutcome::Waiting,
            Some(WaitReason::Parked),
            "Parked after 3 failures in a row.",
            Stage::Triggered,
        ),
        (
            DecisionOutcome::Done,
            None,
            "The pull request is open.",
            Stage::PrOpened,
        ),
    ];
    let sight = |(n, (outcome, reason, message, stage)): (
        usize,
        &(DecisionOutcome, Option<WaitReason>, &str, Stage),
    )| { snapshot_issue(issue(n), *stage, (*outcome, *reason, *message), now) };
    rows.iter().enumerate().map(sight).collect()
}

/// An issue in sight, with what was decided.
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
        stage,
        priority: 2,
        created_at: at,
        description: ArenaStr::default(),
        state_name: "In Progress".into(),
        status_category: StatusCategory::Started,
        open_blockers: Vec::new(),
        related: RelatedIssues::default(),
    };
    PolledIssue {
        issue: issue.into(),
        decision: decision.into(),
    }
}

/// 5,000 issues in sight and 500 dispatches.
pub async fn large_env() -> TestEnv {
    let world = empty_env().await;
    let now = world.app.now();
    let words = UntrustedText::plain();
    let many = (0..5000).map(|n| {
        let decision = (
            DecisionOutcome::Waiting,
            Some(WaitReason::Concurrency),
            "At the cap.",
        );
        snapshot_issue(issue(n, (words.title)(n)), Stage::Triggered, decision, now)
    });
    world
        .app
        .poll_snapshots
        .record(System::Linear, many.collect(), &[], now);
    let runs: Vec<Job> = (0..500)
        .map(|n| {
            run(
                n,
                issue(n, (words.title)(n)),
                now,
                JobState::Completed,
                &|_| now,
            )
        })
        .collect();
    let stored = world
        .app
        .store
        .write(move |tx| runs.iter().try_for_each(|job| jobs::put(tx, job)));
    stored.await.unwrap();
    world
}

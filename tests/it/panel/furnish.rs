//! What stands in a service that has been used for a while; in plain words, or in hostile ones.

use std::time::Duration;

use agent_implement::app::Sighted;
use agent_implement::domain::decision::{Decision, Outcome, Reason};
use agent_implement::domain::effect::{ChatMessage, Effect};
use agent_implement::domain::ids::JobId;
use agent_implement::domain::issue::{FlaggedIssue, IssueRef, Phase, Progress, Related, System};
use agent_implement::domain::job::{Job, JobKind, JobState, PullRef, RunHandle, TimeoutReason};
use agent_implement::domain::mapping::{Input, Mapping};
use agent_implement::domain::report::{FailureCode, Step, Usage};
use agent_implement::domain::stage::Stage;
use agent_implement::domain::time::Timestamp;
use agent_implement::store::dedup::DedupEntry;
use agent_implement::store::parked::Parked;
use agent_implement::store::{dedup, jobs, ledger, mappings, outbox, parked, steps};
use serde_json::{Value, json};

use crate::api::job;
use crate::world::{Engine, Making, World};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// Texts that strangers write.
pub struct Words {
    pub title: Box<dyn Fn(usize) -> String>,
    pub name: &'static str,
    pub log: String,
}

/// Titles as teams write them.
const TITLES: [&str; 12] = [
    "Let customers reorder a past purchase",
    "Round prices the same way in cart and invoice",
    "Show delivery dates in the customer's time zone",
    "Stop sending two confirmation mails",
    "Export orders as CSV",
    "Remember the chosen currency",
    "Make search forgiving of typos",
    "Rotate the signing keys without downtime",
    "Explain why a coupon was refused",
    "Load product pictures lazily",
    "Keep the cart when somebody signs in",
    "Warn before stock runs out",
];

impl Words {
    pub fn plain() -> Self {
        Self {
            title: Box::new(|n| TITLES[n % TITLES.len()].to_owned()),
            name: "agent-01m7zf5d",
            log: "$ cargo test\nrunning 42 tests\ntest cart::keeps_items ... ok\n".to_owned(),
        }
    }

    /// Everything that text can do to a page that takes it for more than text.
    pub fn hostile() -> Self {
        Self {
            title: Box::new(|n| match n % 6 {
                0 => "<script>window.hacked=1</script>".to_owned(),
                1 => "\"'><img src=x onerror=\"window.hacked=1\">".to_owned(),
                2 => "abc \u{202e}gnp.exe\u{2066} \u{200b}x".to_owned(),
                3 => "A".repeat(10 << 10),
                4 => "👩‍👩‍👧‍👦🏳️‍🌈 𝕳𝖊𝖑𝖑𝖔 \u{0301}\u{0301}\u{0301}\u{0301}Z̷͙̈́a̴̢̎l̸̫̈́g̶̱̈́o̸͍͐".to_owned(),
                _ => "${alert(1)} {{7*7}} </title><style>*{display:none}</style>".to_owned(),
            }),
            name: "<b onclick=\"hacked=1\">m</b>\u{202e}'\"&amp;",
            log: format!(
                "<script>window.hacked=1</script>\u{1b}[31mred\u{1b}[0m\n{}\n👾 \u{202e}",
                "B".repeat(10 << 10)
            ),
        }
    }
}

/// A world whose engine stands still, with one project.
pub async fn bare() -> World {
    World::made(Making {
        mappings: Vec::new(),
        engine: Engine::by_hand(),
        ..Making::default()
    })
    .await
}

fn project(body: Value) -> Mapping {
    let input = Input::read(body).unwrap();
    input.validate(None, Timestamp::EPOCH).unwrap()
}

/// The projects of the furnished service.
fn projects() -> Vec<Mapping> {
    vec![
        project(
            json!({"teamKey": "SHOP", "owner": "acme", "repo": "shop", "defaultBranch": "main", "maxTurns": 80}),
        ),
        project(
            json!({"teamKey": "PAY", "owner": "acme", "repo": "payments", "defaultBranch": "main", "provider": "cloud", "cloudRegion": "eu-central-1", "planningEnabled": true, "planningWorkflowFile": "agent-plan.yml", "maxInProgressAiIssues": 5}),
        ),
        project(
            json!({"teamKey": "OPS", "owner": "acme", "repo": "infrastructure", "defaultBranch": "trunk", "executionMode": "vm-machines", "ticketingProvider": "B", "ticketingConfig": {"kind": "B", "jql": "project = OPS", "repoFieldValue": "infrastructure"}, "paused": true}),
        ),
    ]
}

/// A world that is furnished.
pub async fn furnished(words: &Words) -> World {
    let world = bare().await;
    let now = world.app.now();
    let ago = move |seconds: u64| Timestamp::from_millis(now.as_millis() - seconds * 1000);
    let issue = |n: usize| issue(n, (words.title)(n));
    let jobs = history(&issue, &ago);
    let sights = sights(&issue, now);
    let ledgered: Vec<(IssueRef, Decision)> = sights
        .iter()
        .map(|one| (one.issue.issue.clone(), one.decision.clone()))
        .collect();
    world.app.sightings.saw(System::A, sights, &[], now);
    world
        .app
        .sightings
        .count(|_| [("SHOP".into(), 2), ("PAY".into(), 5)].into());
    let running = jobs[0].id.clone();
    let steps = steps_of(&ago, words);
    let (parked_issue, held) = (issue(7), issue(3));
    world
        .app
        .store
        .write(move |tx| {
            for mapping in projects() {
                mappings::put(tx, &mapping)?;
            }
            for job in &jobs {
                jobs::put(tx, job)?;
            }
            for (order, step) in steps.iter().enumerate() {
                steps::put(tx, &running, step, order as u64)?;
            }
            for (issue, decision) in &ledgered {
                ledger::record(tx, issue, decision)?;
            }
            let entry = DedupEntry {
                issue: held.clone(),
                dispatched_at: ago(2 * HOUR),
            };
            dedup::put(tx, &entry)?;
            let kept = Parked {
                issue: parked_issue.clone(),
                repo: agent_implement::domain::ids::Repo::new("acme", "shop"),
                phase: Phase::Implementation,
                failures: 3,
                last_conclusion: "Nothing to commit: no file changes in the working tree".into(),
                parked_at: ago(5 * HOUR),
            };
            parked::park(tx, &kept)?;
            bury(tx, now)
        })
        .await
        .unwrap();
    world.app.tails.add(&JobId::from("01M7A"), &words.log);
    world
}

/// One delivery that was given up.
fn bury(
    tx: &agent_implement::store::WriteTx<'_>,
    now: Timestamp,
) -> agent_implement::store::StoreResult<()> {
    let message = ChatMessage {
        title: "Implementation finished".into(),
        ..ChatMessage::default()
    };
    outbox::push(tx, &Effect::Chat { message }, now)?;
    let pushed = outbox::pending(tx)?.pop();
    let Some(errand) = pushed else { return Ok(()) };
    if let Some(claimed) = outbox::claim(tx, &errand.lane, errand.seq, now)? {
        outbox::bury(tx, &claimed, "the chat answered 410 Gone", now)?;
    }
    Ok(())
}

fn issue(n: usize, title: String) -> IssueRef {
    let team = ["SHOP", "PAY", "SHOP", "OPS"][n % 4];
    IssueRef {
        system: System::A,
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
    all[0].id = "01M7A".into();
    all[0].group = "01M7A".into();
    all[0].finished_at = None;
    let mut dispatched = run(1, issue(1), ago(MINUTE), JobState::Dispatched, ago);
    dispatched.kind = JobKind::Planning;
    dispatched.finished_at = None;
    all.push(dispatched);
    for n in 2..40 {
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
        pull: PullRef::from_url(&url).filter(|_| opened),
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
        ..job(&id, JobKind::Implementation)
    }
}

fn steps_of(ago: &dyn Fn(u64) -> Timestamp, words: &Words) -> Vec<Step> {
    let row = |id: &str, status: &str, from: u64, took: Option<u64>| {
        let step = json!({"id": id, "type": id, "status": status, "started_at": ago(from), "elapsed_ms": took,
            "outputs": {"note": words.log.lines().next()}});
        Step::parse(Some(&step)).unwrap()
    };
    vec![
        row("clone", "passed", 230, Some(2_140)),
        row("install", "passed", 227, Some(31_800)),
        row("setup", "skipped", 195, Some(0)),
        row("feedback-loop", "running", 190, None),
    ]
}

/// Issues as the last poll saw them, each with another decision.
fn sights(issue: &dyn Fn(usize) -> IssueRef, now: Timestamp) -> Vec<Sighted> {
    let rows: [(Outcome, Option<Reason>, &str, Stage); 9] = [
        (
            Outcome::InProgress,
            None,
            "A run is at work.",
            Stage::Implementing,
        ),
        (Outcome::Dispatched, None, "Dispatched.", Stage::Planning),
        (
            Outcome::Waiting,
            Some(Reason::Concurrency),
            "SHOP at concurrency cap (3/3). Waiting for a slot.",
            Stage::Triggered,
        ),
        (
            Outcome::Waiting,
            Some(Reason::Dedup),
            "Already dispatched recently. Waiting for the in-flight job.",
            Stage::Triggered,
        ),
        (
            Outcome::Waiting,
            Some(Reason::Blocked),
            "Blocked by SHOP-99, still open.",
            Stage::Triggered,
        ),
        (
            Outcome::Waiting,
            Some(Reason::NoMapping),
            "No mapping for team WEB. Add one in Projects.",
            Stage::Triggered,
        ),
        (
            Outcome::Waiting,
            Some(Reason::Paused),
            "The project is paused.",
            Stage::PlanComplete,
        ),
        (
            Outcome::Waiting,
            Some(Reason::Parked),
            "Parked after 3 failures in a row.",
            Stage::Triggered,
        ),
        (
            Outcome::Done,
            None,
            "The pull request is open.",
            Stage::PrOpened,
        ),
    ];
    let sight = |(n, (outcome, reason, message, stage)): (
        usize,
        &(Outcome, Option<Reason>, &str, Stage),
    )| { sighted(issue(n), *stage, (*outcome, *reason, *message), now) };
    rows.iter().enumerate().map(sight).collect()
}

/// An issue in sight, with what was decided.
pub fn sighted(
    issue: IssueRef,
    stage: Stage,
    (outcome, reason, message): (Outcome, Option<Reason>, &str),
    at: Timestamp,
) -> Sighted {
    let team: agent_implement::domain::ids::TeamKey =
        issue.key.as_str().split('-').next().unwrap().into();
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
        description: String::new(),
        state_name: "In Progress".into(),
        progress: Progress::Started,
        open_blockers: Vec::new(),
        related: Related::default(),
    };
    Sighted { issue, decision }
}

/// 5,000 issues in sight and 500 dispatches.
pub async fn crowded() -> World {
    let world = bare().await;
    let now = world.app.now();
    let words = Words::plain();
    let many = (0..5000).map(|n| {
        let decision = (Outcome::Waiting, Some(Reason::Concurrency), "At the cap.");
        sighted(issue(n, (words.title)(n)), Stage::Triggered, decision, now)
    });
    world.app.sightings.saw(System::A, many.collect(), &[], now);
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

/// What the service answers where this world has nothing to answer from, in the bodies it promises.
pub fn answers(words: &Words) -> Value {
    let (title, name) = ((words.title)(0), words.name);
    let at = "2026-11-20T10:00:00.000Z";
    json!({
        "GET /api/pulls": {"pulls": [
            {"prUrl": "https://github.test/acme/shop/pull/180", "prNumber": 180, "repo": name, "teamKey": "SHOP", "issueIdentifier": "SHOP-100", "issueTitle": title, "issueUrl": "https://linear.test/SHOP-100", "jobStatus": "running", "iterations": 2, "lastDispatchedAt": at, "jobId": "01M7A", "draft": false},
            {"prUrl": "javascript:hacked=1", "prNumber": 181, "repo": "acme/payments", "teamKey": "PAY", "issueIdentifier": "PAY-101", "issueTitle": title, "issueUrl": "javascript:hacked=1", "jobStatus": "review_failed", "iterations": 4, "lastDispatchedAt": at, "jobId": "01M68995", "draft": true},
        ]},
        "GET /api/sessions": [
            {"machineId": "d8d4e33b", "name": name, "kind": "vm", "state": "started", "region": "iad", "createdAt": at, "uptimeSeconds": 2291, "issueIdentifier": "OPS-103", "repo": "acme/infrastructure", "jobId": "01M7A"},
            {"machineId": "5f2c", "name": "agent-local", "kind": "local", "state": "starting", "region": null, "createdAt": at, "uptimeSeconds": 4},
        ],
        "DELETE /api/sessions/d8d4e33b": {"destroyed": true},
        "GET /api/reaper/summary": {"total24h": 4, "byRule": {"orphan": 1, "stale-terminal-job": 3, "max-age-exceeded": 0, "issue-terminal": 0}, "lastSweepAt": at, "dryRun": true},
        "GET /api/reaper/recent?limit=100": [
            {"at": at, "rule": "orphan", "machineId": name, "tenant": "SHOP", "issueIdentifier": "SHOP-104", "ageSeconds": 412, "badge": "dry-run"},
            {"at": "2026-11-20T09:00:00.000Z", "rule": "stale-terminal-job", "machineId": "m2", "tenant": "OPS", "issueIdentifier": null, "ageSeconds": 900, "badge": "destroyed"},
        ],
        "GET /api/runner-mode": {"mode": "default", "source": "default", "stored": null, "ineligible": [{"teamKey": "OPS", "reason": "VM sessions are not configured."}]},
        "POST /api/runner-mode": {"mode": "vm", "source": "stored", "stored": "vm", "ineligible": []},
        "GET /api/settings": {"vmSessionsApp": {"runtimeValue": "agent-sessions", "storedValue": "agent-sessions", "envValue": null, "overriddenByEnv": false}, "vmSessionsRegion": {"runtimeValue": "iad", "storedValue": "fra", "envValue": "iad", "overriddenByEnv": true}, "restartRequired": true},
        "POST /api/settings": {"vmSessionsApp": {"runtimeValue": "agent-sessions", "storedValue": "new-app", "envValue": null, "overriddenByEnv": false}, "vmSessionsRegion": {"runtimeValue": "iad", "storedValue": "fra", "envValue": "iad", "overriddenByEnv": true}, "restartRequired": true},
        "GET /api/global-secrets": [{"name": "NPM_TOKEN", "updatedAt": at}, {"name": "SENTRY_DSN", "updatedAt": at}],
        "GET /api/mappings/SHOP/secrets": [{"name": "STRIPE_KEY", "updatedAt": at}],
        "POST /api/mappings/SHOP/secrets": {"name": "NEW_ONE"},
        "DELETE /api/mappings/SHOP/secrets/STRIPE_KEY": {"deleted": true},
        "GET /api/audit?limit=200": [
            {"seq": 2, "at": at, "actor": "admin@192.0.2.1", "action": "mapping-updated", "target": "SHOP", "detail": title, "hash": "b2"},
            {"seq": 1, "at": "2026-11-20T09:00:00.000Z", "actor": "service", "action": "run-dispatched", "target": name, "detail": "implementation run", "hash": "a1"},
        ],
        "GET /api/customizations": {"root": "/etc/agent-implement/custom", "customizations": [
            {"path": format!("steps/{name}"), "category": "step", "status": "override", "upstreamPath": "steps/verify", "size": 2310, "modifiedAt": at},
            {"path": "pipelines/docs.yml", "category": "pipeline", "status": "additive", "upstreamPath": null, "size": 240, "modifiedAt": at},
            {"path": "notes.txt", "category": "other", "status": null, "upstreamPath": null, "size": 12, "modifiedAt": at},
        ]},
        "GET /api/pipelines-steps": {
            "pipelines": [
                {"id": "autonomous", "file": "src/pipeline/definitions/autonomous.yml", "status": "built-in", "error": null, "steps": [{"id": "clone", "type": "clone", "module": null, "status": "built-in"}, {"id": "install", "type": "install", "module": null, "status": "built-in"}, {"id": "verify", "type": "verify", "module": "custom/steps/verify", "status": "override"}]},
                {"id": "docs", "file": "custom/pipelines/docs.yml", "status": "additive", "error": title, "steps": []},
            ],
            "steps": [{"id": "clone", "builtinPath": "src/pipeline/steps/clone.rs", "customPath": null, "status": "built-in"}, {"id": "verify", "builtinPath": "src/pipeline/steps/verify.rs", "customPath": "custom/steps/verify", "status": "override"}],
        },
        "GET /api/admin/template-status": [
            {"teamKey": "SHOP", "owner": "acme", "repo": "shop", "planning": "current", "implementation": "current", "files": []},
            {"teamKey": "PAY", "owner": "acme", "repo": "payments", "planning": "missing", "implementation": "stale", "files": []},
            {"teamKey": "OPS", "owner": "acme", "repo": "infrastructure", "planning": "error", "implementation": "error", "files": [], "error": "GitHub answered 404"},
        ],
        "POST /api/mappings/SHOP/sync-workflows": {"status": "pr-opened", "targetRepo": "acme/shop", "baseBranch": "main", "syncBranch": "agent-implement/sync-workflows", "changedFiles": [".github/workflows/agent-implement.yml"], "prNumber": 41, "prUrl": "https://github.test/acme/shop/pull/41"},
        "POST /api/outbox/1/retry": {"retried": true},
    })
}

/// The same of a service that nobody has used yet.
pub fn nothing() -> Value {
    let mut answers = answers(&Words::plain());
    let pieces = answers.as_object_mut().unwrap();
    for (name, answer) in pieces.iter_mut() {
        match name.as_str() {
            "GET /api/pulls" => *answer = json!({"pulls": []}),
            "GET /api/customizations" => answer["customizations"] = json!([]),
            "GET /api/pipelines-steps" => *answer = json!({"pipelines": [], "steps": []}),
            _ if answer.is_array() => *answer = json!([]),
            _ => {}
        }
    }
    answers
}

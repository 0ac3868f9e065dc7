//! Issue lifecycle, row by row on both ticketing systems, and what triggers another run.
//! See docs/behaviour.md#issue-lifecycle.
//!
//! The engine is ticked manually, so that a ticket can be checked between two ticks.

use std::time::Duration;

use domain::issue::System;
use domain::job::Job;
use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, ScriptStep, ScriptedReview};
use futures_util::{StreamExt, stream};
use reqwest::Method;
use vendors::http::percent_encode;

use crate::planning::{PLANNING_PROMPT, planning_script, write_steps};
use crate::test_env::{Gate, TestEnv};
use crate::test_ticket::{SYSTEMS, TestTicket, github_mapping, mapping_for, with_planning};

const MINUTE: Duration = Duration::from_secs(60);

/// Start delay longer than any test: a run that is queued for so long does not start.
const LONGER_THAN_TEST: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of rows tested concurrently.
const MAX_CONCURRENT_ROWS: usize = 3;

/// Row of the lifecycle table: a transition and the expected state of the ticket after it.
struct Row {
    transition: &'static str,
    planning: bool,
    script: Script,
    to: Stop,
    /// Expected status of the ticket's last job.
    job: &'static str,
    /// Expected labels on Linear, without the label `bug`.
    labels: &'static [&'static str],
    /// Expected value of `Agent-Implement Status` on Jira.
    status: &'static str,
    /// Expected comments, complete.
    comments: Vec<ExpectedComment>,
}

/// Point at which a row is checked.
#[derive(Clone, Copy, PartialEq)]
enum Stop {
    /// The engine has polled the ticket; its mapping is paused.
    Seen,
    /// The n-th run is dispatched and has not started.
    Dispatched(usize),
    /// The n-th run has ended and its effects are performed.
    Ended(usize),
}

/// Expected comment.
enum ExpectedComment {
    /// The same text on both systems.
    Text(&'static str),
    /// Link to the pull request.
    PullRequest,
    /// Markdown on Linear, plain text on Jira.
    Formatted {
        linear: &'static str,
        jira: &'static str,
    },
    /// Log excerpt with this label, after all other comments.
    LogExcerpt(&'static str),
}

fn rows() -> Vec<Row> {
    use ExpectedComment::{Formatted, LogExcerpt, PullRequest, Text};
    use Stop::{Dispatched, Ended, Seen};
    let write_script = || Script::new().pass(write_steps());
    let plan = || planning_script([ScriptStep::message("A plan in one sentence.")]);
    let planned = Text("A plan in one sentence.");
    let finding = ScriptedReview::block("A race", "feature.txt:1", "two writers", "lock it");
    let secret = [
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::write(".env", "PASSWORD=correct-horse\n"),
        ScriptStep::write("id_rsa", "not even a key\n"),
    ];
    let row = |transition, to, script| Row {
        transition,
        planning: false,
        script,
        to,
        job: "",
        labels: &[],
        status: "",
        comments: Vec::new(),
    };
    vec![
        Row {
            labels: &["Agent-Implement"],
            status: "Ready",
            ..row("labelled: triggered", Seen, write_script())
        },
        Row {
            planning: true,
            job: "dispatched",
            labels: &["Agent-Implement", "Agent-Planning"],
            status: "Planning",
            ..row("triggered: planning", Dispatched(1), plan())
        },
        Row {
            job: "dispatched",
            labels: &["Agent-Implement", "Agent-Working"],
            status: "Implementing",
            ..row("triggered: implementing", Dispatched(1), write_script())
        },
        Row {
            planning: true,
            job: "completed",
            labels: &["Agent-Implement", "Plan-Complete"],
            status: "Plan Approved",
            comments: vec![planned],
            ..row("planning: plan complete", Ended(1), plan())
        },
        Row {
            planning: true,
            job: "failed",
            status: "Planning Failed",
            comments: vec![
                Text(
                    "Planning failed: model invocation failed with exit code 3: it exited without a result",
                ),
                LogExcerpt("session_failed"),
            ],
            ..row(
                "planning: failed",
                Ended(1),
                Script::new()
                    .pass_if_prompt_contains(PLANNING_PROMPT, [ScriptStep::Exit { code: 3 }]),
            )
        },
        Row {
            planning: true,
            job: "dispatched",
            labels: &["Agent-Implement", "Agent-Working"],
            status: "Implementing",
            comments: vec![Text("A plan in one sentence.")],
            ..row("plan complete: implementing", Dispatched(2), plan())
        },
        Row {
            job: "completed",
            labels: &["Agent-Implement", "Ready for Review"],
            status: "PR Ready",
            comments: vec![PullRequest],
            ..row(
                "implementing: pull request opened",
                Ended(1),
                write_script(),
            )
        },
        Row {
            planning: true,
            job: "completed",
            labels: &["Agent-Implement", "Ready for Review"],
            status: "PR Ready",
            comments: vec![Text("A plan in one sentence."), PullRequest],
            ..row(
                "implementing as planned: pull request opened",
                Ended(2),
                plan(),
            )
        },
        Row {
            job: "review_failed",
            labels: &["Agent-Implement", "Ready for Review"],
            status: "PR Ready",
            comments: vec![
                PullRequest,
                Formatted {
                    linear: "The pull request stays a draft: its review left blocking findings \
                             open.\n\n- A race (feature.txt:1): two writers",
                    jira: "The pull request stays a draft: its review left blocking findings \
                           open.\nA race (feature.txt:1): two writers",
                },
            ],
            ..row(
                "implementing: pull request opened with findings",
                Ended(1),
                write_script().review(finding),
            )
        },
        Row {
            job: "failed",
            status: "Implementation Failed",
            comments: vec![
                Text(
                    "Implementation failed: Nothing to commit: no file changes in the working tree",
                ),
                LogExcerpt("session_failed"),
            ],
            ..row(
                "implementing: failed",
                Ended(1),
                Script::new().pass([ScriptStep::message("There is nothing to do.")]),
            )
        },
        Row {
            job: "failed",
            status: "Implementation Failed",
            comments: vec![Formatted {
                linear: "🔒 Blocked by security guardrail\n\n\
                             Push blocked: 2 sensitive file(s) would be committed:\n\
                             - .env: environment and config files (file name)\n\
                             - id_rsa: private keys and certificates (file name)",
                jira: "🔒 Blocked by security guardrail\n\
                           Push blocked: 2 sensitive file(s) would be committed:\n\
                           .env: environment and config files (file name)\n\
                           id_rsa: private keys and certificates (file name)",
            }],
            ..row(
                "implementing: blocked by the guard",
                Ended(1),
                Script::new().pass(secret),
            )
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_the_lifecycle_shows_its_marker_and_its_comments() {
    let rows = rows();
    let checks = rows
        .iter()
        .flat_map(|row| SYSTEMS.map(|system| Box::pin(check_row(system, row))));
    stream::iter(checks)
        .for_each_concurrent(MAX_CONCURRENT_ROWS, |check| check)
        .await;
}

/// Takes a ticket through the row's transition and checks it.
async fn check_row(system: System, row: &Row) {
    let name = format!("{} on {system:?}", row.transition);
    let (team, key) = match system {
        System::Linear => ("ENG", "ENG-1"),
        System::Jira => ("OPS", "OPS-1"),
        System::GitHub => ("SHOP", "shop#1"),
    };
    let mut mapping = mapping_for(system, team);
    if row.planning {
        mapping = with_planning(mapping);
    }
    mapping.paused = row.to == Stop::Seen;
    let env = TestEnv::with_manual_engine([mapping]).await;
    let gate = Gate::new(&env);
    let mut script = row.script.clone();
    for pass in &mut script.passes {
        pass.steps.insert(0, gate.wait_step());
    }
    env.set_agent_script(key, script);
    let ticket = TestTicket::create(&env, system, key, "Add the feature");
    if let TestTicket::Linear(ticket) = &ticket {
        ticket.clone().add_label("bug");
    }
    if let TestTicket::GitHub(issue) = &ticket {
        issue.clone().add_label("bug");
    }
    ticket.trigger();
    advance_to(&env, &gate, key, row.to).await;

    let shown = match system {
        System::Linear | System::GitHub => [&["bug"], row.labels].concat(),
        System::Jira => vec![row.status],
    };
    assert_eq!(ticket.markers(), shown, "{name}");
    let last = env.jobs(key).pop();
    let status = last.map_or("", |job| job.state.status());
    assert_eq!(status, row.job, "{name}");
    assert_comments(&env, system, &ticket, row, &name);
    match row.to {
        Stop::Dispatched(_) => env.stop().await,
        Stop::Seen | Stop::Ended(_) => env.finish().await,
    }
}

/// Ticks the engine once for each dispatch and once for each end. No run ends during a tick.
async fn advance_to(env: &TestEnv, gate: &Gate, key: &str, to: Stop) {
    let (runs, held) = match to {
        Stop::Seen => return env.tick().await,
        Stop::Dispatched(runs) => (runs, true),
        Stop::Ended(runs) => (runs, false),
    };
    for number in 1..=runs {
        if held && number == runs {
            env.vendors.github().set_start_delay(LONGER_THAN_TEST);
        }
        // Jobs are sorted by time.
        env.advance_clock(MINUTE);
        gate.close();
        env.tick().await;
        gate.open();
        let jobs = env.jobs(key);
        assert_eq!(jobs.len(), number, "{jobs:#?}");
        if number < runs || !held {
            wait_for_ends(env, &[key]).await;
        }
    }
}

/// Waits until the jobs and CI runs of these tickets have ended, then ticks the engine to perform the
/// effects.
async fn wait_for_ends(env: &TestEnv, keys: &[&str]) {
    let has_ended = |key: &&str| env.jobs(key).iter().all(|job| !job.is_active());
    let has_left = |key: &str| {
        let runs = env.vendors.github().runs_after(0);
        let mut own = runs
            .iter()
            .filter(|(_, run)| run.inputs["issue_identifier"] == key);
        own.all(|(_, run)| run.status == "completed")
    };
    env.wait_until(&format!("{keys:?} have ended"), || {
        keys.iter().all(|key| has_ended(key) && has_left(key))
    })
    .await;
    env.tick().await;
}

fn assert_comments(env: &TestEnv, system: System, ticket: &TestTicket, row: &Row, name: &str) {
    let texts: Vec<String> = row
        .comments
        .iter()
        .filter_map(|comment| comment.text(env, system))
        .collect();
    let labels: Vec<&str> = row
        .comments
        .iter()
        .filter_map(ExpectedComment::label)
        .collect();
    let comments = ticket.comments();
    assert_eq!(
        comments.len(),
        texts.len() + labels.len(),
        "{name}: {comments:#?}"
    );
    let (first, after) = comments.split_at(texts.len());
    assert_eq!(first, texts, "{name}");
    for (comment, label) in after.iter().zip(labels) {
        let is_excerpt = comment.starts_with("Log excerpt (") && comment.contains(label);
        assert!(is_excerpt, "{name}: {comment}");
    }
}

impl ExpectedComment {
    /// Label of a log excerpt.
    fn label(&self) -> Option<&'static str> {
        match self {
            ExpectedComment::LogExcerpt(label) => Some(label),
            ExpectedComment::Text(_)
            | ExpectedComment::Formatted { .. }
            | ExpectedComment::PullRequest => None,
        }
    }

    /// Expected text. `None` for a log excerpt.
    fn text(&self, env: &TestEnv, system: System) -> Option<String> {
        let repo = env.repo();
        Some(match (self, system) {
            (ExpectedComment::Text(text), _) => (*text).to_owned(),
            (ExpectedComment::Formatted { linear, .. }, System::Linear | System::GitHub) => {
                (*linear).to_owned()
            }
            (ExpectedComment::Formatted { jira, .. }, System::Jira) => (*jira).to_owned(),
            (ExpectedComment::PullRequest, System::Linear | System::GitHub) => {
                let number = repo.pulls()[0].number;
                format!(
                    "Pull request opened: [#{number}]({})",
                    repo.pull_url(number)
                )
            }
            (ExpectedComment::PullRequest, System::Jira) => {
                format!("Pull request opened: #{}", repo.pulls()[0].number)
            }
            (ExpectedComment::LogExcerpt(_), _) => return None,
        })
    }
}

/// Ticket whose work has ended, with the expected result.
struct FinishedTicket {
    key: &'static str,
    system: System,
    script: Script,
    job: &'static str,
    /// Expected first comment. Empty for the link to the pull request.
    first_comment: &'static str,
}

/// Tickets of all systems with failed planning, failed implementation, a timeout and an opened pull
/// request. The projects `PLAN`, `PLANS` and `REPO` have planning enabled.
fn finished_tickets() -> Vec<FinishedTicket> {
    let idle = || Script::new().pass([ScriptStep::message("There is nothing to do.")]);
    let no_plan = || Script::new().pass([ScriptStep::Exit { code: 3 }]);
    let hangs = || Script::new().pass([ScriptStep::Hang]);
    let write_script = || Script::new().pass(write_steps());
    let finished = |key, system, script, job, first_comment| FinishedTicket {
        key,
        system,
        script,
        job,
        first_comment,
    };
    let without_plan =
        "Planning failed: model invocation failed with exit code 3: it exited without a result";
    let without_change =
        "Implementation failed: Nothing to commit: no file changes in the working tree";
    let too_long = "Implementation failed: the run exceeded its time budget of 90 minutes";
    vec![
        finished("PLAN-1", System::Linear, no_plan(), "failed", without_plan),
        finished("ENG-1", System::Linear, idle(), "failed", without_change),
        finished("ENG-2", System::Linear, hangs(), "timed_out", too_long),
        finished("ENG-3", System::Linear, write_script(), "completed", ""),
        finished("PLANS-1", System::Jira, no_plan(), "failed", without_plan),
        finished("OPS-1", System::Jira, idle(), "failed", without_change),
        finished("OPS-2", System::Jira, hangs(), "timed_out", too_long),
        finished("OPS-3", System::Jira, write_script(), "completed", ""),
        finished("plan#1", System::GitHub, no_plan(), "failed", without_plan),
        finished("shop#1", System::GitHub, idle(), "failed", without_change),
        finished("shop#2", System::GitHub, hangs(), "timed_out", too_long),
        finished("shop#3", System::GitHub, write_script(), "completed", ""),
    ]
}

impl FinishedTicket {
    fn is_final(&self) -> bool {
        self.job == "completed"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_ticket_runs_again_only_when_triggered_again() {
    let with_high_cap = |system, team| Mapping {
        max_in_progress: 10,
        ..mapping_for(system, team)
    };
    let env = TestEnv::with_manual_engine([
        with_high_cap(System::Linear, "ENG"),
        with_planning(mapping_for(System::Linear, "PLAN")),
        with_high_cap(System::Jira, "OPS"),
        with_planning(mapping_for(System::Jira, "PLANS")),
        with_high_cap(System::GitHub, "SHOP"),
        with_planning(github_mapping("REPO", "acme", "plan")),
    ])
    .await;
    env.seed_repo("plan");
    let finished_tickets = finished_tickets();
    let tickets: Vec<TestTicket> = finished_tickets
        .iter()
        .map(|finished| create_and_trigger(&env, finished))
        .collect();
    env.tick().await;
    let ends = finished_tickets
        .iter()
        .filter(|finished| finished.job != "timed_out");
    wait_for_ends(&env, &ends.map(|finished| finished.key).collect::<Vec<_>>()).await;
    env.advance_clock(95 * MINUTE);
    env.tick().await;
    wait_for_ends(
        &env,
        &finished_tickets
            .iter()
            .map(|finished| finished.key)
            .collect::<Vec<_>>(),
    )
    .await;
    for (finished, ticket) in finished_tickets.iter().zip(&tickets) {
        let comment = &ticket.comments()[0];
        if finished.is_final() {
            assert!(comment.starts_with("Pull request opened: "), "{comment}");
        } else {
            assert_eq!(comment, finished.first_comment, "{}", finished.key);
        }
    }
    clear_dedup(&env, &finished_tickets).await;

    env.tick_until_drained().await;
    let before = snapshot(&env, &finished_tickets, &tickets);
    for _ in 0..50 {
        env.advance_clock(MINUTE);
        env.tick().await;
    }
    for (now, then) in snapshot(&env, &finished_tickets, &tickets)
        .iter()
        .zip(&before)
    {
        assert_eq!(now, then);
    }

    env.vendors.github().set_start_delay(LONGER_THAN_TEST);
    tickets.iter().for_each(TestTicket::trigger);
    env.tick().await;
    for finished in &finished_tickets {
        let numbers: Vec<u32> = env
            .jobs(finished.key)
            .iter()
            .map(|job| job.dispatch_number)
            .collect();
        // Jira has a single status field: setting it to `Ready` removes `PR Ready`.
        let expected: &[u32] = match (finished.is_final(), finished.system) {
            (true, System::Linear | System::GitHub) => &[1],
            _ => &[1, 2],
        };
        assert_eq!(numbers, expected, "{}", finished.key);
    }
    env.stop().await;
}

fn create_and_trigger(env: &TestEnv, finished: &FinishedTicket) -> TestTicket {
    env.set_agent_script(finished.key, finished.script.clone());
    let ticket = TestTicket::create(env, finished.system, finished.key, "Add the feature");
    ticket.trigger();
    ticket
}

/// Deletes the dedup entries, so that they do not prevent a dispatch. Only tickets with an opened
/// pull request have one.
async fn clear_dedup(env: &TestEnv, finished_tickets: &[FinishedTicket]) {
    let entries = env.admin_get("/api/dedup").await;
    let mut held: Vec<&str> = entries
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["issueIdentifier"].as_str())
        .collect();
    held.sort_unstable();
    let mut finals: Vec<&str> = finished_tickets
        .iter()
        .filter(|finished| finished.is_final())
        .map(|finished| finished.key)
        .collect();
    finals.sort_unstable();
    assert_eq!(held, finals);
    for key in finals {
        let (status, _) = env
            .admin_request(
                Method::DELETE,
                &format!("/api/dedup/{}", percent_encode(key)),
                None,
            )
            .await;
        assert_eq!(status, 200);
    }
}

/// Debug output of everything that another run would change.
fn snapshot(
    env: &TestEnv,
    finished_tickets: &[FinishedTicket],
    tickets: &[TestTicket],
) -> Vec<String> {
    let mut seen: Vec<String> = tickets.iter().map(TestTicket::snapshot_text).collect();
    for finished in finished_tickets {
        let jobs = env.jobs(finished.key);
        let [job] = &jobs[..] else {
            panic!("{jobs:#?}")
        };
        assert_eq!(job.state.status(), finished.job, "{}", finished.key);
        // A cancelled run may still report its result at any moment.
        let job = Job {
            result_accepted: true,
            ..job.clone()
        };
        seen.push(format!("{job:#?}"));
    }
    seen.push(format!("{:#?}", env.repo().runs()));
    seen.push(format!("{:#?}", env.repo().pulls()));
    seen.push(format!("{:#?}", env.vendors.chat().messages()));
    seen
}

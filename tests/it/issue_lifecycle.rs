//! The spec's *Issue lifecycle*, row by row and on both systems; and what asks for another run.
//!
//! The engine is turned by hand, so that a ticket can be looked at between two of its turns.

use std::time::Duration;

use domain::issue::System;
use domain::job::Job;
use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, ScriptStep, ScriptedReview};
use futures_util::{StreamExt, stream};
use reqwest::Method;

use crate::planning::{PLANNING_PROMPT, planning_script, write_steps};
use crate::test_env::{Gate, TestEnv};
use crate::test_ticket::{SYSTEMS, TestTicket, mapping_for, with_planning};

const MINUTE: Duration = Duration::from_secs(60);

/// Longer than any story: a run that is queued for so long does not begin.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// How many walks go side by side?
const SIDE_BY_SIDE: usize = 3;

/// A row of the table: where a ticket is taken, and what it shows there.
struct Row {
    moves: &'static str,
    planning: bool,
    script: Script,
    to: Stop,
    /// Its last job's status.
    job: &'static str,
    /// On Linear: all of its labels beside the one that is not ours.
    labels: &'static [&'static str],
    /// On Jira: the value of `Agent-Implement Status`.
    status: &'static str,
    /// All of its comments.
    said: Vec<Said>,
}

/// Where a walk ends.
#[derive(Clone, Copy, PartialEq)]
enum Stop {
    /// The engine has seen the ticket; its mapping is paused.
    Seen,
    /// The n-th run is dispatched, and has not begun.
    Dispatched(usize),
    /// The n-th run has ended, and all it owed is told.
    Ended(usize),
}

/// One comment.
enum Said {
    /// The same words on both systems.
    Words(&'static str),
    /// The link to the pull request.
    PullRequest,
    /// Markdown on Linear, and its words on Jira.
    Formed {
        linear: &'static str,
        jira: &'static str,
    },
    /// The end of the run's log under its label, after everything else.
    Excerpt(&'static str),
}

fn rows() -> Vec<Row> {
    use Said::{Excerpt, Formed, PullRequest, Words};
    use Stop::{Dispatched, Ended, Seen};
    let works = || Script::new().pass(write_steps());
    let plan = || planning_script([ScriptStep::message("A plan in one sentence.")]);
    let planned = Words("A plan in one sentence.");
    let finding = ScriptedReview::block("A race", "feature.txt:1", "two writers", "lock it");
    let secret = [
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::write(".env", "PASSWORD=correct-horse\n"),
        ScriptStep::write("id_rsa", "not even a key\n"),
    ];
    let row = |moves, to, script| Row {
        moves,
        planning: false,
        script,
        to,
        job: "",
        labels: &[],
        status: "",
        said: Vec::new(),
    };
    vec![
        Row {
            labels: &["Agent-Implement"],
            status: "Ready",
            ..row("flagged: triggered", Seen, works())
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
            ..row("triggered: implementing", Dispatched(1), works())
        },
        Row {
            planning: true,
            job: "completed",
            labels: &["Agent-Implement", "Plan-Complete"],
            status: "Plan Approved",
            said: vec![planned],
            ..row("planning: plan complete", Ended(1), plan())
        },
        Row {
            planning: true,
            job: "failed",
            status: "Planning Failed",
            said: vec![
                Words(
                    "Planning failed: model invocation failed with exit code 3: it ended without a result",
                ),
                Excerpt("session_failed"),
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
            said: vec![Words("A plan in one sentence.")],
            ..row("plan complete: implementing", Dispatched(2), plan())
        },
        Row {
            job: "completed",
            labels: &["Agent-Implement", "Ready for Review"],
            status: "PR Ready",
            said: vec![PullRequest],
            ..row("implementing: pull request opened", Ended(1), works())
        },
        Row {
            planning: true,
            job: "completed",
            labels: &["Agent-Implement", "Ready for Review"],
            status: "PR Ready",
            said: vec![Words("A plan in one sentence."), PullRequest],
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
            said: vec![
                PullRequest,
                Formed {
                    linear: "The pull request stays a draft: its review left blocking findings \
                             open.\n\n- A race (feature.txt:1): two writers",
                    jira: "The pull request stays a draft: its review left blocking findings \
                           open.\nA race (feature.txt:1): two writers",
                },
            ],
            ..row(
                "implementing: pull request opened with findings",
                Ended(1),
                works().review(finding),
            )
        },
        Row {
            job: "failed",
            status: "Implementation Failed",
            said: vec![
                Words(
                    "Implementation failed: Nothing to commit: no file changes in the working tree",
                ),
                Excerpt("session_failed"),
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
            said: vec![Formed {
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
    let walks = rows
        .iter()
        .flat_map(|row| SYSTEMS.map(|system| Box::pin(walk(system, row))));
    stream::iter(walks)
        .for_each_concurrent(SIDE_BY_SIDE, |walk| walk)
        .await;
}

/// Takes a ticket along its row and looks at it.
async fn walk(system: System, row: &Row) {
    let name = format!("{} on {system:?}", row.moves);
    let (team, key) = match system {
        System::Linear => ("ENG", "ENG-1"),
        System::Jira => ("OPS", "OPS-1"),
    };
    let mut mapping = mapping_for(system, team);
    if row.planning {
        mapping = with_planning(mapping);
    }
    mapping.paused = row.to == Stop::Seen;
    let world = TestEnv::with_manual_engine([mapping]).await;
    let gate = Gate::new(&world);
    let mut script = row.script.clone();
    for pass in &mut script.passes {
        pass.steps.insert(0, gate.wait_step());
    }
    world.set_agent_script(key, script);
    let ticket = TestTicket::create(&world, system, key, "Add the feature");
    if let TestTicket::Linear(ticket) = &ticket {
        ticket.clone().add_label("bug");
    }
    ticket.trigger();
    advance(&world, &gate, key, row.to).await;

    let shown = match system {
        System::Linear => [&["bug"], row.labels].concat(),
        System::Jira => vec![row.status],
    };
    assert_eq!(ticket.markers(), shown, "{name}");
    let last = world.jobs(key).pop();
    let status = last.map_or("", |job| job.state.status());
    assert_eq!(status, row.job, "{name}");
    compare(&world, system, &ticket, row, &name);
    match row.to {
        Stop::Dispatched(_) => world.stop().await,
        Stop::Seen | Stop::Ended(_) => world.finish().await,
    }
}

/// Turns the engine once for each dispatch and once for each end. No run ends while it turns.
async fn advance(world: &TestEnv, gate: &Gate, key: &str, to: Stop) {
    let (runs, held) = match to {
        Stop::Seen => return world.tick().await,
        Stop::Dispatched(runs) => (runs, true),
        Stop::Ended(runs) => (runs, false),
    };
    for number in 1..=runs {
        if held && number == runs {
            world.vendors.github().set_start_delay(FOR_EVER);
        }
        // Jobs are in the order of their time.
        world.advance_clock(MINUTE);
        gate.close();
        world.tick().await;
        gate.open();
        let jobs = world.jobs(key);
        assert_eq!(jobs.len(), number, "{jobs:#?}");
        if number < runs || !held {
            tell_the_ends(world, &[key]).await;
        }
    }
}

/// Waits until every run but the hanging ones has reported and left its host, and tells what they
/// reported.
async fn tell_the_ends(world: &TestEnv, keys: &[&str]) {
    let has_ended = |key: &&str| world.jobs(key).iter().all(|job| !job.is_active());
    let has_left = |key: &str| {
        let runs = world.repo().runs();
        let mut own = runs
            .iter()
            .filter(|run| run.inputs["issue_identifier"] == key);
        own.all(|run| run.status == "completed")
    };
    world
        .wait_until(&format!("{keys:?} have ended"), || {
            keys.iter().all(|key| has_ended(key) && has_left(key))
        })
        .await;
    world.tick().await;
}

fn compare(world: &TestEnv, system: System, ticket: &TestTicket, row: &Row, name: &str) {
    let words: Vec<String> = row
        .said
        .iter()
        .filter_map(|said| said.words(world, system))
        .collect();
    let follow: Vec<&str> = row.said.iter().filter_map(Said::label).collect();
    let comments = ticket.comments();
    assert_eq!(
        comments.len(),
        words.len() + follow.len(),
        "{name}: {comments:#?}"
    );
    let (told, after) = comments.split_at(words.len());
    assert_eq!(told, words, "{name}");
    for (comment, label) in after.iter().zip(follow) {
        let is_excerpt = comment.starts_with("Log excerpt (") && comment.contains(label);
        assert!(is_excerpt, "{name}: {comment}");
    }
}

impl Said {
    /// What a log excerpt is labelled with.
    fn label(&self) -> Option<&'static str> {
        match self {
            Said::Excerpt(label) => Some(label),
            Said::Words(_) | Said::Formed { .. } | Said::PullRequest => None,
        }
    }

    /// All of its words, as far as they are known.
    fn words(&self, world: &TestEnv, system: System) -> Option<String> {
        let repo = world.repo();
        Some(match (self, system) {
            (Said::Words(words), _) => (*words).to_owned(),
            (Said::Formed { linear, .. }, System::Linear) => (*linear).to_owned(),
            (Said::Formed { jira, .. }, System::Jira) => (*jira).to_owned(),
            (Said::PullRequest, System::Linear) => {
                let number = repo.pulls()[0].number;
                format!(
                    "Pull request opened: [#{number}]({})",
                    repo.pull_url(number)
                )
            }
            (Said::PullRequest, System::Jira) => {
                format!("Pull request opened: #{}", repo.pulls()[0].number)
            }
            (Said::Excerpt(_), _) => return None,
        })
    }
}

/// A ticket whose work is over, and how it came to that.
struct Over {
    key: &'static str,
    system: System,
    script: Script,
    job: &'static str,
    /// Its first comment; the link to the pull request when it is empty.
    said: &'static str,
}

/// Planning failed, implementation failed, timed out, pull request opened: on either system. The
/// teams `PLAN` and `PLANS` plan first.
fn overs() -> Vec<Over> {
    let idle = || Script::new().pass([ScriptStep::message("There is nothing to do.")]);
    let no_plan = || Script::new().pass([ScriptStep::Exit { code: 3 }]);
    let hangs = || Script::new().pass([ScriptStep::Hang]);
    let works = || Script::new().pass(write_steps());
    let over = |key, system, script, job, said| Over {
        key,
        system,
        script,
        job,
        said,
    };
    let without_plan =
        "Planning failed: model invocation failed with exit code 3: it ended without a result";
    let without_change =
        "Implementation failed: Nothing to commit: no file changes in the working tree";
    let too_long = "Implementation failed: the run exceeded its time budget of 90 minutes";
    vec![
        over("PLAN-1", System::Linear, no_plan(), "failed", without_plan),
        over("ENG-1", System::Linear, idle(), "failed", without_change),
        over("ENG-2", System::Linear, hangs(), "timed_out", too_long),
        over("ENG-3", System::Linear, works(), "completed", ""),
        over("PLANS-1", System::Jira, no_plan(), "failed", without_plan),
        over("OPS-1", System::Jira, idle(), "failed", without_change),
        over("OPS-2", System::Jira, hangs(), "timed_out", too_long),
        over("OPS-3", System::Jira, works(), "completed", ""),
    ]
}

impl Over {
    fn is_final(&self) -> bool {
        self.job == "completed"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_runs_again_only_when_it_is_asked_for_again() {
    let roomy = |system, team| Mapping {
        max_in_progress: 10,
        ..mapping_for(system, team)
    };
    let world = TestEnv::with_manual_engine([
        roomy(System::Linear, "ENG"),
        with_planning(mapping_for(System::Linear, "PLAN")),
        roomy(System::Jira, "OPS"),
        with_planning(mapping_for(System::Jira, "PLANS")),
    ])
    .await;
    let overs = overs();
    let tickets: Vec<TestTicket> = overs.iter().map(|over| file(&world, over)).collect();
    world.tick().await;
    let ends = overs.iter().filter(|over| over.job != "timed_out");
    tell_the_ends(&world, &ends.map(|over| over.key).collect::<Vec<_>>()).await;
    world.advance_clock(95 * MINUTE);
    world.tick().await;
    tell_the_ends(
        &world,
        &overs.iter().map(|over| over.key).collect::<Vec<_>>(),
    )
    .await;
    for (over, ticket) in overs.iter().zip(&tickets) {
        let said = &ticket.comments()[0];
        if over.is_final() {
            assert!(said.starts_with("Pull request opened: "), "{said}");
        } else {
            assert_eq!(said, over.said, "{}", over.key);
        }
    }
    free_dedup(&world, &overs).await;

    world.tick_until_drained().await;
    let before = look(&world, &overs, &tickets);
    for _ in 0..50 {
        world.advance_clock(MINUTE);
        world.tick().await;
    }
    for (now, then) in look(&world, &overs, &tickets).iter().zip(&before) {
        assert_eq!(now, then);
    }

    world.vendors.github().set_start_delay(FOR_EVER);
    tickets.iter().for_each(TestTicket::trigger);
    world.tick().await;
    for over in &overs {
        let numbers: Vec<u32> = world
            .jobs(over.key)
            .iter()
            .map(|job| job.dispatch_number)
            .collect();
        // Jira has one field: a person who sets it to `Ready` takes `PR Ready` away.
        let expected: &[u32] = match (over.is_final(), over.system) {
            (true, System::Linear) => &[1],
            _ => &[1, 2],
        };
        assert_eq!(numbers, expected, "{}", over.key);
    }
    world.stop().await;
}

fn file(world: &TestEnv, over: &Over) -> TestTicket {
    world.set_agent_script(over.key, over.script.clone());
    let ticket = TestTicket::create(world, over.system, over.key, "Add the feature");
    ticket.trigger();
    ticket
}

/// Only the opened pull requests have an entry in the dedup window; it shall not be what holds them.
async fn free_dedup(world: &TestEnv, overs: &[Over]) {
    let entries = world.admin_get("/api/dedup").await;
    let mut held: Vec<&str> = entries
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|entry| entry["issueIdentifier"].as_str())
        .collect();
    held.sort_unstable();
    let finals: Vec<&str> = overs
        .iter()
        .filter(|over| over.is_final())
        .map(|over| over.key)
        .collect();
    assert_eq!(held, finals);
    for key in finals {
        let (status, _) = world
            .admin_request(Method::DELETE, &format!("/api/dedup/{key}"), None)
            .await;
        assert_eq!(status, 200);
    }
}

/// Everything that another run would change.
fn look(world: &TestEnv, overs: &[Over], tickets: &[TestTicket]) -> Vec<String> {
    let mut seen: Vec<String> = tickets.iter().map(TestTicket::snapshot_text).collect();
    for over in overs {
        let jobs = world.jobs(over.key);
        let [job] = &jobs[..] else {
            panic!("{jobs:#?}")
        };
        assert_eq!(job.state.status(), over.job, "{}", over.key);
        // A run that is cancelled may still get its last word through, at any moment.
        let job = Job {
            result_accepted: true,
            ..job.clone()
        };
        seen.push(format!("{job:#?}"));
    }
    seen.push(format!("{:#?}", world.repo().runs()));
    seen.push(format!("{:#?}", world.repo().pulls()));
    seen.push(format!("{:#?}", world.vendors.chat().messages()));
    seen
}

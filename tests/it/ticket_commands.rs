//! Commands in comments on tickets, on all ticketing systems.

use std::time::Duration;

use domain::issue::System;
use domain::job::{Job, JobState};
use domain::report::FailureCode;
use fake_vendors::scripted_agent::Script;
use fake_vendors::{FakeAuthor, InjectedFault};

use crate::planning::write_steps;
use crate::test_env::{EngineMode, Gate, TestEnv, TestEnvOptions};
use crate::test_ticket::{
    SYSTEMS, TestTicket, example_key, example_team, mapping_for, poll_comments, settle,
};

const HELP: &str = "Commands: ";

/// Ticket with an active run whose agent waits for the gate.
struct Story {
    env: TestEnv,
    ticket: TestTicket,
    key: String,
    gate: Gate,
}

impl Story {
    async fn start(system: System) -> Self {
        Self::start_with_faults(system, 0).await
    }

    /// Starts a story in which this number of requests for the comments of a ticket fail.
    async fn start_with_faults(system: System, faults: usize) -> Self {
        let mapping = mapping_for(system, example_team(system));
        let env = TestEnv::with_manual_engine([mapping]).await;
        let key = example_key(system, 7);
        let gate = Gate::new(&env);
        let steps = [gate.wait_step()].into_iter().chain(write_steps());
        env.set_agent_script(&key, Script::new().pass(steps));
        let ticket = TestTicket::create(&env, system, &key, "Add a cart");
        ticket.trigger();
        for _ in 0..faults {
            let fault = InjectedFault::ErrorStatus(502);
            env.ticketing_faults(system)
                .inject_on_match(comments_request(system), fault);
        }
        let is_running = || env.jobs(&key).last().is_some_and(|job| job.run.is_some());
        env.tick_until("the run is active", is_running).await;
        settle(&env).await;
        Self {
            env,
            ticket,
            key,
            gate,
        }
    }

    async fn restart_service(self) -> Self {
        let options = TestEnvOptions {
            mappings: Vec::new(),
            engine: EngineMode::manual(),
            ..TestEnvOptions::default()
        };
        let env = self.env.restart_service(options).await;
        Self { env, ..self }
    }

    /// Writes a command and waits for this number of comments that begin with the reply.
    async fn command(&self, text: &str, reply: &str) {
        self.ticket.comment(text);
        let is_answered = || self.ticket.count(reply) == 1;
        self.env
            .tick_until(&format!("{text} is answered"), is_answered)
            .await;
        settle(&self.env).await;
    }

    /// Polls several times. Nobody writes a comment or starts a run.
    async fn nothing_happens(&self) {
        let before = (self.ticket.comments(), self.env.jobs(&self.key).len());
        self.env.advance_clock(Duration::from_secs(1));
        poll_comments(&self.env).await;
        settle(&self.env).await;
        let after = (self.ticket.comments(), self.env.jobs(&self.key).len());
        assert_eq!(after, before);
    }
}

/// Part of the requests of a poll for comments of a ticket.
fn comments_request(system: System) -> &'static str {
    match system {
        System::Jira => "orderBy=-created",
        System::GitHub => "Issue { comments(",
        System::Linear => unreachable!("a part of the poll"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_ask_for_the_status_and_cancel_the_run() {
    for system in SYSTEMS {
        let story = Story::start(system).await;
        let ticket = &story.ticket;
        for author in [FakeAuthor::app("CI"), FakeAuthor::external("Eve")] {
            ticket.comment_as(&author, "/agent-implement cancel");
        }
        ticket.comment("Please /agent-implement cancel");
        ticket.comment("> /agent-implement cancel");
        story.nothing_happens().await;
        assert!(story.env.jobs(&story.key)[0].is_active());

        story
            .command("/agent-implement status", "Implementation is running for ")
            .await;
        story.command("/agent-implement dance\nwith me", HELP).await;
        let help = ticket.comments().pop().unwrap();
        assert!(help.lines().count() <= 3, "{help}");
        story
            .command(
                "/agent-implement approve",
                "No plan of this ticket waits for approval.",
            )
            .await;
        story
            .command("/agent-implement retry", "A run of this ticket is active.")
            .await;
        story.nothing_happens().await;

        ticket.comment("/agent-implement cancel");
        let is_over = || !story.env.jobs(&story.key)[0].is_active();
        story.env.tick_until("the run is cancelled", is_over).await;
        settle(&story.env).await;
        let state = story.env.jobs(&story.key).pop().unwrap().state;
        let code = Some(FailureCode::Cancelled);
        assert!(
            matches!(&state, JobState::Failed { code: found, .. } if *found == code),
            "{state:?}"
        );
        story.nothing_happens().await;
        let audit = story.env.admin_get("/api/audit?limit=500").await;
        let commands = audit.as_array().unwrap().iter();
        let commands = commands.filter(|entry| entry["action"] == "ticket-command");
        assert_eq!(commands.count(), 5);
        story.gate.open();
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_counts_once_across_restarts() {
    for system in SYSTEMS {
        let story = Story::start(system).await;
        story
            .command("/agent-implement status", "Implementation is running for ")
            .await;
        let story = story.restart_service().await;
        story.nothing_happens().await;
        story.env.stop().await;
    }
}

/// Which commands count is known from the first poll on, also if no comments could be read before a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_from_before_the_first_reading_counts_after_a_restart() {
    for system in [System::Jira, System::GitHub] {
        let story = Story::start_with_faults(system, 100).await;
        let faults = story.env.ticketing_faults(system);
        assert_ne!(faults.injected(), [], "{system:?}");
        let text = "/agent-implement status";
        story.ticket.comment(text);
        faults.clear();
        let story = story.restart_service().await;
        story.env.advance_clock(Duration::from_secs(2));
        let is_answered = || story.ticket.count("Implementation is running for ") == 1;
        story.env.tick_until(text, is_answered).await;
        story.env.stop().await;
    }
}

/// Polls find the command also on a ticket that nothing flags any more, without a webhook.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_retries_a_cancelled_run() {
    for system in SYSTEMS {
        let story = Story::start(system).await;
        let kim = FakeAuthor::person("Kim");
        story.ticket.comment_as(&kim, "/agent-implement cancel");
        let is_over = || !story.env.jobs(&story.key)[0].is_active();
        story.env.tick_until("the run is cancelled", is_over).await;
        settle(&story.env).await;
        let cancelled = "Implementation cancelled by Kim.";
        assert_eq!(story.ticket.count(cancelled), 1);
        assert_eq!(story.ticket.markers(), [""; 0]);
        story.gate.open();
        story.env.advance_clock(Duration::from_secs(1));
        story
            .command("/agent-implement status", "Implementation cancelled")
            .await;
        story
            .command("/agent-implement retry", "Another run starts.")
            .await;
        let is_complete = || {
            let jobs = story.env.jobs(&story.key);
            jobs.len() == 2 && jobs.iter().any(Job::has_opened_pull_request)
        };
        story
            .env
            .tick_until("the work is complete", is_complete)
            .await;
        settle(&story.env).await;
        assert_eq!(story.env.repo().pulls().len(), 1);
        story.env.finish().await;
    }
}

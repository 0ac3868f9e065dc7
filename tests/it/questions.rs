//! Questions of runs, on all ticketing systems: the wait, the ways to answer, the next run, and what does not count.

mod bounds;
mod reachability;

use std::path::PathBuf;
use std::time::Duration;

use domain::issue::System;
use domain::job::{Job, JobState};
use domain::mapping::Mapping;
use domain::report::FailureCode;
use fake_vendors::FakeAuthor;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use reqwest::Method;
use serde_json::{Value, json};
use vendors::http::percent_encode;

use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};
use crate::test_ticket::{
    SYSTEMS, TestTicket, call_on_command_line, example_key, example_team, mapping_for,
    poll_comments, set_clock_ahead, settle,
};

/// Beginning of the comment with a question.
const ASKS: &str = "The implementation needs an answer from you:";

/// Beginning of the reply to an answer by comment.
const ANSWERED: &str = "Thanks. The work goes on with this answer.";

/// Longer than the quiet time of an answer.
const QUIET: Duration = Duration::from_secs(62);

/// Ticket with a script that asks, and its environment.
struct Story {
    env: TestEnv,
    ticket: TestTicket,
    key: String,
}

fn question() -> Value {
    json!([{"text": "Which currency?", "choices": ["EUR", "USD"], "default": "EUR"}])
}

/// Steps of a run that writes a line, and then asks.
fn asking(line: &str, questions: Value) -> [ScriptStep; 3] {
    [
        ScriptStep::append("cart.txt", line),
        ScriptStep::ask(questions),
        ScriptStep::message("I need to know more."),
    ]
}

impl Story {
    async fn start(system: System, change: impl FnOnce(&mut Mapping)) -> Self {
        Self::with_options(system, change, TestEnvOptions::default()).await
    }

    async fn with_options(
        system: System,
        change: impl FnOnce(&mut Mapping),
        options: TestEnvOptions,
    ) -> Self {
        let mut mapping = mapping_for(system, example_team(system));
        change(&mut mapping);
        let env = TestEnv::with_options(TestEnvOptions {
            mappings: vec![mapping],
            engine: EngineMode::manual(),
            ..options
        })
        .await;
        let key = example_key(system, 7);
        let ticket = TestTicket::create(&env, system, &key, "Add a cart");
        ticket.describe("It holds things.");
        let story = Self { env, ticket, key };
        story.set_script(
            Script::new()
                .pass(asking("begun\n", question()))
                .pass(story.finishing("done\n")),
        );
        story
    }

    fn set_script(&self, script: Script) {
        self.env.set_agent_script(&self.key, script);
    }

    fn prompt_file(&self) -> PathBuf {
        self.env.dir().join("prompt")
    }

    /// Steps of a run that saves its prompt, writes a line and completes the work.
    fn finishing(&self, line: &str) -> [ScriptStep; 3] {
        [
            ScriptStep::save_prompt(self.prompt_file()),
            ScriptStep::append("cart.txt", line),
            ScriptStep::message("Done."),
        ]
    }

    fn prompt(&self) -> String {
        std::fs::read_to_string(self.prompt_file()).unwrap()
    }

    fn jobs(&self) -> Vec<Job> {
        self.env.jobs(&self.key)
    }

    /// Triggers a run and waits until it has asked and its effects are performed.
    async fn ask(&self) {
        self.ticket.trigger();
        self.asked(1).await;
    }

    /// Waits for this number of questions.
    async fn asked(&self, count: usize) {
        let is_asked = || self.ticket.count(ASKS) == count;
        self.env.tick_until("the question is asked", is_asked).await;
        settle(&self.env).await;
    }

    /// Makes a comment as an answer count, and waits until the next run has opened its pull request.
    async fn complete_after_comment(&self) {
        poll_comments(&self.env).await;
        set_clock_ahead(&self.env, QUIET);
        self.complete().await;
    }

    async fn complete(&self) {
        let is_complete = || self.jobs().iter().any(Job::has_opened_pull_request);
        self.env
            .tick_until("the pull request is open", is_complete)
            .await;
        settle(&self.env).await;
    }

    /// Checks that the next run continued the work on the same branch, in one pull request.
    fn assert_continued(&self, content: &str) {
        let runs = self.env.repo().runs();
        let branches: Vec<&Value> = runs.iter().map(|run| &run.inputs["branch"]).collect();
        assert!(
            branches.iter().all(|branch| *branch == branches[0]),
            "{branches:?}"
        );
        assert_eq!(self.env.repo().pulls().len(), 1);
        let branch = branches[0].as_str().unwrap();
        let file = self.env.repo().read_file(branch, "cart.txt");
        assert_eq!(file.as_deref(), Some(content), "{}", self.prompt());
        assert_eq!(self.ticket.count("Implementation failed"), 0);
    }

    async fn nothing_happens(&self) {
        let before = self.jobs().len();
        for _ in 0..2 {
            poll_comments(&self.env).await;
            set_clock_ahead(&self.env, QUIET);
        }
        poll_comments(&self.env).await;
        assert_eq!(self.jobs().len(), before);
    }

    async fn open_questions(&self) -> Value {
        self.env.admin_get("/api/questions").await["questions"].clone()
    }

    async fn answer(&self, body: Value) -> (u16, Value) {
        let path = format!("/api/questions/{}/answer", percent_encode(&self.key));
        self.env
            .admin_request(Method::POST, &path, Some(body))
            .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_asks_and_the_next_one_continues_with_the_answer_of_a_comment() {
    for system in SYSTEMS {
        let story = Story::start(system, |mapping| mapping.max_in_progress = 1).await;
        let (env, ticket) = (&story.env, &story.ticket);
        story.ask().await;
        let job = story.jobs().pop().unwrap();
        let code = Some(FailureCode::NeedsInput);
        assert!(
            matches!(&job.state, JobState::Failed { code: found, .. } if *found == code),
            "{job:?}"
        );
        let markers = match system {
            System::Jira => vec!["Needs Input"],
            System::Linear | System::GitHub => vec!["Agent-Implement", "Agent-Waiting"],
        };
        assert_eq!(ticket.markers(), markers);
        env.tick().await;
        let blockers = env.admin_get("/api/blockers?all=true").await;
        assert_eq!(blockers["blockers"][0]["reason"], "question", "{blockers}");
        let comment = ticket.comments().pop().unwrap();
        for part in ["Which currency?", "EUR", "USD", "one comment"] {
            assert!(comment.contains(part), "{comment}");
        }
        // No slot is in use.
        let other = example_key(system, 8);
        TestTicket::create(env, system, &other, "Something else").trigger();
        env.advance_clock(Duration::from_secs(1));
        let is_complete = || env.jobs(&other).iter().any(Job::has_opened_pull_request);
        env.tick_until("another ticket is implemented", is_complete)
            .await;
        settle(env).await;
        let pulls = env.repo().pulls().len();
        assert_eq!(pulls, 1);
        env.repo().merge_pull(env.repo().pulls()[0].number).unwrap();

        ticket.comment("EUR, please.");
        story.complete_after_comment().await;
        assert_eq!(story.jobs().len(), 2);
        assert_eq!((ticket.count(ASKS), ticket.count(ANSWERED)), (1, 1));
        let prompt = story.prompt();
        for part in ["Which currency?", "EUR, please.", "Continue it."] {
            assert!(prompt.contains(part), "{prompt}");
        }
        let pulls = env.repo().pulls();
        assert_eq!(pulls.len(), 2);
        let file = env.repo().read_file(&pulls[1].head, "cart.txt");
        assert_eq!(file.as_deref(), Some("begun\ndone\n"));
        assert_eq!(ticket.count("Implementation failed"), 0);
        let done = match system {
            System::Jira => vec!["PR Ready"],
            System::Linear | System::GitHub => vec!["Agent-Implement", "Ready for Review"],
        };
        assert_eq!(ticket.markers(), done);
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_answers_by_api_once() {
    for system in SYSTEMS {
        let story = Story::start(system, |_| ()).await;
        story.ask().await;
        let job = story.jobs().pop().unwrap();
        let open = story.open_questions().await;
        let expected = json!([{
            "issueId": job.issue.id, "issueIdentifier": story.key, "issueTitle": "Add a cart",
            "teamKey": example_team(system), "ticketUrl": job.issue.url, "jobId": job.id,
            "askedAt": job.finished_at, "remindedAt": null, "expiresAt": null, "round": 1,
            "questions": question(),
        }]);
        assert_eq!(open, expected);
        for (body, error) in [
            (json!({}), "answer is required"),
            (json!({"answer": "  \n"}), "answer is required"),
            (json!({"answer": 7}), "answer is required"),
        ] {
            let refused = story.answer(body).await;
            assert_eq!(refused, (400, json!({"error": error})));
        }
        let unknown = "/api/questions/XYZ-9/answer";
        let body = Some(json!({"answer": "EUR"}));
        let unknown = story.env.admin_request(Method::POST, unknown, body).await;
        assert_eq!(unknown, (404, json!({"error": "No open question"})));
        story.env.advance_clock(Duration::from_secs(1));
        let answered = story.answer(json!({"answer": "USD only"})).await;
        assert_eq!(answered, (202, json!({"resumed": true})));
        let again = story.answer(json!({"answer": "No, EUR"})).await;
        assert_eq!(again, (404, json!({"error": "No open question"})));
        assert_eq!(story.open_questions().await, json!([]));
        story.complete().await;
        story.assert_continued("begun\ndone\n");
        assert!(story.prompt().contains("USD only"));
        let replies = story.ticket.comments();
        let replies = replies.iter().filter(|body| body.contains("USD only"));
        assert_eq!(replies.count(), 1);
        let reply = "Answered by an operator: USD only";
        assert_eq!(story.ticket.count(reply), 1);
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_answers_on_the_command_line() {
    for system in SYSTEMS {
        let story = Story::start(system, |_| ()).await;
        story.ask().await;
        let Story { env, ticket, key } = story;
        let env = call_on_command_line(env, |call| {
            let (code, _, error) = call(&["answer", &example_key(system, 8), "EUR"]);
            assert_eq!(code, 4, "{error}");
            let (code, output, error) = call(&["answer", &key, "EUR by hand"]);
            assert_eq!(code, 0, "{error}");
            assert!(output.contains("Answered."), "{output}");
            let (code, _, error) = call(&["answer", &key, "EUR by hand"]);
            assert_eq!(code, 4, "{error}");
        })
        .await;
        let story = Story { env, ticket, key };
        story.complete().await;
        story.assert_continued("begun\ndone\n");
        assert!(story.prompt().contains("EUR by hand"));
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_as_last_edited_in_the_quiet_time() {
    for system in SYSTEMS {
        let story = Story::start(system, |_| ()).await;
        story.ask().await;
        story.ticket.comment("USD first");
        set_clock_ahead(&story.env, Duration::from_secs(30));
        poll_comments(&story.env).await;
        assert_eq!(story.jobs().len(), 1);
        story.ticket.edit_comment("USD first", "EUR after all");
        set_clock_ahead(&story.env, Duration::from_secs(50));
        poll_comments(&story.env).await;
        assert_eq!(story.jobs().len(), 1);
        story.complete_after_comment().await;
        let prompt = story.prompt();
        assert!(prompt.contains("EUR after all"), "{prompt}");
        assert!(!prompt.contains("USD first"), "{prompt}");
        assert_eq!(story.ticket.count(ANSWERED), 1);
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_people_of_the_organization_answer() {
    for system in SYSTEMS {
        let story = Story::start(system, |_| ()).await;
        story.ask().await;
        let ticket = &story.ticket;
        ticket.comment_as(&FakeAuthor::app("CI"), "Use GBP.");
        ticket.comment_as(&FakeAuthor::external("Eve"), "Use JPY.");
        ticket.comment("Deleted at once");
        ticket.delete_comment("Deleted at once");
        ticket.comment("/agent-implement status");
        story.nothing_happens().await;
        assert_eq!(story.open_questions().await.as_array().unwrap().len(), 1);
        ticket.comment_as(&FakeAuthor::person("Kim"), "Use SEK.");
        ticket.comment("No, use NOK.");
        story.complete_after_comment().await;
        let prompt = story.prompt();
        assert!(prompt.contains("Use SEK."), "{prompt}");
        for other in ["GBP", "JPY", "Deleted at once"] {
            assert!(!prompt.contains(other), "{other}: {prompt}");
        }
        let audit = story.env.admin_get("/api/audit?limit=500").await;
        let answers = audit.as_array().unwrap().iter();
        let answers = answers.filter(|entry| entry["action"] == "question-answered");
        let actors: Vec<&Value> = answers.map(|entry| &entry["actor"]).collect();
        assert_eq!(actors, ["ticket:Kim"]);
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_end_a_wait_by_closing_the_ticket_or_removing_its_trigger() {
    for system in SYSTEMS {
        for is_closed in [true, false] {
            let story = Story::start(system, |_| ()).await;
            story.ask().await;
            story.ticket.end_wait(&story.env, is_closed).await;
            assert_eq!(story.open_questions().await, json!([]), "{system:?}");
            story.ticket.comment("EUR, too late.");
            story.nothing_happens().await;
            assert_eq!(story.ticket.count(ANSWERED), 0);
            story.env.finish().await;
        }
    }
}

//! What people, Apps and strangers do on the tickets of tests: comments, attachments, approvals by marker.

use std::time::Duration;

use domain::crypto::deterministic_uuid;
use domain::mapping::Mapping;
use engine::clock::Clock;
use fake_vendors::{FakeAuthor, FakeIssue, FakeService, FakeUpload};
use serde_json::json;
use store::mappings;

use super::TestTicket;
use crate::process::{exit_and_output, run};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

/// Returns the login of an author at GitHub. Members may write to the repository.
fn login(issue: &FakeIssue, author: &FakeAuthor) -> String {
    match author {
        FakeAuthor::Service => "agent-implement[bot]".to_owned(),
        FakeAuthor::App(name) => format!("{name}[bot]"),
        FakeAuthor::External(name) => name.clone(),
        FakeAuthor::Person(name) => {
            issue.repo().set_collaborator_role(name, "write");
            name.clone()
        }
    }
}

impl TestTicket {
    /// Returns the vendor whose faults and requests are those of its ticketing system.
    pub fn vendor(&self) -> FakeService {
        match self {
            Self::Linear(_) => FakeService::Linear,
            Self::Jira(_) => FakeService::Jira,
            Self::GitHub(_) => FakeService::GitHub,
        }
    }

    /// Sets the title.
    pub fn retitle(&self, title: &str) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().title(title)),
            Self::Jira(ticket) => drop(ticket.clone().title(title)),
            Self::GitHub(issue) => drop(issue.clone().title(title)),
        }
    }

    /// Sets the description.
    pub fn describe(&self, text: &str) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().describe(text)),
            Self::Jira(ticket) => drop(ticket.clone().describe(text)),
            Self::GitHub(issue) => drop(issue.clone().describe(text)),
        }
    }

    /// Closes the ticket, which waits for people, or removes its trigger. Then polls until its wait has ended.
    pub async fn end_wait(&self, env: &TestEnv, is_closed: bool) {
        poll_comments(env).await;
        let marked = self.markers();
        match is_closed {
            true => self.close(),
            false => self.remove_trigger(),
        }
        for _ in 0..3 {
            env.advance_clock(Duration::from_secs(1));
            env.tick().await;
        }
        settle(env).await;
        let expected = if is_closed { marked } else { Vec::new() };
        assert_eq!(self.markers(), expected, "{}", self.snapshot_text());
    }

    /// Adds a comment of Robin, who may edit the ticket.
    pub fn comment(&self, text: &str) {
        self.comment_as(&FakeAuthor::default(), text);
    }

    /// Adds a comment of an author.
    pub fn comment_as(&self, author: &FakeAuthor, text: &str) {
        // Comments of the same millisecond have no order.
        std::thread::sleep(Duration::from_millis(2));
        match self {
            Self::Linear(ticket) => drop(ticket.clone().comment_as(author, text)),
            Self::Jira(ticket) => drop(ticket.clone().comment_as(author, text)),
            Self::GitHub(issue) => drop(issue.clone().comment_as(&login(issue, author), text)),
        }
    }

    /// Adds a comment of the account of the service, with what marks the comments of the service.
    pub fn comment_as_service(&self, text: &str) {
        let account = FakeAuthor::Service;
        match self {
            Self::Linear(ticket) => {
                let id = deterministic_uuid(text);
                drop(ticket.clone().comment_with_id(&account, &id, text));
            }
            Self::Jira(ticket) => {
                let property = json!({"key": "agent-implement", "value": {"effect": text}});
                let ticket = ticket.clone();
                drop(ticket.comment_with_properties(&account, text, vec![property]));
            }
            Self::GitHub(_) => {
                let text = format!("{text}\n\n<!-- agent-implement:01FORGED -->");
                self.comment_as(&account, &text);
            }
        }
    }

    /// Replaces a part of the newest comment that contains it, as a person who edits the comment.
    pub fn replace_in_comment(&self, part: &str, by: &str) {
        let (_, body) = self.find_comment(part);
        self.edit_comment(part, &body.replace(part, by));
    }

    /// Replaces the text of the newest comment that contains a text.
    pub fn edit_comment(&self, containing: &str, text: &str) {
        let (id, _) = self.find_comment(containing);
        match self {
            Self::Linear(ticket) => drop(ticket.clone().edit_comment(&id, text)),
            Self::Jira(ticket) => drop(ticket.clone().edit_comment(&id, text)),
            Self::GitHub(issue) => drop(issue.clone().edit_comment(id.parse().unwrap(), text)),
        }
    }

    /// Deletes the newest comment that contains a text.
    pub fn delete_comment(&self, containing: &str) {
        let (id, _) = self.find_comment(containing);
        match self {
            Self::Linear(ticket) => drop(ticket.clone().delete_comment(&id)),
            Self::Jira(ticket) => drop(ticket.clone().delete_comment(&id)),
            Self::GitHub(issue) => drop(issue.clone().delete_comment(id.parse().unwrap())),
        }
    }

    /// Id and text of the newest comment that contains a text.
    fn find_comment(&self, containing: &str) -> (String, String) {
        let comments: Vec<(String, String)> = match self {
            Self::Linear(ticket) => {
                let comments = ticket.snapshot().unwrap().comments.into_iter();
                comments.map(|one| (one.id, one.body)).collect()
            }
            Self::Jira(ticket) => {
                let comments = ticket.snapshot().unwrap().comments.into_iter();
                comments.map(|one| (one.id, one.text)).collect()
            }
            Self::GitHub(issue) => {
                let comments = issue.repo().comments(issue.number()).into_iter();
                comments.map(|one| (one.id.to_string(), one.body)).collect()
            }
        };
        let mut newest_first = comments.into_iter().rev();
        let found = newest_first.find(|(_, body)| body.contains(containing));
        found.unwrap()
    }

    /// Returns the number of comments that begin with a text.
    pub fn count(&self, beginning: &str) -> usize {
        let comments = self.comments().into_iter();
        comments.filter(|body| body.starts_with(beginning)).count()
    }

    /// Attaches a file: on Linear and GitHub as an image in a comment of Robin.
    pub fn attach(&self, env: &TestEnv, name: &str, upload: FakeUpload) {
        match self {
            Self::Linear(_) => {
                let url = env.vendors.linear().upload(name, upload);
                self.comment(&format!("See ![{name}]({url})"));
            }
            Self::Jira(ticket) => drop(ticket.clone().attach(name, 1_000, upload)),
            Self::GitHub(_) => {
                let url = env.vendors.github().upload(name, upload);
                self.comment(&format!("See ![{name}]({url})"));
            }
        }
    }

    /// Sets the marker of an approved plan, as an account.
    pub fn mark_approved_as(&self, author: &FakeAuthor) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().add_label_as(author, "Plan-Approved")),
            Self::Jira(ticket) => {
                let ticket = ticket.clone();
                drop(ticket.field_as(author, "Agent-Implement Status", "Plan Approved"));
            }
            Self::GitHub(issue) => {
                let login = login(issue, author);
                drop(issue.clone().add_label_as(&login, "Plan-Approved"));
            }
        }
    }

    /// Removes the trigger, as a person who wants no run any more.
    pub fn remove_trigger(&self) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().remove_label("Agent-Implement")),
            Self::Jira(ticket) => drop(ticket.clone().clear_status()),
            Self::GitHub(issue) => drop(issue.clone().remove_label("Agent-Implement")),
        }
    }

    /// Closes the ticket.
    pub fn close(&self) {
        match self {
            Self::Linear(ticket) => drop(ticket.clone().complete()),
            Self::Jira(ticket) => drop(ticket.clone().complete()),
            Self::GitHub(issue) => drop(issue.clone().complete()),
        }
    }
}

/// Sets the manual clock of a service this far ahead of the clock of the vendors, unless it is further.
pub fn set_clock_ahead(env: &TestEnv, ahead: Duration) {
    let target = Clock::System.now() + ahead;
    env.advance_clock(target.since(env.app.core.now()));
}

/// Runs ticks of a manual engine until the outbox is empty, in a few seconds of its clock.
pub async fn settle(env: &TestEnv) {
    let is_empty = || {
        let queues = env.store.read(store::outbox::queue_keys);
        queues.unwrap().is_empty()
    };
    while !is_empty() {
        env.advance_clock(Duration::from_secs(1));
        env.tick().await;
    }
}

/// Runs as many polls as it takes until each system has read the comments of each issue.
pub async fn poll_comments(env: &TestEnv) {
    for _ in 0..6 {
        env.tick().await;
    }
}

/// Calls commands of an operator while the service runs in a process of its own, in which all projects are paused.
/// Returns the environment with a manual engine again. A command returns its exit code, output and errors.
pub async fn call_on_command_line(
    env: TestEnv,
    calls: impl FnOnce(&dyn Fn(&[&str]) -> (i32, String, String)),
) -> TestEnv {
    let mappings = env.store.read(mappings::all).unwrap();
    for mapping in mappings.clone() {
        let paused = Mapping {
            paused: true,
            ..mapping
        };
        let put = env.store.write(move |tx| mappings::put(tx, &paused));
        put.await.unwrap();
    }
    let stopped = env.stop_service().await;
    let service = stopped.start_process(&TestEnvOptions::default());
    let data = stopped.data_dir().display().to_string();
    calls(&|arguments| exit_and_output(&run(&[arguments, &["--data-dir", &data]].concat())));
    assert_eq!(service.stop(), 0);
    let options = TestEnvOptions {
        mappings,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    };
    stopped.start_service(options).await
}

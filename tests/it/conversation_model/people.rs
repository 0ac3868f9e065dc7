//! What people do with tickets of each system.

use fake_vendors::FakeAuthor;

use crate::test_env::TestEnv;
use crate::test_ticket::TestTicket;

/// Beginnings of comments that are not the service's.
pub const ANSWER: &str = "answer";
const NOISE: &str = "noise";
pub const COMMAND: &str = "/agent-implement";

/// Person who may edit every ticket.
pub const PERSON: &str = "kim";

/// Comment on a ticket.
#[derive(Debug, Clone)]
pub struct PostedComment {
    pub id: String,
    /// Letters and digits only: each system has its own markup.
    pub text: String,
    pub is_ours: bool,
}

/// Letters and digits of a text.
pub fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn posted(id: String, body: &str) -> PostedComment {
    let foreign = [ANSWER, NOISE, COMMAND];
    PostedComment {
        id,
        text: letters(body),
        is_ours: !foreign.iter().any(|beginning| body.starts_with(beginning)),
    }
}

/// Comments of a ticket, oldest first.
pub fn comments(env: &TestEnv, ticket: &TestTicket, key: &str) -> Vec<PostedComment> {
    match ticket {
        TestTicket::Linear(ticket) => {
            let comments = ticket.snapshot().unwrap().comments.into_iter();
            comments.map(|one| posted(one.id, &one.body)).collect()
        }
        TestTicket::Jira(ticket) => {
            let comments = ticket.snapshot().unwrap().comments.into_iter();
            comments.map(|one| posted(one.id, &one.text)).collect()
        }
        TestTicket::GitHub(_) => {
            let (repo, number) = key.split_once('#').unwrap();
            let repo = env.vendors.github().repo("acme", repo);
            let comments = repo.comments(number.parse().unwrap()).into_iter();
            comments
                .map(|one| posted(one.id.to_string(), &one.body))
                .collect()
        }
    }
}

pub fn comment(ticket: &TestTicket, text: &str) {
    let author = FakeAuthor::person(PERSON);
    match ticket {
        TestTicket::Linear(ticket) => drop(ticket.clone().comment_as(&author, text)),
        TestTicket::Jira(ticket) => drop(ticket.clone().comment_as(&author, text)),
        TestTicket::GitHub(issue) => drop(issue.clone().comment_as(PERSON, text)),
    }
}

pub fn comment_of_app(ticket: &TestTicket) {
    let text = format!("{NOISE} of an app");
    let author = FakeAuthor::app("CI");
    match ticket {
        TestTicket::Linear(ticket) => drop(ticket.clone().comment_as(&author, &text)),
        TestTicket::Jira(ticket) => drop(ticket.clone().comment_as(&author, &text)),
        TestTicket::GitHub(issue) => drop(issue.clone().comment_as("ci[bot]", &text)),
    }
}

pub fn edit(ticket: &TestTicket, id: &str, text: &str) {
    match ticket {
        TestTicket::Linear(ticket) => drop(ticket.clone().edit_comment(id, text)),
        TestTicket::Jira(ticket) => drop(ticket.clone().edit_comment(id, text)),
        TestTicket::GitHub(issue) => drop(issue.clone().edit_comment(id.parse().unwrap(), text)),
    }
}

pub fn retitle(ticket: &TestTicket, title: &str) {
    match ticket {
        TestTicket::Linear(ticket) => drop(ticket.clone().title(title)),
        TestTicket::Jira(ticket) => drop(ticket.clone().title(title)),
        TestTicket::GitHub(issue) => drop(issue.clone().title(title)),
    }
}

pub fn title(ticket: &TestTicket) -> String {
    match ticket {
        TestTicket::Linear(ticket) => ticket.snapshot().unwrap().title,
        TestTicket::Jira(ticket) => ticket.snapshot().unwrap().title,
        TestTicket::GitHub(issue) => issue.snapshot().unwrap().title,
    }
}

pub fn remove_trigger(ticket: &TestTicket) {
    match ticket {
        TestTicket::Linear(ticket) => drop(ticket.clone().remove_label("Agent-Implement")),
        TestTicket::Jira(ticket) => drop(ticket.clone().clear_status()),
        TestTicket::GitHub(issue) => drop(issue.clone().remove_label("Agent-Implement")),
    }
}

pub fn set_approved(ticket: &TestTicket) {
    match ticket {
        TestTicket::Linear(ticket) => drop(ticket.clone().add_label("Plan-Approved")),
        TestTicket::Jira(ticket) => drop(ticket.clone().status("Plan Approved")),
        TestTicket::GitHub(issue) => drop(issue.clone().add_label_as(PERSON, "Plan-Approved")),
    }
}

pub fn close(ticket: &TestTicket) {
    match ticket {
        TestTicket::Linear(ticket) => drop(ticket.clone().complete()),
        TestTicket::Jira(ticket) => drop(ticket.clone().complete()),
        TestTicket::GitHub(issue) => drop(issue.clone().complete()),
    }
}

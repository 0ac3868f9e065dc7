//! People and operators who answer questions and decide on plans while the service is killed, and the
//! checks of what they did.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::issue::System;
use fake_vendors::FakeAuthor;
use reqwest::Method;
use serde_json::{Value, json};
use store::{Store, audit, open_questions, plan_gates};
use vendors::http::percent_encode;

use crate::checks::ensure;
use crate::conversation::{ANSWER, Conversation, Line, Request};
use crate::crash_env::CrashEnv;
use crate::tickets::{ExpectedTicket, TicketKind};

/// Person who may edit every ticket.
const PERSON: &str = "mia";

/// Age of a question and of its answer whose quiet time is over.
const QUESTION_AGE: Duration = Duration::from_secs(75);
const ANSWER_AGE: Duration = Duration::from_secs(70);

/// Writes each comment, sets each marker and sends each request when everything before it is visible.
pub async fn converse(env: Arc<CrashEnv>, stop: Arc<AtomicBool>) {
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut unanswered: BTreeSet<String> = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let tickets = env.record().tickets.clone();
        for ticket in tickets {
            let TicketKind::Conversation(conversation) = ticket.kind else {
                continue;
            };
            let position = positions.entry(ticket.key.clone()).or_default();
            let lines = conversation.lines();
            let next = lines[*position..]
                .iter()
                .position(|line| line.is_of_people());
            let Some(next) = next.map(|next| *position + next) else {
                continue;
            };
            let before = lines[..next].iter().filter(|line| line.comment().is_some());
            if ticket.comments(&env).len() < before.count() {
                continue;
            }
            let is_done = match lines[next] {
                Line::Person(text) => {
                    write_comment(&env, &ticket, text);
                    true
                }
                Line::ApprovalMarker => {
                    set_approved(&env, &ticket);
                    true
                }
                Line::Operator(request) => send(&env, &ticket.key, request, &mut unanswered).await,
                Line::Service(_) => unreachable!(),
            };
            if is_done {
                *position = next + 1;
            }
        }
    }
}

/// Sends a request of an operator. Returns whether it was accepted. Only a request whose earlier attempt
/// got no response may find nothing that waits.
async fn send(
    env: &CrashEnv,
    key: &str,
    request: Request,
    unanswered: &mut BTreeSet<String>,
) -> bool {
    let issue = percent_encode(key);
    let (path, body, accepted) = match request {
        Request::Answer => (
            format!("/api/questions/{issue}/answer"),
            json!({"answer": ANSWER}),
            202,
        ),
        Request::Approve => (format!("/api/plans/{issue}/approve"), Value::Null, 200),
        Request::Reject => (format!("/api/plans/{issue}/reject"), Value::Null, 200),
        Request::Replan => (
            format!("/api/plans/{issue}/replan"),
            json!({"instruction": "use files"}),
            202,
        ),
    };
    match env.try_request(Method::POST, &path, &body).await {
        Some((status, _)) if status == accepted => {
            unanswered.remove(key);
            true
        }
        Some((404, _)) if unanswered.remove(key) => true,
        None => {
            unanswered.insert(key.to_owned());
            false
        }
        // A vendor did not answer.
        Some((502 | 503, _)) => false,
        Some((status, body)) => {
            env.record_violation(format!("{path} got status {status}: {body}"));
            true
        }
    }
}

/// Writes a comment. The quiet time of most answers is already over.
fn write_comment(env: &CrashEnv, ticket: &ExpectedTicket, text: &str) {
    let author = FakeAuthor::person(PERSON);
    let ages = match text == ANSWER && fastrand::u8(..4) > 0 {
        true => &[QUESTION_AGE, ANSWER_AGE][..],
        false => &[],
    };
    match ticket.system() {
        System::Linear => {
            let issue = env.vendors.linear().issue(&ticket.key);
            let issue = issue.comment_as(&author, text);
            let comments = issue.snapshot().unwrap().comments;
            for (comment, age) in comments[comments.len() - 2..].iter().zip(ages) {
                issue.clone().age_comment(&comment.id, *age);
            }
        }
        System::Jira => {
            let issue = env.vendors.jira().issue(&ticket.key);
            let issue = issue.comment_as(&author, text);
            let comments = issue.snapshot().unwrap().comments;
            for (comment, age) in comments[comments.len() - 2..].iter().zip(ages) {
                issue.clone().age_comment(&comment.id, *age);
            }
        }
        System::GitHub => {
            let (repo, number) = (env.repo(ticket.repo()), ticket.number());
            let issue = repo.issue(number).comment_as(PERSON, text);
            let comments = repo.comments(number);
            for (comment, age) in comments[comments.len() - 2..].iter().zip(ages) {
                issue.clone().age_comment(comment.id, *age);
            }
        }
    }
}

fn set_approved(env: &CrashEnv, ticket: &ExpectedTicket) {
    match ticket.system() {
        System::Linear => {
            let issue = env.vendors.linear().issue(&ticket.key);
            issue.add_label("Plan-Approved");
        }
        System::Jira => {
            env.vendors
                .jira()
                .issue(&ticket.key)
                .status("Plan Approved");
        }
        System::GitHub => {
            let issue = env.repo(ticket.repo()).issue(ticket.number());
            issue.add_label_as(PERSON, "Plan-Approved");
        }
    }
}

/// The service names exactly the tickets whose question or plan is still open as waiting for people.
pub async fn check_waits(env: &CrashEnv) -> Result<(), String> {
    let path = "/api/blockers?all=true";
    let (_, body) = env
        .request_until_answered(Method::GET, path, Value::Null)
        .await;
    let tickets = env.record().tickets.clone();
    for (reason, ends_so) in [
        (
            "question",
            Conversation::ends_with_question as fn(Conversation) -> bool,
        ),
        ("approval", Conversation::ends_with_plan),
    ] {
        let expected = tickets.iter().filter(|ticket| match ticket.kind {
            TicketKind::Conversation(one) => ends_so(one),
            _ => false,
        });
        let expected: BTreeSet<&str> = expected.map(|ticket| ticket.key.as_str()).collect();
        let rows = body["blockers"].as_array().into_iter().flatten();
        let waiting = rows.filter(|row| row["reason"] == reason);
        let waiting: BTreeSet<&str> = waiting
            .map(|row| row["issueIdentifier"].as_str().unwrap_or_default())
            .collect();
        ensure(waiting == expected, || {
            format!("{reason}: {waiting:?} wait, not {expected:?}")
        })?;
    }
    Ok(())
}

/// Each answer, decision on a plan and command counted once, and questions and plans are open exactly if
/// nobody has answered or decided. Returns how often each action was audited.
pub fn check_conversations(
    env: &CrashEnv,
    store: &Store,
) -> Result<BTreeMap<&'static str, usize>, String> {
    let (questions, gates, entries) = store
        .read(|tx| {
            let audit = audit::latest(tx, None, 100_000)?;
            Ok((open_questions::all(tx)?, plan_gates::all(tx)?, audit))
        })
        .unwrap();
    let mut counts = BTreeMap::new();
    for ticket in &env.record().tickets {
        let has_question = questions
            .iter()
            .any(|question| question.issue.matches_id_or_key(&ticket.key));
        let has_plan = gates
            .iter()
            .any(|gate| gate.is_waiting() && gate.issue.matches_id_or_key(&ticket.key));
        let conversation = match ticket.kind {
            TicketKind::Conversation(conversation) => Some(conversation),
            _ => None,
        };
        let expected = (
            conversation.is_some_and(Conversation::ends_with_question),
            conversation.is_some_and(Conversation::ends_with_plan),
        );
        ensure((has_question, has_plan) == expected, || {
            format!("{ticket:?}: open question {has_question}, waiting plan {has_plan}")
        })?;
        for (action, expected) in conversation.iter().flat_map(|one| one.expected_audit()) {
            let of_ticket = entries.iter().filter(|entry| {
                let (target, key) = (entry.target.as_str(), ticket.key.as_str());
                entry.action == action && (target == key || target.ends_with(&format!("/{key}")))
            });
            let count = of_ticket.count();
            ensure(count == expected, || {
                format!("{ticket:?}: {action} {count} times")
            })?;
            *counts.entry(action).or_default() += count;
        }
    }
    Ok(counts)
}

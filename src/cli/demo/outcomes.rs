//! Comparison of each demo ticket with its expected outcome.

use domain::decision::{Decision, WaitReason};
use domain::ids::IssueKey;
use domain::job::{Job, JobState, PullRequestRef};
use domain::report::FailureCode;
use engine::app::App;
use fake_vendors::FakeVendors;
use fake_vendors::demo::{
    DEMO_APPROVAL, DEMO_BLOCKED, DEMO_PLAIN, DEMO_PLANNED, DEMO_QUESTION, DEMO_SECRET_LEAK,
    Tracker, merged_tickets,
};
use store::{ReadableTx, StoreResult, decisions, jobs, open_questions};

use super::replies;

/// Maximum number of lines of a diff in a summary.
const MAX_DIFF_LINES: usize = 60;

/// Final state of a ticket.
struct Outcome {
    /// Latest job of the ticket.
    job: Option<Job>,
    decision: Option<Decision>,
}

/// Expected outcomes of all tickets.
pub(super) struct DemoOutcomes {
    /// One summary per ticket.
    pub summaries: Vec<String>,
    /// What the person can do next. Empty if everything is done.
    pub next: Vec<String>,
}

/// Compares each ticket with its expected outcome.
///
/// # Errors
/// Names the first ticket with an unexpected outcome, and that outcome.
pub(super) fn check(
    app: &App,
    vendors: &FakeVendors,
    tracker: Tracker,
) -> Result<DemoOutcomes, String> {
    let outcome = |key| {
        let read = app.core.store().read(|tx| outcome(tx, key));
        read.map_err(|error| error.to_string())
    };
    let keys = [DEMO_PLAIN, DEMO_BLOCKED, DEMO_PLANNED, DEMO_SECRET_LEAK];
    let [plain_key, blocked_key, planned_key, leak_key] = keys.map(|key| tracker.key(key));
    let [question_key, approval_key] = [DEMO_QUESTION, DEMO_APPROVAL].map(|key| tracker.key(key));
    let (question, approval) = (outcome(question_key)?, outcome(approval_key)?);
    let (plain, blocked) = (outcome(plain_key)?, outcome(blocked_key)?);
    let is_unblocked = merged_tickets(vendors, tracker).contains(&DEMO_PLAIN);
    let summaries = vec![
        pull_request(vendors, plain_key, &plain)?,
        pull_request(vendors, planned_key, &outcome(planned_key)?)?,
        replied(vendors, question_key, &question, WaitReason::Question)?,
        replied(vendors, approval_key, &approval, WaitReason::Approval)?,
        blocked_by_guard(vendors, leak_key, &outcome(leak_key)?)?,
        match is_unblocked {
            true => pull_request(vendors, blocked_key, &blocked)?,
            false => waiting(blocked_key, &blocked)?,
        },
    ];
    let pull = plain.job.as_ref().and_then(|job| job.pull.as_ref());
    let merge = pull.filter(|_| !is_unblocked).map(|pull| {
        format!(
            "open {} and select Merge pull request. {blocked_key} starts then.",
            pull.url
        )
    });
    let mut next: Vec<String> = merge.into_iter().collect();
    if question.waits_for(WaitReason::Question) {
        next.push(how_to_answer(app, question_key, &question)?);
    }
    if approval.waits_for(WaitReason::Approval) {
        let reply = Reply {
            verb: "approve",
            argument: "",
            comment: "/agent-implement approve".to_owned(),
        };
        next.push(how_to_reply(app, approval_key, &approval, &reply));
    }
    Ok(DemoOutcomes { summaries, next })
}

fn how_to_answer(app: &App, key: &str, outcome: &Outcome) -> Result<String, String> {
    let open = app.core.store().read(open_questions::all);
    let open = open.map_err(|error| error.to_string())?;
    let open = open.iter().find(|one| one.issue.key.as_str() == key);
    let answer = open.map(replies::answer).unwrap_or_default();
    let reply = Reply {
        verb: "answer",
        argument: &format!(" \"{answer}\""),
        comment: answer,
    };
    Ok(how_to_reply(app, key, outcome, &reply))
}

/// What a person may reply to a ticket that waits.
struct Reply<'a> {
    /// Command of the command line.
    verb: &'a str,
    /// Argument of the command after the ticket.
    argument: &'a str,
    /// Comment with the same effect.
    comment: String,
}

fn how_to_reply(app: &App, key: &str, outcome: &Outcome, reply: &Reply<'_>) -> String {
    let config = &app.core.config;
    let (port, dir) = (config.listen.port(), config.data_dir.display());
    let ticket = outcome.job.as_ref();
    let ticket = ticket.map_or("its ticket", |job| job.issue.url.as_str());
    let Reply {
        verb,
        argument,
        comment,
    } = reply;
    format!(
        "{verb} {key} on http://127.0.0.1:{port}/admin/questions,\n      \
         with the comment '{comment}' on {ticket},\n      \
         or with agent-implement {verb} --data-dir {dir} '{key}'{argument}"
    )
}

impl Outcome {
    fn waits_for(&self, reason: WaitReason) -> bool {
        let decision = self.decision.as_ref();
        decision.is_some_and(|one| one.reason == Some(reason))
    }
}

/// Outcome of a ticket whose run asks or whose plan needs an approval: it waits, or has its pull request.
fn replied(
    vendors: &FakeVendors,
    key: &str,
    outcome: &Outcome,
    reason: WaitReason,
) -> Result<String, String> {
    match &outcome.decision {
        Some(decision) if decision.reason == Some(reason) => {
            Ok(format!("{key} waits for a person. {}", decision.message))
        }
        _ => pull_request(vendors, key, outcome),
    }
}

fn outcome(tx: &impl ReadableTx, key: &str) -> StoreResult<Outcome> {
    let latest = jobs::latest(tx, jobs::DISPATCH_LOG_SIZE)?.into_iter();
    let row = decisions::get(tx, &IssueKey::new(key))?;
    Ok(Outcome {
        job: { latest }.find(|job| job.issue.key.as_str() == key),
        decision: row.and_then(|row| row.current().cloned()),
    })
}

fn pull_request(vendors: &FakeVendors, key: &str, outcome: &Outcome) -> Result<String, String> {
    let job = dispatched(key, outcome)?;
    match (&job.state, &job.pull) {
        (JobState::Completed | JobState::ReviewFailed { .. }, Some(pull)) => {
            Ok(pull_request_summary(vendors, job, pull))
        }
        _ => Err(unexpected_end(job)),
    }
}

fn pull_request_summary(vendors: &FakeVendors, job: &Job, pull: &PullRequestRef) -> String {
    let repo = vendors.github().repo(&job.repo.owner, &job.repo.name);
    let mut summary = format!(
        "{} has its pull request: {}\n  branch {} of {}",
        job.issue.key, pull.url, job.branch, job.repo
    );
    if let Some(commit) = repo.commits(&job.branch).first() {
        let sha: String = commit.sha.chars().take(10).collect();
        let subject = commit.message.lines().next().unwrap_or_default();
        summary.push_str(&format!("\n  commit {sha} {subject}"));
    }
    let pulls = repo.pulls();
    if let Some(pull) = pulls
        .iter()
        .find(|one| one.number == pull.number && one.open)
    {
        summary.push_str(&excerpt(&repo.diff(pull)));
    }
    summary
}

/// Beginning of a diff, indented.
fn excerpt(diff: &str) -> String {
    let lines: Vec<&str> = diff.lines().collect();
    let shown = lines.iter().take(MAX_DIFF_LINES);
    let mut text: String = shown.map(|line| format!("\n    {line}")).collect();
    let left = lines.len().saturating_sub(MAX_DIFF_LINES);
    if left > 0 {
        text.push_str(&format!("\n    ({left} more lines)"));
    }
    text
}

fn blocked_by_guard(vendors: &FakeVendors, key: &str, outcome: &Outcome) -> Result<String, String> {
    const BLOCKED: Option<FailureCode> = Some(FailureCode::SensitiveFilesBlocked);
    let job = dispatched(key, outcome)?;
    let JobState::Failed {
        code: BLOCKED,
        reason,
    } = &job.state
    else {
        return Err(unexpected_end(job));
    };
    let repo = vendors.github().repo(&job.repo.owner, &job.repo.name);
    if repo.branch_head(&job.branch).is_some() {
        return Err(format!(
            "{key} must not push anything, but the branch {} exists",
            job.branch
        ));
    }
    let lines = reason.lines().skip(1).filter(|line| !line.is_empty());
    let files: String = lines.map(|line| format!("\n  {line}")).collect();
    Ok(format!(
        "{key}: the guard blocked the push of a secret, as expected.{files}"
    ))
}

fn waiting(key: &str, outcome: &Outcome) -> Result<String, String> {
    if let Some(job) = &outcome.job {
        return Err(unexpected_end(job));
    }
    match &outcome.decision {
        Some(decision) if decision.reason == Some(WaitReason::Blocked) => {
            Ok(format!("{key} still waits. {}", decision.message))
        }
        Some(decision) => Err(format!(
            "{key} does not wait for its blocker: {}",
            decision.message
        )),
        None => Err(format!("{key} has no decision")),
    }
}

fn dispatched<'o>(key: &str, outcome: &'o Outcome) -> Result<&'o Job, String> {
    outcome.job.as_ref().ok_or_else(|| match &outcome.decision {
        Some(decision) => format!("{key} was not dispatched: {}", decision.message),
        None => format!("{key} was not dispatched"),
    })
}

fn unexpected_end(job: &Job) -> String {
    let (key, kind) = (&job.issue.key, job.kind.as_str());
    match &job.state {
        JobState::Failed { reason, .. } => format!("{key}: the {kind} run failed: {reason}"),
        state => format!("{key}: the {kind} run has the status {}", state.status()),
    }
}

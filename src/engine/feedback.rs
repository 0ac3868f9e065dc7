//! What the repository host tells by webhook becomes part of the ledger.
//!
//! A delivery is taken in one commit with everything that follows from it, and only then answered;
//! nobody is asked anything before. Whether an author's word counts, and whether what was said still
//! stands, is found out by [`super::follow_up`] before a run starts.

use std::time::Duration;

use crate::app::App;
use domain::feedback::{
    self, Author, Command, CommandState, Finding, FindingState, Judged, Meta, PullId, PullStanding,
    Remark, Source, Verdict,
};
use domain::job::{Job, JobKind};
use domain::keys::sha256_hex;
use domain::time::Timestamp;
use store::crash::CrashPoint;
use store::{Rows, StoreResult, WriteTx, dedup, deliveries, findings, jobs, mappings};
use vendors::scm::webhook::{Merged, Said, WebhookEvent};
use vendors::scm::{Conversation, PullState, Spoken};

use super::gap_fill;

/// How far may the host's clock be ahead of ours?
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// For how long after a comment does a sweep still start the run that it asks for?
const LATE_COMMAND: Duration = Duration::from_secs(24 * 60 * 60);

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Something follows from it.
    Queued,
    /// Known, and nothing to do.
    Acknowledged,
    Ignored(&'static str),
}

/// Takes a delivery, once.
///
/// # Errors
/// When it cannot be stored; the sender may send it again.
pub async fn receive(app: &App, delivery: &str, event: WebhookEvent) -> StoreResult<Received> {
    let (id, now) = (delivery.to_owned(), app.now());
    let taken = move |tx: &WriteTx<'_>| {
        if !deliveries::take(tx, &id, now)? {
            return Ok(Received::Ignored("duplicate"));
        }
        take(tx, event.clone(), now)
    };
    app.crash.reach(CrashPoint::HostEventReceived);
    let received = app.store.write(taken).await?;
    if received == Received::Queued {
        app.bells.follow_up.notify_one();
    }
    tracing::info!(delivery, ?received, "A webhook was taken.");
    app.crash.reach(CrashPoint::HostEventStored);
    Ok(received)
}

fn take(tx: &WriteTx<'_>, event: WebhookEvent, now: Timestamp) -> StoreResult<Received> {
    match event {
        WebhookEvent::Said(said) => note(tx, said, now),
        WebhookEvent::TakenBack { pull, source, ids } => {
            let pull = known_as(tx, pull)?;
            take_back(tx, &pull, |remark| {
                remark.source == source && ids.contains(&remark.id)
            })?;
            if source == Source::IssueComment {
                forget_commands(tx, &pull, &ids)?;
            }
            Ok(Received::Acknowledged)
        }
        WebhookEvent::Reopened { pull, ids } => reopen(tx, &known_as(tx, pull)?, &ids, now),
        WebhookEvent::Merged(merged) => note_merge(tx, merged, now),
        WebhookEvent::Synchronized => Ok(Received::Acknowledged),
        WebhookEvent::Other(why) => Ok(Received::Ignored(why)),
    }
}

/// The pull request by the name that our mappings have for its repository: the host does not care
/// for case, and tells its own.
fn known_as(tx: &impl Rows, pull: PullId) -> StoreResult<PullId> {
    let repo = mappings::target(tx, &pull.repo)?;
    Ok(PullId {
        repo: repo.unwrap_or(pull.repo),
        ..pull
    })
}

/// The last job of a pull request that is ours: its text carries our block, and we have a job of it.
/// A run may have opened it and not told us yet.
fn ours(tx: &impl Rows, pull: &PullId, body: &str) -> StoreResult<Option<Job>> {
    let Some(meta) = Meta::of(body) else {
        return Ok(None);
    };
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    let is_of_issue = |job: &Job| job.issue.id == meta.issue_id;
    if let Some(job) = of_pull.into_iter().rfind(is_of_issue) {
        return Ok(Some(job));
    }
    let opening = jobs::get(tx, &meta.job_id)?;
    Ok(opening.filter(|job| {
        job.is_active() && job.pull.is_none() && job.repo == pull.repo && is_of_issue(job)
    }))
}

fn note(tx: &WriteTx<'_>, said: Said, now: Timestamp) -> StoreResult<Received> {
    let pull = known_as(tx, said.pull)?;
    if ours(tx, &pull, &said.pull_body)?.is_none() {
        return Ok(Received::Ignored("not our pull request"));
    }
    if !said.is_open {
        return Ok(Received::Ignored("the pull request is closed"));
    }
    let remark = said.remark;
    if is_own(&remark, said.by_its_author) {
        return Ok(Received::Ignored("our own words"));
    }
    if said.is_edit {
        let (source, id) = (remark.source, remark.id);
        take_back(tx, &pull, |known| known.source == source && known.id == id)?;
    }
    if remark.verdict == Some(Verdict::Approved) {
        take_back(tx, &pull, |known| {
            known.source == Source::Review && known.author == remark.author
        })?;
    }
    match feedback::judge(&remark) {
        Judged::Command(_) if said.is_edit => Ok(Received::Ignored("an edited command")),
        Judged::Command(instruction) => command(tx, &pull, &remark, instruction, now),
        Judged::Asks => Ok(match add(tx, &pull, remark, now)? {
            true => Received::Queued,
            false => Received::Ignored("known"),
        }),
        Judged::Nothing(why) => Ok(Received::Ignored(why.as_str())),
    }
}

/// An App that opened the pull request speaks for us. A person who did may be somebody whose token we
/// use: what we write in their name carries our marker, and the rest is their own word.
fn is_own(remark: &Remark, by_its_author: bool) -> bool {
    by_its_author && matches!(remark.author, Author::App { .. })
}

/// Adds feedback to the ledger; false when it is there already.
fn add(tx: &WriteTx<'_>, pull: &PullId, remark: Remark, now: Timestamp) -> StoreResult<bool> {
    let key = sha256_hex(&remark.ledger_text());
    let known = findings::get(tx, pull, &key)?;
    let attempts = match known {
        Some(Finding {
            state: FindingState::Withdrawn,
            attempts,
            ..
        }) => attempts,
        Some(_) => return Ok(false),
        None => 0,
    };
    let finding = Finding {
        attempts,
        ..Finding::new(remark, now)
    };
    findings::put(tx, pull, &key, &finding)?;
    Ok(true)
}

/// Withdraws what waits and was said like this.
fn take_back(
    tx: &WriteTx<'_>,
    pull: &PullId,
    is_meant: impl Fn(&Remark) -> bool,
) -> StoreResult<()> {
    for (key, finding) in findings::at_work(tx, pull)? {
        if finding.is_waiting() && is_meant(&finding.remark) {
            let withdrawn = Finding {
                state: FindingState::Withdrawn,
                ..finding
            };
            findings::put(tx, pull, &key, &withdrawn)?;
        }
    }
    Ok(())
}

fn reopen(tx: &WriteTx<'_>, pull: &PullId, ids: &[u64], now: Timestamp) -> StoreResult<Received> {
    let mut received = Received::Acknowledged;
    for (key, finding) in findings::of_pull(tx, pull)? {
        let is_meant = finding.remark.source == Source::ReviewComment
            && ids.contains(&finding.remark.id)
            && finding.state == FindingState::Withdrawn;
        if is_meant {
            let again = Finding {
                state: FindingState::New,
                seen_at: now,
                ..finding
            };
            findings::put(tx, pull, &key, &again)?;
            received = Received::Queued;
        }
    }
    Ok(received)
}

/// Notes that a comment asks for a run, unless the repository's workflow has told of it before.
fn command(
    tx: &WriteTx<'_>,
    pull: &PullId,
    remark: &Remark,
    instruction: Option<String>,
    now: Timestamp,
) -> StoreResult<Received> {
    let instruction = gap_fill::presentable(instruction);
    let known = findings::commands(tx, pull)?;
    if known.iter().any(|(_, one)| one.comment == Some(remark.id)) {
        return Ok(Received::Ignored("known"));
    }
    let told_by_workflow = known.into_iter().find(|(_, one)| {
        one.comment.is_none() && one.by_workflow && one.is_meant(instruction.as_deref(), now)
    });
    if let Some((key, told)) = told_by_workflow {
        let same = Command {
            comment: Some(remark.id),
            ..told
        };
        findings::put_command(tx, pull, &key, &same)?;
        return Ok(Received::Ignored("known"));
    }
    let asked = Command {
        comment: Some(remark.id),
        by: Some(remark.author.name().to_owned()),
        instruction,
        asked_at: now,
        by_workflow: false,
        state: CommandState::Waiting,
    };
    findings::put_command(tx, pull, &format!("comment-{}", remark.id), &asked)?;
    Ok(Received::Queued)
}

fn forget_commands(tx: &WriteTx<'_>, pull: &PullId, ids: &[u64]) -> StoreResult<()> {
    for (key, command) in findings::commands(tx, pull)? {
        let is_meant = command.comment.is_some_and(|id| ids.contains(&id));
        if is_meant && command.is_waiting() && !command.by_workflow {
            findings::remove_command(tx, pull, &key)?;
        }
    }
    Ok(())
}

fn note_merge(tx: &WriteTx<'_>, merged: Merged, now: Timestamp) -> StoreResult<Received> {
    let pull = known_as(tx, merged.pull)?;
    if jobs::of_pull(tx, &pull.repo, pull.number)?.is_empty() {
        return Ok(Received::Ignored("not our pull request"));
    }
    let standing = PullStanding::Merged {
        commit: merged.commit,
        at: now,
    };
    Ok(match close(tx, &pull, standing)? {
        true => Received::Queued,
        false => Received::Ignored("known"),
    })
}

/// The pull request is over: nothing that waits is done any more, and a merge lets the ticket go. The
/// ticket itself is left as it is. False when all that is known.
pub(super) fn close(tx: &WriteTx<'_>, pull: &PullId, standing: PullStanding) -> StoreResult<bool> {
    let mut row = findings::pull(tx, pull)?;
    take_back(tx, pull, |_| true)?;
    for (key, command) in findings::commands(tx, pull)? {
        if command.is_waiting() {
            findings::remove_command(tx, pull, &key)?;
        }
    }
    if row.standing.as_str() == standing.as_str() {
        return Ok(false);
    }
    if matches!(standing, PullStanding::Merged { .. })
        && let Some(job) = jobs::of_pull(tx, &pull.repo, pull.number)?.pop()
    {
        dedup::remove(tx, &job.issue.id)?;
    }
    row.standing = standing;
    findings::put_pull(tx, pull, &row)?;
    Ok(true)
}

/// Brings the ledger up to what the host shows: what no webhook told is added, what does not stand
/// any more is withdrawn. Answers how much was added.
pub(super) fn reconcile(
    tx: &WriteTx<'_>,
    pull: &PullId,
    seen: &Conversation,
    now: Timestamp,
) -> StoreResult<u64> {
    let standing = match (seen.state, &seen.merge) {
        (PullState::Open, _) => PullStanding::Open,
        (PullState::Merged, merge) => {
            let (commit, at) = merge.clone().unwrap_or_else(|| (String::new(), now));
            PullStanding::Merged { commit, at }
        }
        (PullState::Closed, _) => PullStanding::Closed,
    };
    if standing != PullStanding::Open {
        return close(tx, pull, standing).map(u64::from);
    }
    let row = findings::pull(tx, pull)?;
    if row.standing != standing || row.draft != Some(seen.draft) {
        let row = feedback::PullRow {
            standing,
            draft: Some(seen.draft),
            ..row
        };
        findings::put_pull(tx, pull, &row)?;
    }
    if ours(tx, pull, &seen.body)?.is_none() {
        return Ok(0);
    }
    let mut added = 0;
    for spoken in &seen.spoken {
        added += u64::from(compare(tx, pull, spoken, now)?);
    }
    Ok(added)
}

/// Whether it was news.
fn compare(tx: &WriteTx<'_>, pull: &PullId, spoken: &Spoken, now: Timestamp) -> StoreResult<bool> {
    let remark = &spoken.remark;
    if !spoken.stands {
        take_back(tx, pull, |known| {
            known.source == remark.source && known.id == remark.id
        })?;
        return Ok(false);
    }
    if is_own(remark, spoken.by_its_author) {
        return Ok(false);
    }
    match feedback::judge(remark) {
        // Who left the line as it was then knows that it has changed.
        Judged::Asks if !spoken.is_outdated => add(tx, pull, remark.clone(), now),
        Judged::Command(instruction) if !is_answered(tx, pull, remark, now)? => {
            let noted = command(tx, pull, remark, instruction, now)?;
            Ok(noted == Received::Queued)
        }
        Judged::Asks | Judged::Command(_) | Judged::Nothing(_) => Ok(false),
    }
}

/// Whether a run was started since the comment, or it is too old to start one for it. The workflow
/// of the repository does not say which comment it tells of.
fn is_answered(
    tx: &impl Rows,
    pull: &PullId,
    remark: &Remark,
    now: Timestamp,
) -> StoreResult<bool> {
    if now.since(remark.created_at) > LATE_COMMAND {
        return Ok(true);
    }
    let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
    Ok(of_pull.iter().any(|job| {
        job.kind == JobKind::GapFill && job.reserved_at + CLOCK_SKEW >= remark.created_at
    }))
}

/// A run that a person asked for met the usage limit of the model's provider: it is asked for still.
pub(super) fn ask_again(tx: &WriteTx<'_>, job: &Job) -> StoreResult<()> {
    let is_meant = job.kind == JobKind::GapFill && job.resumes_at.is_some();
    let Some(opened) = job.pull.as_ref().filter(|_| is_meant) else {
        return Ok(());
    };
    let pull = PullId {
        repo: job.repo.clone(),
        number: opened.number,
    };
    let started = CommandState::Started {
        job: job.id.clone(),
    };
    for (key, command) in findings::commands(tx, &pull)? {
        if command.state == started {
            let again = Command {
                state: CommandState::Waiting,
                ..command
            };
            findings::put_command(tx, &pull, &key, &again)?;
        }
    }
    Ok(())
}

/// After a follow-up has ended: what it was given is resolved, or waits for the next. Answers how
/// much was given up.
pub(super) fn settle(tx: &WriteTx<'_>, job: &Job) -> StoreResult<usize> {
    let Some(opened) = job.pull.as_ref().filter(|_| job.kind == JobKind::FollowUp) else {
        return Ok(0);
    };
    let pull = PullId {
        repo: job.repo.clone(),
        number: opened.number,
    };
    let mut given_up = 0;
    for (key, finding) in findings::at_work(tx, &pull)? {
        let taken = FindingState::Taken {
            job: job.id.clone(),
        };
        if finding.state == taken {
            let after = finding.after(job);
            given_up += usize::from(after.state == FindingState::GivenUp);
            findings::put(tx, &pull, &key, &after)?;
        }
    }
    Ok(given_up)
}

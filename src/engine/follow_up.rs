//! Feedback that people gave on a pull request becomes one more run on its branch.
//!
//! Once it is quiet, the host is asked how the conversation stands and what its authors may do, and
//! the ticketing system for the ticket as it is now. Then one commit decides, by the store alone,
//! whose turn it is, reserves the run and notes which feedback it was given: a second look at the
//! same time finds the branch busy. Whatever cannot be asked just now leaves everything as it is, for
//! the next look.
//!
//! Commands that webhooks told of are started here, too, so that they wait their turn.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{TryStreamExt, stream};
use serde::Deserialize;
use tokio::time::timeout;

use crate::app::App;
use domain::audit::Actor;
use domain::comments;
use domain::external_reviewers::{ExternalReviewConfig, ReviewInputs};
use domain::feedback::{
    self, CommentCommand, CommentCommandState, FeedbackAuthor, FeedbackClass, FollowUpPolicy,
    NextPullRequestRun, PullRequestId, ReviewFinding, ReviewFindingState,
};
use domain::ids::JobId;
use domain::issue::{IssueLookup, Phase, RelatedIssues};
use domain::job::{Job, JobKind};
use domain::limits;
use domain::mapping::Mapping;
use domain::runner_image::RequestedImage;
use domain::time::Timestamp;
use domain::usage::BudgetUsage;
use store::pull_feedback::KeyedRow;
use store::{ReadableTx, StoreResult, WriteTx, jobs, mappings, pull_feedback, webhook_deliveries};
use vendors::http::VendorError;
use vendors::scm::{GitHub, PullRequestFeedback, RepoPermission};

use super::budget;
use super::dispatch;
use super::feedback::reconcile_feedback;
use super::provider_limit;
use super::pull_run::{self, PullRunRequest};
use super::pull_wait_comments::{self, BUDGET_COMMENT, FOLLOW_UP_BUDGET_COMMENT};
use super::repo_image;

/// How many pull requests are looked at side by side?
pub(super) const MAX_CONCURRENT_PULLS: usize = 8;

/// How long is a ticketing system waited for?
const LOOK_UP: Duration = Duration::from_secs(15);

/// How many deliveries are forgotten in one commit?
const SWEPT_AT_ONCE: usize = 2_000;

/// Where a repository names its reviewers.
const SETTINGS: &str = ".agent-implement/config.yml";

/// Looks once at every pull request that something is to be done about.
pub async fn run_once(app: &App) -> StoreResult<()> {
    forget_deliveries(app).await?;
    let pulls = app.store.read(pull_feedback::pulls_with_open_work)?;
    stream::iter(pulls.iter().map(Ok))
        .try_for_each_concurrent(MAX_CONCURRENT_PULLS, |pull| look(app, pull))
        .await
}

async fn forget_deliveries(app: &App) -> StoreResult<()> {
    let then = app.now() - limits::WEBHOOK_DEDUP_WINDOW;
    if app
        .store
        .read(|tx| webhook_deliveries::any_before(tx, then))?
    {
        let swept = app
            .store
            .write(move |tx| webhook_deliveries::remove_before(tx, then, SWEPT_AT_ONCE));
        swept.await?;
    }
    Ok(())
}

/// A pull request as the store knows it.
struct Standing {
    /// The last job of it.
    opened: Job,
    mapping: Mapping,
    findings: Vec<KeyedRow<ReviewFinding>>,
    commands: Vec<KeyedRow<CommentCommand>>,
    turn: NextPullRequestRun,
    held: Option<Held>,
}

/// Why no run of its mapping may start now.
enum Held {
    Budget(BudgetUsage),
    Limit(Timestamp),
}

impl Standing {
    /// None while nothing can be done: it has no job yet, or nobody maps its repository, or the
    /// mapping is paused. All of it waits.
    fn read(
        tx: &impl ReadableTx,
        app: &App,
        pull: &PullRequestId,
        now: Timestamp,
    ) -> StoreResult<Option<Self>> {
        let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
        let Some(opened) = of_pull.last().cloned() else {
            return Ok(None);
        };
        let mode = app.runner_mode(tx)?;
        let mapping = mappings::get(tx, &opened.team)?
            .filter(|mapping| !mapping.paused && mapping.target_repo() == pull.repo)
            .filter(|mapping| {
                dispatch::ineligible_reason(app, mode, mapping, Phase::Implementation).is_none()
            });
        let Some(mapping) = mapping else {
            return Ok(None);
        };
        let findings = pull_feedback::unresolved(tx, pull)?;
        let commands = pull_feedback::commands(tx, pull)?;
        let turn = feedback::next_pull_request_run(
            &FollowUpPolicy::default(),
            pull_run::active_run(tx, &opened)?.is_some(),
            &of_pull,
            &values(&findings),
            &values(&commands),
            now,
        );
        let held = match budget::exhausted(tx, &mapping, now)? {
            Some(spending) => Some(Held::Budget(spending)),
            None => provider_limit::limited_until(tx, app, &mapping, now)?.map(Held::Limit),
        };
        Ok(Some(Self {
            opened,
            mapping,
            findings,
            commands,
            turn,
            held,
        }))
    }

    /// Everybody whose word is to be weighed.
    fn authors(&self) -> Vec<FeedbackAuthor> {
        let new = self
            .findings
            .iter()
            .filter(|(_, one)| one.state == ReviewFindingState::New);
        let said = new.map(|(_, finding)| finding.comment.author.clone());
        let waiting = self.commands.iter().filter(|(_, one)| one.is_waiting());
        let asked = waiting.filter_map(|(_, command)| {
            let login = command.author.clone()?;
            Some(FeedbackAuthor::Person { login })
        });
        said.chain(asked).collect()
    }
}

fn values<T: Clone>(keyed: &[KeyedRow<T>]) -> Vec<T> {
    keyed.iter().map(|(_, value)| value.clone()).collect()
}

/// What was found out outside.
#[derive(Clone)]
struct Seen {
    conversation: PullRequestFeedback,
    /// Whether somebody's word counts; nothing is known of those who are not here.
    counts: HashMap<FeedbackAuthor, bool>,
    ticket: IssueLookup,
    /// The image that the repository asks for.
    image: RequestedImage,
}

async fn look(app: &App, pull: &PullRequestId) -> StoreResult<()> {
    let now = app.now();
    let read = app.store.read(|tx| Standing::read(tx, app, pull, now))?;
    let (Some(standing), Some(github)) = (read, &app.github) else {
        return Ok(());
    };
    match (standing.turn, &standing.held) {
        (NextPullRequestRun::NotDue, _) | (NextPullRequestRun::FollowUp, Some(Held::Limit(_))) => {
            return Ok(());
        }
        (NextPullRequestRun::LimitReached(until), _) => {
            let body =
                comments::follow_up_limit_reached(FollowUpPolicy::default().max_follow_ups, until);
            return pull_wait_comments::post_once(app, pull, until, FOLLOW_UP_BUDGET_COMMENT, body)
                .await;
        }
        (NextPullRequestRun::FollowUp, Some(Held::Budget(spending))) => {
            let told = spending.exhausted_message(&standing.mapping.team_key);
            let body = comments::follow_ups_over_budget(&told);
            return pull_wait_comments::post_once(
                app,
                pull,
                spending.month.end(),
                BUDGET_COMMENT,
                body,
            )
            .await;
        }
        // Who asks is known to wait.
        (NextPullRequestRun::Command, Some(Held::Limit(until)))
            if pull_wait_comments::is_posted(app, pull, *until)? =>
        {
            return Ok(());
        }
        (NextPullRequestRun::Command | NextPullRequestRun::FollowUp, _) => {}
    }
    let seen = match see(app, github, pull, &standing).await {
        Ok(seen) => seen,
        Err(why) => {
            tracing::warn!(repo = %pull.repo, pull = pull.number, why, "Feedback waits.");
            return Ok(());
        }
    };
    let (handle, place) = (app.clone(), pull.clone());
    let begun = app
        .store
        .write(move |tx| begin(tx, &handle, &place, &seen, now))
        .await?;
    if let Some(job) = begun {
        tracing::info!(job_id = %job, repo = %pull.repo, pull = pull.number, "Reserved a run on a pull request.");
    }
    Ok(())
}

/// Asks everybody outside whose word is needed.
async fn see(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    standing: &Standing,
) -> Result<Seen, String> {
    let told = |error: VendorError| error.to_string();
    let conversation = github.pull_feedback(pull).await.map_err(told)?;
    let mut authors = standing.authors();
    authors.extend(asking(&conversation));
    authors.sort();
    authors.dedup();
    Ok(Seen {
        counts: weigh(app, github, pull, &standing.mapping, authors).await,
        ticket: ticket(app, standing).await?,
        image: repo_image::fetch(app, &pull.repo, &standing.mapping.default_branch).await?,
        conversation,
    })
}

/// Everybody who asks for something in a conversation: what no webhook told is weighed at once, or
/// a stranger's word would hold up what counts.
fn asking(conversation: &PullRequestFeedback) -> impl Iterator<Item = FeedbackAuthor> {
    let standing = conversation.items.iter().filter(|spoken| spoken.is_active);
    let asks = standing.filter(|spoken| {
        !matches!(
            feedback::classify(&spoken.comment),
            FeedbackClass::Ignored(_)
        )
    });
    asks.map(|spoken| spoken.comment.author.clone())
}

/// Whose word counts: that of people who may write, and of reviewers whom the repository names.
/// Somebody who cannot be looked up now is left out, and looked up again.
async fn weigh(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    mapping: &Mapping,
    authors: Vec<FeedbackAuthor>,
) -> HashMap<FeedbackAuthor, bool> {
    let mut counts = HashMap::new();
    let mut reviewers = None;
    for author in authors {
        let weighed = match &author {
            FeedbackAuthor::Person { login } => may_write(app, github, pull, login).await,
            FeedbackAuthor::App { slug } => {
                if reviewers.is_none() {
                    reviewers = Some(named_reviewers(github, mapping).await);
                }
                match &reviewers {
                    Some(Ok(reviewers)) => Ok(reviewers.includes_app(slug)),
                    Some(Err(why)) => Err(why.clone()),
                    None => Ok(false),
                }
            }
        };
        match weighed {
            Ok(counted) => {
                counts.insert(author, counted);
            }
            Err(why) => {
                let who = author.name();
                tracing::warn!(repo = %pull.repo, who, why, "What somebody may do could not be looked up.");
            }
        }
    }
    counts
}

async fn may_write(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    login: &str,
) -> Result<bool, String> {
    let now = app.now();
    let known = app.permission_cache.get(&pull.repo, login, now);
    let permission = match known {
        Some(permission) => permission,
        None => {
            let asked = github.permission(&pull.repo, login).await;
            let permission = asked.map_err(|error| error.to_string())?;
            app.permission_cache
                .insert(&pull.repo, login, permission, now);
            permission
        }
    };
    Ok(permission >= RepoPermission::Write)
}

/// The reviewers that the default branch names. A file that cannot be read names nobody.
async fn named_reviewers(
    github: &GitHub,
    mapping: &Mapping,
) -> Result<ExternalReviewConfig, String> {
    #[derive(Deserialize, Default)]
    struct Named {
        #[serde(flatten)]
        review: ReviewInputs,
    }
    let file = github
        .file(&mapping.target_repo(), SETTINGS, &mapping.default_branch)
        .await
        .map_err(|error| error.to_string())?;
    let named: Option<Named> = file
        .and_then(|file| serde_saphyr::from_str(&file.text).ok())
        .flatten();
    Ok(ExternalReviewConfig::default().with_overrides(&named.unwrap_or_default().review))
}

/// The ticket as it is now. Work on an open pull request outlives it.
async fn ticket(app: &App, standing: &Standing) -> Result<IssueLookup, String> {
    let issue = &standing.opened.issue;
    let account = app
        .account(issue.system)
        .ok_or("its ticketing system is not configured")?;
    let found = match timeout(
        LOOK_UP,
        account.find_issue(&[&standing.mapping], &issue.key),
    )
    .await
    {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(format!("the ticket could not be looked up: {error}")),
        Err(_) => return Err(format!("{} did not answer in time", account.name())),
    };
    let same = found.into_iter().find(|named| named.issue.id == issue.id);
    Ok(same.unwrap_or_else(|| IssueLookup {
        issue: issue.clone(),
        team: standing.mapping.team_key.clone(),
        description: String::new(),
        related: RelatedIssues::default(),
    }))
}

/// Brings the ledger up to what was seen and, when it is somebody's turn still, reserves the run.
fn begin(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    seen: &Seen,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    reconcile_feedback(tx, pull, &seen.conversation, now)?;
    hear(tx, pull, &seen.counts)?;
    let Some(standing) = Standing::read(tx, app, pull, now)? else {
        return Ok(None);
    };
    match standing.turn {
        NextPullRequestRun::Command => begin_command(tx, app, pull, seen, &standing, now),
        NextPullRequestRun::FollowUp if standing.held.is_none() => {
            begin_follow_up(tx, app, pull, seen, &standing, now)
        }
        NextPullRequestRun::FollowUp
        | NextPullRequestRun::NotDue
        | NextPullRequestRun::LimitReached(_) => Ok(None),
    }
}

/// What somebody said whose word does not count is forgotten: said again when it does, it counts.
fn hear(
    tx: &WriteTx<'_>,
    pull: &PullRequestId,
    counts: &HashMap<FeedbackAuthor, bool>,
) -> StoreResult<()> {
    for (key, finding) in pull_feedback::unresolved(tx, pull)? {
        match counts.get(&finding.comment.author) {
            Some(true) if finding.state == ReviewFindingState::New => {
                let open = ReviewFinding {
                    state: ReviewFindingState::Open,
                    ..finding
                };
                pull_feedback::put_finding(tx, pull, &key, &open)?;
            }
            Some(false) if finding.state == ReviewFindingState::New => {
                pull_feedback::remove_finding(tx, pull, &key)?;
            }
            _ => {}
        }
    }
    for (key, command) in pull_feedback::commands(tx, pull)? {
        if command.is_waiting() && is_heard(&command, counts) == Some(false) {
            pull_feedback::remove_command(tx, pull, &key)?;
        }
    }
    Ok(())
}

fn is_heard(command: &CommentCommand, counts: &HashMap<FeedbackAuthor, bool>) -> Option<bool> {
    match command.author.clone() {
        None => Some(true),
        Some(login) => counts.get(&FeedbackAuthor::Person { login }).copied(),
    }
}

fn begin_command(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    seen: &Seen,
    standing: &Standing,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let mut waiting = standing.commands.iter().filter(|(_, one)| one.is_waiting());
    let heard = waiting.find(|(_, one)| is_heard(one, &seen.counts) == Some(true));
    let Some((key, command)) = heard else {
        return Ok(None);
    };
    match &standing.held {
        // The budget is its operator's word, and not that of who comments.
        Some(Held::Budget(spending)) => {
            let told = spending.exhausted_message(&standing.mapping.team_key);
            pull_wait_comments::post_command_refused(tx, pull, &told, now)?;
            let refused = CommentCommand {
                state: CommentCommandState::Refused,
                ..command.clone()
            };
            return pull_feedback::put_command(tx, pull, key, &refused).map(|()| None);
        }
        Some(Held::Limit(until)) => {
            pull_wait_comments::post_limit_wait(tx, pull, *until, now)?;
            return Ok(None);
        }
        None => {}
    }
    let wanted = PullRunRequest {
        kind: JobKind::GapFill,
        actor: commanded(command),
        last_job: &standing.opened,
        mapping: &standing.mapping,
        issue: &seen.ticket,
        instruction: command.instruction.clone(),
        findings: None,
        image: seen.image.clone(),
    };
    let Some(job) = pull_run::reserve(tx, app, wanted, now)? else {
        return Ok(None);
    };
    let started = CommentCommand {
        state: CommentCommandState::Started { job: job.clone() },
        ..command.clone()
    };
    pull_feedback::put_command(tx, pull, key, &started)?;
    Ok(Some(job))
}

/// Who commented; the repository's workflow does not say, and knows the trigger's secret.
fn commanded(command: &CommentCommand) -> Actor {
    match &command.author {
        Some(login) => Actor::webhook([login.as_str()]),
        None => Actor::trigger(),
    }
}

fn begin_follow_up(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullRequestId,
    seen: &Seen,
    standing: &Standing,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let is_open = |one: &&KeyedRow<ReviewFinding>| one.1.state == ReviewFindingState::Open;
    let open: Vec<&KeyedRow<ReviewFinding>> = standing.findings.iter().filter(is_open).collect();
    if open.is_empty() {
        return Ok(None);
    }
    let told: Vec<&ReviewFinding> = open.iter().map(|(_, finding)| finding).collect();
    let (text, count) = feedback::format_findings(&told);
    let wanted = PullRunRequest {
        kind: JobKind::FollowUp,
        actor: Actor::webhook(told.iter().take(count).map(|one| one.comment.author.name())),
        last_job: &standing.opened,
        mapping: &standing.mapping,
        issue: &seen.ticket,
        instruction: None,
        findings: Some(text),
        image: seen.image.clone(),
    };
    let Some(job) = pull_run::reserve(tx, app, wanted, now)? else {
        return Ok(None);
    };
    for (key, finding) in open.into_iter().take(count) {
        let taken = ReviewFinding {
            state: ReviewFindingState::InProgress { job: job.clone() },
            attempts: finding.attempts.saturating_add(1),
            ..finding.clone()
        };
        pull_feedback::put_finding(tx, pull, key, &taken)?;
    }
    Ok(Some(job))
}

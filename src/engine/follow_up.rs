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
use domain::caps;
use domain::comments;
use domain::feedback::{
    self, Author, Command, CommandState, Finding, FindingState, Judged, Pace, PullId, Turn,
};
use domain::ids::JobId;
use domain::image::Asked;
use domain::issue::{NamedIssue, Phase, Related};
use domain::job::{Job, JobKind};
use domain::mapping::Mapping;
use domain::reviewers::{ReviewInputs, Reviewers};
use domain::time::Timestamp;
use domain::usage::Spending;
use store::findings::Keyed;
use store::{Rows, StoreResult, WriteTx, deliveries, findings, jobs, mappings};
use vendors::http::VendorError;
use vendors::scm::{Conversation, GitHub, Permission};

use super::budget;
use super::dispatch;
use super::feedback::reconcile;
use super::image;
use super::limit;
use super::notice::{self, BUDGET, FOLLOW_UP_BUDGET};
use super::pull_run::{self, PullRun};

/// How many pull requests are looked at side by side?
pub(super) const SIDE_BY_SIDE: usize = 8;

/// How long is a ticketing system waited for?
const LOOK_UP: Duration = Duration::from_secs(15);

/// How many deliveries are forgotten in one commit?
const SWEPT_AT_ONCE: usize = 2_000;

/// Where a repository names its reviewers.
const SETTINGS: &str = ".agent-implement/config.yml";

/// Looks once at every pull request that something is to be done about.
pub async fn once(app: &App) -> StoreResult<()> {
    forget_deliveries(app).await?;
    let pulls = app.store.read(findings::pulls_at_work)?;
    stream::iter(pulls.iter().map(Ok))
        .try_for_each_concurrent(SIDE_BY_SIDE, |pull| look(app, pull))
        .await
}

async fn forget_deliveries(app: &App) -> StoreResult<()> {
    let then = app.now() - caps::DELIVERY_WINDOW;
    if app.store.read(|tx| deliveries::any_before(tx, then))? {
        let swept = app
            .store
            .write(move |tx| deliveries::sweep(tx, then, SWEPT_AT_ONCE));
        swept.await?;
    }
    Ok(())
}

/// A pull request as the store knows it.
struct Standing {
    /// The last job of it.
    opened: Job,
    mapping: Mapping,
    findings: Vec<Keyed<Finding>>,
    commands: Vec<Keyed<Command>>,
    turn: Turn,
    held: Option<Held>,
}

/// Why no run of its mapping may start now.
enum Held {
    Budget(Spending),
    Limit(Timestamp),
}

impl Standing {
    /// None while nothing can be done: it has no job yet, or nobody maps its repository, or the
    /// mapping is paused. All of it waits.
    fn read(tx: &impl Rows, app: &App, pull: &PullId, now: Timestamp) -> StoreResult<Option<Self>> {
        let of_pull = jobs::of_pull(tx, &pull.repo, pull.number)?;
        let Some(opened) = of_pull.last().cloned() else {
            return Ok(None);
        };
        let mode = app.runner_mode(tx)?;
        let mapping = mappings::get(tx, &opened.team)?
            .filter(|mapping| !mapping.paused && mapping.target() == pull.repo)
            .filter(|mapping| {
                dispatch::ineligible(app, mode, mapping, Phase::Implementation).is_none()
            });
        let Some(mapping) = mapping else {
            return Ok(None);
        };
        let findings = findings::at_work(tx, pull)?;
        let commands = findings::commands(tx, pull)?;
        let turn = feedback::turn(
            &Pace::default(),
            pull_run::at_work(tx, &opened)?.is_some(),
            &of_pull,
            &values(&findings),
            &values(&commands),
            now,
        );
        let held = match budget::used_up(tx, &mapping, now)? {
            Some(spending) => Some(Held::Budget(spending)),
            None => limit::until(tx, app, &mapping, now)?.map(Held::Limit),
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
    fn authors(&self) -> Vec<Author> {
        let new = self
            .findings
            .iter()
            .filter(|(_, one)| one.state == FindingState::New);
        let said = new.map(|(_, finding)| finding.remark.author.clone());
        let waiting = self.commands.iter().filter(|(_, one)| one.is_waiting());
        let asked = waiting.filter_map(|(_, command)| {
            let login = command.by.clone()?;
            Some(Author::Person { login })
        });
        said.chain(asked).collect()
    }
}

fn values<T: Clone>(keyed: &[Keyed<T>]) -> Vec<T> {
    keyed.iter().map(|(_, value)| value.clone()).collect()
}

/// What was found out outside.
#[derive(Clone)]
struct Seen {
    conversation: Conversation,
    /// Whether somebody's word counts; nothing is known of those who are not here.
    counts: HashMap<Author, bool>,
    ticket: NamedIssue,
    /// The image that the repository asks for.
    image: Asked,
}

async fn look(app: &App, pull: &PullId) -> StoreResult<()> {
    let now = app.now();
    let read = app.store.read(|tx| Standing::read(tx, app, pull, now))?;
    let (Some(standing), Some(github)) = (read, &app.github) else {
        return Ok(());
    };
    match (standing.turn, &standing.held) {
        (Turn::Nobodys, _) | (Turn::FollowUp, Some(Held::Limit(_))) => return Ok(()),
        (Turn::Spent(until), _) => {
            let body = comments::follow_ups_pause(Pace::default().budget, until);
            return notice::tell(app, pull, until, FOLLOW_UP_BUDGET, body).await;
        }
        (Turn::FollowUp, Some(Held::Budget(spending))) => {
            let told = spending.told(&standing.mapping.team_key);
            let body = comments::follow_ups_wait(&told);
            return notice::tell(app, pull, spending.month.end(), BUDGET, body).await;
        }
        // Who asks is known to wait.
        (Turn::Command, Some(Held::Limit(until))) if notice::is_told(app, pull, *until)? => {
            return Ok(());
        }
        (Turn::Command | Turn::FollowUp, _) => {}
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
    pull: &PullId,
    standing: &Standing,
) -> Result<Seen, String> {
    let told = |error: VendorError| error.to_string();
    let conversation = github.conversation(pull).await.map_err(told)?;
    let mut authors = standing.authors();
    authors.extend(asking(&conversation));
    authors.sort();
    authors.dedup();
    Ok(Seen {
        counts: weigh(app, github, pull, &standing.mapping, authors).await,
        ticket: ticket(app, standing).await?,
        image: image::asked(app, &pull.repo, &standing.mapping.default_branch).await?,
        conversation,
    })
}

/// Everybody who asks for something in a conversation: what no webhook told is weighed at once, or
/// a stranger's word would hold up what counts.
fn asking(conversation: &Conversation) -> impl Iterator<Item = Author> {
    let standing = conversation.spoken.iter().filter(|spoken| spoken.stands);
    let asks =
        standing.filter(|spoken| !matches!(feedback::judge(&spoken.remark), Judged::Nothing(_)));
    asks.map(|spoken| spoken.remark.author.clone())
}

/// Whose word counts: that of people who may write, and of reviewers whom the repository names.
/// Somebody who cannot be looked up now is left out, and looked up again.
async fn weigh(
    app: &App,
    github: &GitHub,
    pull: &PullId,
    mapping: &Mapping,
    authors: Vec<Author>,
) -> HashMap<Author, bool> {
    let mut counts = HashMap::new();
    let mut reviewers = None;
    for author in authors {
        let weighed = match &author {
            Author::Person { login } => may_write(app, github, pull, login).await,
            Author::App { slug } => {
                if reviewers.is_none() {
                    reviewers = Some(named_reviewers(github, mapping).await);
                }
                match &reviewers {
                    Some(Ok(reviewers)) => Ok(reviewers.count(slug)),
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

async fn may_write(app: &App, github: &GitHub, pull: &PullId, login: &str) -> Result<bool, String> {
    let now = app.now();
    let known = app.trust.of(&pull.repo, login, now);
    let permission = match known {
        Some(permission) => permission,
        None => {
            let asked = github.permission(&pull.repo, login).await;
            let permission = asked.map_err(|error| error.to_string())?;
            app.trust.learn(&pull.repo, login, permission, now);
            permission
        }
    };
    Ok(permission >= Permission::Write)
}

/// The reviewers that the default branch names. A file that cannot be read names nobody.
async fn named_reviewers(github: &GitHub, mapping: &Mapping) -> Result<Reviewers, String> {
    #[derive(Deserialize, Default)]
    struct Named {
        #[serde(flatten)]
        review: ReviewInputs,
    }
    let file = github
        .file(&mapping.target(), SETTINGS, &mapping.default_branch)
        .await
        .map_err(|error| error.to_string())?;
    let named: Option<Named> = file
        .and_then(|file| serde_saphyr::from_str(&file.text).ok())
        .flatten();
    Ok(Reviewers::default().with(&named.unwrap_or_default().review))
}

/// The ticket as it is now. Work on an open pull request outlives it.
async fn ticket(app: &App, standing: &Standing) -> Result<NamedIssue, String> {
    let issue = &standing.opened.issue;
    let account = app
        .account(issue.system)
        .ok_or("its ticketing system is not configured")?;
    let found = match timeout(LOOK_UP, account.find(&[&standing.mapping], &issue.key)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(format!("the ticket could not be looked up: {error}")),
        Err(_) => return Err(format!("{} did not answer in time", account.name())),
    };
    let same = found.into_iter().find(|named| named.issue.id == issue.id);
    Ok(same.unwrap_or_else(|| NamedIssue {
        issue: issue.clone(),
        team: standing.mapping.team_key.clone(),
        description: String::new(),
        related: Related::default(),
    }))
}

/// Brings the ledger up to what was seen and, when it is somebody's turn still, reserves the run.
fn begin(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullId,
    seen: &Seen,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    reconcile(tx, pull, &seen.conversation, now)?;
    hear(tx, pull, &seen.counts)?;
    let Some(standing) = Standing::read(tx, app, pull, now)? else {
        return Ok(None);
    };
    match standing.turn {
        Turn::Command => begin_command(tx, app, pull, seen, &standing, now),
        Turn::FollowUp if standing.held.is_none() => {
            begin_follow_up(tx, app, pull, seen, &standing, now)
        }
        Turn::FollowUp | Turn::Nobodys | Turn::Spent(_) => Ok(None),
    }
}

/// What somebody said whose word does not count is forgotten: said again when it does, it counts.
fn hear(tx: &WriteTx<'_>, pull: &PullId, counts: &HashMap<Author, bool>) -> StoreResult<()> {
    for (key, finding) in findings::at_work(tx, pull)? {
        match counts.get(&finding.remark.author) {
            Some(true) if finding.state == FindingState::New => {
                let open = Finding {
                    state: FindingState::Open,
                    ..finding
                };
                findings::put(tx, pull, &key, &open)?;
            }
            Some(false) if finding.state == FindingState::New => {
                findings::remove(tx, pull, &key)?;
            }
            _ => {}
        }
    }
    for (key, command) in findings::commands(tx, pull)? {
        if command.is_waiting() && is_heard(&command, counts) == Some(false) {
            findings::remove_command(tx, pull, &key)?;
        }
    }
    Ok(())
}

fn is_heard(command: &Command, counts: &HashMap<Author, bool>) -> Option<bool> {
    match command.by.clone() {
        None => Some(true),
        Some(login) => counts.get(&Author::Person { login }).copied(),
    }
}

fn begin_command(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullId,
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
            let told = spending.told(&standing.mapping.team_key);
            notice::refuse_command(tx, pull, &told, now)?;
            let refused = Command {
                state: CommandState::Refused,
                ..command.clone()
            };
            return findings::put_command(tx, pull, key, &refused).map(|()| None);
        }
        Some(Held::Limit(until)) => {
            notice::tell_of_limit(tx, pull, *until, now)?;
            return Ok(None);
        }
        None => {}
    }
    let wanted = PullRun {
        kind: JobKind::GapFill,
        by: commanded(command),
        opened: &standing.opened,
        mapping: &standing.mapping,
        named: &seen.ticket,
        instruction: command.instruction.clone(),
        findings: None,
        image: seen.image.clone(),
    };
    let Some(job) = pull_run::reserve(tx, app, wanted, now)? else {
        return Ok(None);
    };
    let started = Command {
        state: CommandState::Started { job: job.clone() },
        ..command.clone()
    };
    findings::put_command(tx, pull, key, &started)?;
    Ok(Some(job))
}

/// Who commented; the repository's workflow does not say, and knows the trigger's secret.
fn commanded(command: &Command) -> Actor {
    match &command.by {
        Some(login) => Actor::webhook([login.as_str()]),
        None => Actor::trigger(),
    }
}

fn begin_follow_up(
    tx: &WriteTx<'_>,
    app: &App,
    pull: &PullId,
    seen: &Seen,
    standing: &Standing,
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let is_open = |one: &&Keyed<Finding>| one.1.state == FindingState::Open;
    let open: Vec<&Keyed<Finding>> = standing.findings.iter().filter(is_open).collect();
    if open.is_empty() {
        return Ok(None);
    }
    let told: Vec<&Finding> = open.iter().map(|(_, finding)| finding).collect();
    let (text, count) = feedback::told(&told);
    let wanted = PullRun {
        kind: JobKind::FollowUp,
        by: Actor::webhook(told.iter().take(count).map(|one| one.remark.author.name())),
        opened: &standing.opened,
        mapping: &standing.mapping,
        named: &seen.ticket,
        instruction: None,
        findings: Some(text),
        image: seen.image.clone(),
    };
    let Some(job) = pull_run::reserve(tx, app, wanted, now)? else {
        return Ok(None);
    };
    for (key, finding) in open.into_iter().take(count) {
        let taken = Finding {
            state: FindingState::Taken { job: job.clone() },
            attempts: finding.attempts.saturating_add(1),
            ..finding.clone()
        };
        findings::put(tx, pull, key, &taken)?;
    }
    Ok(Some(job))
}

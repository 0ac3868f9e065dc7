//! `/api/blockers`: issues that wait, and for what. (spec: *Blocker reasons*)

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::routing::{
    ApiResult, Routes, ok, one_of, reject_other_methods, require_admin, with_app,
};
use domain::decision::{DecisionOutcome, WaitReason};
use domain::ids::{IssueId, IssueKey, TeamKey};
use domain::time::Timestamp;
use engine::app::{App, PolledIssue};
use store::{ReadableTx, StoreResult, decisions};

use super::poll_snapshot::load_poll_snapshot;

/// Routes of `/api/blockers`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "blockers").boxed();
    let query = warp::query::raw()
        .or(warp::any().map(String::new))
        .unify()
        .boxed();
    one_of([
        all.clone()
            .and(require_admin(app, Method::GET))
            .and(query)
            .and(with_app(app))
            .then(list)
            .boxed(),
        reject_other_methods(&all, [Method::GET]),
    ])
}

async fn list(query: String, app: App) -> ApiResult {
    let wanted = Wanted::of(&query);
    let sight = load_poll_snapshot(&app)?;
    // A row of each is read: off the threads that serve requests.
    let written = app.store.read_long(move |tx| {
        let (shown, others): (Vec<&PolledIssue>, Vec<&PolledIssue>) = sight
            .issues()
            .filter(|sighted| sighted.decision.outcome == DecisionOutcome::Waiting)
            .partition(|sighted| wanted.takes(sighted));
        let blockers = shown
            .into_iter()
            .map(|sighted| BlockerView::of(tx, sighted))
            .collect::<StoreResult<Vec<_>>>()?;
        Ok(ok(&BlockersView {
            totals: Totals::of(&blockers),
            blockers,
            others: Others::of(&others),
        }))
    });
    Ok(written.await?)
}

/// Which reasons are shown: the spec's, or ours as well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    OfTheSpec,
    All,
}

impl Wanted {
    fn of(query: &str) -> Self {
        let all = query.split('&').any(|pair| pair == "all=true");
        if all { Wanted::All } else { Wanted::OfTheSpec }
    }

    fn takes(self, sighted: &PolledIssue) -> bool {
        let of_the_spec = matches!(
            sighted.decision.reason,
            Some(WaitReason::Concurrency | WaitReason::Dedup | WaitReason::NoMapping)
        );
        of_the_spec || self == Wanted::All
    }
}

#[derive(Serialize)]
struct BlockersView<'a> {
    blockers: Vec<BlockerView<'a>>,
    totals: Totals,
    others: Option<Others>,
}

/// The issues that wait for reasons that are not shown, and where they are.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Others {
    issues: usize,
    by_reason: BTreeMap<WaitReason, usize>,
    see: &'static str,
}

impl Others {
    fn of(waiting: &[&PolledIssue]) -> Option<Self> {
        (!waiting.is_empty()).then(|| Self {
            issues: waiting.len(),
            by_reason: by_reason(waiting.iter().filter_map(|sighted| sighted.decision.reason)),
            see: "/api/blockers?all=true",
        })
    }
}

fn by_reason(reasons: impl Iterator<Item = WaitReason>) -> BTreeMap<WaitReason, usize> {
    let mut counted = BTreeMap::new();
    for reason in reasons {
        *counted.entry(reason).or_default() += 1;
    }
    counted
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockerView<'a> {
    issue_id: &'a IssueId,
    issue_identifier: &'a IssueKey,
    issue_title: &'a str,
    team_key: &'a TeamKey,
    reason: Option<WaitReason>,
    message: &'a str,
    ticket_url: &'a str,
    /// When this became the answer.
    since: Timestamp,
}

impl<'a> BlockerView<'a> {
    fn of(tx: &impl ReadableTx, sighted: &'a PolledIssue) -> StoreResult<Self> {
        let (issue, decision) = (&sighted.issue.issue, &sighted.decision);
        let first_said =
            decisions::get(tx, &issue.key)?.and_then(|row| row.current().map(|said| said.at));
        Ok(Self {
            issue_id: &issue.id,
            issue_identifier: &issue.key,
            issue_title: &issue.title,
            team_key: &sighted.issue.team,
            reason: decision.reason,
            message: &decision.message,
            ticket_url: &issue.url,
            since: first_said.unwrap_or(decision.at),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    issues: usize,
    teams: usize,
    by_reason: BTreeMap<WaitReason, usize>,
}

impl Totals {
    fn of(blockers: &[BlockerView<'_>]) -> Self {
        let teams: BTreeSet<&TeamKey> = blockers.iter().map(|blocker| blocker.team_key).collect();
        Self {
            issues: blockers.len(),
            teams: teams.len(),
            by_reason: by_reason(blockers.iter().filter_map(|blocker| blocker.reason)),
        }
    }
}

//! `/api/blockers`: issues that wait, and for what. (spec: *Blocker reasons*)

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::app::{App, Sighted};
use crate::domain::decision::{Outcome, Reason};
use crate::domain::ids::{IssueId, IssueKey, TeamKey};
use crate::domain::time::Timestamp;
use crate::http::parts::{ApiResult, Routes, ok, one_of, only, signed_in, with};
use crate::store::{Rows, StoreResult, ledger};

use super::sight::look;

/// Routes of `/api/blockers`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "blockers").boxed();
    let query = warp::query::raw()
        .or(warp::any().map(String::new))
        .unify()
        .boxed();
    one_of([
        all.clone()
            .and(signed_in(app, Method::GET))
            .and(query)
            .and(with(app))
            .then(list)
            .boxed(),
        only(&all, [Method::GET]),
    ])
}

async fn list(query: String, app: App) -> ApiResult {
    let wanted = Wanted::of(&query);
    let sighted = look(&app)?.sighted;
    let waiting = sighted.iter().filter(|sighted| wanted.takes(sighted));
    let blockers = app.store.read(|tx| {
        waiting
            .map(|sighted| BlockerView::of(tx, sighted))
            .collect::<StoreResult<Vec<_>>>()
    })?;
    Ok(ok(&BlockersView {
        totals: Totals::of(&blockers),
        blockers,
    }))
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

    fn takes(self, sighted: &Sighted) -> bool {
        let decision = &sighted.decision;
        let of_the_spec = matches!(
            decision.reason,
            Some(Reason::Concurrency | Reason::Dedup | Reason::NoMapping)
        );
        decision.outcome == Outcome::Waiting && (of_the_spec || self == Wanted::All)
    }
}

#[derive(Serialize)]
struct BlockersView {
    blockers: Vec<BlockerView>,
    totals: Totals,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockerView {
    issue_id: IssueId,
    issue_identifier: IssueKey,
    issue_title: String,
    team_key: TeamKey,
    reason: Option<Reason>,
    message: String,
    ticket_url: String,
    /// When this became the answer.
    since: Timestamp,
}

impl BlockerView {
    fn of(tx: &impl Rows, sighted: &Sighted) -> StoreResult<Self> {
        let (issue, decision) = (&sighted.issue.issue, &sighted.decision);
        let first_said =
            ledger::get(tx, &issue.key)?.and_then(|row| row.current().map(|said| said.at));
        Ok(Self {
            issue_id: issue.id.clone(),
            issue_identifier: issue.key.clone(),
            issue_title: issue.title.clone(),
            team_key: sighted.issue.team.clone(),
            reason: decision.reason,
            message: decision.message.clone(),
            ticket_url: issue.url.clone(),
            since: first_said.unwrap_or(decision.at),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    issues: usize,
    teams: usize,
    by_reason: BTreeMap<Reason, usize>,
}

impl Totals {
    fn of(blockers: &[BlockerView]) -> Self {
        let mut by_reason = BTreeMap::new();
        for reason in blockers.iter().filter_map(|blocker| blocker.reason) {
            *by_reason.entry(reason).or_default() += 1;
        }
        let teams: BTreeSet<&TeamKey> = blockers.iter().map(|blocker| &blocker.team_key).collect();
        Self {
            issues: blockers.len(),
            teams: teams.len(),
            by_reason,
        }
    }
}

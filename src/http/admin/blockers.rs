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
    let sight = look(&app)?;
    // A row of each is read: off the threads that serve requests.
    let written = app.store.read_long(move |tx| {
        let waiting = sight.sighted().filter(|sighted| wanted.takes(sighted));
        let blockers = waiting
            .map(|sighted| BlockerView::of(tx, sighted))
            .collect::<StoreResult<Vec<_>>>()?;
        Ok(ok(&BlockersView {
            totals: Totals::of(&blockers),
            blockers,
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
struct BlockersView<'a> {
    blockers: Vec<BlockerView<'a>>,
    totals: Totals,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockerView<'a> {
    issue_id: &'a IssueId,
    issue_identifier: &'a IssueKey,
    issue_title: &'a str,
    team_key: &'a TeamKey,
    reason: Option<Reason>,
    message: &'a str,
    ticket_url: &'a str,
    /// When this became the answer.
    since: Timestamp,
}

impl<'a> BlockerView<'a> {
    fn of(tx: &impl Rows, sighted: &'a Sighted) -> StoreResult<Self> {
        let (issue, decision) = (&sighted.issue.issue, &sighted.decision);
        let first_said =
            ledger::get(tx, &issue.key)?.and_then(|row| row.current().map(|said| said.at));
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
    by_reason: BTreeMap<Reason, usize>,
}

impl Totals {
    fn of(blockers: &[BlockerView<'_>]) -> Self {
        let mut by_reason = BTreeMap::new();
        for reason in blockers.iter().filter_map(|blocker| blocker.reason) {
            *by_reason.entry(reason).or_default() += 1;
        }
        let teams: BTreeSet<&TeamKey> = blockers.iter().map(|blocker| blocker.team_key).collect();
        Self {
            issues: blockers.len(),
            teams: teams.len(),
            by_reason,
        }
    }
}

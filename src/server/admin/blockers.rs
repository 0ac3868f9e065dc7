//! `/api/blockers`: waiting issues with their reasons. See docs/behaviour.md#reasons-for-waiting.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::paging;
use crate::routing::{ApiResult, QueryParams, Route, ok};
use domain::decision::{DecisionOutcome, WaitReason};
use domain::ids::{IssueId, IssueKey, TeamKey};
use domain::time::Timestamp;
use engine::app::{App, PolledIssue};
use store::{ReadableTx, StoreResult, decisions};

use super::poll_snapshot::load_poll_snapshot;

/// Routes of `/api/blockers`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/blockers", "listBlockers", list).returns::<BlockersView<'_>>()]
}

async fn list(query: QueryParams, app: App) -> ApiResult {
    let filter = ReasonFilter::parse(&query);
    let limit = paging::parse_limit(&query, usize::MAX)?;
    let snapshot = load_poll_snapshot(&app)?;
    // Reads a row per issue, so it must not block the threads that serve requests.
    let response = app.core.store().read_long(move |tx| {
        let (shown, others): (Vec<&PolledIssue>, Vec<&PolledIssue>) = snapshot
            .issues()
            .filter(|polled| polled.decision.outcome == DecisionOutcome::Waiting)
            .partition(|polled| filter.includes(polled));
        let blockers = shown
            .iter()
            .take(limit)
            .map(|polled| BlockerView::of(tx, polled))
            .collect::<StoreResult<Vec<_>>>()?;
        Ok(ok(&BlockersView {
            totals: Totals::of(&shown),
            blockers,
            others: Others::of(&others),
        }))
    });
    Ok(response.await?)
}

/// Filter of reasons: the three documented ones by default, or all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReasonFilter {
    Default,
    All,
}

impl ReasonFilter {
    fn parse(query: &QueryParams) -> Self {
        if query.get("all").is_some_and(|all| all == "true") {
            ReasonFilter::All
        } else {
            ReasonFilter::Default
        }
    }

    fn includes(self, polled: &PolledIssue) -> bool {
        let is_default = matches!(
            polled.decision.reason,
            Some(WaitReason::Concurrency | WaitReason::Dedup | WaitReason::NoMapping)
        );
        is_default || self == ReasonFilter::All
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Blockers")]
struct BlockersView<'a> {
    blockers: Vec<BlockerView<'a>>,
    totals: Totals,
    /// Counts of the issues that wait for other reasons; null if there are none.
    others: Option<Others>,
}

/// Counts of the issues that the filter excludes, and the path that lists them.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OtherBlockers")]
struct Others {
    #[schemars(range(min = 1))]
    issues: usize,
    #[schemars(schema_with = "counts_by_reason")]
    by_reason: BTreeMap<WaitReason, usize>,
    /// Path that lists them.
    #[schemars(example = "/api/blockers?all=true")]
    see: &'static str,
}

impl Others {
    fn of(waiting: &[&PolledIssue]) -> Option<Self> {
        (!waiting.is_empty()).then(|| Self {
            issues: waiting.len(),
            by_reason: by_reason(waiting.iter().filter_map(|polled| polled.decision.reason)),
            see: "/api/blockers?all=true",
        })
    }
}

fn counts_by_reason(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": generator.subschema_for::<WaitReason>(),
        "additionalProperties": {"type": "integer", "minimum": 1},
    })
}

fn by_reason(reasons: impl Iterator<Item = WaitReason>) -> BTreeMap<WaitReason, usize> {
    let mut counted = BTreeMap::new();
    for reason in reasons {
        *counted.entry(reason).or_default() += 1;
    }
    counted
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Blocker")]
struct BlockerView<'a> {
    issue_id: &'a IssueId,
    issue_identifier: &'a IssueKey,
    issue_title: &'a str,
    team_key: &'a TeamKey,
    #[schemars(with = "WaitReason")]
    reason: Option<WaitReason>,
    #[schemars(example = "ENG at concurrency cap (3/3). Waiting for a slot.")]
    message: &'a str,
    ticket_url: &'a str,
    /// Time of the first decision with this reason.
    since: Timestamp,
}

impl<'a> BlockerView<'a> {
    fn of(tx: &impl ReadableTx, polled: &'a PolledIssue) -> StoreResult<Self> {
        let (issue, decision) = (&polled.issue.issue, &polled.decision);
        let first_decided_at =
            decisions::get(tx, &issue.key)?.and_then(|row| row.current().map(|first| first.at));
        Ok(Self {
            issue_id: &issue.id,
            issue_identifier: &issue.key,
            issue_title: &issue.title,
            team_key: &polled.issue.team,
            reason: decision.reason,
            message: &decision.message,
            ticket_url: &issue.url,
            since: first_decided_at.unwrap_or(decision.at),
        })
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BlockerTotals")]
struct Totals {
    issues: usize,
    teams: usize,
    #[schemars(schema_with = "counts_by_reason")]
    by_reason: BTreeMap<WaitReason, usize>,
}

impl Totals {
    /// Counts all waiting issues, also those that `limit` leaves out.
    fn of(waiting: &[&PolledIssue]) -> Self {
        let teams: BTreeSet<&TeamKey> = waiting.iter().map(|polled| &polled.issue.team).collect();
        Self {
            issues: waiting.len(),
            teams: teams.len(),
            by_reason: by_reason(waiting.iter().filter_map(|polled| polled.decision.reason)),
        }
    }
}

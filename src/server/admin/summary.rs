//! `/api/summary`: running and waiting now, and what happened in a window of time. See
//! docs/observe.md#numbers-over-time.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::paging::invalid;
use crate::error::AdminApiError;
use crate::routing::{ApiResult, QueryParams, Route, ok};
use domain::decision::{DecisionOutcome, WaitReason};
use domain::ids::TeamKey;
use domain::scoreboard::{Day, Hour, RunCounts};
use domain::time::Timestamp;
use engine::app::App;
use store::job_counts::{self, CountedRuns};
use store::{ReadableTx, StoreResult, jobs};

/// Routes of `/api/summary`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/summary", "summary", show).returns::<SummaryView>()]
}

async fn show(query: QueryParams, app: App) -> ApiResult {
    let name = query.get("window").map_or("24h", String::as_str);
    let window = Window::parse(name, app.core.now())
        .ok_or_else(|| invalid("window must be 24h, 7d or 30d"))?;
    let team = parse_team(&query)?;
    let waiting = Waiting::now(&app, team.as_ref());
    let read = app.core.store().read_long(move |tx| {
        let team = team.as_ref();
        let (series, shadow) = (
            window.counts(tx, CountedRuns::Real, team)?,
            window.counts(tx, CountedRuns::Shadow, team)?,
        );
        let mut active = jobs::active(tx)?;
        active.retain(|job| team.is_none_or(|team| job.team == *team));
        let shadow_active = active.iter().filter(|job| job.shadow).count();
        Ok((series, shadow, active.len() - shadow_active, shadow_active))
    });
    let (series, shadow, running, shadow_active) = read.await?;
    let total = sum(&series);
    let shadow = sum(&shadow);
    Ok(ok(&SummaryView {
        window: window.name,
        from: window.bucket_start(window.first),
        to: window.bucket_start(window.last + 1),
        running,
        waiting,
        ended: EndedView::of(&total),
        cost_usd: total.cost_usd(),
        series: window.series(&series),
        shadow: ShadowView {
            running: shadow_active,
            ended: EndedView::of(&shadow),
            cost_usd: shadow.cost_usd(),
        },
    }))
}

/// Parses the key of a project. An empty one counts as absent.
fn parse_team(query: &QueryParams) -> Result<Option<TeamKey>, AdminApiError> {
    let team = query.get("team").filter(|team| !team.is_empty());
    match team {
        Some(team) if team.len() > 200 => Err(invalid("team must be the key of a project")),
        team => Ok(team.map(|team| TeamKey::from(team.as_str()))),
    }
}

/// Consecutive hours or days up to the current one.
#[derive(Clone, Copy)]
struct Window {
    name: &'static str,
    is_hourly: bool,
    first: u64,
    last: u64,
}

impl Window {
    fn parse(name: &str, now: Timestamp) -> Option<Self> {
        let (name, is_hourly, buckets) = match name {
            "24h" => ("24h", true, 24),
            "7d" => ("7d", false, 7),
            "30d" => ("30d", false, 30),
            _ => return None,
        };
        let last = match is_hourly {
            true => Hour::of(now).0,
            false => Day::of(now).0,
        };
        Some(Self {
            name,
            is_hourly,
            first: last.saturating_sub(buckets - 1),
            last,
        })
    }

    fn counts(
        self,
        tx: &impl ReadableTx,
        runs: CountedRuns,
        team: Option<&TeamKey>,
    ) -> StoreResult<BTreeMap<u64, RunCounts>> {
        match self.is_hourly {
            true => job_counts::hours(tx, runs, Hour(self.first), Hour(self.last), team),
            false => job_counts::days(tx, runs, Day(self.first), Day(self.last), team),
        }
    }

    fn bucket_start(self, bucket: u64) -> Timestamp {
        match self.is_hourly {
            true => Hour(bucket).start(),
            false => Day(bucket).start(),
        }
    }

    fn series(self, counts: &BTreeMap<u64, RunCounts>) -> Vec<BucketView> {
        let buckets = self.first..=self.last;
        let view = |bucket| {
            let counts = counts.get(&bucket).copied().unwrap_or_default();
            BucketView::of(self.bucket_start(bucket), &counts)
        };
        buckets.map(view).collect()
    }
}

fn sum(series: &BTreeMap<u64, RunCounts>) -> RunCounts {
    let mut total = RunCounts::default();
    for counts in series.values() {
        total += counts;
    }
    total
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Summary")]
struct SummaryView {
    window: &'static str,
    /// Start of the first hour or day.
    from: Timestamp,
    /// End of the current hour or day.
    to: Timestamp,
    /// Runs that have not ended.
    running: usize,
    waiting: Waiting,
    ended: EndedView,
    /// Cost of the ended runs; null if runs ended and none reported a cost.
    #[schemars(range(min = 0))]
    cost_usd: Option<f64>,
    /// Every hour or day of the window, oldest first.
    series: Vec<BucketView>,
    /// Shadow runs, which are in no other number.
    shadow: ShadowView,
}

/// Issues that wait according to their last decision.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SummaryWaiting")]
struct Waiting {
    total: usize,
    by_reason: BTreeMap<WaitReason, usize>,
}

impl Waiting {
    fn now(app: &App, team: Option<&TeamKey>) -> Self {
        let (mut total, mut by_reason) = (0, BTreeMap::new());
        for snapshot in app.live.poll_snapshots.all().values() {
            let waiting = snapshot.issues.iter().filter(|polled| {
                polled.decision.outcome == DecisionOutcome::Waiting
                    && team.is_none_or(|team| polled.issue.team == *team)
            });
            for polled in waiting {
                total += 1;
                if let Some(reason) = polled.decision.reason {
                    *by_reason.entry(reason).or_default() += 1;
                }
            }
        }
        Self { total, by_reason }
    }
}

/// Numbers of ended runs by status. Runs that were cancelled or asked a question are not among the failed ones.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SummaryEnded")]
struct EndedView {
    completed: u64,
    review_failed: u64,
    failed: u64,
    timed_out: u64,
    cancelled: u64,
}

impl EndedView {
    fn of(counts: &RunCounts) -> Self {
        Self {
            completed: counts.completed,
            review_failed: counts.review_failed,
            failed: counts.failed,
            timed_out: counts.timed_out,
            cancelled: counts.cancelled,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SummaryBucket")]
struct BucketView {
    /// Start of the hour or day, in UTC.
    at: Timestamp,
    /// Runs whose start a host accepted.
    started: u64,
    /// Numbers of ended runs, by status as in `ended`.
    #[serde(flatten)]
    ended: EndedView,
    /// Null if runs ended and none reported a cost.
    #[schemars(range(min = 0))]
    cost_usd: Option<f64>,
}

impl BucketView {
    fn of(at: Timestamp, counts: &RunCounts) -> Self {
        Self {
            at,
            started: counts.started,
            ended: EndedView::of(counts),
            cost_usd: counts.cost_usd(),
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SummaryShadow")]
struct ShadowView {
    running: usize,
    ended: EndedView,
    #[schemars(range(min = 0))]
    cost_usd: Option<f64>,
}

//! `/api/scoreboard`: what runs achieved and cost, by project, agent, model, kind or label. See
//! docs/observe.md#numbers-over-time.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warp::http::header::{CONTENT_TYPE, HeaderValue};

use super::paging::invalid;
use super::score_columns::ScoreColumn;
use crate::error::{AdminApiError, ApiError};
use crate::routing::{ApiResult, QueryParams, Route, attachment, ok};
use domain::csv;
use domain::decision::WaitReason;
use domain::scoreboard::{Day, Dimension, DurationHistogram, ScoreTotals};
use domain::time::Timestamp;
use engine::app::App;
use store::{ReadableTx, StoreResult, scoreboard};

/// Default length of the range, in days.
const DEFAULT_DAYS: u64 = 30;

/// Maximum length of the range, in days.
const MAX_DAYS: u64 = 366;

/// Maximum number of rows. Those with fewer runs are only part of the total.
const MAX_ROWS: usize = 200;

/// Routes of `/api/scoreboard`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/scoreboard", "scoreboard", show).returns::<ScoreboardView>(),
        Route::get("/api/scoreboard/export", "exportScoreboard", export),
    ]
}

async fn show(query: QueryParams, app: App) -> ApiResult {
    Ok(ok(&requested(&query, &app).await?))
}

/// Returns the scoreboard as a CSV file: a line per row, the total last.
async fn export(query: QueryParams, app: App) -> ApiResult {
    let board = requested(&query, &app).await?;
    let mut lines = vec![format!("{},{}", board.by, ScoreColumn::csv_heads())];
    for (name, row) in board.named_rows() {
        let values = ScoreColumn::csv_values(row);
        lines.push(format!("{},{values}", csv::cell(&name)));
    }
    let mut response = attachment("scoreboard.csv", lines.join("\r\n") + "\r\n");
    let content_type = HeaderValue::from_static("text/csv; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

/// Loads the scoreboard that a query asks for.
async fn requested(query: &QueryParams, app: &App) -> Result<ScoreboardView, ApiError> {
    let now = app.core.now();
    let (from, to) = parse_range(query, now)?;
    let by = match query.get("by").map(String::as_str) {
        None | Some("") => Dimension::Team,
        Some(name) => Dimension::parse(name)
            .ok_or_else(|| invalid("by must be team, agent, model, kind or label"))?,
    };
    let store = app.core.store();
    let board = store.read_long(move |tx| load(tx, by, from, to, now));
    Ok(board.await?)
}

/// Loads the scoreboard of the days from `from` to before `to`.
///
/// # Errors
/// When the store cannot be read.
pub fn load(
    tx: &impl ReadableTx,
    by: Dimension,
    from: Day,
    to: Day,
    now: Timestamp,
) -> StoreResult<ScoreboardView> {
    let mut total = ScoreTotals::default();
    for row in scoreboard::rows(tx, Dimension::Total, from, to, now)?.values() {
        total += row;
    }
    let rows = scoreboard::rows(tx, by, from, to, now)?;
    let mut rows: Vec<(String, ScoreTotals)> = rows.into_iter().collect();
    let weight = |row: &ScoreTotals| (row.counts.runs, row.counts.pulls);
    rows.sort_by(|(a_key, a), (b_key, b)| weight(b).cmp(&weight(a)).then_with(|| a_key.cmp(b_key)));
    let rows_left_out = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    Ok(ScoreboardView {
        from: from.start(),
        to: to.start(),
        by: by.as_str().to_owned(),
        rows: rows
            .into_iter()
            .map(|(key, row)| ScoreView::of(key, row))
            .collect(),
        rows_left_out,
        total: ScoreView::of(String::new(), total),
    })
}

/// Parses `from` and `to`. Both are dates, or times that stand for their day in UTC; a day that is begun at
/// `to` counts.
fn parse_range(query: &QueryParams, now: Timestamp) -> Result<(Day, Day), AdminApiError> {
    let day = |name: &str, is_end: bool| {
        let text = query.get(name).filter(|text| !text.is_empty());
        let parsed = text.map(|text| {
            let date = Day::parse(text);
            date.or_else(|| day_of(Timestamp::parse(text)?, is_end))
                .ok_or_else(|| {
                    invalid(&format!(
                        "{name} must be a date (2026-11-30) or an RFC 3339 time"
                    ))
                })
        });
        parsed.transpose()
    };
    let tomorrow = Day(Day::of(now).0 + 1);
    let to = day("to", true)?.unwrap_or(tomorrow);
    let from = day("from", false)?.unwrap_or(Day(to.0.saturating_sub(DEFAULT_DAYS)));
    if from >= to {
        return Err(invalid("from must be before to"));
    }
    if to.0 - from.0 > MAX_DAYS {
        return Err(invalid("from and to must be at most 366 days apart"));
    }
    Ok((from, to))
}

fn day_of(at: Timestamp, is_end: bool) -> Option<Day> {
    // Later times have no date that can be shown.
    let last = Day::parse("9999-01-01")?;
    let day = Day::of(at);
    let is_begun = is_end && day.start() < at;
    Some(Day(day.0 + u64::from(is_begun))).filter(|day| *day <= last)
}

/// Scoreboard of a range of days.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Scoreboard")]
pub struct ScoreboardView {
    /// Start of the first day.
    pub from: Timestamp,
    /// End of the last day.
    pub to: Timestamp,
    /// Dimension of the rows.
    pub by: String,
    /// Rows with the most runs first.
    #[schemars(length(max = MAX_ROWS))]
    pub rows: Vec<ScoreView>,
    /// Number of further rows, which are only part of the total.
    pub rows_left_out: usize,
    /// All rows together. A ticket with several labels counts once.
    pub total: ScoreView,
}

/// Row of the scoreboard.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Score")]
pub struct ScoreView {
    /// Key of the project, name of the agent, and so on; empty for the total.
    pub key: String,
    /// Runs that ended in the range.
    pub runs: u64,
    /// Pull requests that were opened in the range; their state below is that of now.
    pub pull_requests: u64,
    /// Merged ones.
    pub merged: u64,
    /// Ones closed without a merge.
    pub closed: u64,
    /// Open ones.
    pub open: u64,
    /// Open ones that were opened on a day that ended at least 7 days ago.
    pub stale_open: u64,
    /// merged ÷ (merged + closed + staleOpen).
    #[schemars(range(min = 0, max = 1))]
    pub merged_share: Option<f64>,
    /// Runs for feedback per pull request.
    #[schemars(range(min = 0))]
    pub review_rounds: Option<f64>,
    /// Hours from the request to the pull request.
    pub hours_to_pull_request: Option<HoursView>,
    /// Hours from the request to the merge.
    pub hours_to_merge: Option<HoursView>,
    /// Cost of the runs; null if runs ended and none reported a cost.
    #[schemars(range(min = 0))]
    pub cost_usd: Option<f64>,
    /// Cost of the runs per merged pull request, in dollars.
    #[schemars(range(min = 0))]
    pub cost_per_merged_usd: Option<f64>,
    /// Commits of people after the first commit of a run, per pull request whose commits were read.
    #[schemars(range(min = 0))]
    pub human_commits_after: Option<f64>,
    /// Failed runs by failure code. Cancelled runs have not failed.
    pub failures_by_reason: BTreeMap<String, u64>,
    /// Waits that began in the range, by reason; only by project and by kind.
    pub waits_by_reason: BTreeMap<WaitReason, u64>,
}

/// Percentiles of durations, in hours, at most 4.5 percent off.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScoreHours")]
pub struct HoursView {
    /// Median.
    #[schemars(range(min = 0))]
    pub p50: f64,
    /// 95th percentile.
    #[schemars(range(min = 0))]
    pub p95: f64,
}

impl HoursView {
    fn of(durations: &DurationHistogram) -> Option<Self> {
        let hours = |duration: Duration| (duration.as_secs_f64() / 36.0).round() / 100.0;
        Some(Self {
            p50: hours(durations.percentile(50)?),
            p95: hours(durations.percentile(95)?),
        })
    }
}

impl ScoreboardView {
    /// Returns the rows with their names, the total last.
    pub fn named_rows(&self) -> impl Iterator<Item = (String, &ScoreView)> {
        let rows = self.rows.iter().map(|row| (row.key.clone(), row));
        rows.chain([("Total".to_owned(), &self.total)])
    }
}

impl ScoreView {
    fn of(key: String, row: ScoreTotals) -> Self {
        let counts = &row.counts;
        Self {
            key,
            runs: counts.runs,
            pull_requests: counts.pulls,
            merged: counts.merged,
            closed: counts.closed,
            open: counts.open(),
            stale_open: row.stale_open,
            merged_share: row.merged_share(),
            review_rounds: row.review_rounds(),
            hours_to_pull_request: HoursView::of(&counts.to_pull),
            hours_to_merge: HoursView::of(&counts.to_merge),
            cost_usd: row.cost_usd(),
            cost_per_merged_usd: row.cost_per_merged_usd(),
            human_commits_after: row.human_commits_after(),
            failures_by_reason: row.counts.failures,
            waits_by_reason: row.counts.waits,
        }
    }
}

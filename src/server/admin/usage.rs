//! `/api/usage`: usage and cost of a month by project and by issue.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::AdminApiError;
use crate::routing::{ApiResult, RawQuery, Route, ok};
use domain::ids::{IssueKey, TeamKey};
use domain::mapping::Mapping;
use domain::usage::{BudgetUsage, MicroUsd, Month, UsageTotals};
use engine::app::App;
use engine::budget;
use store::usage::IssueUsage;
use store::{mappings, usage};

/// Maximum number of issues listed, most expensive first.
const MAX_ISSUES: usize = 200;

/// Routes of `/api/usage`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/usage", "usage", show).returns::<UsageView>()]
}

async fn show(RawQuery(query): RawQuery, app: App) -> ApiResult {
    let month = match query
        .split('&')
        .find_map(|pair| pair.strip_prefix("month="))
    {
        Some(text) => Month::parse(text).ok_or_else(|| {
            let rule = "month must be YYYY-MM".to_owned();
            AdminApiError::Invalid(rule)
        })?,
        None => Month::of(app.core.now()),
    };
    let read = app.core.store().read_long(move |tx| {
        Ok((
            mappings::all(tx)?,
            usage::mappings(tx, month)?,
            usage::issues(tx, month)?,
        ))
    });
    let (mapped, sums, mut issues) = read.await?;
    issues.sort_by(|a, b| by_cost_descending(&a.sum, &b.sum).then_with(|| a.key.cmp(&b.key)));
    issues.truncate(MAX_ISSUES);
    Ok(ok(&UsageView {
        month: month.to_string(),
        mappings: by_mapping(month, &mapped, sums),
        issues: issues.into_iter().map(IssueView::of).collect(),
    }))
}

/// Lists all projects, and deleted ones with usage in the month, most expensive first. The budget is the
/// current one, not the one of that month.
fn by_mapping(
    month: Month,
    mapped: &[Mapping],
    sums: Vec<(TeamKey, UsageTotals)>,
) -> Vec<MappingView> {
    let mut rows: BTreeMap<TeamKey, (UsageTotals, Option<MicroUsd>)> = mapped
        .iter()
        .map(|mapping| {
            (
                mapping.team_key.clone(),
                (UsageTotals::default(), mapping.budget),
            )
        })
        .collect();
    for (team, sum) in sums {
        rows.entry(team).or_default().0 = sum;
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|(_, (a, _)), (_, (b, _))| by_cost_descending(a, b));
    let view =
        |(team_key, (sum, budget)): (TeamKey, (UsageTotals, Option<MicroUsd>))| MappingView {
            team_key,
            warning: budget.and_then(|_| budget::missing_cost_warning(&sum)),
            used: SumView::of(sum),
            budget_usd: budget.map(MicroUsd::to_usd),
            budget_used_percent: budget.map(|budget| {
                let spending = BudgetUsage {
                    month,
                    spent: sum.cost,
                    budget,
                };
                spending.percent()
            }),
        };
    rows.into_iter().map(view).collect()
}

/// Orders by cost, then by output tokens, then by runs, highest first.
fn by_cost_descending(a: &UsageTotals, b: &UsageTotals) -> std::cmp::Ordering {
    let weight = |sum: &UsageTotals| (sum.cost, sum.output_tokens, sum.runs);
    weight(b).cmp(&weight(a))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MonthlyUsage")]
struct UsageView {
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}$"))]
    month: String,
    /// All projects, and deleted projects with usage in the month.
    mappings: Vec<MappingView>,
    #[schemars(length(max = MAX_ISSUES))]
    issues: Vec<IssueView>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "MappingUsage")]
struct MappingView {
    team_key: TeamKey,
    #[serde(flatten)]
    used: SumView,
    /// Current budget per month.
    #[schemars(range(min = 0))]
    budget_usd: Option<f64>,
    #[schemars(range(min = 0))]
    budget_used_percent: Option<f64>,
    /// Reason why the budget may have no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    warning: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "IssueUsage")]
struct IssueView {
    issue_identifier: IssueKey,
    issue_title: String,
    issue_url: String,
    team_key: TeamKey,
    #[serde(flatten)]
    used: SumView,
}

impl IssueView {
    fn of(row: IssueUsage) -> Self {
        Self {
            issue_identifier: row.key,
            issue_title: row.title,
            issue_url: row.url,
            team_key: row.team,
            used: SumView::of(row.sum),
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SumView {
    runs: u64,
    turns: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// `None` if no run reported its cost.
    #[schemars(range(min = 0))]
    cost_usd: Option<f64>,
}

impl SumView {
    fn of(sum: UsageTotals) -> Self {
        Self {
            runs: sum.runs,
            turns: sum.turns,
            input_tokens: sum.input_tokens,
            output_tokens: sum.output_tokens,
            cost_usd: sum.known_cost().map(MicroUsd::to_usd),
        }
    }
}

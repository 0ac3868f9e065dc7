//! What an operator allows a mapping to cost in a month.
//!
//! The sums are those of ended runs: what is under way goes on, and counts when it ends. At 80 % the
//! chat is told and the log warns, at 100 % the chat is told and nothing new is started; each once a
//! month, mapping and amount of the budget, whatever restarts in between. A budget is the operator's
//! word, so that nobody who merely comments on a pull request can spend beyond it.

use crate::app::App;
use domain::comments;
use domain::effect::Effect;
use domain::mapping::Mapping;
use domain::time::Timestamp;
use domain::usage::{BudgetLevel, BudgetUsage, Month, UsageTotals};
use store::usage::MappingUsage;
use store::{ReadableTx, StoreResult, WriteTx, mappings, outbox, usage};

/// How far a mapping is through its budget of this month; none without one.
pub fn spending(
    tx: &impl ReadableTx,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<BudgetUsage>> {
    let Some(budget) = mapping.budget else {
        return Ok(None);
    };
    let month = Month::of(now);
    let spent = usage::of_mapping(tx, month, &mapping.team_key)?.sum.cost;
    Ok(Some(BudgetUsage {
        month,
        spent,
        budget,
    }))
}

/// The budget of a mapping that may start nothing new.
pub fn exhausted(
    tx: &impl ReadableTx,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<BudgetUsage>> {
    let spending = spending(tx, mapping, now)?;
    Ok(spending.filter(|spending| spending.level() == BudgetLevel::Exhausted))
}

/// Warning about a budget that is set and cannot count what runs cost: `sum` is what the runs of its
/// project used in a month.
pub fn missing_cost_warning(app: &App, sum: &UsageTotals) -> Option<String> {
    let unpriced = sum.unpriced_runs();
    let why = if !app.config.has_callbacks() {
        "runs cannot report to this service. Set RUNNER_TOKEN_SECRET and RUNNER_CALLBACK_BASE_URL"
            .to_owned()
    } else if unpriced == 0 {
        return None;
    } else if unpriced == sum.runs {
        format!("none of {} runs in this month did", sum.runs)
    } else {
        return Some(format!(
            "budgetUsd is set, but {unpriced} of {} runs of this project in this month reported no cost. The budget does not \
             count them.",
            sum.runs
        ));
    };
    Some(format!(
        "budgetUsd is set, but runs of this project report no cost: {why}. The budget never takes effect."
    ))
}

/// The same of a mapping, for this month.
pub fn warning(
    tx: &impl ReadableTx,
    app: &App,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<String>> {
    if mapping.budget.is_none() {
        return Ok(None);
    }
    let row = usage::of_mapping(tx, Month::of(now), &mapping.team_key)?;
    Ok(missing_cost_warning(app, &row.sum))
}

/// Whether the operator of any mapping is still to be told of its budget.
pub fn has_pending_alerts(tx: &impl ReadableTx, now: Timestamp) -> StoreResult<bool> {
    for mapping in mappings::all(tx)? {
        if untold(tx, &mapping, now)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tells what is still to be told of every budget: an operator may have lowered one.
pub fn enqueue_pending_alerts(tx: &WriteTx<'_>, now: Timestamp) -> StoreResult<()> {
    for mapping in mappings::all(tx)? {
        enqueue_pending_alert(tx, &mapping, now)?;
    }
    Ok(())
}

/// Tells the operator of a mapping how far its budget is used up, if that is news.
pub fn enqueue_pending_alert(
    tx: &WriteTx<'_>,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<()> {
    let Some((spending, row)) = untold(tx, mapping, now)? else {
        return Ok(());
    };
    usage::put_mapping(tx, spending.month, &mapping.team_key, &row)?;
    let message = comments::chat_budget(mapping, &spending);
    tracing::warn!(team = %mapping.team_key, spent = %spending.spent, budget = %spending.budget, "{}", message.title);
    outbox::push(tx, &Effect::Chat { message }, now).map(drop)
}

/// What is still to be told of a budget, and the row that says that it was.
fn untold(
    tx: &impl ReadableTx,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<(BudgetUsage, MappingUsage)>> {
    let Some(spending) = spending(tx, mapping, now)? else {
        return Ok(None);
    };
    let row = usage::of_mapping(tx, spending.month, &mapping.team_key)?;
    let this = Some(spending.budget);
    let (is_told, told) = match spending.level() {
        BudgetLevel::Within => return Ok(None),
        BudgetLevel::Warning => (
            row.warned_budget == this,
            MappingUsage {
                warned_budget: this,
                ..row
            },
        ),
        // Who is told that it is used up needs no warning of it any more.
        BudgetLevel::Exhausted => (
            row.notified_exhausted_budget == this,
            MappingUsage {
                warned_budget: this,
                notified_exhausted_budget: this,
                ..row
            },
        ),
    };
    Ok((!is_told).then_some((spending, told)))
}

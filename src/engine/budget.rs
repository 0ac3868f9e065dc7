//! Monthly budget of a mapping.
//!
//! Only ended runs count; active runs continue and count when they end. At 80 % a chat message and
//! a log warning are sent, at 100 % a chat message, and no new run starts. Each alert is sent once
//! per month, mapping and amount of the budget, also across restarts. The operator sets the budget,
//! so commands on a pull request cannot exceed it.

use domain::comments;
use domain::effect::Effect;
use domain::mapping::Mapping;
use domain::time::Timestamp;
use domain::usage::{BudgetLevel, BudgetUsage, Month, UsageTotals};
use store::usage::MappingUsage;
use store::{ReadableTx, StoreResult, WriteTx, mappings, outbox, usage};

/// Budget usage of a mapping in this month; `None` without a budget.
///
/// # Errors
/// Fails if the store cannot be read.
pub(crate) fn spending(
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

/// Budget usage of a mapping whose budget is exhausted, so that no new run may start.
///
/// # Errors
/// Fails if the store cannot be read.
pub(crate) fn exhausted(
    tx: &impl ReadableTx,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<BudgetUsage>> {
    let spending = spending(tx, mapping, now)?;
    Ok(spending.filter(|spending| spending.level() == BudgetLevel::Exhausted))
}

/// Warning about a budget that cannot count costs. `sum` is the usage of the project's runs in a
/// month.
pub fn missing_cost_warning(sum: &UsageTotals) -> Option<String> {
    match sum.unpriced_runs() {
        0 => None,
        unpriced if unpriced == sum.runs => Some(format!(
            "A monthly budget is set, but runs of this project report no cost: none of {unpriced} runs this month did. The \
             budget never takes effect."
        )),
        unpriced => Some(format!(
            "A monthly budget is set, but {unpriced} of {} runs of this project this month reported no cost. The budget does not \
             count them.",
            sum.runs
        )),
    }
}

/// Warning about the budget of a mapping for this month. See [`missing_cost_warning`].
///
/// # Errors
/// Fails if the store cannot be read.
pub fn warning(
    tx: &impl ReadableTx,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<String>> {
    if mapping.budget.is_none() {
        return Ok(None);
    }
    let row = usage::of_mapping(tx, Month::of(now), &mapping.team_key)?;
    Ok(missing_cost_warning(&row.sum))
}

/// Whether a budget alert of any mapping is pending.
///
/// # Errors
/// Fails if the store cannot be read.
pub(crate) fn has_pending_alerts(tx: &impl ReadableTx, now: Timestamp) -> StoreResult<bool> {
    for mapping in mappings::all(tx)? {
        if pending_alert(tx, &mapping, now)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Enqueues the pending alerts of all mappings, for example after an operator has lowered a budget.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) fn enqueue_pending_alerts(tx: &WriteTx<'_>, now: Timestamp) -> StoreResult<()> {
    for mapping in mappings::all(tx)? {
        enqueue_pending_alert(tx, &mapping, now)?;
    }
    Ok(())
}

/// Enqueues the budget alert of a mapping, if one is pending.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) fn enqueue_pending_alert(
    tx: &WriteTx<'_>,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<()> {
    let Some((spending, row)) = pending_alert(tx, mapping, now)? else {
        return Ok(());
    };
    usage::put_mapping(tx, spending.month, &mapping.team_key, &row)?;
    let message = comments::chat_budget(mapping, &spending);
    tracing::warn!(team = %mapping.team_key, spent = %spending.spent, budget = %spending.budget, "{}", message.title);
    outbox::push(tx, &Effect::Chat { message }, now).map(drop)
}

/// Pending alert of a mapping, and the row that records it as sent.
fn pending_alert(
    tx: &impl ReadableTx,
    mapping: &Mapping,
    now: Timestamp,
) -> StoreResult<Option<(BudgetUsage, MappingUsage)>> {
    let Some(spending) = spending(tx, mapping, now)? else {
        return Ok(None);
    };
    let row = usage::of_mapping(tx, spending.month, &mapping.team_key)?;
    let budget = Some(spending.budget);
    let (is_sent, sent) = match spending.level() {
        BudgetLevel::Within => return Ok(None),
        BudgetLevel::Warning => (
            row.warned_budget == budget,
            MappingUsage {
                warned_budget: budget,
                ..row
            },
        ),
        // The alert about the exhausted budget replaces the warning.
        BudgetLevel::Exhausted => (
            row.notified_exhausted_budget == budget,
            MappingUsage {
                warned_budget: budget,
                notified_exhausted_budget: budget,
                ..row
            },
        ),
    };
    Ok((!is_sent).then_some((spending, sent)))
}

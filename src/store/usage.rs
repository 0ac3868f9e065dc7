//! What runs used, by month: sums per mapping and per issue.
//!
//! They are written in the commit that ends a job, so that reading them costs the same however many
//! jobs there are.

use serde::{Deserialize, Serialize};

use domain::ids::{IssueId, IssueKey, TeamKey};
use domain::job::Job;
use domain::time::Timestamp;
use domain::usage::{MicroUsd, Month, UsageTotals};

use super::StoreResult;
use super::table::{MAX_KEY_TEXT, ReadableTx, WriteTx};
use super::tables::{JOBS, USAGE_BY_ISSUE, USAGE_BY_MAPPING};

/// What the runs of a mapping used in a month.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MappingUsage {
    pub sum: UsageTotals,
    /// The budget that its operator was warned of before it was used up.
    #[serde(rename = "warnedOf", default)]
    pub warned_budget: Option<MicroUsd>,
    /// The budget that its operator was told is used up.
    #[serde(rename = "toldUsedUp", default)]
    pub notified_exhausted_budget: Option<MicroUsd>,
}

/// What the runs of an issue used in a month, and what it is called.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueUsage {
    pub team: TeamKey,
    pub key: IssueKey,
    pub title: String,
    pub url: String,
    pub sum: UsageTotals,
}

/// What a mapping used in a month; nothing is a valid answer.
pub fn of_mapping(tx: &impl ReadableTx, month: Month, team: &TeamKey) -> StoreResult<MappingUsage> {
    let month = month.to_string();
    let row = USAGE_BY_MAPPING.get(tx, (month.as_str(), team.as_str()))?;
    Ok(row.unwrap_or_default())
}

pub fn put_mapping(
    tx: &WriteTx<'_>,
    month: Month,
    team: &TeamKey,
    row: &MappingUsage,
) -> StoreResult<()> {
    let month = month.to_string();
    USAGE_BY_MAPPING.put(tx, (month.as_str(), team.as_str()), row)
}

/// Every mapping that used something in a month, by its key.
pub fn mappings(tx: &impl ReadableTx, month: Month) -> StoreResult<Vec<(TeamKey, UsageTotals)>> {
    let month = month.to_string();
    let range = (month.as_str(), "")..=(month.as_str(), MAX_KEY_TEXT);
    USAGE_BY_MAPPING.collect(tx, range, |(_, team), row| (TeamKey::from(team), row.sum))
}

/// Every issue that used something in a month.
pub fn issues(tx: &impl ReadableTx, month: Month) -> StoreResult<Vec<IssueUsage>> {
    let month = month.to_string();
    let range = (month.as_str(), "", "")..=(month.as_str(), MAX_KEY_TEXT, MAX_KEY_TEXT);
    USAGE_BY_ISSUE.collect(tx, range, |_, row| row)
}

/// Adds what a job used to the sums of the month in which `at` lies.
pub fn add(tx: &WriteTx<'_>, job: &Job, sum: UsageTotals, at: Timestamp) -> StoreResult<()> {
    if sum == UsageTotals::default() {
        return Ok(());
    }
    let month = Month::of(at);
    let of_mapping = of_mapping(tx, month, &job.team)?;
    let row = MappingUsage {
        sum: of_mapping.sum.saturating_add(sum),
        ..of_mapping
    };
    put_mapping(tx, month, &job.team, &row)?;
    let month = month.to_string();
    let issue: &IssueId = &job.issue.id;
    let key = (month.as_str(), job.team.as_str(), issue.as_str());
    let before = USAGE_BY_ISSUE.get(tx, key)?.map(|row| row.sum);
    let row = IssueUsage {
        team: job.team.clone(),
        key: job.issue.key.clone(),
        title: job.issue.title.clone(),
        url: job.issue.url.clone(),
        sum: before.unwrap_or_default().saturating_add(sum),
    };
    USAGE_BY_ISSUE.put(tx, key, &row)
}

/// What a job adds to the sums when it ends: itself, if its run was ever started, and what it used.
pub fn of_ended_job(job: &Job) -> UsageTotals {
    match job.dispatched_at {
        Some(_) => UsageTotals::from_ended_run(job.usage.as_ref()),
        None => UsageTotals::from_usage(job.usage.as_ref()),
    }
}

/// Builds the sums of a store that was written before they were kept.
pub(super) fn build_sums(tx: &WriteTx<'_>) -> StoreResult<()> {
    // One job at a time: there may be more of them than memory is for.
    let ids = JOBS.collect(tx, .., |id, job: Job| {
        (!job.is_active()).then(|| id.to_owned())
    })?;
    for id in ids.into_iter().flatten() {
        if let Some(job) = JOBS.get(tx, id.as_str())? {
            let ended_at = job.finished_at.unwrap_or(job.reserved_at);
            add(tx, &job, of_ended_job(&job), ended_at)?;
        }
    }
    Ok(())
}

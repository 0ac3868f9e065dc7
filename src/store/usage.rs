//! Usage of runs per month: sums per mapping and per issue.
//!
//! The sums are updated in the commit that ends a job, so the cost of reading them does not depend on the
//! number of jobs.

use serde::{Deserialize, Serialize};

use domain::ids::{IssueId, IssueKey, TeamKey};
use domain::job::Job;
use domain::time::Timestamp;
use domain::usage::{MicroUsd, Month, UsageTotals};

use super::StoreResult;
use super::table::{MAX_KEY_TEXT, ReadableTx, WriteTx};
use super::tables::{JOBS, USAGE_BY_ISSUE, USAGE_BY_MAPPING};

/// Usage of the runs of a mapping in a month.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MappingUsage {
    /// Sums over all runs.
    pub sum: UsageTotals,
    /// Budget for which the warning was sent.
    #[serde(rename = "warnedOf", default)]
    pub warned_budget: Option<MicroUsd>,
    /// Budget for which the notification of its exhaustion was sent.
    #[serde(rename = "toldUsedUp", default)]
    pub notified_exhausted_budget: Option<MicroUsd>,
}

/// Usage of the runs of an issue in a month.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IssueUsage {
    /// Team of the issue.
    pub team: TeamKey,
    /// Key of the issue.
    pub key: IssueKey,
    /// Title of the issue.
    pub title: String,
    /// URL of the issue.
    pub url: String,
    /// Sums over all runs.
    pub sum: UsageTotals,
}

/// Usage of a mapping in a month; zero if nothing is stored.
pub fn of_mapping(tx: &impl ReadableTx, month: Month, team: &TeamKey) -> StoreResult<MappingUsage> {
    let month = month.to_string();
    let row = USAGE_BY_MAPPING.get(tx, (month.as_str(), team.as_str()))?;
    Ok(row.unwrap_or_default())
}

/// Stores the usage of a mapping in a month.
pub fn put_mapping(
    tx: &WriteTx<'_>,
    month: Month,
    team: &TeamKey,
    row: &MappingUsage,
) -> StoreResult<()> {
    let month = month.to_string();
    USAGE_BY_MAPPING.put(tx, (month.as_str(), team.as_str()), row)
}

/// Mappings with usage in a month, ordered by team key.
pub fn mappings(tx: &impl ReadableTx, month: Month) -> StoreResult<Vec<(TeamKey, UsageTotals)>> {
    let month = month.to_string();
    let range = (month.as_str(), "")..=(month.as_str(), MAX_KEY_TEXT);
    USAGE_BY_MAPPING.collect(tx, range, |(_, team), row| (TeamKey::from(team), row.sum))
}

/// Issues with usage in a month.
pub fn issues(tx: &impl ReadableTx, month: Month) -> StoreResult<Vec<IssueUsage>> {
    let month = month.to_string();
    let range = (month.as_str(), "", "")..=(month.as_str(), MAX_KEY_TEXT, MAX_KEY_TEXT);
    USAGE_BY_ISSUE.collect(tx, range, |_, row| row)
}

/// Adds the usage of a job to the sums of the month of `at`.
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

/// Usage that an ended job adds to the sums. The run itself counts only if it was dispatched.
pub fn of_ended_job(job: &Job) -> UsageTotals {
    match job.dispatched_at {
        Some(_) => UsageTotals::from_ended_run(job.usage.as_ref()),
        None => UsageTotals::from_usage(job.usage.as_ref()),
    }
}

/// Builds the sums in a store of schema version 1.
pub(super) fn build_sums(tx: &WriteTx<'_>) -> StoreResult<()> {
    // One job at a time, because all jobs may not fit into memory.
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

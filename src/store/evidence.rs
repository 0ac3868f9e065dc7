//! Evidence of runs: files that the `verify` scripts of repositories left.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use domain::evidence::{EvidenceEntry, EvidenceFile};
use domain::ids::JobId;
use domain::time::Timestamp;

use super::change_feed::StoreChange;
use super::table::{ReadableTx, WriteTx};
use super::tables::{EVIDENCE, EVIDENCE_FILES};
use super::{StoreError, StoreResult, retention};

/// Files of a run, without their contents.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvidenceSet {
    /// Files, in order.
    pub files: Vec<EvidenceEntry>,
    /// Number of reports that the run has sent.
    pub reports: u32,
    /// Time of the last report.
    pub updated_at: Timestamp,
}

impl EvidenceSet {
    fn stored_bytes(&self) -> u64 {
        let bytes = self.files.iter().map(|file| file.bytes as u64);
        bytes.map(|bytes| bytes.div_ceil(3) * 4).sum()
    }
}

/// Files of a job; `None` if none are kept.
pub fn get(tx: &impl ReadableTx, job: &JobId) -> StoreResult<Option<EvidenceSet>> {
    EVIDENCE.get(tx, job.as_str())
}

/// File of a job, with its content.
///
/// # Errors
/// If the row is damaged.
pub fn file(tx: &impl ReadableTx, job: &JobId, name: &str) -> StoreResult<Option<EvidenceFile>> {
    let files = get(tx, job)?.map_or_else(Vec::new, |set| set.files);
    let Some(entry) = files.into_iter().find(|file| file.name == name) else {
        return Ok(None);
    };
    let Some(encoded) = EVIDENCE_FILES.get(tx, (job.as_str(), name))? else {
        return Ok(None);
    };
    let content = BASE64.decode(encoded.as_bytes());
    let content = content.map_err(|error| StoreError::Corrupt {
        table: EVIDENCE_FILES.name(),
        key: format!("{job} {name}"),
        cause: serde::de::Error::custom(error),
    })?;
    Ok(Some(EvidenceFile {
        name: entry.name,
        kind: entry.kind,
        content,
    }))
}

/// Replaces the files of a job. Returns false, and changes nothing, after `max_reports`.
pub fn replace(
    tx: &WriteTx<'_>,
    job: &JobId,
    files: &[EvidenceFile],
    max_reports: u32,
    now: Timestamp,
) -> StoreResult<bool> {
    let before = get(tx, job)?.unwrap_or_default();
    if before.reports >= max_reports {
        return Ok(false);
    }
    remove_files(tx, job)?;
    for file in files {
        let encoded = BASE64.encode(&file.content);
        EVIDENCE_FILES.put(tx, (job.as_str(), file.name.as_str()), &encoded)?;
    }
    let set = EvidenceSet {
        files: files.iter().map(EvidenceFile::entry).collect(),
        reports: before.reports + 1,
        updated_at: now,
    };
    EVIDENCE.put(tx, job.as_str(), &set)?;
    tx.publish(StoreChange::Step(job.clone()));
    Ok(true)
}

/// Removes the files of a job.
pub fn remove(tx: &WriteTx<'_>, job: &JobId) -> StoreResult<()> {
    remove_files(tx, job)?;
    EVIDENCE.remove(tx, job.as_str()).map(drop)
}

fn remove_files(tx: &WriteTx<'_>, job: &JobId) -> StoreResult<()> {
    for file in get(tx, job)?.map_or_else(Vec::new, |set| set.files) {
        EVIDENCE_FILES.remove(tx, (job.as_str(), file.name.as_str()))?;
    }
    Ok(())
}

/// Jobs whose files are to be removed, oldest first: those reported before `keep_since`, and the oldest of the others
/// until the rest takes at most `max_bytes` as stored.
pub fn removable(
    tx: &impl ReadableTx,
    keep_since: Timestamp,
    max_bytes: u64,
) -> StoreResult<Vec<JobId>> {
    let sets = EVIDENCE.collect(tx, .., |job, set| {
        (set.updated_at, JobId::from(job), set.stored_bytes())
    })?;
    Ok(retention::removable(sets, keep_since, max_bytes))
}

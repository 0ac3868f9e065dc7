//! From what an operator sent to a valid mapping: every refusal of the mapping routes.
//!
//! Texts are the spec's where it has one, vendor's wording included; the vendors' own words for
//! enum values are taken as well and never printed back. Rules are asked in the order of the
//! spec's table, ours after the neighbour they belong to. Names are trimmed; `null` and a field
//! that was left out are the same.

use serde_json::Value;

use super::error::{Checked, MappingError};
use super::fields::{Fields, is_name, is_repo_name};
use super::{IMPLEMENT_WORKFLOW, Mapping};
use crate::domain::caps;
use crate::domain::ids::TeamKey;
use crate::domain::time::Timestamp;

const DEFAULT_CPUS: u32 = 2;
const DEFAULT_MEMORY_MB: u32 = 4096;
const MIN_MEMORY_MB: u32 = 256;

/// A body that names its mapping; the rest is not checked yet.
#[derive(Debug, Clone)]
pub struct Input {
    pub team_key: TeamKey,
    owner: String,
    repo: String,
    fields: Fields,
}

impl Input {
    /// Reads who the mapping is for.
    ///
    /// # Errors
    /// A body that is no object, or a key, owner or repository that is missing or no name.
    pub fn read(body: Value) -> Checked<Self> {
        let Value::Object(fields) = body else {
            return Err(MappingError::Body);
        };
        let fields = Fields(fields);
        let name = |field| fields.text(field).ok_or(MappingError::Identity);
        let (team_key, owner, repo) = (name("teamKey")?, name("owner")?, name("repo")?);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !is_name(team_key, plain) {
            return Err(MappingError::TeamKey);
        }
        if !is_name(owner, plain) {
            return Err(MappingError::Owner);
        }
        if !is_repo_name(repo) {
            return Err(MappingError::Repo);
        }
        Ok(Self {
            team_key: TeamKey::from(team_key),
            owner: owner.to_owned(),
            repo: repo.to_owned(),
            fields,
        })
    }

    /// The mapping, if every rule holds. `stored` is the one it replaces.
    ///
    /// # Errors
    /// The first rule that is broken, in the order of the spec's table.
    pub fn validate(&self, stored: Option<&Mapping>, now: Timestamp) -> Checked<Mapping> {
        let fields = &self.fields;
        let default_branch = fields.default_branch(stored)?;
        let provider = fields.provider()?;
        let execution_mode = fields.execution_mode()?;
        let machine_cpus = fields.count("machineCpus", 1, MappingError::Cpus)?;
        let machine_memory_mb =
            fields.count("machineMemoryMb", MIN_MEMORY_MB, MappingError::Memory)?;
        let session_mode = fields.session_mode()?;
        let branch_prefix = fields.branch_prefix()?;
        let extra_env = fields.extra_env()?;
        let max_in_progress = fields.max_in_progress()?;
        let paused = fields.flag("paused")?;
        let workflow_file = fields.workflow_file("workflowFile")?;
        let (planning_enabled, planning_workflow_file) = fields.planning(stored)?;
        let max_turns = fields.run_cap("maxTurns")?;
        let max_iterations = fields.run_cap("maxIterations")?;
        let max_job_minutes = fields.run_cap("maxJobMinutes")?;
        let budget = fields.budget()?;
        let resume_after_limit = fields.flag("resumeAfterLimit")?;
        let ticketing = fields.ticketing()?;
        Ok(Mapping {
            team_key: self.team_key.clone(),
            owner: self.owner.clone(),
            repo: self.repo.clone(),
            default_branch,
            workflow_file: workflow_file.unwrap_or_else(|| IMPLEMENT_WORKFLOW.to_owned()),
            ticketing,
            provider,
            execution_mode,
            machine_cpus: machine_cpus.unwrap_or(DEFAULT_CPUS),
            machine_memory_mb: machine_memory_mb.unwrap_or(DEFAULT_MEMORY_MB),
            session_mode,
            branch_prefix,
            extra_env,
            max_in_progress: max_in_progress.unwrap_or(caps::DEFAULT_MAX_IN_PROGRESS),
            paused: paused.unwrap_or_else(|| stored.is_some_and(|stored| stored.paused)),
            planning_enabled,
            planning_workflow_file,
            max_turns,
            max_iterations,
            max_job_minutes,
            budget,
            resume_after_limit: resume_after_limit.unwrap_or(true),
            created_at: stored.map_or(now, |stored| stored.created_at),
            updated_at: now,
        })
    }
}

/// What `PATCH` can change: one thing at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Paused(bool),
    MaxInProgress(u32),
}

impl Change {
    /// # Errors
    /// When it is none or more than one, or its value is of the wrong kind.
    pub fn read(body: Value) -> Checked<Self> {
        let Value::Object(fields) = body else {
            return Err(MappingError::Body);
        };
        let fields = Fields(fields);
        let given = |name| fields.get(name).is_some();
        if given("paused") && given("maxInProgressAiIssues") {
            return Err(MappingError::TwoChanges);
        }
        if let Some(paused) = fields.flag("paused")? {
            return Ok(Change::Paused(paused));
        }
        let cap = fields.max_in_progress()?;
        cap.map(Change::MaxInProgress)
            .ok_or(MappingError::MaxInProgress)
    }

    pub fn apply(self, mapping: &mut Mapping, now: Timestamp) {
        match self {
            Change::Paused(paused) => mapping.paused = paused,
            Change::MaxInProgress(cap) => mapping.max_in_progress = cap,
        }
        mapping.updated_at = now;
    }
}

/// An existing key with which this one must not live: `ENG` and `ENG_WEB` would both own a secret
/// stored as `ENG_WEB_TOKEN`. Secrets are upper-case, so case makes no difference.
pub fn overlapping<'a>(
    team_key: &TeamKey,
    mut existing: impl Iterator<Item = &'a TeamKey>,
) -> Option<&'a TeamKey> {
    let mine = team_key.as_str().to_ascii_uppercase();
    let owns = |one: &str, other: &str| {
        other
            .strip_prefix(one)
            .is_some_and(|rest| rest.starts_with('_'))
    };
    existing.find(|other| {
        let theirs = other.as_str().to_ascii_uppercase();
        let is_twin = mine == theirs && *other != team_key;
        is_twin || owns(&mine, &theirs) || owns(&theirs, &mine)
    })
}

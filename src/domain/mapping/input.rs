//! Validation of mappings sent by operators.
//!
//! Error texts are fixed by the API. Vendor names of enum values are accepted and never returned.
//! Fields are validated in the documented order. Names are trimmed. `null` counts as absent.

use serde_json::{Map, Value, json};

use super::error::{MappingError, MappingResult};
use super::fields::{MappingFields, is_name, is_repo_name};
use super::{IMPLEMENT_WORKFLOW, Mapping, MappingView};
use crate::ids::TeamKey;
use crate::limits;
use crate::time::Timestamp;

/// Default CPUs of a session machine.
const DEFAULT_CPUS: u32 = 2;
/// Default memory of a session machine, in MB.
const DEFAULT_MEMORY_MB: u32 = 4096;
/// Minimum memory of a session machine, in MB.
const MIN_MEMORY_MB: u32 = 256;

/// Body with a valid team key, owner and repository. Other fields are not validated yet.
#[derive(Debug, Clone)]
pub struct MappingInput {
    /// Key of the mapping.
    pub team_key: TeamKey,
    owner: String,
    repo: String,
    fields: MappingFields,
}

impl MappingInput {
    /// Reads the team key, owner and repository of a body.
    ///
    /// # Errors
    /// The body is not an object, or one of the three is missing or invalid.
    pub fn read(body: Value) -> MappingResult<Self> {
        let Value::Object(fields) = body else {
            return Err(MappingError::InvalidBody);
        };
        let fields = MappingFields(fields);
        let name = |field| fields.text(field).ok_or(MappingError::MissingIdentity);
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

    /// Validates all fields. `stored` is the mapping to replace.
    ///
    /// # Errors
    /// The first rule that is broken, in the documented order.
    pub fn validate(&self, stored: Option<&Mapping>, now: Timestamp) -> MappingResult<Mapping> {
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
            max_in_progress: max_in_progress.unwrap_or(limits::DEFAULT_MAX_IN_PROGRESS),
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

/// Fields that `PATCH` can change. `awsRegion` is an alias of `cloudRegion`.
const MUTABLE_FIELDS: [&str; 24] = [
    "owner",
    "repo",
    "defaultBranch",
    "workflowFile",
    "ticketingProvider",
    "ticketingConfig",
    "provider",
    "cloudRegion",
    "awsRegion",
    "executionMode",
    "machineCpus",
    "machineMemoryMb",
    "sessionMode",
    "branchPrefix",
    "extraEnv",
    MAX_IN_PROGRESS,
    PAUSED,
    "planningEnabled",
    "planningWorkflowFile",
    "maxTurns",
    "maxIterations",
    "maxJobMinutes",
    "budgetUsd",
    "resumeAfterLimit",
];

/// Field of the concurrency cap.
const MAX_IN_PROGRESS: &str = "maxInProgressAiIssues";
/// Field that pauses dispatch.
const PAUSED: &str = "paused";

/// Change to a mapping. Pausing and the concurrency cap can be changed even if the stored mapping
/// breaks a newer rule.
#[derive(Debug, Clone, PartialEq)]
pub enum MappingPatch {
    /// Pauses or resumes dispatch.
    Paused(bool),
    /// Changes the concurrency cap.
    MaxInProgress(u32),
    /// Replaces these fields. `null` stands for the default.
    Fields(Map<String, Value>),
}

impl MappingPatch {
    /// Reads the body of `PATCH` for the mapping `key`.
    ///
    /// # Errors
    /// No field is given, two changes exclude each other, or the value of `paused` or the cap is
    /// invalid.
    pub fn read(body: Value, key: &TeamKey) -> MappingResult<Self> {
        let Value::Object(fields) = body else {
            return Err(MappingError::InvalidBody);
        };
        let fields = MappingFields(fields);
        if fields.get(PAUSED).is_some() && fields.get(MAX_IN_PROGRESS).is_some() {
            return Err(MappingError::ConflictingChanges);
        }
        let is_other_key = |value: &Value| value.as_str().map(str::trim) != Some(key.as_str());
        if fields.0.get("teamKey").is_some_and(is_other_key) {
            return Err(MappingError::TeamKeyImmutable);
        }
        let is_blank = |name: &str| fields.0.get(name).is_some_and(Value::is_null);
        if is_blank(MAX_IN_PROGRESS) && fields.get(PAUSED).is_none() {
            return Err(MappingError::MaxInProgress);
        }
        let mut changes = fields.0.clone();
        changes.retain(|name, value| {
            let is_unset = value.is_null() && (name == PAUSED || name == MAX_IN_PROGRESS);
            MUTABLE_FIELDS.contains(&name.as_str()) && !is_unset
        });
        let mut names = changes.keys().map(String::as_str);
        match (names.next(), names.next()) {
            (Some(PAUSED), None) => {
                let paused = fields.flag(PAUSED)?;
                paused
                    .map(Self::Paused)
                    .ok_or(MappingError::NotBoolean(PAUSED))
            }
            (None | Some(MAX_IN_PROGRESS), None) => {
                let cap = fields.max_in_progress()?;
                cap.map(Self::MaxInProgress)
                    .ok_or(MappingError::MaxInProgress)
            }
            _ => Ok(Self::Fields(changes)),
        }
    }

    /// Returns whether the change contains this field.
    pub fn has_field(&self, name: &str) -> bool {
        match self {
            Self::Paused(_) => name == PAUSED,
            Self::MaxInProgress(_) => name == MAX_IN_PROGRESS,
            Self::Fields(changes) => changes.contains_key(name),
        }
    }

    /// Returns whether the change must be checked with the ticketing system.
    pub fn has_ticketing_fields(&self) -> bool {
        self.has_field("ticketingProvider") || self.has_field("ticketingConfig")
    }

    /// Returns the mapping with the change, to be validated.
    ///
    /// # Errors
    /// The owner or repository is missing or invalid.
    pub fn apply_to(&self, stored: &Mapping) -> MappingResult<MappingInput> {
        let mut body = json!(MappingView::from_mapping(stored));
        match self {
            Self::Paused(paused) => body[PAUSED] = json!(paused),
            Self::MaxInProgress(cap) => body[MAX_IN_PROGRESS] = json!(cap),
            Self::Fields(changes) => {
                // The stored field would contradict the changed field of the same meaning.
                if changes
                    .get("ticketingConfig")
                    .is_some_and(|config| !config["kind"].is_null())
                {
                    body["ticketingProvider"] = Value::Null;
                }
                if changes.contains_key("awsRegion") {
                    body["cloudRegion"] = Value::Null;
                }
                for (name, value) in changes {
                    body[name] = value.clone();
                }
            }
        }
        MappingInput::read(body)
    }
}

/// Returns an existing key that overlaps with this one. Example: both `ENG` and `ENG_WEB` could own
/// the stored secret `ENG_WEB_TOKEN`. Secret names are upper-case, so case is ignored.
pub fn find_overlapping_key<'a>(
    team_key: &TeamKey,
    mut existing: impl Iterator<Item = &'a TeamKey>,
) -> Option<&'a TeamKey> {
    let key = team_key.as_str().to_ascii_uppercase();
    let is_prefix = |prefix: &str, other: &str| {
        other
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with('_'))
    };
    existing.find(|other| {
        let other_key = other.as_str().to_ascii_uppercase();
        let differs_in_case = key == other_key && *other != team_key;
        differs_in_case || is_prefix(&key, &other_key) || is_prefix(&other_key, &key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::example_mapping;

    #[test]
    fn every_returned_field_can_be_changed() {
        let returned = json!(MappingView::from_mapping(&example_mapping(&json!({}))));
        let fixed = ["teamKey", "createdAt", "updatedAt"];
        let returned = returned.as_object().unwrap().keys();
        let mut returned: Vec<&str> = returned.map(String::as_str).collect();
        returned.retain(|name| !fixed.contains(name));
        let mut mutable = MUTABLE_FIELDS.to_vec();
        mutable.retain(|name| *name != "awsRegion");
        returned.sort_unstable();
        mutable.sort_unstable();
        assert_eq!(returned, mutable);
    }

    #[test]
    fn a_patch_keeps_other_fields() {
        let stored = example_mapping(&json!({
            "provider": "cloud", "cloudRegion": "eu-central-1", "ticketingProvider": "B",
            "ticketingConfig": {"jql": "project = X", "repoFieldValue": "shop", "statusFieldOverride": "s"},
            "extraEnv": {"A": "b"}, "branchPrefix": "bots", "machineCpus": 4, "planningEnabled": true,
            "planningWorkflowFile": "plan.yml", "maxTurns": 7, "budgetUsd": 12.345678, "maxInProgressAiIssues": 9,
            "paused": true, "resumeAfterLimit": false, "workflowFile": "own.yml",
        }));
        let change = MappingPatch::read(json!({"maxIterations": 2}), &stored.team_key).unwrap();
        let input = change.apply_to(&stored).unwrap();
        let changed = input.validate(Some(&stored), stored.updated_at).unwrap();
        let expected = Mapping {
            max_iterations: Some(2),
            ..stored
        };
        assert_eq!(changed, expected);
    }
}

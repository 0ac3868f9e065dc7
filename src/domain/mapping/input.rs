//! From what an operator sent to a valid mapping: every refusal of the mapping routes.
//!
//! Texts are the spec's where it has one, vendor's wording included; the vendors' own words for
//! enum values are taken as well and never printed back. Rules are asked in the order of the
//! spec's table, ours after the neighbour they belong to. Names are trimmed; `null` and a field
//! that was left out are the same.

use serde_json::{Map, Value, json};

use super::error::{MappingError, MappingResult};
use super::fields::{MappingFields, is_name, is_repo_name};
use super::{IMPLEMENT_WORKFLOW, Mapping, MappingView};
use crate::ids::TeamKey;
use crate::limits;
use crate::time::Timestamp;

const DEFAULT_CPUS: u32 = 2;
const DEFAULT_MEMORY_MB: u32 = 4096;
const MIN_MEMORY_MB: u32 = 256;

/// A body that names its mapping; the rest is not checked yet.
#[derive(Debug, Clone)]
pub struct MappingInput {
    pub team_key: TeamKey,
    owner: String,
    repo: String,
    fields: MappingFields,
}

impl MappingInput {
    /// Reads who the mapping is for.
    ///
    /// # Errors
    /// A body that is no object, or a key, owner or repository that is missing or no name.
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

    /// The mapping, if every rule holds. `stored` is the one it replaces.
    ///
    /// # Errors
    /// The first rule that is broken, in the order of the spec's table.
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

/// The fields that `PATCH` can change, `awsRegion` as another name of one.
const CHANGEABLE: [&str; 24] = [
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
    CAP,
    PAUSED,
    "planningEnabled",
    "planningWorkflowFile",
    "maxTurns",
    "maxIterations",
    "maxJobMinutes",
    "budgetUsd",
    "resumeAfterLimit",
];

const CAP: &str = "maxInProgressAiIssues";
const PAUSED: &str = "paused";

/// A change to a mapping. Pausing and the cap work whatever rule the rest of the mapping breaks by now.
#[derive(Debug, Clone, PartialEq)]
pub enum MappingPatch {
    Paused(bool),
    MaxInProgress(u32),
    /// Fields in the place of the stored ones, each as a whole. `null` stands for the default.
    Fields(Map<String, Value>),
}

impl MappingPatch {
    /// Reads what `PATCH` of the mapping `key` was given.
    ///
    /// # Errors
    /// When nothing is given or both of the two that exclude one another, or a value of theirs is wrong.
    pub fn read(body: Value, key: &TeamKey) -> MappingResult<Self> {
        let Value::Object(fields) = body else {
            return Err(MappingError::InvalidBody);
        };
        let fields = MappingFields(fields);
        if fields.get(PAUSED).is_some() && fields.get(CAP).is_some() {
            return Err(MappingError::ConflictingChanges);
        }
        let is_other = |told: &Value| told.as_str().map(str::trim) != Some(key.as_str());
        if fields.0.get("teamKey").is_some_and(is_other) {
            return Err(MappingError::TeamKeyImmutable);
        }
        let is_blank = |name: &str| fields.0.get(name).is_some_and(Value::is_null);
        if is_blank(CAP) && fields.get(PAUSED).is_none() {
            return Err(MappingError::MaxInProgress);
        }
        let mut given = fields.0.clone();
        given.retain(|name, value| {
            let is_unset = value.is_null() && (name == PAUSED || name == CAP);
            CHANGEABLE.contains(&name.as_str()) && !is_unset
        });
        let mut names = given.keys().map(String::as_str);
        match (names.next(), names.next()) {
            (Some(PAUSED), None) => {
                let paused = fields.flag(PAUSED)?;
                paused
                    .map(Self::Paused)
                    .ok_or(MappingError::NotBoolean(PAUSED))
            }
            (None | Some(CAP), None) => {
                let cap = fields.max_in_progress()?;
                cap.map(Self::MaxInProgress)
                    .ok_or(MappingError::MaxInProgress)
            }
            _ => Ok(Self::Fields(given)),
        }
    }

    /// Whether it gives a value of this field.
    pub fn has_field(&self, name: &str) -> bool {
        match self {
            Self::Paused(_) => name == PAUSED,
            Self::MaxInProgress(_) => name == CAP,
            Self::Fields(given) => given.contains_key(name),
        }
    }

    /// Whether the ticketing system has a say in it.
    pub fn has_ticketing_fields(&self) -> bool {
        self.has_field("ticketingProvider") || self.has_field("ticketingConfig")
    }

    /// The mapping with the change, to be validated as a whole.
    ///
    /// # Errors
    /// An owner or repository that is missing or no name.
    pub fn apply_to(&self, stored: &Mapping) -> MappingResult<MappingInput> {
        let mut body = json!(MappingView::from_mapping(stored));
        match self {
            Self::Paused(paused) => body[PAUSED] = json!(paused),
            Self::MaxInProgress(cap) => body[CAP] = json!(cap),
            Self::Fields(given) => {
                // Of two fields that say the same, the stored one would contradict.
                if given
                    .get("ticketingConfig")
                    .is_some_and(|config| !config["kind"].is_null())
                {
                    body["ticketingProvider"] = Value::Null;
                }
                if given.contains_key("awsRegion") {
                    body["cloudRegion"] = Value::Null;
                }
                for (name, value) in given {
                    body[name] = value.clone();
                }
            }
        }
        MappingInput::read(body)
    }
}

/// An existing key with which this one must not live: `ENG` and `ENG_WEB` would both own a secret
/// stored as `ENG_WEB_TOKEN`. Secrets are upper-case, so case makes no difference.
pub fn find_overlapping_key<'a>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::example_mapping;

    #[test]
    fn every_field_that_is_shown_can_be_changed() {
        let shown = json!(MappingView::from_mapping(&example_mapping(&json!({}))));
        let fixed = ["teamKey", "createdAt", "updatedAt"];
        let shown = shown.as_object().unwrap().keys();
        let mut shown: Vec<&str> = shown.map(String::as_str).collect();
        shown.retain(|name| !fixed.contains(name));
        let mut changeable = CHANGEABLE.to_vec();
        changeable.retain(|name| *name != "awsRegion");
        shown.sort_unstable();
        changeable.sort_unstable();
        assert_eq!(shown, changeable);
    }

    #[test]
    fn what_is_not_given_stays_as_it_is() {
        let every = example_mapping(&json!({
            "provider": "cloud", "cloudRegion": "eu-central-1", "ticketingProvider": "B",
            "ticketingConfig": {"jql": "project = X", "repoFieldValue": "shop", "statusFieldOverride": "s"},
            "extraEnv": {"A": "b"}, "branchPrefix": "bots", "machineCpus": 4, "planningEnabled": true,
            "planningWorkflowFile": "plan.yml", "maxTurns": 7, "budgetUsd": 12.345678, "maxInProgressAiIssues": 9,
            "paused": true, "resumeAfterLimit": false, "workflowFile": "own.yml",
        }));
        let change = MappingPatch::read(json!({"maxIterations": 2}), &every.team_key).unwrap();
        let input = change.apply_to(&every).unwrap();
        let changed = input.validate(Some(&every), every.updated_at).unwrap();
        let expected = Mapping {
            max_iterations: Some(2),
            ..every
        };
        assert_eq!(changed, expected);
    }
}

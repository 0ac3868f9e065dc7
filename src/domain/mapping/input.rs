//! Validation of mappings sent by operators.
//!
//! Error texts are fixed by the API. Vendor names of enum values are accepted and never returned.
//! Fields are validated in the documented order. Names are trimmed. `null` counts as absent.

use serde_json::{Map, Value, json};

use super::draft::{self, MappingDraft};
use super::error::{MappingError, MappingErrors, MappingResult};
use super::fields::MappingFields;
use super::{Mapping, MappingView, TicketMatch, TicketingConfig};
use crate::ids::{Repo, TeamKey};
use crate::time::Timestamp;

/// Body with a valid team key, owner and repository. Other fields are not validated yet.
#[derive(Debug, Clone)]
pub struct MappingInput {
    /// Key of the mapping.
    pub team_key: TeamKey,
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
        let mut errors = MappingErrors::default();
        let [team_key, _, _] = draft::identity(&fields, &mut errors);
        if let Some(error) = errors.0.into_iter().next() {
            return Err(error);
        }
        let team_key = team_key.ok_or(MappingError::MissingIdentity("teamKey"))?;
        let team_key = TeamKey::new(team_key);
        Ok(Self { team_key, fields })
    }

    /// Validates all fields. `stored` is the mapping to replace.
    ///
    /// # Errors
    /// The first rule that is broken, in the documented order.
    pub fn validate(&self, stored: Option<&Mapping>, now: Timestamp) -> MappingResult<Mapping> {
        let mut errors = MappingErrors::default();
        let draft = MappingDraft::read(&self.fields, stored, &mut errors);
        match errors.0.into_iter().next() {
            Some(error) => Err(error),
            None => draft
                .into_mapping(stored, now)
                .ok_or(MappingError::InvalidBody),
        }
    }
}

/// Fields that `PATCH` can change. `awsRegion` is an alias of `cloudRegion`.
const MUTABLE_FIELDS: [&str; 41] = [
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
    "runsOn",
    "nodeSelector",
    "agent",
    "model",
    "fallbackAgents",
    "questions",
    "questionTimeoutHours",
    "planApproval",
    "planAutoApprove",
    "approvers",
    "maxOpenPulls",
    "maxAwaitingReview",
    "dispatchWindow",
    "collisions",
    "collisionIgnore",
    "merge",
    "deleteBranch",
];

/// Names of the fields that operators set, for suggestions and the detection of misspelt names.
pub fn mapping_fields() -> Vec<&'static str> {
    let mut names = vec!["teamKey"];
    names.extend(MUTABLE_FIELDS);
    names
}

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

/// Returns an existing mapping that takes the same tickets of a team or repository as a mapping with this key,
/// configuration and target repository. A mapping without a match takes all tickets that match no other mapping.
pub fn find_equal_match<'a>(
    key: &TeamKey,
    ticketing: &TicketingConfig,
    repo: Option<&Repo>,
    mut existing: impl Iterator<Item = &'a Mapping>,
) -> Option<&'a TeamKey> {
    let matching = ticketing.ticket_match().unwrap_or(&TicketMatch::Default);
    let is_equal = |other: &&Mapping| {
        let other_match = other.ticket_match().unwrap_or(&TicketMatch::Default);
        let takes_same = match (ticketing, &other.ticketing) {
            (TicketingConfig::Linear { .. }, TicketingConfig::Linear { .. }) => {
                other.source_team() == ticketing.source_team(key) && other_match == matching
            }
            (TicketingConfig::GitHub { .. }, TicketingConfig::GitHub { .. }) => {
                repo.is_some_and(|repo| other.targets(repo))
                    && other_match.is_same_on_github(matching)
            }
            _ => false,
        };
        other.team_key != *key && takes_same
    };
    existing.find(is_equal).map(|other| &other.team_key)
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
        let cloud = json!({
            "provider": "cloud", "cloudRegion": "eu-central-1", "ticketingProvider": "B",
            "ticketingConfig": {"jql": "project = X", "repoFieldValue": "shop", "statusFieldOverride": "s"},
            "extraEnv": {"A": "b"}, "branchPrefix": "bots", "machineCpus": 4, "planningEnabled": true,
            "planningWorkflowFile": "plan.yml", "maxTurns": 7, "budgetUsd": 12.345678, "maxInProgressAiIssues": 9,
            "paused": true, "resumeAfterLimit": false, "workflowFile": "own.yml",
            "runsOn": ["self-hosted", "linux"], "agent": "claude", "model": "opus",
        });
        let direct = json!({
            "fallbackAgents": ["codex", "gemini"],
            "ticketingConfig": {"kind": "A", "teamKey": "APP", "match": {"label": "repo:web"}},
            "questions": false, "questionTimeoutHours": 48, "planningEnabled": true,
            "planningWorkflowFile": "plan.yml", "planApproval": "auto", "approvers": ["ada@acme.example"],
            "planAutoApprove": {"maxFiles": 3, "forbidPaths": ["migrations/**"]},
            "maxOpenPulls": 4, "maxAwaitingReview": 2, "collisions": "allow", "collisionIgnore": ["docs/"],
            "dispatchWindow": {"days": ["fri", "mon"], "from": "22:00", "to": "06:00", "timeZone": "Europe/Berlin"},
            "merge": {"mode": "queue", "method": "rebase", "requireApprovals": 2, "maxFiles": 9, "maxLines": 99,
                "forbidPaths": ["infra/**"]},
            "deleteBranch": true,
        });
        for stored in [cloud, direct].map(|fields| example_mapping(&fields)) {
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
}

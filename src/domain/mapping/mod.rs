//! A project mapping: which tickets go to which repository, and how. (spec: *Project mapping*)
//!
//! [`Mapping`] is the valid thing; nothing past this folder can hold an unvalidated one. What an
//! operator sent becomes one in [`Input`] only.

mod error;
pub mod extra_env;
mod fields;
mod input;
mod view;
mod warning;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::{Repo, TeamKey};
use super::issue::System;
use super::time::Timestamp;
use super::usage::MicroUsd;

pub use error::MappingError;
pub use fields::is_name as is_plain_name;
pub use input::{MappingInput, MappingPatch, find_overlapping_key};
pub use view::MappingView;
pub use warning::MappingWarning;

/// The workflow that an implementation dispatch starts, unless the mapping names another.
pub const IMPLEMENT_WORKFLOW: &str = "agent-implement.yml";

/// The workflow that a planning dispatch starts, unless the mapping names another.
pub const PLAN_WORKFLOW: &str = "agent-plan.yml";

/// A valid mapping.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mapping {
    pub team_key: TeamKey,
    pub owner: String,
    pub repo: String,
    pub default_branch: String,
    pub workflow_file: String,
    pub ticketing: TicketingConfig,
    pub provider: ModelProvider,
    pub execution_mode: ExecutionMode,
    pub machine_cpus: u32,
    pub machine_memory_mb: u32,
    pub session_mode: SessionMode,
    pub branch_prefix: Option<String>,
    pub extra_env: BTreeMap<String, String>,
    pub max_in_progress: u32,
    pub paused: bool,
    pub planning_enabled: bool,
    pub planning_workflow_file: Option<String>,
    pub max_turns: Option<u32>,
    pub max_iterations: Option<u32>,
    pub max_job_minutes: Option<u32>,
    /// What runs may cost in a month of UTC; none means that nothing is limited.
    #[serde(default)]
    pub budget: Option<MicroUsd>,
    /// Whether what met the model provider's usage limit goes on by itself when that is lifted.
    #[serde(default = "resumes")]
    pub resume_after_limit: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Mappings of before go on by themselves, too.
fn resumes() -> bool {
    true
}

impl Mapping {
    /// The target repository.
    pub fn target_repo(&self) -> Repo {
        Repo::new(&self.owner, &self.repo)
    }

    pub fn system(&self) -> System {
        match self.ticketing {
            TicketingConfig::Linear => System::Linear,
            TicketingConfig::Jira { .. } => System::Jira,
        }
    }
}

/// Where a mapping's tickets are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all_fields = "camelCase")]
pub enum TicketingConfig {
    /// Linear: the team whose key is the mapping's.
    #[serde(rename = "A")]
    Linear,
    /// Jira: what a query clause finds, narrowed to one value of the repo field.
    #[serde(rename = "B")]
    Jira {
        jql: String,
        repo_field_value: String,
        status_field_override: Option<String>,
        repo_field_override: Option<String>,
    },
}

/// Who serves the model. A cloud without a region cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelProvider {
    Direct,
    Cloud { region: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionMode {
    CiWorkflow,
    VmMachines,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionMode {
    /// Run and end.
    Autonomous,
    /// Prepared for a person, and kept until its time is over.
    Interactive,
    /// Run, and kept for a person when it did not succeed.
    Hybrid,
}

impl SessionMode {
    pub fn as_str(self) -> &'static str {
        match self {
            SessionMode::Autonomous => "autonomous",
            SessionMode::Interactive => "interactive",
            SessionMode::Hybrid => "hybrid",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Autonomous, Self::Interactive, Self::Hybrid];
        all.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// The mapping of a test: team `ENG` and `acme/shop`, but for these fields.
#[cfg(test)]
pub fn example_mapping(fields: &serde_json::Value) -> Mapping {
    let mut body = serde_json::json!({
        "teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    let input = MappingInput::read(body).unwrap();
    input.validate(None, Timestamp::EPOCH).unwrap()
}

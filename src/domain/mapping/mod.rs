//! Project mappings: the repository of each team's tickets, and the settings of its runs. See
//! docs/configuration.md#project-mappings.
//!
//! A [`Mapping`] is always valid. [`MappingInput`] is the only way to create one from the fields
//! that an operator sent.

mod conversation_fields;
mod draft;
mod error;
mod fields;
mod input;
mod landing_error;
mod landing_fields;
mod precondition;
mod problem;
mod region;
pub mod ticket_match;
mod view;
mod warning;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::AgentName;
use super::collision::CollisionRule;
use super::dispatch_window::DispatchWindow;
use super::ids::{Repo, TeamKey};
use super::issue::System;
use super::merge_policy::MergePolicy;
use super::plan_approval::{PlanApproval, PlanAutoApprove};
use super::time::Timestamp;
use super::usage::MicroUsd;

pub use draft::{MappingDraft, parse_repo};
pub use error::MappingError;
pub use fields::{is_name as is_plain_name, is_plain as is_team_key, ticketing_fields};
pub use input::{
    MappingInput, MappingPatch, find_equal_match, find_overlapping_key, mapping_fields,
};
pub use landing_error::LandingError;
pub use precondition::MappingPrecondition;
pub use problem::{MappingProblem, SOURCE_TEAM_KEY};
pub use region::region_warning;
pub use ticket_match::TicketMatch;
pub use view::MappingView;
pub use warning::MappingWarning;

/// Default workflow file of implementation runs.
pub(crate) const IMPLEMENT_WORKFLOW: &str = "agent-implement.yml";

/// Default workflow file of planning runs.
pub const PLAN_WORKFLOW: &str = "agent-plan.yml";

/// Valid project mapping.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mapping {
    /// Key of the mapping.
    pub team_key: TeamKey,
    /// Owner of the target repository.
    pub owner: String,
    /// Name of the target repository.
    pub repo: String,
    /// Primary branch of the repository.
    pub default_branch: String,
    /// Workflow file of implementation runs.
    pub workflow_file: String,
    /// Ticketing system and query.
    pub ticketing: TicketingConfig,
    /// Model provider.
    pub provider: ModelProvider,
    /// Runner, unless the runner mode overrides it.
    pub execution_mode: ExecutionMode,
    /// CPUs of a session machine.
    pub machine_cpus: u32,
    /// Memory of a session machine, in MB.
    pub machine_memory_mb: u32,
    /// Session mode.
    pub session_mode: SessionMode,
    /// Prefix of the branches of runs.
    pub branch_prefix: Option<String>,
    /// Additional environment variables of sessions.
    pub extra_env: BTreeMap<String, String>,
    /// Maximum number of issues in progress.
    pub max_in_progress: u32,
    /// Whether dispatch is paused.
    pub paused: bool,
    /// Whether issues are planned before they are implemented.
    pub planning_enabled: bool,
    /// Workflow file of planning runs.
    pub planning_workflow_file: Option<String>,
    /// Maximum number of model turns per implement pass.
    pub max_turns: Option<u32>,
    /// Maximum number of implement and review cycles.
    pub max_iterations: Option<u32>,
    /// Time budget of a run, in minutes.
    pub max_job_minutes: Option<u32>,
    /// Maximum cost of runs per month (UTC). `None` for no limit.
    #[serde(default)]
    pub budget: Option<MicroUsd>,
    /// Whether runs that reached the usage limit of the model provider resume automatically when it
    /// resets.
    #[serde(default = "default_resume_after_limit")]
    pub resume_after_limit: bool,
    /// Labels of the GitHub Actions runner. Empty for the default of the workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs_on: Vec<String>,
    /// Labels of the Kubernetes nodes on which runs execute. Empty for all nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Agent of runs. `None` for the repository's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Model of runs. `None` for the choice of the repository or of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Agents that work instead, in this order, while the usage limit of the agent is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_agents: Vec<AgentName>,
    /// Whether agents may ask people questions.
    #[serde(default = "default_questions")]
    pub questions: bool,
    /// Hours after which the work goes on without an answer. `None` to wait for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_timeout_hours: Option<u32>,
    /// Whether plans wait for an approval.
    #[serde(default)]
    pub plan_approval: PlanApproval,
    /// Bounds within which plans need no person, for [`PlanApproval::Auto`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_auto_approve: Option<PlanAutoApprove>,
    /// Email addresses and account ids of the people who may approve plans. Empty for everybody who may edit the
    /// issue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
    /// Maximum number of open pull requests of the service in the repository, with runs that may open one. `None` for
    /// no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_open_pulls: Option<u32>,
    /// Maximum number of these pull requests that wait for a review. `None` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_awaiting_review: Option<u32>,
    /// Days and hours in which runs start. `None` for always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_window: Option<DispatchWindow>,
    /// Whether issues that change the same files run side by side.
    #[serde(default)]
    pub collisions: CollisionRule,
    /// Globs of files that may be changed side by side. Lock files always may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collision_ignore: Vec<String>,
    /// Policy by which pull requests are merged.
    #[serde(default)]
    pub merge: MergePolicy,
    /// Whether the branch of a merged pull request is deleted.
    #[serde(default)]
    pub delete_branch: bool,
    /// Creation time.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Default of [`Mapping::questions`].
fn default_questions() -> bool {
    true
}

/// Default of [`Mapping::resume_after_limit`] for mappings stored before the field existed.
fn default_resume_after_limit() -> bool {
    true
}

impl Mapping {
    /// Returns the target repository.
    pub fn target_repo(&self) -> Repo {
        Repo::new(&self.owner, &self.repo)
    }

    /// Returns whether plans of the mapping need an approval.
    pub fn awaits_approval(&self) -> bool {
        self.planning_enabled && self.plan_approval != PlanApproval::None
    }

    /// Returns whether this is the target repository. GitHub ignores case.
    pub fn targets(&self, repo: &Repo) -> bool {
        self.owner.eq_ignore_ascii_case(&repo.owner) && self.repo.eq_ignore_ascii_case(&repo.name)
    }

    /// Returns the ticketing system.
    pub fn system(&self) -> System {
        match self.ticketing {
            TicketingConfig::Linear { .. } => System::Linear,
            TicketingConfig::Jira { .. } => System::Jira,
            TicketingConfig::GitHub { .. } => System::GitHub,
        }
    }

    /// Returns the key of the team or scope whose tickets the mapping takes: that of the ticketing configuration,
    /// else the key of the mapping.
    pub fn source_team(&self) -> &TeamKey {
        self.ticketing.source_team(&self.team_key)
    }

    /// Returns which tickets of the team or repository the mapping takes; `None` for all that match no other
    /// mapping.
    pub fn ticket_match(&self) -> Option<&TicketMatch> {
        self.ticketing.ticket_match()
    }
}

/// Source of a mapping's tickets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all_fields = "camelCase")]
pub enum TicketingConfig {
    /// Linear: the tickets of a team, or those of them that match.
    #[serde(rename = "A")]
    #[schemars(title = "Linear")]
    Linear {
        /// Key of the team. Omitted if it is the key of the mapping.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        team_key: Option<TeamKey>,
        /// Tickets of the team that the mapping takes. Omitted for all that match no other mapping.
        #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
        matching: Option<TicketMatch>,
    },
    /// Jira: the results of a query clause, restricted to one value of the repo field.
    #[serde(rename = "B")]
    #[schemars(title = "Jira")]
    Jira {
        /// Query clause.
        jql: String,
        /// Value of the repo field.
        repo_field_value: String,
        /// Id of the status field. `None` for the field of the default name.
        status_field_override: Option<String>,
        /// Id of the repo field. `None` for the field of the default name.
        repo_field_override: Option<String>,
    },
    /// GitHub Issues: the issues of the mapping's repository, or those of them that match.
    #[serde(rename = "C")]
    #[schemars(title = "GitHub Issues")]
    GitHub {
        /// Issues of the repository that the mapping takes. Omitted for all that match no other mapping.
        #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
        matching: Option<TicketMatch>,
    },
}

impl TicketingConfig {
    /// Returns the key of the team or scope whose tickets a mapping with this key takes.
    pub fn source_team<'a>(&'a self, key: &'a TeamKey) -> &'a TeamKey {
        match self {
            Self::Linear { team_key, .. } => team_key.as_ref().unwrap_or(key),
            Self::Jira { .. } | Self::GitHub { .. } => key,
        }
    }

    /// Returns which tickets of its team or repository a mapping takes; `None` for all that match no other mapping.
    pub fn ticket_match(&self) -> Option<&TicketMatch> {
        match self {
            Self::Linear { matching, .. } | Self::GitHub { matching } => matching.as_ref(),
            Self::Jira { .. } => None,
        }
    }
}

/// Model provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelProvider {
    /// API of the model vendor.
    Direct,
    /// Amazon Bedrock.
    Cloud {
        /// AWS region.
        region: String,
    },
}

/// Runner of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionMode {
    /// CI workflow of the repository host.
    CiWorkflow,
    /// Virtual machines.
    VmMachines,
    /// Jobs of a Kubernetes cluster.
    Kubernetes,
}

/// Behavior of a session at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SessionMode {
    /// Executes the run, then ends.
    Autonomous,
    /// Prepared for a person, and kept until the time budget is used up.
    Interactive,
    /// Executes the run. Kept for a person if it failed.
    Hybrid,
}

impl SessionMode {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionMode::Autonomous => "autonomous",
            SessionMode::Interactive => "interactive",
            SessionMode::Hybrid => "hybrid",
        }
    }

    /// Parses the name in the API.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Autonomous, Self::Interactive, Self::Hybrid];
        all.into_iter().find(|mode| mode.as_str() == text)
    }
}

/// Mapping for tests: team `ENG` and repository `acme/shop`, with these fields.
#[cfg(test)]
pub(crate) fn example_mapping(fields: &serde_json::Value) -> Mapping {
    let mut body = serde_json::json!({
        "teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main",
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    let input = MappingInput::read(body).unwrap();
    input.validate(None, Timestamp::EPOCH).unwrap()
}

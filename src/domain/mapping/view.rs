//! Mapping as returned by the admin API. [`MappingInput`](super::MappingInput) reads the same
//! fields.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{ExecutionMode, Mapping, MappingWarning, ModelProvider, SessionMode, TicketingConfig};
use crate::agent::AgentName;
use crate::collision::CollisionRule;
use crate::dispatch_window::DispatchWindow;
use crate::ids::TeamKey;
use crate::issue::System;
use crate::merge_policy::MergePolicy;
use crate::plan_approval::{PlanApproval, PlanAutoApprove};
use crate::time::Timestamp;
use crate::usage::MicroUsd;

/// JSON form of a mapping.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Mapping")]
pub struct MappingView<'a> {
    team_key: &'a TeamKey,
    owner: &'a str,
    repo: &'a str,
    default_branch: &'a str,
    workflow_file: &'a str,
    ticketing_provider: System,
    ticketing_config: &'a TicketingConfig,
    #[schemars(extend("enum" = ["direct", "cloud"]))]
    provider: &'static str,
    /// Set for `cloud` only.
    cloud_region: Option<&'a str>,
    execution_mode: ExecutionMode,
    #[schemars(range(min = 1))]
    machine_cpus: u32,
    #[schemars(range(min = 256))]
    machine_memory_mb: u32,
    session_mode: SessionMode,
    branch_prefix: Option<&'a str>,
    extra_env: &'a BTreeMap<String, String>,
    #[schemars(range(min = 1))]
    max_in_progress_ai_issues: u32,
    paused: bool,
    planning_enabled: bool,
    planning_workflow_file: Option<&'a str>,
    #[schemars(range(min = 1))]
    max_turns: Option<u32>,
    #[schemars(range(min = 1))]
    max_iterations: Option<u32>,
    #[schemars(range(min = 1))]
    max_job_minutes: Option<u32>,
    #[schemars(extend("exclusiveMinimum" = 0))]
    budget_usd: Option<f64>,
    resume_after_limit: bool,
    #[schemars(length(max = 10), inner(length(min = 1, max = 100)))]
    runs_on: &'a [String],
    #[schemars(extend("maxProperties" = 10))]
    node_selector: &'a BTreeMap<String, String>,
    agent: Option<AgentName>,
    #[schemars(length(max = 100))]
    model: Option<&'a str>,
    fallback_agents: &'a [AgentName],
    questions: bool,
    #[schemars(range(min = 1, max = 8760))]
    question_timeout_hours: Option<u32>,
    plan_approval: PlanApproval,
    plan_auto_approve: Option<&'a PlanAutoApprove>,
    #[schemars(length(max = 50), inner(length(min = 1, max = 255)))]
    approvers: &'a [String],
    #[schemars(range(min = 1))]
    max_open_pulls: Option<u32>,
    #[schemars(range(min = 1))]
    max_awaiting_review: Option<u32>,
    dispatch_window: Option<&'a DispatchWindow>,
    collisions: CollisionRule,
    #[schemars(length(max = 50), inner(length(min = 1, max = 255)))]
    collision_ignore: &'a [String],
    #[serde(serialize_with = "MergePolicy::serialize_for_api")]
    #[schemars(with = "MergePolicy")]
    merge: &'a MergePolicy,
    delete_branch: bool,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Settings that do not take effect as given. The response to a change also warns about a team, repository
    /// or branch that the service cannot access. Omitted if there are no warnings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    warnings: Vec<MappingWarning>,
}

impl<'a> MappingView<'a> {
    /// Creates the JSON form of a mapping.
    pub fn from_mapping(mapping: &'a Mapping) -> Self {
        let (provider, cloud_region) = match &mapping.provider {
            ModelProvider::Direct => ("direct", None),
            ModelProvider::Cloud { region } => ("cloud", Some(region.as_str())),
        };
        Self {
            team_key: &mapping.team_key,
            owner: &mapping.owner,
            repo: &mapping.repo,
            default_branch: &mapping.default_branch,
            workflow_file: &mapping.workflow_file,
            ticketing_provider: mapping.system(),
            ticketing_config: &mapping.ticketing,
            provider,
            cloud_region,
            execution_mode: mapping.execution_mode,
            machine_cpus: mapping.machine_cpus,
            machine_memory_mb: mapping.machine_memory_mb,
            session_mode: mapping.session_mode,
            branch_prefix: mapping.branch_prefix.as_deref(),
            extra_env: &mapping.extra_env,
            max_in_progress_ai_issues: mapping.max_in_progress,
            paused: mapping.paused,
            planning_enabled: mapping.planning_enabled,
            planning_workflow_file: mapping.planning_workflow_file.as_deref(),
            max_turns: mapping.max_turns,
            max_iterations: mapping.max_iterations,
            max_job_minutes: mapping.max_job_minutes,
            budget_usd: mapping.budget.map(MicroUsd::to_usd),
            resume_after_limit: mapping.resume_after_limit,
            runs_on: &mapping.runs_on,
            node_selector: &mapping.node_selector,
            agent: mapping.agent,
            model: mapping.model.as_deref(),
            fallback_agents: &mapping.fallback_agents,
            questions: mapping.questions,
            question_timeout_hours: mapping.question_timeout_hours,
            plan_approval: mapping.plan_approval,
            plan_auto_approve: mapping.plan_auto_approve.as_ref(),
            approvers: &mapping.approvers,
            max_open_pulls: mapping.max_open_pulls,
            max_awaiting_review: mapping.max_awaiting_review,
            dispatch_window: mapping.dispatch_window.as_ref(),
            collisions: mapping.collisions,
            collision_ignore: &mapping.collision_ignore,
            merge: &mapping.merge,
            delete_branch: mapping.delete_branch,
            created_at: mapping.created_at,
            updated_at: mapping.updated_at,
            warnings: mapping.warnings(),
        }
    }
}

//! Fields of a mapping body, each read as far as it is valid.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::{MappingError, MappingErrors, MappingResult};
use super::fields::{MappingFields, is_plain, is_repo_name};
use super::input::{find_equal_match, find_overlapping_key};
use super::landing_fields::LandingFields;
use super::{
    ExecutionMode, IMPLEMENT_WORKFLOW, Mapping, MappingProblem, ModelProvider, SessionMode,
    TicketingConfig,
};
use crate::agent::AgentName;
use crate::ids::{Repo, TeamKey};
use crate::limits;
use crate::plan_approval::{PlanApproval, PlanAutoApprove};
use crate::time::Timestamp;
use crate::usage::MicroUsd;

/// Default CPUs of a session machine.
const DEFAULT_CPUS: u32 = 2;
/// Default memory of a session machine, in MB.
const DEFAULT_MEMORY_MB: u32 = 4096;
/// Minimum memory of a session machine, in MB.
const MIN_MEMORY_MB: u32 = 256;

/// Fields of a mapping body. A field is `None` if it is invalid.
#[derive(Debug, Clone)]
pub struct MappingDraft {
    /// Key of the mapping.
    pub team_key: Option<TeamKey>,
    /// Ticketing system and query.
    pub ticketing: Option<TicketingConfig>,
    /// Primary branch of the repository.
    pub default_branch: Option<String>,
    /// Model provider.
    pub provider: Option<ModelProvider>,
    owner: Option<String>,
    repo: Option<String>,
    workflow_file: Option<Option<String>>,
    execution_mode: Option<ExecutionMode>,
    machine_cpus: Option<Option<u32>>,
    machine_memory_mb: Option<Option<u32>>,
    session_mode: Option<SessionMode>,
    branch_prefix: Option<Option<String>>,
    extra_env: Option<BTreeMap<String, String>>,
    max_in_progress: Option<Option<u32>>,
    paused: Option<Option<bool>>,
    planning: Option<(bool, Option<String>)>,
    max_turns: Option<Option<u32>>,
    max_iterations: Option<Option<u32>>,
    max_job_minutes: Option<Option<u32>>,
    budget: Option<Option<MicroUsd>>,
    resume_after_limit: Option<Option<bool>>,
    runs_on: Option<Vec<String>>,
    node_selector: Option<BTreeMap<String, String>>,
    agent: Option<Option<AgentName>>,
    model: Option<Option<String>>,
    fallback_agents: Option<Vec<AgentName>>,
    questions: Option<Option<bool>>,
    question_timeout_hours: Option<Option<u32>>,
    plan_approval: Option<PlanApproval>,
    plan_auto_approve: Option<Option<PlanAutoApprove>>,
    approvers: Option<Vec<String>>,
    landing: LandingFields,
}

impl MappingDraft {
    /// Reads all fields of a body that may replace one of the existing mappings, and lists what is wrong with
    /// them.
    ///
    /// # Errors
    /// The body is not an object.
    pub fn check(body: Value, existing: &[Mapping]) -> MappingResult<(Self, Vec<MappingProblem>)> {
        let Value::Object(fields) = body else {
            return Err(MappingError::InvalidBody);
        };
        let fields = MappingFields(fields);
        let stored = fields.text("teamKey").and_then(|key| {
            let mut existing = existing.iter();
            existing.find(|mapping| mapping.team_key.as_str() == key)
        });
        let mut errors = MappingErrors::default();
        let draft = Self::read(&fields, stored, &mut errors);
        let keys = existing.iter().map(|mapping| &mapping.team_key);
        let key = draft.team_key.as_ref();
        if let Some((key, other)) =
            key.and_then(|key| Some((key, find_overlapping_key(key, keys)?)))
        {
            let error = MappingError::OverlappingTeamKey(key.clone(), other.clone());
            errors.0.push(error);
        }
        let repo = draft.target_repo();
        if let (Some(key), Some(ticketing)) = (key, &draft.ticketing)
            && let Some(other) = find_equal_match(key, ticketing, repo.as_ref(), existing.iter())
        {
            errors.0.push(MappingError::SameMatch(other.clone()));
        }
        let problems = errors.0.iter().map(MappingError::problem);
        Ok((draft, problems.collect()))
    }

    /// Reads all fields in the documented order. `stored` is the mapping to replace.
    pub(super) fn read(
        fields: &MappingFields,
        stored: Option<&Mapping>,
        errors: &mut MappingErrors,
    ) -> Self {
        let [team_key, owner, repo] = identity(fields, errors);
        Self {
            team_key: team_key.map(TeamKey::new),
            owner,
            repo,
            default_branch: errors.keep(fields.default_branch(stored)),
            provider: errors.keep(fields.provider()),
            execution_mode: errors.keep(fields.execution_mode()),
            machine_cpus: errors.keep(fields.count("machineCpus", 1, MappingError::Cpus)),
            machine_memory_mb: errors.keep(fields.count(
                "machineMemoryMb",
                MIN_MEMORY_MB,
                MappingError::Memory,
            )),
            session_mode: errors.keep(fields.session_mode()),
            branch_prefix: errors.keep(fields.branch_prefix()),
            extra_env: errors.keep(fields.extra_env()),
            max_in_progress: errors.keep(fields.max_in_progress()),
            paused: errors.keep(fields.flag("paused")),
            workflow_file: errors.keep(fields.workflow_file("workflowFile")),
            planning: errors.keep(fields.planning(stored)),
            max_turns: errors.keep(fields.run_cap("maxTurns")),
            max_iterations: errors.keep(fields.run_cap("maxIterations")),
            max_job_minutes: errors.keep(fields.run_cap("maxJobMinutes")),
            budget: errors.keep(fields.budget()),
            resume_after_limit: errors.keep(fields.flag("resumeAfterLimit")),
            runs_on: errors.keep(fields.runs_on()),
            node_selector: errors.keep(fields.node_selector()),
            agent: errors.keep(fields.agent()),
            model: errors.keep(fields.model()),
            fallback_agents: errors.keep(fields.fallback_agents()),
            questions: errors.keep(fields.flag("questions")),
            question_timeout_hours: errors.keep(fields.question_timeout_hours()),
            plan_approval: errors.keep(fields.plan_approval()),
            plan_auto_approve: errors.keep(fields.plan_auto_approve()),
            approvers: errors.keep(fields.approvers()),
            landing: LandingFields::read(fields, errors),
            ticketing: fields.ticketing(errors),
        }
    }

    /// Whether the runner is CI, unless the runner mode overrides it.
    pub fn is_for_ci(&self) -> bool {
        self.execution_mode == Some(ExecutionMode::CiWorkflow)
    }

    /// Returns the target repository.
    pub fn target_repo(&self) -> Option<Repo> {
        Some(Repo::new(self.owner.as_ref()?, self.repo.as_ref()?))
    }

    /// Returns the mapping; `None` if a field is invalid.
    pub fn into_mapping(self, stored: Option<&Mapping>, now: Timestamp) -> Option<Mapping> {
        let (planning_enabled, planning_workflow_file) = self.planning?;
        let was_paused = stored.is_some_and(|stored| stored.paused);
        let workflow_file = self.workflow_file?;
        Some(Mapping {
            team_key: self.team_key?,
            owner: self.owner?,
            repo: self.repo?,
            default_branch: self.default_branch?,
            workflow_file: workflow_file.unwrap_or_else(|| IMPLEMENT_WORKFLOW.to_owned()),
            ticketing: self.ticketing?,
            provider: self.provider?,
            execution_mode: self.execution_mode?,
            machine_cpus: self.machine_cpus?.unwrap_or(DEFAULT_CPUS),
            machine_memory_mb: self.machine_memory_mb?.unwrap_or(DEFAULT_MEMORY_MB),
            session_mode: self.session_mode?,
            branch_prefix: self.branch_prefix?,
            extra_env: self.extra_env?,
            max_in_progress: self
                .max_in_progress?
                .unwrap_or(limits::DEFAULT_MAX_IN_PROGRESS),
            paused: self.paused?.unwrap_or(was_paused),
            planning_enabled,
            planning_workflow_file,
            max_turns: self.max_turns?,
            max_iterations: self.max_iterations?,
            max_job_minutes: self.max_job_minutes?,
            budget: self.budget?,
            resume_after_limit: self.resume_after_limit?.unwrap_or(true),
            runs_on: self.runs_on?,
            node_selector: self.node_selector?,
            agent: self.agent?,
            model: self.model?,
            fallback_agents: self.fallback_agents?,
            questions: self.questions?.unwrap_or(true),
            question_timeout_hours: self.question_timeout_hours?,
            plan_approval: self.plan_approval?,
            plan_auto_approve: self.plan_auto_approve?,
            approvers: self.approvers?,
            max_open_pulls: self.landing.max_open_pulls?,
            max_awaiting_review: self.landing.max_awaiting_review?,
            dispatch_window: self.landing.dispatch_window?,
            collisions: self.landing.collisions?,
            collision_ignore: self.landing.collision_ignore?,
            merge: self.landing.merge?,
            delete_branch: self.landing.delete_branch?.unwrap_or(false),
            created_at: stored.map_or(now, |stored| stored.created_at),
            updated_at: now,
        })
    }
}

/// Reads the team key, the owner and the name of the repository. That one is missing is reported before that one
/// is invalid.
pub(super) fn identity(fields: &MappingFields, errors: &mut MappingErrors) -> [Option<String>; 3] {
    let given = ["teamKey", "owner", "repo"].map(|name| {
        let text = fields.text(name).map(str::to_owned);
        errors.keep(text.ok_or(MappingError::MissingIdentity(name)))
    });
    let [team_key, owner, repo] = given;
    let mut valid = |text: Option<String>, is_valid: fn(&str) -> bool, error| {
        let text = text?;
        errors.keep(if is_valid(&text) {
            Ok(text)
        } else {
            Err(error)
        })
    };
    [
        valid(team_key, is_plain, MappingError::TeamKey),
        valid(owner, is_plain, MappingError::Owner),
        valid(repo, is_repo_name, MappingError::Repo),
    ]
}

/// Returns the repository with these names.
///
/// # Errors
/// The owner or the name is invalid.
pub fn parse_repo(owner: &str, name: &str) -> MappingResult<Repo> {
    let (owner, name) = (owner.trim(), name.trim());
    if !is_plain(owner) {
        return Err(MappingError::Owner);
    }
    match is_repo_name(name) && !name.is_empty() {
        true => Ok(Repo::new(owner, name)),
        false => Err(MappingError::Repo),
    }
}

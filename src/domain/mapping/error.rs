//! Errors of mapping fields, in the order of validation.

use super::landing_error::LandingError;
use crate::ids::TeamKey;

/// Reason why a mapping or a change to it is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// The body is not an object.
    #[error("Invalid request body")]
    InvalidBody,
    /// This required field is missing.
    #[error("teamKey, owner, and repo are required")]
    MissingIdentity(&'static str),
    /// The team key is invalid.
    #[error("teamKey must be letters, digits, '_' and '-', beginning with a letter or digit")]
    TeamKey,
    /// The owner is invalid.
    #[error("owner must be an account name: letters, digits, '_' and '-', not a path")]
    Owner,
    /// The repository name is invalid.
    #[error("repo must be a repository name: letters, digits, '.', '_' and '-', not a path")]
    Repo,
    /// No default branch is given or stored.
    #[error("defaultBranch is required")]
    MissingBranch,
    /// The default branch is not a valid branch name.
    #[error("defaultBranch is not a valid branch name")]
    InvalidBranch,
    /// The cloud provider requires a region.
    #[error("awsRegion is required when provider is 'bedrock'")]
    MissingRegion,
    /// The region is invalid.
    #[error("cloudRegion must be the name of a region, such as eu-central-1")]
    InvalidRegion,
    /// The cloud provider cannot be used with this execution mode.
    #[error("provider 'bedrock' is not supported with executionMode '{0}'")]
    CloudOnMachines(&'static str),
    /// The provider is unknown.
    #[error("provider must be 'anthropic' or 'bedrock'")]
    Provider,
    /// The execution mode is unknown.
    #[error("executionMode must be 'github-actions' or 'fly-machines'")]
    ExecutionMode,
    /// The CPU count is invalid.
    #[error("machineCpus must be a positive integer")]
    Cpus,
    /// The memory size is invalid.
    #[error("machineMemoryMb must be an integer >= 256")]
    Memory,
    /// The session mode is unknown.
    #[error("sessionMode must be 'autonomous', 'interactive', or 'hybrid'")]
    SessionMode,
    /// The branch prefix is invalid, for this reason.
    #[error("branchPrefix invalid: {0}")]
    BranchPrefix(&'static str),
    /// The variables are not an object.
    #[error("extraEnv must be a plain object")]
    Env,
    /// A variable has a value that is not a string.
    #[error("extraEnv values must all be strings")]
    EnvValues,
    /// A variable has an invalid name or value.
    #[error(
        "extraEnv names must be letters, digits and '_', not beginning with a digit, and values without NUL"
    )]
    EnvNames,
    /// This variable is reserved.
    #[error(
        "extraEnv must not set {0}: the service sets it in a run, or it changes how programs start"
    )]
    ReservedEnv(String),
    /// The concurrency cap is invalid.
    #[error("maxInProgressAiIssues must be a positive integer")]
    MaxInProgress,
    /// This field is not a boolean.
    #[error("{0} must be a boolean")]
    NotBoolean(&'static str),
    /// Planning is enabled without a workflow file.
    #[error("planningWorkflowFile is required when planningEnabled is true")]
    MissingPlanningFile,
    /// This field is not a workflow file name.
    #[error("{0} must be the name of a .yml or .yaml file in .github/workflows")]
    WorkflowFile(&'static str),
    /// This field is not a positive integer.
    #[error("{0} must be a positive integer")]
    RunCap(&'static str),
    /// The budget is invalid.
    #[error("budgetUsd must be a positive number")]
    Budget,
    /// The labels of the runner are invalid.
    #[error(
        "runsOn must be a list of at most 10 labels of a runner, each 1 to 100 printable characters, without expressions"
    )]
    RunsOn,
    /// The labels of nodes are invalid.
    #[error("nodeSelector must be an object of at most 10 labels of Kubernetes nodes")]
    NodeSelector,
    /// The agent is unknown.
    #[error("agent must be 'claude', 'codex' or 'gemini'")]
    Agent,
    /// The agent does not support the provider.
    #[error("agent must be 'claude' with provider 'bedrock'")]
    CloudAgent,
    /// The fallback agents are unknown or repeated.
    #[error("fallbackAgents must be a list of different agents: 'claude', 'codex', 'gemini'")]
    FallbackAgents,
    /// The provider has one agent only.
    #[error("fallbackAgents must be empty with provider 'bedrock'")]
    CloudFallback,
    /// The name of the model is invalid.
    #[error(
        "model must be the name of a model: letters, digits and . _ : / @ + - [ ], beginning with a letter or digit, at most 100"
    )]
    Model,
    /// The time for an answer is invalid.
    #[error("questionTimeoutHours must be an integer from 1 to 8760")]
    QuestionTimeout,
    /// The rule for approvals is unknown.
    #[error("planApproval must be 'none', 'required' or 'auto'")]
    PlanApproval,
    /// The bounds of plans that need no person are invalid.
    #[error(
        "planAutoApprove must have maxFiles, an integer from 1, and may have forbidPaths, a list of at most 50 globs"
    )]
    PlanAutoApprove,
    /// Plans are approved by rule, and there are no bounds.
    #[error("planAutoApprove is required when planApproval is 'auto'")]
    MissingAutoApprove,
    /// The list of people is invalid.
    #[error("approvers must be a list of at most 50 email addresses or account ids")]
    Approvers,
    /// A field of pull requests that land is invalid.
    #[error(transparent)]
    Landing(#[from] LandingError),
    /// The ticketing system is unknown.
    #[error("ticketingProvider must be 'A', 'B' or 'C'")]
    System,
    /// The ticketing configuration does not match the ticketing system.
    #[error("ticketingConfig must be a plain object of the kind that ticketingProvider names")]
    Ticketing,
    /// This field, the Jira query or the value of the repo field, is missing.
    #[error("ticketingConfig.jql and ticketingConfig.repoFieldValue are required for Jira")]
    MissingJiraQuery(&'static str),
    /// This field is not a string.
    #[error("ticketingConfig.{0} must be a string")]
    Override(&'static str),
    /// The key of the Linear team is invalid.
    #[error("ticketingConfig.teamKey must be the key of a Linear team, such as ENG")]
    SourceTeamKey,
    /// The match does not have exactly one known field.
    #[error(
        "ticketingConfig.match must have exactly one of label, project and default, such as {{\"label\": \"repo:web\"}} or {{\"default\": true}}"
    )]
    Match,
    /// The name in the match is invalid.
    #[error(
        "ticketingConfig.match must name a label or project: 1 to 255 bytes without control characters"
    )]
    MatchName,
    /// The match is for a system whose tickets are selected by a query.
    #[error(
        "ticketingConfig.match is not available for Jira: jql and repoFieldValue select the tickets"
    )]
    MatchOfQuery,
    /// The match names a project, but the system has none.
    #[error(
        "ticketingConfig.match.project is not available for GitHub Issues: use label or default"
    )]
    MatchOfProject,
    /// This mapping takes the same tickets.
    #[error(
        "ticketingConfig selects the same tickets as the mapping {0}; give one of them another match"
    )]
    SameMatch(TeamKey),
    /// The change contains another team key.
    #[error("teamKey cannot be changed; delete the mapping and create another")]
    TeamKeyImmutable,
    /// Two changes exclude each other.
    #[error("Specify either paused or maxInProgressAiIssues, not both")]
    ConflictingChanges,
    /// The secrets of the new and the existing team key would overlap.
    #[error(
        "teamKey {0} overlaps with the existing teamKey {1}: their secrets could have the same stored names; choose another teamKey"
    )]
    OverlappingTeamKey(TeamKey, TeamKey),
}

/// Result of validating mapping fields.
pub(super) type MappingResult<T> = Result<T, MappingError>;

/// Errors of all fields, in the order of validation.
#[derive(Debug, Default)]
pub(super) struct MappingErrors(pub(super) Vec<MappingError>);

impl MappingErrors {
    /// Returns a valid field, or keeps its error.
    pub(super) fn keep<T>(&mut self, field: MappingResult<T>) -> Option<T> {
        field.map_err(|error| self.0.push(error)).ok()
    }
}

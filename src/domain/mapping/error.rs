//! Why a mapping is refused: one variant a row, in the order in which they are asked.

use crate::ids::TeamKey;

/// Why a mapping, or a change to one, is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    #[error("Invalid request body")]
    InvalidBody,
    #[error("teamKey, owner, and repo are required")]
    MissingIdentity,
    #[error("teamKey must be letters, digits, '_' and '-', beginning with a letter or digit")]
    TeamKey,
    #[error("owner must be an account name: letters, digits, '_' and '-', not a path")]
    Owner,
    #[error("repo must be a repository name: letters, digits, '.', '_' and '-', not a path")]
    Repo,
    #[error("defaultBranch is required")]
    MissingBranch,
    #[error("defaultBranch is not a valid branch name")]
    InvalidBranch,
    #[error("awsRegion is required when provider is 'bedrock'")]
    MissingRegion,
    #[error("cloudRegion must be the name of a region, such as eu-central-1")]
    InvalidRegion,
    #[error("provider 'bedrock' is not supported with executionMode 'fly-machines'")]
    CloudOnMachines,
    #[error("provider must be 'anthropic' or 'bedrock'")]
    Provider,
    #[error("executionMode must be 'github-actions' or 'fly-machines'")]
    ExecutionMode,
    #[error("machineCpus must be a positive integer")]
    Cpus,
    #[error("machineMemoryMb must be an integer >= 256")]
    Memory,
    #[error("sessionMode must be 'autonomous', 'interactive', or 'hybrid'")]
    SessionMode,
    #[error("branchPrefix invalid: {0}")]
    BranchPrefix(&'static str),
    #[error("extraEnv must be a plain object")]
    Env,
    #[error("extraEnv values must all be strings")]
    EnvValues,
    #[error(
        "extraEnv names must be letters, digits and '_', not beginning with a digit, and values without NUL"
    )]
    EnvNames,
    #[error("extraEnv must not set {0}: it changes which programs a run executes")]
    ForbiddenEnv(String),
    #[error("maxInProgressAiIssues must be a positive integer")]
    MaxInProgress,
    #[error("{0} must be a boolean")]
    NotBoolean(&'static str),
    #[error("planningWorkflowFile is required when planningEnabled is true")]
    MissingPlanningFile,
    #[error("{0} must be the name of a .yml or .yaml file in .github/workflows")]
    WorkflowFile(&'static str),
    #[error("{0} must be a positive integer")]
    RunCap(&'static str),
    #[error("budgetUsd must be a positive number")]
    Budget,
    #[error("ticketingProvider must be 'A' or 'B'")]
    System,
    #[error("ticketingConfig must be a plain object of the kind that ticketingProvider names")]
    Ticketing,
    #[error("ticketingConfig.jql and ticketingConfig.repoFieldValue are required for system B")]
    MissingJiraQuery,
    #[error("ticketingConfig.{0} must be a string")]
    Override(&'static str),
    #[error("teamKey cannot be changed; delete the mapping and create another")]
    TeamKeyImmutable,
    #[error("Specify either paused or maxInProgressAiIssues, not both")]
    ConflictingChanges,
    #[error(
        "teamKey {0} and the existing {1} overlap: secrets named after them could not be told apart"
    )]
    OverlappingTeamKey(TeamKey, TeamKey),
}

/// Something checked, or the rule it breaks.
pub(super) type MappingResult<T> = Result<T, MappingError>;

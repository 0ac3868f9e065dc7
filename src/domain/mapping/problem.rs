//! Errors of mapping fields in the words of the panel.

use schemars::JsonSchema;
use serde::Serialize;

use super::{MappingError, ticketing_fields};

/// Name of the field `ticketingConfig.teamKey` in problems. The mapping has a field `teamKey`, too.
pub const SOURCE_TEAM_KEY: &str = "sourceTeamKey";

/// Problem of a field that prevents a mapping from being saved or from working.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MappingProblem {
    /// Name of the field; for a field of `ticketingConfig`, its name there, and `sourceTeamKey` for its `teamKey`.
    pub field: &'static str,
    /// Sentence for operators, with the label of the field.
    pub message: String,
}

impl MappingProblem {
    /// Returns the place of the field in a mapping, such as `ticketingConfig.jql`.
    pub fn path(&self) -> String {
        match self.field {
            "teamKey" => self.field.to_owned(),
            SOURCE_TEAM_KEY => "ticketingConfig.teamKey".to_owned(),
            name if ticketing_fields().contains(&name) => format!("ticketingConfig.{name}"),
            name => name.to_owned(),
        }
    }
}

impl MappingError {
    /// Returns the error in plain words at its field.
    pub fn problem(&self) -> MappingProblem {
        let field = self.field();
        let message = self.plain_message();
        MappingProblem { field, message }
    }

    /// Returns the name of the field.
    fn field(&self) -> &'static str {
        match self {
            Self::MissingIdentity(name)
            | Self::MissingJiraQuery(name)
            | Self::NotBoolean(name)
            | Self::WorkflowFile(name)
            | Self::RunCap(name)
            | Self::Override(name) => name,
            Self::InvalidBody
            | Self::TeamKey
            | Self::TeamKeyImmutable
            | Self::OverlappingTeamKey(..) => "teamKey",
            Self::Owner => "owner",
            Self::Repo => "repo",
            Self::MissingBranch | Self::InvalidBranch => "defaultBranch",
            Self::MissingRegion | Self::InvalidRegion => "cloudRegion",
            Self::CloudOnMachines(_) | Self::Provider => "provider",
            Self::ExecutionMode => "executionMode",
            Self::Cpus => "machineCpus",
            Self::Memory => "machineMemoryMb",
            Self::SessionMode => "sessionMode",
            Self::BranchPrefix(_) => "branchPrefix",
            Self::Env | Self::EnvValues | Self::EnvNames | Self::ReservedEnv(_) => "extraEnv",
            Self::MaxInProgress | Self::ConflictingChanges => "maxInProgressAiIssues",
            Self::MissingPlanningFile => "planningWorkflowFile",
            Self::Budget => "budgetUsd",
            Self::System | Self::Ticketing => "ticketingProvider",
            Self::RunsOn => "runsOn",
            Self::NodeSelector => "nodeSelector",
            Self::Agent | Self::CloudAgent => "agent",
            Self::Model => "model",
            Self::FallbackAgents | Self::CloudFallback => "fallbackAgents",
            Self::QuestionTimeout => "questionTimeoutHours",
            Self::PlanApproval => "planApproval",
            Self::PlanAutoApprove | Self::MissingAutoApprove => "planAutoApprove",
            Self::Approvers => "approvers",
            Self::Landing(error) => error.field(),
            Self::SourceTeamKey => SOURCE_TEAM_KEY,
            Self::Match
            | Self::MatchName
            | Self::MatchOfQuery
            | Self::MatchOfProject
            | Self::SameMatch(_) => "match",
        }
    }

    fn plain_message(&self) -> String {
        let rule = match self {
            Self::MissingIdentity(_) | Self::MissingBranch | Self::MissingJiraQuery(_) => {
                "is required".to_owned()
            }
            Self::TeamKey => {
                "must be letters, digits, _ and -, beginning with a letter or digit".to_owned()
            }
            Self::Owner => "must be the name of an account: letters, digits, _ and -".to_owned(),
            Self::Repo => {
                "must be the name of a repository: letters, digits, ., _ and -".to_owned()
            }
            Self::InvalidBranch => "is not a valid branch name".to_owned(),
            Self::MissingRegion => "is required for Amazon Bedrock".to_owned(),
            Self::InvalidRegion => "must be the name of a region, such as eu-central-1".to_owned(),
            Self::CloudOnMachines(_) => {
                "Amazon Bedrock works only with the runner GitHub Actions".to_owned()
            }
            Self::Provider => "must be Anthropic or Amazon Bedrock".to_owned(),
            Self::ExecutionMode => "must be GitHub Actions, Fly Machines or Kubernetes".to_owned(),
            Self::Cpus | Self::MaxInProgress | Self::RunCap(_) => "must be at least 1".to_owned(),
            Self::Memory => "must be at least 256 MB".to_owned(),
            Self::SessionMode => "must be autonomous, interactive or hybrid".to_owned(),
            Self::BranchPrefix(reason) if reason.starts_with("must") => (*reason).to_owned(),
            Self::BranchPrefix(reason) => format!("is invalid: {reason}"),
            Self::Env | Self::EnvValues => "must be names with text values".to_owned(),
            Self::EnvNames => {
                "must have names of letters, digits and _, not beginning with a digit".to_owned()
            }
            Self::ReservedEnv(name) => {
                format!(
                    "must not set {name}: the service sets it in a run, or it changes how programs start"
                )
            }
            Self::NotBoolean(_) => "must be on or off".to_owned(),
            Self::MissingPlanningFile => "is required if runs are planned first".to_owned(),
            Self::WorkflowFile(_) => {
                "must be the name of a .yml or .yaml file in .github/workflows".to_owned()
            }
            Self::Budget => "must be more than 0".to_owned(),
            Self::System => "must be Linear, Jira or GitHub Issues".to_owned(),
            Self::Ticketing => "does not match the settings of the tickets".to_owned(),
            Self::Override(_) => "must be the name or ID of a field".to_owned(),
            Self::OverlappingTeamKey(key, other) => format!(
                "{key} overlaps with the project {other}: their secrets could have the same names. Choose another key"
            ),
            Self::RunsOn => {
                "must be at most 10 labels of 1 to 100 printable characters, without expressions"
                    .to_owned()
            }
            Self::NodeSelector => {
                "must be at most 10 labels of nodes, such as pool=agents".to_owned()
            }
            Self::Agent => "must be Claude Code, Codex or Gemini".to_owned(),
            Self::CloudAgent => "must be Claude Code for Amazon Bedrock".to_owned(),
            Self::FallbackAgents => "must be different agents: claude, codex, gemini".to_owned(),
            Self::CloudFallback => "must be empty for Amazon Bedrock".to_owned(),
            Self::Model => "must be the name of a model, such as opus".to_owned(),
            Self::QuestionTimeout => "must be 1 to 8,760 hours".to_owned(),
            Self::PlanApproval => "must be none, required or auto".to_owned(),
            Self::PlanAutoApprove => {
                "must be a number of files from 1, and at most 50 globs of paths".to_owned()
            }
            Self::MissingAutoApprove => "is required if a rule approves plans".to_owned(),
            Self::Approvers => "must be at most 50 email addresses or account IDs".to_owned(),
            Self::Landing(error) => error.rule(),
            Self::SourceTeamKey => "must be the key of a Linear team, such as ENG".to_owned(),
            Self::Match => "must be a label, a project or all other tickets".to_owned(),
            Self::MatchName => "must name a label or project".to_owned(),
            Self::MatchOfQuery => {
                "is not available for Jira: the query selects the tickets".to_owned()
            }
            Self::MatchOfProject => {
                "must be a label or all other tickets for GitHub Issues".to_owned()
            }
            Self::SameMatch(other) => {
                format!("are those of the project {other}. Choose other tickets")
            }
            Self::InvalidBody | Self::TeamKeyImmutable | Self::ConflictingChanges => {
                return self.to_string();
            }
        };
        match self {
            Self::CloudOnMachines(_) => rule,
            _ => format!("{} {rule}", label(self.field())),
        }
    }
}

/// Returns the label of a field in the panel.
fn label(field: &'static str) -> &'static str {
    match field {
        "teamKey" => "Team key",
        "owner" => "Owner",
        "repo" => "Repository",
        "defaultBranch" => "Default branch",
        "workflowFile" => "Workflow file",
        "ticketingProvider" => "Ticketing system",
        SOURCE_TEAM_KEY => "Linear team",
        "match" => "Tickets",
        "jql" => "Query",
        "repoFieldValue" => "Repository field value",
        "statusFieldOverride" => "Status field",
        "repoFieldOverride" => "Repository field",
        "provider" => "Model provider",
        "cloudRegion" => "Region",
        "executionMode" => "Runner",
        "machineCpus" => "CPUs",
        "machineMemoryMb" => "Memory",
        "sessionMode" => "Session mode",
        "branchPrefix" => "Branch prefix",
        "extraEnv" => "Environment variables",
        "maxInProgressAiIssues" => "Max parallel issues",
        "paused" => "Paused",
        "planningEnabled" => "Plan before implementing",
        "planningWorkflowFile" => "Planning workflow file",
        "maxTurns" => "Model turns",
        "maxIterations" => "Iterations",
        "maxJobMinutes" => "Job timeout",
        "budgetUsd" => "Monthly budget",
        "runsOn" => "Runner labels",
        "nodeSelector" => "Node labels",
        "agent" => "Agent",
        "model" => "Model",
        "fallbackAgents" => "Agents at a usage limit",
        "questions" => "Questions",
        "questionTimeoutHours" => "Time for an answer",
        "planApproval" => "Plan approval",
        "planAutoApprove" => "Plans without approval",
        "approvers" => "Approvers",
        "maxOpenPulls" => "Max open pull requests",
        "maxAwaitingReview" => "Max waiting for review",
        "dispatchWindow" => "Dispatch hours",
        "collisions" => "Same files side by side",
        "collisionIgnore" => "Files that never collide",
        "merge" => "Merging",
        "deleteBranch" => "Delete merged branches",
        "resumeAfterLimit" => "Resume after a usage limit",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::mapping::{MappingDraft, example_mapping};

    fn problems(body: Value) -> Vec<(&'static str, String)> {
        let existing = [example_mapping(&json!({"teamKey": "OPS"}))];
        let (_, problems) = MappingDraft::check(body, &existing).unwrap();
        let pairs = problems.into_iter();
        pairs.map(|one| (one.field, one.message)).collect()
    }

    #[test]
    fn names_every_problem_at_its_field_in_plain_words() {
        let body = json!({
            "teamKey": "OPS_WEB", "repo": "a/b", "ticketingConfig": {"kind": "B", "statusFieldOverride": 7},
            "provider": "cloud", "executionMode": "moon", "machineCpus": 0, "machineMemoryMb": 1,
            "sessionMode": "x", "branchPrefix": "a..b", "extraEnv": {"PATH": "x"},
            "maxInProgressAiIssues": 0, "paused": 1, "workflowFile": "x.sh", "planningEnabled": true,
            "maxTurns": -1, "maxIterations": 1.5, "maxJobMinutes": "soon", "budgetUsd": 0,
            "resumeAfterLimit": "yes", "runsOn": "ubuntu", "agent": "copilot", "model": "--x",
        });
        let expected = [
            ("owner", "Owner is required"),
            (
                "repo",
                "Repository must be the name of a repository: letters, digits, ., _ and -",
            ),
            ("defaultBranch", "Default branch is required"),
            ("cloudRegion", "Region is required for Amazon Bedrock"),
            (
                "executionMode",
                "Runner must be GitHub Actions, Fly Machines or Kubernetes",
            ),
            ("machineCpus", "CPUs must be at least 1"),
            ("machineMemoryMb", "Memory must be at least 256 MB"),
            (
                "sessionMode",
                "Session mode must be autonomous, interactive or hybrid",
            ),
            ("branchPrefix", "Branch prefix must not contain '..'"),
            (
                "extraEnv",
                "Environment variables must not set PATH: the service sets it in a run, or it changes how programs start",
            ),
            (
                "maxInProgressAiIssues",
                "Max parallel issues must be at least 1",
            ),
            ("paused", "Paused must be on or off"),
            (
                "workflowFile",
                "Workflow file must be the name of a .yml or .yaml file in .github/workflows",
            ),
            (
                "planningWorkflowFile",
                "Planning workflow file is required if runs are planned first",
            ),
            ("maxTurns", "Model turns must be at least 1"),
            ("maxIterations", "Iterations must be at least 1"),
            ("maxJobMinutes", "Job timeout must be at least 1"),
            ("budgetUsd", "Monthly budget must be more than 0"),
            (
                "resumeAfterLimit",
                "Resume after a usage limit must be on or off",
            ),
            (
                "runsOn",
                "Runner labels must be at most 10 labels of 1 to 100 printable characters, without expressions",
            ),
            ("agent", "Agent must be Claude Code, Codex or Gemini"),
            ("model", "Model must be the name of a model, such as opus"),
            ("jql", "Query is required"),
            ("repoFieldValue", "Repository field value is required"),
            (
                "statusFieldOverride",
                "Status field must be the name or ID of a field",
            ),
            (
                "teamKey",
                "Team key OPS_WEB overlaps with the project OPS: their secrets could have the same names. Choose another key",
            ),
        ];
        let expected = expected.map(|(field, message)| (field, message.to_owned()));
        assert_eq!(problems(body), expected);
    }

    #[test]
    fn a_body_that_would_be_saved_has_no_problem() {
        let valid =
            json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main"});
        assert_eq!(problems(valid), []);
        // The branch of the stored mapping is kept.
        let stored = json!({"teamKey": "OPS", "owner": "acme", "repo": "shop"});
        assert_eq!(problems(stored), []);
    }
}

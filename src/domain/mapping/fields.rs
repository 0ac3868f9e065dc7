//! Parsers of mapping fields.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{MappingError, MappingErrors, MappingResult};
use super::{ExecutionMode, Mapping, ModelProvider, SessionMode, TicketMatch, TicketingConfig};
use crate::agent::AgentName;
use crate::agent_choice::is_model_name;
use crate::ids::TeamKey;
use crate::issue::System;
use crate::reserved_variables::is_reserved;
use crate::usage::MicroUsd;
use crate::{branch, json_number, kubernetes_labels, runner_labels};

/// Maximum length of names. GitHub allows 39 characters for accounts and 100 for repositories.
const MAX_NAME: usize = 100;

/// Maximum length of a branch name.
const MAX_BRANCH: usize = 255;

/// Field of the tickets of a team that a mapping takes.
const MATCH: &str = "match";

/// Names of the fields of `ticketingConfig`.
pub fn ticketing_fields() -> [&'static str; 7] {
    [
        "kind",
        "teamKey",
        MATCH,
        "jql",
        "repoFieldValue",
        "statusFieldOverride",
        "repoFieldOverride",
    ]
}

/// Fields of a mapping body.
#[derive(Debug, Clone)]
pub(super) struct MappingFields(pub(super) Map<String, Value>);

impl MappingFields {
    /// Returns the value of a field. `null` counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// Returns a non-blank string, trimmed.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(non_blank)
    }

    /// Returns a non-blank string, trimmed. Fails if the value is not a string.
    fn optional_text(&self, name: &str, error: MappingError) -> MappingResult<Option<&str>> {
        match self.get(name) {
            None | Some(Value::String(_)) => Ok(self.text(name)),
            Some(_) => Err(error),
        }
    }

    /// Returns the region, from either name of the field.
    fn region(&self) -> MappingResult<Option<&str>> {
        let text = |name| self.optional_text(name, MappingError::InvalidRegion);
        let (cloud_region, aws_region) = (text("cloudRegion")?, text("awsRegion")?);
        Ok(cloud_region.or(aws_region))
    }

    /// Returns the default branch, from the body or the stored mapping.
    pub(super) fn default_branch(&self, stored: Option<&Mapping>) -> MappingResult<String> {
        let branch = self.optional_text("defaultBranch", MappingError::InvalidBranch)?;
        let branch = branch
            .map(str::to_owned)
            .or_else(|| stored.map(|stored| stored.default_branch.clone()))
            .ok_or(MappingError::MissingBranch)?;
        if is_branch_name(&branch) {
            Ok(branch)
        } else {
            Err(MappingError::InvalidBranch)
        }
    }

    /// Returns the model provider.
    pub(super) fn provider(&self) -> MappingResult<ModelProvider> {
        let region = self.region()?;
        match self.get("provider").map(Value::as_str) {
            None | Some(Some("direct" | "anthropic")) => Ok(ModelProvider::Direct),
            Some(Some("cloud" | "bedrock")) => {
                let region = region.ok_or(MappingError::MissingRegion)?;
                match self.execution_mode() {
                    Ok(ExecutionMode::VmMachines) => {
                        return Err(MappingError::CloudOnMachines("fly-machines"));
                    }
                    Ok(ExecutionMode::Kubernetes) => {
                        return Err(MappingError::CloudOnMachines("kubernetes"));
                    }
                    Ok(ExecutionMode::CiWorkflow) | Err(_) => {}
                }
                if !is_name(region, |c| c.is_ascii_alphanumeric() || c == '-') {
                    return Err(MappingError::InvalidRegion);
                }
                Ok(ModelProvider::Cloud {
                    region: region.to_owned(),
                })
            }
            Some(_) => Err(MappingError::Provider),
        }
    }

    /// Returns the execution mode.
    pub(super) fn execution_mode(&self) -> MappingResult<ExecutionMode> {
        match self.get("executionMode").map(Value::as_str) {
            None | Some(Some("ci-workflow" | "github-actions")) => Ok(ExecutionMode::CiWorkflow),
            Some(Some("vm-machines" | "fly-machines")) => Ok(ExecutionMode::VmMachines),
            Some(Some("kubernetes" | "k8s")) => Ok(ExecutionMode::Kubernetes),
            Some(_) => Err(MappingError::ExecutionMode),
        }
    }

    /// Returns the session mode.
    pub(super) fn session_mode(&self) -> MappingResult<SessionMode> {
        match self.get("sessionMode").map(Value::as_str) {
            None => Ok(SessionMode::Autonomous),
            Some(text) => text
                .and_then(SessionMode::parse)
                .ok_or(MappingError::SessionMode),
        }
    }

    /// Returns the branch prefix.
    pub(super) fn branch_prefix(&self) -> MappingResult<Option<String>> {
        match self.get("branchPrefix") {
            None => Ok(None),
            Some(Value::String(text)) => {
                branch::parse_prefix(text.trim()).map_err(MappingError::BranchPrefix)
            }
            Some(_) => Err(MappingError::BranchPrefix("must be a string")),
        }
    }

    /// Returns the additional environment variables.
    pub(super) fn extra_env(&self) -> MappingResult<BTreeMap<String, String>> {
        let Some(value) = self.get("extraEnv") else {
            return Ok(BTreeMap::new());
        };
        let variables = value.as_object().ok_or(MappingError::Env)?;
        let env: BTreeMap<String, String> = variables
            .iter()
            .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect::<Option<_>>()
            .ok_or(MappingError::EnvValues)?;
        let is_valid = |(name, value): (&String, &String)| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !value.contains('\0')
        };
        if !env.iter().all(is_valid) {
            return Err(MappingError::EnvNames);
        }
        match env.keys().find(|name| is_reserved(name)) {
            Some(name) => Err(MappingError::ReservedEnv(name.clone())),
            None => Ok(env),
        }
    }

    /// Returns whether planning is enabled, and its workflow file.
    pub(super) fn planning(
        &self,
        stored: Option<&Mapping>,
    ) -> MappingResult<(bool, Option<String>)> {
        let is_enabled = self.flag("planningEnabled")?.unwrap_or(false);
        let file = self.workflow_file("planningWorkflowFile")?;
        let file = file.or_else(|| stored.and_then(|stored| stored.planning_workflow_file.clone()));
        if is_enabled && file.is_none() {
            return Err(MappingError::MissingPlanningFile);
        }
        Ok((is_enabled, file))
    }

    /// Returns the name of a workflow file.
    pub(super) fn workflow_file(&self, name: &'static str) -> MappingResult<Option<String>> {
        let Some(file) = self.text(name) else {
            return match self.get(name) {
                None | Some(Value::String(_)) => Ok(None),
                Some(_) => Err(MappingError::WorkflowFile(name)),
            };
        };
        let is_plain = is_name(file, |c| {
            c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
        });
        if is_plain && (file.ends_with(".yml") || file.ends_with(".yaml")) {
            Ok(Some(file.to_owned()))
        } else {
            Err(MappingError::WorkflowFile(name))
        }
    }

    /// Returns the concurrency cap.
    pub(super) fn max_in_progress(&self) -> MappingResult<Option<u32>> {
        self.count("maxInProgressAiIssues", 1, MappingError::MaxInProgress)
    }

    /// Returns a boolean.
    pub(super) fn flag(&self, name: &'static str) -> MappingResult<Option<bool>> {
        let read = |value: &Value| value.as_bool().ok_or(MappingError::NotBoolean(name));
        self.get(name).map(read).transpose()
    }

    /// Returns an integer that is at least `least`.
    pub(super) fn count(
        &self,
        name: &str,
        least: u32,
        error: MappingError,
    ) -> MappingResult<Option<u32>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let count =
            json_number::non_negative_integer(value).and_then(|count| u32::try_from(count).ok());
        match count.filter(|count| *count >= least) {
            Some(count) => Ok(Some(count)),
            None => Err(error),
        }
    }

    /// Returns a cap of runs. Forms send an empty string for a blank field.
    pub(super) fn run_cap(&self, name: &'static str) -> MappingResult<Option<u32>> {
        let is_blank = self.get(name).is_some_and(|value| *value == "");
        if is_blank {
            return Ok(None);
        }
        self.count(name, 1, MappingError::RunCap(name))
    }

    /// Returns the budget, which must be positive. Rounded to micro-dollars.
    pub(super) fn budget(&self) -> MappingResult<Option<MicroUsd>> {
        let Some(value) = self.get("budgetUsd") else {
            return Ok(None);
        };
        let amount = value.as_f64().and_then(MicroUsd::from_usd);
        let positive = amount.filter(|amount| *amount > MicroUsd::default());
        positive.map(Some).ok_or(MappingError::Budget)
    }

    /// Returns the labels of the runner.
    pub(super) fn runs_on(&self) -> MappingResult<Vec<String>> {
        let Some(value) = self.get("runsOn") else {
            return Ok(Vec::new());
        };
        let labels = value.as_array().ok_or(MappingError::RunsOn)?;
        let labels: Vec<String> = labels
            .iter()
            .map(|label| label.as_str().map(|label| label.trim().to_owned()))
            .collect::<Option<_>>()
            .ok_or(MappingError::RunsOn)?;
        match runner_labels::are_valid(&labels) {
            true => Ok(labels),
            false => Err(MappingError::RunsOn),
        }
    }

    /// Returns the labels of the Kubernetes nodes.
    pub(super) fn node_selector(&self) -> MappingResult<BTreeMap<String, String>> {
        let Some(value) = self.get("nodeSelector") else {
            return Ok(BTreeMap::new());
        };
        let labels = BTreeMap::deserialize(value).ok();
        let labels = labels.filter(kubernetes_labels::is_node_selector);
        labels.ok_or(MappingError::NodeSelector)
    }

    /// Returns the agent.
    pub(super) fn agent(&self) -> MappingResult<Option<AgentName>> {
        let agent = match self.optional_text("agent", MappingError::Agent)? {
            None => return Ok(None),
            Some(text) => AgentName::parse(text).ok_or(MappingError::Agent)?,
        };
        match self.uses_cloud() && !agent.supports_cloud_provider() {
            true => Err(MappingError::CloudAgent),
            false => Ok(Some(agent)),
        }
    }

    /// Returns the agents for the time of a usage limit.
    pub(super) fn fallback_agents(&self) -> MappingResult<Vec<AgentName>> {
        let Some(value) = self.get("fallbackAgents") else {
            return Ok(Vec::new());
        };
        let agents: Vec<AgentName> =
            Vec::deserialize(value).map_err(|_| MappingError::FallbackAgents)?;
        let is_repeated = |at: usize| agents[..at].contains(&agents[at]);
        if (0..agents.len()).any(is_repeated) {
            return Err(MappingError::FallbackAgents);
        }
        match self.uses_cloud() && !agents.is_empty() {
            true => Err(MappingError::CloudFallback),
            false => Ok(agents),
        }
    }

    fn uses_cloud(&self) -> bool {
        matches!(self.provider(), Ok(ModelProvider::Cloud { .. }))
    }

    /// Returns the model.
    pub(super) fn model(&self) -> MappingResult<Option<String>> {
        match self.optional_text("model", MappingError::Model)? {
            Some(text) if !is_model_name(text) => Err(MappingError::Model),
            text => Ok(text.map(str::to_owned)),
        }
    }

    /// Returns the ticketing configuration; `None` if it has errors.
    pub(super) fn ticketing(&self, errors: &mut MappingErrors) -> Option<TicketingConfig> {
        let config = match self.get("ticketingConfig") {
            None => Ok(MappingFields(Map::new())),
            Some(Value::Object(config)) => Ok(MappingFields(config.clone())),
            Some(_) => Err(MappingError::Ticketing),
        };
        let config = errors.keep(config)?;
        let system = |value: Option<&Value>| value.map(parse_system).transpose();
        let provider = errors.keep(system(self.get("ticketingProvider")))?;
        let kind = errors.keep(system(config.get("kind")))?;
        let mismatch = || Err(MappingError::Ticketing);
        match (provider, kind) {
            (Some(provider), Some(kind)) if provider != kind => errors.keep(mismatch()),
            (Some(System::Jira), _) | (None, Some(System::Jira)) => config.jira(errors),
            (Some(System::GitHub), _) | (None, Some(System::GitHub)) => config.github(errors),
            // Without a system, the query would be dropped.
            (None, None) if config.get("jql").is_some() => errors.keep(mismatch()),
            _ => config.linear(errors),
        }
    }

    fn linear(&self, errors: &mut MappingErrors) -> Option<TicketingConfig> {
        let team_key = errors.keep(self.source_team_key());
        let matching = errors.keep(self.ticket_match());
        Some(TicketingConfig::Linear {
            team_key: team_key?,
            matching: matching?,
        })
    }

    fn source_team_key(&self) -> MappingResult<Option<TeamKey>> {
        let text = self.optional_text("teamKey", MappingError::SourceTeamKey)?;
        match text {
            Some(text) if !is_plain(text) => Err(MappingError::SourceTeamKey),
            text => Ok(text.map(TeamKey::new)),
        }
    }

    /// Returns the match, with its name as given.
    fn ticket_match(&self) -> MappingResult<Option<TicketMatch>> {
        let Some(value) = self.get(MATCH) else {
            return Ok(None);
        };
        let matching = serde_json::from_value(value.clone()).map_err(|_| MappingError::Match)?;
        match &matching {
            TicketMatch::Label(name) | TicketMatch::Project(name)
                if !TicketMatch::is_valid_name(name) =>
            {
                Err(MappingError::MatchName)
            }
            _ => Ok(Some(matching)),
        }
    }

    fn github(&self, errors: &mut MappingErrors) -> Option<TicketingConfig> {
        let matching = match errors.keep(self.ticket_match())? {
            Some(TicketMatch::Project(_)) => errors.keep(Err(MappingError::MatchOfProject))?,
            matching => matching,
        };
        Some(TicketingConfig::GitHub { matching })
    }

    fn jira(&self, errors: &mut MappingErrors) -> Option<TicketingConfig> {
        if self.get(MATCH).is_some() {
            return errors.keep(Err(MappingError::MatchOfQuery));
        }
        let required = |name| {
            let text = self.text(name).map(str::to_owned);
            text.ok_or(MappingError::MissingJiraQuery(name))
        };
        let (jql, repo_field_value) = (
            errors.keep(required("jql")),
            errors.keep(required("repoFieldValue")),
        );
        let (status_field_override, repo_field_override) = (
            errors.keep(self.optional_override("statusFieldOverride")),
            errors.keep(self.optional_override("repoFieldOverride")),
        );
        Some(TicketingConfig::Jira {
            jql: jql?,
            repo_field_value: repo_field_value?,
            status_field_override: status_field_override?,
            repo_field_override: repo_field_override?,
        })
    }

    fn optional_override(&self, name: &'static str) -> MappingResult<Option<String>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(_)) => Ok(self.text(name).map(str::to_owned)),
            Some(_) => Err(MappingError::Override(name)),
        }
    }
}

fn parse_system(value: &Value) -> MappingResult<System> {
    match value.as_str() {
        Some("A" | "linear") => Ok(System::Linear),
        Some("B" | "jira") => Ok(System::Jira),
        Some("C" | "github") => Ok(System::GitHub),
        _ => Err(MappingError::System),
    }
}

fn non_blank(value: &Value) -> Option<&str> {
    value
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}

/// Returns whether text is a short name that begins with a letter or digit and only contains
/// allowed characters.
pub fn is_name(text: &str, allowed: impl Fn(char) -> bool) -> bool {
    text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(allowed)
}

/// Returns whether text is the name of an account, or the key of a team.
pub fn is_plain(text: &str) -> bool {
    is_name(text, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Returns whether text is a valid repository name.
pub(super) fn is_repo_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_dots = text.chars().all(|c| c == '.');
    text.len() <= MAX_NAME && text.chars().all(allowed) && !is_dots && !text.ends_with(".git")
}

/// Returns whether text is a valid branch name (`git check-ref-format`).
pub(super) fn is_branch_name(text: &str) -> bool {
    let is_forbidden = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.ends_with(".lock")
    };
    text.len() <= MAX_BRANCH
        && !text.starts_with('-')
        && text != "@"
        && !text.contains("..")
        && !text.contains("@{")
        && !text.contains(is_forbidden)
        && text.split('/').all(is_part)
}

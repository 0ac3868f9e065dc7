//! Agent and model of a run, as a mapping or labels of its ticket name them.
//!
//! A label `agent:codex` or `model:NAME` has precedence over the mapping, and the mapping over the configuration of
//! the repository. Labels are untrusted: unknown agents and invalid models are ignored.

use serde::{Deserialize, Serialize};

use super::agent::AgentName;
use super::mapping::{Mapping, ModelProvider};
use super::run_options::RunOptions;

/// Prefixes of labels that choose an agent or a model.
pub const LABEL_PREFIXES: [&str; 2] = ["agent:", "model:"];

/// Maximum length of the name of a model, in bytes.
const MAX_MODEL: usize = 100;

/// Agent and model. An absent one is left to the configuration of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentChoice {
    /// Agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Model of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl AgentChoice {
    /// Returns the choice of the labels of a ticket. Labels that contradict each other choose nothing.
    pub fn from_labels<'l>(labels: impl Iterator<Item = &'l str>) -> Self {
        let (mut agents, mut models) = (Vec::new(), Vec::new());
        let [agent_prefix, model_prefix] = LABEL_PREFIXES;
        for label in labels {
            if let Some(name) = label.strip_prefix(agent_prefix) {
                agents.extend(AgentName::parse(name.trim()));
            } else if let Some(name) = label.strip_prefix(model_prefix) {
                models.extend(Some(name.trim()).filter(|name| is_model_name(name)));
            }
        }
        Self {
            agent: only(&agents),
            model: only(&models).map(str::to_owned),
        }
    }

    /// Returns the agent and model of a run of this mapping, where this is the choice of the ticket's labels. A model
    /// of the mapping belongs to the agent of the mapping.
    pub fn for_mapping(&self, mapping: &Mapping) -> Self {
        let is_supported = |agent: &AgentName| {
            mapping.provider == ModelProvider::Direct || agent.supports_cloud_provider()
        };
        let agent = self.agent.filter(is_supported).or(mapping.agent);
        let own_model = mapping.model.clone().filter(|_| agent == mapping.agent);
        Self {
            agent,
            model: self.model.clone().or(own_model),
        }
    }

    /// Returns the options of a run with this choice.
    pub fn to_options(&self) -> RunOptions {
        RunOptions {
            agent: self.agent.map(|agent| agent.as_str().to_owned()),
            model: self.model.clone(),
            ..RunOptions::default()
        }
    }
}

/// Agents of a job: the chosen one, and those that may continue its work at a usage limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobAgents {
    /// Agent and model that the dispatch named.
    pub choice: AgentChoice,
    /// Agents for which the run had credentials, as it reported them when it reached a usage limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with_credentials: Vec<AgentName>,
    /// Agent that continues its work, because the usage limit of its own is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<AgentName>,
}

impl JobAgents {
    /// Returns the agents of a new job.
    pub fn of_choice(choice: &AgentChoice) -> Self {
        Self {
            choice: choice.clone(),
            ..Self::default()
        }
    }

    /// Returns whether no agent is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the value of a list whose values are all equal.
fn only<T: Copy + PartialEq>(values: &[T]) -> Option<T> {
    let first = values.first()?;
    values.iter().all(|value| value == first).then_some(*first)
}

/// Returns whether text can be the name of a model. It becomes an argument of the agent program, so it must not begin
/// as a flag does.
pub fn is_model_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._:/@+-[]".contains(c);
    text.len() <= MAX_MODEL
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mapping::example_mapping;

    fn choice(labels: &[&str]) -> (Option<AgentName>, Option<String>) {
        let choice = AgentChoice::from_labels(labels.iter().copied());
        (choice.agent, choice.model)
    }

    #[test]
    fn labels_choose_known_agents_and_valid_models() {
        let long = format!("model:{}", "m".repeat(101));
        let model = |name: &str| Some(name.to_owned());
        for (labels, expected) in [
            (&["bug", "agent:codex"][..], (Some(AgentName::Codex), None)),
            (
                &["agent: gemini ", "agent:gemini"],
                (Some(AgentName::Gemini), None),
            ),
            (&["agent:codex", "agent:claude"], (None, None)),
            (
                &["agent:copilot", "agent:", "Agent:codex", "agent:codex;id"],
                (None, None),
            ),
            (
                &["model:us.anthropic.claude-v1:0"],
                (None, model("us.anthropic.claude-v1:0")),
            ),
            (&["model:sonnet[1m]"], (None, model("sonnet[1m]"))),
            (&["model:a", "model:b"], (None, None)),
            (
                &[
                    "model:--dangerously",
                    "model:a b",
                    "model:$(id)",
                    "model:",
                    "model:é",
                ],
                (None, None),
            ),
            (&[long.as_str()], (None, None)),
        ] {
            assert_eq!(choice(labels), expected, "{labels:?}");
        }
    }

    #[test]
    fn labels_precede_the_mapping() {
        let mapping = example_mapping(&json!({"agent": "claude", "model": "opus"}));
        let chosen = |mapping: &Mapping, labels: &[&str]| {
            let options = AgentChoice::from_labels(labels.iter().copied()).for_mapping(mapping);
            let options = options.to_options();
            (
                options.agent.unwrap_or_default(),
                options.model.unwrap_or_default(),
            )
        };
        let pair = |agent: &str, model: &str| (agent.to_owned(), model.to_owned());
        assert_eq!(chosen(&mapping, &[]), pair("claude", "opus"));
        assert_eq!(
            chosen(&mapping, &["model:sonnet"]),
            pair("claude", "sonnet")
        );
        // The model of the mapping is one of another agent.
        assert_eq!(chosen(&mapping, &["agent:codex"]), pair("codex", ""));
        assert_eq!(
            chosen(&mapping, &["agent:codex", "model:gpt"]),
            pair("codex", "gpt")
        );
        let cloud = json!({"provider": "cloud", "cloudRegion": "eu-central-1", "model": "m"});
        let cloud = example_mapping(&cloud);
        assert_eq!(chosen(&cloud, &["agent:codex"]), pair("", "m"));
        assert_eq!(chosen(&cloud, &["agent:claude"]), pair("claude", ""));
    }
}

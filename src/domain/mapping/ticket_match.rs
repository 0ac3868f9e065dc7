//! Matches of mappings that share the tickets of one team or repository, and the choice between these mappings.
//!
//! Names are compared exactly, as the filters of Linear compare them: `Web` and `web` are different labels. GitHub
//! ignores case; its client returns the names of labels as the mappings spell them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::Mapping;
use crate::decision::WaitReason;

/// Maximum length of the name of a label or project, in bytes.
const MAX_NAME: usize = 255;

/// Beginning of the message about a ticket that matches no mapping of its team.
pub(crate) const NO_MATCH: &str = "No project takes this issue.";

/// Maximum number of mappings that a sentence names.
const MAX_NAMED: usize = 10;

/// Which tickets of a team or repository a mapping takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "MatchFields", into = "MatchFields")]
pub enum TicketMatch {
    /// Tickets with the label of this name.
    Label(String),
    /// Tickets of the project of this name at the ticketing system.
    Project(String),
    /// Tickets that match no other mapping of the team or repository.
    Default,
}

/// Fields of a match. Exactly one is set.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MatchFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<bool>,
}

impl TryFrom<MatchFields> for TicketMatch {
    type Error = &'static str;

    fn try_from(fields: MatchFields) -> Result<Self, Self::Error> {
        match (fields.label, fields.project, fields.default) {
            (Some(name), None, None) => Ok(Self::Label(name)),
            (None, Some(name), None) => Ok(Self::Project(name)),
            (None, None, Some(true)) => Ok(Self::Default),
            _ => Err("a match has exactly one of label, project and default"),
        }
    }
}

impl From<TicketMatch> for MatchFields {
    fn from(matching: TicketMatch) -> Self {
        let mut fields = Self::default();
        match matching {
            TicketMatch::Label(name) => fields.label = Some(name),
            TicketMatch::Project(name) => fields.project = Some(name),
            TicketMatch::Default => fields.default = Some(true),
        }
        fields
    }
}

impl JsonSchema for TicketMatch {
    fn schema_name() -> Cow<'static, str> {
        "TicketMatch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let name = json_schema!({"type": "string", "minLength": 1, "maxLength": MAX_NAME});
        let of = |field: &str, value: &Schema| {
            json_schema!({
                "type": "object", "properties": {field: value}, "required": [field],
                "additionalProperties": false,
            })
        };
        let is_true = json_schema!({"type": "boolean", "const": true});
        json_schema!({
            "description": "Which tickets of the team or repository the mapping takes: those with a label, those of \
                a project (Linear), or those that match no other mapping.",
            "oneOf": [of("label", &name), of("project", &name), of("default", &is_true)],
        })
    }
}

impl TicketMatch {
    /// Returns whether text can be the name of a label or project.
    pub(super) fn is_valid_name(text: &str) -> bool {
        !text.trim().is_empty() && text.len() <= MAX_NAME && !text.contains(char::is_control)
    }

    /// Returns whether both select the same issues of a repository of GitHub, which ignores the case of labels.
    pub(super) fn is_same_on_github(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Label(one), Self::Label(other)) => one.to_lowercase() == other.to_lowercase(),
            _ => self == other,
        }
    }

    /// Returns the match in words, such as `label repo:web`.
    fn words(&self) -> String {
        match self {
            Self::Label(name) => format!("label {name}"),
            Self::Project(name) => format!("project {name}"),
            Self::Default => "all other tickets".to_owned(),
        }
    }
}

/// Properties of a ticket that matches are compared with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TicketFacts {
    /// Names of its labels that mappings may match.
    pub labels: Vec<String>,
    /// Name of its project at the ticketing system.
    pub project: Option<String>,
}

impl TicketFacts {
    fn satisfy(&self, matching: &TicketMatch) -> bool {
        match matching {
            TicketMatch::Label(name) => self.labels.contains(name),
            TicketMatch::Project(name) => self.project.as_ref() == Some(name),
            TicketMatch::Default => false,
        }
    }
}

/// Reason why no mapping takes a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    /// `no-mapping` or `ambiguous`.
    pub reason: WaitReason,
    /// Sentence for operators. It names what decides.
    pub message: String,
}

/// Chooses the mapping that takes a ticket among the mappings of its team or repository. Labels and projects have precedence over
/// the mapping for all other tickets. A mapping without a match takes all other tickets.
///
/// # Errors
/// No mapping takes the ticket, or several do. `None` if there is no mapping at all.
pub fn choose_mapping<'m>(
    candidates: impl Iterator<Item = &'m Mapping> + Clone,
    facts: &TicketFacts,
) -> Result<&'m Mapping, Option<Unmatched>> {
    let is_specific = |mapping: &&Mapping| {
        let matching = mapping.ticket_match();
        matching.is_some_and(|matching| facts.satisfy(matching))
    };
    let is_default =
        |mapping: &&Mapping| matches!(mapping.ticket_match(), None | Some(TicketMatch::Default));
    let specific: Vec<&Mapping> = candidates.clone().filter(is_specific).collect();
    let chosen = match specific.is_empty() {
        true => candidates.clone().filter(is_default).collect(),
        false => specific,
    };
    match chosen[..] {
        [mapping] => Ok(mapping),
        [] => Err(no_match(candidates)),
        _ => Err(Some(Unmatched {
            reason: WaitReason::Ambiguous,
            message: ambiguous_message(&chosen),
        })),
    }
}

/// Returns why none of several mappings takes a ticket; `None` if there are no mappings.
fn no_match<'m>(candidates: impl Iterator<Item = &'m Mapping>) -> Option<Unmatched> {
    let (mut labels, mut projects) = (Vec::new(), Vec::new());
    for matching in candidates.filter_map(Mapping::ticket_match) {
        match matching {
            TicketMatch::Label(name) => labels.push(name.as_str()),
            TicketMatch::Project(name) => projects.push(name.as_str()),
            TicketMatch::Default => {}
        }
    }
    let step = |names: &[&str], one: &str, many: &str| match names {
        [] => None,
        [name] => Some(format!("{one} {name}")),
        _ => Some(format!("{many} {}", list(names))),
    };
    let steps: Vec<String> = [
        step(&labels, "set the label", "set one of the labels"),
        step(
            &projects,
            "move it to the project",
            "move it to one of the projects",
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    let sentence = steps.join(", or ");
    let mut letters = sentence.chars();
    let first = letters.next()?.to_ascii_uppercase();
    Some(Unmatched {
        reason: WaitReason::NoMapping,
        message: format!("{NO_MATCH} {first}{}.", letters.as_str()),
    })
}

fn list(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_NAMED).copied();
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn ambiguous_message(chosen: &[&Mapping]) -> String {
    let named = chosen.iter().take(MAX_NAMED).map(|mapping| {
        let words = mapping.ticket_match().map(TicketMatch::words);
        let words = words.unwrap_or_else(|| TicketMatch::Default.words());
        format!("{} ({words})", mapping.team_key)
    });
    let mut named: Vec<String> = named.collect();
    if chosen.len() > named.len() {
        named.push(format!("{} more", chosen.len() - named.len()));
    }
    let last = named.pop().unwrap_or_default();
    let count = match chosen.len() {
        2 => "Two".to_owned(),
        count => count.to_string(),
    };
    let is = |wanted: fn(&TicketMatch) -> bool| {
        chosen
            .iter()
            .filter(move |mapping| mapping.ticket_match().is_some_and(wanted))
            .count()
    };
    let labels = is(|matching| matches!(matching, TicketMatch::Label(_)));
    let projects = is(|matching| matches!(matching, TicketMatch::Project(_)));
    let step = match (labels, projects) {
        (2, 0) => "Remove one label.",
        (1, 1) => "Remove the label, or move the issue to another project.",
        (_, 0) if labels == chosen.len() => "Remove all but one label.",
        (_, 1) => "Remove the labels, or move the issue to another project.",
        _ => "Change the match of one project.",
    };
    format!(
        "{count} projects match: {} and {last}. {step}",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mapping::example_mapping;

    /// Mappings of one team with these keys and matches.
    fn mappings(rows: &[(&str, Value)]) -> Vec<Mapping> {
        let mapping = |(key, matching): &(&str, Value)| {
            let config = json!({"kind": "A", "teamKey": "ENG", "match": matching});
            example_mapping(&json!({"teamKey": key, "ticketingConfig": config}))
        };
        rows.iter().map(mapping).collect()
    }

    fn facts(labels: &[&str], project: Option<&str>) -> TicketFacts {
        TicketFacts {
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            project: project.map(str::to_owned),
        }
    }

    fn chosen(mappings: &[Mapping], labels: &[&str], project: Option<&str>) -> String {
        match choose_mapping(mappings.iter(), &facts(labels, project)) {
            Ok(mapping) => mapping.team_key.to_string(),
            Err(Some(unmatched)) => format!("{}: {}", unmatched.reason.as_str(), unmatched.message),
            Err(None) => "none".to_owned(),
        }
    }

    #[test]
    fn labels_and_projects_precede_the_default() {
        let all = mappings(&[
            ("web", json!({"label": "repo:web"})),
            ("api", json!({"label": "repo:api"})),
            ("docs", json!({"project": "Handbook"})),
            ("rest", json!({"default": true})),
        ]);
        for (labels, project, expected) in [
            (&["repo:web"][..], None, "web"),
            (&["repo:api"], Some("Other"), "api"),
            (&[], Some("Handbook"), "docs"),
            (&[], None, "rest"),
            (&["Repo:Web", "repo:web2", ""], Some("handbook"), "rest"),
            (
                &["repo:api", "repo:web"],
                None,
                "ambiguous: Two projects match: web (label repo:web) and api (label repo:api). Remove one label.",
            ),
            (
                &["repo:web"],
                Some("Handbook"),
                "ambiguous: Two projects match: web (label repo:web) and docs (project Handbook). Remove the label, \
                 or move the issue to another project.",
            ),
        ] {
            assert_eq!(chosen(&all, labels, project), expected);
        }
    }

    #[test]
    fn github_ignores_the_case_of_labels() {
        let of = |text: &str| serde_json::from_str::<TicketMatch>(text).unwrap();
        let web = of(r#"{"label":"repo:web"}"#);
        for (other, is_same) in [
            (r#"{"label":"Repo:WEB"}"#, true),
            (r#"{"label":"repo:web "}"#, false),
            (r#"{"default":true}"#, false),
        ] {
            assert_eq!(web.is_same_on_github(&of(other)), is_same, "{other}");
        }
        assert!(TicketMatch::Default.is_same_on_github(&of(r#"{"default":true}"#)));
    }

    #[test]
    fn a_mapping_without_a_match_takes_all_other_tickets() {
        let all = mappings(&[("web", json!({"label": "repo:web"})), ("ENG", Value::Null)]);
        assert_eq!(chosen(&all, &["repo:web"], None), "web");
        assert_eq!(chosen(&all, &[], None), "ENG");
    }

    #[test]
    fn names_what_decides_if_nothing_matches() {
        let label = |number: usize| json!({"label": format!("repo:{number}")});
        let one = [("web", json!({"label": "repo:web"}))];
        let keys: Vec<String> = (0..12).map(|number| format!("m{number}")).collect();
        let many: Vec<(&str, Value)> = keys
            .iter()
            .enumerate()
            .map(|(at, key)| (key.as_str(), label(at)))
            .collect();
        let mixed = [one[0].clone(), ("docs", json!({"project": "Handbook"}))];
        for (rows, expected) in [
            (&one[..], "Set the label repo:web."),
            (
                &mixed,
                "Set the label repo:web, or move it to the project Handbook.",
            ),
            (
                &many,
                "Set one of the labels repo:0, repo:1, repo:2, repo:3, repo:4, repo:5, repo:6, repo:7, repo:8, \
                 repo:9 and 2 more.",
            ),
        ] {
            let expected = format!("no-mapping: No project takes this issue. {expected}");
            assert_eq!(chosen(&mappings(rows), &[], None), expected);
        }
        assert_eq!(chosen(&[], &[], None), "none");
    }

    #[test]
    fn stored_matches_are_those_of_the_api() {
        for text in [
            r#"{"label":"a b"}"#,
            r#"{"project":"P"}"#,
            r#"{"default":true}"#,
        ] {
            let matching: TicketMatch = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&matching).unwrap(), text);
        }
        for bad in [
            "{}",
            r#"{"default":false}"#,
            r#"{"label":"a","project":"b"}"#,
            r#"{"x":1}"#,
        ] {
            assert!(serde_json::from_str::<TicketMatch>(bad).is_err(), "{bad}");
        }
    }
}

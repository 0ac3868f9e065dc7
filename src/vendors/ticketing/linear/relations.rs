//! Parent and relations of an issue.

use serde::Deserialize;

use super::snapshot::{Connection, State};
use crate::ticketing::sanitized_title;
use domain::ids::IssueKey;
use domain::issue::{OpenBlocker, RelatedIssues};

/// Parent and relations of an issue.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IssueRelations {
    parent: Option<RelatedIssue>,
    relations: Connection<Relation>,
    pub(super) inverse_relations: Connection<InverseRelation>,
}

/// Parent, sibling or related issue.
#[derive(Deserialize)]
pub(super) struct RelatedIssue {
    identifier: String,
    #[serde(deserialize_with = "sanitized_title")]
    title: String,
    state: State,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Relation {
    #[serde(rename = "type")]
    kind: String,
    related_issue: RelatedIssue,
}

#[derive(Deserialize)]
pub(super) struct InverseRelation {
    #[serde(rename = "type")]
    kind: String,
    issue: RelatedIssue,
}

/// Further page of the relations of an issue.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct Relations {
    pub(super) inverse_relations: Connection<InverseRelation>,
}

impl RelatedIssue {
    pub(super) fn summary_line(&self) -> String {
        format!("{}: {} ({})", self.identifier, self.title, self.state.name)
    }
}

impl IssueRelations {
    pub(super) fn open_blockers(&self) -> Vec<OpenBlocker> {
        let blockers = self.inverse_relations.nodes.iter();
        blockers
            .filter(|relation| relation.kind == "blocks" && relation.issue.state.is_open())
            .map(|relation| OpenBlocker {
                key: IssueKey::new(&relation.issue.identifier),
                title: relation.issue.title.clone(),
            })
            .collect()
    }

    pub(super) fn related(&self) -> RelatedIssues {
        let from_others = self.inverse_relations.nodes.iter().map(|relation| {
            let relation_name = match relation.kind.as_str() {
                "blocks" => "blocked by",
                "duplicate" => "duplicated by",
                _ => "related to",
            };
            format!("{relation_name} {}", relation.issue.summary_line())
        });
        let to_others = self.relations.nodes.iter().map(|relation| {
            let relation_name = match relation.kind.as_str() {
                "blocks" => "blocks",
                "duplicate" => "duplicate of",
                _ => "related to",
            };
            format!("{relation_name} {}", relation.related_issue.summary_line())
        });
        RelatedIssues {
            parent: self.parent.as_ref().map(RelatedIssue::summary_line),
            siblings: Vec::new(),
            dependencies: from_others.chain(to_others).collect(),
        }
    }
}

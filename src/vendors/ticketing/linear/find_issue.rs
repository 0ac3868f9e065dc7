//! Lookup of an issue by its key.

use serde::Deserialize;
use serde_json::json;

use crate::http::VendorError;
use domain::ids::{IssueId, IssueKey, TeamKey};
use domain::issue::{IssueLookup, IssueRef, System};
use domain::mapping::Mapping;

use super::Linear;
use super::relations::IssueRelations;
use super::snapshot::{Connection, Label, Team};
use crate::ticketing::sanitized_title;

const QUERY: &str = "\
query($key: String!) {
  issue(id: $key) {
    id identifier title url description
    team { key }
    labels(first: 25) { nodes { name } }
    parent { identifier title state { name } }
    relations(first: 20) { nodes { type relatedIssue { identifier title state { name } } } }
    inverseRelations(first: 20) { nodes { type issue { identifier title state { name } } } }
  }
}";

impl Linear {
    /// Finds an issue by its key. Returns one entry for each mapping of its team, whatever the mappings match: the
    /// labels of the issue may have changed since its runs.
    ///
    /// # Errors
    /// Fails if the issue cannot be read.
    pub async fn find_issue(
        &self,
        mappings: &[&Mapping],
        key: &IssueKey,
    ) -> Result<Vec<IssueLookup>, VendorError> {
        let request = self.query("reading the issue", QUERY, json!({ "key": key }));
        let found: IssueData = match self.execute(request).await {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            found => found?,
        };
        // The team decides, not the requested key: a moved issue is found by its old and its new key.
        let team = TeamKey::new(&found.issue.team.key);
        let of_team = mappings
            .iter()
            .filter(|mapping| *mapping.source_team() == team);
        let lookup = found.issue.into_lookup(team.clone());
        Ok(of_team
            .map(|mapping| IssueLookup {
                team: mapping.team_key.clone(),
                ..lookup.clone()
            })
            .collect())
    }
}

#[derive(Deserialize)]
struct IssueData {
    issue: Issue,
}

#[derive(Deserialize)]
struct Issue {
    id: String,
    identifier: String,
    #[serde(deserialize_with = "sanitized_title")]
    title: String,
    url: String,
    description: Option<String>,
    team: Team,
    labels: Connection<Label>,
    #[serde(flatten)]
    relations: IssueRelations,
}

impl Issue {
    fn into_lookup(self, team: TeamKey) -> IssueLookup {
        IssueLookup {
            related: self.relations.related(),
            labels: self
                .labels
                .nodes
                .into_iter()
                .map(|label| label.name)
                .collect(),
            issue: IssueRef {
                system: System::Linear,
                id: IssueId::new(self.id),
                key: IssueKey::new(self.identifier),
                title: self.title,
                url: self.url,
                marker_field: None,
            },
            team,
            description: self.description.unwrap_or_default(),
        }
    }
}

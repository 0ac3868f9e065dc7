//! Finding an issue that somebody named.

use serde::Deserialize;
use serde_json::json;

use crate::http::VendorError;
use domain::ids::{IssueId, IssueKey, TeamKey};
use domain::issue::{IssueLookup, IssueRef, System};
use domain::mapping::Mapping;

use super::Linear;
use super::snapshot::{IssueRelations, Team};
use crate::ticketing::without_secrets;

const ISSUE: &str = "\
query($key: String!) {
  issue(id: $key) {
    id identifier title url description
    team { key }
    parent { identifier title state { name } }
    relations(first: 20) { nodes { type relatedIssue { identifier title state { name } } } }
    inverseRelations(first: 20) { nodes { type issue { identifier title state { name } } } }
  }
}";

pub(super) async fn read(
    linear: &Linear,
    mappings: &[&Mapping],
    key: &IssueKey,
) -> Result<Vec<IssueLookup>, VendorError> {
    let request = linear.query("reading the issue", ISSUE, json!({ "key": key }));
    let found: Found = match linear.execute(request).await {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        found => found?,
    };
    // The team counts, not the key that was asked for: an issue that has moved answers to both.
    let team = TeamKey::new(&found.issue.team.key);
    let is_mapped = mappings.iter().any(|mapping| mapping.team_key == team);
    Ok(is_mapped
        .then(|| found.issue.named(team))
        .into_iter()
        .collect())
}

#[derive(Deserialize)]
struct Found {
    issue: Issue,
}

#[derive(Deserialize)]
struct Issue {
    id: String,
    identifier: String,
    #[serde(deserialize_with = "without_secrets")]
    title: String,
    url: String,
    description: Option<String>,
    team: Team,
    #[serde(flatten)]
    around: IssueRelations,
}

impl Issue {
    fn named(self, team: TeamKey) -> IssueLookup {
        IssueLookup {
            related: self.around.related(),
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

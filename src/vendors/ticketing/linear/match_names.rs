//! Names of labels and projects that a mapping of a team can match.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Linear;
use super::snapshot::{Connection, Label};
use crate::http::VendorError;

const LABELS: &str = "query($team: String!, $after: String) { \
    issueLabels(first: 250, after: $after, filter: { or: [{ team: { null: true } }, { team: { key: { eq: $team } } }] }) \
    { nodes { name } pageInfo { hasNextPage endCursor } } }";

const PROJECTS: &str = "query($team: String!, $after: String) { \
    teams(first: 1, filter: { key: { eq: $team } }) { nodes { \
    projects(first: 250, after: $after) { nodes { name } pageInfo { hasNextPage endCursor } } } } }";

impl Linear {
    /// Lists the names of the labels that issues of a team can have; at most `limit`.
    ///
    /// # Errors
    /// Fails if Linear rejects a request or does not respond.
    pub async fn label_names(&self, team: &str, limit: usize) -> Result<Vec<String>, VendorError> {
        names(
            self,
            "listing the labels",
            LABELS,
            team,
            limit,
            |page: Labels| page.issue_labels,
        )
        .await
    }

    /// Lists the names of the projects of a team; at most `limit`.
    ///
    /// # Errors
    /// Fails if Linear rejects a request or does not respond.
    pub async fn project_names(
        &self,
        team: &str,
        limit: usize,
    ) -> Result<Vec<String>, VendorError> {
        names(
            self,
            "listing the projects",
            PROJECTS,
            team,
            limit,
            |page: Teams| {
                let team = page.teams.nodes.into_iter().next();
                team.map(|team| team.projects).unwrap_or_default()
            },
        )
        .await
    }
}

/// Reads all pages of a list of names.
async fn names<T: DeserializeOwned>(
    linear: &Linear,
    action: &'static str,
    query: &str,
    team: &str,
    limit: usize,
    list: impl Fn(T) -> Connection<Label>,
) -> Result<Vec<String>, VendorError> {
    let (mut found, mut after) = (Vec::new(), Value::Null);
    while found.len() < limit {
        let variables = json!({ "team": team, "after": after });
        let page = list(
            linear
                .execute(linear.query(action, query, variables))
                .await?,
        );
        found.extend(page.nodes.into_iter().map(|label| label.name));
        match page.page_info.next() {
            Some(next) => after = next.into(),
            None => break,
        }
    }
    found.truncate(limit);
    Ok(found)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Labels {
    issue_labels: Connection<Label>,
}

#[derive(Deserialize)]
struct Teams {
    teams: Connection<Team>,
}

#[derive(Deserialize)]
struct Team {
    projects: Connection<Label>,
}

//! Lookup of an issue by its key.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Connection, GitHubIssues, IssueKeys, Label, RELATED_FIELDS, RelatedIssue};
use crate::http::{VendorError, VendorErrorKind};
use crate::ticketing::sanitized_title;
use domain::ids::{IssueId, IssueKey};
use domain::issue::{IssueLookup, IssueRef, RelatedIssues, System};
use domain::mapping::Mapping;

const ACTION: &str = "reading the issue";

impl GitHubIssues {
    /// Finds an issue by its key in the repositories of these mappings. A key without an owner may be that
    /// of issues in several repositories.
    ///
    /// # Errors
    /// Fails if no issue is found and a repository cannot be read.
    pub async fn find_issue(
        &self,
        mappings: &[&Mapping],
        key: &IssueKey,
    ) -> Result<Vec<IssueLookup>, VendorError> {
        let Some((owner, name, number)) = key.repo_and_number() else {
            return Ok(Vec::new());
        };
        let named = mappings.iter().copied().filter(|mapping| {
            mapping.repo.eq_ignore_ascii_case(name)
                && owner.is_none_or(|owner| mapping.owner.eq_ignore_ascii_case(owner))
        });
        let named: Vec<(&Mapping, _)> = named
            .map(|mapping| (mapping, mapping.target_repo()))
            .collect();
        let keys = IssueKeys::new(mappings);
        let (mut found, mut failure) = (Vec::new(), None);
        for group in self.group_by_owner(named, |(_, repo)| repo) {
            let mappings: Vec<&Mapping> = group.iter().map(|(mapping, _)| *mapping).collect();
            match self.find_in(&mappings, number, &keys).await {
                Ok(issues) => found.extend(issues),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Finds the issue with a number in the repositories of these mappings, which one token reads.
    async fn find_in(
        &self,
        mappings: &[&Mapping],
        number: u64,
        keys: &IssueKeys,
    ) -> Result<Vec<IssueLookup>, VendorError> {
        let (mut parameters, mut fields) = (vec!["$number: Int!".to_owned()], String::new());
        let mut variables = Map::from_iter([("number".to_owned(), number.into())]);
        for (at, mapping) in mappings.iter().enumerate() {
            parameters.push(format!("$o{at}: String!, $n{at}: String!"));
            fields += &format!(
                "r{at}: repository(owner: $o{at}, name: $n{at}) {{ issue(number: $number) {{ ...Found }} }}\n"
            );
            variables.insert(format!("o{at}"), mapping.owner.as_str().into());
            variables.insert(format!("n{at}"), mapping.repo.as_str().into());
        }
        let query = format!(
            "query({}) {{\n{fields}}}\nfragment Found on Issue {{ \
             id title url body labels(first: 100) {{ nodes {{ name }} }} \
             parent {{ {RELATED_FIELDS} }} blockedBy(first: 50) {{ nodes {{ {RELATED_FIELDS} }} }} }}",
            parameters.join(", ")
        );
        let repo = mappings[0].target_repo();
        let (mut data, errors) = self
            .github
            .graphql_partial::<HashMap<String, Option<FoundRepo>>>(
                &repo,
                ACTION,
                &query,
                &Value::Object(variables),
            )
            .await?;
        let mut found = Vec::new();
        for (at, mapping) in mappings.iter().enumerate() {
            let repo = data.remove(&format!("r{at}")).flatten();
            let issue = repo.and_then(|repo| repo.issue);
            found.extend(issue.map(|issue| issue.into_lookup(mapping, number, keys)));
        }
        let unread = errors.into_iter().find(|error| error.status != 404);
        match unread {
            Some(error) if found.is_empty() => {
                let kind = VendorErrorKind::Status {
                    status: error.status,
                    message: error.message,
                    retry_after: None,
                };
                Err(VendorError::new("GitHub", ACTION, kind))
            }
            _ => Ok(found),
        }
    }
}

#[derive(Deserialize)]
struct FoundRepo {
    issue: Option<FoundIssue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundIssue {
    id: IssueId,
    #[serde(deserialize_with = "sanitized_title")]
    title: String,
    url: String,
    body: String,
    labels: Option<Connection<Label>>,
    parent: Option<RelatedIssue>,
    blocked_by: Connection<RelatedIssue>,
}

impl FoundIssue {
    fn into_lookup(self, mapping: &Mapping, number: u64, keys: &IssueKeys) -> IssueLookup {
        let labels = self.labels.unwrap_or_default().into_nodes();
        let blockers = self.blocked_by.into_nodes();
        IssueLookup {
            related: RelatedIssues {
                parent: self.parent.map(|parent| parent.summary_line(keys)),
                siblings: Vec::new(),
                dependencies: blockers
                    .map(|blocker| format!("blocked by {}", blocker.summary_line(keys)))
                    .collect(),
            },
            labels: labels.map(|label| label.name).collect(),
            issue: IssueRef {
                system: System::GitHub,
                id: self.id,
                key: keys.key(&mapping.target_repo().to_string(), number),
                title: self.title,
                url: self.url,
                marker_field: None,
            },
            team: mapping.team_key.clone(),
            description: self.body,
        }
    }
}

//! Requests about several repositories or issues at once.

use std::collections::{BTreeMap, HashMap};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::http::VendorError;
use crate::scm::PartialError;
use domain::ids::{IssueId, Repo};
use domain::issue::IssueRef;

use super::{GitHubIssues, IssueAddress};

/// Maximum number of issues per request.
const BATCH: usize = 50;

/// Answers about issues: the fields of each issue, and the error of each that could not be read.
pub(super) struct NodeAnswers<T> {
    pub(super) found: HashMap<IssueId, T>,
    pub(super) errors: Vec<PartialError>,
}

impl GitHubIssues {
    /// Reads fields of issues by their ids. `selection` is a selection of `Issue`. The ids must belong to
    /// repositories of one installation, among them `repo`.
    pub(super) async fn read_nodes<T: DeserializeOwned>(
        &self,
        repo: &Repo,
        action: &'static str,
        ids: &[IssueId],
        selection: &str,
    ) -> Result<NodeAnswers<T>, VendorError> {
        let mut answers = NodeAnswers {
            found: HashMap::new(),
            errors: Vec::new(),
        };
        for batch in ids.chunks(BATCH) {
            let (mut parameters, mut fields) = (Vec::new(), String::new());
            let mut variables = Map::new();
            for (at, id) in batch.iter().enumerate() {
                parameters.push(format!("$i{at}: ID!"));
                fields += &format!("n{at}: node(id: $i{at}) {{ ... on Issue {selection} }}\n");
                variables.insert(format!("i{at}"), id.as_str().into());
            }
            let query = format!("query({}) {{\n{fields}}}", parameters.join(", "));
            let (mut data, errors) = self
                .github
                .graphql_partial::<HashMap<String, Option<T>>>(
                    repo,
                    action,
                    &query,
                    &Value::Object(variables),
                )
                .await?;
            for (at, id) in batch.iter().enumerate() {
                if let Some(Some(node)) = data.remove(&format!("n{at}")) {
                    answers.found.insert(id.clone(), node);
                }
            }
            answers.errors.extend(errors);
        }
        Ok(answers)
    }

    /// Groups repositories by the credentials that read them: all in one group with a plain token, and by
    /// owner with an App, which has one installation per owner.
    pub(super) fn group_by_owner<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        repo: impl Fn(&T) -> &Repo,
    ) -> Vec<Vec<T>> {
        let mut groups: BTreeMap<String, Vec<T>> = BTreeMap::new();
        for item in items {
            let owner = match self.github.is_app() {
                true => repo(&item).owner.to_lowercase(),
                false => String::new(),
            };
            groups.entry(owner).or_default().push(item);
        }
        groups.into_values().collect()
    }

    /// Returns issues with their addresses, grouped by the credentials that read them.
    pub(super) fn group_issues<'i>(
        &self,
        issues: &'i [IssueRef],
        action: &'static str,
    ) -> Result<Vec<Vec<(&'i IssueRef, IssueAddress)>>, VendorError> {
        let located = issues
            .iter()
            .map(|issue| Ok((issue, IssueAddress::of(issue, action)?)));
        let located: Vec<_> = located.collect::<Result<_, VendorError>>()?;
        Ok(self.group_by_owner(located, |(_, address)| &address.repo))
    }
}

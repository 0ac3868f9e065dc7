//! Context of an issue for a run: the comments of effects, sibling issues, and labels.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::VendorError;
use domain::crypto::{deterministic_uuid, hashed_uuid};
use domain::ids::IssueId;
use domain::issue::{IssueRef, RunContext};

use super::Linear;
use super::relations::RelatedIssue;
use super::snapshot::{Connection, Label};

/// Maximum number of siblings returned per issue.
const SIBLINGS: usize = 20;

/// Maximum number of issues per request. Each takes 80 of the 10,000 complexity points of a query.
const BATCH: usize = 100;

const COMMENTS: &str = "\
query($id: String!, $first: Int!, $ids: [ID!]!) {
  issue(id: $id) { comments(first: $first, filter: { id: { in: $ids } }) { nodes { id body } } }
}";

/// Fields of one issue. Requests one child more than `SIBLINGS`, because the issue itself is among them, and
/// some labels more than a job stores, because labels of the service may be among them.
const CONTEXT: &str = "{ labels(first: 25) { nodes { name } } \
    parent { children(first: 21) { nodes { id identifier title state { name } } } } }";

impl Linear {
    /// Returns the current texts of the comments that [`create_comment`](Self::create_comment) created for
    /// these effects, in the given order.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn comments(
        &self,
        issue: &IssueRef,
        effect_ids: &[String],
    ) -> Result<Vec<String>, VendorError> {
        let forms = effect_ids
            .iter()
            .map(|effect| [deterministic_uuid(effect), hashed_uuid(effect)]);
        let forms: Vec<[String; 2]> = forms.collect();
        let ids: Vec<&String> = forms.iter().flatten().collect();
        let variables = json!({ "id": issue.id, "first": ids.len().max(1), "ids": ids });
        let data: IssueData = self
            .execute(self.query("reading our comments", COMMENTS, variables))
            .await?;
        let mut bodies: HashMap<String, String> = data
            .issue
            .comments
            .nodes
            .into_iter()
            .map(|comment| (comment.id, comment.body))
            .collect();
        let body = |ids: &[String; 2]| ids.iter().find_map(|id| bodies.remove(id));
        Ok(forms.iter().filter_map(body).collect())
    }

    /// Returns the siblings of each issue, as one line of text each, and its labels.
    ///
    /// # Errors
    /// Fails if any of the issues cannot be read.
    pub async fn run_contexts(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashMap<IssueId, RunContext>, VendorError> {
        let mut contexts = HashMap::new();
        for batch in issues.chunks(BATCH) {
            let mut parameters = Vec::new();
            let mut fields = String::new();
            let mut variables = Map::new();
            for (at, issue) in batch.iter().enumerate() {
                parameters.push(format!("$i{at}: String!"));
                fields += &format!("s{at}: issue(id: $i{at}) {CONTEXT}\n");
                variables.insert(format!("i{at}"), issue.id.as_str().into());
            }
            let query = format!("query({}) {{ {fields} }}", parameters.join(", "));
            let request = self.query(
                "reading siblings and labels",
                &query,
                Value::Object(variables),
            );
            let mut found: HashMap<String, ContextIssue> = self.execute(request).await?;
            for (at, issue) in batch.iter().enumerate() {
                let Some(context) = found.remove(&format!("s{at}")) else {
                    continue;
                };
                contexts.insert(issue.id.clone(), context.translate(issue));
            }
        }
        Ok(contexts)
    }
}

#[derive(Deserialize)]
struct IssueData {
    issue: Comments,
}

#[derive(Deserialize)]
struct Comments {
    comments: Connection<Comment>,
}

#[derive(Deserialize)]
struct Comment {
    id: String,
    body: String,
}

#[derive(Deserialize)]
struct ContextIssue {
    labels: Connection<Label>,
    parent: Option<Parent>,
}

impl ContextIssue {
    fn translate(self, issue: &IssueRef) -> RunContext {
        let labels = self.labels.nodes.into_iter().map(|label| label.name);
        let children = self.parent.map(|parent| parent.children.nodes);
        let siblings = children
            .iter()
            .flatten()
            .filter(|child| child.id != issue.id.as_str())
            .take(SIBLINGS)
            .map(|child| child.issue.summary_line());
        RunContext {
            siblings: siblings.collect(),
            labels: Some(labels.collect()),
            description: None,
        }
    }
}

#[derive(Deserialize)]
struct Parent {
    children: Connection<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    id: String,
    #[serde(flatten)]
    issue: RelatedIssue,
}

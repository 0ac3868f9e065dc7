//! Labels with a meaning: those that mappings match, and those that choose an agent or a model. The poll returns the
//! ids of all labels of an issue at little cost; this list gives their names.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::json;

use super::Linear;
use super::snapshot::{Connection, MAX_PAGES};
use crate::http::VendorError;
use domain::mapping::{Mapping, TicketMatch};

/// Parameters of [`FIRST`].
pub(super) const PARAMETERS: &str = ", $names: [String!]!";

/// First page of the labels, as a part of the query of issues. It is smaller than a page may be, because of the
/// complexity limit of the query.
pub(super) const FIRST: &str = "\
issueLabels(first: 150, filter: { or: [
    { name: { in: $names } }, { name: { startsWith: \"agent:\" } }, { name: { startsWith: \"model:\" } }
  ] }) {
    nodes { id name }
    pageInfo { hasNextPage endCursor }
  }";

const MORE: &str = "\
query($after: String, $names: [String!]!) {
  issueLabels(first: 250, after: $after, filter: { or: [
    { name: { in: $names } }, { name: { startsWith: \"agent:\" } }, { name: { startsWith: \"model:\" } }
  ] }) {
    nodes { id name }
    pageInfo { hasNextPage endCursor }
  }
}";

/// Names of labels by id.
#[derive(Default)]
pub(super) struct MatchedLabels(HashMap<String, String>);

impl MatchedLabels {
    /// Returns the names of the labels that these mappings match.
    pub(super) fn wanted<'m>(mappings: &[&'m Mapping]) -> BTreeSet<&'m str> {
        let label = |mapping: &&'m Mapping| match mapping.ticket_match() {
            Some(TicketMatch::Label(name)) => Some(name.as_str()),
            _ => None,
        };
        mappings.iter().filter_map(label).collect()
    }

    /// Reads the labels after a first page. Several teams may have labels of the same name.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub(super) async fn read(
        linear: &Linear,
        names: &BTreeSet<&str>,
        first: Connection<LabelRow>,
    ) -> Result<Self, VendorError> {
        let mut found = HashMap::new();
        let mut page = first;
        for _ in 0..MAX_PAGES {
            let next = page.page_info.next();
            found.extend(page.nodes.into_iter().map(|label| (label.id, label.name)));
            let Some(after) = next else {
                break;
            };
            let variables = json!({ "after": after, "names": names });
            let labels: Labels = linear
                .execute(linear.query("reading labels", MORE, variables))
                .await?;
            page = labels.issue_labels;
        }
        Ok(Self(found))
    }

    /// Returns the names of those of the labels that mappings match.
    pub(super) fn names(&self, ids: &[String]) -> Vec<String> {
        let names = ids.iter().filter_map(|id| self.0.get(id));
        names.cloned().collect()
    }
}

#[derive(Deserialize)]
pub(super) struct LabelRow {
    id: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Labels {
    issue_labels: Connection<LabelRow>,
}

//! Poll of all flagged issues: one request per page, independent of the number of mappings.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::VendorError;
use domain::agent_choice::AgentChoice;
use domain::ids::{IssueId, IssueKey, TeamKey};
use domain::issue::{FlaggedIssue, IssueRef, PollResult, StatusCategory, System, TriggerAuthor};
use domain::mapping::Mapping;
use domain::mapping::ticket_match::TicketFacts;
use domain::stage::{ALL_LABELS, Stage, TRIGGER_LABEL};
use domain::string_arena::{ArenaStr, pack_strings};
use domain::ticket_comment::{CommentWatch, TicketComment};
use domain::time::Timestamp;

use super::Linear;
use super::comments::{self, CommentRow};
use super::matched_labels::{self, LabelRow, MatchedLabels};
use super::relations::{IssueRelations, Relations};
use crate::ticketing::sanitized_title;

/// Number of issues per page. With the fields of [`PAGE`], more would exceed the limit of 10,000
/// complexity points per query.
pub(super) const PAGE_SIZE: usize = 250;

/// Number of issues beyond those of the last poll, and a quarter of them, that the first page has room for. Linear counts
/// the issues that a page has room for and not those that it returns.
const PAGE_MARGIN: usize = 25;

/// Minimum number of issues per page. Linear does not document its complexity calculation exactly; after a
/// rejection as too complex the page size is halved, down to this value.
const MIN_PAGE_SIZE: usize = 25;

/// Maximum number of pages. Guards against an endless list.
pub(super) const MAX_PAGES: usize = 200;

/// Maximum number of issues per request for further relations. Each takes 176 complexity points.
const BLOCKER_BATCH: usize = 40;

/// Number of labels of the service in [`PAGE`]. An issue has two, unless people set more.
const MAX_OWN_LABELS: usize = 5;

/// State types of closed issues. They need no work and block no other issue.
const CLOSED: [&str; 3] = ["completed", "canceled", "duplicate"];

const PAGE: &str = "\
query($first: Int!, $after: String, $flags: [String!]!, $ours: [String!]!, $closed: [String!]! PARAMETERS) {
  LABELS
  COMMENTS
  issues(
    first: $first, after: $after, orderBy: createdAt,
    filter: { labels: { some: { name: { in: $flags } } }, state: { type: { nin: $closed } } }
  ) {
    nodes {
      id identifier title url description priority createdAt
      team { key }
      project { name }
      state { name type }
      parent { identifier title state { name } }
      labelIds
      labels(first: 5, filter: { name: { in: $ours } }) { nodes { name } }
      relations(first: 3) { nodes { type relatedIssue { identifier title state { name } } } }
      inverseRelations(first: 4) {
        nodes { type issue { identifier title state { name type } } }
        pageInfo { hasNextPage endCursor }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}";

const MORE_RELATIONS: &str = "{ inverseRelations(first: 50, after: $CURSOR) {
  nodes { type issue { identifier title state { name type } } }
  pageInfo { hasNextPage endCursor }
} }";

impl Linear {
    /// Lists all open issues with a marker, in any team. Issues outside of the mappings are included, because
    /// the service explains why they wait; they take no additional requests. The first page also returns the labels
    /// that the mappings match or that choose an agent, and the comments that `watch` asks for.
    ///
    /// # Errors
    /// Fails if a page of issues cannot be read.
    pub async fn snapshot(
        &self,
        mappings: &[&Mapping],
        watch: &CommentWatch,
    ) -> Result<PollResult, VendorError> {
        let mut extras = Extras {
            labels: MatchedLabels::wanted(mappings),
            comments: comments::filter(watch),
        };
        let mut labels = MatchedLabels::default();
        let mut watched = WatchedComments::default();
        let (mut found, mut incomplete) = (Vec::new(), Vec::new());
        // An issue may move to a later page between two requests.
        let mut seen = HashSet::new();
        let mut after: Option<String> = None;
        let mut page_size = self.first_page_size.load(Ordering::Relaxed);
        let mut largest_page = PAGE_SIZE;
        for _ in 0..MAX_PAGES {
            let read = match page(self, page_size, after.as_deref(), &extras).await {
                Err(error) if is_too_complex(&error) && page_size > MIN_PAGE_SIZE => {
                    page_size /= 2;
                    largest_page = page_size;
                    continue;
                }
                Err(error) if error.status() == Some(422) && extras.comments.is_some() => {
                    watched = WatchedComments::failed(&error);
                    extras.comments = None;
                    continue;
                }
                read => read?,
            };
            if let Some(first) = read.issue_labels {
                labels = MatchedLabels::read(self, &extras.labels, first).await?;
            }
            if let (Some(first), Some(filter)) = (read.comments, &extras.comments) {
                watched = WatchedComments::read(self, filter, first).await;
            }
            let mut page = read.issues;
            let texts = page.nodes.iter_mut().map(Issue::take_description);
            let texts: Vec<String> = texts.collect();
            let described_issues = page.nodes.into_iter().zip(pack_strings(&texts));
            for (issue, description) in
                described_issues.filter(|(issue, _)| seen.insert(issue.id.clone()))
            {
                match issue.relations.inverse_relations.page_info.next() {
                    Some(_) => incomplete.push((issue, description)),
                    None => found.extend(issue.translate(description, &labels)),
                }
            }
            after = page.page_info.next();
            if after.is_none() {
                let size = (seen.len() * 5 / 4 + PAGE_MARGIN).min(PAGE_SIZE);
                self.first_page_size.store(size, Ordering::Relaxed);
                break;
            }
            page_size = largest_page;
        }
        complete_relations(self, &mut incomplete).await?;
        let completed = incomplete.into_iter();
        let completed =
            completed.filter_map(|(issue, description)| issue.translate(description, &labels));
        Ok(PollResult {
            issues: completed.chain(found).collect(),
            failed_teams: Vec::new(),
            comments: watched.comments,
            comments_read: !watched.has_failed,
        })
    }
}

/// What the first page returns beside issues.
struct Extras<'m> {
    /// Names of the labels that mappings match.
    labels: BTreeSet<&'m str>,
    /// Filter of the comments that the poll asks for.
    comments: Option<Value>,
}

#[derive(Default)]
struct WatchedComments {
    comments: Vec<TicketComment>,
    has_failed: bool,
}

impl WatchedComments {
    async fn read(linear: &Linear, filter: &Value, first: Connection<CommentRow>) -> Self {
        match comments::read_all(linear, filter, first).await {
            Ok(comments) => Self {
                comments,
                has_failed: false,
            },
            Err(error) => Self::failed(&error),
        }
    }

    fn failed(error: &VendorError) -> Self {
        tracing::warn!(%error, "Failed to read comments of Linear.");
        Self {
            comments: Vec::new(),
            has_failed: true,
        }
    }
}

async fn page(
    linear: &Linear,
    first: usize,
    after: Option<&str>,
    extras: &Extras<'_>,
) -> Result<Page, VendorError> {
    // The label for an opened pull request is a common phrase. Alone it does not flag an issue.
    let flags: Vec<&str> = ALL_LABELS
        .into_iter()
        .filter(|label| Some(*label) != Stage::PrOpened.label())
        .collect();
    let mut variables = json!({
        "first": first, "after": after, "flags": flags, "ours": ALL_LABELS, "closed": CLOSED,
    });
    let (mut parameters, mut labels, mut comments) = (String::new(), "", String::new());
    if after.is_none() {
        parameters += matched_labels::PARAMETERS;
        labels = matched_labels::FIRST;
        variables["names"] = json!(extras.labels);
    }
    if let (None, Some(filter)) = (after, &extras.comments) {
        parameters += comments::PARAMETERS;
        comments = comments::FIRST.replace("FIELDS", comments::FIELDS);
        variables["comments"] = filter.clone();
    }
    let query = PAGE
        .replace("PARAMETERS", &parameters)
        .replace("LABELS", labels)
        .replace("COMMENTS", &comments);
    linear
        .execute(linear.query("reading flagged issues", &query, variables))
        .await
}

/// Reads the relations that did not fit into the page, for several issues per request.
async fn complete_relations(
    linear: &Linear,
    issues: &mut [(Issue, ArenaStr)],
) -> Result<(), VendorError> {
    for _ in 0..MAX_PAGES {
        let mut open: Vec<(&mut Issue, String)> = issues
            .iter_mut()
            .filter_map(|(issue, _)| {
                let next = issue.relations.inverse_relations.page_info.next()?;
                Some((issue, next))
            })
            .take(BLOCKER_BATCH)
            .collect();
        if open.is_empty() {
            break;
        }
        let mut parameters = String::new();
        let mut fields = String::new();
        let mut variables = Map::new();
        for (at, (issue, cursor)) in open.iter().enumerate() {
            parameters += &format!("$i{at}: String!, $c{at}: String, ");
            let selection = MORE_RELATIONS.replace("$CURSOR", &format!("$c{at}"));
            fields += &format!("r{at}: issue(id: $i{at}) {selection}\n");
            variables.insert(format!("i{at}"), issue.id.clone().into());
            variables.insert(format!("c{at}"), cursor.clone().into());
        }
        let query = format!("query({parameters}) {{ {fields} }}");
        let request = linear.query("reading blocking issues", &query, Value::Object(variables));
        let mut more: std::collections::HashMap<String, Relations> =
            linear.execute(request).await?;
        for (at, (issue, _)) in open.iter_mut().enumerate() {
            let page = more.remove(&format!("r{at}")).unwrap_or_default();
            let known = &mut issue.relations.inverse_relations;
            known.nodes.extend(page.inverse_relations.nodes);
            known.page_info = page.inverse_relations.page_info;
        }
    }
    Ok(())
}

fn is_too_complex(error: &VendorError) -> bool {
    error.is_permanent() && error.to_string().to_lowercase().contains("complex")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    issues: Connection<Issue>,
    issue_labels: Option<Connection<LabelRow>>,
    comments: Option<Connection<CommentRow>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Connection<T> {
    pub(super) nodes: Vec<T>,
    #[serde(default)]
    pub(super) page_info: PageInfo,
}

impl<T> Default for Connection<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            page_info: PageInfo::default(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

impl PageInfo {
    /// Returns the cursor of the next page.
    pub(super) fn next(&self) -> Option<String> {
        self.end_cursor.clone().filter(|_| self.has_next_page)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Issue {
    id: String,
    identifier: String,
    #[serde(deserialize_with = "sanitized_title")]
    title: String,
    url: String,
    description: Option<String>,
    priority: f64,
    created_at: Timestamp,
    team: Team,
    project: Option<Project>,
    state: State,
    /// Ids of all labels, also of those that `labels` leaves out.
    label_ids: Vec<String>,
    /// Labels of the service.
    labels: Connection<Label>,
    #[serde(flatten)]
    relations: IssueRelations,
}

#[derive(Deserialize)]
pub(super) struct Team {
    pub(super) key: String,
}

#[derive(Deserialize)]
struct Project {
    name: String,
}

#[derive(Deserialize)]
pub(super) struct State {
    pub(super) name: String,
    #[serde(rename = "type", default)]
    kind: String,
}

impl State {
    pub(super) fn is_open(&self) -> bool {
        !CLOSED.contains(&self.kind.as_str())
    }

    fn status_category(&self) -> StatusCategory {
        match self.kind.as_str() {
            "started" => StatusCategory::Started,
            "completed" => StatusCategory::Completed,
            "canceled" | "duplicate" => StatusCategory::Cancelled,
            _ => StatusCategory::Unstarted,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Label {
    pub(super) name: String,
}

impl Issue {
    fn take_description(&mut self) -> String {
        self.description.take().unwrap_or_default()
    }

    /// Converts an issue. `None` if it has no marker label, which is possible if the label was removed during
    /// the poll.
    fn translate(self, description: ArenaStr, matched: &MatchedLabels) -> Option<FlaggedIssue> {
        let labels = self.labels.nodes.iter().map(|label| label.name.as_str());
        let has_trigger = labels.clone().any(|label| label == TRIGGER_LABEL)
            // The trigger may be among those that are left out.
            || self.labels.nodes.len() >= MAX_OWN_LABELS;
        let stage = Stage::from_labels(labels)?;
        // The names of other labels would cost several points per issue, so only runs read them.
        let has_others = self.label_ids.len() > self.labels.nodes.len();
        let labels = matched.names(&self.label_ids);
        let agent_choice = AgentChoice::from_labels(labels.iter().map(String::as_str));
        let facts = TicketFacts {
            labels,
            project: self.project.map(|project| project.name),
        };
        Some(FlaggedIssue {
            trigger_author: TriggerAuthor::Trusted,
            has_trigger,
            updated_at: None,
            stage,
            priority: priority(self.priority),
            open_blockers: self.relations.open_blockers(),
            related: self.relations.related(),
            labels: (!has_others).then(Vec::new),
            agent_choice,
            issue: IssueRef {
                system: System::Linear,
                id: IssueId::new(self.id),
                key: IssueKey::new(self.identifier),
                title: self.title,
                url: self.url,
                marker_field: None,
            },
            team: TeamKey::new(self.team.key),
            facts: Some(Box::new(facts)),
            created_at: self.created_at,
            description,
            status_category: self.state.status_category(),
            state_name: self.state.name,
        })
    }
}

/// Converts a priority to a sort key. Linear uses 1 (urgent) to 4 (low); 0 means none and sorts last.
fn priority(priority: f64) -> u8 {
    match priority as u8 {
        0 => 5,
        priority => priority.min(5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_issues_without_priority_last() {
        let sorted: Vec<u8> = [0.0, 1.0, 4.0, 9.0].map(priority).to_vec();
        assert_eq!(sorted, [5, 1, 4, 5]);
    }
}

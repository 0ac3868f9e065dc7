//! Pages of the lists of flagged issues: the queries, and what their answers contain.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::scm::PartialError;
use crate::ticketing::sanitized_title;
use domain::agent_choice::AgentChoice;
use domain::ids::{IssueId, TeamKey};
use domain::issue::{FlaggedIssue, IssueRef, RelatedIssues, StatusCategory, System, TriggerAuthor};
use domain::stage::{ALL_LABELS, Stage, TRIGGER_LABEL};
use domain::string_arena::ArenaStr;
use domain::time::Timestamp;

use super::snapshot::{MappedRepo, PolledIssue};
use super::{IssueKeys, RELATED_FIELDS, RelatedIssue};

/// Maximum number of lists per request. GitHub ends a query after 10 seconds.
const LISTS_PER_REQUEST: usize = 250;

/// Maximum number of pages of one list. Guards against an endless list.
const MAX_PAGES: usize = 200;

/// Sort key of issues, none of which has a priority.
const NO_PRIORITY: u8 = 5;

/// Arguments of a list; `$LABEL` and `$AFTER` are replaced.
const LIST: &str = "issues(labels: [\"$LABEL\"], states: OPEN, first: 100, after: $AFTER, \
    orderBy: { field: CREATED_AT, direction: ASC })";

/// Page of one list: one label in one repository.
struct PageRequest {
    /// Position of the repository in its group.
    repo: usize,
    /// Position of the label in [`ALL_LABELS`].
    label: usize,
    after: Option<String>,
    page: usize,
}

/// Request for several pages.
pub(super) struct PagesRequest {
    pub(super) query: String,
    pub(super) variables: Value,
    pages: Vec<PageRequest>,
}

/// Answer of a request, by the response key of the repository. A repository that cannot be read is `None`.
pub(super) type PagesAnswer = HashMap<String, Option<RepoPages>>;

/// Reader of all pages of the repositories of one installation.
pub(super) struct PageReader<'g> {
    group: &'g [MappedRepo],
    pending: Vec<PageRequest>,
    /// Positions of repositories that cannot be read.
    failed: BTreeSet<usize>,
    issues: Vec<FoundIssue>,
    /// Position in `issues`, by id.
    positions: HashMap<IssueId, usize>,
}

struct FoundIssue {
    repo: usize,
    is_open_to_strangers: bool,
    labels: Vec<&'static str>,
    node: IssueNode,
}

impl<'g> PageReader<'g> {
    pub(super) fn new(group: &'g [MappedRepo]) -> Self {
        let lists = (0..group.len()).flat_map(|repo| {
            let polled = (0..ALL_LABELS.len()).filter(move |at| group[repo].polls(ALL_LABELS[*at]));
            polled.map(move |label| PageRequest {
                repo,
                label,
                after: None,
                page: 1,
            })
        });
        Self {
            group,
            pending: lists.collect(),
            failed: BTreeSet::new(),
            issues: Vec::new(),
            positions: HashMap::new(),
        }
    }

    /// Returns the next request. `None` if all pages are read.
    pub(super) fn next_request(&mut self) -> Option<PagesRequest> {
        let count = self.pending.len().min(LISTS_PER_REQUEST);
        let pages: Vec<PageRequest> = self.pending.drain(..count).collect();
        if pages.is_empty() {
            return None;
        }
        let (mut parameters, mut fields) = (Vec::new(), String::new());
        let mut variables = Map::new();
        for of_repo in pages.chunk_by(|left, right| left.repo == right.repo) {
            let at = of_repo[0].repo;
            let repo = &self.group[at].repo;
            parameters.push(format!("$o{at}: String!, $n{at}: String!"));
            variables.insert(format!("o{at}"), repo.owner.as_str().into());
            variables.insert(format!("n{at}"), repo.name.as_str().into());
            fields += &format!("r{at}: repository(owner: $o{at}, name: $n{at}) {{ visibility");
            for page in of_repo {
                let after = match &page.after {
                    None => "null".to_owned(),
                    Some(cursor) => {
                        let name = format!("c{at}x{}", page.label);
                        parameters.push(format!("${name}: String"));
                        variables.insert(name.clone(), cursor.as_str().into());
                        format!("${name}")
                    }
                };
                let list = LIST.replace("$LABEL", ALL_LABELS[page.label]);
                let list = list.replace("$AFTER", &after);
                fields += &format!(" l{}: {list} {{ ...Page }}", page.label);
            }
            fields += " }\n";
        }
        let query = format!(
            "query({}) {{\n{fields}}}\nfragment Page on IssueConnection {{ \
             nodes {{ id number title url createdAt updatedAt parent {{ {RELATED_FIELDS} }} \
             issueDependenciesSummary {{ totalBlockedBy }} }} \
             pageInfo {{ hasNextPage endCursor }} }}",
            parameters.join(", ")
        );
        Some(PagesRequest {
            query,
            variables: Value::Object(variables),
            pages,
        })
    }

    /// Adds the answer of a request.
    pub(super) fn add(
        &mut self,
        request: PagesRequest,
        mut answer: PagesAnswer,
        errors: &[PartialError],
    ) {
        for page in request.pages {
            let key = format!("r{}", page.repo);
            let Some(Some(repo)) = answer.get_mut(&key) else {
                if self.failed.insert(page.repo) {
                    let error = errors.iter().find(|error| error.path == key);
                    let error = error.map_or("no answer", |error| error.message.as_str());
                    let repo = &self.group[page.repo].repo;
                    tracing::warn!(%repo, error, "Failed to read the issues of a repository.");
                }
                continue;
            };
            let is_open_to_strangers = repo.visibility != "PRIVATE";
            let list = repo.lists.remove(&format!("l{}", page.label));
            let Some(list) = list else { continue };
            for node in list.nodes.into_iter().flatten() {
                self.add_issue(page.repo, page.label, is_open_to_strangers, node);
            }
            let after = list.page_info.end_cursor;
            if let (true, Some(after)) = (list.page_info.has_next_page, after)
                && page.page < MAX_PAGES
            {
                self.pending.push(PageRequest {
                    after: Some(after),
                    page: page.page + 1,
                    ..page
                });
            }
        }
    }

    fn add_issue(
        &mut self,
        repo: usize,
        label: usize,
        is_open_to_strangers: bool,
        node: IssueNode,
    ) {
        let label = ALL_LABELS[label];
        match self.positions.get(&node.id) {
            Some(at) => self.issues[*at].labels.push(label),
            None => {
                self.positions.insert(node.id.clone(), self.issues.len());
                self.issues.push(FoundIssue {
                    repo,
                    is_open_to_strangers,
                    labels: vec![label],
                    node,
                });
            }
        }
    }

    /// Returns the flagged issues, and the mappings whose repositories cannot be read.
    pub(super) fn finish(self, keys: &IssueKeys) -> (Vec<PolledIssue>, Vec<TeamKey>) {
        let (group, failed) = (self.group, self.failed);
        let teams = failed.iter().flat_map(|at| &group[*at].teams);
        let teams = teams.cloned().collect();
        let read = self.issues.into_iter();
        let read = read.filter(|found| !failed.contains(&found.repo));
        let issues = read.filter_map(|found| {
            let mapped = &group[found.repo];
            found.translate(mapped, keys)
        });
        (issues.collect(), teams)
    }
}

impl FoundIssue {
    /// Converts an issue. `None` if its only label is the one for an opened pull request: that is a common
    /// phrase, and alone it does not flag an issue.
    fn translate(self, mapped: &MappedRepo, keys: &IssueKeys) -> Option<PolledIssue> {
        let is_flagged = |label: &&str| Some(*label) != Stage::PrOpened.label();
        if !self.labels.iter().any(is_flagged) {
            return None;
        }
        let has_trigger = self.labels.contains(&TRIGGER_LABEL);
        let stage = Stage::from_labels(self.labels)?;
        let node = self.node;
        let related = RelatedIssues {
            parent: node.parent.map(|parent| parent.summary_line(keys)),
            ..RelatedIssues::default()
        };
        let flagged = FlaggedIssue {
            issue: IssueRef {
                system: System::GitHub,
                key: keys.key(&mapped.repo.to_string(), node.number),
                id: node.id,
                title: node.title,
                url: node.url,
                marker_field: None,
            },
            team: mapped.teams[0].clone(),
            facts: mapped.has_matches.then(Box::default),
            stage,
            priority: NO_PRIORITY,
            created_at: node.created_at,
            // Read just before a run starts, like the labels.
            description: ArenaStr::default(),
            labels: None,
            agent_choice: AgentChoice::default(),
            state_name: "Open".to_owned(),
            status_category: match stage.is_in_progress() {
                true => StatusCategory::Started,
                false => StatusCategory::Unstarted,
            },
            open_blockers: Vec::new(),
            related,
            trigger_author: TriggerAuthor::Trusted,
            has_trigger,
            updated_at: Some(node.updated_at),
        };
        Some(PolledIssue {
            flagged,
            repo: self.repo,
            updated_at: node.updated_at,
            has_blockers: node.issue_dependencies_summary.total_blocked_by > 0,
            is_open_to_strangers: self.is_open_to_strangers,
        })
    }
}

/// Pages of a repository.
#[derive(Deserialize)]
pub(super) struct RepoPages {
    visibility: String,
    /// Lists by their response keys.
    #[serde(flatten)]
    lists: HashMap<String, IssueList>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssueList {
    nodes: Vec<Option<IssueNode>>,
    page_info: PageInfo,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssueNode {
    id: IssueId,
    number: u64,
    #[serde(deserialize_with = "sanitized_title")]
    title: String,
    url: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    parent: Option<RelatedIssue>,
    issue_dependencies_summary: Dependencies,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dependencies {
    total_blocked_by: u64,
}

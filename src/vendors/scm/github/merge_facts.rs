//! Facts about the head of a pull request that decide whether it is merged.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::VendorError;
use domain::feedback::{FeedbackAuthor, MergeState, PullRequestId};
use domain::merge_policy::{ChangedFile, ReviewOpinion};

use super::GitHub;
use super::merging::{Login, MergeStatus, PullStatusNode, STATUS_FIELDS};

/// Maximum number of pages of changed files that are read, of 100 files each.
const MAX_FILE_PAGES: usize = 3;

/// Beginning of the lines of a diff about the commit of a submodule.
const SUBMODULE_LINES: [&str; 2] = ["-Subproject commit ", "+Subproject commit "];

/// Review with an opinion, the latest of its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpinionatedReview {
    /// Author.
    pub author: FeedbackAuthor,
    /// Opinion.
    pub opinion: ReviewOpinion,
    /// SHA of the commit that was reviewed. Empty if the host does not name it.
    pub commit: String,
}

/// Facts about an open or closed pull request and its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullMergeFacts {
    /// State, and what merges it.
    pub status: MergeStatus,
    /// Target branch.
    pub base: String,
    /// Whether the head branch is in the repository itself, not in a fork.
    pub is_from_own_repo: bool,
    /// Draft flag.
    pub is_draft: bool,
    /// Whether it can be merged without conflicts. `None` while the host computes that.
    pub is_mergeable: Option<bool>,
    /// Author.
    pub author: Option<FeedbackAuthor>,
    /// Latest review with an opinion of each account.
    pub reviews: Vec<OpinionatedReview>,
    /// Number of conversations that nobody has resolved.
    pub unresolved_threads: usize,
    /// Whether there are more reviews or conversations.
    pub is_incomplete: bool,
    /// Number of changed files.
    pub changed_files: u32,
    /// Number of added and removed lines.
    pub changed_lines: u32,
}

impl GitHub {
    /// Returns the facts about a pull request. Takes one request.
    ///
    /// # Errors
    /// `is_not_found()` if no pull request has this number.
    pub async fn merge_facts(&self, pull: &PullRequestId) -> Result<PullMergeFacts, VendorError> {
        let query = format!(
            "query($owner: String!, $name: String!, $number: Int!) {{ viewer {{ login }} \
             repository(owner: $owner, name: $name) {{ autoMergeAllowed pullRequest(number: $number) {{ \
             {STATUS_FIELDS} baseRefName isCrossRepository isDraft mergeable changedFiles additions deletions \
             author {{ __typename login }} \
             latestOpinionatedReviews(first: 100) {{ pageInfo {{ hasNextPage }} nodes {{ \
             state author {{ __typename login }} commit {{ oid }} }} }} \
             reviewThreads(first: 100) {{ pageInfo {{ hasNextPage }} nodes {{ isResolved }} }} }} }} }}"
        );
        let (repo, number) = (&pull.repo, pull.number);
        let variables = json!({"owner": repo.owner, "name": repo.name, "number": number});
        let action = "reading the facts about a merge";
        let data: QueryData = self.graphql(repo, action, &query, &variables).await?;
        Ok(data.translate())
    }

    /// Returns the changed files of a pull request, at most 300.
    ///
    /// # Errors
    /// Fails if a page cannot be read.
    pub async fn changed_files(
        &self,
        pull: &PullRequestId,
    ) -> Result<Vec<ChangedFile>, VendorError> {
        let mut files = Vec::new();
        for page in 1..=MAX_FILE_PAGES {
            let path = format!("/pulls/{}/files?per_page=100&page={page}", pull.number);
            let url = self.repo_url(&pull.repo, &path);
            let listed = self
                .read::<Vec<WireFile>>(&pull.repo, "listing changed files", url)
                .await?;
            let is_last = listed.next.is_none();
            files.extend(listed.value.into_iter().map(WireFile::translate));
            if is_last {
                break;
            }
        }
        Ok(files)
    }
}

#[derive(Deserialize)]
struct QueryData {
    viewer: Login,
    repository: RepositoryNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepositoryNode {
    auto_merge_allowed: bool,
    pull_request: PullNode,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullNode {
    #[serde(flatten)]
    status: PullStatusNode,
    base_ref_name: String,
    is_cross_repository: bool,
    is_draft: bool,
    mergeable: String,
    changed_files: u32,
    additions: u32,
    deletions: u32,
    author: Option<Actor>,
    latest_opinionated_reviews: Option<Page<ReviewNode>>,
    review_threads: Page<ThreadNode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    page_info: PageInfo,
    nodes: Vec<Option<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
}

#[derive(Deserialize)]
struct Actor {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
}

impl Actor {
    /// Returns the account. Only accounts of the type `User` are people.
    fn translate(self) -> FeedbackAuthor {
        FeedbackAuthor::from_account(&self.login, self.kind != "User")
    }
}

#[derive(Deserialize)]
struct ReviewNode {
    state: String,
    author: Option<Actor>,
    commit: Option<Commit>,
}

#[derive(Deserialize)]
struct Commit {
    oid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThreadNode {
    is_resolved: bool,
}

impl QueryData {
    fn translate(self) -> PullMergeFacts {
        let pull = self.repository.pull_request;
        let reviews = pull.latest_opinionated_reviews;
        let has_more_reviews = reviews
            .as_ref()
            .is_some_and(|page| page.page_info.has_next_page);
        let reviews = reviews.map(|page| page.nodes).unwrap_or_default();
        let threads = pull.review_threads;
        let unresolved = threads.nodes.iter().flatten();
        PullMergeFacts {
            base: pull.base_ref_name,
            is_from_own_repo: !pull.is_cross_repository,
            is_draft: pull.is_draft,
            is_mergeable: match pull.mergeable.as_str() {
                "MERGEABLE" => Some(true),
                "CONFLICTING" => Some(false),
                _ => None,
            },
            author: pull.author.map(Actor::translate),
            reviews: reviews
                .into_iter()
                .flatten()
                .filter_map(ReviewNode::translate)
                .collect(),
            unresolved_threads: unresolved.filter(|thread| !thread.is_resolved).count(),
            is_incomplete: has_more_reviews || threads.page_info.has_next_page,
            changed_files: pull.changed_files,
            changed_lines: pull.additions.saturating_add(pull.deletions),
            status: pull
                .status
                .translate(self.viewer, self.repository.auto_merge_allowed),
        }
    }
}

impl ReviewNode {
    fn translate(self) -> Option<OpinionatedReview> {
        Some(OpinionatedReview {
            author: self.author?.translate(),
            opinion: match self.state.as_str() {
                "APPROVED" => ReviewOpinion::Approves,
                "CHANGES_REQUESTED" => ReviewOpinion::RequestsChanges,
                _ => return None,
            },
            commit: self.commit.map(|commit| commit.oid).unwrap_or_default(),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct WireFile {
    filename: String,
    #[serde(default)]
    previous_filename: Option<String>,
    #[serde(default)]
    changes: u32,
    /// Whether the diff is about the commit of a submodule. The list does not contain modes of files.
    #[serde(default, rename = "patch", deserialize_with = "is_submodule_patch")]
    is_submodule: bool,
}

/// Reads from a cached page whether it was about a submodule, and from a page of the host its diff.
fn is_submodule_patch<'de, D: serde::Deserializer<'de>>(patch: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Patch {
        Cached(bool),
        Text(String),
        None(()),
    }
    Ok(match Patch::deserialize(patch)? {
        Patch::Cached(is_submodule) => is_submodule,
        Patch::Text(patch) => patch.lines().any(|line| {
            let mut beginnings = SUBMODULE_LINES.iter();
            beginnings.any(|beginning| line.starts_with(beginning))
        }),
        Patch::None(()) => false,
    })
}

impl WireFile {
    fn translate(self) -> ChangedFile {
        ChangedFile {
            path: self.filename,
            previous_path: self.previous_filename,
            lines: self.changes,
            is_submodule: self.is_submodule,
        }
    }
}

/// Returns whether the host merges a pull request in this state at once.
pub(super) fn is_mergeable_now(state: Option<MergeState>) -> bool {
    !matches!(state, Some(MergeState::Blocked | MergeState::Behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_submodules_in_pages_of_the_host_and_of_the_cache() {
        let file = |patch: serde_json::Value| -> WireFile {
            serde_json::from_value(json!({"filename": "a", "changes": 2, "patch": patch})).unwrap()
        };
        let submodule = file(json!(
            "@@ -1 +1 @@\n-Subproject commit aaaa\n+Subproject commit bbbb"
        ));
        let cached: WireFile =
            serde_json::from_value(serde_json::to_value(&submodule).unwrap()).unwrap();
        assert!(cached.translate().is_submodule);
        assert!(!file(json!("@@ -1 +1 @@\n-a\n+b")).is_submodule);
        assert!(!file(json!(null)).is_submodule);
        let without: WireFile = serde_json::from_value(json!({"filename": "a"})).unwrap();
        assert!(!without.is_submodule);
    }
}

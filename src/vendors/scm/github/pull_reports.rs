//! State, feedback and changed files of several pull requests, read in one request.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::json;

use crate::http::VendorError;
use domain::feedback::PullRequestReadiness;
use domain::ids::Repo;

use super::changed_paths::FilesNode;
use super::pull_feedback::FeedbackNode;
use super::pull_readiness::ReadinessNode;
use super::{
    ChangedPaths, GitHub, PullRequestFeedback, changed_paths, pull_feedback, pull_readiness,
};

/// Maximum number of pull requests per request.
const MAX_PULLS_PER_REQUEST: usize = 25;

/// Pull requests of a repository by what is to be read of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullRequestSelection {
    /// All of them. Their state is read.
    pub numbers: BTreeSet<u64>,
    /// Those whose feedback is read, too.
    pub feedback: BTreeSet<u64>,
    /// Those whose changed files are read, too.
    pub files: BTreeSet<u64>,
}

impl PullRequestSelection {
    /// Returns the selection of the pull requests with these numbers, with nothing but their state.
    pub fn of_state(numbers: impl IntoIterator<Item = u64>) -> Self {
        Self {
            numbers: numbers.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Returns the parts of the selection, each for one request.
    pub fn requests(&self) -> Vec<Self> {
        let numbers: Vec<u64> = self.numbers.iter().copied().collect();
        let parts = numbers.chunks(MAX_PULLS_PER_REQUEST);
        parts.map(|part| self.restricted_to(part)).collect()
    }

    /// Returns the halves of the selection, or `None` for a single pull request.
    pub fn halves(&self) -> Option<[Self; 2]> {
        let numbers: Vec<u64> = self.numbers.iter().copied().collect();
        let (first, second) = numbers.split_at(numbers.len() / 2);
        let is_split = !first.is_empty();
        is_split.then(|| [self.restricted_to(first), self.restricted_to(second)])
    }

    fn restricted_to(&self, numbers: &[u64]) -> Self {
        let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
        Self {
            feedback: &self.feedback & &numbers,
            files: &self.files & &numbers,
            numbers,
        }
    }
}

/// What was read of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestReport {
    /// Whether it is a draft.
    pub is_draft: bool,
    /// State of the pull request and of its head commit.
    pub readiness: PullRequestReadiness,
    /// Feedback, if it was selected.
    pub feedback: Option<PullRequestFeedback>,
    /// Paths of the changed files, if they were selected.
    pub paths: Option<ChangedPaths>,
}

impl GitHub {
    /// Reads pull requests of a repository, by number. Takes one request, for at most 25 pull requests.
    ///
    /// # Errors
    /// `is_not_found()` if one of the pull requests does not exist.
    pub async fn pull_reports(
        &self,
        repo: &Repo,
        selection: &PullRequestSelection,
    ) -> Result<BTreeMap<u64, PullRequestReport>, VendorError> {
        let parts = [
            ("readiness", &selection.numbers, pull_readiness::FIELDS),
            ("feedback", &selection.feedback, pull_feedback::FIELDS),
            ("files", &selection.files, changed_paths::FIELDS),
        ];
        let parts = parts
            .into_iter()
            .filter(|(_, numbers, _)| !numbers.is_empty());
        let parts: String = parts
            .map(|(name, numbers, fields)| {
                let pulls = numbers.iter();
                let pulls: String = pulls
                    .map(|number| {
                        format!("p{number}: pullRequest(number: {number}) {{ {fields} }} ")
                    })
                    .collect();
                format!("{name}: repository(owner: $owner, name: $name) {{ {pulls}}} ")
            })
            .collect();
        let query = format!("query($owner: String!, $name: String!) {{ {parts}}}");
        let variables = json!({"owner": repo.owner, "name": repo.name});
        let action = "reading pull requests";
        let mut data: Data = self.graphql(repo, action, &query, &variables).await?;
        let report = |number: u64| {
            let key = format!("p{number}");
            let state = data.readiness.remove(&key)?;
            let report = PullRequestReport {
                is_draft: state.is_draft,
                readiness: state.translate(),
                feedback: data.feedback.remove(&key).map(FeedbackNode::translate),
                paths: data.files.remove(&key).map(FilesNode::translate),
            };
            Some((number, report))
        };
        Ok(selection
            .numbers
            .iter()
            .copied()
            .filter_map(report)
            .collect())
    }
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    readiness: BTreeMap<String, ReadinessNode>,
    #[serde(default)]
    feedback: BTreeMap<String, FeedbackNode>,
    #[serde(default)]
    files: BTreeMap<String, FilesNode>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_selection_for_requests() {
        let selection = PullRequestSelection {
            numbers: (1..=60).collect(),
            feedback: [2, 30].into(),
            files: [26, 60].into(),
        };
        let requests = selection.requests();
        let sizes: Vec<_> = requests.iter().map(|part| part.numbers.len()).collect();
        assert_eq!(sizes, [25, 25, 10]);
        assert_eq!(requests[1].feedback, [30].into());
        assert_eq!(requests[2].files, [60].into());

        let [first, second] = requests[2].halves().unwrap();
        assert_eq!((first.numbers.len(), second.numbers.len()), (5, 5));
        assert!(first.files.is_empty() && second.files.contains(&60));
        assert_eq!(PullRequestSelection::of_state([7]).halves(), None);
        assert_eq!(PullRequestSelection::default().halves(), None);
    }
}

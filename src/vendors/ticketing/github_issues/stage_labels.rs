//! Labels of a stage. GitHub has no started state that an issue could be moved to.
//!
//! The labels of the issue are read first, and only the difference is written, label by label: people and
//! other programs change labels at the same time. The new label is added first, so that the issue always
//! has a marker.

use serde::Deserialize;
use serde_json::json;

use super::{Connection, GitHubIssues, IssueAddress, Label};
use crate::http::VendorError;
use crate::scm::NewLabel;
use domain::issue::IssueRef;
use domain::stage::{LabelChange, Stage, TRIGGER_LABEL};

const ACTION: &str = "setting the labels of the issue";

/// Color of created labels: gray, unlike most labels of people.
const LABEL_COLOR: &str = "6b7280";

/// GitHub allows 100 labels per issue.
const READ: &str = "\
query($owner: String!, $name: String!, $number: Int!, $label: String!) {
  repository(owner: $owner, name: $name) {
    label(name: $label) { name }
    issue(number: $number) { labels(first: 100) { nodes { name } } }
  }
}";

impl GitHubIssues {
    /// Sets the labels of an issue to a stage. Takes one read and one write per changed label.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn set_stage(&self, issue: &IssueRef, stage: Stage) -> Result<(), VendorError> {
        let IssueAddress { repo, number } = IssueAddress::of(issue, ACTION)?;
        let change = stage.label_change();
        let variables = json!({
            "owner": repo.owner, "name": repo.name, "number": number,
            "label": change.add.unwrap_or(TRIGGER_LABEL),
        });
        let current: Current = self.github.graphql(&repo, ACTION, READ, &variables).await?;
        let labels = current.repository.issue.labels.into_nodes();
        let labels: Vec<String> = labels.map(|label| label.name).collect();
        let update = LabelUpdate::plan(&change, &labels);
        if let Some(name) = update.add {
            if current.repository.label.is_none() {
                self.github.create_label(&repo, &new_label(name)).await?;
            }
            self.github.add_label(&repo, number, name).await?;
        }
        for name in update.remove {
            self.github.remove_label(&repo, number, name).await?;
        }
        Ok(())
    }
}

/// Returns a label of the service, as it is created in a repository.
fn new_label(name: &'static str) -> NewLabel {
    let description = match name {
        TRIGGER_LABEL => "Agent Implement opens a pull request for this issue",
        "Agent-Planning" => "Agent Implement is planning the change",
        "Plan-Complete" => "The plan is in the comments",
        "Plan-Approved" => "The plan is approved; Agent Implement makes the change next",
        "Agent-Waiting" => "Agent Implement has asked a question in the comments",
        "Agent-Working" => "Agent Implement is working on the change",
        _ => "Agent Implement has opened a pull request",
    };
    NewLabel {
        name,
        color: LABEL_COLOR,
        description,
    }
}

/// Labels to add to and to remove from an issue.
#[derive(Debug, PartialEq, Eq)]
struct LabelUpdate<'l> {
    add: Option<&'static str>,
    remove: Vec<&'l str>,
}

impl<'l> LabelUpdate<'l> {
    /// Compares names as GitHub does: without case.
    fn plan(change: &LabelChange, labels: &'l [String]) -> Self {
        let is_set = |name: &str| labels.iter().any(|label| label.eq_ignore_ascii_case(name));
        let is_surplus = |label: &&String| {
            let mut names = change.remove.iter();
            names.any(|name| name.eq_ignore_ascii_case(label))
        };
        Self {
            add: change.add.filter(|name| !is_set(name)),
            remove: labels
                .iter()
                .filter(is_surplus)
                .map(String::as_str)
                .collect(),
        }
    }
}

#[derive(Deserialize)]
struct Current {
    repository: CurrentRepository,
}

#[derive(Deserialize)]
struct CurrentRepository {
    /// Label to add, if the repository has it.
    label: Option<Label>,
    issue: CurrentIssue,
}

#[derive(Deserialize)]
struct CurrentIssue {
    labels: Connection<Label>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::stage::ALL_LABELS;

    #[test]
    fn writes_only_the_difference() {
        let labels = ["bug", "agent-implement", "Agent-Planning"].map(str::to_owned);
        let plan = |stage: Stage| {
            let update = LabelUpdate::plan(&stage.label_change(), &labels);
            (update.add, update.remove.join(" "))
        };
        assert_eq!(
            plan(Stage::PlanComplete),
            (Some("Plan-Complete"), "Agent-Planning".to_owned())
        );
        assert_eq!(plan(Stage::Planning), (None, String::new()));
        assert_eq!(
            plan(Stage::PlanningFailed),
            (None, "agent-implement Agent-Planning".to_owned())
        );
        assert_eq!(
            plan(Stage::Retriggered),
            (None, "Agent-Planning".to_owned())
        );
    }

    #[test]
    fn labels_have_different_descriptions() {
        let mut descriptions = ALL_LABELS.map(|name| new_label(name).description);
        descriptions.sort_unstable();
        assert!(descriptions.windows(2).all(|pair| pair[0] != pair[1]));
        // GitHub allows 100 characters.
        assert!(descriptions.iter().all(|text| text.len() <= 100));
    }
}

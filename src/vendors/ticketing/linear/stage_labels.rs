//! Labels of a stage, and the move of an issue to a started state when work begins.
//!
//! People may change labels at the same time. The labels of the issue are read first and only the
//! difference is written. If the write is rejected, the issue has probably changed: it is read and written
//! once more.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http::{VendorError, VendorErrorKind};
use domain::issue::IssueRef;
use domain::stage::{ALL_LABELS, LabelChange, Stage};

use super::Linear;

const ACTION: &str = "setting the labels of the issue";

/// Color of created labels: gray, unlike most labels of people.
const LABEL_COLOR: &str = "#6b7280";

/// State types of issues that are moved to a started state when work begins.
const NOT_STARTED: [&str; 3] = ["triage", "backlog", "unstarted"];

const READ: &str = "\
query($id: String!, $ours: [String!]!, $label: String!, $team: String!) {
  issue(id: $id) {
    archivedAt trashed
    state { type }
    team { id key states(first: 50, filter: { type: { eq: \"started\" } }) { nodes { id type position } } }
    labels(first: 20, filter: { name: { in: $ours } }) { nodes { id name } }
  }
  issueLabels(
    first: 50,
    filter: { name: { eq: $label }, or: [{ team: { null: true } }, { team: { key: { eq: $team } } }] }
  ) { nodes { id name isGroup archivedAt retiredAt team { id } } }
}";

const CREATE_LABEL: &str = "\
mutation($input: IssueLabelCreateInput!) {
  issueLabelCreate(input: $input) { success issueLabel { id } }
}";

impl Linear {
    /// Sets the labels of an issue to a stage, and moves the issue to a started state when work begins. Takes
    /// one read and at most one write, unless a label must be created first.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist or is archived.
    pub async fn set_stage(&self, issue: &IssueRef, stage: Stage) -> Result<(), VendorError> {
        let change = stage.label_change();
        // The team of the key is wrong only for an issue that was moved to another team.
        let (key_team, _) = issue.key.as_str().rsplit_once('-').unwrap_or_default();
        let mut team = key_team.to_owned();
        let mut rejection = None;
        for _ in 0..3 {
            let current = read(self, issue, &change, &team).await?;
            if current.issue.team.key != team {
                team = current.issue.team.key;
                continue;
            }
            let label = match (change.add, current.label_to_add(&change)) {
                (Some(name), None) if !current.has_label(name) => {
                    Some(create_label(self, issue, &current, name, &change).await?)
                }
                (_, label) => label,
            };
            let update = IssueUpdate::plan(&current.issue, &change, label, stage);
            if update.is_empty() {
                return Ok(());
            }
            match update.write(self, issue).await {
                Err(error) if error.is_permanent() && rejection.is_none() => {
                    rejection = Some(error)
                }
                // The issue existed in the read just before, so a label is missing.
                Err(error) if error.is_not_found() => return Err(conflict(error)),
                outcome => return outcome,
            }
        }
        let unstable = || {
            let cause = "the issue changed during every attempt".to_owned();
            VendorError::new(
                self.client.vendor(),
                ACTION,
                VendorErrorKind::Transport(cause),
            )
        };
        Err(rejection.map_or_else(unstable, conflict))
    }
}

async fn read(
    linear: &Linear,
    issue: &IssueRef,
    change: &LabelChange,
    team: &str,
) -> Result<CurrentState, VendorError> {
    let variables = json!({
        "id": issue.id,
        "ours": ALL_LABELS,
        "label": change.add.unwrap_or_default(),
        "team": team,
    });
    let current: CurrentState = linear
        .execute(linear.query(ACTION, READ, variables))
        .await?;
    if current.issue.archived_at.is_some() || current.issue.trashed == Some(true) {
        let kind = VendorErrorKind::Status {
            status: 404,
            message: "the issue is archived".into(),
            retry_after: None,
        };
        return Err(VendorError::new(linear.client.vendor(), ACTION, kind));
    }
    Ok(current)
}

/// Creates a label for the team of the issue. If the label was created concurrently, uses the existing one.
async fn create_label(
    linear: &Linear,
    issue: &IssueRef,
    current: &CurrentState,
    name: &str,
    change: &LabelChange,
) -> Result<String, VendorError> {
    let input = json!({"name": name, "teamId": current.issue.team.id, "color": LABEL_COLOR});
    let request = linear.mutation(
        "creating the label",
        CREATE_LABEL,
        json!({ "input": input }),
    );
    match linear.execute::<Created>(request).await {
        Ok(created) => Ok(created.issue_label_create.issue_label.id),
        Err(error) if error.is_permanent() => {
            let reread = read(linear, issue, change, &current.issue.team.key).await?;
            reread.label_to_add(change).ok_or(error)
        }
        Err(error) => Err(error),
    }
}

/// Changes status 404 to 409, so that callers do not treat the issue as deleted.
fn conflict(mut error: VendorError) -> VendorError {
    if let VendorErrorKind::Status { status, .. } = &mut error.kind
        && *status == 404
    {
        *status = 409;
    }
    error
}

/// Changes to write, as ids of labels and states.
#[derive(Debug, PartialEq, Eq)]
struct IssueUpdate {
    add: Option<String>,
    remove: Vec<String>,
    state: Option<String>,
}

impl IssueUpdate {
    fn plan(issue: &Issue, change: &LabelChange, label: Option<String>, stage: Stage) -> Self {
        let labels = &issue.labels.nodes;
        let has = |name: &str| labels.iter().any(|label| label.name == name);
        let starts_work =
            stage.is_in_progress() && NOT_STARTED.contains(&issue.state.kind.as_str());
        let mut started: Vec<&StartedState> = issue
            .team
            .states
            .nodes
            .iter()
            .filter(|state| state.kind == "started")
            .collect();
        started.sort_by(|a, b| a.position.total_cmp(&b.position));
        Self {
            add: label.filter(|_| change.add.is_some_and(|name| !has(name))),
            remove: labels
                .iter()
                .filter(|label| change.remove.contains(&label.name.as_str()))
                .map(|label| label.id.clone())
                .collect(),
            state: started
                .first()
                .filter(|_| starts_work)
                .map(|state| state.id.clone()),
        }
    }

    fn is_empty(&self) -> bool {
        self.add.is_none() && self.remove.is_empty() && self.state.is_none()
    }

    /// Writes all changes in one request. The server executes its mutations in order. The new label is added
    /// first, so that the issue always has a marker.
    async fn write(&self, linear: &Linear, issue: &IssueRef) -> Result<(), VendorError> {
        let mut parameters = String::from("$id: String!");
        let mut fields = String::new();
        let mut variables = Map::from_iter([("id".to_owned(), json!(issue.id))]);
        if let Some(label) = &self.add {
            parameters += ", $add: String!";
            fields += "add: issueAddLabel(id: $id, labelId: $add) { success } ";
            variables.insert("add".into(), json!(label));
        }
        for (at, label) in self.remove.iter().enumerate() {
            parameters += &format!(", $remove{at}: String!");
            fields += &format!(
                "remove{at}: issueRemoveLabel(id: $id, labelId: $remove{at}) {{ success }} "
            );
            variables.insert(format!("remove{at}"), json!(label));
        }
        if let Some(state) = &self.state {
            parameters += ", $state: String!";
            fields += "start: issueUpdate(id: $id, input: { stateId: $state }) { success } ";
            variables.insert("state".into(), json!(state));
        }
        let query = format!("mutation({parameters}) {{ {fields}}}");
        let request = linear.mutation(ACTION, &query, Value::Object(variables));
        linear.execute::<Value>(request).await.map(drop)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CurrentState {
    issue: Issue,
    issue_labels: Nodes<TeamLabel>,
}

#[derive(Deserialize)]
struct Nodes<T> {
    nodes: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Issue {
    archived_at: Option<String>,
    trashed: Option<bool>,
    state: State,
    team: Team,
    labels: Nodes<Label>,
}

#[derive(Deserialize)]
struct State {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Team {
    id: String,
    key: String,
    states: Nodes<StartedState>,
}

#[derive(Deserialize)]
struct StartedState {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    position: f64,
}

#[derive(Deserialize)]
struct Label {
    id: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TeamLabel {
    id: String,
    name: String,
    is_group: bool,
    archived_at: Option<String>,
    retired_at: Option<String>,
    team: Option<TeamId>,
}

#[derive(Deserialize)]
struct TeamId {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Created {
    issue_label_create: CreatedLabel,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreatedLabel {
    issue_label: TeamId,
}

impl CurrentState {
    fn has_label(&self, name: &str) -> bool {
        self.issue
            .labels
            .nodes
            .iter()
            .any(|label| label.name == name)
    }

    /// Returns the usable label to add: the team's label before the workspace's, never another team's.
    fn label_to_add(&self, change: &LabelChange) -> Option<String> {
        let name = change.add?;
        let is_usable = |label: &&TeamLabel| {
            label.name == name
                && !label.is_group
                && label.archived_at.is_none()
                && label.retired_at.is_none()
        };
        let labels = self.issue_labels.nodes.iter().filter(is_usable);
        labels
            .filter(|label| match &label.team {
                None => true,
                Some(team) => team.id == self.issue.team.id,
            })
            .max_by_key(|label| label.team.is_some())
            .map(|label| label.id.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(state: &str, labels: &[&str]) -> CurrentState {
        let labels: Vec<_> = labels
            .iter()
            .map(|name| json!({"id": format!("l-{name}"), "name": name}))
            .collect();
        let label = |id: &str, group: bool, retired: Option<&str>, team: Option<&str>| {
            json!({
                "id": id, "name": "Agent-Working", "isGroup": group, "archivedAt": null,
                "retiredAt": retired, "team": team.map(|id| json!({"id": id})),
            })
        };
        serde_json::from_value(json!({
            "issue": {
                "archivedAt": null, "trashed": null, "state": {"type": state},
                "team": {"id": "t1", "key": "ENG", "states": {"nodes": [
                    {"id": "s2", "type": "started", "position": 2.0},
                    {"id": "s1", "type": "started", "position": 1.0},
                ]}},
                "labels": {"nodes": labels},
            },
            "issueLabels": {"nodes": [
                label("others", false, None, Some("t2")),
                label("group", true, None, Some("t1")),
                label("retired", false, Some("2026-01-01"), Some("t1")),
                label("workspace", false, None, None),
            ]},
        }))
        .unwrap()
    }

    fn update(state: &str, labels: &[&str], stage: Stage) -> IssueUpdate {
        let current = current(state, labels);
        let change = stage.label_change();
        let label = current.label_to_add(&change);
        IssueUpdate::plan(&current.issue, &change, label, stage)
    }

    #[test]
    fn writes_only_the_difference() {
        let started = update("backlog", &["Agent-Implement"], Stage::Implementing);
        assert_eq!(
            started,
            IssueUpdate {
                add: Some("workspace".into()),
                remove: vec![],
                state: Some("s1".into())
            }
        );
        let repeated = update(
            "started",
            &["Agent-Implement", "Agent-Working"],
            Stage::Implementing,
        );
        assert!(repeated.is_empty(), "{repeated:?}");
        let failed = update(
            "backlog",
            &["Agent-Implement", "Agent-Working"],
            Stage::ImplementationFailed,
        );
        assert_eq!(failed.remove, ["l-Agent-Implement", "l-Agent-Working"]);
        assert_eq!((failed.add, failed.state), (None, None));
    }
}

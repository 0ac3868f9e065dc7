//! An issue as search shows it, and what it says.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use domain::ids::{IssueId, IssueKey};
use domain::issue::{IssueRef, OpenBlocker, RelatedIssues, StatusCategory, System};
use domain::time::Timestamp;

use super::adf;
use super::fields::FieldId;
use crate::ticketing::without_secrets;

/// What to ask for, that [`Fields`] can be read.
pub(super) fn requested_fields(custom: impl IntoIterator<Item = FieldId>) -> Vec<String> {
    let plain = [
        "summary",
        "description",
        "status",
        "priority",
        "created",
        "issuelinks",
        "parent",
    ];
    let custom = custom.into_iter().map(FieldId::id);
    plain.map(str::to_owned).into_iter().chain(custom).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    #[serde(default)]
    pub issues: Vec<Issue>,
    pub next_page_token: Option<String>,
    #[serde(default)]
    pub is_last: bool,
}

#[derive(Deserialize)]
pub(super) struct Issue {
    pub id: String,
    pub key: String,
    pub fields: Fields,
}

#[derive(Deserialize)]
pub(super) struct Fields {
    #[serde(default, deserialize_with = "without_secrets")]
    summary: String,
    description: Option<Value>,
    pub status: Status,
    pub priority: Option<Named>,
    pub created: Timestamp,
    #[serde(default)]
    issuelinks: Vec<Link>,
    pub parent: Option<RelatedIssue>,
    #[serde(flatten)]
    pub custom: HashMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub name: String,
    status_category: Option<Category>,
}

#[derive(Deserialize)]
struct Category {
    key: String,
}

#[derive(Deserialize)]
pub(super) struct Named {
    pub name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    #[serde(rename = "type")]
    kind: LinkType,
    inward_issue: Option<RelatedIssue>,
    outward_issue: Option<RelatedIssue>,
}

#[derive(Deserialize)]
struct LinkType {
    name: String,
    inward: String,
    outward: String,
}

/// An issue beside the one we read.
#[derive(Deserialize)]
pub(super) struct RelatedIssue {
    pub key: String,
    pub fields: RelatedIssueFields,
}

#[derive(Deserialize)]
pub(super) struct RelatedIssueFields {
    #[serde(default, deserialize_with = "without_secrets")]
    pub summary: String,
    pub status: Option<Status>,
}

impl Status {
    pub(super) fn is_done(&self) -> bool {
        let category = self.status_category.as_ref();
        category.is_some_and(|category| category.key == "done")
    }
}

impl Status {
    /// A closed issue does not say whether it was done or given up.
    pub(super) fn progress(&self) -> StatusCategory {
        match self
            .status_category
            .as_ref()
            .map(|category| category.key.as_str())
        {
            Some("indeterminate") => StatusCategory::Started,
            Some("done") => StatusCategory::Completed,
            _ => StatusCategory::Unstarted,
        }
    }
}

impl Link {
    fn is_blocking(&self) -> bool {
        self.kind.name.eq_ignore_ascii_case("Blocks")
            || self.kind.inward.eq_ignore_ascii_case("is blocked by")
    }
}

impl RelatedIssue {
    fn line(&self) -> String {
        summary_line(&self.key, &self.fields)
    }

    fn is_open(&self) -> bool {
        !self.fields.status.as_ref().is_some_and(Status::is_done)
    }
}

/// An issue in a line of text.
pub(super) fn summary_line(key: &str, fields: &RelatedIssueFields) -> String {
    let title = &fields.summary;
    let state = fields
        .status
        .as_ref()
        .map_or("?", |status| status.name.as_str());
    format!("{key}: {title} ({state})")
}

impl Issue {
    /// `status` is the field by which the issue was found.
    pub(super) fn issue_ref(&self, site: &str, status: FieldId) -> IssueRef {
        IssueRef {
            system: System::Jira,
            id: IssueId::new(&self.id),
            key: IssueKey::new(&self.key),
            title: self.fields.summary.clone(),
            url: format!("{site}/browse/{}", self.key),
            marker_field: Some(status.id()),
        }
    }
}

impl Fields {
    /// The description, in Markdown.
    pub(super) fn description_markdown(&self) -> String {
        let description = self.description.as_ref();
        description.map(adf::to_markdown).unwrap_or_default()
    }

    /// What a field says: a select field one value, another kind perhaps several.
    pub(super) fn field_values(&self, field: FieldId) -> Vec<String> {
        let mut values = Vec::new();
        if let Some(value) = self.custom.get(&field.id()) {
            gather(value, &mut values);
        }
        values
    }

    pub(super) fn open_blockers(&self) -> Vec<OpenBlocker> {
        let blocking = self.issuelinks.iter().filter(|link| link.is_blocking());
        blocking
            .filter_map(|link| link.inward_issue.as_ref())
            .filter(|blocker| blocker.is_open())
            .map(|blocker| OpenBlocker {
                key: IssueKey::new(&blocker.key),
                title: blocker.fields.summary.clone(),
            })
            .collect()
    }

    pub(super) fn related(&self) -> RelatedIssues {
        let dependencies = self.issuelinks.iter().filter_map(|link| {
            let (word, other) = match (&link.inward_issue, &link.outward_issue) {
                (Some(other), _) => (&link.kind.inward, other),
                (None, Some(other)) => (&link.kind.outward, other),
                (None, None) => return None,
            };
            Some(format!(
                "{} {}",
                word.trim_start_matches("is "),
                other.line()
            ))
        });
        RelatedIssues {
            parent: self.parent.as_ref().map(RelatedIssue::line),
            siblings: Vec::new(),
            dependencies: dependencies.collect(),
        }
    }
}

fn gather(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.trim().to_owned()),
        Value::Object(option) => {
            let text = option.get("value").and_then(Value::as_str);
            into.extend(text.map(|text| text.trim().to_owned()));
        }
        Value::Array(values) => values.iter().for_each(|value| gather(value, into)),
        _ => {}
    }
}

/// Sites name their priorities as they like; those of Jira's own schemes are known, any other is in
/// the middle, and none comes last.
pub(super) fn priority(told: Option<&Named>) -> u8 {
    let Some(told) = told else {
        return 6;
    };
    match told.name.to_lowercase().as_str() {
        "highest" | "blocker" | "critical" | "urgent" => 1,
        "high" | "major" => 2,
        "low" | "minor" => 4,
        "lowest" | "trivial" => 5,
        _ => 3,
    }
}

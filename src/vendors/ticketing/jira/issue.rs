//! Issue types of Jira's search, and their conversion to domain types.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use domain::ids::{IssueId, IssueKey};
use domain::issue::{IssueRef, OpenBlocker, RelatedIssues, StatusCategory, System};
use domain::time::Timestamp;

use super::adf;
use super::fields::FieldId;
use crate::ticketing::sanitized_title;

/// Returns the names of the fields to request for [`Fields`].
pub(super) fn requested_fields(custom: impl IntoIterator<Item = FieldId>) -> Vec<String> {
    let plain = [
        "summary",
        "description",
        "status",
        "priority",
        "created",
        "updated",
        "issuelinks",
        "parent",
        "labels",
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
    #[serde(default, deserialize_with = "sanitized_title")]
    summary: String,
    description: Option<Value>,
    pub status: Status,
    pub priority: Option<Named>,
    pub created: Timestamp,
    pub updated: Option<Timestamp>,
    #[serde(default)]
    issuelinks: Vec<Link>,
    pub parent: Option<RelatedIssue>,
    #[serde(default)]
    pub labels: Vec<String>,
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

/// Parent, sibling or linked issue.
#[derive(Deserialize)]
pub(super) struct RelatedIssue {
    pub key: String,
    pub fields: RelatedIssueFields,
}

#[derive(Deserialize)]
pub(super) struct RelatedIssueFields {
    #[serde(default, deserialize_with = "sanitized_title")]
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
    /// Returns the status category. Jira does not distinguish completed from cancelled issues.
    pub(super) fn status_category(&self) -> StatusCategory {
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
    fn summary_line(&self) -> String {
        summary_line(&self.key, &self.fields)
    }

    fn is_open(&self) -> bool {
        !self.fields.status.as_ref().is_some_and(Status::is_done)
    }
}

/// Formats an issue as one line of text.
pub(super) fn summary_line(key: &str, fields: &RelatedIssueFields) -> String {
    let title = &fields.summary;
    let state = fields
        .status
        .as_ref()
        .map_or("?", |status| status.name.as_str());
    format!("{key}: {title} ({state})")
}

impl Issue {
    /// Builds the reference of the issue. `status` is the status field of its mapping.
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
    /// Returns the title.
    pub(super) fn summary(&self) -> &str {
        &self.summary
    }

    /// Returns the description in Markdown.
    pub(super) fn description_markdown(&self) -> String {
        let description = self.description.as_ref();
        description.map(adf::to_markdown).unwrap_or_default()
    }

    /// Returns the values of a field. A select field has one value, other types may have several.
    pub(super) fn field_values(&self, field: FieldId) -> Vec<String> {
        let mut values = Vec::new();
        if let Some(value) = self.custom.get(&field.id()) {
            collect_values(value, &mut values);
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
            let (relation, other) = match (&link.inward_issue, &link.outward_issue) {
                (Some(other), _) => (&link.kind.inward, other),
                (None, Some(other)) => (&link.kind.outward, other),
                (None, None) => return None,
            };
            Some(format!(
                "{} {}",
                relation.trim_start_matches("is "),
                other.summary_line()
            ))
        });
        RelatedIssues {
            parent: self.parent.as_ref().map(RelatedIssue::summary_line),
            siblings: Vec::new(),
            dependencies: dependencies.collect(),
        }
    }
}

/// Adds the texts of a field's value: a text, a selected option or several.
pub(crate) fn collect_values(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.trim().to_owned()),
        Value::Object(option) => {
            let text = option.get("value").and_then(Value::as_str);
            into.extend(text.map(|text| text.trim().to_owned()));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_values(value, into)),
        _ => {}
    }
}

/// Converts a priority to a sort key, 1 (highest) to 6 (none). The names of Jira's default schemes are
/// known; custom names are sorted in the middle.
pub(super) fn priority(priority: Option<&Named>) -> u8 {
    let Some(priority) = priority else {
        return 6;
    };
    match priority.name.to_lowercase().as_str() {
        "highest" | "blocker" | "critical" | "urgent" => 1,
        "high" | "major" => 2,
        "low" | "minor" => 4,
        "lowest" | "trivial" => 5,
        _ => 3,
    }
}

//! Lookup of custom fields by id or exact name.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Jira;
use crate::http::{VendorError, VendorErrorKind};

/// Default name of the select field for an issue's stage. A mapping can set another field.
pub(super) const STATUS_FIELD: &str = "Agent-Implement Status";

/// Default name of the select field for an issue's repository. A mapping can set another field.
pub(super) const REPO_FIELD: &str = "Agent-Implement Repo";

/// Status of the error for a missing or ambiguous field.
pub(super) const FIELD_NOT_FOUND_STATUS: u16 = 422;

/// Maximum age of cached field names. A renamed field keeps its id, so the cached entry stays usable.
const NAMES_MAX_AGE: Duration = Duration::from_secs(10 * 60);

/// Field of Jira.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JiraField {
    /// Id, such as `customfield_10050`.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Whether the field is a custom field.
    #[serde(default)]
    pub custom: bool,
}

/// Number of a custom field. Queries and request bodies use different spellings of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FieldId(u64);

impl FieldId {
    /// Parses `customfield_10050`, `cf[10050]` or `10050`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let in_query = || text.strip_prefix("cf[")?.strip_suffix(']');
        let digits = text
            .strip_prefix("customfield_")
            .or_else(in_query)
            .unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok().map(Self))?
    }

    /// Returns the id used in request bodies.
    pub(super) fn id(self) -> String {
        format!("customfield_{}", self.0)
    }

    /// Returns the name used in JQL queries.
    pub(super) fn jql_name(self) -> String {
        format!("cf[{}]", self.0)
    }
}

/// Fields of Jira with the time at which they were read.
pub(super) struct CachedFields {
    read_at: Instant,
    fields: Vec<JiraField>,
}

impl Jira {
    /// Finds the custom field with this id or exact name.
    pub(super) async fn find_field(
        &self,
        action: &'static str,
        wanted: &str,
    ) -> Result<FieldId, VendorError> {
        if let Some(id) = FieldId::parse(wanted) {
            return Ok(id);
        }
        let cached_id = self
            .cache()
            .fields
            .as_ref()
            .filter(|cached| cached.read_at.elapsed() < NAMES_MAX_AGE)
            .and_then(|cached| find_by_name(&cached.fields, wanted).ok());
        if let Some(id) = cached_id {
            return Ok(id);
        }
        let fields = self.read_fields(action).await?;
        let found = find_by_name(&fields, wanted);
        self.cache().fields = Some(CachedFields {
            read_at: Instant::now(),
            fields,
        });
        found.map_err(|message| {
            let kind = VendorErrorKind::Status {
                status: FIELD_NOT_FOUND_STATUS,
                message,
                retry_after: None,
            };
            VendorError::new(self.client.vendor(), action, kind)
        })
    }

    pub(super) async fn read_fields(
        &self,
        action: &'static str,
    ) -> Result<Vec<JiraField>, VendorError> {
        self.client.send(&self.get(action, "/field")).await?.json()
    }
}

fn find_by_name(fields: &[JiraField], wanted: &str) -> Result<FieldId, String> {
    let mut found = fields
        .iter()
        .filter(|field| field.custom && field.name == wanted)
        .filter_map(|field| FieldId::parse(&field.id));
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id),
        (None, _) => Err(missing_field_message(wanted)),
        (Some(_), Some(_)) => Err(format!(
            "Several custom fields are named '{wanted}'. Set the field id in the mapping."
        )),
    }
}

/// Returns the message for an operator about a missing field.
pub(super) fn missing_field_message(name: &str) -> String {
    format!(
        "Expected exactly one custom field named '{name}'. Create it, or set a field id in the mapping."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_all_spellings_of_a_field_id() {
        for text in ["customfield_10050", "cf[10050]", "10050", " 10050 "] {
            let id = FieldId::parse(text).unwrap();
            assert_eq!(
                (id.id().as_str(), id.jql_name().as_str()),
                ("customfield_10050", "cf[10050]")
            );
        }
        for text in ["", "summary", "customfield_", "cf[1", "Team 7", "1 OR 1"] {
            assert_eq!(FieldId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn requires_an_exact_and_unique_name() {
        let field = |id: &str, name: &str, custom| JiraField {
            id: id.into(),
            name: name.into(),
            custom,
        };
        let fields = [
            field("customfield_1", "Status", true),
            field("status", "Agent", false),
            field("customfield_2", "Agent", true),
            field("customfield_3", "Twin", true),
            field("customfield_4", "Twin", true),
        ];
        assert_eq!(find_by_name(&fields, "Agent"), Ok(FieldId(2)));
        assert!(find_by_name(&fields, "agent").is_err());
        assert!(
            find_by_name(&fields, "Twin")
                .unwrap_err()
                .contains("Several")
        );
    }
}

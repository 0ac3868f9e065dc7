//! Finding custom fields: by id, or by the exact name that people gave them.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Jira;
use crate::http::{VendorError, VendorErrorKind};

/// The select field that holds an issue's stage, unless the mapping names another.
pub(super) const STATUS_FIELD: &str = "Agent-Implement Status";

/// The select field that says which repository an issue is for, unless the mapping names another.
pub(super) const REPO_FIELD: &str = "Agent-Implement Repo";

/// The status of the error that says that there is no such field.
pub(super) const FIELD_NOT_FOUND_STATUS: u16 = 422;

/// How long do we trust the names we read? A renamed field keeps its id, so it works on till then.
const NAMES_KEPT: Duration = Duration::from_secs(10 * 60);

/// A field of Jira.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JiraField {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub custom: bool,
}

/// The number of a custom field, by which both queries and bodies name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FieldId(u64);

impl FieldId {
    /// Reads `customfield_10050`, `cf[10050]` or `10050`.
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

    /// As bodies name it.
    pub(super) fn id(self) -> String {
        format!("customfield_{}", self.0)
    }

    /// As queries name it.
    pub(super) fn jql_name(self) -> String {
        format!("cf[{}]", self.0)
    }
}

/// The fields as they were at some time.
pub(super) struct CachedFields {
    read_at: Instant,
    fields: Vec<JiraField>,
}

impl Jira {
    /// The custom field of this id or exact name.
    pub(super) async fn find_field(
        &self,
        action: &'static str,
        wanted: &str,
    ) -> Result<FieldId, VendorError> {
        if let Some(id) = FieldId::parse(wanted) {
            return Ok(id);
        }
        let kept = self
            .cache()
            .fields
            .as_ref()
            .filter(|known| known.read_at.elapsed() < NAMES_KEPT)
            .and_then(|known| by_name(&known.fields, wanted).ok());
        if let Some(id) = kept {
            return Ok(id);
        }
        let fields = self.read_fields(action).await?;
        let found = by_name(&fields, wanted);
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

fn by_name(fields: &[JiraField], wanted: &str) -> Result<FieldId, String> {
    let mut found = fields
        .iter()
        .filter(|field| field.custom && field.name == wanted)
        .filter_map(|field| FieldId::parse(&field.id));
    match (found.next(), found.next()) {
        (Some(id), None) => Ok(id),
        (None, _) => Err(missing_field_message(wanted)),
        (Some(_), Some(_)) => Err(format!(
            "Several custom fields are called '{wanted}'. Give the id of one in the mapping."
        )),
    }
}

/// What an operator is told about a field that cannot be found.
pub(super) fn missing_field_message(name: &str) -> String {
    format!("No single custom field is called '{name}'. Create one, or give an id in the mapping.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_known_by_any_spelling_of_its_id() {
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
    fn a_name_must_be_exact_and_unique() {
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
        assert_eq!(by_name(&fields, "Agent"), Ok(FieldId(2)));
        assert!(by_name(&fields, "agent").is_err());
        assert!(by_name(&fields, "Twin").unwrap_err().contains("Several"));
    }
}

//! Creation of the select fields that hold the stage and the repository of an issue.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::json;

use super::Jira;
use super::field_options::{Id, List};
use super::fields::{FIELD_NOT_FOUND_STATUS, FieldId, REPO_FIELD, STATUS_FIELD};
use super::jql::OPTIONAL_STAGES;
use crate::http::{Method, VendorError, percent_encode};
use domain::stage::Stage;

/// Type of a select list with a single choice, and the type of its search.
const SELECT_TYPE: &str = "com.atlassian.jira.plugin.system.customfieldtypes:select";
const SELECT_SEARCHER: &str =
    "com.atlassian.jira.plugin.system.customfieldtypes:multiselectsearcher";

/// Maximum number of contexts of a field that get the options.
const MAX_CONTEXTS: usize = 50;

/// Select field with the options that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectField {
    /// Name.
    pub name: &'static str,
    /// Options that it needs.
    pub options: Vec<String>,
    /// Options that are created with the others. The field is complete without them.
    pub optional: Vec<String>,
}

/// What a select field lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectFieldGap {
    /// The field does not exist.
    Field,
    /// These options do not exist.
    Options(Vec<String>),
}

impl SelectField {
    /// Returns the fields that a project needs: the stage, and the repository with one value.
    pub fn required(repo_value: &str) -> [Self; 2] {
        let mut seen = BTreeSet::new();
        let mut stages: Vec<&str> = Stage::ALL
            .into_iter()
            .filter_map(Stage::jira_status)
            .collect();
        stages.retain(|value| seen.insert(*value));
        let optional = OPTIONAL_STAGES.map(Stage::jira_status);
        let (optional, needed): (Vec<&str>, Vec<&str>) = stages
            .into_iter()
            .partition(|value| optional.contains(&Some(*value)));
        [
            Self {
                name: STATUS_FIELD,
                options: needed.into_iter().map(str::to_owned).collect(),
                optional: optional.into_iter().map(str::to_owned).collect(),
            },
            Self {
                name: REPO_FIELD,
                options: vec![repo_value.to_owned()],
                optional: Vec::new(),
            },
        ]
    }
}

impl Jira {
    /// Returns what a select field lacks. `None` if it exists with all options.
    ///
    /// # Errors
    /// Fails if Jira rejects a request or does not respond, or if several fields have the name.
    pub async fn select_field_gap(
        &self,
        field: &SelectField,
    ) -> Result<Option<SelectFieldGap>, VendorError> {
        // Somebody may have changed the fields just now.
        self.cache().fields = None;
        match self.find_field("looking up the field", field.name).await {
            Ok(_) => {}
            Err(error) if error.status() == Some(FIELD_NOT_FOUND_STATUS) => {
                let fields = self.custom_fields(Some(field.name)).await?;
                return match fields.is_empty() {
                    true => Ok(Some(SelectFieldGap::Field)),
                    false => Err(error),
                };
            }
            Err(error) => return Err(error),
        }
        let existing = self.field_options(field.name).await?.into_iter();
        let existing: BTreeSet<String> = existing.map(|option| option.value).collect();
        let mut missing = field.options.clone();
        missing.retain(|option| !existing.contains(option));
        Ok((!missing.is_empty()).then_some(SelectFieldGap::Options(missing)))
    }

    /// Creates what a select field lacks, with its optional options, and puts a new field on the default screen. Requires administrator
    /// permission.
    ///
    /// # Errors
    /// 403 if the account is not an administrator.
    pub async fn fill_select_field_gap(
        &self,
        field: &SelectField,
        gap: &SelectFieldGap,
    ) -> Result<(), VendorError> {
        let (id, is_new, options) = match gap {
            SelectFieldGap::Field => (
                self.create_select_field(field.name).await?,
                true,
                &field.options,
            ),
            SelectFieldGap::Options(missing) => (
                self.find_field("looking up the field", field.name).await?,
                // The process died after it had created the field.
                self.field_options(field.name).await?.is_empty(),
                missing,
            ),
        };
        if is_new {
            self.add_to_default_screen(id).await?;
        }
        let options = [&options[..], &field.optional].concat();
        self.add_options(id, &options).await
    }

    async fn create_select_field(&self, name: &str) -> Result<FieldId, VendorError> {
        const ACTION: &str = "creating the field";
        let body = json!({
            "name": name,
            "description": "Used by Agent Implement.",
            "type": SELECT_TYPE,
            "searcherKey": SELECT_SEARCHER,
        });
        let request = self.request(ACTION, Method::POST, "/field").json(&body);
        let created: Id = self.client.send(&request).await?.json()?;
        self.cache().fields = None;
        self.find_field(ACTION, &created.id).await
    }

    /// Adds a field to the default screen. Not every site has one, and the field may be on it already; people can add
    /// it to a screen, too.
    async fn add_to_default_screen(&self, field: FieldId) -> Result<(), VendorError> {
        let path = format!("/screens/addToDefault/{}", percent_encode(&field.id()));
        let request = self.request(
            "adding the field to the default screen",
            Method::POST,
            &path,
        );
        match self.client.send(&request.json(&json!({}))).await {
            Err(error) if !error.is_permanent() => Err(error),
            _ => Ok(()),
        }
    }

    /// Adds options to every context of a field that lacks them.
    async fn add_options(&self, field: FieldId, options: &[String]) -> Result<(), VendorError> {
        const ACTION: &str = "adding options to the field";
        let base = format!("/field/{}/context", field.id());
        let contexts = self.get(ACTION, &format!("{base}?maxResults={MAX_CONTEXTS}"));
        let contexts: List<Id> = self.client.send(&contexts).await?.json()?;
        for context in contexts.values {
            let path = format!("{base}/{}/option", percent_encode(&context.id));
            let existing = self.get(ACTION, &format!("{path}?maxResults=1000"));
            let existing: List<Named> = self.client.send(&existing).await?.json()?;
            let is_missing = |option: &&String| {
                !existing
                    .values
                    .iter()
                    .any(|existing| existing.value == **option)
            };
            let missing: Vec<_> = options
                .iter()
                .filter(is_missing)
                .map(|option| json!({"value": option}))
                .collect();
            if missing.is_empty() {
                continue;
            }
            let request = self.request(ACTION, Method::POST, &path);
            let body = json!({"options": missing});
            self.client.send(&request.json(&body)).await?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Named {
    value: String,
}

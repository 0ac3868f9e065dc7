//! Options of a select field.
//!
//! Jira administrators can read all options from the field's contexts. For other accounts the options are
//! read from the edit form of an issue with the field, or from the form for a new issue.

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fields::{FIELD_NOT_FOUND_STATUS, FieldId};
use super::{Jira, jql};
use crate::http::{Method, VendorError, percent_encode};

const ACTION: &str = "reading the field's options";

/// Maximum number of pages read of one list.
const MAX_PAGES: usize = 50;

/// Maximum number of forms for new issues that are read.
const MAX_FORMS: usize = 20;

/// Option of a select field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldOption {
    /// Id of the option.
    pub id: String,
    /// Displayed value.
    pub value: String,
    #[serde(default, skip_serializing)]
    disabled: bool,
}

impl Jira {
    /// Lists the options of a select field. Empty if the field has none or does not exist.
    ///
    /// # Errors
    /// Fails if Jira rejects the request or does not respond.
    pub async fn field_options(&self, field: &str) -> Result<Vec<FieldOption>, VendorError> {
        let field = match self.find_field(ACTION, field).await {
            Ok(field) => field,
            // A built-in field, or a missing field, has no options to choose from.
            Err(error) if error.status() == Some(FIELD_NOT_FOUND_STATUS) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut options = match options_of_contexts(self, field).await {
            Err(error) if matches!(error.status(), Some(401 | 403 | 404)) => {
                match options_of_issue(self, field).await? {
                    Some(options) => options,
                    None => options_of_form(self, field).await?,
                }
            }
            options => options?,
        };
        let mut seen = HashSet::new();
        options.retain(|option| !option.disabled && seen.insert(option.value.clone()));
        Ok(options)
    }
}

/// Reads the options of all contexts of a field. Requires administrator permission.
async fn options_of_contexts(jira: &Jira, field: FieldId) -> Result<Vec<FieldOption>, VendorError> {
    let base = format!("/field/{}/context", field.id());
    let contexts: Vec<Id> = pages(jira, &format!("{base}?maxResults=50")).await?;
    let mut options = Vec::new();
    for context in contexts {
        let path = format!(
            "{base}/{}/option?maxResults=100",
            percent_encode(&context.id)
        );
        options.extend(pages::<FieldOption>(jira, &path).await?);
    }
    Ok(options)
}

/// Reads the options from the edit form of an issue with a value in the field. `None` if there is no such
/// issue, or the account may not edit it.
async fn options_of_issue(
    jira: &Jira,
    field: FieldId,
) -> Result<Option<Vec<FieldOption>>, VendorError> {
    let body = json!({"jql": jql::issues_with_value(field), "maxResults": 1, "fields": ["id"]});
    let request = jira
        .request(ACTION, Method::POST, "/search/jql")
        .json(&body);
    let found: SearchPage = match jira.client.send(&request.safe()).await {
        Err(error) if error.is_permanent() => return Ok(None),
        result => result?.json()?,
    };
    let Some(issue) = found.issues.first() else {
        return Ok(None);
    };
    let path = format!("/issue/{}/editmeta", percent_encode(&issue.id));
    let edit: Value = match jira.client.send(&jira.get(ACTION, &path)).await {
        Err(error) if error.is_permanent() => return Ok(None),
        result => result?.json()?,
    };
    Ok(allowed_options(&edit["fields"][field.id()]))
}

/// Reads the options from the first form for a new issue that contains the field. Empty if none does.
async fn options_of_form(jira: &Jira, field: FieldId) -> Result<Vec<FieldOption>, VendorError> {
    let projects = jira.get(ACTION, "/project/search?action=create&maxResults=20");
    let projects: List<Id> = jira.client.send(&projects).await?.json()?;
    let mut forms = 0;
    for project in projects.values {
        let base = format!(
            "/issue/createmeta/{}/issuetypes",
            percent_encode(&project.id)
        );
        let types: Value = jira.client.send(&jira.get(ACTION, &base)).await?.json()?;
        for issue_type in items(&types, "issueTypes") {
            let Some(issue_type) = issue_type["id"].as_str() else {
                continue;
            };
            forms += 1;
            if forms > MAX_FORMS {
                return Ok(Vec::new());
            }
            let path = format!("{base}/{}?maxResults=200", percent_encode(issue_type));
            let form: Value = jira.client.send(&jira.get(ACTION, &path)).await?.json()?;
            let form_field = items(&form, "fields")
                .iter()
                .find(|form_field| form_field["fieldId"] == field.id());
            if let Some(options) = form_field.and_then(allowed_options) {
                return Ok(options);
            }
        }
    }
    Ok(Vec::new())
}

fn items<'a>(page: &'a Value, name: &str) -> &'a [Value] {
    page[name].as_array().map_or(&[], Vec::as_slice)
}

fn allowed_options(field: &Value) -> Option<Vec<FieldOption>> {
    let values = field["allowedValues"].as_array()?;
    let read = |value: &Value| FieldOption::deserialize(value).ok();
    Some(values.iter().filter_map(read).collect())
}

/// Reads all pages of a list.
async fn pages<T: DeserializeOwned>(jira: &Jira, path: &str) -> Result<Vec<T>, VendorError> {
    let mut items = Vec::new();
    for _ in 0..MAX_PAGES {
        let request = jira.get(ACTION, &format!("{path}&startAt={}", items.len()));
        let page: List<T> = jira.client.send(&request).await?.json()?;
        let is_last_page = page.is_last || page.values.is_empty();
        items.extend(page.values);
        if is_last_page {
            break;
        }
    }
    Ok(items)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<T> {
    pub(super) values: Vec<T>,
    #[serde(default)]
    is_last: bool,
}

#[derive(Deserialize)]
pub(super) struct Id {
    pub(super) id: String,
}

#[derive(Deserialize)]
struct SearchPage {
    #[serde(default)]
    issues: Vec<Id>,
}

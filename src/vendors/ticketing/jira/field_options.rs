//! The options of a select field.
//!
//! Its contexts tell them all, to administrators of Jira. Anybody else is told by an issue that has
//! the field, or by the form for a new one, which options stand there.

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fields::{FIELD_NOT_FOUND_STATUS, FieldId};
use super::{Jira, jql};
use crate::http::{Method, VendorError, percent_encode};

const ACTION: &str = "reading the field's options";

/// How many pages of one list do we read?
const MAX_PAGES: usize = 50;

/// How many forms for new issues do we look at before we give up?
const MAX_FORMS: usize = 20;

/// An option of a select field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldOption {
    pub id: String,
    pub value: String,
    #[serde(default, skip_serializing)]
    disabled: bool,
}

pub(super) async fn read(jira: &Jira, field: &str) -> Result<Vec<FieldOption>, VendorError> {
    let field = match jira.find_field(ACTION, field).await {
        Ok(field) => field,
        // A field of Jira's own, or none at all, has no options that could be chosen.
        Err(error) if error.status() == Some(FIELD_NOT_FOUND_STATUS) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut options = match of_contexts(jira, field).await {
        Err(error) if matches!(error.status(), Some(401 | 403 | 404)) => {
            match of_an_issue(jira, field).await? {
                Some(options) => options,
                None => of_a_form(jira, field).await?,
            }
        }
        options => options?,
    };
    let mut seen = HashSet::new();
    options.retain(|option| !option.disabled && seen.insert(option.value.clone()));
    Ok(options)
}

async fn of_contexts(jira: &Jira, field: FieldId) -> Result<Vec<FieldOption>, VendorError> {
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

/// The options that an issue with a value in the field could be given. None when there is no such
/// issue, or we may not edit it.
async fn of_an_issue(jira: &Jira, field: FieldId) -> Result<Option<Vec<FieldOption>>, VendorError> {
    let body = json!({"jql": jql::issues_with_value(field), "maxResults": 1, "fields": ["id"]});
    let request = jira
        .request(ACTION, Method::POST, "/search/jql")
        .json(&body);
    let found: Found = match jira.client.send(&request.safe()).await {
        Err(error) if error.is_permanent() => return Ok(None),
        answer => answer?.json()?,
    };
    let Some(issue) = found.issues.first() else {
        return Ok(None);
    };
    let path = format!("/issue/{}/editmeta", percent_encode(&issue.id));
    let edit: Value = match jira.client.send(&jira.get(ACTION, &path)).await {
        Err(error) if error.is_permanent() => return Ok(None),
        answer => answer?.json()?,
    };
    Ok(allowed(&edit["fields"][field.id()]))
}

/// The options that a new issue of any kind could be given; the first form that shows the field
/// decides. Empty when none does.
async fn of_a_form(jira: &Jira, field: FieldId) -> Result<Vec<FieldOption>, VendorError> {
    let projects = jira.get(ACTION, "/project/search?action=create&maxResults=20");
    let projects: List<Id> = jira.client.send(&projects).await?.json()?;
    let mut forms = 0;
    for project in projects.values {
        let base = format!(
            "/issue/createmeta/{}/issuetypes",
            percent_encode(&project.id)
        );
        let kinds: Value = jira.client.send(&jira.get(ACTION, &base)).await?.json()?;
        for kind in listed(&kinds, "issueTypes") {
            let Some(kind) = kind["id"].as_str() else {
                continue;
            };
            forms += 1;
            if forms > MAX_FORMS {
                return Ok(Vec::new());
            }
            let path = format!("{base}/{}?maxResults=200", percent_encode(kind));
            let form: Value = jira.client.send(&jira.get(ACTION, &path)).await?.json()?;
            let shown = listed(&form, "fields")
                .iter()
                .find(|shown| shown["fieldId"] == field.id());
            if let Some(options) = shown.and_then(allowed) {
                return Ok(options);
            }
        }
    }
    Ok(Vec::new())
}

fn listed<'a>(page: &'a Value, name: &str) -> &'a [Value] {
    page[name].as_array().map_or(&[], Vec::as_slice)
}

fn allowed(field: &Value) -> Option<Vec<FieldOption>> {
    let values = field["allowedValues"].as_array()?;
    let read = |value: &Value| FieldOption::deserialize(value).ok();
    Some(values.iter().filter_map(read).collect())
}

/// All pages of a list.
async fn pages<T: DeserializeOwned>(jira: &Jira, path: &str) -> Result<Vec<T>, VendorError> {
    let mut all = Vec::new();
    for _ in 0..MAX_PAGES {
        let request = jira.get(ACTION, &format!("{path}&startAt={}", all.len()));
        let page: List<T> = jira.client.send(&request).await?.json()?;
        let is_over = page.is_last || page.values.is_empty();
        all.extend(page.values);
        if is_over {
            break;
        }
    }
    Ok(all)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List<T> {
    values: Vec<T>,
    #[serde(default)]
    is_last: bool,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    issues: Vec<Id>,
}

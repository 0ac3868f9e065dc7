//! Accounts, permissions and the history of an issue.

use serde_json::{Value, json};

use super::model::Model;
use super::{error_response, jira_timestamp};
use crate::author::FakeAuthor;
use crate::http::{HttpRequest, HttpResponse};

/// Returns the id of an account.
pub(super) fn account_id(author: &FakeAuthor) -> String {
    match author {
        FakeAuthor::Service => "sandbox".to_owned(),
        FakeAuthor::Person(name) => format!("user-{name}"),
        FakeAuthor::App(name) => format!("app-{name}"),
        FakeAuthor::External(name) => format!("customer-{name}"),
    }
}

/// Returns an account as JSON. The service has an account of a person. Jira hides the addresses of most accounts.
pub(super) fn account_json(author: &FakeAuthor) -> Value {
    let kind = match author {
        FakeAuthor::Service | FakeAuthor::Person(_) => "atlassian",
        FakeAuthor::App(_) => "app",
        FakeAuthor::External(_) => "customer",
    };
    let mut account = json!({
        "accountId": account_id(author), "displayName": author.display_name(), "accountType": kind, "active": true,
    });
    if let FakeAuthor::Person(name) = author {
        account["emailAddress"] = format!("{name}@sandbox.example").into();
    }
    account
}

/// Returns the accounts that have a permission on an issue, among those that the query names.
pub(super) fn search_by_permission(model: &Model, request: &HttpRequest) -> HttpResponse {
    let param = |name: &str| request.query_param(name).unwrap_or_default();
    if param("permissions") != "EDIT_ISSUES" {
        return error_response(400, "The permission is not supported here.");
    }
    if model.find_issue(&param("issueKey")).is_none() {
        return error_response(
            404,
            "Issue does not exist or you do not have permission to see it.",
        );
    }
    let id = param("accountId");
    let is_member = id == "sandbox" || id.starts_with("user-");
    let found = match is_member && !model.readers.contains(&id) {
        true => json!([{"accountId": id, "accountType": "atlassian", "active": true}]),
        false => json!([]),
    };
    HttpResponse::json(200, &found)
}

/// Returns the changes of select fields of an issue, oldest first.
pub(super) fn list_changelog(model: &Model, issue: usize, request: &HttpRequest) -> HttpResponse {
    let number = |name: &str, default: usize| {
        let value = request.query_param(name).and_then(|text| text.parse().ok());
        value.unwrap_or(default)
    };
    let (start, max) = (number("startAt", 0), number("maxResults", 100).min(100));
    let history = &model.issues[issue].history;
    let entries = history.iter().enumerate().skip(start).take(max);
    let values: Vec<Value> = entries
        .map(|(at, entry)| {
            let field = model
                .find_field(&entry.field)
                .map(|field| model.fields[field].id());
            json!({
                "id": (20_000 + at).to_string(), "author": account_json(&entry.author),
                "created": jira_timestamp(entry.at_ms),
                "items": [{
                    "field": entry.field, "fieldtype": "custom", "fieldId": field,
                    "fromString": null, "toString": entry.value.as_deref().unwrap_or_default(),
                }],
            })
        })
        .collect();
    let is_last = start + values.len() >= history.len();
    HttpResponse::json(
        200,
        &json!({"startAt": start, "maxResults": max, "total": history.len(), "isLast": is_last, "values": values}),
    )
}

//! Endpoints of comments, remote links and issue links.

use serde_json::{Value, json};

use super::model::{Comment, Model, RemoteLink};
use super::{adf, error_response, field_error_response, jira_timestamp, people};
use crate::author::FakeAuthor;
use crate::clock;
use crate::http::{HttpRequest, HttpResponse};

fn comment_json(model: &Model, at: usize, with_properties: bool) -> Value {
    let comment = &model.comments[at];
    let mut body_json = json!({
        "id": comment.id.to_string(), "body": comment.body,
        "author": people::account_json(&comment.author),
        "created": jira_timestamp(comment.created_at),
        "updated": jira_timestamp(comment.updated_at.max(comment.created_at)),
    });
    if with_properties {
        body_json["properties"] = Value::Array(comment.properties.clone());
    }
    body_json
}

pub(super) fn list_comments(model: &Model, issue: usize, request: &HttpRequest) -> HttpResponse {
    let number = |name: &str, default: usize| {
        request
            .query_param(name)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let (start, max) = (number("startAt", 0), number("maxResults", 100));
    let mut all: Vec<usize> = (0..model.comments.len())
        .filter(|at| model.comments[*at].issue == issue)
        .collect();
    if request.query_param("orderBy").as_deref() == Some("-created") {
        all.reverse();
    }
    let with_properties = request
        .query_param("expand")
        .is_some_and(|expand| expand.contains("properties"));
    let page: Vec<Value> = all
        .iter()
        .skip(start)
        .take(max)
        .map(|at| comment_json(model, *at, with_properties))
        .collect();
    let page = json!({"startAt": start, "maxResults": max, "total": all.len(), "comments": page});
    HttpResponse::json(200, &page)
}

pub(super) fn create_comment(model: &mut Model, issue: usize, body: &Value) -> HttpResponse {
    if let Some(problem) = adf::validation_error(&body["body"]) {
        return field_error_response("comment", &problem);
    }
    let properties = body["properties"].as_array().cloned().unwrap_or_default();
    let is_valid = |property: &Value| property["key"].is_string() && !property["value"].is_null();
    if !properties.iter().all(is_valid) {
        return error_response(400, "A property needs a key and a value.");
    }
    let at = model.add_comment(
        issue,
        body["body"].clone(),
        properties,
        &FakeAuthor::Service,
    );
    HttpResponse::json(201, &comment_json(model, at, false))
}

pub(super) fn edit_comment(
    model: &mut Model,
    issue: usize,
    id: &str,
    body: &Value,
) -> HttpResponse {
    if let Some(problem) = adf::validation_error(&body["body"]) {
        return field_error_response("comment", &problem);
    }
    let Some(at) = find_comment(model, issue, id) else {
        return error_response(404, "Can not find a comment for the id.");
    };
    model.edit_comment(at, body["body"].clone());
    HttpResponse::json(200, &comment_json(model, at, false))
}

pub(super) fn delete_comment(model: &mut Model, issue: usize, id: &str) -> HttpResponse {
    let Some(at) = find_comment(model, issue, id) else {
        return error_response(404, "Can not find a comment for the id.");
    };
    model.comments.remove(at);
    HttpResponse::empty(204)
}

fn find_comment(model: &Model, issue: usize, id: &str) -> Option<usize> {
    let matches_id = |comment: &Comment| comment.issue == issue && comment.id.to_string() == id;
    model.comments.iter().position(matches_id)
}

pub(super) fn upsert_remote_link(model: &mut Model, issue: usize, body: &Value) -> HttpResponse {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (Some(url), Some(title)) = (text(&body["object"]["url"]), text(&body["object"]["title"]))
    else {
        return error_response(400, "The object needs a url and a title.");
    };
    let global_id = text(&body["globalId"]);
    let existing = model
        .remote_links
        .iter_mut()
        .find(|link| link.issue == issue && global_id.is_some() && link.global_id == global_id);
    if let Some(link) = existing {
        (link.url, link.title) = (url, title);
        return HttpResponse::json(200, &json!({"id": link.id}));
    }
    let id = model.next_id();
    model.remote_links.push(RemoteLink {
        id,
        issue,
        global_id,
        title,
        url,
    });
    HttpResponse::json(201, &json!({"id": id}))
}

/// Creates a link. For type "Blocks" the inward issue blocks the outward issue.
pub(super) fn create_issue_link(model: &mut Model, body: &Value) -> HttpResponse {
    let issue = |side: &str| {
        let named = body[side]["key"].as_str().or(body[side]["id"].as_str())?;
        model.find_issue(named)
    };
    match (
        issue("inwardIssue"),
        issue("outwardIssue"),
        body["type"]["name"].as_str(),
    ) {
        (Some(blocker), Some(blocked), Some("Blocks")) => {
            model.add_blocking_link(blocker, blocked);
            model.issues[blocked].updated_at = clock::now_ms();
            HttpResponse::empty(201)
        }
        (_, _, Some("Blocks")) => error_response(
            404,
            "Issue does not exist or you do not have permission to see it.",
        ),
        _ => error_response(404, "No issue link type with that name was found."),
    }
}

//! What stands beside an issue: comments, remote links, links to other issues.

use serde_json::{Value, json};

use super::model::{Comment, Model, RemoteLink};
use super::{document, field_refusal, moment, refusal};
use crate::clock;
use crate::http::{Reply, Request};

fn comment_json(model: &Model, at: usize, with_properties: bool) -> Value {
    let comment = &model.comments[at];
    let mut shown = json!({
        "id": comment.id.to_string(), "body": comment.body,
        "created": moment(comment.at), "updated": moment(comment.at),
    });
    if with_properties {
        shown["properties"] = Value::Array(comment.properties.clone());
    }
    shown
}

pub(super) fn comments(model: &Model, issue: usize, request: &Request) -> Reply {
    let number = |name: &str, otherwise: usize| {
        request
            .param(name)
            .and_then(|text| text.parse().ok())
            .unwrap_or(otherwise)
    };
    let (start, max) = (number("startAt", 0), number("maxResults", 100));
    let mut all: Vec<usize> = (0..model.comments.len())
        .filter(|at| model.comments[*at].issue == issue)
        .collect();
    if request.param("orderBy").as_deref() == Some("-created") {
        all.reverse();
    }
    let with_properties = request
        .param("expand")
        .is_some_and(|expand| expand.contains("properties"));
    let page: Vec<Value> = all
        .iter()
        .skip(start)
        .take(max)
        .map(|at| comment_json(model, *at, with_properties))
        .collect();
    let page = json!({"startAt": start, "maxResults": max, "total": all.len(), "comments": page});
    Reply::json(200, &page)
}

pub(super) fn comment(model: &mut Model, issue: usize, body: &Value) -> Reply {
    if let Some(problem) = document::problem(&body["body"]) {
        return field_refusal("comment", &problem);
    }
    let properties = body["properties"].as_array().cloned().unwrap_or_default();
    let is_good = |property: &Value| property["key"].is_string() && !property["value"].is_null();
    if !properties.iter().all(is_good) {
        return refusal(400, "A property needs a key and a value.");
    }
    let at = model.add_comment(issue, body["body"].clone(), properties, true);
    Reply::json(201, &comment_json(model, at, false))
}

pub(super) fn edit_comment(model: &mut Model, issue: usize, id: &str, body: &Value) -> Reply {
    if let Some(problem) = document::problem(&body["body"]) {
        return field_refusal("comment", &problem);
    }
    let Some(at) = find_comment(model, issue, id) else {
        return refusal(404, "Can not find a comment for the id.");
    };
    model.comments[at].body = body["body"].clone();
    Reply::json(200, &comment_json(model, at, false))
}

pub(super) fn delete_comment(model: &mut Model, issue: usize, id: &str) -> Reply {
    let Some(at) = find_comment(model, issue, id) else {
        return refusal(404, "Can not find a comment for the id.");
    };
    model.comments.remove(at);
    Reply::empty(204)
}

fn find_comment(model: &Model, issue: usize, id: &str) -> Option<usize> {
    let is_it = |comment: &Comment| comment.issue == issue && comment.id.to_string() == id;
    model.comments.iter().position(is_it)
}

pub(super) fn remote_link(model: &mut Model, issue: usize, body: &Value) -> Reply {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (Some(url), Some(title)) = (text(&body["object"]["url"]), text(&body["object"]["title"]))
    else {
        return refusal(400, "The object needs a url and a title.");
    };
    let global_id = text(&body["globalId"]);
    let known = model
        .remote_links
        .iter_mut()
        .find(|link| link.issue == issue && global_id.is_some() && link.global_id == global_id);
    if let Some(link) = known {
        (link.url, link.title) = (url, title);
        return Reply::json(200, &json!({"id": link.id}));
    }
    let id = model.next_id();
    model.remote_links.push(RemoteLink {
        id,
        issue,
        global_id,
        title,
        url,
    });
    Reply::json(201, &json!({"id": id}))
}

/// For type Blocks the inward issue blocks the outward one.
pub(super) fn link(model: &mut Model, body: &Value) -> Reply {
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
            model.block(blocker, blocked);
            model.issues[blocked].updated = clock::now_ms();
            Reply::empty(201)
        }
        (_, _, Some("Blocks")) => refusal(
            404,
            "Issue does not exist or you do not have permission to see it.",
        ),
        _ => refusal(404, "No issue link type with that name was found."),
    }
}

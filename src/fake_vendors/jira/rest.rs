//! REST endpoints that search, read and change issues.

use serde_json::{Map, Value, json};

use super::jql::{self, Query};
use super::model::{ChangeSource, Model, PRIORITIES, STATUSES};
use super::{
    FakeJira, attachments, comments_and_links, error_response, field_error_response,
    jira_timestamp, metadata, people,
};
use crate::http::{HttpRequest, HttpResponse};

/// Maximum number of issues in one bulk fetch.
const BULK_MAX: usize = 100;

/// Known properties of a search request.
const SEARCH_FIELDS: [&str; 9] = [
    "jql",
    "fields",
    "maxResults",
    "nextPageToken",
    "expand",
    "properties",
    "fieldsByKeys",
    "failFast",
    "reconcileIssues",
];

impl FakeJira {
    pub(super) fn search(&self, body: &Value) -> HttpResponse {
        let unknown = body.as_object().into_iter().flatten();
        if let Some((name, _)) = unknown
            .into_iter()
            .find(|(name, _)| !SEARCH_FIELDS.contains(&name.as_str()))
        {
            return error_response(
                400,
                &format!("Invalid request payload: unknown property '{name}'."),
            );
        }
        self.0.model.read(|model| {
            let query = match parse_valid_query(model, body["jql"].as_str().unwrap_or_default()) {
                Ok(query) => query,
                Err(problems) => {
                    return HttpResponse::json(400, &json!({"errorMessages": problems, "errors": {}}));
                }
            };
            if query.condition.is_none() {
                return error_response(400, "Unbounded JQL queries are not allowed here. Please add a search restriction to your query.");
            }
            self.search_page(model, &query, body)
        })
    }

    fn search_page(&self, model: &Model, query: &Query, body: &Value) -> HttpResponse {
        let behavior = self.behavior();
        let reconciled: Vec<u64> = body["reconcileIssues"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .collect();
        let is_stale =
            |at: usize| behavior.index_lags && !reconciled.contains(&model.issues[at].id);
        let mut matches: Vec<usize> = (0..model.issues.len())
            .filter(|at| !model.issues[*at].deleted)
            .filter(|at| {
                let condition = query.condition.as_ref();
                condition.is_some_and(|condition| condition.matches(model, *at, is_stale(*at)))
            })
            .collect();
        let is_ascending = query
            .order
            .first()
            .is_some_and(|(_, descending)| !descending);
        if !is_ascending {
            matches.reverse();
        }
        let wanted = body["maxResults"].as_u64().unwrap_or(50);
        let size = usize::try_from(wanted)
            .unwrap_or(50)
            .clamp(1, behavior.page_max);
        let from: usize = body["nextPageToken"]
            .as_str()
            .and_then(|token| token.parse().ok())
            .unwrap_or(0);
        let rest = matches.get(from..).unwrap_or_default();
        let field_names: Vec<&str> = body["fields"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let issues: Vec<Value> = rest
            .iter()
            .take(size)
            .map(|at| self.issue_json(model, *at, &field_names, is_stale(*at)))
            .collect();
        let is_last = rest.len() <= size;
        let mut page = json!({"issues": issues, "isLast": is_last});
        if !is_last {
            page["nextPageToken"] = (from + size).to_string().into();
        }
        HttpResponse::json(200, &page)
    }

    /// Fetches issues by ID or key. Unknown issues are omitted.
    pub(super) fn bulk_fetch(&self, body: &Value) -> HttpResponse {
        let strings = |name: &str| -> Vec<String> {
            let items = body[name].as_array().into_iter().flatten();
            items
                .filter_map(|item| Some(item.as_str()?.to_owned()))
                .collect()
        };
        let (issue_ids, fields) = (strings("issueIdsOrKeys"), strings("fields"));
        if issue_ids.is_empty() || issue_ids.len() > BULK_MAX {
            return error_response(400, "issueIdsOrKeys must hold between 1 and 100 items.");
        }
        let field_names: Vec<&str> = fields.iter().map(String::as_str).collect();
        self.0.model.read(|model| {
            let found = issue_ids.iter().filter_map(|id| model.find_issue(id));
            let shown = found.map(|at| self.issue_json(model, at, &field_names, false));
            HttpResponse::json(
                200,
                &json!({"issues": shown.collect::<Vec<_>>(), "issueErrors": []}),
            )
        })
    }

    pub(super) fn parse_queries(&self, request: &HttpRequest, body: &Value) -> HttpResponse {
        let mode = request.query_param("validation");
        if !matches!(mode.as_deref(), Some("strict" | "warn" | "none")) {
            return error_response(400, "The validation parameter is required.");
        }
        let queries = body["queries"].as_array().cloned().unwrap_or_default();
        if queries.is_empty()
            || queries
                .iter()
                .any(|query| query.as_str().is_none_or(str::is_empty))
        {
            return error_response(400, "At least one query is required.");
        }
        self.0.model.read(|model| {
            let parsed: Vec<Value> = queries
                .iter()
                .map(
                    |query| match parse_valid_query(model, query.as_str().unwrap_or_default()) {
                        Ok(_) => json!({"query": query, "structure": {}}),
                        Err(problems) => json!({"query": query, "errors": problems}),
                    },
                )
                .collect();
            HttpResponse::json(200, &json!({"queries": parsed}))
        })
    }

    pub(super) fn handle_issue_request(
        &self,
        request: &HttpRequest,
        key: &str,
        rest: &[&str],
        body: &Value,
    ) -> HttpResponse {
        let store = &self.0.model;
        let Some(at) = store.read(|model| model.find_issue(key)) else {
            return error_response(
                404,
                "Issue does not exist or you do not have permission to see it.",
            );
        };
        match (request.method.as_str(), rest) {
            ("GET", []) => store.read(|model| {
                let wanted = request
                    .query_param("fields")
                    .unwrap_or_else(|| "*all".into());
                let field_names: Vec<&str> = wanted.split(',').collect();
                HttpResponse::json(200, &self.issue_json(model, at, &field_names, false))
            }),
            ("PUT", []) => {
                let source = self.api_change_source();
                store.update(|model| edit(model, at, body, &source))
            }
            ("GET", ["editmeta"]) => store.read(metadata::edit_metadata),
            ("GET", ["changelog"]) => {
                store.read(|model| people::list_changelog(model, at, request))
            }
            ("GET", ["comment"]) => {
                store.read(|model| comments_and_links::list_comments(model, at, request))
            }
            ("POST", ["comment"]) => {
                store.update(|model| comments_and_links::create_comment(model, at, body))
            }
            ("PUT", ["comment", id]) => {
                store.update(|model| comments_and_links::edit_comment(model, at, id, body))
            }
            ("DELETE", ["comment", id]) => {
                store.update(|model| comments_and_links::delete_comment(model, at, id))
            }
            ("POST", ["remotelink"]) => {
                store.update(|model| comments_and_links::upsert_remote_link(model, at, body))
            }
            ("GET", ["transitions"]) => {
                let all: Vec<Value> = STATUSES
                    .iter()
                    .map(|(id, name, _)| json!({"id": id, "name": name, "to": {"id": id, "name": name}}))
                    .collect();
                HttpResponse::json(200, &json!({"transitions": all}))
            }
            ("POST", ["transitions"]) => store.update(|model| {
                let wanted = body["transition"]["id"].as_str().unwrap_or_default();
                match STATUSES.iter().position(|(id, _, _)| *id == wanted) {
                    Some(status) => {
                        model.issues[at].status = status;
                        HttpResponse::empty(204)
                    }
                    None => error_response(400, "The transition is not valid for the issue."),
                }
            }),
            _ => HttpResponse::text(404, "Not Found"),
        }
    }

    fn issue_json(
        &self,
        model: &Model,
        at: usize,
        field_names: &[&str],
        is_stale_index: bool,
    ) -> Value {
        let id = model.issues[at].id;
        let (key, base) = (model.issue_key(at), &self.0.base_url);
        if field_names.is_empty() || field_names == ["id"] {
            return json!({"id": id.to_string()});
        }
        let mut all = all_fields(model, at, is_stale_index);
        let attachments = attachments::attachments_json(model, at, base);
        all.insert("attachment".to_owned(), attachments);
        let is_wanted = |name: &str| {
            field_names.contains(&"*all")
                || field_names.contains(&"*navigable")
                || field_names.contains(&name)
        };
        let fields: Map<String, Value> = all
            .into_iter()
            .filter(|(name, _)| is_wanted(name))
            .collect();
        json!({
            "expand": "renderedFields,names,schema,operations,editmeta,changelog",
            "id": id.to_string(), "self": format!("{base}/rest/api/3/issue/{id}"), "key": key,
            "fields": fields,
        })
    }
}

/// Parses and validates a query. Returns all problems.
fn parse_valid_query(model: &Model, text: &str) -> Result<Query, Vec<String>> {
    let query = jql::parse(text).map_err(|problem| vec![problem])?;
    let problems = query.validation_errors(model);
    if problems.is_empty() {
        Ok(query)
    } else {
        Err(problems)
    }
}

fn status(model: &Model, at: usize) -> Value {
    let (id, name, category) = STATUSES[model.issues[at].status];
    json!({"id": id, "name": name, "statusCategory": {"key": category}})
}

/// Returns the short form of an issue inside another issue.
fn short_issue_json(model: &Model, at: usize) -> Value {
    json!({
        "id": model.issues[at].id.to_string(), "key": model.issue_key(at),
        "fields": {"summary": model.issues[at].summary, "status": status(model, at)},
    })
}

fn links(model: &Model, at: usize) -> Value {
    let kind =
        json!({"id": "10000", "name": "Blocks", "inward": "is blocked by", "outward": "blocks"});
    let links = model.links.iter().filter_map(|link| {
        let (side, other) = if link.blocked == at {
            ("inwardIssue", link.blocker)
        } else if link.blocker == at {
            ("outwardIssue", link.blocked)
        } else {
            return None;
        };
        (!model.issues[other].deleted)
            .then(|| json!({"id": link.id.to_string(), "type": kind, side: short_issue_json(model, other)}))
    });
    links.collect()
}

fn all_fields(model: &Model, at: usize, is_stale_index: bool) -> Map<String, Value> {
    let issue = &model.issues[at];
    let project = &model.projects[issue.project];
    let priority = issue.priority.as_ref().map(|name| {
        let rank = PRIORITIES.iter().position(|known| known == name);
        json!({"id": rank.map_or(0, |rank| rank + 1).to_string(), "name": name})
    });
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("summary", issue.summary.clone().into());
    put("description", issue.description.clone().unwrap_or_default());
    put("status", status(model, at));
    put("priority", priority.unwrap_or_default());
    put("labels", json!(issue.labels));
    put("created", jira_timestamp(issue.created_at));
    put("updated", jira_timestamp(issue.updated_at));
    put("issuelinks", links(model, at));
    put(
        "project",
        json!({"id": project.id.to_string(), "key": project.key, "name": project.name}),
    );
    if let Some(parent) = issue.parent {
        put("parent", short_issue_json(model, parent));
    }
    let values = if is_stale_index {
        &issue.indexed_fields
    } else {
        &issue.fields
    };
    for field in &model.fields {
        let option = values
            .get(&field.number)
            .and_then(|value| field.option(value));
        let value =
            option.map(|option| json!({"id": option.id.to_string(), "value": option.value}));
        put(&field.id(), value.unwrap_or_default());
    }
    fields
}

/// Updates fields of an issue. All changes are validated before the first is made.
fn edit(model: &mut Model, at: usize, body: &Value, source: &ChangeSource) -> HttpResponse {
    let Some(fields) = body["fields"].as_object() else {
        return error_response(400, "one of 'fields' or 'update' required");
    };
    let mut changes = Vec::new();
    for (name, value) in fields {
        let Some(field) = model
            .find_field(name)
            .filter(|field| model.fields[*field].id() == *name)
        else {
            let message = format!(
                "Field '{name}' cannot be set. It is not on the appropriate screen, or unknown."
            );
            return field_error_response(name, &message);
        };
        let option = model.fields[field].options.iter().find(|option| {
            let id = value["id"].as_str().and_then(|id| id.parse().ok());
            value["value"] == option.value.as_str() || id == Some(option.id)
        });
        match option {
            Some(option) => changes.push((field, Some(option.value.clone()))),
            None if value.is_null() => changes.push((field, None)),
            None => {
                let value_text = value["value"].as_str().unwrap_or_default();
                return field_error_response(
                    name,
                    &format!("Option value '{value_text}' is not valid"),
                );
            }
        }
    }
    for (field, value) in changes {
        model.set_field(at, field, value.as_deref(), source);
    }
    HttpResponse::empty(204)
}

//! What is asked about fields, projects and forms.

use serde_json::{Value, json};

use super::error_response;
use super::model::{CustomField, Model};
use crate::http::HttpResponse;

/// Fields of the vendor's own: id and name.
const SYSTEM_FIELDS: [(&str, &str); 4] = [
    ("summary", "Summary"),
    ("status", "Status"),
    ("priority", "Priority"),
    ("labels", "Labels"),
];

fn schema(field: &CustomField) -> Value {
    json!({
        "type": "option",
        "custom": "com.atlassian.jira.plugin.system.customfieldtypes:select",
        "customId": field.number,
    })
}

pub(super) fn list_fields(model: &Model) -> HttpResponse {
    let own = SYSTEM_FIELDS.iter().map(|(id, name)| {
        json!({
            "id": id, "key": id, "name": name, "custom": false, "orderable": true,
            "navigable": true, "searchable": true, "clauseNames": [id],
        })
    });
    let custom = model.fields.iter().map(|field| {
        json!({
            "id": field.id(), "key": field.id(), "name": field.name, "custom": true,
            "orderable": true, "navigable": true, "searchable": true,
            "clauseNames": [format!("cf[{}]", field.number), field.name],
            "schema": schema(field),
        })
    });
    let all: Vec<Value> = own.chain(custom).collect();
    HttpResponse::json(200, &Value::Array(all))
}

fn list(values: &[Value]) -> HttpResponse {
    let page = json!({
        "startAt": 0, "maxResults": 100, "total": values.len(), "isLast": true, "values": values,
    });
    HttpResponse::json(200, &page)
}

fn no_field() -> HttpResponse {
    error_response(404, "The custom field was not found.")
}

pub(super) fn list_field_contexts(model: &Model, id: &str) -> HttpResponse {
    match model.find_field(id) {
        None => no_field(),
        Some(at) => list(&[json!({
            "id": (model.fields[at].number + 5_000).to_string(),
            "name": "Default Configuration Scheme", "description": "",
            "isGlobalContext": true, "isAnyIssueType": true,
        })]),
    }
}

pub(super) fn list_field_options(model: &Model, id: &str) -> HttpResponse {
    let Some(at) = model.find_field(id) else {
        return no_field();
    };
    let options: Vec<Value> = model.fields[at]
        .options
        .iter()
        .map(
            |option| json!({"id": option.id.to_string(), "value": option.value, "disabled": false}),
        )
        .collect();
    list(&options)
}

pub(super) fn list_projects(model: &Model) -> HttpResponse {
    let projects: Vec<Value> = model
        .projects
        .iter()
        .map(|project| json!({"id": project.id.to_string(), "key": project.key, "name": project.name}))
        .collect();
    list(&projects)
}

fn has_project(model: &Model, id_or_key: &str) -> bool {
    let is_it = |project: &super::model::Project| {
        project.key == id_or_key || project.id.to_string() == id_or_key
    };
    model.projects.iter().any(is_it)
}

pub(super) fn list_issue_types(model: &Model, project: &str) -> HttpResponse {
    if !has_project(model, project) {
        return error_response(404, "No project could be found with that id or key.");
    }
    let types = json!([{"id": "10001", "name": "Task", "subtask": false}]);
    HttpResponse::json(
        200,
        &json!({"startAt": 0, "maxResults": 50, "total": 1, "issueTypes": types}),
    )
}

/// What may stand in a select field.
fn allowed(field: &CustomField) -> Vec<Value> {
    let options = field.options.iter();
    options
        .map(|option| json!({"id": option.id.to_string(), "value": option.value}))
        .collect()
}

fn shown(field: &CustomField) -> Value {
    json!({
        "required": false, "schema": schema(field), "name": field.name, "key": field.id(),
        "operations": ["set"], "allowedValues": allowed(field),
    })
}

pub(super) fn create_metadata(model: &Model, project: &str) -> HttpResponse {
    if !has_project(model, project) {
        return error_response(404, "No project could be found with that id or key.");
    }
    let fields: Vec<Value> = model
        .fields
        .iter()
        .map(|field| {
            let mut shown = shown(field);
            shown["fieldId"] = field.id().into();
            shown
        })
        .collect();
    let page = json!({"startAt": 0, "maxResults": 200, "total": fields.len(), "fields": fields});
    HttpResponse::json(200, &page)
}

pub(super) fn edit_metadata(model: &Model) -> HttpResponse {
    let fields = model.fields.iter().map(|field| (field.id(), shown(field)));
    HttpResponse::json(200, &json!({"fields": Value::Object(fields.collect())}))
}

//! Metadata endpoints: fields, projects, and the create and edit screens.

use serde_json::{Value, json};

use super::error_response;
use super::model::{CustomField, Model};
use crate::http::HttpResponse;

/// Built-in fields: ID and name.
const SYSTEM_FIELDS: [(&str, &str); 4] = [
    ("summary", "Summary"),
    ("status", "Status"),
    ("priority", "Priority"),
    ("labels", "Labels"),
];

/// Type of a select list with a single choice.
const SELECT_TYPE: &str = "com.atlassian.jira.plugin.system.customfieldtypes:select";

fn schema(field: &CustomField) -> Value {
    json!({
        "type": "option",
        "custom": SELECT_TYPE,
        "customId": field.number,
    })
}

pub(super) fn list_fields(model: &Model) -> HttpResponse {
    let system = SYSTEM_FIELDS.iter().map(|(id, name)| {
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
    let all: Vec<Value> = system.chain(custom).collect();
    HttpResponse::json(200, &Value::Array(all))
}

fn page_response(values: &[Value]) -> HttpResponse {
    let page = json!({
        "startAt": 0, "maxResults": 100, "total": values.len(), "isLast": true, "values": values,
    });
    HttpResponse::json(200, &page)
}

fn field_not_found() -> HttpResponse {
    error_response(404, "The custom field was not found.")
}

pub(super) fn list_field_contexts(model: &Model, id: &str) -> HttpResponse {
    match model.find_field(id) {
        None => field_not_found(),
        Some(at) => page_response(&[json!({
            "id": (model.fields[at].number + 5_000).to_string(),
            "name": "Default Configuration Scheme", "description": "",
            "isGlobalContext": true, "isAnyIssueType": true,
        })]),
    }
}

pub(super) fn list_field_options(model: &Model, id: &str) -> HttpResponse {
    let Some(at) = model.find_field(id) else {
        return field_not_found();
    };
    let options: Vec<Value> = model.fields[at]
        .options
        .iter()
        .map(
            |option| json!({"id": option.id.to_string(), "value": option.value, "disabled": false}),
        )
        .collect();
    page_response(&options)
}

/// Creates a select field. Jira gives it a context for all projects.
pub(super) fn create_field(model: &mut Model, body: &Value) -> HttpResponse {
    let (Some(name), Some(kind)) = (body["name"].as_str(), body["type"].as_str()) else {
        return error_response(400, "The name and the type of the field are required.");
    };
    if kind != SELECT_TYPE {
        return error_response(400, "The type of the custom field is not supported here.");
    }
    let at = model.add_field(name);
    let field = &model.fields[at];
    let created = json!({"id": field.id(), "key": field.id(), "name": field.name, "custom": true});
    HttpResponse::json(201, &created)
}

pub(super) fn add_to_default_screen(model: &mut Model, id: &str) -> HttpResponse {
    match model.find_field(id) {
        None => field_not_found(),
        Some(at) if model.fields[at].is_on_default_screen => {
            error_response(400, "The field is already on the screen.")
        }
        Some(at) => {
            model.fields[at].is_on_default_screen = true;
            HttpResponse::json(200, &json!({}))
        }
    }
}

pub(super) fn create_options(model: &mut Model, id: &str, body: &Value) -> HttpResponse {
    let Some(at) = model.find_field(id) else {
        return field_not_found();
    };
    let given = body["options"].as_array().cloned().unwrap_or_default();
    let values: Vec<&str> = given
        .iter()
        .filter_map(|one| one["value"].as_str())
        .collect();
    if values.is_empty() || values.len() != given.len() {
        return error_response(400, "Each option must have a value.");
    }
    if let Some(known) = values
        .iter()
        .find(|value| model.fields[at].option(value).is_some())
    {
        return error_response(400, &format!("The option {known} exists already."));
    }
    let name = model.fields[at].name.clone();
    model.ensure_field(&name, &values);
    list_field_options(model, id)
}

pub(super) fn list_projects(model: &Model) -> HttpResponse {
    let projects: Vec<Value> = model
        .projects
        .iter()
        .map(|project| json!({"id": project.id.to_string(), "key": project.key, "name": project.name}))
        .collect();
    page_response(&projects)
}

fn has_project(model: &Model, id_or_key: &str) -> bool {
    let matches_project = |project: &super::model::Project| {
        project.key == id_or_key || project.id.to_string() == id_or_key
    };
    model.projects.iter().any(matches_project)
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

/// Returns the options of a select field as JSON.
fn options_json(field: &CustomField) -> Vec<Value> {
    let options = field.options.iter();
    options
        .map(|option| json!({"id": option.id.to_string(), "value": option.value}))
        .collect()
}

fn field_json(field: &CustomField) -> Value {
    json!({
        "required": false, "schema": schema(field), "name": field.name, "key": field.id(),
        "operations": ["set"], "allowedValues": options_json(field),
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
            let mut field_json = field_json(field);
            field_json["fieldId"] = field.id().into();
            field_json
        })
        .collect();
    let page = json!({"startAt": 0, "maxResults": 200, "total": fields.len(), "fields": fields});
    HttpResponse::json(200, &page)
}

pub(super) fn edit_metadata(model: &Model) -> HttpResponse {
    let fields = model
        .fields
        .iter()
        .map(|field| (field.id(), field_json(field)));
    HttpResponse::json(200, &json!({"fields": Value::Object(fields.collect())}))
}

//! `/api/ticketing-b/*`: Jira lookups for the mapping form: query validation, custom fields and field
//! options.

use bytes::Bytes;
use serde_json::json;

use crate::error::{AdminApiError, ApiError};
use crate::routing::{ApiResult, QueryPairs, Route, ok, parse_json};
use domain::issue::System;
use engine::app::App;
use vendors::http::VendorError;
use vendors::ticketing::{Jira, TicketingClient};

/// Routes of `/api/ticketing-b`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post(
            "/api/ticketing-b/validate-query",
            "validateQuery",
            validate_query,
        )
        .body(),
        Route::get("/api/ticketing-b/fields", "listFields", list_fields),
        Route::get(
            "/api/ticketing-b/field-options",
            "listFieldOptions",
            list_options,
        ),
    ]
}

async fn validate_query(body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(AdminApiError::InvalidJson)?;
    let clause = non_blank(body["jql"].as_str()).ok_or(AdminApiError::JqlRequired)?;
    let problems = jira(&app)?
        .validate_jql(clause)
        .await
        .map_err(vendor_error)?;
    if problems.is_empty() {
        Ok(ok(&json!({"ok": true})))
    } else {
        Err(AdminApiError::TicketingRejected(problems).into())
    }
}

async fn list_fields(query: QueryPairs, app: App) -> ApiResult {
    let name = param(&query, "name");
    Ok(ok(&jira(&app)?
        .custom_fields(name)
        .await
        .map_err(vendor_error)?))
}

async fn list_options(query: QueryPairs, app: App) -> ApiResult {
    let field = param(&query, "fieldId").ok_or(AdminApiError::FieldIdRequired)?;
    Ok(ok(&jira(&app)?
        .field_options(field)
        .await
        .map_err(vendor_error)?))
}

fn param<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let (_, value) = query.iter().find(|(key, _)| key == name)?;
    non_blank(Some(value))
}

fn non_blank(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn jira(app: &App) -> Result<&Jira, AdminApiError> {
    match app.vendors.account(System::Jira) {
        Some(TicketingClient::Jira(jira)) => Ok(jira),
        _ => Err(AdminApiError::JiraNotConfigured),
    }
}

fn vendor_error(error: VendorError) -> ApiError {
    AdminApiError::Vendor(error.to_string()).into()
}

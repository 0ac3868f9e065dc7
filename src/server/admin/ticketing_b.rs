//! `/api/ticketing-b/*`: what the form of a mapping asks system B: is this query good, which custom
//! fields are there, which options has one.

use bytes::Bytes;
use serde_json::json;
use warp::http::Method;
use warp::{Filter, path};

use crate::error::{AdminFault, ApiError};
use crate::parts::{ApiResult, BODY, Routes, body, json, ok, one_of, only, signed_in, with};
use domain::issue::System;
use engine::app::App;
use vendors::http::VendorError;
use vendors::ticketing::{Account, Jira};

/// Routes of `/api/ticketing-b`.
pub fn routes(app: &App) -> Routes {
    let validate = path!("api" / "ticketing-b" / "validate-query").boxed();
    let fields = path!("api" / "ticketing-b" / "fields").boxed();
    let options = path!("api" / "ticketing-b" / "field-options").boxed();
    one_of([
        validate
            .clone()
            .and(signed_in(app, Method::POST))
            .and(body(BODY))
            .and(with(app))
            .then(validate_query)
            .boxed(),
        fields
            .clone()
            .and(signed_in(app, Method::GET))
            .and(warp::query::<Params>())
            .and(with(app))
            .then(list_fields)
            .boxed(),
        options
            .clone()
            .and(signed_in(app, Method::GET))
            .and(warp::query::<Params>())
            .and(with(app))
            .then(list_options)
            .boxed(),
        only(&validate, [Method::POST]),
        only(&fields, [Method::GET]),
        only(&options, [Method::GET]),
    ])
}

/// The pairs of a query; a name that is given twice is no reason to fail.
type Params = Vec<(String, String)>;

async fn validate_query(body: Bytes, app: App) -> ApiResult {
    let body = json(&body).ok_or(AdminFault::InvalidJson)?;
    let clause = filled(body["jql"].as_str()).ok_or(AdminFault::JqlRequired)?;
    let problems = jira(&app)?.parse_query(clause).await.map_err(failed)?;
    if problems.is_empty() {
        Ok(ok(&json!({"ok": true})))
    } else {
        Err(AdminFault::TicketingRefused(problems).into())
    }
}

async fn list_fields(query: Params, app: App) -> ApiResult {
    let name = param(&query, "name");
    Ok(ok(&jira(&app)?.fields(name).await.map_err(failed)?))
}

async fn list_options(query: Params, app: App) -> ApiResult {
    let field = param(&query, "fieldId").ok_or(AdminFault::FieldIdRequired)?;
    Ok(ok(&jira(&app)?
        .field_options(field)
        .await
        .map_err(failed)?))
}

fn param<'a>(query: &'a Params, name: &str) -> Option<&'a str> {
    let (_, value) = query.iter().find(|(given, _)| given == name)?;
    filled(Some(value))
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn jira(app: &App) -> Result<&Jira, AdminFault> {
    match app.account(System::B) {
        Some(Account::Jira(jira)) => Ok(jira),
        _ => Err(AdminFault::TicketingBNotConfigured),
    }
}

fn failed(error: VendorError) -> ApiError {
    AdminFault::Vendor(error.to_string()).into()
}

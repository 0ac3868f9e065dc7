//! `/api/connections`: credentials of the vendors. Values are write-only. See docs/configuration.md#connections.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{AdminApiError, ApiError};
use crate::routing::{ApiResult, PathSegment, Route, ok, parse_json};
use domain::audit::Actor;
use domain::connection::{ConnectionName, CredentialField, CredentialValues};
use domain::edit_distance::closest_name;
use domain::secret::Secret;
use engine::admin::connections::{self, ConnectionState};
use engine::app::{App, ProbeStatus};

/// Routes of `/api/connections`.
pub(super) fn routes() -> Vec<Route> {
    let (all, each) = ("/api/connections", "/api/connections/:connection");
    vec![
        Route::get(all, "listConnections", list).returns::<Vec<ConnectionView>>(),
        Route::post(each, "setConnection", save)
            .body()
            .returns::<ConnectionView>(),
        Route::delete(each, "deleteConnection", remove).returns::<ConnectionView>(),
        Route::post("/api/connections/:connection/test", "testConnection", test)
            .returns::<ConnectionView>(),
    ]
}

/// Route of the encrypted values, for `doctor`, which reads their key itself.
pub(crate) fn sealed_routes() -> Vec<Route> {
    vec![
        Route::get(
            "/api/sealed-connections",
            "listSealedConnections",
            list_sealed,
        )
        .undescribed(),
    ]
}

async fn list(app: App) -> ApiResult {
    let states = connections::list(&app).await?;
    let views: Vec<ConnectionView> = states.into_iter().map(ConnectionView::from).collect();
    Ok(ok(&views))
}

async fn list_sealed(app: App) -> ApiResult {
    let rows = app.core.store().read(store::connections::all)?;
    let sealed = rows
        .into_iter()
        .map(|(field, row)| (field.variable().to_owned(), json!(row.secret)));
    Ok(ok(&Map::from_iter(sealed)))
}

async fn save(name: PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    let name = parse_name(&name)?;
    let values = parse_values(name, &body)?;
    let state = connections::set(&app, by, name, values).await?;
    Ok(ok(&ConnectionView::from(state)))
}

async fn remove(name: PathSegment, by: Actor, app: App) -> ApiResult {
    let state = connections::remove(&app, by, parse_name(&name)?).await?;
    Ok(ok(&ConnectionView::from(state)))
}

async fn test(name: PathSegment, app: App) -> ApiResult {
    let state = connections::test(&app, parse_name(&name)?).await?;
    Ok(ok(&ConnectionView::from(state)))
}

fn parse_name(PathSegment(name): &PathSegment) -> Result<ConnectionName, ApiError> {
    let name = ConnectionName::parse(name);
    name.ok_or_else(|| AdminApiError::ConnectionNotFound.into())
}

fn parse_values(name: ConnectionName, body: &[u8]) -> Result<CredentialValues, ApiError> {
    let body = match parse_json(body) {
        Some(Value::Object(body)) => body,
        _ => return Err(AdminApiError::InvalidBody.into()),
    };
    let invalid = |sentence: String| ApiError::from(AdminApiError::Invalid(sentence));
    let mut values = CredentialValues::new();
    for (variable, value) in body {
        let field = CredentialField::parse(&variable);
        let field = field.filter(|field| field.set().connection() == name);
        let field = field.ok_or_else(|| {
            let known = name.fields().map(CredentialField::variable);
            let hint =
                closest_name(&variable, known).map(|known| format!(": did you mean {known}?"));
            invalid(format!(
                "{} has no field of that name{}",
                name.title(),
                hint.unwrap_or_default()
            ))
        })?;
        match value {
            Value::String(value) => values.insert(field, Secret::new(value)),
            Value::Null => None,
            _ => return Err(invalid(format!("{} must be a text", field.variable()))),
        };
    }
    Ok(values)
}

/// Connection to a vendor, without the values of its credentials.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "VendorConnection")]
struct ConnectionView {
    /// Name in the path of the connection.
    #[schemars(extend("enum" = ["github", "linear", "jira", "model", "chat", "fly"]))]
    name: &'static str,
    /// Name for people.
    title: &'static str,
    /// Where to get the credentials, and which rights they need.
    help: &'static str,
    /// Page of the vendor on which credentials are created.
    help_url: Option<&'static str>,
    /// Whether credentials are in force.
    configured: bool,
    /// Source of the credentials in force.
    #[schemars(extend("enum" = ["env", "stored", "none"]))]
    source: &'static str,
    /// Whether this service stores values of the connection, in force or not.
    stored: bool,
    /// Result of the latest probe.
    status: Option<ProbeStatus>,
    /// Account, or the reason of the failure, as of the latest probe.
    detail: Option<String>,
    fields: Vec<FieldView>,
    /// What would make the connection complete, as sentences.
    missing: Vec<&'static str>,
    /// Page on which the GitHub App is installed on repositories.
    install_url: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ConnectionField")]
struct FieldView {
    /// Name of the field, which is the name of its variable.
    name: &'static str,
    label: &'static str,
    /// Whether the value is a secret.
    secret: bool,
    /// Whether a value can be stored: the environment does not set the field.
    editable: bool,
    /// Source of the value in force.
    #[schemars(extend("enum" = ["env", "stored", "none"]))]
    source: &'static str,
}

impl From<ConnectionState> for ConnectionView {
    fn from(state: ConnectionState) -> Self {
        let source = |source: Option<domain::connection::CredentialSource>| {
            source.map_or("none", |source| source.as_str())
        };
        let (status, detail) = state
            .probe
            .map(|probe| (probe.status, probe.detail))
            .unzip();
        Self {
            name: state.name.slug(),
            title: state.name.title(),
            help: state.name.help(),
            help_url: state.name.help_url(),
            configured: state.source.is_some(),
            source: source(state.source),
            stored: state.is_stored,
            status,
            detail,
            fields: state
                .fields
                .into_iter()
                .map(|one| FieldView {
                    name: one.field.variable(),
                    label: one.field.label(),
                    secret: one.field.is_secret(),
                    source: source(one.source),
                    editable: one.is_editable,
                })
                .collect(),
            missing: state.missing,
            install_url: state.install_url,
        }
    }
}

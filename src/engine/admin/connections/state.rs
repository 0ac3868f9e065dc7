//! State of connections, as operators see it.

use domain::connection::{ConnectionName, CredentialField, CredentialSet, CredentialSource};
use store::{StoreResult, connections};

use super::connection_of;
use crate::app::{App, ProbeResult};
use crate::config::Credentials;
use crate::probe;

/// State of a connection.
#[derive(Debug, Clone)]
pub struct ConnectionState {
    /// Name of the connection.
    pub name: ConnectionName,
    /// Source of its main credentials; `None` if it is not configured.
    pub source: Option<CredentialSource>,
    /// Result of its probe; `None` if it is not configured or cannot be probed.
    pub probe: Option<ProbeResult>,
    /// Fields of the connection.
    pub fields: Vec<FieldState>,
    /// Whether anything is stored, in force or not.
    pub is_stored: bool,
    /// What would make the connection complete, as sentences.
    pub missing: Vec<&'static str>,
    /// Page on which the GitHub App is installed.
    pub install_url: Option<String>,
}

/// State of a field of a connection.
#[derive(Debug, Clone, Copy)]
pub struct FieldState {
    /// The field.
    pub field: CredentialField,
    /// Source of its value in force; `None` if it has none.
    pub source: Option<CredentialSource>,
    /// Whether a value can be stored: the environment does not decide about the field.
    pub is_editable: bool,
}

/// Returns the states of all connections. The latest probes are at most a minute old.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn list(app: &App) -> StoreResult<Vec<ConnectionState>> {
    let states = ConnectionName::ALL.iter().map(|name| state(app, *name));
    let states = futures_util::future::join_all(states).await;
    states.into_iter().collect()
}

/// Returns the state of a connection.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn state(app: &App, name: ConnectionName) -> StoreResult<ConnectionState> {
    let stored = app.core.store.read(connections::all)?;
    let field_state = |field: CredentialField| FieldState {
        field,
        source: field_source(app, field, &stored_fields(&stored)),
        is_editable: !app.core.config.credentials.has(field.set()),
    };
    let fields: Vec<_> = name.fields().map(field_state).collect();
    let mut main = fields.iter().filter(|one| one.field.set().is_main());
    let source = main.find_map(|one| one.source);
    let probe = match (source, connection_of(name)) {
        (Some(_), Some(connection)) => Some(probe::probe(app, connection).await.result),
        _ => None,
    };
    let github = app.vendors.github.as_ref();
    let install_url = github.and_then(|github| github.install_url());
    Ok(ConnectionState {
        name,
        source,
        probe,
        missing: missing(&app.vendors.credentials, name),
        is_stored: stored_fields(&stored)
            .iter()
            .any(|field| field.set().connection() == name),
        fields,
        install_url: install_url.filter(|_| name == ConnectionName::GitHub),
    })
}

/// Reports the source of each configured connection, in one sentence.
pub(crate) fn sources_sentence(app: &App) -> StoreResult<String> {
    let stored = stored_fields(&app.core.store.read(connections::all)?);
    let of = |name: &ConnectionName| {
        let mut main = name.fields().filter(|field| field.set().is_main());
        let source = main.find_map(|field| field_source(app, field, &stored));
        let words = source.map_or("not set", CredentialSource::words);
        format!("{}: {words}", name.title())
    };
    let all: Vec<String> = ConnectionName::ALL.iter().map(of).collect();
    Ok(all.join("; "))
}

fn stored_fields(
    rows: &[(CredentialField, store::secrets::SealedSecretRow)],
) -> Vec<CredentialField> {
    rows.iter().map(|(field, _)| *field).collect()
}

/// Source of a field that has a value in force.
fn field_source(
    app: &App,
    field: CredentialField,
    stored: &[CredentialField],
) -> Option<CredentialSource> {
    let set = field.set();
    if app.core.config.credentials.has(set) {
        let has_value = app.core.config.credentials.has_field(field);
        return has_value.then_some(CredentialSource::Environment);
    }
    let is_in_force = stored.contains(&field) && app.vendors.credentials.has(set);
    is_in_force.then_some(CredentialSource::Stored)
}

/// Sentences about optional parts of a configured connection that are not set.
fn missing(credentials: &Credentials, name: ConnectionName) -> Vec<&'static str> {
    let rows = [
        (
            CredentialSet::GitHub,
            CredentialSet::GitHubWebhook,
            "Without SCM_WEBHOOK_SECRET, reviews and merges arrive late.",
        ),
        (
            CredentialSet::Linear,
            CredentialSet::LinearWebhook,
            "Without LINEAR_WEBHOOK_SECRET, tickets are found by the poll only.",
        ),
        (
            CredentialSet::Jira,
            CredentialSet::JiraWebhook,
            "Without JIRA_WEBHOOK_SECRET, tickets are found by the poll only.",
        ),
    ];
    let is_missing = |main, extra| credentials.has(main) && !credentials.has(extra);
    rows.into_iter()
        .filter(|(main, extra, _)| main.connection() == name && is_missing(*main, *extra))
        .map(|(_, _, sentence)| sentence)
        .collect()
}

//! Credentials of vendors that operators store. Values are write-only, tested before they are stored, and in
//! force at once.

mod state;

use domain::audit::{Action, Actor};
use domain::connection::{ConnectionName, CredentialField, CredentialSet, CredentialValues};
use domain::crypto::sealing::SealError;
use domain::secret::Secret;
use store::{StoreError, WriteTx, audit, connections, outbox};

pub(crate) use state::sources_sentence;
pub use state::{ConnectionState, list, state};

use crate::app::{App, Connection, ProbeStatus, VaultError};
use crate::config::Credentials;
use crate::{doctor, github_token, probe};

/// Maximum size of a value, in bytes.
const MAX_VALUE: usize = 32 << 10;

/// Reason why credentials cannot be stored, tested or deleted. No variant contains a value.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The values are incomplete, malformed, or rejected by the vendor.
    #[error("{0}")]
    Rejected(String),
    /// The vendor did not answer, so the values could not be tested.
    #[error("{0}")]
    Unanswered(String),
    /// The environment sets this variable.
    #[error("{0} is set in the environment")]
    Overridden(&'static str),
    /// Nothing is stored for the connection.
    #[error("nothing is stored")]
    NotStored,
    /// The value could not be encrypted.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Stored credentials cannot be used.
    #[error("{0}")]
    Clients(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<VaultError> for ConnectionError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Store(error) => Self::Store(error),
            error => Self::Clients(error.to_string()),
        }
    }
}

/// Probes a connection again and returns its state.
///
/// # Errors
/// Fails if the store cannot be read.
pub async fn test(app: &App, name: ConnectionName) -> Result<ConnectionState, ConnectionError> {
    app.live.probe_cache.forget(affected(name));
    Ok(state(app, name).await?)
}

/// Tests values, stores them, and puts them in force. The values of a set replace its stored values. Returns
/// the state of the connection.
///
/// # Errors
/// Fails if the environment decides, or if the values do not work. Nothing is stored then.
pub async fn set(
    app: &App,
    actor: Actor,
    name: ConnectionName,
    values: CredentialValues,
) -> Result<ConnectionState, ConnectionError> {
    let sets = given_sets(&values);
    require_stored_source(app, &sets)?;
    check_values(&values)?;
    let values: CredentialValues = values
        .into_iter()
        .filter(|(_, one)| !is_blank(one))
        .collect();
    let candidate = candidate(app, name, &sets, &values)?;
    let app = &app
        .with_candidate(candidate)
        .map_err(ConnectionError::Clients)?;
    check_candidate(app, name, &sets).await?;
    store_values(app, actor, name, sets, values).await?;
    Ok(state(&replace(app, name).await?, name).await?)
}

/// Stores values that need no test, such as those that the vendor has just created, and puts them in force.
///
/// # Errors
/// Fails if the environment decides, or if the store fails.
pub(crate) async fn set_untested(
    app: &App,
    actor: Actor,
    name: ConnectionName,
    values: CredentialValues,
) -> Result<(), ConnectionError> {
    let sets = given_sets(&values);
    require_stored_source(app, &sets)?;
    candidate(app, name, &sets, &values)?;
    store_values(app, actor, name, sets, values).await?;
    replace(app, name).await.map(drop)
}

/// Deletes everything that is stored for a connection. Returns its state.
///
/// # Errors
/// [`ConnectionError::NotStored`] if nothing is stored.
pub async fn remove(
    app: &App,
    actor: Actor,
    name: ConnectionName,
) -> Result<ConnectionState, ConnectionError> {
    let now = app.core.now();
    let event = actor.audit_event(Action::ConnectionDeleted, name.title());
    let removed = app.core.store.write(move |tx| {
        let mut removed = false;
        for field in name.fields() {
            removed |= connections::remove(tx, field)?;
        }
        if removed {
            audit::append(tx, &event, now)?;
        }
        Ok(removed)
    });
    match removed.await? {
        true => Ok(state(&replace(app, name).await?, name).await?),
        false => Err(ConnectionError::NotStored),
    }
}

/// Probe of a connection; `None` if nothing can be probed.
fn connection_of(name: ConnectionName) -> Option<Connection> {
    match name {
        ConnectionName::GitHub => Some(Connection::RepoHost),
        ConnectionName::Linear => Some(Connection::Linear),
        ConnectionName::Jira => Some(Connection::Jira),
        ConnectionName::Model => None,
        ConnectionName::Chat => Some(Connection::Notifications),
        ConnectionName::FlyMachines => Some(Connection::VmSessions),
    }
}

/// Probes whose results a change of the connection makes obsolete.
fn affected(name: ConnectionName) -> &'static [Connection] {
    match name {
        ConnectionName::GitHub => &[Connection::RepoHost, Connection::Webhook],
        ConnectionName::Linear => &[Connection::Linear],
        ConnectionName::Jira => &[Connection::Jira],
        ConnectionName::Model => &[],
        ConnectionName::Chat => &[Connection::Notifications],
        ConnectionName::FlyMachines => &[Connection::VmSessions],
    }
}

fn given_sets(values: &CredentialValues) -> Vec<CredentialSet> {
    let mut sets: Vec<_> = values.keys().map(|field| field.set()).collect();
    sets.sort_unstable();
    sets.dedup();
    sets
}

fn is_blank(value: &Secret) -> bool {
    value.expose().trim().is_empty()
}

/// Checks that the environment sets none of these.
pub(crate) fn require_stored_source(
    app: &App,
    sets: &[CredentialSet],
) -> Result<(), ConnectionError> {
    let environment = &app.core.config.credentials;
    let Some(set) = sets.iter().find(|set| environment.has(**set)) else {
        return Ok(());
    };
    let mut fields = CredentialField::ALL.iter().copied();
    let field = fields.find(|field| field.set() == *set && environment.has_field(*field));
    Err(ConnectionError::Overridden(
        field.map_or("A variable", CredentialField::variable),
    ))
}

/// Checks the form of values that will be headers of requests.
fn check_values(values: &CredentialValues) -> Result<(), ConnectionError> {
    for (field, value) in values {
        let (name, value) = (field.variable(), value.expose().trim());
        let may_have_lines = *field == CredentialField::GitHubAppPrivateKey;
        let is_allowed = |c: char| !c.is_control() || (may_have_lines && matches!(c, '\n' | '\r'));
        if value.len() > MAX_VALUE {
            let limit = MAX_VALUE >> 10;
            let sentence = format!("{name} must be at most {limit} KiB");
            return Err(ConnectionError::Rejected(sentence));
        }
        if !value.chars().all(is_allowed) {
            let sentence = format!("{name} must be one line without control characters");
            return Err(ConnectionError::Rejected(sentence));
        }
    }
    match values.values().all(is_blank) {
        true => Err(ConnectionError::Rejected("Fill in a field.".to_owned())),
        false => Ok(()),
    }
}

/// Validates values and returns the credentials that would be in force with them.
fn candidate(
    app: &App,
    name: ConnectionName,
    sets: &[CredentialSet],
    values: &CredentialValues,
) -> Result<Credentials, ConnectionError> {
    let config = &app.core.config;
    let validate = |values: &CredentialValues| {
        Credentials::from_values(values, &config.vendor_addresses, config.allow_plain_http)
    };
    let (given, problems) = validate(values);
    if !problems.is_empty() {
        return Err(ConnectionError::Rejected(problems.join("; ")));
    }
    // A set without any value is removed.
    let is_incomplete =
        |set: &&CredentialSet| values.keys().any(|field| field.set() == **set) && !given.has(**set);
    if let Some(set) = sets.iter().find(is_incomplete) {
        let mut fields = name.fields();
        let needed = fields.find(|field| field.set() == *set && field.is_secret());
        let needed = needed.map_or("A value", CredentialField::variable);
        return Err(ConnectionError::Rejected(format!("{needed} is missing")));
    }
    let mut stored = app
        .core
        .store
        .read(|tx| Ok(app.secrets.vault.credentials(tx)))??;
    stored.retain(|field, _| !sets.contains(&field.set()));
    stored.extend(values.clone());
    Ok(config.credentials.clone().or(validate(&stored).0))
}

/// Tests credentials with the checks of the doctor.
async fn check_candidate(
    app: &App,
    name: ConnectionName,
    sets: &[CredentialSet],
) -> Result<(), ConnectionError> {
    let is_tested = |set: &CredentialSet| set.is_main() && app.vendors.credentials.has(*set);
    let connection = connection_of(name).filter(|_| sets.iter().any(is_tested));
    let Some(connection) = connection else {
        return Ok(());
    };
    let found = probe::check_candidate(app, connection).await;
    let (_, _, remedy) = doctor::connection_texts(connection);
    match found.status {
        ProbeStatus::Ok => {}
        ProbeStatus::Limited => return Err(ConnectionError::Unanswered(found.detail)),
        ProbeStatus::Error if found.is_unanswered => {
            let sentence = format!("The values could not be tested: {}", found.detail);
            return Err(ConnectionError::Unanswered(sentence));
        }
        ProbeStatus::Error => {
            let cause = capitalized(found.detail.trim_end_matches('.'));
            let sentence = format!("{cause}. {remedy}");
            return Err(ConnectionError::Rejected(sentence));
        }
        ProbeStatus::Off => return Err(ConnectionError::Rejected(found.detail)),
    }
    if name == ConnectionName::GitHub {
        let refused = github_token::is_refused(app).await;
        match refused {
            Ok(false) => {}
            Ok(true) => {
                let sentence = github_token::REFUSAL_MESSAGE.to_owned();
                return Err(ConnectionError::Rejected(sentence));
            }
            Err(error) => return Err(ConnectionError::Unanswered(error.to_string())),
        }
    }
    Ok(())
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

async fn store_values(
    app: &App,
    actor: Actor,
    name: ConnectionName,
    sets: Vec<CredentialSet>,
    values: CredentialValues,
) -> Result<(), ConnectionError> {
    let now = app.core.now();
    let names: Vec<_> = values.keys().map(|field| field.variable()).collect();
    let event = actor.audit_event(Action::ConnectionSet, name.title());
    let event = event.with_detail(names.join(", "));
    let mut sealed = Vec::new();
    for (field, value) in &values {
        let value = Secret::new(value.expose().trim());
        sealed.push((
            *field,
            app.secrets.vault.seal_credential(*field, &value, now)?,
        ));
    }
    let stored = app.core.store.write(move |tx| {
        remove_sets(tx, &sets)?;
        for (field, value) in &sealed {
            connections::put(tx, *field, value)?;
        }
        audit::append(tx, &event, now)
    });
    Ok(stored.await?)
}

fn remove_sets(tx: &WriteTx<'_>, sets: &[CredentialSet]) -> Result<(), StoreError> {
    for field in CredentialField::ALL {
        if sets.contains(&field.set()) {
            connections::remove(tx, *field)?;
        }
    }
    Ok(())
}

/// Replaces the clients of the vendors, and discards what is known only of the previous ones.
async fn replace(app: &App, name: ConnectionName) -> Result<App, ConnectionError> {
    let app = app.replace_vendors().map_err(ConnectionError::Clients)?;
    let (live, notifiers) = (&app.live, &app.live.notifiers);
    live.probe_cache.forget(affected(name));
    live.form_lookups.clear();
    if name == ConnectionName::GitHub {
        live.permission_cache.clear();
    }
    let vendors = &app.vendors;
    live.poll_snapshots
        .retain(|system| vendors.account(system).is_some());
    // Entries that wait because of the previous credentials are tried at once.
    let now = app.core.now();
    let rescheduled = app
        .core
        .store
        .write(move |tx| outbox::reschedule_beyond(tx, now, now));
    rescheduled.await?;
    for notify in [
        &notifiers.poll,
        &notifiers.run_monitor,
        &notifiers.follow_up,
        &notifiers.reap,
    ] {
        notify.notify_one();
    }
    tracing::info!(
        connection = name.slug(),
        "Replaced the credentials of a connection."
    );
    Ok(app)
}

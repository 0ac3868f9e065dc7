//! Secrets for the environment of sessions. Values are write-only.

use crate::app::{App, Core};
use domain::audit::{Action, Actor, AuditEvent};
use domain::crypto::sealing::SealError;
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use domain::session_secrets::{SecretName, SecretNameError, SecretScope};
use store::secrets::SealedSecretRow;
use store::{ReadableTx, StoreError, StoreResult, audit, mappings, secrets};

/// Maximum size of a value, in bytes. Below the limit of machines and containers for one variable.
const MAX_VALUE: usize = 32 << 10;

/// Reason why the secrets of sessions cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SessionSecretError {
    /// No sessions are in use, and secrets are passed to sessions only.
    #[error("neither Fly Machines nor local containers are in use")]
    NoSessions,
    /// No mapping has this team key.
    #[error("no such team")]
    UnknownTeam,
    /// The name is invalid or not allowed.
    #[error(transparent)]
    Name(#[from] SecretNameError),
    /// The value cannot be an environment variable.
    #[error("{0}")]
    Value(String),
    /// The value could not be encrypted.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// No secret has this name.
    #[error("no such secret")]
    UnknownSecret,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks that sessions are in use.
///
/// # Errors
/// [`SessionSecretError::NoSessions`] if not.
pub fn require_sessions(app: &App) -> Result<(), SessionSecretError> {
    let mode = app.core.store.read(|tx| app.core.runner_mode(tx))?;
    let available = app.available_runners();
    if available.vm || available.kubernetes || mode == RunnerMode::Local {
        Ok(())
    } else {
        Err(SessionSecretError::NoSessions)
    }
}

/// Checks that the team of a scope exists.
///
/// # Errors
/// [`SessionSecretError::UnknownTeam`] if not.
pub fn require_team(core: &Core, scope: &SecretScope) -> Result<(), SessionSecretError> {
    if core.store.read(|tx| exists(tx, scope))? {
        Ok(())
    } else {
        Err(SessionSecretError::UnknownTeam)
    }
}

/// Returns the secrets of a scope, encrypted.
///
/// # Errors
/// Fails if no sessions are in use or the team does not exist.
pub fn list(app: &App, scope: &SecretScope) -> Result<Vec<SealedSecretRow>, SessionSecretError> {
    require_sessions(app)?;
    let rows = app.core.store.read(|tx| {
        if !exists(tx, scope)? {
            return Ok(None);
        }
        secrets::of_scope(tx, scope).map(Some)
    });
    rows?.ok_or(SessionSecretError::UnknownTeam)
}

/// Encrypts and stores a secret. Returns its variable.
///
/// # Errors
/// Fails if the name is not allowed, the value is invalid or the team does not exist.
pub async fn set(
    app: &App,
    actor: Actor,
    scope: SecretScope,
    name: &str,
    value: &str,
) -> Result<String, SessionSecretError> {
    let name = SecretName::parse(scope, name)?;
    check_value(value)?;
    let now = app.core.now();
    let sealed = app.secrets.vault.seal(&name, &Secret::new(value), now)?;
    let variable = name.variable().to_owned();
    let event = audit_event(&actor, Action::SecretSet, &name);
    let stored = app.core.store.write(move |tx| {
        if !exists(tx, name.scope())? {
            return Ok(Err(SessionSecretError::UnknownTeam));
        }
        let teams = mappings::all(tx)?;
        let allowed = name.check_allowed(teams.iter().map(|mapping| &mapping.team_key));
        if let Err(error) = allowed {
            return Ok(Err(error.into()));
        }
        secrets::put(tx, &name, &sealed)?;
        audit::append(tx, &event, now).map(Ok)
    });
    stored.await??;
    Ok(variable)
}

/// Deletes a secret.
///
/// # Errors
/// Fails if no sessions are in use, or if the team or the secret does not exist.
pub async fn remove(
    app: &App,
    actor: Actor,
    scope: SecretScope,
    name: &str,
) -> Result<(), SessionSecretError> {
    require_sessions(app)?;
    require_team(&app.core, &scope)?;
    // An invalid name cannot belong to a stored secret.
    let name = SecretName::parse(scope, name).map_err(|_| SessionSecretError::UnknownSecret)?;
    let event = audit_event(&actor, Action::SecretDeleted, &name);
    let now = app.core.now();
    let removed = app.core.store.write(move |tx| {
        let removed = secrets::remove(tx, &name)?;
        if removed {
            audit::append(tx, &event, now)?;
        }
        Ok(removed)
    });
    match removed.await? {
        true => Ok(()),
        false => Err(SessionSecretError::UnknownSecret),
    }
}

/// Builds the audit event, which contains the name but never the value.
fn audit_event(actor: &Actor, action: Action, name: &SecretName) -> AuditEvent {
    let scope = match name.scope() {
        SecretScope::Global => "of every team".to_owned(),
        SecretScope::Team(team) => format!("of team {team}"),
    };
    actor
        .audit_event(action, name.variable())
        .with_detail(scope)
}

fn exists(tx: &impl ReadableTx, scope: &SecretScope) -> StoreResult<bool> {
    match scope {
        SecretScope::Global => Ok(true),
        SecretScope::Team(team) => Ok(mappings::get(tx, team)?.is_some()),
    }
}

/// Checks that a value can be an environment variable.
fn check_value(value: &str) -> Result<(), SessionSecretError> {
    let rule = if value.contains('\0') {
        "value must not contain NUL".to_owned()
    } else if value.len() > MAX_VALUE {
        format!("value must be at most {} KiB", MAX_VALUE >> 10)
    } else {
        return Ok(());
    };
    Err(SessionSecretError::Value(rule))
}

//! Project mappings. The validation rules are in `domain::mapping`.

use crate::app::{App, Core};
use crate::budget;
use crate::time_zones;
use domain::audit::{Action, Actor};
use domain::ids::TeamKey;
use domain::mapping::{
    Mapping, MappingError, MappingInput, MappingPatch, MappingPrecondition, MappingWarning,
    find_equal_match, find_overlapping_key,
};
use domain::time::Timestamp;
use store::{StoreError, StoreResult, WriteTx, audit, mappings, secrets};
use vendors::ticketing::TicketingClient;

use super::mapping_check;

/// Stored mapping with the warnings about it.
#[derive(Debug)]
pub struct SavedMapping {
    /// Mapping as stored.
    pub mapping: Mapping,
    /// Warnings, which do not prevent the change.
    pub warnings: Vec<MappingWarning>,
}

/// Reason why a mapping was not changed.
#[derive(Debug, thiserror::Error)]
pub enum MappingChangeError {
    /// No mapping has this team key.
    #[error("no such team")]
    UnknownTeam,
    /// A rule is violated.
    #[error(transparent)]
    Invalid(#[from] MappingError),
    /// The mapping was changed since it was read. Contains it as stored now; `None` if it was deleted.
    #[error("the mapping was changed in the meantime")]
    Outdated(Option<Box<Mapping>>),
    /// The ticketing system rejected the ticketing configuration, for these reasons.
    #[error("the ticketing system rejected the configuration")]
    TicketingRejected(Vec<String>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Validates and stores a mapping. Omitted fields keep the stored values.
///
/// # Errors
/// Fails if the precondition is not met, a rule is violated, or the ticketing system rejects its configuration.
pub async fn save(
    app: &App,
    actor: Actor,
    input: MappingInput,
    precondition: MappingPrecondition,
) -> Result<SavedMapping, MappingChangeError> {
    let now = app.core.now();
    let stored = app
        .core
        .store
        .read(|tx| mappings::get(tx, &input.team_key))?;
    require(&precondition, stored.as_ref())?;
    check_ticketing(app, &input, now).await?;
    let saved = app.core.store.write(move |tx| {
        let stored = mappings::get(tx, &input.team_key)?;
        match require(&precondition, stored.as_ref()) {
            Ok(()) => Ok(put(tx, &actor, &input, now)?.map_err(MappingChangeError::from)),
            Err(outdated) => Ok(Err(outdated)),
        }
    });
    let mapping = saved.await??;
    let checked = mapping_check::warnings(&app.vendors, &mapping).await;
    with_warnings(&app.core, mapping, checked)
}

/// Applies a patch to a stored mapping.
///
/// # Errors
/// Fails if the mapping does not exist, the precondition is not met, a rule is violated, or the ticketing system
/// rejects its configuration.
pub async fn change(
    app: &App,
    actor: Actor,
    key: TeamKey,
    patch: MappingPatch,
    precondition: MappingPrecondition,
) -> Result<SavedMapping, MappingChangeError> {
    let now = app.core.now();
    if patch.has_ticketing_fields() {
        let stored = app.core.store.read(|tx| mappings::get(tx, &key))?;
        let stored = stored.ok_or(MappingChangeError::UnknownTeam)?;
        require(&precondition, Some(&stored))?;
        check_ticketing(app, &patch.apply_to(&stored)?, now).await?;
    }
    let names_changed = ["owner", "repo", "defaultBranch", "ticketingConfig"]
        .into_iter()
        .any(|name| patch.has_field(name));
    let changed = app
        .core
        .store
        .write(move |tx| apply(tx, &actor, &key, &patch, &precondition, now));
    let mapping = changed.await??;
    let checked = match names_changed {
        true => mapping_check::warnings(&app.vendors, &mapping).await,
        false => Vec::new(),
    };
    with_warnings(&app.core, mapping, checked)
}

/// Deletes a mapping and the secrets of its team. Otherwise the secrets could no longer be listed,
/// and a later mapping with this key could belong to other people. Active jobs are still tracked to
/// their end. Returns whether there was a mapping.
///
/// # Errors
/// Fails if the precondition is not met, or if the store cannot be written.
pub async fn remove(
    core: &Core,
    actor: Actor,
    key: TeamKey,
    precondition: MappingPrecondition,
) -> Result<bool, MappingChangeError> {
    let now = core.now();
    let removed = core.store.write(move |tx| {
        let Some(stored) = mappings::get(tx, &key)? else {
            return Ok(Ok(false));
        };
        if let Err(outdated) = require(&precondition, Some(&stored)) {
            return Ok(Err(outdated));
        }
        remove_mapping(tx, &actor, &key, now)?;
        Ok(Ok(true))
    });
    removed.await?
}

/// Removes a stored mapping with the secrets of its team and records it in the audit log.
pub(super) fn remove_mapping(
    tx: &WriteTx<'_>,
    actor: &Actor,
    key: &TeamKey,
    now: Timestamp,
) -> StoreResult<()> {
    mappings::remove(tx, key)?;
    secrets::remove_team(tx, key)?;
    audit::append(tx, &actor.audit_event(Action::MappingDeleted, key), now)
}

/// Fails if the stored mapping does not meet a precondition.
fn require(
    precondition: &MappingPrecondition,
    stored: Option<&Mapping>,
) -> Result<(), MappingChangeError> {
    match precondition.is_met_by(stored) {
        true => Ok(()),
        false => Err(MappingChangeError::Outdated(stored.cloned().map(Box::new))),
    }
}

/// Adds the warnings that need no vendor.
fn with_warnings(
    core: &Core,
    mapping: Mapping,
    checked: Vec<MappingWarning>,
) -> Result<SavedMapping, MappingChangeError> {
    let now = core.now();
    let budget = core.store.read(|tx| budget::warning(tx, &mapping, now))?;
    let mut warnings = mapping.warnings();
    warnings.extend(budget.map(|message| MappingWarning {
        field: "budgetUsd",
        message,
    }));
    warnings.extend(checked);
    Ok(SavedMapping { mapping, warnings })
}

/// Validates the ticketing configuration of a valid mapping with the ticketing system.
async fn check_ticketing(
    app: &App,
    input: &MappingInput,
    now: Timestamp,
) -> Result<(), MappingChangeError> {
    let stored = app
        .core
        .store
        .read(|tx| mappings::get(tx, &input.team_key))?;
    let Ok(mapping) = input.validate(stored.as_ref(), now) else {
        // The transaction that stores the mapping reports the violated rule.
        return Ok(());
    };
    let problems = ticketing_problems(app, &mapping).await;
    if problems.is_empty() {
        Ok(())
    } else {
        Err(MappingChangeError::TicketingRejected(problems))
    }
}

/// Returns what the ticketing system rejects about the ticketing configuration of a valid mapping. Nothing if the
/// system cannot be reached or rejects the credential: every poll reports an invalid query.
pub(super) async fn ticketing_problems(app: &App, mapping: &Mapping) -> Vec<String> {
    let Some(TicketingClient::Jira(jira)) = app.vendors.account(mapping.system()) else {
        return Vec::new();
    };
    match jira.validate_mapping(mapping).await {
        Ok(problems) => problems,
        Err(error) if error.is_permanent() && !matches!(error.status(), Some(401 | 403)) => {
            vec![error.to_string()]
        }
        Err(error) => {
            tracing::warn!(team = %mapping.team_key, %error, "Could not validate the ticketing configuration of a mapping; saving it unchecked.");
            Vec::new()
        }
    }
}

/// Validates and stores a mapping. Both happen in one transaction, because omitted fields keep
/// stored values.
fn put(
    tx: &WriteTx<'_>,
    actor: &Actor,
    input: &MappingInput,
    now: Timestamp,
) -> StoreResult<Result<Mapping, MappingError>> {
    let existing = mappings::all(tx)?;
    let stored = existing
        .iter()
        .find(|mapping| mapping.team_key == input.team_key);
    let mut mapping = match input.validate(stored, now) {
        Ok(mapping) => mapping,
        Err(error) => return Ok(Err(error)),
    };
    if let Some(error) = time_zones::missing_data(&mapping) {
        return Ok(Err(error.into()));
    }
    let keys = existing.iter().map(|mapping| &mapping.team_key);
    if let Some(other) = find_overlapping_key(&mapping.team_key, keys) {
        let error = MappingError::OverlappingTeamKey(mapping.team_key.clone(), other.clone());
        return Ok(Err(error));
    }
    let (key, ticketing, repo) = (&mapping.team_key, &mapping.ticketing, mapping.target_repo());
    if let Some(other) = find_equal_match(key, ticketing, Some(&repo), existing.iter()) {
        return Ok(Err(MappingError::SameMatch(other.clone())));
    }
    // Repository names are case-insensitive on GitHub, but stored pull requests are found by the
    // exact name.
    if let Some(canonical) = mappings::canonical_repo(tx, &mapping.target_repo())? {
        (mapping.owner, mapping.repo) = (canonical.owner, canonical.name);
    }
    put_mapping(tx, actor, &mapping, stored.is_none(), now)?;
    Ok(Ok(mapping))
}

/// Stores a valid mapping and records it in the audit log.
pub(super) fn put_mapping(
    tx: &WriteTx<'_>,
    actor: &Actor,
    mapping: &Mapping,
    is_new: bool,
    now: Timestamp,
) -> StoreResult<()> {
    mappings::put(tx, mapping)?;
    let action = match is_new {
        true => Action::MappingCreated,
        false => Action::MappingUpdated,
    };
    let event = actor.audit_event(action, &mapping.team_key);
    audit::append(tx, &event.with_detail(mapping.target_repo()), now)
}

/// Applies a patch to the mapping as stored at the time of the commit, so that concurrent patches
/// of different fields both take effect.
fn apply(
    tx: &WriteTx<'_>,
    actor: &Actor,
    key: &TeamKey,
    patch: &MappingPatch,
    precondition: &MappingPrecondition,
    now: Timestamp,
) -> StoreResult<Result<Mapping, MappingChangeError>> {
    let Some(mut mapping) = mappings::get(tx, key)? else {
        return Ok(Err(MappingChangeError::UnknownTeam));
    };
    if let Err(outdated) = require(precondition, Some(&mapping)) {
        return Ok(Err(outdated));
    }
    let event = match patch {
        MappingPatch::Paused(paused) => {
            mapping.paused = *paused;
            match paused {
                true => actor.audit_event(Action::MappingPaused, key),
                false => actor.audit_event(Action::MappingResumed, key),
            }
        }
        MappingPatch::MaxInProgress(cap) => {
            mapping.max_in_progress = *cap;
            actor
                .audit_event(Action::MappingCapped, key)
                .with_detail(format!("maxInProgressAiIssues {cap}"))
        }
        MappingPatch::Fields(_) => {
            return match patch.apply_to(&mapping) {
                Ok(input) => Ok(put(tx, actor, &input, now)?.map_err(MappingChangeError::from)),
                Err(error) => Ok(Err(error.into())),
            };
        }
    };
    mapping.updated_at = now;
    mappings::put(tx, &mapping)?;
    audit::append(tx, &event, now)?;
    Ok(Ok(mapping))
}

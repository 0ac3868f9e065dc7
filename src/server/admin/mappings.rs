//! `/api/mappings`: project mappings. The validation rules are in `domain::mapping`.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use warp::http::Method;
use warp::{Filter, path};

use crate::error::{AdminApiError, ApiError};
use crate::routing::{
    ApiResult, MAX_BODY, PathSegment, Routes, body, ok, one_of, operator, parse_json,
    reject_other_methods, require_admin, with_app, without_param,
};
use domain::audit::{Action, Actor};
use domain::ids::TeamKey;
use domain::mapping::{
    Mapping, MappingError, MappingInput, MappingPatch, MappingView, MappingWarning,
    find_overlapping_key,
};
use domain::time::Timestamp;
use engine::app::App;
use engine::{budget, mapping_check};
use store::{StoreResult, WriteTx, audit, mappings, secrets};
use vendors::ticketing::TicketingClient;

/// Routes of `/api/mappings`.
pub(super) fn routes(app: &App) -> Routes {
    let all = path!("api" / "mappings").boxed();
    let each = path!("api" / "mappings" / PathSegment).boxed();
    let (app_, operator) = (with_app(app), operator(app));
    one_of([
        all.clone()
            .and(require_admin(app, Method::GET))
            .and(app_.clone())
            .then(list)
            .boxed(),
        all.clone()
            .and(require_admin(app, Method::POST))
            .and(operator.clone())
            .and(body(MAX_BODY))
            .and(app_.clone())
            .then(save)
            .boxed(),
        each.clone()
            .and(require_admin(app, Method::PATCH))
            .and(operator.clone())
            .and(body(MAX_BODY))
            .and(app_.clone())
            .then(change)
            .boxed(),
        each.clone()
            .and(require_admin(app, Method::DELETE))
            .and(operator)
            .and(app_)
            .then(remove)
            .boxed(),
        reject_other_methods(&all, [Method::GET, Method::POST]),
        reject_other_methods(&without_param(&each), [Method::PATCH, Method::DELETE]),
    ])
}

async fn list(app: App) -> ApiResult {
    let all = app.store.read(mappings::all)?;
    let by_key: BTreeMap<&str, MappingView<'_>> = all
        .iter()
        .map(|mapping| {
            (
                mapping.team_key.as_str(),
                MappingView::from_mapping(mapping),
            )
        })
        .collect();
    Ok(ok(&by_key))
}

async fn save(by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(MappingError::InvalidBody)?;
    let input = MappingInput::read(body)?;
    let now = app.now();
    check_ticketing(&app, &input, now).await?;
    let saved = app
        .store
        .write(move |tx| store(tx, &by, &input, now))
        .await??;
    let checked = mapping_check::warnings(&app, &saved).await;
    let response = json!(MappingView::from_mapping(&saved));
    Ok(ok(&with_warnings(&app, &saved, checked, response)?))
}

/// Adds the warnings about a mapping to the response of a write.
fn with_warnings(
    app: &App,
    mapping: &Mapping,
    checked: Vec<MappingWarning>,
    mut response: Value,
) -> StoreResult<Value> {
    let now = app.now();
    let budget = app
        .store
        .read(|tx| budget::warning(tx, app, mapping, now))?;
    let mut warnings = mapping.warnings();
    warnings.extend(budget.map(|message| MappingWarning {
        field: "budgetUsd",
        message,
    }));
    warnings.extend(checked);
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    Ok(response)
}

/// Validates the ticketing configuration of a valid mapping with the ticketing system. If the system
/// cannot be reached or rejects the credential, the mapping is accepted unchecked: every poll reports an
/// invalid query.
async fn check_ticketing(app: &App, input: &MappingInput, now: Timestamp) -> Result<(), ApiError> {
    let stored = app.store.read(|tx| mappings::get(tx, &input.team_key))?;
    let Ok(mapping) = input.validate(stored.as_ref(), now) else {
        // The transaction that stores the mapping reports the violated rule.
        return Ok(());
    };
    let Some(TicketingClient::Jira(jira)) = app.account(mapping.system()) else {
        return Ok(());
    };
    let problems = match jira.validate_mapping(&mapping).await {
        Ok(problems) => problems,
        Err(error) if error.is_permanent() && !matches!(error.status(), Some(401 | 403)) => {
            vec![error.to_string()]
        }
        Err(error) => {
            tracing::warn!(team = %mapping.team_key, %error, "Could not validate the ticketing configuration of a mapping; saving it unchecked.");
            Vec::new()
        }
    };
    if problems.is_empty() {
        Ok(())
    } else {
        Err(AdminApiError::TicketingRejected(problems).into())
    }
}

/// Validates and stores a mapping. Both happen in one transaction, because omitted fields keep stored values.
fn store(
    tx: &WriteTx<'_>,
    by: &Actor,
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
    let keys = existing.iter().map(|mapping| &mapping.team_key);
    if let Some(other) = find_overlapping_key(&mapping.team_key, keys) {
        let error = MappingError::OverlappingTeamKey(mapping.team_key.clone(), other.clone());
        return Ok(Err(error));
    }
    // Repository names are case-insensitive on GitHub, but stored pull requests are found by the exact name.
    if let Some(canonical) = mappings::canonical_repo(tx, &mapping.target_repo())? {
        (mapping.owner, mapping.repo) = (canonical.owner, canonical.name);
    }
    mappings::put(tx, &mapping)?;
    let action = match stored {
        Some(_) => Action::MappingUpdated,
        None => Action::MappingCreated,
    };
    let event = by
        .audit_event(action, &mapping.team_key)
        .with_detail(mapping.target_repo());
    audit::append(tx, &event, now)?;
    Ok(Ok(mapping))
}

async fn change(PathSegment(key): PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(MappingError::InvalidBody)?;
    let (key, now) = (TeamKey::new(key), app.now());
    let change = MappingPatch::read(body, &key)?;
    if change.has_ticketing_fields() {
        let stored = app.store.read(|tx| mappings::get(tx, &key))?;
        let stored = stored.ok_or(AdminApiError::TeamNotFound)?;
        check_ticketing(&app, &change.apply_to(&stored)?, now).await?;
    }
    let patch = change.clone();
    let changed = app
        .store
        .write(move |tx| apply(tx, &by, &key, &patch, now))
        .await??;
    let mut response = json!({"updated": true});
    if change.has_field("paused") {
        response["paused"] = json!(changed.paused);
    }
    if change.has_field("maxInProgressAiIssues") {
        response["maxInProgressAiIssues"] = json!(changed.max_in_progress);
    }
    let checked = match ["owner", "repo", "defaultBranch"].map(|name| change.has_field(name)) {
        [false, false, false] => Vec::new(),
        _ => mapping_check::warnings(&app, &changed).await,
    };
    Ok(ok(&with_warnings(&app, &changed, checked, response)?))
}

/// Applies a patch to the mapping as stored at the time of the commit, so that concurrent patches of
/// different fields both take effect.
fn apply(
    tx: &WriteTx<'_>,
    by: &Actor,
    key: &TeamKey,
    change: &MappingPatch,
    now: Timestamp,
) -> StoreResult<Result<Mapping, ApiError>> {
    let Some(mut mapping) = mappings::get(tx, key)? else {
        return Ok(Err(AdminApiError::TeamNotFound.into()));
    };
    let event = match change {
        MappingPatch::Paused(paused) => {
            mapping.paused = *paused;
            match paused {
                true => by.audit_event(Action::MappingPaused, key),
                false => by.audit_event(Action::MappingResumed, key),
            }
        }
        MappingPatch::MaxInProgress(cap) => {
            mapping.max_in_progress = *cap;
            by.audit_event(Action::MappingCapped, key)
                .with_detail(format!("maxInProgressAiIssues {cap}"))
        }
        MappingPatch::Fields(_) => {
            return match change.apply_to(&mapping) {
                Ok(input) => Ok(store(tx, by, &input, now)?.map_err(ApiError::from)),
                Err(error) => Ok(Err(error.into())),
            };
        }
    };
    mapping.updated_at = now;
    mappings::put(tx, &mapping)?;
    audit::append(tx, &event, now)?;
    Ok(Ok(mapping))
}

/// Deletes a mapping and the secrets of its team. Otherwise the secrets could no longer be listed, and a
/// later mapping with this key could belong to other people. Active jobs are still tracked to their end.
async fn remove(PathSegment(key): PathSegment, by: Actor, app: App) -> ApiResult {
    let (key, now) = (TeamKey::new(key), app.now());
    let removed = app.store.write(move |tx| {
        if !mappings::remove(tx, &key)? {
            return Ok(false);
        }
        secrets::remove_team(tx, &key)?;
        let event = by.audit_event(Action::MappingDeleted, &key);
        audit::append(tx, &event, now)?;
        Ok(true)
    });
    if removed.await? {
        Ok(ok(&json!({"deleted": true})))
    } else {
        Err(AdminApiError::NothingDeleted.into())
    }
}

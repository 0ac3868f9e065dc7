//! `/api/mappings`: which tickets go to which repository. The rules are `domain::mapping`'s.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use warp::http::Method;
use warp::{Filter, path};

use crate::error::{AdminFault, ApiError};
use crate::parts::{
    ApiResult, BODY, Routes, Segment, any_of, body, json, ok, one_of, only, operator, signed_in,
    with,
};
use domain::audit::{Action, Actor};
use domain::ids::TeamKey;
use domain::mapping::{
    Change, Input, Mapping, MappingError, MappingView, MappingWarning, overlapping,
};
use domain::time::Timestamp;
use engine::app::App;
use engine::{budget, mapping_check};
use store::{StoreResult, WriteTx, audit, mappings, secrets};
use vendors::ticketing::Account;

/// Routes of `/api/mappings`.
pub fn routes(app: &App) -> Routes {
    let all = path!("api" / "mappings").boxed();
    let each = path!("api" / "mappings" / Segment).boxed();
    let (app_, operator) = (with(app), operator(app));
    one_of([
        all.clone()
            .and(signed_in(app, Method::GET))
            .and(app_.clone())
            .then(list)
            .boxed(),
        all.clone()
            .and(signed_in(app, Method::POST))
            .and(operator.clone())
            .and(body(BODY))
            .and(app_.clone())
            .then(save)
            .boxed(),
        each.clone()
            .and(signed_in(app, Method::PATCH))
            .and(operator.clone())
            .and(body(BODY))
            .and(app_.clone())
            .then(change)
            .boxed(),
        each.clone()
            .and(signed_in(app, Method::DELETE))
            .and(operator)
            .and(app_)
            .then(remove)
            .boxed(),
        only(&all, [Method::GET, Method::POST]),
        only(&any_of(&each), [Method::PATCH, Method::DELETE]),
    ])
}

async fn list(app: App) -> ApiResult {
    let all = app.store.read(mappings::all)?;
    let by_key: BTreeMap<&str, MappingView<'_>> = all
        .iter()
        .map(|mapping| (mapping.team_key.as_str(), MappingView::of(mapping)))
        .collect();
    Ok(ok(&by_key))
}

async fn save(by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = json(&body).ok_or(MappingError::Body)?;
    let input = Input::read(body)?;
    let now = app.now();
    check_ticketing(&app, &input, now).await?;
    let saved = app
        .store
        .write(move |tx| store(tx, &by, &input, now))
        .await??;
    let looked_up = mapping_check::warnings(&app, &saved).await;
    let answer = json!(MappingView::of(&saved));
    Ok(ok(&with_warnings(&app, &saved, looked_up, answer)?))
}

/// The answer to a write, with what the operator should know of the mapping.
fn with_warnings(
    app: &App,
    mapping: &Mapping,
    looked_up: Vec<MappingWarning>,
    mut answer: Value,
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
    warnings.extend(looked_up);
    if !warnings.is_empty() {
        answer["warnings"] = json!(warnings);
    }
    Ok(answer)
}

/// Asks the ticketing system about a mapping that breaks no rule of ours. A system that cannot be
/// asked now, or refuses our credential, is no reason to refuse: a bad query is told of at each poll.
async fn check_ticketing(app: &App, input: &Input, now: Timestamp) -> Result<(), ApiError> {
    let stored = app.store.read(|tx| mappings::get(tx, &input.team_key))?;
    let Ok(mapping) = input.validate(stored.as_ref(), now) else {
        // The commit says which rule is broken.
        return Ok(());
    };
    let Some(Account::Jira(jira)) = app.account(mapping.system()) else {
        return Ok(());
    };
    let problems = match jira.check(&mapping).await {
        Ok(problems) => problems,
        Err(error) if error.is_permanent() && !matches!(error.status(), Some(401 | 403)) => {
            vec![error.to_string()]
        }
        Err(error) => {
            tracing::warn!(team = %mapping.team_key, %error, "A mapping is saved unchecked.");
            Vec::new()
        }
    };
    if problems.is_empty() {
        Ok(())
    } else {
        Err(AdminFault::TicketingRefused(problems).into())
    }
}

/// What is stored decides about what was left out, so both happen in one transaction.
fn store(
    tx: &WriteTx<'_>,
    by: &Actor,
    input: &Input,
    now: Timestamp,
) -> StoreResult<Result<Mapping, MappingError>> {
    let existing = mappings::all(tx)?;
    let stored = existing.iter().find(|one| one.team_key == input.team_key);
    let mut mapping = match input.validate(stored, now) {
        Ok(mapping) => mapping,
        Err(error) => return Ok(Err(error)),
    };
    let keys = existing.iter().map(|one| &one.team_key);
    if let Some(other) = overlapping(&mapping.team_key, keys) {
        let error = MappingError::Overlap(mapping.team_key.clone(), other.clone());
        return Ok(Err(error));
    }
    // The host does not care for case; what is known of its pull requests is found by the very name.
    if let Some(known) = mappings::known_as(tx, &mapping.target())? {
        (mapping.owner, mapping.repo) = (known.owner, known.name);
    }
    mappings::put(tx, &mapping)?;
    let action = match stored {
        Some(_) => Action::MappingUpdated,
        None => Action::MappingCreated,
    };
    let deed = by.did(action, &mapping.team_key).told(mapping.target());
    audit::append(tx, &deed, now)?;
    Ok(Ok(mapping))
}

async fn change(Segment(key): Segment, by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = json(&body).ok_or(MappingError::Body)?;
    let (key, now) = (TeamKey::new(key), app.now());
    let change = Change::read(body, &key)?;
    if change.concerns_ticketing() {
        let stored = app.store.read(|tx| mappings::get(tx, &key))?;
        let stored = stored.ok_or(AdminFault::TeamNotFound)?;
        check_ticketing(&app, &change.input(&stored)?, now).await?;
    }
    let given = change.clone();
    let changed = app
        .store
        .write(move |tx| apply(tx, &by, &key, &given, now))
        .await??;
    let mut answer = json!({"updated": true});
    if change.gives("paused") {
        answer["paused"] = json!(changed.paused);
    }
    if change.gives("maxInProgressAiIssues") {
        answer["maxInProgressAiIssues"] = json!(changed.max_in_progress);
    }
    let looked_up = match ["owner", "repo", "defaultBranch"].map(|name| change.gives(name)) {
        [false, false, false] => Vec::new(),
        _ => mapping_check::warnings(&app, &changed).await,
    };
    Ok(ok(&with_warnings(&app, &changed, looked_up, answer)?))
}

/// Changes what is stored at the moment of the commit, so that two changes of different fields both count.
fn apply(
    tx: &WriteTx<'_>,
    by: &Actor,
    key: &TeamKey,
    change: &Change,
    now: Timestamp,
) -> StoreResult<Result<Mapping, ApiError>> {
    let Some(mut mapping) = mappings::get(tx, key)? else {
        return Ok(Err(AdminFault::TeamNotFound.into()));
    };
    let deed = match change {
        Change::Paused(paused) => {
            mapping.paused = *paused;
            match paused {
                true => by.did(Action::MappingPaused, key),
                false => by.did(Action::MappingResumed, key),
            }
        }
        Change::MaxInProgress(cap) => {
            mapping.max_in_progress = *cap;
            by.did(Action::MappingCapped, key)
                .told(format!("maxInProgressAiIssues {cap}"))
        }
        Change::Fields(_) => {
            return match change.input(&mapping) {
                Ok(input) => Ok(store(tx, by, &input, now)?.map_err(ApiError::from)),
                Err(error) => Ok(Err(error.into())),
            };
        }
    };
    mapping.updated_at = now;
    mappings::put(tx, &mapping)?;
    audit::append(tx, &deed, now)?;
    Ok(Ok(mapping))
}

/// Its running jobs go on being tracked to their end. Its team's secrets go with it: nobody could
/// see them any more, and the next mapping of this key may be somebody else's.
async fn remove(Segment(key): Segment, by: Actor, app: App) -> ApiResult {
    let (key, now) = (TeamKey::new(key), app.now());
    let removed = app.store.write(move |tx| {
        if !mappings::remove(tx, &key)? {
            return Ok(false);
        }
        secrets::remove_team(tx, &key)?;
        let deed = by.did(Action::MappingDeleted, &key);
        audit::append(tx, &deed, now)?;
        Ok(true)
    });
    if removed.await? {
        Ok(ok(&json!({"deleted": true})))
    } else {
        Err(AdminFault::NothingDeleted.into())
    }
}

//! Plans that wait, as a poll finds them.

use std::collections::HashSet;
use std::time::Duration;

use crate::app::App;
use domain::audit::{Action, Actor};
use domain::comments;
use domain::effect::Effect;
use domain::ids::TeamKey;
use domain::issue::{FlaggedIssue, System};
use domain::mapping::Mapping;
use domain::plan_approval::{ApprovalSource, PlanApproval, PlanGate, declared_files};
use domain::stage::Stage;
use domain::ticket_comment::CommentAuthor;
use domain::time::Timestamp;
use store::{StoreResult, WriteTx, audit, mappings, plan_gates};
use vendors::ticketing::TicketingClient;

use super::check::{Approver, CheckedApproval, check_approval, known_hashes, read_hashes};
use super::{PlanError, comment, commit, push_all, set_marker, store_approval};
use crate::conversation::waits::{self, Polled, Presence};
use crate::permissions;
use crate::repository_load;

/// Time after which the approval of a ticket that is no longer flagged is forgotten. A later run plans again.
const MAX_APPROVAL_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Reads back posted plans, approves by rule and by markers, reminds people, and ends the waits of closed tickets.
pub(in crate::conversation) async fn update(
    app: &App,
    account: &TicketingClient,
    issues: &[FlaggedIssue],
    unread: &HashSet<&TeamKey>,
    is_pending: &(dyn Fn(&FlaggedIssue) -> bool + Sync),
) -> StoreResult<()> {
    let polled = Polled::new(issues, unread);
    let (gates, mappings) = app
        .core
        .store
        .read(|tx| Ok((plan_gates::all(tx)?, mappings::all(tx)?)))?;
    let mapping_of = |team: &TeamKey| mappings.iter().find(|mapping| mapping.team_key == *team);
    for gate in gates {
        if gate.issue.system != account.system() {
            continue;
        }
        let flagged = polled.get(&gate.issue.id);
        if flagged.is_some_and(is_pending) {
            continue;
        }
        let mapping = mapping_of(&gate.team).filter(|mapping| mapping.awaits_approval());
        let presence = polled.presence(&gate.issue.id, &gate.team);
        match mapping {
            _ if !gate.is_waiting() => {
                let is_old = gate
                    .approval
                    .as_ref()
                    .is_some_and(|approval| app.core.now().since(approval.at) > MAX_APPROVAL_AGE);
                if is_old && presence == Presence::Absent {
                    remove(app, gate).await?;
                }
            }
            // The project no longer wants approvals.
            None => remove(app, gate).await?,
            Some(_) if end_if_over(app, account, &gate, presence).await? => {}
            Some(mapping) => {
                if let Some(flagged) = flagged {
                    advance(app, account, gate, mapping, flagged).await?;
                }
            }
        }
    }
    Ok(())
}

async fn remove(app: &App, gate: PlanGate) -> StoreResult<()> {
    let write = app.core.store.write(move |tx| {
        match plan_gates::get(tx, &gate.issue.id)?.as_ref() == Some(&gate) {
            true => plan_gates::remove(tx, &gate.issue.id),
            // A run has made another plan since.
            false => Ok(()),
        }
    });
    write.await
}

/// Ends the wait of a plan whose ticket was closed or lost its trigger. Returns whether it did.
async fn end_if_over(
    app: &App,
    account: &TicketingClient,
    before: &PlanGate,
    presence: Presence,
) -> StoreResult<bool> {
    let (mut gate, now) = (before.clone(), app.core.now());
    let is_over = waits::is_over(
        presence,
        &mut gate.trigger_seen,
        &mut gate.absent_since,
        now,
    );
    if !is_over && gate == *before {
        return Ok(false);
    }
    let markers = match is_over {
        true => waits::markers_after_end(account, &gate.issue).await,
        false => None,
    };
    let before = before.clone();
    let write = app.core.store.write(move |tx| {
        if plan_gates::get(tx, &before.issue.id)?.as_ref() != Some(&before) {
            return Ok(());
        }
        match is_over {
            true => waits::end_all(tx, &before.issue.id)?,
            false => plan_gates::put(tx, &gate)?,
        }
        push_all(tx, markers.clone(), now)
    });
    write.await?;
    // The next poll goes on with the changed row.
    Ok(true)
}

/// Advances a plan that waits: reads it back once, then looks for an approval by marker, then reminds people.
async fn advance(
    app: &App,
    account: &TicketingClient,
    gate: PlanGate,
    mapping: &Mapping,
    flagged: &FlaggedIssue,
) -> StoreResult<()> {
    if gate.hashes.is_none() {
        return read_back(app, account, gate, mapping).await;
    }
    let shows_approval = matches!(
        (flagged.stage, flagged.issue.system),
        (Stage::PlanApproved, _) | (Stage::PlanComplete, System::Jira)
    );
    if shows_approval {
        return approve_by_marker(app, account, &gate, mapping).await;
    }
    let now = app.core.now();
    if !gate.is_reminder_due(now) {
        return Ok(());
    }
    let write = app.core.store.write(move |tx| {
        if plan_gates::get(tx, &gate.issue.id)?.as_ref() != Some(&gate) {
            return Ok(());
        }
        let reminded = PlanGate {
            reminded_at: Some(now),
            ..gate.clone()
        };
        plan_gates::put(tx, &reminded)?;
        push_all(tx, [comment(&gate.issue, comments::plan_reminder())], now)
    });
    write.await
}

/// Reads a posted plan back and stores its hash. The rule of the project may approve it; otherwise people are asked.
async fn read_back(
    app: &App,
    account: &TicketingClient,
    gate: PlanGate,
    mapping: &Mapping,
) -> StoreResult<()> {
    let (current, plan) = match read_hashes(app, account, &gate).await? {
        Ok(read) => read,
        Err(why) => {
            tracing::warn!(issue = %gate.issue.key, why, "Failed to read a plan back; the next poll tries again.");
            return Ok(());
        }
    };
    let known = known_hashes(&gate, &current);
    let changed = known
        .as_ref()
        .and_then(|known| current.changed_since(known));
    let objection = match (&mapping.plan_auto_approve, mapping.plan_approval) {
        (Some(rule), PlanApproval::Auto) => rule.objection(&declared_files(&plan)),
        _ => None,
    };
    let is_auto = mapping.plan_approval == PlanApproval::Auto && objection.is_none();
    let now = app.core.now();
    let hashes = known.unwrap_or_else(|| current.clone());
    let change = move |tx: &WriteTx<'_>| {
        if plan_gates::get(tx, &gate.issue.id)?.as_ref() != Some(&gate) {
            return Ok(Ok(()));
        }
        let armed = PlanGate {
            hashes: Some(hashes.clone()),
            objection: objection.clone(),
            ..gate.clone()
        };
        plan_gates::put(tx, &armed)?;
        repository_load::put_declared(tx, &gate.issue.id, plan.iter())?;
        if is_auto {
            let approval = CheckedApproval {
                gate: armed,
                by: "auto".to_owned(),
                source: ApprovalSource::Auto,
                current: current.clone(),
                changed: changed.clone(),
            };
            return store_approval(tx, &Actor::service(), &approval, now);
        }
        let effects = [
            comment(&gate.issue, comments::plan_waits(objection.as_deref())),
            Effect::Chat {
                message: comments::chat_plan_waits(&gate.issue),
            },
        ];
        push_all(tx, effects, now).map(Ok)
    };
    match is_auto {
        true => commit(app, change).await.map(drop),
        false => app.core.store.write(change).await.map(drop),
    }
}

/// Approves a plan because its ticket has the marker of an approval. A refused marker is taken back.
async fn approve_by_marker(
    app: &App,
    account: &TicketingClient,
    gate: &PlanGate,
    mapping: &Mapping,
) -> StoreResult<()> {
    let author = match account
        .marker_author(&gate.issue, Stage::PlanApproved)
        .await
    {
        Ok(author) => author,
        Err(error) => {
            tracing::warn!(issue = %gate.issue.key, %error, "Failed to read who approved a plan; the next poll tries again.");
            return Ok(());
        }
    };
    let name = author.as_ref().map(CommentAuthor::display_name);
    let name = match name.filter(|name| !name.is_empty()) {
        Some(name) => app.secrets.redactor.sanitize(&name),
        None => "a marker on the ticket".to_owned(),
    };
    let may_edit = match &author {
        Some(author) => match permissions::may_edit(app, account, &gate.issue, author).await {
            Ok(may_edit) => may_edit,
            Err(error) => {
                tracing::warn!(issue = %gate.issue.key, %error, "Failed to read the permissions of who approved a plan; the next poll tries again.");
                return Ok(());
            }
        },
        // The history does not tell it. On GitHub, more people set labels than may write to the repository.
        None => account.system() != System::GitHub && mapping.approvers.is_empty(),
    };
    let approver = Approver {
        account: author.as_ref(),
        name: name.clone(),
        source: ApprovalSource::Marker,
    };
    let checked = match may_edit {
        true => check_approval(app, account, &gate.issue, approver).await?,
        false => Err(PlanError::NotApprover(name.clone())),
    };
    let now = app.core.now();
    match checked {
        Ok(checked) => {
            let actor = Actor::ticket(&name);
            let change = move |tx: &WriteTx<'_>| store_approval(tx, &actor, &checked, now);
            commit(app, change).await.map(drop)
        }
        Err(PlanError::NotApprover(name)) => take_marker_back(app, gate, name, now).await,
        Err(PlanError::Unanswered(why)) => {
            tracing::warn!(issue = %gate.issue.key, why, "Failed to check the approval of a plan; the next poll tries again.");
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

async fn take_marker_back(
    app: &App,
    gate: &PlanGate,
    name: String,
    now: Timestamp,
) -> StoreResult<()> {
    let gate = gate.clone();
    let write = app.core.store.write(move |tx| {
        if plan_gates::get(tx, &gate.issue.id)?.as_ref() != Some(&gate) {
            return Ok(());
        }
        let actor = Actor::ticket(&name);
        let event = actor.audit_event(Action::ApprovalRefused, &gate.issue.key);
        audit::append(tx, &event.with_detail("not an approver"), now)?;
        let effects = [
            set_marker(&gate.issue, Stage::PlanReady),
            comment(&gate.issue, comments::approver_refused(&name)),
        ];
        push_all(tx, effects, now)
    });
    write.await
}

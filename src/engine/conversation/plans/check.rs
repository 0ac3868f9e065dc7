//! Reading a ticket before its plan is approved.

use std::time::Duration;

use tokio::time::timeout;

use crate::app::App;
use domain::issue::IssueRef;
use domain::mapping::Mapping;
use domain::plan_approval::{ApprovalSource, PlanGate, PlanHashes};
use domain::ticket_comment::{CommentAuthor, TicketComment};
use store::{StoreResult, issue_contexts, mappings, plan_gates};
use vendors::http::VendorError;
use vendors::ticketing::TicketingClient;

use super::PlanError;

/// Timeout of reading a ticket. A request of an operator may wait for it.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Who approves, and how.
pub(in crate::conversation) struct Approver<'a> {
    /// Account at the ticketing system; `None` for an operator.
    pub(super) account: Option<&'a CommentAuthor>,
    /// Name in texts.
    pub(super) name: String,
    /// How.
    pub(super) source: ApprovalSource,
}

impl<'a> Approver<'a> {
    /// Author of a comment.
    pub(in crate::conversation) fn comment(comment: &'a TicketComment, name: &str) -> Self {
        Self {
            account: Some(&comment.author),
            name: name.to_owned(),
            source: ApprovalSource::Comment,
        }
    }

    fn is_allowed(&self, mapping: &Mapping) -> bool {
        match self.account {
            _ if self.source == ApprovalSource::Auto || mapping.approvers.is_empty() => true,
            Some(account) => account.is_named_in(&mapping.approvers),
            None => false,
        }
    }
}

/// Approval whose ticket was read.
#[derive(Debug, Clone)]
pub(in crate::conversation) struct CheckedApproval {
    /// Gate as it was read.
    pub(super) gate: PlanGate,
    /// Name of who approves.
    pub(super) by: String,
    /// How.
    pub(super) source: ApprovalSource,
    /// Hashes of the ticket as it is now.
    pub(super) current: PlanHashes,
    /// What has changed since the plan was made.
    pub(super) changed: Option<String>,
}

/// Checks who approves, and reads whether the ticket has changed since its plan was made.
pub(in crate::conversation) async fn check_approval(
    app: &App,
    account: &TicketingClient,
    issue: &IssueRef,
    approver: Approver<'_>,
) -> StoreResult<Result<CheckedApproval, PlanError>> {
    let (gate, mapping) = app.core.store.read(|tx| {
        let gate = plan_gates::get(tx, &issue.id)?.filter(PlanGate::is_waiting);
        let mapping = match &gate {
            Some(gate) => mappings::get(tx, &gate.team)?,
            None => None,
        };
        Ok((gate, mapping))
    })?;
    let (Some(gate), Some(mapping)) = (gate, mapping) else {
        return Ok(Err(PlanError::NotWaiting));
    };
    if !approver.is_allowed(&mapping) {
        return Ok(Err(PlanError::NotApprover(approver.name)));
    }
    let current = match read_hashes(app, account, &gate).await? {
        Ok((current, _)) => current,
        Err(why) => return Ok(Err(PlanError::Unanswered(why))),
    };
    let changed = known_hashes(&gate, &current).and_then(|known| current.changed_since(&known));
    Ok(Ok(CheckedApproval {
        gate,
        by: approver.name,
        source: approver.source,
        current,
        changed,
    }))
}

/// Hashes that an approval binds to. Until the posted plan was read back, the plan as it stands now counts.
pub(super) fn known_hashes(gate: &PlanGate, current: &PlanHashes) -> Option<PlanHashes> {
    let planned_for = gate.planned_for.as_ref().map(|planned| PlanHashes {
        title: planned.title.clone(),
        description: planned.description.clone(),
        plan: current.plan.clone(),
    });
    gate.hashes.clone().or(planned_for)
}

/// Reads a ticket with its plan. Returns the hashes and the plan comments, or why the system did not answer.
pub(super) async fn read_hashes(
    app: &App,
    account: &TicketingClient,
    gate: &PlanGate,
) -> StoreResult<Result<(PlanHashes, Vec<String>), String>> {
    let context = app
        .core
        .store
        .read(|tx| issue_contexts::get(tx, &gate.issue.id))?;
    let effects: Vec<String> = context
        .plan
        .iter()
        .map(|part| part.effect_id.clone())
        .collect();
    let read = async {
        let ticket = account.read_ticket(&gate.issue).await?;
        let plan = match effects.is_empty() {
            true => Vec::new(),
            false => account.comments(&gate.issue, &effects).await?,
        };
        Ok::<_, VendorError>((ticket, plan))
    };
    Ok(match timeout(READ_TIMEOUT, read).await {
        Ok(Ok((ticket, plan))) => {
            let hashes = PlanHashes::new(&ticket.title, &ticket.description, &plan);
            Ok((hashes, plan))
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the ticketing system did not answer in time".to_owned()),
    })
}

//! Audit log: a hash chain of entries. The hash of each entry covers the entry and the previous
//! hash.
//!
//! A changed, removed, added or moved entry breaks the chain at its position. Someone with write
//! access to the file can recompute the whole chain. Only a head that was recorded elsewhere, such
//! as in the daily log line, can prove that this did not happen.

pub mod csv;
mod filter;

use std::fmt;

use ring::digest::{Context, SHA256};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sanitize;
use super::time::Timestamp;

pub use filter::AuditFilter;

/// Hash before the first entry.
const GENESIS: [u8; 32] = [0; 32];

/// Domain separator of these hashes.
const DOMAIN: &[u8] = b"agent-implement audit 1";

/// Maximum size of an actor, a target or a detail, in bytes. Some contain untrusted text.
const MAX_TEXT: usize = 300;

/// Actor of an audit entry.
///
/// Stored and returned as `admin@` and the address of the operator's client; `owner` for the
/// control socket; `service`; `run` for the report of a run; `webhook:` and the logins of people
/// who commented on a pull request; `trigger` for the gap-fill trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor(String);

impl Actor {
    /// Operator, with the address of the client.
    pub fn admin(from: impl fmt::Display) -> Self {
        Self(format!("admin@{from}"))
    }

    /// User of the control socket: the service's own user, or root.
    pub fn owner() -> Self {
        Self("owner".to_owned())
    }

    /// The service itself.
    pub fn service() -> Self {
        Self("service".to_owned())
    }

    /// Run that reported.
    pub fn run() -> Self {
        Self("run".to_owned())
    }

    /// People who commented on a pull request, by login.
    pub fn webhook<'a>(logins: impl IntoIterator<Item = &'a str>) -> Self {
        let mut logins: Vec<&str> = logins.into_iter().collect();
        logins.sort_unstable();
        logins.dedup();
        Self(format!("webhook:{}", logins.join(",")))
    }

    /// Person who wrote on a ticket, by name.
    pub fn ticket(name: &str) -> Self {
        Self(format!("ticket:{name}"))
    }

    /// Client that authenticated with the secret of the gap-fill trigger.
    pub fn trigger() -> Self {
        Self("trigger".to_owned())
    }

    /// Actor of an earlier action, by its stored name.
    pub fn stored(name: String) -> Self {
        Self(name)
    }

    /// Returns the name of the actor, as stored.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns the name that people read on a ticket: without the address of an operator, which only the audit log
    /// names.
    pub fn display_name(&self) -> &str {
        let is_operator = self.0 == "owner" || self.0.starts_with("admin@");
        match self.0.strip_prefix("ticket:") {
            _ if is_operator => "an operator",
            Some(person) => person,
            None => &self.0,
        }
    }

    /// Creates an event of this actor.
    pub fn audit_event(&self, action: Action, target: impl fmt::Display) -> AuditEvent {
        AuditEvent {
            actor: single_line(&self.0),
            action,
            target: single_line(&target.to_string()),
            detail: String::new(),
        }
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Audited action.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action {
            $($(#[$doc])* $name,)*
        }

        impl Action {
            /// Returns the stored name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Action::$name => $word,)*
                }
            }
        }
    };
}

actions! {
    /// An operator signed in.
    SignedIn = "sign-in",
    /// A sign-in was rejected because of a wrong access code.
    SignInRefused = "sign-in-refused",
    /// A sign-in was rejected by the rate limit.
    SignInThrottled = "sign-in-throttled",
    /// An operator signed out.
    SignedOut = "sign-out",
    /// A project mapping was created.
    MappingCreated = "mapping-created",
    /// A project mapping was changed.
    MappingUpdated = "mapping-updated",
    /// A project mapping was paused.
    MappingPaused = "mapping-paused",
    /// A project mapping was resumed.
    MappingResumed = "mapping-resumed",
    /// The concurrency cap of a project mapping was changed.
    MappingCapped = "mapping-capped",
    /// A project mapping was deleted.
    MappingDeleted = "mapping-deleted",
    /// A workflow sync was requested.
    SyncRequested = "sync-asked",
    /// A secret was set.
    SecretSet = "secret-set",
    /// A secret was deleted.
    SecretDeleted = "secret-deleted",
    /// Credentials of a vendor were stored.
    ConnectionSet = "connection-set",
    /// Stored credentials of a vendor were deleted.
    ConnectionDeleted = "connection-deleted",
    /// The creation of a GitHub App was begun.
    GitHubAppRequested = "github-app-asked",
    /// The runner mode was changed.
    RunnerModeSet = "runner-mode-set",
    /// The settings were changed.
    SettingsChanged = "settings-changed",
    /// A ticket was unparked.
    Unparked = "unparked",
    /// A dedup entry was deleted.
    DedupDeleted = "dedup-deleted",
    /// A failed outbox entry was retried.
    EffectRetried = "outbox-retried",
    /// An outbox entry was deleted.
    EffectDropped = "outbox-dropped",
    /// A session was destroyed.
    SessionDestroyed = "session-destroyed",
    /// A poll was requested.
    PollRequested = "poll-asked",
    /// The patch of a run was downloaded.
    PatchDownloaded = "patch-read",
    /// The audit was exported.
    AuditExported = "audit-exported",
    /// A backup was created.
    BackupTaken = "backup-taken",
    /// A run was reserved. Its start is an effect of the same commit.
    RunDispatched = "run-dispatched",
    /// A run was started.
    RunStarted = "run-started",
    /// A run was cancelled by an operator, or because its issue was closed.
    RunCancelled = "run-cancelled",
    /// Another run was requested by an operator.
    RunRetried = "run-retried",
    /// A question of a run was answered.
    QuestionAnswered = "question-answered",
    /// A plan was approved.
    PlanApproved = "plan-approved",
    /// An approval of a plan was refused.
    ApprovalRefused = "approval-refused",
    /// A plan was rejected.
    PlanRejected = "plan-rejected",
    /// Another plan was requested.
    PlanRequested = "plan-asked",
    /// A command in a comment on a ticket was carried out.
    TicketCommand = "ticket-command",
    /// A pull request was merged by policy.
    PullMerged = "pull-merged",
    /// GitHub was asked to merge a pull request once its own requirements are met.
    MergeArmed = "merge-armed",
    /// GitHub was asked not to merge a pull request by itself any more.
    MergeDisarmed = "merge-disarmed",
    /// A rule refused the merge of a pull request by policy.
    MergeRefused = "merge-refused",
    /// The branch of a merged pull request is deleted.
    BranchDeleted = "branch-deleted",
    /// A person took over an issue.
    TakenOver = "taken-over",
    /// An issue that a person had taken over was given back, or its pull request or ticket was closed.
    GivenBack = "given-back",
    /// The reaper planned the destruction of a machine.
    MachineDestroyed = "machine-destroyed",
}

/// Action of an actor, before it becomes an entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// Actor, as stored.
    pub actor: String,
    /// Action.
    pub action: Action,
    /// Object of the action, by the name people use. Empty if there is none.
    pub target: String,
    /// Details, as text. Never contains the value of a secret.
    pub detail: String,
}

impl AuditEvent {
    /// Sets the details.
    pub fn with_detail(self, detail: impl fmt::Display) -> Self {
        Self {
            detail: single_line(&detail.to_string()),
            ..self
        }
    }
}

/// Puts a text on one line and truncates it to [`MAX_TEXT`] bytes.
fn single_line(text: &str) -> String {
    let line = sanitize::single_line(text);
    sanitize::truncate(line, MAX_TEXT, sanitize::ELLIPSIS).into_owned()
}

/// Entry of the audit log.
///
/// Stored: the hash covers every field. A new field requires a new chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Sequence number, from 1 without gaps.
    #[schemars(range(min = 1))]
    pub seq: u64,
    /// Time of the action.
    pub at: Timestamp,
    /// Actor.
    pub actor: String,
    /// Name of the action.
    pub action: String,
    /// Object of the action. Empty if there is none.
    pub target: String,
    /// Details, as text.
    pub detail: String,
    /// SHA-256 over the previous hash and all fields above, in lower-case hexadecimal.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    pub hash: String,
}

/// Head of the chain: its last entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditHead {
    /// Number of entries.
    pub seq: u64,
    /// Hash of the last entry. Empty for an empty chain.
    pub hash: String,
}

impl AuditHead {
    /// Returns the entry that follows.
    pub fn next_entry(&self, event: &AuditEvent, at: Timestamp) -> AuditEntry {
        let mut entry = AuditEntry {
            seq: self.seq + 1,
            at,
            actor: event.actor.clone(),
            action: event.action.as_str().to_owned(),
            target: event.target.clone(),
            detail: event.detail.clone(),
            hash: String::new(),
        };
        entry.hash = entry.hash_after(&self.hash);
        entry
    }

    /// Returns the head after an entry.
    pub fn from_entry(entry: &AuditEntry) -> Self {
        Self {
            seq: entry.seq,
            hash: entry.hash.clone(),
        }
    }
}

impl AuditEntry {
    /// Returns the hash of the entry. Each text is preceded by its length, so that different
    /// entries never have the same bytes.
    fn hash_after(&self, previous: &str) -> String {
        let mut hash = Context::new(&SHA256);
        let mut update = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        update(DOMAIN);
        match previous {
            "" => update(&GENESIS),
            previous => update(previous.as_bytes()),
        }
        update(&self.seq.to_be_bytes());
        update(&self.at.as_millis().to_be_bytes());
        for field in [&self.actor, &self.action, &self.target, &self.detail] {
            update(field.as_bytes());
        }
        data_encoding::HEXLOWER.encode(hash.finish().as_ref())
    }
}

/// Result of verifying the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditVerification {
    /// Whether the whole chain is valid.
    pub ok: bool,
    /// Number of valid entries.
    pub entries: u64,
    /// Hash of the last valid entry. `None` if there is none.
    pub head: Option<String>,
    /// Sequence number of the first entry that is missing or was changed.
    #[schemars(range(min = 1))]
    pub broken_at: Option<u64>,
}

/// Verifier of a chain, entry by entry from the first.
#[derive(Debug, Default)]
pub struct AuditVerifier {
    head: AuditHead,
    broken_at: Option<u64>,
    /// Hash that was recorded elsewhere, and whether an entry has it.
    anchor: Option<(String, bool)>,
}

impl AuditVerifier {
    /// Creates a verifier. `anchor` is the hash of an entry that was recorded elsewhere. The chain
    /// must contain it.
    pub fn new(anchor: Option<&str>) -> Self {
        Self {
            anchor: anchor.map(|hash| (hash.trim().to_lowercase(), false)),
            ..Self::default()
        }
    }

    /// Verifies the next entry. Returns false if the chain is broken; further entries need not be
    /// passed.
    pub fn verify_next(&mut self, entry: &AuditEntry) -> bool {
        let is_valid =
            entry.seq == self.head.seq + 1 && entry.hash == entry.hash_after(&self.head.hash);
        if !is_valid || self.broken_at.is_some() {
            return self.mark_broken();
        }
        self.head = AuditHead::from_entry(entry);
        if let Some((hash, is_found)) = &mut self.anchor {
            *is_found |= *hash == entry.hash;
        }
        true
    }

    /// Records that the next entry is missing or cannot be read. Always returns false.
    pub fn mark_broken(&mut self) -> bool {
        self.broken_at.get_or_insert(self.head.seq + 1);
        false
    }

    /// Returns the result. `stored` is the head that was stored with the last entry.
    pub fn finish(mut self, stored: &AuditHead) -> AuditVerification {
        if self.broken_at.is_none() && self.head != *stored {
            // Entries at the end are missing, or were added without updating the head.
            self.broken_at = Some(self.head.seq.min(stored.seq) + 1);
        }
        let is_anchored = self.anchor.is_none_or(|(_, is_found)| is_found);
        AuditVerification {
            ok: self.broken_at.is_none() && is_anchored,
            entries: self.head.seq,
            head: Some(self.head.hash).filter(|hash| !hash.is_empty()),
            broken_at: self.broken_at,
        }
    }
}

/// Maximum number of separate entries about rejected sign-ins per [`WINDOW_MILLIS`], of each kind.
const MAX_ENTRIES_PER_WINDOW: u32 = 10;

/// Length of a window, in milliseconds.
const WINDOW_MILLIS: u64 = 60 * 60 * 1000;

/// Rate limiter of audit entries about rejected sign-ins. Anyone can cause rejections, so unlimited
/// entries could fill the disk. Above the limit, rejections are only counted, and one entry reports
/// the count.
#[derive(Debug, Default)]
pub struct AuditRateLimiter {
    window_start: Timestamp,
    recorded: u32,
    suppressed: u64,
}

impl AuditRateLimiter {
    /// Counts a rejection. Returns whether it gets a separate entry, and how many rejections were
    /// suppressed in a window that has ended.
    pub fn record_refusal(&mut self, now: Timestamp) -> (bool, Option<u64>) {
        let suppressed = self.take_suppressed_count(now);
        if self.recorded == 0 {
            self.window_start = now;
        }
        let is_recorded = self.recorded < MAX_ENTRIES_PER_WINDOW;
        if is_recorded {
            self.recorded += 1;
        } else {
            self.suppressed += 1;
        }
        (is_recorded, suppressed)
    }

    /// Returns the number of rejections suppressed in a window that has ended, once.
    pub fn take_suppressed_count(&mut self, now: Timestamp) -> Option<u64> {
        let is_over =
            self.recorded > 0 && now.as_millis() >= self.window_start.as_millis() + WINDOW_MILLIS;
        if !is_over {
            return None;
        }
        let suppressed = self.suppressed;
        *self = Self::default();
        Some(suppressed).filter(|count| *count > 0)
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;

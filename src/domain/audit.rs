//! Who did what, in a chain: each entry's hash covers the entry and the hash before it.
//!
//! A changed, removed, added or moved entry breaks the chain where it stands. Somebody who may write
//! the file can make the whole chain anew: only a head that was noted elsewhere, such as the one in
//! the log of each day, proves that this did not happen.

use std::fmt;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::time::Timestamp;

/// What stands before the first entry.
const GENESIS: [u8; 32] = [0; 32];

/// Tells these hashes from all others.
const DOMAIN: &[u8] = b"agent-implement audit 1";

/// Most bytes of an actor, a target or a detail: strangers have a say in some.
const MAX_TEXT: usize = 300;

/// Who acted.
///
/// On the wire: `admin@` and the address of the operator's client; `owner`; `service`; `run` for what a run
/// proved by its own report; `webhook:` and the logins of the people who asked on a pull request;
/// `trigger` for whoever knows the secret of the gap-fill trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor(String);

impl Actor {
    /// An operator, by where the request came from.
    pub fn admin(from: impl fmt::Display) -> Self {
        Self(format!("admin@{from}"))
    }

    /// Whoever may open the control socket: the service's own user, or root.
    pub fn owner() -> Self {
        Self("owner".to_owned())
    }

    /// The service by itself.
    pub fn service() -> Self {
        Self("service".to_owned())
    }

    /// A run, by its own report.
    pub fn run() -> Self {
        Self("run".to_owned())
    }

    /// People who asked for something on a pull request.
    pub fn webhook<'a>(logins: impl IntoIterator<Item = &'a str>) -> Self {
        let mut logins: Vec<&str> = logins.into_iter().collect();
        logins.sort_unstable();
        logins.dedup();
        Self(format!("webhook:{}", logins.join(",")))
    }

    /// Whoever knows the secret of the gap-fill trigger.
    pub fn trigger() -> Self {
        Self("trigger".to_owned())
    }

    /// What the actor did, and to what.
    pub fn audit_event(&self, action: Action, target: impl fmt::Display) -> AuditEvent {
        AuditEvent {
            actor: cut(&self.0),
            action,
            target: cut(&target.to_string()),
            detail: String::new(),
        }
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// What can be done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action {
            $($(#[$doc])* $name,)*
        }

        impl Action {
            /// Its name on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Action::$name => $word,)*
                }
            }
        }
    };
}

actions! {
    SignedIn = "sign-in",
    SignInRefused = "sign-in-refused",
    SignInThrottled = "sign-in-throttled",
    SignedOut = "sign-out",
    MappingCreated = "mapping-created",
    MappingUpdated = "mapping-updated",
    MappingPaused = "mapping-paused",
    MappingResumed = "mapping-resumed",
    MappingCapped = "mapping-capped",
    MappingDeleted = "mapping-deleted",
    SyncRequested = "sync-asked",
    SecretSet = "secret-set",
    SecretDeleted = "secret-deleted",
    RunnerModeSet = "runner-mode-set",
    SettingsChanged = "settings-changed",
    Unparked = "unparked",
    DedupDeleted = "dedup-deleted",
    EffectRetried = "outbox-retried",
    EffectDropped = "outbox-dropped",
    SessionDestroyed = "session-destroyed",
    PollRequested = "poll-asked",
    PatchDownloaded = "patch-read",
    BackupTaken = "backup-taken",
    /// A run was reserved: it is owed its start.
    RunDispatched = "run-dispatched",
    RunStarted = "run-started",
    /// A run was ended because its issue was closed.
    RunCancelled = "run-cancelled",
    /// The reaper owes a machine its end.
    MachineDestroyed = "machine-destroyed",
}

/// Something that somebody did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    pub actor: String,
    pub action: Action,
    /// What it was done to, as people call it; empty where there is nothing to name.
    pub target: String,
    /// In words; never a secret's value.
    pub detail: String,
}

impl AuditEvent {
    pub fn with_detail(self, detail: impl fmt::Display) -> Self {
        Self {
            detail: cut(&detail.to_string()),
            ..self
        }
    }
}

fn cut(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    let mut kept = String::new();
    for c in plain {
        if kept.len() + c.len_utf8() > MAX_TEXT {
            kept.push('…');
            break;
        }
        kept.push(c);
    }
    kept
}

/// One link of the chain.
///
/// Stored: the hash covers every field, so none may be added to the hash without a new chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Counts from 1 without a gap.
    pub seq: u64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub target: String,
    pub detail: String,
    /// SHA-256 over the hash before it and all the fields above, in lower-case hexadecimal.
    pub hash: String,
}

/// Where a chain ends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditHead {
    /// How many entries there are.
    pub seq: u64,
    /// The hash of the last; empty before the first.
    pub hash: String,
}

impl AuditHead {
    /// The entry that follows.
    pub fn next_entry(&self, deed: &AuditEvent, at: Timestamp) -> AuditEntry {
        let mut entry = AuditEntry {
            seq: self.seq + 1,
            at,
            actor: deed.actor.clone(),
            action: deed.action.as_str().to_owned(),
            target: deed.target.clone(),
            detail: deed.detail.clone(),
            hash: String::new(),
        };
        entry.hash = entry.hash_after(&self.hash);
        entry
    }

    /// The head after an entry.
    pub fn from_entry(entry: &AuditEntry) -> Self {
        Self {
            seq: entry.seq,
            hash: entry.hash.clone(),
        }
    }
}

impl AuditEntry {
    /// Every text goes in with its length before it, so that no two entries have the same bytes.
    fn hash_after(&self, before: &str) -> String {
        let mut hash = Context::new(&SHA256);
        let mut text = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        text(DOMAIN);
        match before {
            "" => text(&GENESIS),
            before => text(before.as_bytes()),
        }
        text(&self.seq.to_be_bytes());
        text(&self.at.as_millis().to_be_bytes());
        for field in [&self.actor, &self.action, &self.target, &self.detail] {
            text(field.as_bytes());
        }
        data_encoding::HEXLOWER.encode(hash.finish().as_ref())
    }
}

/// What a look at the whole chain found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditVerification {
    pub ok: bool,
    /// How many entries hold.
    pub entries: u64,
    /// The hash of the last that holds; null when there is none.
    pub head: Option<String>,
    /// The number of the first entry that is not as it was written, or is missing.
    pub broken_at: Option<u64>,
}

/// Looks at a chain, entry by entry from the first.
#[derive(Debug, Default)]
pub struct AuditVerifier {
    head: AuditHead,
    broken_at: Option<u64>,
    /// A head that was noted elsewhere, and whether an entry has it.
    anchor: Option<(String, bool)>,
}

impl AuditVerifier {
    /// `anchor` is the hash of an entry that was noted elsewhere: the chain must lead through it.
    pub fn new(anchor: Option<&str>) -> Self {
        Self {
            anchor: anchor.map(|hash| (hash.trim().to_lowercase(), false)),
            ..Self::default()
        }
    }

    /// Looks at the next entry. False when the chain is broken, and no other need be shown.
    pub fn verify_next(&mut self, entry: &AuditEntry) -> bool {
        let follows =
            entry.seq == self.head.seq + 1 && entry.hash == entry.hash_after(&self.head.hash);
        if !follows || self.broken_at.is_some() {
            return self.mark_broken();
        }
        self.head = AuditHead::from_entry(entry);
        if let Some((hash, seen)) = &mut self.anchor {
            *seen |= *hash == entry.hash;
        }
        true
    }

    /// The next entry cannot be read, or is not there. Always false.
    pub fn mark_broken(&mut self) -> bool {
        self.broken_at.get_or_insert(self.head.seq + 1);
        false
    }

    /// The verdict, given where the chain ends by what was noted with its last entry.
    pub fn finish(mut self, noted: &AuditHead) -> AuditVerification {
        if self.broken_at.is_none() && self.head != *noted {
            // The end is missing, or was put there by somebody else.
            self.broken_at = Some(self.head.seq.min(noted.seq) + 1);
        }
        let is_anchored = self.anchor.is_none_or(|(_, seen)| seen);
        AuditVerification {
            ok: self.broken_at.is_none() && is_anchored,
            entries: self.head.seq,
            head: Some(self.head.hash).filter(|hash| !hash.is_empty()),
            broken_at: self.broken_at,
        }
    }
}

/// Most refused sign-ins that are told one by one within [`SPELL`], of each kind.
const TOLD_PER_SPELL: u32 = 10;

/// How long is a spell of refused sign-ins, in milliseconds?
const SPELL: u64 = 60 * 60 * 1000;

/// How many refusals get an entry of their own. Whoever may send requests may cause refusals, and
/// must not be able to fill the disk: beyond a few an hour they are counted, and told as one.
#[derive(Debug, Default)]
pub struct AuditRateLimiter {
    began: Timestamp,
    told: u32,
    withheld: u64,
}

impl AuditRateLimiter {
    /// One more refusal: whether it is told by itself, and how many were withheld before it.
    pub fn record_refusal(&mut self, now: Timestamp) -> (bool, Option<u64>) {
        let withheld = self.take_suppressed_count(now);
        if self.told == 0 {
            self.began = now;
        }
        let is_told = self.told < TOLD_PER_SPELL;
        if is_told {
            self.told += 1;
        } else {
            self.withheld += 1;
        }
        (is_told, withheld)
    }

    /// How many were withheld in a spell that is over, told once.
    pub fn take_suppressed_count(&mut self, now: Timestamp) -> Option<u64> {
        let is_over = self.told > 0 && now.as_millis() >= self.began.as_millis() + SPELL;
        if !is_over {
            return None;
        }
        let withheld = self.withheld;
        *self = Self::default();
        Some(withheld).filter(|count| *count > 0)
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;

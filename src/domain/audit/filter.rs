//! Selection of audit entries.

use std::time::Duration;

use super::AuditEntry;
use crate::time::Timestamp;

/// Maximum time by which an entry may be older than one before it, because the clock was set back.
const MAX_CLOCK_STEP: Duration = Duration::from_secs(24 * 60 * 60);

/// Conditions that an audit entry must meet. Texts match a part in any letter case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Names of actions, of which the entry must have one. Empty for all.
    pub actions: Vec<String>,
    /// Text in the actor.
    pub actor: Option<String>,
    /// Text in the target.
    pub target: Option<String>,
    /// Text in any field.
    pub text: Option<String>,
    /// Earliest time.
    pub from: Option<Timestamp>,
    /// Time that the entry is before.
    pub to: Option<Timestamp>,
}

impl AuditFilter {
    /// Returns whether the entry meets all conditions.
    pub fn selects(&self, entry: &AuditEntry) -> bool {
        let has = |wanted: &Option<String>, texts: &[&str]| {
            wanted.as_ref().is_none_or(|wanted| {
                let wanted = wanted.to_lowercase();
                texts
                    .iter()
                    .any(|text| text.to_lowercase().contains(&wanted))
            })
        };
        let AuditEntry {
            actor,
            action,
            target,
            detail,
            ..
        } = entry;
        (self.actions.is_empty() || self.actions.contains(action))
            && has(&self.actor, &[actor])
            && has(&self.target, &[target])
            && has(&self.text, &[actor, action, target, detail])
            && self.from.is_none_or(|from| entry.at >= from)
            && self.to.is_none_or(|to| entry.at < to)
    }

    /// Returns whether the entry is so old that the filter selects none before it.
    pub fn is_before_all(&self, entry: &AuditEntry) -> bool {
        self.from
            .is_some_and(|from| entry.at + MAX_CLOCK_STEP < from)
    }
}

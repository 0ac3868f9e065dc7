//! What is stored about the merge of a pull request by policy.

use serde::{Deserialize, Serialize};

use super::rules::MergeRule;
use super::{MergeMethod, MergeMode};

/// Length of a shortened SHA.
const SHORT_SHA: usize = 7;

/// Maximum number of rules whose refusal is remembered.
const MAX_AUDITED: usize = 32;

/// Merge of a pull request by policy.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeRecord {
    /// Progress. `None` if nothing was decided about the current head.
    #[serde(default)]
    pub progress: Option<MergeProgress>,
    /// Head and rules whose refusal is in the audit.
    #[serde(default)]
    pub audited: Option<(String, Vec<MergeRule>)>,
}

/// Progress of a merge by policy.
///
/// Stored: variants may be added, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum MergeProgress {
    /// A rule refuses the merge of the head.
    Refused(MergeRefusal),
    /// GitHub is being asked to merge the head, or who has merged it.
    Requested(MergeGrant),
    /// GitHub merges the head once its own requirements are met.
    Armed(MergeGrant),
    /// The head is in GitHub's merge queue.
    Queued(MergeGrant),
    /// GitHub is being asked not to merge.
    Disarming {
        /// What was granted.
        grant: MergeGrant,
        /// Reason.
        reason: MergeRefusal,
    },
    /// The service, or GitHub at its request, has merged the head.
    Merged(MergeGrant),
}

/// Permission to merge a head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeGrant {
    /// SHA of the head commit.
    pub head: String,
    /// Way of merging.
    pub mode: MergeMode,
    /// Kind of the merge commit.
    pub method: MergeMethod,
    /// Number of approvals that the policy requires.
    pub required_approvals: u32,
    /// Logins of the people who approved the head.
    pub approvers: Vec<String>,
    /// Number of checks of the head that succeeded.
    pub checks_passed: usize,
}

/// Refusal of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeRefusal {
    /// SHA of the head commit.
    pub head: String,
    /// Rule that is not met.
    pub rule: MergeRule,
    /// Sentence that begins with the name of the rule.
    pub message: String,
}

impl MergeRefusal {
    /// Creates a refusal. `what` is the sentence without the name of the rule.
    pub fn new(head: &str, rule: MergeRule, what: &str) -> Self {
        Self {
            head: head.to_owned(),
            rule,
            message: format!("{}: {what}", rule.name()),
        }
    }
}

/// Answer of GitHub to an effect of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeEvent {
    /// The pull request is merged.
    Merged {
        /// SHA of the merge commit.
        commit: String,
        /// SHA of the head commit that was merged.
        head: String,
        /// Whether GitHub names the account of this service, or its merge queue, as the one who merged.
        is_ours: bool,
    },
    /// GitHub merges the head once its own requirements are met.
    Armed,
    /// The head is in the merge queue.
    Queued,
    /// GitHub does not merge the pull request by itself.
    Disarmed,
    /// Another commit is the head, or the pull request is closed.
    Outdated,
    /// GitHub refuses, for this reason.
    Refused(String),
    /// The rules have changed since the effect was stored. Nothing was asked of GitHub.
    NotWanted,
}

impl MergeProgress {
    /// Returns the head that the progress is about.
    pub fn head(&self) -> &str {
        match self {
            Self::Refused(refusal) => &refusal.head,
            Self::Requested(grant)
            | Self::Armed(grant)
            | Self::Queued(grant)
            | Self::Merged(grant)
            | Self::Disarming { grant, .. } => &grant.head,
        }
    }

    /// Returns the grant that GitHub may still act on.
    pub fn open_grant(&self) -> Option<&MergeGrant> {
        match self {
            Self::Requested(grant)
            | Self::Armed(grant)
            | Self::Queued(grant)
            | Self::Disarming { grant, .. } => Some(grant),
            Self::Refused(_) | Self::Merged(_) => None,
        }
    }

    /// Returns whether GitHub merges by itself.
    pub fn is_armed(&self) -> bool {
        matches!(self, Self::Armed(_) | Self::Queued(_))
    }
}

impl MergeRecord {
    /// Returns whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Records a refusal. Returns whether its rule is new for this head, and belongs in the audit.
    pub fn refuse(&mut self, refusal: MergeRefusal) -> bool {
        let rule = refusal.rule;
        let audited = self.audited.take();
        let mut audited = match audited.filter(|(head, _)| *head == refusal.head) {
            Some(audited) => audited,
            None => (refusal.head.clone(), Vec::new()),
        };
        let is_new = !audited.1.contains(&rule) && audited.1.len() < MAX_AUDITED;
        if is_new {
            audited.1.push(rule);
        }
        self.audited = Some(audited);
        self.progress = Some(MergeProgress::Refused(refusal));
        is_new
    }
}

/// Returns the first seven digits of a SHA.
pub fn short_sha(sha: &str) -> &str {
    sha.get(..SHORT_SHA).unwrap_or(sha)
}

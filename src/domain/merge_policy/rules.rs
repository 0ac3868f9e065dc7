//! Rules of a merge by policy, in a fixed order. The first that is not met refuses the merge.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::facts::{CheckOutcome, HeadReview, LocalState, MergeFacts, ReviewOpinion};
use super::record::{MergeGrant, MergeRefusal, short_sha};
use super::{MergeMode, MergePolicy};
use crate::control_paths::is_control_path;
use crate::feedback::{FeedbackAuthor, PullRequestReadiness};
use crate::lock_files::is_lock_file;
use crate::{path_globs, sanitize};

/// Maximum number of changed files whose names are checked. Larger changes are merged by people.
pub const MAX_CHECKED_FILES: usize = 300;

/// Maximum length of a name from outside in a sentence, in characters.
const MAX_NAME: usize = 120;

const DRAFT: &str = "it is a draft";
const CONFLICT: &str = "it is in conflict with its base branch";

/// Time in which workflows create the checks of a new head. Until then, no check does not mean that none is needed.
const CHECK_CREATION_TIME: Duration = Duration::from_secs(60);

/// Maximum number of reviews that a sentence explains.
const MAX_EXPLAINED: usize = 3;

/// Rule of a merge by policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MergeRule {
    /// The mode of the policy permits merges.
    Mode,
    /// The project is not paused.
    Paused,
    /// No person has taken over the pull request.
    TakenOver,
    /// No run works on its branch.
    ActiveRun,
    /// No feedback and no command waits for a run.
    OpenFeedback,
    /// It targets the default branch of the project.
    Base,
    /// Its branch is in the repository itself.
    Fork,
    /// It is no draft.
    Draft,
    /// It has no merge conflict.
    Conflict,
    /// All checks of the head have succeeded.
    Checks,
    /// No permitted person requests changes.
    ChangesRequested,
    /// Enough permitted people approved the head.
    RequireApprovals,
    /// All conversations are resolved.
    Conversations,
    /// Not more files are changed than can be checked.
    Files,
    /// Number of changed files.
    MaxFiles,
    /// Number of changed lines.
    MaxLines,
    /// No lock file is changed.
    LockFiles,
    /// No file is changed that controls CI, agents or reviews.
    ControlFiles,
    /// No submodule is changed.
    Submodules,
    /// No file is changed that the project reserves to people.
    ForbidPaths,
    /// GitHub accepts the merge.
    GitHub,
    /// Nobody has stopped the merge of this head at GitHub.
    Stopped,
}

impl MergeRule {
    /// Returns the name in the API, the audit and sentences. Fields of the policy have the name of the field.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mode => "merge.mode",
            Self::Paused => "paused",
            Self::TakenOver => "takenOver",
            Self::ActiveRun => "activeRun",
            Self::OpenFeedback => "openFeedback",
            Self::Base => "base",
            Self::Fork => "fork",
            Self::Draft => "draft",
            Self::Conflict => "conflict",
            Self::Checks => "checks",
            Self::ChangesRequested => "changesRequested",
            Self::RequireApprovals => "merge.requireApprovals",
            Self::Conversations => "conversations",
            Self::Files => "files",
            Self::MaxFiles => "merge.maxFiles",
            Self::MaxLines => "merge.maxLines",
            Self::LockFiles => "lockFiles",
            Self::ControlFiles => "controlFiles",
            Self::Submodules => "submodules",
            Self::ForbidPaths => "merge.forbidPaths",
            Self::GitHub => "github",
            Self::Stopped => "stopped",
        }
    }
}

/// Decision about the head of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeDecision {
    /// The head is merged.
    Merge(MergeGrant),
    /// A rule refuses the merge.
    Refused(MergeRefusal),
}

/// Decides whether the head of an open pull request is merged. `default_branch` is that of the project.
pub fn decide(
    policy: &MergePolicy,
    default_branch: &str,
    local: &LocalState,
    facts: &MergeFacts,
) -> MergeDecision {
    let refused = local_refusal(policy, local)
        .or_else(|| state_refusal(default_branch, facts))
        .or_else(|| check_refusal(facts))
        .or_else(|| review_refusal(policy, facts))
        .or_else(|| size_refusal(policy, facts))
        .or_else(|| path_refusal(policy, facts));
    if let Some((rule, what)) = refused {
        return MergeDecision::Refused(MergeRefusal::new(&facts.head, rule, &what));
    }
    let approvers = approvals(facts).map(|review| review.author.name().to_owned());
    let passed = facts.checks.iter();
    let passed = passed.filter(|check| check.outcome == CheckOutcome::Passed);
    MergeDecision::Merge(MergeGrant {
        head: facts.head.clone(),
        mode: policy.mode,
        method: policy.method,
        required_approvals: policy.require_approvals,
        approvers: approvers.collect(),
        checks_passed: passed.count(),
    })
}

/// Rule that is not met, and what is wrong.
type Violation = (MergeRule, String);

/// Returns the rule that the state of the pull request in the service does not meet.
pub fn local_refusal(policy: &MergePolicy, local: &LocalState) -> Option<Violation> {
    let violation = |rule, what: &str| Some((rule, what.to_owned()));
    if policy.mode == MergeMode::Never {
        return violation(MergeRule::Mode, "people merge in this project");
    }
    if local.is_paused {
        return violation(MergeRule::Paused, "the project is paused");
    }
    if let Some(sentence) = &local.taken_over {
        return violation(MergeRule::TakenOver, sentence);
    }
    if local.is_busy {
        return violation(MergeRule::ActiveRun, "a run works on the branch");
    }
    match local.open_feedback {
        0 => None,
        1 => violation(
            MergeRule::OpenFeedback,
            "1 piece of feedback waits for a run",
        ),
        many => violation(
            MergeRule::OpenFeedback,
            &format!("{many} pieces of feedback wait for a run"),
        ),
    }
}

/// Returns the rule that the last report of GitHub does not meet, as far as no other fact can permit the merge.
pub fn reported_refusal(
    is_draft: bool,
    readiness: &PullRequestReadiness,
) -> Option<(MergeRule, String)> {
    match (is_draft, readiness.mergeable) {
        (true, _) => Some((MergeRule::Draft, DRAFT.to_owned())),
        (false, Some(false)) => Some((MergeRule::Conflict, CONFLICT.to_owned())),
        _ => None,
    }
}

/// Returns what a pull request waits for that no rule has refused yet: a review, or the first check of a new head.
pub fn expected_event(
    readiness: &PullRequestReadiness,
    head_age: Duration,
) -> Option<(MergeRule, String)> {
    if readiness.approvals == 0 {
        let what = "no review approves it yet".to_owned();
        return Some((MergeRule::RequireApprovals, what));
    }
    let is_unreported = readiness.checks.is_none() && head_age < CHECK_CREATION_TIME;
    is_unreported.then(|| {
        let what = "no check has reported on the head yet".to_owned();
        (MergeRule::Checks, what)
    })
}

fn state_refusal(default_branch: &str, facts: &MergeFacts) -> Option<Violation> {
    if facts.base != default_branch {
        let base = name(&facts.base);
        let what = format!("it targets {base}, the project merges into {default_branch}");
        return Some((MergeRule::Base, what));
    }
    if !facts.is_from_own_repo {
        let what = "its branch is in another repository".to_owned();
        return Some((MergeRule::Fork, what));
    }
    if facts.is_draft {
        return Some((MergeRule::Draft, DRAFT.to_owned()));
    }
    if facts.is_mergeable == Some(false) {
        return Some((MergeRule::Conflict, CONFLICT.to_owned()));
    }
    None
}

fn check_refusal(facts: &MergeFacts) -> Option<Violation> {
    let with = |outcome| {
        let checks = facts.checks.iter();
        let names: Vec<String> = checks
            .filter(|check| check.outcome == outcome)
            .map(|check| name(&check.name))
            .collect();
        let first = names.first().cloned()?;
        Some(match names.len() - 1 {
            0 => first,
            more => format!("{first} and {more} more"),
        })
    };
    let what = match (with(CheckOutcome::Failed), with(CheckOutcome::Pending)) {
        (Some(failed), _) => format!("not successful: {failed}"),
        (None, Some(pending)) => format!("not ended: {pending}"),
        (None, None) => match (facts.checks.is_empty(), facts.required_checks.first()) {
            (true, Some(required)) => format!(
                "the head has none, and {} requires {}",
                name(&facts.base),
                name(required)
            ),
            _ => return None,
        },
    };
    Some((MergeRule::Checks, what))
}

fn review_refusal(policy: &MergePolicy, facts: &MergeFacts) -> Option<Violation> {
    let mut reviews = facts.reviews.iter();
    let blocks = |review: &&HeadReview| {
        review.opinion == ReviewOpinion::RequestsChanges
            && review.may_write
            && is_person(&review.author)
    };
    if let Some(review) = reviews.find(blocks) {
        let what = format!("{} requests changes", name(review.author.name()));
        return Some((MergeRule::ChangesRequested, what));
    }
    let given = approvals(facts).count();
    let required = policy.require_approvals.max(1);
    if given < usize::try_from(required).unwrap_or(usize::MAX) {
        let what = format!(
            "{given} of {required} approvals of {} by people with write permission{}",
            short_sha(&facts.head),
            uncounted(facts)
        );
        return Some((MergeRule::RequireApprovals, what));
    }
    if facts.unresolved_threads > 0 {
        let what = match facts.unresolved_threads {
            1 => "1 conversation is unresolved".to_owned(),
            many => format!("{many} conversations are unresolved"),
        };
        return Some((MergeRule::Conversations, what));
    }
    if facts.is_incomplete {
        let what = "there are more reviews or conversations than can be checked (100)".to_owned();
        return Some((MergeRule::Conversations, what));
    }
    None
}

/// Returns the approvals that count: of this head, by people who may write, and neither the author nor the service.
fn approvals(facts: &MergeFacts) -> impl Iterator<Item = &HeadReview> {
    let reviews = facts.reviews.iter();
    reviews
        .filter(|review| review.opinion == ReviewOpinion::Approves)
        .filter(|review| why_uncounted(facts, review).is_none())
}

/// Returns why an approval does not count.
fn why_uncounted(facts: &MergeFacts, review: &HeadReview) -> Option<&'static str> {
    let is_own = review.author.name().eq_ignore_ascii_case(own_name(facts));
    match () {
        () if is_own => Some("is the account of this service"),
        () if !is_person(&review.author) => Some("is an App"),
        () if facts.author.as_ref() == Some(&review.author) => Some("is the author"),
        () if !review.may_write => Some("may not write"),
        () if review.commit != facts.head => Some("approved an older commit"),
        () => None,
    }
}

fn own_name(facts: &MergeFacts) -> &str {
    let own = facts.own_login.as_str();
    own.strip_suffix("[bot]").unwrap_or(own)
}

fn is_person(author: &FeedbackAuthor) -> bool {
    matches!(author, FeedbackAuthor::Person { .. })
}

/// Explains the approvals that do not count, as the end of a sentence.
fn uncounted(facts: &MergeFacts) -> String {
    let reviews = facts.reviews.iter();
    let approving = reviews.filter(|review| review.opinion == ReviewOpinion::Approves);
    let explained = approving
        .filter_map(|review| {
            let why = why_uncounted(facts, review)?;
            Some(format!("{} {why}", name(review.author.name())))
        })
        .take(MAX_EXPLAINED);
    let explained: Vec<String> = explained.collect();
    match explained.is_empty() {
        true => String::new(),
        false => format!(" ({})", explained.join(", ")),
    }
}

fn size_refusal(policy: &MergePolicy, facts: &MergeFacts) -> Option<Violation> {
    let files = facts.changed_files;
    if let Some(max) = policy.max_files.filter(|max| files > *max) {
        let what = format!("{}, {max} {} allowed", files_changed(files), are(max));
        return Some((MergeRule::MaxFiles, what));
    }
    let is_listed = usize::try_from(files).is_ok_and(|files| files <= facts.files.len());
    if !is_listed || facts.files.len() > MAX_CHECKED_FILES {
        let what = format!(
            "{}, {MAX_CHECKED_FILES} can be checked",
            files_changed(files)
        );
        return Some((MergeRule::Files, what));
    }
    let listed = facts.files.iter().map(|file| u64::from(file.lines)).sum();
    let lines = u64::from(facts.changed_lines).max(listed);
    if let Some(max) = policy.max_lines.filter(|max| lines > u64::from(*max)) {
        let noun = match lines {
            1 => "line is",
            _ => "lines are",
        };
        let what = format!("{lines} {noun} changed, {max} {} allowed", are(max));
        return Some((MergeRule::MaxLines, what));
    }
    None
}

fn files_changed(files: u32) -> String {
    match files {
        1 => "1 file is changed".to_owned(),
        _ => format!("{files} files are changed"),
    }
}

fn are(count: u32) -> &'static str {
    match count {
        1 => "is",
        _ => "are",
    }
}

fn path_refusal(policy: &MergePolicy, facts: &MergeFacts) -> Option<Violation> {
    let paths = || facts.files.iter().flat_map(|file| file.paths());
    let changed = |path: &str| format!("{} is changed", name(path));
    if let Some(path) = paths().find(|path| is_lock_file(path)) {
        return Some((MergeRule::LockFiles, changed(path)));
    }
    if let Some(path) = paths().find(|path| is_control_path(path)) {
        let what = format!("{}, which controls CI, agents or reviews", changed(path));
        return Some((MergeRule::ControlFiles, what));
    }
    if let Some(file) = facts.files.iter().find(|file| file.is_submodule) {
        return Some((MergeRule::Submodules, changed(&file.path)));
    }
    if policy.forbid_paths.is_empty() {
        return None;
    }
    let Some(globs) = path_globs::compile(&policy.forbid_paths) else {
        let what = "a glob of the project is invalid".to_owned();
        return Some((MergeRule::ForbidPaths, what));
    };
    let path = paths().find(|path| globs.is_match(path))?;
    let matched = globs.matches(path).first().copied().unwrap_or_default();
    let glob = policy.forbid_paths.get(matched);
    let what = format!(
        "{}, which matches {}",
        changed(path),
        glob.map(String::as_str).unwrap_or_default()
    );
    Some((MergeRule::ForbidPaths, what))
}

/// Returns a name from outside for a sentence: on one line and truncated.
fn name(text: &str) -> String {
    let line = sanitize::single_line(text);
    sanitize::truncate_chars(line.trim(), MAX_NAME, sanitize::ELLIPSIS).into_owned()
}

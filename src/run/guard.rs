//! Sensitive-file guard: inspects the git objects of a push before it happens.
//!
//! Covers the staged change and everything the branch already adds to the base, because both appear in
//! the pull request. Rules: [`domain::sensitive_files`].

use serde_json::{Value, json};

use super::git::changes::{ChangeContents, TreeChange, TreeEntryKind};
use super::git::staging::StagedTree;
use super::git::{Git, GitError};
use domain::control_paths::is_control_path;
use domain::sensitive_files::{
    self, AllowList, GuardReason, GuardVerdict, SecretCategory, SensitiveFile,
};

/// Reason for a credential of the run itself. Many have no pattern that a rule could match.
const OWN_CREDENTIAL: GuardReason =
    GuardReason::Content(SecretCategory::TokensAndAuth, "credential of this run");

/// Findings of the guard, sorted by path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GuardReport {
    /// Files that block the push.
    pub blocked: Vec<SensitiveFile>,
    /// Files that a person should check.
    pub warnings: Vec<SensitiveFile>,
    /// All findings, with their lines.
    pub findings: Vec<GuardFinding>,
}

/// Finding of the guard at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardFinding {
    /// Path and reason.
    pub hit: SensitiveFile,
    /// Whether the finding blocks the push.
    pub is_blocking: bool,
    /// Line of the secret, from 1.
    pub line: Option<usize>,
}

impl GuardFinding {
    /// Returns the finding for the outputs of its step: path, line, rule, text and whether it blocks.
    pub(crate) fn output(&self) -> Value {
        json!({
            "path": self.hit.path,
            "line": self.line,
            "rule": self.hit.reason.rule(),
            "text": self.hit.reason.to_string(),
            "blocking": self.is_blocking,
        })
    }

    /// Creates a finding; `None` if the verdict is a pass.
    pub fn from_verdict(path: &str, verdict: GuardVerdict, line: Option<usize>) -> Option<Self> {
        let (reason, is_blocking) = match verdict {
            GuardVerdict::Pass => return None,
            GuardVerdict::Warn(reason) => (reason, false),
            GuardVerdict::Block(reason) => (reason, true),
        };
        let path = path.to_owned();
        let hit = SensitiveFile { path, reason };
        Some(Self {
            hit,
            is_blocking,
            line,
        })
    }
}

/// Inspects everything that a push of `staged` adds to the remote after `fork_point`. Commits made
/// by the agent do not matter: the run pushes one commit of this tree. `adds_own` returns whether a
/// change from one content to another adds a credential of this run.
pub(crate) async fn inspect(
    git: &Git,
    fork_point: &str,
    staged: &StagedTree,
    allow: &AllowList,
    adds_own: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<GuardReport, GitError> {
    let changes = git.changes(fork_point, &staged.tree).await?;
    let mut report = GuardReport {
        blocked: staged.blocked.clone(),
        warnings: Vec::new(),
        findings: check_changes(git, &changes, allow, adds_own).await?,
    };
    for finding in &report.findings {
        match finding.is_blocking {
            true => report.blocked.push(finding.hit.clone()),
            false => report.warnings.push(finding.hit.clone()),
        }
    }
    let unstaged = staged.blocked.iter().map(|hit| GuardFinding {
        hit: hit.clone(),
        is_blocking: true,
        line: None,
    });
    report.findings.extend(unstaged);
    for list in [&mut report.blocked, &mut report.warnings] {
        list.sort_by(|one, other| one.path.cmp(&other.path));
        list.dedup_by(|one, other| one.path == other.path);
    }
    Ok(report)
}

/// Inspects changes by their contents. A large file may produce several findings.
pub(crate) async fn check_changes(
    git: &Git,
    changes: &[TreeChange],
    allow: &AllowList,
    adds_own: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<Vec<GuardFinding>, GitError> {
    let mut found = Vec::new();
    let inspect_one = |contents: ChangeContents<'_>| {
        let (change, before) = (contents.change, contents.before);
        let path = change.path.as_str();
        // The remote already has the name of a changed file, and the content of a moved one.
        let is_own = change.before == TreeEntryKind::Missing && adds_own(&[], path.as_bytes())
            || !change.is_moved && contents.after.is_some_and(|after| adds_own(before, after));
        let (verdict, line) = if is_own && change.after != TreeEntryKind::Missing {
            (GuardVerdict::Block(OWN_CREDENTIAL), None)
        } else {
            judge(&contents, allow)
        };
        let line = line.map(|line| line + contents.lines_before.unwrap_or_default());
        found.extend(GuardFinding::from_verdict(path, verdict, line));
    };
    git.for_each_content(changes, inspect_one).await?;
    Ok(found)
}

fn judge(contents: &ChangeContents<'_>, allow: &AllowList) -> (GuardVerdict, Option<usize>) {
    let change = contents.change;
    let path = change.path.as_str();
    let verdict = match (change.after, contents.after) {
        // Deleted content cannot leak.
        (TreeEntryKind::Missing, _) => GuardVerdict::Pass,
        (TreeEntryKind::Gitlink, _) => GuardVerdict::Block(GuardReason::NestedRepository),
        (TreeEntryKind::File | TreeEntryKind::Symlink, None) => {
            GuardVerdict::Block(GuardReason::Unreadable)
        }
        (TreeEntryKind::Symlink, Some(target)) => {
            let before = match change.before {
                TreeEntryKind::Symlink => contents.before,
                TreeEntryKind::Missing | TreeEntryKind::File | TreeEntryKind::Gitlink => &[],
            };
            check_symlink(path, before, target, allow)
        }
        // The remote already has this content; only the name is new.
        (TreeEntryKind::File, Some(_)) if change.is_moved => GuardVerdict::Pass,
        (TreeEntryKind::File, Some(after)) => {
            let before = match change.before {
                TreeEntryKind::File => contents.before,
                TreeEntryKind::Missing | TreeEntryKind::Symlink | TreeEntryKind::Gitlink => &[],
            };
            let is_window = contents.lines_before.is_some();
            let judged = check_file(path, before, after, is_window, allow);
            return judge_name(change, allow, judged);
        }
    };
    judge_name(change, allow, (verdict, None))
}

/// Checks a file, or a window of a large one, and returns the verdict with the line of the finding.
pub(crate) fn check_file(
    path: &str,
    before: &[u8],
    after: &[u8],
    is_window: bool,
    allow: &AllowList,
) -> (GuardVerdict, Option<usize>) {
    let verdict = match is_window {
        true => sensitive_files::check_window(path, before, after, allow),
        false => sensitive_files::check_file(path, before, after, allow),
    };
    let line = match &verdict {
        GuardVerdict::Pass => None,
        GuardVerdict::Warn(reason) | GuardVerdict::Block(reason) => {
            sensitive_files::finding_line(path, before, after, reason)
        }
    };
    (verdict, line)
}

/// Checks where a symlink points, and whether its target contains a secret.
pub(crate) fn check_symlink(
    path: &str,
    before: &[u8],
    target: &[u8],
    allow: &AllowList,
) -> GuardVerdict {
    let [before, target] = [before, target].map(String::from_utf8_lossy);
    let secret_in_target = || check_name(path, &target, allow).filter(|_| before != target);
    let reason = sensitive_files::check_symlink(path, &target).or_else(secret_in_target);
    reason.map_or(GuardVerdict::Pass, GuardVerdict::Block)
}

/// Returns the verdict, or a block if the path is new and itself contains a secret.
fn judge_name(
    change: &TreeChange,
    allow: &AllowList,
    judged: (GuardVerdict, Option<usize>),
) -> (GuardVerdict, Option<usize>) {
    let is_new = change.before == TreeEntryKind::Missing && change.after != TreeEntryKind::Missing;
    let named = |path| check_name(path, path, allow).filter(|_| is_new);
    match judged.0 {
        GuardVerdict::Block(_) => judged,
        GuardVerdict::Pass | GuardVerdict::Warn(_) => {
            named(&change.path).map_or(judged, |reason| (GuardVerdict::Block(reason), None))
        }
    }
}

/// Checks a file name or a symlink target for secrets.
pub(crate) fn check_name(path: &str, name: &str, allow: &AllowList) -> Option<GuardReason> {
    sensitive_files::check_name(name).filter(|_| !allow.permits(path))
}

/// Returns the changed paths that control CI, agents or reviews. Changes to them are allowed, and are pointed
/// out to the reviewer.
pub(crate) fn watched_paths(changes: &[TreeChange]) -> Vec<&str> {
    let paths = changes.iter().map(|change| change.path.as_str());
    paths.filter(|path| is_control_path(path)).collect()
}

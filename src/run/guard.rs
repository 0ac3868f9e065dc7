//! The sensitive-file guard at work: it reads what is about to be pushed, from the objects.
//!
//! Both what is staged and everything the branch already holds beyond the base are judged, because
//! both arrive in the pull request. The rules are [`domain::sensitive`]'s.

use super::git::changes::{ChangeContents, TreeChange, TreeEntryKind};
use super::git::staging::StagedTree;
use super::git::{Git, GitError};
use domain::sensitive_files::{
    self, AllowList, GuardReason, GuardVerdict, SecretCategory, SensitiveFile,
};

/// Folders and files that steer CI, agents and reviews. A change to them is legitimate and still
/// deserves a person's look.
const WATCHED: [&str; 22] = [
    ".github/workflows/",
    ".github/actions/",
    ".github/codeowners",
    "codeowners",
    "docs/codeowners",
    ".gitlab-ci.yml",
    ".circleci/",
    "jenkinsfile",
    ".husky/",
    ".claude/",
    ".cursor/",
    ".vscode/tasks.json",
    ".mcp.json",
    ".gitmodules",
    ".gitattributes",
    ".npmrc",
    ".pre-commit-config.yaml",
    ".agent-implement/",
    "workflow.md",
    "planning.md",
    "claude.md",
    "agents.md",
];

/// A credential of the run itself. Many have no shape that a rule could know.
const OWN_CREDENTIAL: GuardReason =
    GuardReason::Content(SecretCategory::TokensAndAuth, "credential of this run");

/// What the guard found, in the order of paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GuardReport {
    /// What must not be pushed.
    pub blocked: Vec<SensitiveFile>,
    /// What a person should look at.
    pub warnings: Vec<SensitiveFile>,
}

/// What the guard says about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardFinding {
    pub hit: SensitiveFile,
    pub is_blocking: bool,
    /// Where the secret stands, from 1.
    pub line: Option<usize>,
}

impl GuardFinding {
    /// None of what passes.
    pub fn from_verdict(path: &str, verdict: GuardVerdict, line: Option<usize>) -> Option<Self> {
        let (reason, blocks) = match verdict {
            GuardVerdict::Pass => return None,
            GuardVerdict::Warn(reason) => (reason, false),
            GuardVerdict::Block(reason) => (reason, true),
        };
        let path = path.to_owned();
        let hit = SensitiveFile { path, reason };
        Some(Self {
            hit,
            is_blocking: blocks,
            line,
        })
    }
}

/// Judges everything that a push of `staged` brings to the host beyond `fork_point`. The push brings
/// exactly that: one commit of this tree on what the host has already, whatever commits the agent
/// made of its own. `holds_own` tells whether a text holds a credential of this run.
pub async fn inspect(
    git: &Git,
    fork_point: &str,
    staged: &StagedTree,
    allow: &AllowList,
    holds_own: impl Fn(&[u8]) -> bool,
) -> Result<GuardReport, GitError> {
    let changes = git.changes(fork_point, &staged.tree).await?;
    let mut inspected = GuardReport {
        blocked: staged.blocked.clone(),
        warnings: Vec::new(),
    };
    for GuardFinding {
        hit,
        is_blocking: blocks,
        ..
    } in check_changes(git, &changes, allow, holds_own).await?
    {
        match blocks {
            true => inspected.blocked.push(hit),
            false => inspected.warnings.push(hit),
        }
    }
    for list in [&mut inspected.blocked, &mut inspected.warnings] {
        list.sort_by(|one, other| one.path.cmp(&other.path));
        list.dedup_by(|one, other| one.path == other.path);
    }
    Ok(inspected)
}

/// Judges changes by their contents. A large file may be named more than once.
pub async fn check_changes(
    git: &Git,
    changes: &[TreeChange],
    allow: &AllowList,
    holds_own: impl Fn(&[u8]) -> bool,
) -> Result<Vec<GuardFinding>, GitError> {
    let mut found = Vec::new();
    let look = |contents: ChangeContents<'_>| {
        let path = contents.change.path.as_str();
        let is_own = holds_own(path.as_bytes()) || contents.after.is_some_and(&holds_own);
        let (verdict, line) = if is_own && contents.change.after != TreeEntryKind::Missing {
            (GuardVerdict::Block(OWN_CREDENTIAL), None)
        } else {
            judge(&contents, allow)
        };
        let line = line.map(|line| line + contents.lines_before);
        found.extend(GuardFinding::from_verdict(path, verdict, line));
    };
    git.for_each_content(changes, look).await?;
    Ok(found)
}

fn judge(contents: &ChangeContents<'_>, allow: &AllowList) -> (GuardVerdict, Option<usize>) {
    let change = contents.change;
    let path = change.path.as_str();
    let verdict = match (change.after, contents.after) {
        // What is taken away does no harm any more.
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
        // The host has this content already; its name is all that is new.
        (TreeEntryKind::File, Some(_)) if change.is_moved => GuardVerdict::Pass,
        (TreeEntryKind::File, Some(after)) => {
            let before = match change.before {
                TreeEntryKind::File => contents.before,
                TreeEntryKind::Missing | TreeEntryKind::Symlink | TreeEntryKind::Gitlink => &[],
            };
            return with_name(change, allow, check_file(path, before, after, allow));
        }
    };
    with_name(change, allow, (verdict, None))
}

/// Judges a file, and finds the line of what it is judged by.
pub fn check_file(
    path: &str,
    before: &[u8],
    after: &[u8],
    allow: &AllowList,
) -> (GuardVerdict, Option<usize>) {
    let verdict = sensitive_files::check_file(path, before, after, allow);
    let line = match &verdict {
        GuardVerdict::Pass => None,
        GuardVerdict::Warn(reason) | GuardVerdict::Block(reason) => {
            sensitive_files::finding_line(path, before, after, reason)
        }
    };
    (verdict, line)
}

/// Judges where a link leads, and what its target says.
pub fn check_symlink(path: &str, before: &[u8], target: &[u8], allow: &AllowList) -> GuardVerdict {
    let [before, target] = [before, target].map(String::from_utf8_lossy);
    let said = || check_name(path, &target, allow).filter(|_| before != target);
    let reason = sensitive_files::check_symlink(path, &target).or_else(said);
    reason.map_or(GuardVerdict::Pass, GuardVerdict::Block)
}

/// The verdict, unless it passes and the path is new and holds a secret itself.
fn with_name(
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

/// Judges a name or the target of a link.
pub fn check_name(path: &str, words: &str, allow: &AllowList) -> Option<GuardReason> {
    sensitive_files::check_name(words).filter(|_| !allow.permits(path))
}

/// Changed paths that steer CI, agents or reviews.
pub fn watched_paths(changes: &[TreeChange]) -> Vec<&str> {
    changes
        .iter()
        .map(|change| change.path.as_str())
        .filter(|path| {
            let lower = path.to_lowercase();
            let name = lower.rsplit('/').next().unwrap_or_default();
            WATCHED.iter().any(|watched| {
                if watched.ends_with('/') {
                    lower.starts_with(watched)
                } else {
                    lower == *watched || name == *watched
                }
            })
        })
        .collect()
}

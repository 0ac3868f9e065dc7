//! The sensitive-file guard at work: it reads what is about to be pushed, from the objects.
//!
//! Both what is staged and everything the branch already holds beyond the base are judged, because
//! both arrive in the pull request. The rules are [`domain::sensitive`]'s.

use super::git::changes::{Change, Contents, Kind};
use super::git::import::Import;
use super::git::{Git, GitError};
use domain::sensitive::{self, AllowList, Category, Hit, Reason, Verdict};

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
const OWN_CREDENTIAL: Reason = Reason::Content(Category::TokensAndAuth, "credential of this run");

/// What the guard found, in the order of paths.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// What must not be pushed.
    pub blocked: Vec<Hit>,
    /// What a person should look at.
    pub warned: Vec<Hit>,
}

/// What the guard says about one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub hit: Hit,
    pub blocks: bool,
    /// Where the secret stands, from 1.
    pub line: Option<usize>,
}

impl Found {
    /// None of what passes.
    pub fn of(path: &str, verdict: Verdict, line: Option<usize>) -> Option<Self> {
        let (reason, blocks) = match verdict {
            Verdict::Passes => return None,
            Verdict::Warns(reason) => (reason, false),
            Verdict::Blocks(reason) => (reason, true),
        };
        let path = path.to_owned();
        let hit = Hit { path, reason };
        Some(Self { hit, blocks, line })
    }
}

/// Judges everything that a push of `staged` brings to the host beyond `fork_point`. The push brings
/// exactly that: one commit of this tree on what the host has already, whatever commits the agent
/// made of its own. `holds_own` tells whether a text holds a credential of this run.
pub async fn inspect(
    git: &Git,
    fork_point: &str,
    staged: &Import,
    allow: &AllowList,
    holds_own: impl Fn(&[u8]) -> bool,
) -> Result<Inspected, GitError> {
    let changes = git.changes(fork_point, &staged.tree).await?;
    let mut inspected = Inspected {
        blocked: staged.blocked.clone(),
        warned: Vec::new(),
    };
    for Found { hit, blocks, .. } in judge_changes(git, &changes, allow, holds_own).await? {
        match blocks {
            true => inspected.blocked.push(hit),
            false => inspected.warned.push(hit),
        }
    }
    for list in [&mut inspected.blocked, &mut inspected.warned] {
        list.sort_by(|one, other| one.path.cmp(&other.path));
        list.dedup_by(|one, other| one.path == other.path);
    }
    Ok(inspected)
}

/// Judges changes by their contents. A large file may be named more than once.
pub async fn judge_changes(
    git: &Git,
    changes: &[Change],
    allow: &AllowList,
    holds_own: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Found>, GitError> {
    let mut found = Vec::new();
    let look = |contents: Contents<'_>| {
        let path = contents.change.path.as_str();
        let is_own = holds_own(path.as_bytes()) || contents.after.is_some_and(&holds_own);
        let (verdict, line) = if is_own && contents.change.after != Kind::Missing {
            (Verdict::Blocks(OWN_CREDENTIAL), None)
        } else {
            judge(&contents, allow)
        };
        let line = line.map(|line| line + contents.lines_before);
        found.extend(Found::of(path, verdict, line));
    };
    git.each_content(changes, look).await?;
    Ok(found)
}

fn judge(contents: &Contents<'_>, allow: &AllowList) -> (Verdict, Option<usize>) {
    let change = contents.change;
    let path = change.path.as_str();
    let verdict = match (change.after, contents.after) {
        // What is taken away does no harm any more.
        (Kind::Missing, _) => Verdict::Passes,
        (Kind::Gitlink, _) => Verdict::Blocks(Reason::NestedRepository),
        (Kind::File | Kind::Link, None) => Verdict::Blocks(Reason::Unreadable),
        (Kind::Link, Some(target)) => {
            let before = match change.before {
                Kind::Link => contents.before,
                Kind::Missing | Kind::File | Kind::Gitlink => &[],
            };
            judge_link(path, before, target, allow)
        }
        // The host has this content already; its name is all that is new.
        (Kind::File, Some(_)) if change.is_moved => Verdict::Passes,
        (Kind::File, Some(after)) => {
            let before = match change.before {
                Kind::File => contents.before,
                Kind::Missing | Kind::Link | Kind::Gitlink => &[],
            };
            return with_name(change, allow, judge_file(path, before, after, allow));
        }
    };
    with_name(change, allow, (verdict, None))
}

/// Judges a file, and finds the line of what it is judged by.
pub fn judge_file(
    path: &str,
    before: &[u8],
    after: &[u8],
    allow: &AllowList,
) -> (Verdict, Option<usize>) {
    let verdict = sensitive::judge(path, before, after, allow);
    let line = match &verdict {
        Verdict::Passes => None,
        Verdict::Warns(reason) | Verdict::Blocks(reason) => {
            sensitive::line_of(path, before, after, reason)
        }
    };
    (verdict, line)
}

/// Judges where a link leads, and what its target says.
pub fn judge_link(path: &str, before: &[u8], target: &[u8], allow: &AllowList) -> Verdict {
    let [before, target] = [before, target].map(String::from_utf8_lossy);
    let said = || judge_words(path, &target, allow).filter(|_| before != target);
    let reason = sensitive::judge_link(path, &target).or_else(said);
    reason.map_or(Verdict::Passes, Verdict::Blocks)
}

/// The verdict, unless it passes and the path is new and holds a secret itself.
fn with_name(
    change: &Change,
    allow: &AllowList,
    judged: (Verdict, Option<usize>),
) -> (Verdict, Option<usize>) {
    let is_new = change.before == Kind::Missing && change.after != Kind::Missing;
    let named = |path| judge_words(path, path, allow).filter(|_| is_new);
    match judged.0 {
        Verdict::Blocks(_) => judged,
        Verdict::Passes | Verdict::Warns(_) => {
            named(&change.path).map_or(judged, |reason| (Verdict::Blocks(reason), None))
        }
    }
}

/// Judges a name or the target of a link.
pub fn judge_words(path: &str, words: &str, allow: &AllowList) -> Option<Reason> {
    sensitive::judge_words(words).filter(|_| !allow.permits(path))
}

/// Changed paths that steer CI, agents or reviews.
pub fn watched(changes: &[Change]) -> Vec<&str> {
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

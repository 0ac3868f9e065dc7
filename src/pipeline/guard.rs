//! The sensitive-file guard at work: it reads what is about to be pushed, from the objects.
//!
//! Both what is staged and everything the branch already holds beyond the base are judged, because
//! both arrive in the pull request. The rules are [`crate::domain::sensitive`]'s.

use super::git::changes::{Change, Contents, Kind};
use super::git::import::Import;
use super::git::{Git, GitError};
use crate::domain::sensitive::{self, AllowList, Category, Hit, Reason, Verdict};

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
    git.each_content(&changes, |contents| {
        let path = contents.change.path.as_str();
        let is_own = holds_own(path.as_bytes()) || contents.after.is_some_and(&holds_own);
        let verdict = if is_own && contents.change.after != Kind::Missing {
            Verdict::Blocks(OWN_CREDENTIAL)
        } else {
            judge(&contents, allow)
        };
        let (reason, list) = match verdict {
            Verdict::Passes => return,
            Verdict::Warns(reason) => (reason, &mut inspected.warned),
            Verdict::Blocks(reason) => (reason, &mut inspected.blocked),
        };
        list.push(Hit {
            path: path.to_owned(),
            reason,
        });
    })
    .await?;
    for list in [&mut inspected.blocked, &mut inspected.warned] {
        list.sort_by(|one, other| one.path.cmp(&other.path));
        list.dedup_by(|one, other| one.path == other.path);
    }
    Ok(inspected)
}

fn judge(contents: &Contents<'_>, allow: &AllowList) -> Verdict {
    let path = contents.change.path.as_str();
    match (contents.change.after, contents.after) {
        // What is taken away does no harm any more.
        (Kind::Missing, _) => Verdict::Passes,
        (Kind::Gitlink, _) => Verdict::Blocks(Reason::NestedRepository),
        (Kind::File | Kind::Link, None) => Verdict::Blocks(Reason::Unreadable),
        (Kind::Link, Some(target)) => {
            let target = String::from_utf8_lossy(target);
            sensitive::judge_link(path, &target).map_or(Verdict::Passes, Verdict::Blocks)
        }
        (Kind::File, Some(after)) => {
            let before = match contents.change.before {
                Kind::File => contents.before,
                Kind::Missing | Kind::Link | Kind::Gitlink => &[],
            };
            sensitive::judge(path, before, after, allow)
        }
    }
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

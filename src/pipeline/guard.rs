//! The sensitive-file guard at work: it reads what is about to be pushed, from the objects.
//!
//! Both what is staged and everything the branch already holds beyond the base are judged, because
//! both arrive at the host. The rules are [`crate::domain::sensitive`]'s.

use super::git::changes::{Change, Kind};
use super::git::import::Import;
use super::git::{Git, GitError};
use crate::domain::sensitive::{self, Category, Hit, Reason};

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

/// Everything that must not be pushed, in the order of paths. `holds_own` tells whether a text holds
/// a credential of this run.
pub async fn inspect(
    git: &Git,
    fork_point: &str,
    staged: &Import,
    holds_own: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Hit>, GitError> {
    let changes = git.changes(fork_point, &staged.tree).await?;
    let mut hits = staged.blocked.clone();
    git.each_content(&changes, |contents| {
        let path = contents.change.path.as_bytes();
        let stays = contents.change.after != Kind::Missing;
        let own = holds_own(path) || contents.after.as_deref().is_some_and(&holds_own);
        let judged = if stays && own {
            Some(OWN_CREDENTIAL)
        } else {
            judge(contents.change, contents.before, contents.after)
        };
        if let Some(reason) = judged {
            hits.push(Hit {
                path: contents.change.path.clone(),
                reason,
            });
        }
    })
    .await?;
    hits.sort_by(|one, other| one.path.cmp(&other.path));
    hits.dedup_by(|one, other| one.path == other.path);
    Ok(hits)
}

fn judge(change: &Change, before: Option<Vec<u8>>, after: Option<Vec<u8>>) -> Option<Reason> {
    let path = change.path.as_str();
    match change.after {
        // What is taken away does no harm any more.
        Kind::Missing => None,
        Kind::Gitlink => Some(Reason::NestedRepository),
        Kind::Link => match after {
            Some(target) => sensitive::judge_link(path, &String::from_utf8_lossy(&target)),
            None => Some(Reason::Unreadable),
        },
        Kind::File => {
            let before = match change.before {
                Kind::File => before.unwrap_or_default(),
                _ => Vec::new(),
            };
            match after {
                Some(after) => sensitive::judge(path, &before, &after),
                None => Some(Reason::Unreadable),
            }
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

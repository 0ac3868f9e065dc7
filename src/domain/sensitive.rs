//! What must never be pushed: the rules of the sensitive-file guard.
//!
//! Names and contents in, reasons out; reading the staged blobs is the pipeline's work. A file is
//! judged by its name first ([`names`]) and then by the lines that a change adds to it
//! ([`contents`]): a harmless name is no excuse for a token, and an old token elsewhere in a file is
//! not this change's doing. A reason names the category and never the secret.
//! (spec: *Ticket comments posted*)

mod contents;
mod names;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;

/// First line of the message of a blocked push.
pub const GUARD_TITLE: &str = "🔒 Blocked by security guardrail";

/// The spec's five kinds of sensitive files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    EnvironmentAndConfig,
    KeysAndCertificates,
    Cloud,
    Database,
    TokensAndAuth,
}

impl Category {
    pub fn as_str(self) -> &'static str {
        match self {
            Category::EnvironmentAndConfig => "environment and config files",
            Category::KeysAndCertificates => "private keys and certificates",
            Category::Cloud => "cloud credentials",
            Category::Database => "database credentials",
            Category::TokensAndAuth => "tokens and auth files",
        }
    }
}

/// Why one file may not be pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The name alone says it.
    Name(Category),
    /// Added lines hold this kind of secret.
    Content(Category, &'static str),
    /// A symbolic link to somewhere outside the repository.
    LinkOutside,
    /// A repository inside the repository: its files would not be pushed, only a pointer.
    NestedRepository,
    /// A path that git itself refuses, such as `.GIT/config`.
    UnsafePath,
    /// A file that could not be read, and so not be checked.
    Unreadable,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Name(category) => write!(f, "{} (file name)", category.as_str()),
            Reason::Content(category, what) => write!(f, "{} ({what})", category.as_str()),
            Reason::LinkOutside => f.write_str("symbolic link that leaves the repository"),
            Reason::NestedRepository => f.write_str("repository nested in the repository"),
            Reason::UnsafePath => f.write_str("path that git refuses to store"),
            Reason::Unreadable => f.write_str("file that could not be checked"),
        }
    }
}

/// A file that blocks the push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub path: String,
    pub reason: Reason,
}

/// Judges one changed file: `before` and `after` are its contents on either side of the change.
pub fn judge(path: &str, before: &[u8], after: &[u8]) -> Option<Reason> {
    if let Some(category) = names::judge(path, after) {
        return Some(Reason::Name(category));
    }
    let added = added_lines(before, after);
    contents::judge(path, &added).map(|(category, what)| Reason::Content(category, what))
}

/// Judges where a symbolic link at `path` leads.
pub fn judge_link(path: &str, target: &str) -> Option<Reason> {
    if target.starts_with('/') || target.contains('\0') {
        return Some(Reason::LinkOutside);
    }
    let mut depth = path.matches('/').count();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return Some(Reason::LinkOutside),
            ".." => depth -= 1,
            part if part.eq_ignore_ascii_case(".git") => return Some(Reason::LinkOutside),
            _ => depth += 1,
        }
    }
    None
}

/// The message of a blocked push, with one line for each file.
pub fn guard_message(hits: &[Hit]) -> String {
    let files: Vec<String> = hits
        .iter()
        .map(|hit| format!("- {}: {}", shown(&hit.path), hit.reason))
        .collect();
    format!(
        "{GUARD_TITLE}\n\nPush blocked: {} sensitive file(s) would be committed:\n{}",
        hits.len(),
        files.join("\n")
    )
}

/// A path on one line: a name may hold anything but a slash and a zero byte.
fn shown(path: &str) -> String {
    path.chars()
        .flat_map(|c| {
            let plain = !c.is_control() && !('\u{200b}'..='\u{206f}').contains(&c);
            if plain {
                vec![c]
            } else {
                c.escape_unicode().collect()
            }
        })
        .collect()
}

/// Lines of `after` that `before` does not have, in order. A file with zero bytes counts as one
/// line: it has no lines to compare.
fn added_lines(before: &[u8], after: &[u8]) -> Vec<u8> {
    if before.is_empty() || after.contains(&0) {
        return after.to_vec();
    }
    let known: HashSet<&[u8]> = before.split(|byte| *byte == b'\n').collect();
    after
        .split(|byte| *byte == b'\n')
        .filter(|line| !known.contains(line))
        .collect::<Vec<_>>()
        .join(&b'\n')
}

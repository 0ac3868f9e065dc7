//! What must never be pushed: the rules of the sensitive-file guard.
//!
//! Names and contents in, reasons out; reading the staged blobs is the pipeline's work. A file is
//! judged by its name first ([`names`]) and then by what a change adds to it ([`contents`], by the
//! [`rules`]): a harmless name is no excuse for a token, and an old token elsewhere in a file is not
//! this change's doing. A repository may permit files of its own ([`AllowList`]). A reason names the
//! category and never the secret. (spec: *Ticket comments posted*)

mod allow;
mod apart;
mod around;
mod assignment;
mod chosen;
mod contents;
mod decode;
mod dummies;
mod hosts;
mod in_text;
mod look;
mod magic;
mod names;
mod plausible;
mod rules;
mod scanner;
mod secret_name;
mod setting;
mod shape;
mod special;
#[cfg(test)]
mod tests;
mod text;
mod traits;
mod unpack;
mod web_config;
mod words;

use std::collections::HashSet;
use std::fmt;

pub use allow::{AllowList, AllowListError};
use contents::{Finding, Strength};
pub use in_text::{MARK, OpenKey, judge_words, line_of, secrets_in, without};
use rules::Kind;
use traits::Traits;
use unpack::Budget;

use super::comments::{GUARDRAIL_HEADING, is_visible};

/// How much of a message may files take up, in bytes? A ticket's comment holds it whole.
const MAX_LISTED: usize = 3_400;

/// How much of a path is shown, in characters? Its end tells more than its beginning.
const MAX_PATH: usize = 200;

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

impl Reason {
    /// The kind of secret, where it is one.
    pub fn category(&self) -> Option<Category> {
        match self {
            Reason::Name(category) | Reason::Content(category, _) => Some(*category),
            Reason::LinkOutside
            | Reason::NestedRepository
            | Reason::UnsafePath
            | Reason::Unreadable => None,
        }
    }

    /// What was found, without its category.
    pub fn rule(&self) -> &'static str {
        match self {
            Reason::Name(_) => "file name",
            Reason::Content(_, what) => what,
            Reason::LinkOutside => "symbolic link that leaves the repository",
            Reason::NestedRepository => "repository nested in the repository",
            Reason::UnsafePath => "path that git refuses to store",
            Reason::Unreadable => "file that could not be checked",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.category() {
            Some(category) => write!(f, "{} ({})", category.as_str(), self.rule()),
            None => f.write_str(self.rule()),
        }
    }
}

/// A file that blocks the push, or that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub path: String,
    pub reason: Reason,
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", shown(&self.path), self.reason)
    }
}

/// What a file comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Passes,
    /// Worth a person's look, and no reason to stop.
    Warns(Reason),
    Blocks(Reason),
}

/// Judges one changed file: `before` and `after` are its contents on either side of the change.
pub fn judge(path: &str, before: &[u8], after: &[u8], allow: &AllowList) -> Verdict {
    let mut archive = Archive {
        is_allowed: allow.permits(path),
        budget: Budget::of(after.len()),
        known: HashSet::new(),
    };
    archive.learn(path, before);
    archive.judge(path, before, after, 0)
}

/// What a file and the files in it have in common.
struct Archive {
    is_allowed: bool,
    budget: Budget,
    /// What the archive held before the change.
    known: HashSet<Vec<u8>>,
}

impl Archive {
    /// Remembers the files that were in the archive: they are not this change's doing.
    fn learn(&mut self, path: &str, before: &[u8]) {
        let mut budget = Budget::of(before.len());
        let entries = unpack::entries(path, before, &mut budget);
        let contents = entries.into_iter().flatten().map(|entry| entry.content);
        self.known.extend(contents);
    }

    fn judge(&mut self, path: &str, before: &[u8], after: &[u8], depth: usize) -> Verdict {
        let folded = names::folded(path);
        let text = text::decoded(after);
        let name = names::judge(&folded, &text);
        if let Some(category) = name.filter(|_| !self.is_allowed) {
            return Verdict::Blocks(Reason::Name(category));
        }
        let found = if text::is_binary(&text) {
            judge_binary(&text, self.is_allowed).or_else(|| self.inside(path, after, depth))
        } else {
            judge_text(&folded, before, &text, self.is_allowed)
        };
        let base_name = folded.rsplit('/').next().unwrap_or_default();
        match found {
            Verdict::Passes
                if names::is_data(base_name)
                    && !self.is_allowed
                    && !names::is_in_tests(&folded) =>
            {
                let what = "possible data of a database";
                Verdict::Warns(Reason::Content(Category::Database, what))
            }
            found => found,
        }
    }

    /// Judges the files in an archive: the first that blocks, or else the first that warns.
    fn inside(&mut self, path: &str, content: &[u8], depth: usize) -> Verdict {
        const TOO_LARGE: Reason = Reason::Content(
            Category::TokensAndAuth,
            "archive that could not be looked through whole",
        );
        if depth == unpack::DEPTH {
            return Verdict::Warns(TOO_LARGE);
        }
        if unpack::is_closed(content) && !self.is_allowed && !names::is_in_tests(path) {
            return Verdict::Warns(TOO_LARGE);
        }
        let entries = unpack::entries(path, content, &mut self.budget);
        let mut verdict = Verdict::Passes;
        for entry in entries.into_iter().flatten() {
            if self.known.contains(&entry.content) {
                continue;
            }
            verdict = verdict.or_else(|| self.judge(&entry.name, b"", &entry.content, depth + 1));
            if matches!(verdict, Verdict::Blocks(_)) {
                return verdict;
            }
        }
        match verdict {
            Verdict::Passes if self.budget.is_spent() && !self.is_allowed => {
                Verdict::Warns(TOO_LARGE)
            }
            verdict => verdict,
        }
    }
}

impl Verdict {
    /// This verdict, or one that weighs more.
    fn or_else(self, other: impl FnOnce() -> Verdict) -> Verdict {
        match self {
            Verdict::Blocks(_) => self,
            Verdict::Passes => other(),
            Verdict::Warns(_) => match other() {
                Verdict::Blocks(reason) => Verdict::Blocks(reason),
                _ => self,
            },
        }
    }
}

/// Of what is not text only key material counts: all else comes by chance in so many bytes.
fn judge_binary(content: &[u8], is_allowed: bool) -> Verdict {
    let found = contents::scan("", content);
    let key = contents::first(found.iter().filter(|finding| finding.rule.kind.is_key()));
    let what = match (key, magic::key_store(content)) {
        (Some(key), _) => key.rule.what,
        (None, Some(store)) if !is_allowed => store,
        _ => return Verdict::Passes,
    };
    Verdict::Blocks(Reason::Content(Category::KeysAndCertificates, what))
}

fn judge_text(path: &str, before: &[u8], after: &[u8], is_allowed: bool) -> Verdict {
    let (is_in_tests, is_in_docs) = (names::is_in_tests(path), names::is_in_docs(path));
    let may_be_judged = |finding: &Finding<'_>| !is_allowed || finding.rule.kind.is_key();
    let blocks = |finding: &Finding<'_>| match finding.strength {
        Strength::Possible => false,
        Strength::Likely if is_in_docs => {
            !is_in_tests && !matches!(finding.rule.kind, Kind::Generic | Kind::Setting)
        }
        Strength::Likely => !is_in_tests,
        Strength::Certain => true,
    };
    // What the file held before is known only once all of it was read.
    let is_enough =
        |finding: &Finding<'_>| before.is_empty() && may_be_judged(finding) && blocks(finding);
    let found = contents::scan_until(path, after, is_enough);
    if found.is_empty() {
        return Verdict::Passes;
    }
    let before = text::decoded(before);
    let before = contents::scan(path, &before);
    let known: HashSet<&[u8]> = before.iter().map(|finding| &*finding.secret).collect();
    let is_new =
        |finding: &&Finding<'_>| may_be_judged(finding) && !known.contains(&*finding.secret);
    let reason = |finding: &Finding<'_>| Reason::Content(finding.rule.category, finding.rule.what);
    let new = || found.iter().filter(is_new);
    if let Some(finding) = contents::first(new().filter(|finding| blocks(finding))) {
        return Verdict::Blocks(reason(finding));
    }
    // Tests are full of what only looks like a secret.
    let counts = |finding: &&Finding<'_>| match finding.rule.kind {
        Kind::Random => !is_in_tests,
        Kind::Generic => !is_in_tests || Traits::of(&finding.secret).is_surely_drawn(),
        _ => true,
    };
    match contents::first(new().filter(counts)) {
        Some(finding) => Verdict::Warns(reason(finding)),
        None => Verdict::Passes,
    }
}

/// Judges where a symbolic link at `path` leads. One that goes up again after a name cannot be judged by
/// its words: the name may be a link itself.
pub fn judge_link(path: &str, target: &str) -> Option<Reason> {
    if target.starts_with('/') || target.contains('\0') {
        return Some(Reason::LinkOutside);
    }
    let depth = path.matches('/').count();
    let (mut up, mut is_named) = (0, false);
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if is_named || up == depth => return Some(Reason::LinkOutside),
            ".." => up += 1,
            part if part.eq_ignore_ascii_case(".git") => return Some(Reason::LinkOutside),
            _ => is_named = true,
        }
    }
    None
}

/// The message of a blocked push, with one line for each file for as long as a comment holds them.
pub fn guard_message(hits: &[Hit]) -> String {
    let mut message = format!(
        "{GUARDRAIL_HEADING}\n\nPush blocked: {} sensitive file(s) would be committed:",
        hits.len()
    );
    let room = message.len() + MAX_LISTED;
    for (listed, hit) in hits.iter().enumerate() {
        let line = format!("\n- {hit}");
        if message.len() + line.len() > room {
            message.push_str(&format!("\n- … and {} more", hits.len() - listed));
            break;
        }
        message.push_str(&line);
    }
    message
}

/// A path on one line, with its end: a name may hold anything but a slash and a zero byte, secrets, line
/// breaks and links included.
fn shown(path: &str) -> String {
    // Before it is cut: a part of a token has no shape any more.
    let path = &without(path, &secrets_in(path));
    let surplus = path.chars().count().saturating_sub(MAX_PATH);
    let mut shown = String::from(if surplus > 0 { "…" } else { "" });
    for character in path.chars().skip(surplus) {
        match character {
            '(' | '[' if shown.ends_with(']') => shown.extend(['\\', character]),
            '\u{2028}' | '\u{2029}' => shown.extend(character.escape_unicode()),
            plain if is_visible(plain) => shown.push(plain),
            hidden => shown.extend(hidden.escape_unicode()),
        }
    }
    shown
}

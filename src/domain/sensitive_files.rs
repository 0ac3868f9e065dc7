//! What must never be pushed: the rules of the sensitive-file guard.
//!
//! Names and contents in, reasons out; reading the staged blobs is the pipeline's work. A file is
//! judged by its name first ([`names`]) and then by what a change adds to it ([`contents`], by the
//! [`rules`]): a harmless name is no excuse for a token, and an old token elsewhere in a file is not
//! this change's doing. A repository may permit files of its own ([`AllowList`]). A reason names the
//! category and never the secret. (spec: *Ticket comments posted*)

mod allow_list;
mod archive;
mod assignment;
mod assignment_analysis;
mod content_scan;
mod context_matchers;
mod decoded_view;
mod file_names;
mod hosts;
mod magic_numbers;
mod matchers;
mod placeholders;
mod plausibility;
mod redaction;
mod rules;
mod scan_pass;
mod scanner;
mod secret_name;
#[cfg(test)]
mod tests;
mod text_encoding;
mod text_stats;
mod token_boundary;
mod token_format;
mod value_heuristics;
mod web_config;
mod word_automaton;

use std::collections::HashSet;
use std::fmt;

pub use allow_list::{AllowList, AllowListError};
use archive::UnpackBudget;
use content_scan::{Confidence, SecretMatch};
pub use redaction::{
    PrivateKeyTracker, REDACTED, check_name, find_secrets, finding_line, redact_ranges,
};
use rules::RuleKind;
use text_stats::TextStats;

use super::comments::{GUARDRAIL_HEADING, is_visible};

/// How much of a message may files take up, in bytes? A ticket's comment holds it whole.
const MAX_LISTED: usize = 3_400;

/// How much of a path is shown, in characters? Its end tells more than its beginning.
const MAX_PATH: usize = 200;

/// The spec's five kinds of sensitive files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretCategory {
    EnvironmentAndConfig,
    KeysAndCertificates,
    Cloud,
    Database,
    TokensAndAuth,
}

impl SecretCategory {
    pub fn as_str(self) -> &'static str {
        match self {
            SecretCategory::EnvironmentAndConfig => "environment and config files",
            SecretCategory::KeysAndCertificates => "private keys and certificates",
            SecretCategory::Cloud => "cloud credentials",
            SecretCategory::Database => "database credentials",
            SecretCategory::TokensAndAuth => "tokens and auth files",
        }
    }
}

/// Why one file may not be pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GuardReason {
    /// The name alone says it.
    FileName(SecretCategory),
    /// Added lines hold this kind of secret.
    Content(SecretCategory, &'static str),
    /// A symbolic link to somewhere outside the repository.
    ExternalSymlink,
    /// A repository inside the repository: its files would not be pushed, only a pointer.
    NestedRepository,
    /// A path that git itself refuses, such as `.GIT/config`.
    UnsafePath,
    /// A file that could not be read, and so not be checked.
    Unreadable,
}

impl GuardReason {
    /// The kind of secret, where it is one.
    pub fn category(&self) -> Option<SecretCategory> {
        match self {
            GuardReason::FileName(category) | GuardReason::Content(category, _) => Some(*category),
            GuardReason::ExternalSymlink
            | GuardReason::NestedRepository
            | GuardReason::UnsafePath
            | GuardReason::Unreadable => None,
        }
    }

    /// What was found, without its category.
    pub fn rule(&self) -> &'static str {
        match self {
            GuardReason::FileName(_) => "file name",
            GuardReason::Content(_, what) => what,
            GuardReason::ExternalSymlink => "symbolic link that leaves the repository",
            GuardReason::NestedRepository => "repository nested in the repository",
            GuardReason::UnsafePath => "path that git refuses to store",
            GuardReason::Unreadable => "file that could not be checked",
        }
    }
}

impl fmt::Display for GuardReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.category() {
            Some(category) => write!(f, "{} ({})", category.as_str(), self.rule()),
            None => f.write_str(self.rule()),
        }
    }
}

/// A file that blocks the push, or that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SensitiveFile {
    pub path: String,
    pub reason: GuardReason,
}

impl fmt::Display for SensitiveFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", shown(&self.path), self.reason)
    }
}

/// What a file comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardVerdict {
    Pass,
    /// Worth a person's look, and no reason to stop.
    Warn(GuardReason),
    Block(GuardReason),
}

/// Judges one changed file: `before` and `after` are its contents on either side of the change.
pub fn check_file(path: &str, before: &[u8], after: &[u8], allow: &AllowList) -> GuardVerdict {
    let mut archive = Archive {
        is_allowed: allow.permits(path),
        budget: UnpackBudget::for_size(after.len()),
        known: HashSet::new(),
    };
    archive.learn(path, before);
    archive.judge(path, before, after, 0)
}

/// What a file and the files in it have in common.
struct Archive {
    is_allowed: bool,
    budget: UnpackBudget,
    /// What the archive held before the change.
    known: HashSet<Vec<u8>>,
}

impl Archive {
    /// Remembers the files that were in the archive: they are not this change's doing.
    fn learn(&mut self, path: &str, before: &[u8]) {
        let mut budget = UnpackBudget::for_size(before.len());
        let entries = archive::read_entries(path, before, &mut budget);
        let contents = entries.into_iter().flatten().map(|entry| entry.content);
        self.known.extend(contents);
    }

    fn judge(&mut self, path: &str, before: &[u8], after: &[u8], depth: usize) -> GuardVerdict {
        let folded = file_names::normalized_path(path);
        let text = text_encoding::decode_text(after);
        let name = file_names::category_of(&folded, &text);
        if let Some(category) = name.filter(|_| !self.is_allowed) {
            return GuardVerdict::Block(GuardReason::FileName(category));
        }
        let found = if text_encoding::is_binary(&text) {
            judge_binary(&text, self.is_allowed).or_else(|| self.inside(path, after, depth))
        } else {
            judge_text(&folded, before, &text, self.is_allowed)
        };
        let base_name = folded.rsplit('/').next().unwrap_or_default();
        match found {
            GuardVerdict::Pass
                if file_names::is_database_file(base_name)
                    && !self.is_allowed
                    && !file_names::is_test_path(&folded) =>
            {
                let what = "possible data of a database";
                GuardVerdict::Warn(GuardReason::Content(SecretCategory::Database, what))
            }
            found => found,
        }
    }

    /// Judges the files in an archive: the first that blocks, or else the first that warns.
    fn inside(&mut self, path: &str, content: &[u8], depth: usize) -> GuardVerdict {
        const TOO_LARGE: GuardReason = GuardReason::Content(
            SecretCategory::TokensAndAuth,
            "archive that could not be looked through whole",
        );
        if depth == archive::MAX_DEPTH {
            return GuardVerdict::Warn(TOO_LARGE);
        }
        if archive::is_unsupported_archive(content)
            && !self.is_allowed
            && !file_names::is_test_path(path)
        {
            return GuardVerdict::Warn(TOO_LARGE);
        }
        let entries = archive::read_entries(path, content, &mut self.budget);
        let mut verdict = GuardVerdict::Pass;
        for entry in entries.into_iter().flatten() {
            if self.known.contains(&entry.content) {
                continue;
            }
            verdict = verdict.or_else(|| self.judge(&entry.name, b"", &entry.content, depth + 1));
            if matches!(verdict, GuardVerdict::Block(_)) {
                return verdict;
            }
        }
        match verdict {
            GuardVerdict::Pass if self.budget.is_exhausted() && !self.is_allowed => {
                GuardVerdict::Warn(TOO_LARGE)
            }
            verdict => verdict,
        }
    }
}

impl GuardVerdict {
    /// This verdict, or one that weighs more.
    fn or_else(self, other: impl FnOnce() -> GuardVerdict) -> GuardVerdict {
        match self {
            GuardVerdict::Block(_) => self,
            GuardVerdict::Pass => other(),
            GuardVerdict::Warn(_) => match other() {
                GuardVerdict::Block(reason) => GuardVerdict::Block(reason),
                _ => self,
            },
        }
    }
}

/// Of what is not text only key material counts: all else comes by chance in so many bytes.
fn judge_binary(content: &[u8], is_allowed: bool) -> GuardVerdict {
    let found = content_scan::scan("", content);
    let key = content_scan::first_by_rule(
        found
            .iter()
            .filter(|finding| finding.rule.kind.is_key_material()),
    );
    let what = match (key, magic_numbers::key_material_label(content)) {
        (Some(key), _) => key.rule.label,
        (None, Some(store)) if !is_allowed => store,
        _ => return GuardVerdict::Pass,
    };
    GuardVerdict::Block(GuardReason::Content(
        SecretCategory::KeysAndCertificates,
        what,
    ))
}

fn judge_text(path: &str, before: &[u8], after: &[u8], is_allowed: bool) -> GuardVerdict {
    let (is_in_tests, is_in_docs) = (
        file_names::is_test_path(path),
        file_names::is_docs_path(path),
    );
    let may_be_judged =
        |finding: &SecretMatch<'_>| !is_allowed || finding.rule.kind.is_key_material();
    let blocks = |finding: &SecretMatch<'_>| match finding.confidence {
        Confidence::Possible => false,
        Confidence::Likely if is_in_docs => {
            !is_in_tests && !matches!(finding.rule.kind, RuleKind::Generic | RuleKind::Setting)
        }
        Confidence::Likely => !is_in_tests,
        Confidence::Certain => true,
    };
    // What the file held before is known only once all of it was read.
    let is_enough =
        |finding: &SecretMatch<'_>| before.is_empty() && may_be_judged(finding) && blocks(finding);
    let found = content_scan::scan_until(path, after, is_enough);
    if found.is_empty() {
        return GuardVerdict::Pass;
    }
    let before = text_encoding::decode_text(before);
    let before = content_scan::scan(path, &before);
    let known: HashSet<&[u8]> = before.iter().map(|finding| &*finding.secret).collect();
    let is_new =
        |finding: &&SecretMatch<'_>| may_be_judged(finding) && !known.contains(&*finding.secret);
    let reason =
        |finding: &SecretMatch<'_>| GuardReason::Content(finding.rule.category, finding.rule.label);
    let new = || found.iter().filter(is_new);
    if let Some(finding) = content_scan::first_by_rule(new().filter(|finding| blocks(finding))) {
        return GuardVerdict::Block(reason(finding));
    }
    // Tests are full of what only looks like a secret.
    let counts = |finding: &&SecretMatch<'_>| match finding.rule.kind {
        RuleKind::Random => !is_in_tests,
        RuleKind::Generic => !is_in_tests || TextStats::of(&finding.secret).is_certainly_random(),
        _ => true,
    };
    match content_scan::first_by_rule(new().filter(counts)) {
        Some(finding) => GuardVerdict::Warn(reason(finding)),
        None => GuardVerdict::Pass,
    }
}

/// Judges where a symbolic link at `path` leads. One that goes up again after a name cannot be judged by
/// its words: the name may be a link itself.
pub fn check_symlink(path: &str, target: &str) -> Option<GuardReason> {
    if target.starts_with('/') || target.contains('\0') {
        return Some(GuardReason::ExternalSymlink);
    }
    let depth = path.matches('/').count();
    let (mut up, mut is_named) = (0, false);
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if is_named || up == depth => return Some(GuardReason::ExternalSymlink),
            ".." => up += 1,
            part if part.eq_ignore_ascii_case(".git") => return Some(GuardReason::ExternalSymlink),
            _ => is_named = true,
        }
    }
    None
}

/// The message of a blocked push, with one line for each file for as long as a comment holds them.
pub fn guard_message(hits: &[SensitiveFile]) -> String {
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
    let path = &redact_ranges(path, &find_secrets(path));
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

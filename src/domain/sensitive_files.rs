//! Sensitive-file guard: detects secrets in changed files before they are pushed.
//!
//! Input is a path with the file's content before and after the change; output is a [`GuardVerdict`]. The
//! run reads the staged blobs. The file name is checked first, then the content that the change adds: a
//! secret that the file already contained is not reported again. A repository can permit files with an
//! [`AllowList`]. A reason contains the category and the rule, never the secret. See docs/guard.md.

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

use super::comments::GUARDRAIL_HEADING;
use super::sanitize::is_visible;

/// Maximum length of the file list in a message, in bytes. The whole message must fit in a ticket comment.
const MAX_FILE_LIST: usize = 3_400;

/// Maximum length of a path in a message, in characters. Longer paths lose their beginning.
const MAX_PATH: usize = 200;

/// Category of a sensitive file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretCategory {
    /// Environment and configuration files.
    EnvironmentAndConfig,
    /// Private keys and certificates.
    KeysAndCertificates,
    /// Cloud credentials.
    Cloud,
    /// Database credentials.
    Database,
    /// Tokens and authentication files.
    TokensAndAuth,
}

impl SecretCategory {
    /// Returns the category's name as it appears in messages.
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

/// Reason why a file was blocked or flagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GuardReason {
    /// Sensitive file name.
    FileName(SecretCategory),
    /// Secret in the added content: its category and the label of the rule that matched.
    Content(SecretCategory, &'static str),
    /// Symbolic link that points outside the repository.
    ExternalSymlink,
    /// Git repository inside the repository. Git would commit a pointer to it, not its files.
    NestedRepository,
    /// Path that git refuses to store, such as `.GIT/config`.
    UnsafePath,
    /// File that could not be read.
    Unreadable,
}

impl GuardReason {
    /// Returns the category of the secret, or `None` for reasons other than a secret.
    pub fn category(&self) -> Option<SecretCategory> {
        match self {
            GuardReason::FileName(category) | GuardReason::Content(category, _) => Some(*category),
            GuardReason::ExternalSymlink
            | GuardReason::NestedRepository
            | GuardReason::UnsafePath
            | GuardReason::Unreadable => None,
        }
    }

    /// Returns the label of the matched rule or a description of the problem.
    pub fn rule(&self) -> &'static str {
        match self {
            GuardReason::FileName(_) => "file name",
            GuardReason::Content(_, label) => label,
            GuardReason::ExternalSymlink => "symbolic link that leaves the repository",
            GuardReason::NestedRepository => "nested Git repository",
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

/// File that blocks the push or needs review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SensitiveFile {
    /// Path from the top of the repository.
    pub path: String,
    /// Reason why the file is sensitive.
    pub reason: GuardReason,
}

impl fmt::Display for SensitiveFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", display_path(&self.path), self.reason)
    }
}

/// Result of a file check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardVerdict {
    /// Nothing found.
    Pass,
    /// Possible secret. A person should review it; the push continues.
    Warn(GuardReason),
    /// Secret. The push is blocked.
    Block(GuardReason),
}

/// Checks one changed file. `before` and `after` are its content before and after the change.
pub fn check_file(path: &str, before: &[u8], after: &[u8], allow: &AllowList) -> GuardVerdict {
    let budget = UnpackBudget::for_size(after.len());
    FileCheck::new(path, before, budget, allow).check(path, before, after, 0)
}

/// Checks a part of a changed file that is too large to be checked at once. An archive cannot be read completely
/// from its parts.
pub fn check_window(path: &str, before: &[u8], window: &[u8], allow: &AllowList) -> GuardVerdict {
    let budget = UnpackBudget::for_part(window.len());
    FileCheck::new(path, before, budget, allow).check(path, before, window, 0)
}

/// State shared by the check of a file and of the files in it, if it is an archive.
struct FileCheck {
    is_allowed: bool,
    budget: UnpackBudget,
    /// Contents of the archive's entries before the change.
    known_contents: HashSet<Vec<u8>>,
}

impl FileCheck {
    /// Creates the check. Entries that the archive contained before the change are not checked again.
    fn new(path: &str, before: &[u8], budget: UnpackBudget, allow: &AllowList) -> Self {
        let mut budget_before = UnpackBudget::for_size(before.len());
        let entries = archive::read_entries(path, before, &mut budget_before);
        let contents = entries.into_iter().flatten().map(|entry| entry.content);
        Self {
            is_allowed: allow.permits(path),
            budget,
            known_contents: contents.collect(),
        }
    }

    fn check(&mut self, path: &str, before: &[u8], after: &[u8], depth: usize) -> GuardVerdict {
        let normalized = file_names::normalized_path(path);
        let text = text_encoding::decode_text(after);
        let name = file_names::category_of(&normalized, &text);
        if let Some(category) = name.filter(|_| !self.is_allowed) {
            return GuardVerdict::Block(GuardReason::FileName(category));
        }
        let found = if text_encoding::is_binary(&text) {
            check_binary(&text, self.is_allowed).or_else(|| self.check_archive(path, after, depth))
        } else {
            check_text(&normalized, before, &text, self.is_allowed)
        };
        let base_name = normalized.rsplit('/').next().unwrap_or_default();
        match found {
            GuardVerdict::Pass
                if file_names::is_database_file(base_name)
                    && !self.is_allowed
                    && !file_names::is_test_path(&normalized) =>
            {
                let label = "possible database file";
                GuardVerdict::Warn(GuardReason::Content(SecretCategory::Database, label))
            }
            found => found,
        }
    }

    /// Checks the entries of an archive. Returns the first verdict that blocks, otherwise the first warning.
    fn check_archive(&mut self, path: &str, content: &[u8], depth: usize) -> GuardVerdict {
        const INCOMPLETE: GuardReason = GuardReason::Content(
            SecretCategory::TokensAndAuth,
            "archive that could not be fully checked",
        );
        if depth == archive::MAX_DEPTH {
            return GuardVerdict::Warn(INCOMPLETE);
        }
        if archive::is_unsupported_archive(content)
            && !self.is_allowed
            && !file_names::is_test_path(path)
        {
            return GuardVerdict::Warn(INCOMPLETE);
        }
        let Some(entries) = archive::read_entries(path, content, &mut self.budget) else {
            return GuardVerdict::Pass;
        };
        let mut verdict = GuardVerdict::Pass;
        for entry in entries {
            if self.known_contents.contains(&entry.content) {
                continue;
            }
            verdict = verdict.or_else(|| self.check(&entry.name, b"", &entry.content, depth + 1));
            if matches!(verdict, GuardVerdict::Block(_)) {
                return verdict;
            }
        }
        match verdict {
            GuardVerdict::Pass if self.budget.may_have_skipped() && !self.is_allowed => {
                GuardVerdict::Warn(INCOMPLETE)
            }
            verdict => verdict,
        }
    }
}

impl GuardVerdict {
    /// Returns this verdict, or the other one if it is more severe.
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

/// Checks binary content. Only key material is reported: other formats match random bytes by chance.
fn check_binary(content: &[u8], is_allowed: bool) -> GuardVerdict {
    let found = content_scan::scan("", content);
    let key = content_scan::first_by_rule(
        found
            .iter()
            .filter(|finding| finding.rule.kind.is_key_material()),
    );
    let label = match (key, magic_numbers::key_material_label(content)) {
        (Some(key), _) => key.rule.label,
        (None, Some(label)) if !is_allowed => label,
        _ => return GuardVerdict::Pass,
    };
    GuardVerdict::Block(GuardReason::Content(
        SecretCategory::KeysAndCertificates,
        label,
    ))
}

/// Checks text content. Secrets that `before` already contained are ignored.
fn check_text(path: &str, before: &[u8], after: &[u8], is_allowed: bool) -> GuardVerdict {
    let (is_in_tests, is_in_docs) = (
        file_names::is_test_path(path),
        file_names::is_docs_path(path),
    );
    let is_reportable =
        |finding: &SecretMatch<'_>| !is_allowed || finding.rule.kind.is_key_material();
    let blocks = |finding: &SecretMatch<'_>| match finding.confidence {
        Confidence::Possible => false,
        Confidence::Likely if is_in_docs => {
            !is_in_tests && !matches!(finding.rule.kind, RuleKind::Generic | RuleKind::Setting)
        }
        Confidence::Likely => !is_in_tests,
        Confidence::Certain => true,
    };
    // Stop early for new files only: other matches must be compared with those before the change.
    let can_stop =
        |finding: &SecretMatch<'_>| before.is_empty() && is_reportable(finding) && blocks(finding);
    let found = content_scan::scan_until(path, after, can_stop);
    if found.is_empty() {
        return GuardVerdict::Pass;
    }
    let before = text_encoding::decode_text(before);
    let before = content_scan::scan(path, &before);
    let known: HashSet<&[u8]> = before.iter().map(|finding| &*finding.secret).collect();
    let is_new =
        |finding: &&SecretMatch<'_>| is_reportable(finding) && !known.contains(&*finding.secret);
    let reason =
        |finding: &SecretMatch<'_>| GuardReason::Content(finding.rule.category, finding.rule.label);
    let new = || found.iter().filter(is_new);
    if let Some(finding) = content_scan::first_by_rule(new().filter(|finding| blocks(finding))) {
        return GuardVerdict::Block(reason(finding));
    }
    // Test files often contain values that only resemble secrets.
    let is_worth_warning = |finding: &&SecretMatch<'_>| match finding.rule.kind {
        RuleKind::Random => !is_in_tests,
        RuleKind::Generic => !is_in_tests || TextStats::of(&finding.secret).is_certainly_random(),
        _ => true,
    };
    match content_scan::first_by_rule(new().filter(is_worth_warning)) {
        Some(finding) => GuardVerdict::Warn(reason(finding)),
        None => GuardVerdict::Pass,
    }
}

/// Checks the target of a symbolic link at `path`. A target with `..` after a named part is rejected,
/// because that part may be a link itself.
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

/// Builds the message about a blocked push: one line per file, up to the size limit of a comment.
pub fn guard_message(hits: &[SensitiveFile]) -> String {
    let mut message = format!(
        "{GUARDRAIL_HEADING}\n\nPush blocked: {} sensitive file(s) would be committed:",
        hits.len()
    );
    let max_len = message.len() + MAX_FILE_LIST;
    for (listed, hit) in hits.iter().enumerate() {
        let line = format!("\n- {hit}");
        if message.len() + line.len() > max_len {
            message.push_str(&format!("\n- … and {} more", hits.len() - listed));
            break;
        }
        message.push_str(&line);
    }
    message
}

/// Formats a path on one line: redacts secrets, escapes control characters and links, and cuts the
/// beginning of a long path.
fn display_path(path: &str) -> String {
    // Redact before cutting: a cut token no longer matches its format.
    let path = &redact_ranges(path, &find_secrets(path));
    let surplus = path.chars().count().saturating_sub(MAX_PATH);
    let mut text = String::from(if surplus > 0 { "…" } else { "" });
    for character in path.chars().skip(surplus) {
        match character {
            '(' | '[' if text.ends_with(']') => text.extend(['\\', character]),
            '\u{2028}' | '\u{2029}' => text.extend(character.escape_unicode()),
            plain if is_visible(plain) => text.push(plain),
            hidden => text.extend(hidden.escape_unicode()),
        }
    }
    text
}

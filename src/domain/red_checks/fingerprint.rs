//! Fingerprint of a failure: equal if a repair has changed nothing about it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::FailedCheck;
use crate::crypto::sha256_hex;

/// Number of last lines of a log that count.
const LINES: usize = 80;

/// Parts of a line that differ between two runs of the same failure, with what stands for them.
static VARIABLE_PARTS: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
    [
        (
            regex(
                r#"(?:/private)?(?:/tmp|/var/tmp|/var/folders|/home/runner/work/_temp)(?:/[^\s:'"`)\]>]*)?|[A-Za-z]:\\[^\s:'"]*\\Temp\\[^\s:'"]*"#,
            ),
            "<tmp>",
        ),
        (regex(r"(?i)\b(?:0x)?[0-9a-f]{7,}\b"), "<hex>"),
        (regex(r"\d+(?:[.,:]\d+)*"), "<n>"),
    ]
});

#[expect(clippy::unwrap_used, reason = "the patterns are constants and tested")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// Returns the fingerprint of failing checks: their names, and their logs without numbers, times, hashes and
/// temporary paths. The order of lines does not count, because tests run side by side.
pub fn fingerprint(failures: &[FailedCheck]) -> String {
    let mut parts: Vec<String> = failures.iter().map(normalized).collect();
    parts.sort();
    sha256_hex(&parts.join("\u{1}"))
}

fn normalized(check: &FailedCheck) -> String {
    let text = match &check.log {
        Some(log) => Cow::Borrowed(log.as_str()),
        None => Cow::Owned(format!("{}\n{}", check.title, check.summary)),
    };
    let lines = text.lines().rev().map(normalized_line);
    let lines = lines.filter(|line| !line.is_empty()).take(LINES);
    let lines: BTreeSet<String> = lines.collect();
    let lines: Vec<String> = lines.into_iter().collect();
    format!("{}\n{}", check.name, lines.join("\n"))
}

fn normalized_line(line: &str) -> String {
    let replaced = VARIABLE_PARTS
        .iter()
        .fold(Cow::Borrowed(line.trim()), |line, (part, name)| {
            Cow::Owned(part.replace_all(&line, *name).into_owned())
        });
    replaced.into_owned()
}

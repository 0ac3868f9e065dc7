//! Failing checks as text for the run that repairs them.

use super::shown_name;
use crate::sanitize;

/// Maximum size of all logs in the inputs of a run, in bytes.
pub const MAX_LOG_BYTES: usize = 32 << 10;

/// Maximum length of all logs as JSON in the inputs of a dispatch, in characters of GitHub's encoder. The
/// description of the ticket is truncated first, so the limit must leave room for the other inputs.
const MAX_JSON_CHARS: usize = 40_000;

/// Maximum number of checks described.
const MAX_CHECKS: usize = 10;

/// Maximum length of a title, a summary and an address, in bytes.
const MAX_TITLE: usize = 300;
const MAX_SUMMARY: usize = 1_000;
const MAX_URL: usize = 300;

/// Start of a log whose beginning is left out.
const CUT_MARK: &str = "[… the beginning of the log is left out]\n";

/// Failing check with what is known about the failure. All text is untrusted, and redacted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailedCheck {
    /// Name.
    pub name: String,
    /// Address of the details.
    pub url: Option<String>,
    /// Title of the output, or description of the commit status.
    pub title: String,
    /// Summary of the output.
    pub summary: String,
    /// End of the log of a workflow job.
    pub log: Option<String>,
}

/// Formats failing checks: name, address, output and the end of the log of each. Each log gets a fair share of the
/// space; what one does not need is left to the others.
pub fn format_failures(checks: &[FailedCheck]) -> String {
    let described = checks.get(..MAX_CHECKS).unwrap_or(checks);
    let mut text = String::new();
    let shares = shares(described);
    for (number, (check, share)) in described.iter().zip(shares).enumerate() {
        text.push_str(&format!("{}. {}\n", number + 1, shown_name(&check.name)));
        if let Some(url) = &check.url {
            text.push_str(&format!("{}\n", line(url, MAX_URL)));
        }
        for (output, max) in [(&check.title, MAX_TITLE), (&check.summary, MAX_SUMMARY)] {
            let output = sanitize::strip_invisible(output);
            if !output.trim().is_empty() {
                let output = sanitize::truncate(output.trim(), max, sanitize::ELLIPSIS);
                text.push_str(&format!("{output}\n"));
            }
        }
        if let Some(log) = &check.log {
            text.push_str(&format!(
                "End of its log:\n{}\n",
                end_of(log.trim_end(), share)
            ));
        }
        text.push('\n');
    }
    let rest = checks.len() - described.len();
    if rest > 0 {
        text.push_str(&format!("{rest} more checks fail.\n"));
    }
    text.trim_end().to_owned()
}

fn line(text: &str, max: usize) -> String {
    sanitize::truncate(sanitize::single_line(text), max, sanitize::ELLIPSIS).into_owned()
}

/// Space of a log: bytes, and characters as JSON.
#[derive(Clone, Copy)]
struct Share {
    bytes: usize,
    json: usize,
}

/// Returns the share of each log, the smallest served first.
fn shares(checks: &[FailedCheck]) -> Vec<Share> {
    let sizes: Vec<Share> = checks
        .iter()
        .map(|check| match &check.log {
            Some(log) => Share {
                bytes: log.len(),
                json: log.chars().map(json_length).sum(),
            },
            None => Share { bytes: 0, json: 0 },
        })
        .collect();
    let fair = |total: usize, size: fn(&Share) -> usize| {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|at| sizes.get(*at).map(size));
        let (mut left, mut shares) = (total, vec![0; sizes.len()]);
        for (served, at) in order.iter().enumerate() {
            let share = (left / (order.len() - served)).min(size(&sizes[*at]));
            shares[*at] = share;
            left -= share;
        }
        shares
    };
    let bytes = fair(MAX_LOG_BYTES, |size| size.bytes);
    let json = fair(MAX_JSON_CHARS, |size| size.json);
    let both = bytes.into_iter().zip(json);
    both.map(|(bytes, json)| Share { bytes, json }).collect()
}

/// Returns the end of a log, from the start of a line, with a mark if the beginning is left out.
fn end_of(log: &str, share: Share) -> String {
    let (mut bytes, mut json) = (0, 0);
    let start = log.char_indices().rev().find(|(_, c)| {
        bytes += c.len_utf8();
        json += json_length(*c);
        bytes > share.bytes || json > share.json
    });
    let Some((at, cut)) = start else {
        return log.to_owned();
    };
    let end = &log[at + cut.len_utf8()..];
    let end = end.split_once('\n').map_or(end, |(_, lines)| lines);
    format!("{CUT_MARK}{end}")
}

/// Length of a character in the JSON of a dispatch, in which `<`, `>` and `&` are escaped too.
fn json_length(c: char) -> usize {
    match c {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => 6,
        '\n' | '"' | '\\' | '\t' => 2,
        c if c.is_control() => 6,
        c => c.len_utf16(),
    }
}

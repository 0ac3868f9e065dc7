//! Sanitizers for untrusted text in log lines, prompts and pull requests.
//!
//! They do not redact secrets; redaction comes first, on the whole text.

use std::sync::LazyLock;

use regex::Regex;

/// Maximum length of a log line, in bytes.
pub(crate) const MAX_LOG_LINE: usize = 4096;

/// Invisible character (word joiner) that breaks mentions, references and commands.
const JOINER: char = '\u{2060}';

#[expect(clippy::unwrap_used, reason = "the patterns are constants and tested")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// Terminal escape sequences: CSI, OSC and similar up to their terminator, and two-byte sequences.
static ESCAPES: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?:\x1b\[|\u{9b})[0-?]*[ -/]*[@-~]",
        r"|(?:\x1b[\]PX^_]|[\u{90}\u{98}\u{9d}-\u{9f}])[^\x07\x1b\u{9c}]*(?:\x07|\x1b\\|\u{9c})?",
        r"|\x1b[ -/]*[0-~]?",
    ))
});

/// Returns a line of program output without control characters, cut at [`MAX_LOG_LINE`].
pub(crate) fn sanitize_log_line(text: &str) -> String {
    // Text before a carriage return would be overwritten on a terminal (progress bars).
    let text = text.trim_end_matches('\r');
    let text = text.rsplit('\r').next().unwrap_or(text);
    let plain: String = ESCAPES
        .replace_all(text, "")
        .chars()
        .filter(|c| (!c.is_control() || *c == '\t') && !is_invisible(*c))
        .collect();
    truncate(&plain, MAX_LOG_LINE)
}

/// Removes invisible characters: controls, zero-width and bidirectional characters, tags.
pub(crate) fn strip_invisible(text: &str) -> String {
    ESCAPES
        .replace_all(&text.replace("\r\n", "\n"), "")
        .chars()
        .filter(|c| (!c.is_control() || matches!(c, '\n' | '\t')) && !is_invisible(*c))
        .collect()
}

fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// HTML comments.
static COMMENTS: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)<!--.*?(?:-->|$)"));
/// Start of an HTML tag.
static TAGS: LazyLock<Regex> = LazyLock::new(|| regex(r"<([A-Za-z/!?])"));
/// Mentions of users.
static MENTIONS: LazyLock<Regex> = LazyLock::new(|| regex(r"@([A-Za-z0-9_])"));
/// References to issues.
static REFERENCES: LazyLock<Regex> = LazyLock::new(|| regex(r"#(\d)"));
/// Keywords that close an issue.
static CLOSERS: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\b(clos|fix|resolv|complet|implement)(e|es|ed|s|ing)?(\s*:?\s*)(\S*\d)")
});
/// Commands and markers of the service.
static SERVICE_NAMES: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)(/agent-implement|agent-implement)(\b|-)"));

/// Sanitizes agent output for a pull request or comment: no mentions, closing keywords, images, hidden
/// text or commands. Cuts the result at `max` bytes.
pub(crate) fn sanitize_markdown(text: &str, max: usize) -> String {
    let text = strip_invisible(text);
    let text = COMMENTS.replace_all(&text, "");
    let text = TAGS.replace_all(&text, format!("<{JOINER}$1"));
    let text = text.replace("![", &format!("!{JOINER}["));
    let text = MENTIONS.replace_all(&text, format!("@{JOINER}$1"));
    let text = REFERENCES.replace_all(&text, format!("#{JOINER}$1"));
    let text = CLOSERS.replace_all(&text, format!("$1{JOINER}$2$3$4"));
    let text = SERVICE_NAMES.replace_all(&text, |found: &regex::Captures<'_>| {
        found[0].replace("gent-", &format!("gent{JOINER}-"))
    });
    truncate(text.trim(), max)
}

/// Cuts a text at `max` bytes on a character boundary and appends `…` if it was longer.
pub(crate) fn truncate(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_control_sequences_from_log_lines() {
        for (raw, expected) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{7}", "link"),
            ("\u{1b}]52;c;aGk=\u{1b}\\x", "x"),
            ("10%\r50%\r100%", "100%"),
            ("a\u{202e}b\u{200b}c\u{7}", "abc"),
            ("tab\tstays", "tab\tstays"),
        ] {
            assert_eq!(sanitize_log_line(raw), expected, "{raw:?}");
        }
        assert!(sanitize_log_line(&"ä".repeat(5000)).len() <= MAX_LOG_LINE);
    }

    #[test]
    fn sanitizes_mentions_closing_keywords_and_commands() {
        let raw = "Done @octocat. Fixes #12, closes: owner/repo#3, resolves ENG-4.\n\
                   ![x](http://evil/beacon.png) <img src=x> <!-- hidden -->\n\
                   /agent-implement do more <!-- agent-implement-meta {} -->";
        let sanitized = sanitize_markdown(raw, 10_000);
        for removed in [
            "@octocat",
            "#12",
            "Fixes",
            "closes",
            "resolves",
            "![",
            "<img",
            "hidden",
            "/agent-implement",
            "agent-implement-meta",
        ] {
            assert!(!sanitized.contains(removed), "{removed} in {sanitized}");
        }
        assert_eq!(
            sanitize_markdown("We fixed the login.", 100),
            "We fixed the login."
        );
    }
}

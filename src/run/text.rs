//! Making foreign text harmless: for a log line, for a prompt, for a pull request.
//!
//! Redaction is not done here; it comes first, on the whole text.

use std::sync::LazyLock;

use regex::Regex;

/// How long may one line of a log be?
pub const MAX_LOG_LINE: usize = 4096;

/// Stands between two characters that would mean something together; it cannot be seen.
const JOINER: char = '\u{2060}';

#[expect(clippy::unwrap_used, reason = "the patterns are constants and tested")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// Escape sequences of terminals: CSI, OSC and its kin up to their end, and two-byte ones.
static ESCAPES: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?:\x1b\[|\u{9b})[0-?]*[ -/]*[@-~]",
        r"|(?:\x1b[\]PX^_]|[\u{90}\u{98}\u{9d}-\u{9f}])[^\x07\x1b\u{9c}]*(?:\x07|\x1b\\|\u{9c})?",
        r"|\x1b[ -/]*[0-~]?",
    ))
});

/// One line of somebody's output, as a log may hold it.
pub fn sanitize_log_line(text: &str) -> String {
    // What a carriage return overwrites was never meant to stay.
    let text = text.trim_end_matches('\r');
    let text = text.rsplit('\r').next().unwrap_or(text);
    let plain: String = ESCAPES
        .replace_all(text, "")
        .chars()
        .filter(|c| (!c.is_control() || *c == '\t') && !is_invisible(*c))
        .collect();
    truncate(&plain, MAX_LOG_LINE)
}

/// Text without what a reader cannot see: controls, zero-width and bidirectional characters, tags.
pub fn strip_invisible(text: &str) -> String {
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

static COMMENTS: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)<!--.*?(?:-->|$)"));
static TAGS: LazyLock<Regex> = LazyLock::new(|| regex(r"<([A-Za-z/!?])"));
static MENTIONS: LazyLock<Regex> = LazyLock::new(|| regex(r"@([A-Za-z0-9_])"));
static REFERENCES: LazyLock<Regex> = LazyLock::new(|| regex(r"#(\d)"));
static CLOSERS: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\b(clos|fix|resolv|complet|implement)(e|es|ed|s|ing)?(\s*:?\s*)(\S*\d)")
});
static OURS: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)(/agent-implement|agent-implement)(\b|-)"));

/// Text of a model as a pull request or a comment may hold it: it mentions nobody, closes nothing,
/// loads no image, hides nothing and gives no command.
pub fn sanitize_markdown(text: &str, max: usize) -> String {
    let text = strip_invisible(text);
    let text = COMMENTS.replace_all(&text, "");
    let text = TAGS.replace_all(&text, format!("<{JOINER}$1"));
    let text = text.replace("![", &format!("!{JOINER}["));
    let text = MENTIONS.replace_all(&text, format!("@{JOINER}$1"));
    let text = REFERENCES.replace_all(&text, format!("#{JOINER}$1"));
    let text = CLOSERS.replace_all(&text, format!("$1{JOINER}$2$3$4"));
    let text = OURS.replace_all(&text, |found: &regex::Captures<'_>| {
        found[0].replace("gent-", &format!("gent{JOINER}-"))
    });
    truncate(text.trim(), max)
}

/// The text up to `max` bytes, at a character's boundary, with a mark when something is missing.
pub fn truncate(text: &str, max: usize) -> String {
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
    fn a_log_line_holds_no_control_sequences() {
        for (raw, shown) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{7}", "link"),
            ("\u{1b}]52;c;aGk=\u{1b}\\x", "x"),
            ("10%\r50%\r100%", "100%"),
            ("a\u{202e}b\u{200b}c\u{7}", "abc"),
            ("tab\tstays", "tab\tstays"),
        ] {
            assert_eq!(sanitize_log_line(raw), shown, "{raw:?}");
        }
        assert!(sanitize_log_line(&"ä".repeat(5000)).len() <= MAX_LOG_LINE);
    }

    #[test]
    fn published_text_mentions_closes_and_commands_nothing() {
        let raw = "Done @octocat. Fixes #12, closes: owner/repo#3, resolves ENG-4.\n\
                   ![x](http://evil/beacon.png) <img src=x> <!-- hidden -->\n\
                   /agent-implement do more <!-- agent-implement-meta {} -->";
        let shown = sanitize_markdown(raw, 10_000);
        for gone in [
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
            assert!(!shown.contains(gone), "{gone} in {shown}");
        }
        assert_eq!(
            sanitize_markdown("We fixed the login.", 100),
            "We fixed the login."
        );
    }
}

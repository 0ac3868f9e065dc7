//! Text in comments and pull requests: mentions, references, images, HTML, commands and markers.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::WORD_JOINER;
use super::invisible::strip_invisible;
use super::truncate::{truncate, truncate_chars};

/// Maximum length of plain text in a comment, in characters.
pub(super) const MAX_PLAIN_TEXT: usize = 4_000;

/// Syntax of an untrusted text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Plain,
    Markdown,
}

/// Escapes untrusted plain text for use in Markdown. The result contains no mention, image, HTML,
/// issue-closing reference, command or marker of the service. It is truncated to 4,000 characters.
pub fn plain_text(text: &str) -> String {
    let text = strip_invisible(text);
    defuse(&truncate_chars(text, MAX_PLAIN_TEXT, " […]"), Syntax::Plain)
}

/// Makes untrusted Markdown safe for a comment or the body of a pull request. Formatting is kept. The result
/// contains no mention, reference by number, closing keyword, image, HTML, command or marker of the service.
/// It is at most `max` bytes long; truncated text ends with `mark`.
pub fn markdown(text: &str, max: usize, mark: &str) -> String {
    let text = strip_invisible(text);
    let text = remove_html_comments(&text);
    let text = defuse(text.trim(), Syntax::Markdown);
    let text = CLOSING_KEYWORD.replace_all(&text, format!("${{keyword}}{WORD_JOINER}$rest"));
    let text = SERVICE_NAME.replace_all(&text, format!("$1{WORD_JOINER}$2"));
    truncate(text, max, mark).into_owned()
}

/// Keyword of GitHub or Linear that closes an issue, with the reference after it.
static CLOSING_KEYWORD: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?<keyword>clos|fix|resolv|complet|implement)(?<rest>(?:e|es|ed|s|ing)?\s*:?\s*\S*\d)",
    )
});

/// Name of the service in commands, markers and commit trailers.
static SERVICE_NAME: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)(agent)(-implement\b)"));

#[expect(clippy::unwrap_used, reason = "the patterns are constants and tested")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// Removes HTML comments, which a page does not show. An unclosed one stays as text.
fn remove_html_comments(text: &str) -> Cow<'_, str> {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--")
        && let Some((_, after)) = after.split_once("-->")
    {
        kept.push_str(before);
        // Without a space, the text around the comment could form another one.
        kept.push(' ');
        rest = after;
    }
    if kept.is_empty() {
        return Cow::Borrowed(text);
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// Inserts a word joiner wherever a character would have a meaning beyond text.
fn defuse(text: &str, syntax: Syntax) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut is_line_start = true;
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        if is_line_start && has_meaning_at_line_start(c, rest, syntax) {
            safe.push(WORD_JOINER);
        }
        match (c, syntax) {
            ('<', Syntax::Plain) => safe.push_str("&lt;"),
            _ => safe.push(c),
        }
        if has_meaning(c, rest.chars().next(), syntax) {
            safe.push(WORD_JOINER);
        }
        is_line_start = c == '\n' || (is_line_start && c.is_whitespace());
    }
    safe
}

/// Returns whether a character begins a command, or a section that Linear shows collapsed (`+++`).
fn has_meaning_at_line_start(c: char, rest: &str, syntax: Syntax) -> bool {
    match (c, syntax) {
        ('/', _) | ('+', Syntax::Plain) => true,
        ('+', Syntax::Markdown) => rest.starts_with("++"),
        _ => false,
    }
}

/// Returns whether a character begins a mention, a reference by number, an image or HTML.
fn has_meaning(c: char, next: Option<char>, syntax: Syntax) -> bool {
    if syntax == Syntax::Plain {
        return matches!(c, '@' | '#' | '!');
    }
    next.is_some_and(|next| match c {
        '<' => next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?'),
        '@' => next.is_alphanumeric() || next == '_',
        '#' => next.is_ascii_digit(),
        '!' => next == '[',
        _ => false,
    })
}

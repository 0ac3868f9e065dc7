//! Characters and terminal escape sequences that a person does not see.

use std::borrow::Cow;

use icu_properties::CodePointSetData;
use icu_properties::props::DefaultIgnorableCodePoint;

/// Start of a terminal escape sequence.
const ESCAPE: char = '\u{1b}';

/// Returns whether a character is visible or a space. Line breaks and tabs are control characters and count
/// as invisible.
pub fn is_visible(c: char) -> bool {
    match c {
        ' '..='~' => true,
        // Annotation marks hide the text between them. Unicode does not call them ignorable.
        '\u{fff9}'..='\u{fffb}' => false,
        // Bidirectional controls, zero-width characters, variation selectors and tags are ignorable.
        c => !c.is_control() && !CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c),
    }
}

/// Removes invisible characters and terminal escape sequences. Keeps line breaks (`\n`) and tabs.
pub fn strip_invisible(text: &str) -> Cow<'_, str> {
    strip_unless(text, |c| is_visible(c) || matches!(c, '\n' | '\t'))
}

/// Replaces each invisible character by its escape, such as `\u{202e}`. Keeps line breaks (`\n`, `\r\n`) and tabs.
///
/// For code that somebody judges: a shell executes what a terminal hides between escape sequences.
pub fn reveal_invisible(text: &str) -> Cow<'_, str> {
    let is_kept = |c: char| is_visible(c) || matches!(c, '\n' | '\t');
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut revealed = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if is_kept(c) || (c == '\r' && rest.peek() == Some(&'\n')) {
            revealed.push(c);
        } else {
            revealed.extend(c.escape_unicode());
        }
    }
    Cow::Owned(revealed)
}

/// Puts a text on one line: invisible characters are removed and each run of white space becomes one space.
pub fn single_line(text: &str) -> Cow<'_, str> {
    let text = strip_unless(text, |c| is_visible(c) || c.is_whitespace());
    let mut previous = ' ';
    let is_single = text.chars().all(|c| {
        let is_kept = !c.is_whitespace() || (c == ' ' && previous != ' ');
        previous = c;
        is_kept
    });
    match is_single && !text.ends_with(' ') {
        true => text,
        false => Cow::Owned(text.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

/// Removes every character that is not kept, with the whole escape sequence that it begins.
pub(super) fn strip_unless(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c| !is_kept(c)) {
        let (visible, hidden) = rest.split_at(at);
        kept.reserve(rest.len());
        kept.push_str(visible);
        rest = &hidden[hidden_len(hidden)..];
    }
    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// Returns the length of the first character, or of the escape sequence that it begins (ECMA-48).
///
/// The parameters of a sequence belong to it only if it is complete on its line. Otherwise one character
/// could hide everything after it.
fn hidden_len(text: &str) -> usize {
    let first = text.chars().next().map_or(0, char::len_utf8);
    let rest = &text.as_bytes()[first..];
    let (introducer, length) = match (text.chars().next(), rest.first()) {
        (Some(ESCAPE), Some(b'[')) => (first + 1, control_sequence_len(&rest[1..])),
        (Some('\u{9b}'), _) => (first, control_sequence_len(rest)),
        (Some(ESCAPE), Some(b']' | b'P' | b'X' | b'^' | b'_')) => {
            (first + 1, string_len(&text[first + 1..]))
        }
        (Some('\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}'), _) => (first, string_len(&text[first..])),
        (Some(ESCAPE), _) => (first, sequence_len(rest, b'0')),
        _ => (first, None),
    };
    introducer + length.unwrap_or_default()
}

/// Returns the length of the parameters of a control sequence, such as a color, with its final byte.
fn control_sequence_len(bytes: &[u8]) -> Option<usize> {
    let parameters = count(bytes, b'0'..=b'?');
    Some(parameters + sequence_len(&bytes[parameters..], b'@')?)
}

/// Returns the length of the intermediate bytes and the final byte, which is at least `min_final`.
fn sequence_len(bytes: &[u8], min_final: u8) -> Option<usize> {
    let intermediates = count(bytes, b' '..=b'/');
    let last = bytes.get(intermediates)?;
    (min_final..=b'~')
        .contains(last)
        .then_some(intermediates + 1)
}

/// Returns the length of a control string, such as a link or a title, with its terminator.
fn string_len(text: &str) -> Option<usize> {
    let end = text.find(char::is_control)?;
    let terminators = ["\u{7}", "\u{1b}\\", "\u{9c}"];
    let terminator = terminators
        .iter()
        .find(|mark| text[end..].starts_with(**mark))?;
    Some(end + terminator.len())
}

fn count(bytes: &[u8], range: std::ops::RangeInclusive<u8>) -> usize {
    bytes.iter().take_while(|byte| range.contains(byte)).count()
}

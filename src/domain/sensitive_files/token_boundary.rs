//! Token boundaries: a token must not be part of a longer word.

use std::ops::Range;

use super::rules::RuleKind;

/// Returns whether a token is a separate word and not part of a longer one, such as an encoded image.
pub(super) fn is_whole_token(
    kind: RuleKind,
    keyword: &[u8],
    text: &[u8],
    range: &Range<usize>,
) -> bool {
    let next = text.get(range.end).copied().unwrap_or(b' ');
    kind == RuleKind::PrivateKey
        || (is_token_start(kind, keyword, text, range.start) && !joins(keyword, next))
}

/// Returns whether a byte next to a token continues the same word. After a keyword of letters only, `+` and
/// `-` also continue it, because such a keyword occurs by chance in encoded data.
fn joins(keyword: &[u8], byte: u8) -> bool {
    is_word(byte) || (!has_symbol(keyword) && b"+-".contains(&byte))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns whether a keyword contains a character other than a letter or a digit.
fn has_symbol(keyword: &[u8]) -> bool {
    keyword.iter().any(|byte| !byte.is_ascii_alphanumeric())
}

/// Returns whether a token can start at this position.
pub(super) fn is_token_start(kind: RuleKind, keyword: &[u8], text: &[u8], start: usize) -> bool {
    let before = &text[..start];
    let previous = before.last().copied().unwrap_or(b' ');
    let is_in_path = previous == b'/' && !before.ends_with(b"://");
    let is_jwt = kind == RuleKind::Jwt && previous == b'.';
    let starts_with_symbol = !is_word(text[start]);
    let is_separate = (starts_with_symbol || !joins(keyword, previous))
        && (has_symbol(keyword) || !is_in_path)
        && !is_jwt;
    kind == RuleKind::PrivateKey || is_separate || ends_in_escape(before)
}

/// Returns whether the text ends with an escape such as `\n`, `\t`, `\u0022` or `%3D`. Its last letter is not
/// part of a word.
fn ends_in_escape(before: &[u8]) -> bool {
    match before {
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'%', one, two] => [one, two].iter().all(|byte| byte.is_ascii_hexdigit()),
        [.., b'\\', b'u', _, _, _, _] => true,
        _ => false,
    }
}

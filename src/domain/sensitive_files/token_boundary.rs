//! Where a token begins and ends: a piece of a longer word is none.

use std::ops::Range;

use super::rules::RuleKind;

/// Whether a token is a word of its own, and not a piece of a longer one such as an encoded image.
pub(super) fn is_whole_token(
    kind: RuleKind,
    keyword: &[u8],
    text: &[u8],
    place: &Range<usize>,
) -> bool {
    let next = text.get(place.end).copied().unwrap_or(b' ');
    kind == RuleKind::PrivateKey
        || (is_token_start(kind, keyword, text, place.start) && !joins(keyword, next))
}

/// Whether a byte beside a token makes one word with it. A keyword of letters alone may come by chance
/// where something is encoded.
fn joins(keyword: &[u8], byte: u8) -> bool {
    is_word(byte) || (!is_telling(keyword) && b"+-".contains(&byte))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_telling(keyword: &[u8]) -> bool {
    keyword.iter().any(|byte| !byte.is_ascii_alphanumeric())
}

/// Whether a word begins at a place.
pub(super) fn is_token_start(kind: RuleKind, keyword: &[u8], text: &[u8], start: usize) -> bool {
    let before = &text[..start];
    let previous = before.last().copied().unwrap_or(b' ');
    let is_in_path = previous == b'/' && !before.ends_with(b"://");
    let is_jwt = kind == RuleKind::Jwt && previous == b'.';
    let is_open = !is_word(text[start]);
    let is_apart =
        (is_open || !joins(keyword, previous)) && (is_telling(keyword) || !is_in_path) && !is_jwt;
    kind == RuleKind::PrivateKey || is_apart || ends_in_escape(before)
}

/// `\n`, `\t`, `\u0022` or `%3D`: the last letter belongs to what is before.
fn ends_in_escape(before: &[u8]) -> bool {
    match before {
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'%', one, two] => [one, two].iter().all(|byte| byte.is_ascii_hexdigit()),
        [.., b'\\', b'u', _, _, _, _] => true,
        _ => false,
    }
}

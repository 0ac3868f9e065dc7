//! Addresses in Markdown: which may become links, and where they end.

/// How far may the text of a link reach, in bytes?
const MAX_LINK_TEXT: usize = 2_000;

/// Longest address that becomes a link, in bytes.
pub(super) const MAX_ADDRESS: usize = 2_000;

/// The words and the address of a link whose bracket has just been opened, and how long it is.
pub(super) fn link_at(text: &str) -> Option<(&str, &str, usize)> {
    let window = &text[..floor(text, MAX_LINK_TEXT)];
    let mut depth = 0;
    let mut close = None;
    for (at, character) in window.char_indices() {
        match character {
            '[' => depth += 1,
            ']' if depth == 0 => {
                close = Some(at);
                break;
            }
            ']' => depth -= 1,
            _ => {}
        }
    }
    let close = close?;
    let target = text[close + 1..].strip_prefix('(')?;
    let target = &target[..floor(target, MAX_ADDRESS)];
    let mut depth = 0;
    let end = target
        .char_indices()
        .find_map(|(at, character)| match character {
            '(' => {
                depth += 1;
                None
            }
            ')' if depth == 0 => Some(at),
            ')' => {
                depth -= 1;
                None
            }
            _ => None,
        })?;
    let href = target[..end].split_whitespace().next()?;
    let href = href.trim_start_matches('<').trim_end_matches('>');
    is_address(href).then_some((&text[..close], href, close + 2 + end + 1))
}

pub(super) fn is_address(text: &str) -> bool {
    let after = ["http://", "https://", "mailto:"]
        .into_iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    after.is_some_and(|rest| !rest.is_empty())
        && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\u{2060}')
}

/// The last boundary between characters within `most` bytes.
pub(super) fn floor(text: &str, most: usize) -> usize {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

//! Addresses in Markdown: which may become links, and where they end.

use std::collections::HashMap;

/// Longest text of a link, in bytes.
const MAX_LINK_TEXT: usize = 2_000;

/// Longest address that becomes a link, in bytes.
pub(super) const MAX_URL_BYTES: usize = 2_000;

/// Where the brackets and parentheses of a text are closed. Found once for a text: one bracket after
/// the other would read the same words again and again.
pub(super) struct BracketPairs(HashMap<usize, usize>);

impl BracketPairs {
    pub(super) fn scan(text: &str) -> Self {
        let mut pairs = HashMap::new();
        let (mut brackets, mut parentheses) = (Vec::new(), Vec::new());
        for (at, byte) in text.bytes().enumerate() {
            let closed = match byte {
                b'[' => {
                    brackets.push(at);
                    None
                }
                b'(' => {
                    parentheses.push(at);
                    None
                }
                b']' => brackets.pop(),
                b')' => parentheses.pop(),
                _ => None,
            };
            pairs.extend(closed.map(|open| (open, at)));
        }
        Self(pairs)
    }

    /// What stands between the mark at a place and the one that closes it, and where that is.
    fn inside<'a>(&self, text: &'a str, open: usize) -> Option<(&'a str, usize)> {
        let close = *self.0.get(&open)?;
        Some((&text[open + 1..close], close))
    }
}

/// The words and the address of a link whose bracket opens at a place, and where it ends.
pub(super) fn parse_link<'a>(
    text: &'a str,
    open: usize,
    pairs: &BracketPairs,
) -> Option<(&'a str, &'a str, usize)> {
    let (words, close) = pairs.inside(text, open)?;
    let follows = text[close + 1..].starts_with('(');
    let (target, end) = pairs.inside(text, close + 1).filter(|_| follows)?;
    if words.len() > MAX_LINK_TEXT || target.len() > MAX_URL_BYTES {
        return None;
    }
    let href = target.split_whitespace().next()?;
    let href = href.trim_start_matches('<').trim_end_matches('>');
    is_url(href).then_some((words, href, end + 1))
}

pub(super) fn is_url(text: &str) -> bool {
    let after = ["http://", "https://", "mailto:"]
        .into_iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    after.is_some_and(|rest| !rest.is_empty())
        && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\u{2060}')
}

/// The last boundary between characters within `most` bytes.
pub(super) fn floor_char_boundary(text: &str, most: usize) -> usize {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

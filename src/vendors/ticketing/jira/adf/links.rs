//! Parser for links in Markdown, and the check of their addresses.

use std::collections::HashMap;

/// Maximum length of a link's text, in bytes.
const MAX_LINK_TEXT: usize = 2_000;

/// Maximum length of a link's address, in bytes.
pub(super) const MAX_URL_BYTES: usize = 2_000;

/// Positions of the closing brackets and parentheses by their opening positions. Computed once per text,
/// because a search for each bracket would take quadratic time.
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

    /// Returns the text between the bracket at `open` and its closing bracket, and the latter's position.
    fn inside<'a>(&self, text: &'a str, open: usize) -> Option<(&'a str, usize)> {
        let close = *self.0.get(&open)?;
        Some((&text[open + 1..close], close))
    }
}

/// Parses the link whose bracket opens at `open`. Returns its text, its address and its end.
pub(super) fn parse_link<'a>(
    text: &'a str,
    open: usize,
    pairs: &BracketPairs,
) -> Option<(&'a str, &'a str, usize)> {
    let (label, close) = pairs.inside(text, open)?;
    let follows = text[close + 1..].starts_with('(');
    let (target, end) = pairs.inside(text, close + 1).filter(|_| follows)?;
    if label.len() > MAX_LINK_TEXT || target.len() > MAX_URL_BYTES {
        return None;
    }
    let href = target.split_whitespace().next()?;
    let href = href.trim_start_matches('<').trim_end_matches('>');
    is_url(href).then_some((label, href, end + 1))
}

pub(super) fn is_url(text: &str) -> bool {
    let after = ["http://", "https://", "mailto:"]
        .into_iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    after.is_some_and(|rest| !rest.is_empty())
        && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\u{2060}')
}

/// Returns the last character boundary within the first `max_bytes` bytes.
pub(super) fn floor_char_boundary(text: &str, max_bytes: usize) -> usize {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

//! Addresses of links: which are permitted, and where one stands in a text without markup.

use std::ops::Range;

use domain::sanitize::is_visible;

/// Maximum length of a link's address, in bytes.
const MAX_URL_BYTES: usize = 2_000;

/// Returns whether a link to this address is permitted.
pub(super) fn is_url(text: &str) -> bool {
    let after = ["http://", "https://", "mailto:"]
        .into_iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    text.len() <= MAX_URL_BYTES
        && after.is_some_and(|rest| !rest.is_empty())
        && !text.contains(|c: char| c.is_whitespace() || !is_visible(c))
}

/// Returns the first address that begins in a part of the text and ends before `limit`.
pub(super) fn find_bare_url(text: &str, part: Range<usize>, limit: usize) -> Option<Range<usize>> {
    let starts = text[part.clone()].match_indices("http");
    starts
        .map(|(at, _)| part.start + at)
        .filter(|at| !text[..*at].ends_with(char::is_alphanumeric))
        .find_map(|at| Some(at..at + bare_url(&text[at..limit])?.len()))
}

/// Returns the address at the start of a text, without the punctuation of the sentence around it.
fn bare_url(text: &str) -> Option<&str> {
    if !text.starts_with("http://") && !text.starts_with("https://") {
        return None;
    }
    let ends = |c: char| c.is_whitespace() || !is_visible(c) || "<>\"`*[]".contains(c);
    let window = &text[..text.floor_char_boundary(MAX_URL_BYTES)];
    let mut url = &window[..window.find(ends).unwrap_or(window.len())];
    url = url.trim_end_matches(['.', ',', ';', ':', '!', '?', '\'']);
    if url.ends_with(')') && !url.contains('(') {
        url = url.trim_end_matches(')');
    }
    is_url(url).then_some(url)
}

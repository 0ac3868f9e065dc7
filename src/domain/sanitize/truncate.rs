//! Truncation at a character boundary, with a visible mark.

use std::borrow::Cow;

/// Mark of a text that was truncated, where a sentence would not fit.
pub const ELLIPSIS: &str = "…";

/// Truncates a text to at most `max` bytes. Truncated text ends with `mark`, if the mark fits.
pub fn truncate<'t>(text: impl Into<Cow<'t, str>>, max: usize, mark: &str) -> Cow<'t, str> {
    let text = text.into();
    if text.len() <= max {
        return text;
    }
    let mark = if mark.len() <= max { mark } else { "" };
    let end = text.floor_char_boundary(max - mark.len());
    Cow::Owned(format!("{}{mark}", &text[..end]))
}

/// Truncates a text to at most `max` characters. Truncated text ends with `mark`, if the mark fits.
pub fn truncate_chars<'t>(text: impl Into<Cow<'t, str>>, max: usize, mark: &str) -> Cow<'t, str> {
    let text = text.into();
    if text.len() <= max || text.char_indices().nth(max).is_none() {
        return text;
    }
    let length = mark.chars().count();
    let (mark, kept) = match max.checked_sub(length) {
        Some(kept) => (mark, kept),
        None => ("", max),
    };
    let end = text
        .char_indices()
        .nth(kept)
        .map_or(text.len(), |(at, _)| at);
    Cow::Owned(format!("{}{mark}", &text[..end]))
}

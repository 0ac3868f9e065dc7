//! Text of chat messages: no mention, link or formatting.

use serde_json::Value;

use super::invisible::strip_invisible;
use super::truncate::ELLIPSIS;

/// Escapes a text for Slack's `mrkdwn`, where only `&`, `<` and `>` can begin a mention (`<!channel>`, `<@U1>`)
/// or a link. It is truncated to `max` characters, never within an escape.
///
/// Source: "Formatting message text" in Slack's documentation.
pub fn slack_text(text: &str, max: usize) -> String {
    fit(text, max.saturating_sub(1), |c, piece| {
        match c {
            '&' => piece.push_str("&amp;"),
            '<' => piece.push_str("&lt;"),
            '>' => piece.push_str("&gt;"),
            c => piece.push(c),
        }
        piece.chars().count()
    })
}

/// Escapes a text for the Markdown subset of Adaptive Cards and truncates it to `max` bytes of JSON. A card
/// mentions only the people in its list of entities, which the service does not send.
///
/// Source: "Markdown support" in the documentation of Adaptive Cards.
pub fn teams_text(text: &str, max: usize) -> String {
    /// Space for the quotes and the ellipsis.
    const RESERVED: usize = 8;
    fit(text, max.saturating_sub(RESERVED), |c, piece| {
        if matches!(c, '*' | '_' | '[' | ']' | '\\') {
            piece.push('\\');
        }
        piece.push(c);
        Value::from(piece.as_str()).to_string().len() - 2
    })
}

/// Joins the pieces of all visible characters while their sizes fit, then an ellipsis. `escape` writes the piece
/// of a character and returns its size.
fn fit(text: &str, max: usize, escape: impl Fn(char, &mut String) -> usize) -> String {
    let text = strip_invisible(text);
    let mut fitted = String::with_capacity(text.len().min(max));
    let mut piece = String::new();
    let mut used = 0;
    for c in text.chars() {
        piece.clear();
        used += escape(c, &mut piece);
        if used > max {
            fitted.push_str(ELLIPSIS);
            break;
        }
        fitted.push_str(&piece);
    }
    fitted
}

//! Removal of what a browser does not need from the panel's scripts and style sheets.
//!
//! Tests of the panel compare the syntax trees of all scripts, and the rules of all style sheets, before and after.

mod script;
mod style;

pub(crate) use script::compact_script;
pub(crate) use style::compact_styles;

/// Length of the string at the start of `text`, with its quotes. `None` if it does not end in its line.
fn string_length(text: &str, quote: u8) -> Option<usize> {
    let end = end_of_literal(text, |byte| byte == quote)?;
    Some(end + 1)
}

/// Position of the first byte after the one at 0 that is an end, is not escaped, and is in the same line.
fn end_of_literal(text: &str, mut is_end: impl FnMut(u8) -> bool) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'\n' | b'\r' => return None,
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            _ if is_end(byte) => return Some(at),
            _ => {}
        }
    }
    None
}

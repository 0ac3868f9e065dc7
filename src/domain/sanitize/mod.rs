//! Sanitizers: untrusted text of tickets, people, models and programs, made safe for an output.
//!
//! Every output uses these functions, so that one place decides which characters are invisible, what a
//! mention is, and how a text is truncated. They do not redact secrets. Redact before a text is truncated,
//! because a truncated secret is not recognized, and again if characters were stripped, because that can join
//! the halves of a secret.
//!
//! | Output | Function |
//! |---|---|
//! | Comments with formatting, bodies of pull requests | [`markdown()`] |
//! | Failure reasons and other plain text in comments | [`plain_text`] |
//! | Slack, Teams | [`slack_text`], [`teams_text`] |
//! | Lines of program output, the last lines of a log | [`log_line`], [`log_tail`], with colors [`styled_log_line`] |
//! | The service's own log | [`strip_invisible`], on a terminal [`styled_log_event`] |
//! | Terminal, titles, audit entries, one-line excerpts | [`single_line`] |
//! | Prompts, panel, API, text blocks of other documents | [`strip_invisible`] |
//! | Changes that a review judges | [`reveal_invisible`] |
//! | Strings of a JSON document | [`map_strings`] with one of the above |
//!
//! Emoji sequences and joiners: the zero-width joiner and non-joiner and the variation selectors are
//! stripped too. They could split a secret, a command or a name, and carry hidden data. The text stays
//! readable: a family emoji becomes its members, and joined Persian or Indic letters take another form.

mod chat;
mod invisible;
mod json;
mod log;
mod markdown;
mod truncate;

#[cfg(test)]
mod tests;

pub use chat::{slack_text, teams_text};
pub use invisible::{is_visible, reveal_invisible, single_line, strip_invisible};
pub use json::map_strings;
pub use log::{
    MAX_LINE_BYTES, MAX_TAIL_BYTES, log_line, log_tail, styled_log_event, styled_log_line,
};
pub use markdown::{markdown, plain_text};
pub use truncate::{ELLIPSIS, truncate, truncate_chars};

/// Invisible character. Inserted into a mention or command, it turns the mention or command into plain
/// text.
pub(crate) const WORD_JOINER: char = '\u{2060}';

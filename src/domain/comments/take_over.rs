//! Comments about issues that a person has taken over.

use crate::sanitize;
use crate::ticket_command::COMMAND_PREFIX;

/// Returns the comment on a pull request that a person has taken over.
pub fn taken_over(by: &str) -> String {
    format!(
        "{} continues by hand. Automatic work on this pull request pauses until give-back. A comment \
         `{COMMAND_PREFIX}` still starts a run.",
        sanitize::plain_text(by)
    )
}

/// Returns the comment on a pull request that was given back.
pub fn given_back(by: &str) -> String {
    format!(
        "Given back by {}. Automatic work on this pull request goes on.",
        sanitize::plain_text(by)
    )
}

/// Returns the comment on a ticket without an open pull request that a person has taken over.
pub fn ticket_taken_over(by: &str) -> String {
    format!(
        "{} continues by hand. No run starts until give-back.",
        sanitize::plain_text(by)
    )
}

/// Returns the comment on a ticket without an open pull request that was given back.
pub fn ticket_given_back(by: &str) -> String {
    format!(
        "Given back by {}. Runs start again.",
        sanitize::plain_text(by)
    )
}

//! Take-over: a person continues the work on an issue by hand.
//!
//! Until it is given back, no run of the issue starts, and nothing automatic happens on its pull request:
//! [`check_automatic_work`]. Commands of people still work. See docs/operate.md#take-over.

use serde::{Deserialize, Serialize};

use super::issue::IssueRef;
use super::sanitize;
use super::time::Timestamp;

/// Maximum length of a person's name, in characters.
const MAX_NAME: usize = 60;

/// Issue that a person has taken over, with its pull request if there is one.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TakeOver {
    /// Issue.
    pub issue: IssueRef,
    /// Name of the person, as people read it.
    pub by: String,
    /// Time.
    pub at: Timestamp,
}

impl TakeOver {
    /// Returns the sentence about the state, without a full stop.
    pub fn sentence(&self) -> String {
        format!("Taken over by {} since {}", self.by, self.at.date_text())
    }
}

/// Returns a person's name on one line, truncated to 60 characters. `None` if nothing of it is visible.
pub fn person_name(text: &str) -> Option<String> {
    let line = sanitize::single_line(text);
    let name = sanitize::truncate_chars(line.trim(), MAX_NAME, sanitize::ELLIPSIS);
    Some(name.into_owned()).filter(|name| !name.is_empty())
}

/// Checks whether something may happen on the pull request of an issue without a command of a person: follow-ups,
/// runs for red checks or conflicts, updates of the branch, merges.
///
/// # Errors
/// The sentence that names who has taken over the issue.
pub fn check_automatic_work(take_over: Option<&TakeOver>) -> Result<(), String> {
    match take_over {
        Some(take_over) => Err(take_over.sentence()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_on_one_line() {
        for (text, name) in [
            (" Kim Doe ", Some("Kim Doe")),
            ("Kim\nDoe\u{202e}\u{1b}[31m", Some("Kim Doe")),
            ("\u{200b}\n", None),
            ("", None),
        ] {
            assert_eq!(person_name(text).as_deref(), name, "{text:?}");
        }
        assert_eq!(person_name(&"é".repeat(200)).unwrap().chars().count(), 60);
    }
}

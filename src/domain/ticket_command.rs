//! Commands in comments on tickets: `/agent-implement status`.

use super::limits::MAX_INSTRUCTION_BYTES;
use super::sanitize;

/// Start of a comment that is a command.
pub const COMMAND_PREFIX: &str = "/agent-implement";

/// Command in a comment on a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketCommand {
    /// Reports where the ticket stands.
    Status,
    /// Cancels the active run.
    Cancel,
    /// Runs the work again.
    Retry,
    /// Approves the plan.
    Approve,
    /// Rejects the plan.
    Reject,
    /// Plans again, with this instruction.
    Replan(String),
    /// No known command. It is answered with a list of commands.
    Unknown,
}

impl TicketCommand {
    /// Parses a comment. `None` if it does not begin with a command, or if the command is sanitized text of a run.
    pub fn parse(body: &str) -> Option<Self> {
        let is_skipped =
            |c: char| c.is_whitespace() || (!sanitize::is_visible(c) && c != sanitize::WORD_JOINER);
        let rest = body
            .trim_start_matches(is_skipped)
            .strip_prefix(COMMAND_PREFIX)?;
        let rest = sanitize::strip_invisible(rest);
        if rest.starts_with(|c: char| !c.is_whitespace()) {
            return None;
        }
        let rest = rest.trim();
        let (word, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let command = match word
            .trim_end_matches(['.', '!', ',', ':'])
            .to_lowercase()
            .as_str()
        {
            "status" => Self::Status,
            "cancel" => Self::Cancel,
            "retry" => Self::Retry,
            "approve" => Self::Approve,
            "reject" => Self::Reject,
            "replan" => {
                let words =
                    sanitize::truncate(words.trim(), MAX_INSTRUCTION_BYTES, sanitize::ELLIPSIS);
                return Some(Self::Replan(words.into_owned()));
            }
            _ => Self::Unknown,
        };
        // Words after a command may change its meaning, as in `approve if CI is green`.
        Some(if words.trim().is_empty() {
            command
        } else {
            Self::Unknown
        })
    }

    /// Returns whether the command approves, rejects or replaces a plan.
    pub fn decides_on_plan(&self) -> bool {
        matches!(self, Self::Approve | Self::Reject | Self::Replan(_))
    }

    /// Returns the name in the audit.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Replan(_) => "replan",
            Self::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_begins_its_comment() {
        let rows = [
            ("/agent-implement status", Some(TicketCommand::Status)),
            (" \n/agent-implement  Cancel!", Some(TicketCommand::Cancel)),
            ("/agent-implement\u{200b} retry", Some(TicketCommand::Retry)),
            ("/agent-implement\napprove", Some(TicketCommand::Approve)),
            (
                "\u{feff}/agent-implement status",
                Some(TicketCommand::Status),
            ),
            (
                "/agent-implement approve if CI is green",
                Some(TicketCommand::Unknown),
            ),
            ("/agent-implement reject", Some(TicketCommand::Reject)),
            ("/agent-implement", Some(TicketCommand::Unknown)),
            ("/agent-implement dance", Some(TicketCommand::Unknown)),
            (
                "/agent-implement replan use\nsqlite",
                Some(TicketCommand::Replan("use\nsqlite".into())),
            ),
            (
                "/agent-implement replan",
                Some(TicketCommand::Replan(String::new())),
            ),
            ("/agent-implementation", None),
            ("please /agent-implement approve", None),
            ("> /agent-implement approve", None),
            ("/Agent-Implement approve", None),
            ("\u{2060}/agent-implement approve", None),
            ("/agent\u{2060}-implement approve", None),
            ("", None),
        ];
        for (body, expected) in rows {
            assert_eq!(TicketCommand::parse(body), expected, "{body}");
        }
    }
}

//! What people say about a pull request of ours, and what of it asks for more work.
//!
//! [`judge`] looks at one remark by itself: who said it in which way, and how its text is built. Who
//! its author is to the repository is asked elsewhere. A verdict, a mark, a heading, a list of things
//! to do are signs; words alone are none, because "not blocking" holds one, too. (facts of the hosts)

mod ledger;
mod reading;

use serde::{Deserialize, Serialize};

use super::ids::{IssueId, JobId, Repo};
use super::time::Timestamp;

pub use ledger::{
    Command, CommandState, Finding, FindingState, Pace, PullRow, PullStanding, Turn, told, turn,
};
pub use reading::{command, is_marked_blocking};

/// A pull request by its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PullId {
    pub repo: Repo,
    pub number: u64,
}

/// Where a remark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The text of a review as a whole.
    Review,
    /// At a line.
    ReviewComment,
    /// In the conversation of the pull request.
    IssueComment,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Review => "review",
            Source::ReviewComment => "review-comment",
            Source::IssueComment => "issue-comment",
        }
    }
}

/// Who said it. The accounts of Apps are no persons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Author {
    Person {
        login: String,
    },
    /// By the App's name in addresses.
    App {
        slug: String,
    },
}

impl Author {
    /// Reads an account as the host shows it; only its REST interface marks the logins of Apps.
    pub fn of(login: &str, is_bot: bool) -> Self {
        match login.strip_suffix("[bot]") {
            Some(slug) => Author::App { slug: slug.into() },
            None if is_bot => Author::App { slug: login.into() },
            None => Author::Person {
                login: login.into(),
            },
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Author::Person { login } => login,
            Author::App { slug } => slug,
        }
    }
}

/// What a review decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    ChangesRequested,
    Commented,
    Approved,
    Dismissed,
}

impl Verdict {
    /// Reads the host's word in either of its spellings; none for a review that is not given yet.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "changes_requested" => Verdict::ChangesRequested,
            "commented" => Verdict::Commented,
            "approved" => Verdict::Approved,
            "dismissed" => Verdict::Dismissed,
            _ => return None,
        })
    }
}

/// Something that was said about a pull request.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remark {
    pub source: Source,
    /// The host's number of it, unique among its kind.
    pub id: u64,
    pub author: Author,
    /// Of reviews alone.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    #[serde(default)]
    pub path: Option<String>,
    /// The line it was made at; the host moves lines with every push, this one stays.
    #[serde(default)]
    pub line: Option<u64>,
    pub body: String,
    #[serde(default)]
    pub created_at: Timestamp,
}

impl Remark {
    /// What the ledger knows it by, before hashing: the same words at the same place are the same
    /// feedback, however they are broken into lines. A review that says nothing is known by itself.
    pub fn ledger_text(&self) -> String {
        let folded: Vec<&str> = self.body.split_whitespace().collect();
        let body = match folded.is_empty() {
            true => format!("#{}", self.id),
            false => folded.join(" "),
        };
        let line = self.line.map(|line| line.to_string()).unwrap_or_default();
        let path = self.path.as_deref().unwrap_or_default();
        format!("{}\n{path}\n{line}\n{body}", self.source.as_str())
    }
}

/// What a remark asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// A run, with this instruction.
    Command(Option<String>),
    /// That something be changed.
    Asks,
    Nothing(Why),
}

/// Why a remark asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    OwnWords,
    Nit,
    Praise,
    Empty,
    Verdict,
    NotActionable,
}

impl Why {
    pub fn as_str(self) -> &'static str {
        match self {
            Why::OwnWords => "our own words",
            Why::Nit => "optional",
            Why::Praise => "praise",
            Why::Empty => "empty",
            Why::Verdict => "does not request changes",
            Why::NotActionable => "nothing actionable",
        }
    }
}

/// Judges a remark by itself.
pub fn judge(remark: &Remark) -> Judged {
    let body = remark.body.as_str();
    if reading::is_ours(body) {
        return Judged::Nothing(Why::OwnWords);
    }
    if remark.verdict == Some(Verdict::ChangesRequested) {
        return Judged::Asks;
    }
    let asks = match (&remark.author, remark.source) {
        (_, Source::Review) if remark.verdict != Some(Verdict::Commented) => {
            return Judged::Nothing(Why::Verdict);
        }
        (Author::Person { .. }, Source::IssueComment) if command(body).is_some() => {
            return Judged::Command(command(body).filter(|text| !text.is_empty()));
        }
        _ if body.trim().is_empty() => return Judged::Nothing(Why::Empty),
        // A program says how grave it finds what it says; without a mark it is not.
        (Author::App { .. }, _) => is_marked_blocking(body),
        (Author::Person { .. }, Source::ReviewComment) => match reading::waived(body) {
            Some(why) => return Judged::Nothing(why),
            None => true,
        },
        (Author::Person { .. }, Source::Review | Source::IssueComment) => {
            reading::is_actionable(body)
        }
    };
    if asks {
        Judged::Asks
    } else {
        Judged::Nothing(Why::NotActionable)
    }
}

/// The block by which we know a pull request of ours.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    pub issue_id: IssueId,
    pub job_id: JobId,
}

impl Meta {
    /// Finds it in the text of a pull request.
    pub fn of(body: &str) -> Option<Self> {
        let (_, block) = body.split_once("<!-- agent-implement-meta ")?;
        let (json, _) = block.split_once("-->")?;
        serde_json::from_str(json.trim()).ok()
    }
}

#[cfg(test)]
mod tests;

//! Approval of plans by people, or by a rule of the project. See docs/behaviour.md#plan-approval.
//!
//! An approval binds to a hash of what was approved: title, description and plan. If one of them has changed since
//! the plan was made, the approval is refused and the plan is made again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::crypto::sha256_hex;
use super::ids::{JobId, TeamKey};
use super::issue::IssueRef;
use super::path_globs;
use super::question::REMINDER_DELAY;
use super::time::Timestamp;

/// Whether plans of a project wait for an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlanApproval {
    /// The implementation follows the plan by itself.
    #[default]
    None,
    /// A person approves each plan.
    Required,
    /// Plans inside the bounds of [`PlanAutoApprove`] are approved by the rule, others by a person.
    Auto,
}

/// Bounds within which a plan needs no person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanAutoApprove {
    /// Maximum number of files that the plan declares.
    #[schemars(range(min = 1))]
    pub max_files: u32,
    /// Globs of files that need a person.
    #[serde(default)]
    #[schemars(length(max = 50), inner(length(min = 1, max = 255)))]
    pub forbid_paths: Vec<String>,
}

impl PlanAutoApprove {
    /// Returns whether the bounds are valid.
    pub fn is_valid(&self) -> bool {
        self.max_files > 0 && path_globs::are_valid(&self.forbid_paths)
    }

    /// Returns the reason why a plan that declares these files needs a person. `None` if the rule approves it.
    pub fn objection(&self, files: &[String]) -> Option<String> {
        if files.is_empty() {
            return Some("The plan declares no files.".to_owned());
        }
        if files.len() > self.max_files as usize {
            let (count, max) = (files.len(), self.max_files);
            return Some(format!(
                "The plan declares {count} files; at most {max} need no person."
            ));
        }
        let globs = path_globs::compile(&self.forbid_paths);
        let forbidden = files.iter().find(|file| {
            let is_outside = file.starts_with('/') || file.split('/').any(|part| part == "..");
            is_outside
                || globs
                    .as_ref()
                    .is_none_or(|globs| globs.is_match(file.as_str()))
        });
        forbidden.map(|file| format!("The plan changes {file}, which needs a person."))
    }
}

/// Maximum number of files of a plan that are read.
const MAX_FILES: usize = 1_000;

/// Returns the files that plan comments declare: list items in backticks under the heading `Files`, with
/// normalized paths, sorted.
pub fn declared_files(comments: &[String]) -> Vec<String> {
    let mut files = std::collections::BTreeSet::new();
    for comment in comments {
        let (mut is_in_section, mut is_in_fence) = (false, false);
        for line in comment.lines() {
            let line = line.trim();
            if line.starts_with("```") || line.starts_with("~~~") {
                is_in_fence = !is_in_fence;
            } else if is_in_fence {
                continue;
            } else if let Some(heading) = heading(line) {
                is_in_section = heading.eq_ignore_ascii_case("files");
            } else if is_in_section
                && let Some(file) = list_item(line).and_then(quoted_path)
                && files.len() < MAX_FILES
            {
                files.insert(file);
            }
        }
    }
    files.into_iter().collect()
}

/// Returns the text of a Markdown heading, or of a line that is bold as a whole.
fn heading(line: &str) -> Option<&str> {
    let text = match line.strip_prefix('#') {
        Some(rest) => rest
            .trim_start_matches('#')
            .strip_prefix(char::is_whitespace)?,
        None => line
            .strip_prefix("**")?
            .trim_end_matches(':')
            .strip_suffix("**")?,
    };
    Some(text.trim().trim_matches(['#', '*', ':']).trim())
}

fn list_item(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(['-', '*', '+']).or_else(|| {
        let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
        digits
            .strip_prefix(['.', ')'])
            .filter(|_| digits.len() < line.len())
    })?;
    rest.strip_prefix(char::is_whitespace)
}

/// Returns the first path in backticks, normalized.
fn quoted_path(item: &str) -> Option<String> {
    let (_, rest) = item.split_once('`')?;
    let (path, _) = rest.split_once('`')?;
    let path = path.trim();
    let (is_absolute, mut parts) = (path.starts_with('/'), Vec::new());
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    (!path.is_empty()).then(|| {
        if is_absolute {
            format!("/{path}")
        } else {
            path
        }
    })
}

/// Hashes of what an approval binds to.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PlanHashes {
    /// SHA-256 of the title, in hexadecimal.
    pub title: String,
    /// SHA-256 of the description.
    pub description: String,
    /// SHA-256 of the plan comments.
    pub plan: String,
}

impl PlanHashes {
    /// Returns the hashes of a ticket with its plan comments.
    pub fn new(title: &str, description: &str, plan: &[String]) -> Self {
        let normalized = |text: &str| sha256_hex(text.replace("\r\n", "\n").trim());
        let plan: Vec<String> = plan.iter().map(|comment| normalized(comment)).collect();
        Self {
            title: normalized(title),
            description: normalized(description),
            plan: sha256_hex(&plan.join("\n")),
        }
    }

    /// Returns one hash of all, as the audit names it: 16 hexadecimal digits.
    pub fn short(&self) -> String {
        let Self {
            title,
            description,
            plan,
        } = self;
        sha256_hex(&format!("{title}\n{description}\n{plan}"))[..16].to_owned()
    }

    /// Returns the names of what differs, such as `the title and the plan`; `None` if nothing does.
    pub fn changed_since(&self, earlier: &Self) -> Option<String> {
        let parts = [
            (self.title != earlier.title, "the title"),
            (self.description != earlier.description, "the description"),
            (self.plan != earlier.plan, "the plan"),
        ];
        let changed: Vec<&str> = parts
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, name)| *name)
            .collect();
        match &changed[..] {
            [] => None,
            [one] => Some((*one).to_owned()),
            [first @ .., last] => Some(format!("{} and {last}", first.join(", "))),
        }
    }
}

/// Plan of an issue that waits for an approval, or has one.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanGate {
    /// Issue that waits.
    pub issue: IssueRef,
    /// Key of the mapping.
    pub team: TeamKey,
    /// Job that made the plan.
    pub job: JobId,
    /// Time at which the plan was complete.
    pub planned_at: Timestamp,
    /// Hashes of title and description that the plan was made for, and of the plan as it stands on the ticket.
    /// `None` until the posted plan was read.
    #[serde(default)]
    pub hashes: Option<PlanHashes>,
    /// Hashes of title and description at the dispatch of the planning run.
    #[serde(default)]
    pub planned_for: Option<TicketHashes>,
    /// Time of the reminder on the ticket.
    #[serde(default)]
    pub reminded_at: Option<Timestamp>,
    /// Reason why the project's rule did not approve the plan.
    #[serde(default)]
    pub objection: Option<String>,
    /// Approval.
    #[serde(default)]
    pub approval: Option<Approval>,
    /// Whether a poll has found the trigger on the issue while it waited. From then on, its removal ends the wait.
    #[serde(default)]
    pub trigger_seen: bool,
    /// Time of the first of the latest polls that did not find the issue.
    #[serde(default)]
    pub absent_since: Option<Timestamp>,
}

/// Hashes of title and description of a ticket.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketHashes {
    /// SHA-256 of the title, in hexadecimal.
    pub title: String,
    /// SHA-256 of the description.
    pub description: String,
}

impl TicketHashes {
    /// Returns the hashes of a ticket.
    pub fn new(title: &str, description: &str) -> Self {
        let PlanHashes {
            title, description, ..
        } = PlanHashes::new(title, description, &[]);
        Self { title, description }
    }
}

/// Approval of a plan.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Name of the person; `auto` for the project's rule.
    pub by: String,
    /// Way of the approval.
    pub source: ApprovalSource,
    /// Time.
    pub at: Timestamp,
    /// Short hash of what was approved.
    pub hash: String,
}

/// Way of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalSource {
    /// Rule of the project.
    Auto,
    /// Marker on the ticket: the label, or the value of the status field.
    Marker,
    /// Command in a comment.
    Comment,
    /// An operator, by API, command line or panel.
    Operator,
}

impl ApprovalSource {
    /// Returns the name in the audit.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Marker => "marker",
            Self::Comment => "comment",
            Self::Operator => "operator",
        }
    }
}

impl PlanGate {
    /// Returns whether the plan waits for an approval.
    pub fn is_waiting(&self) -> bool {
        self.approval.is_none()
    }

    /// Returns whether the plan is approved for a project. Each project has its own approvers.
    pub fn is_approved_in(&self, team: &TeamKey) -> bool {
        !self.is_waiting() && self.team == *team
    }

    /// Returns whether people are to be reminded now.
    pub fn is_reminder_due(&self, now: Timestamp) -> bool {
        self.is_waiting()
            && self.reminded_at.is_none()
            && now.since(self.planned_at) >= REMINDER_DELAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Vec<String> {
        declared_files(&[text.to_owned()])
    }

    #[test]
    fn reads_files_from_lists_under_their_heading() {
        let plan = "# Plan\n- `not/this.rs`\n\n## Files\n- `src/cart.rs`: total\n* `./src//b.rs`\n1. `docs/x/../a.md` \
            and `second.md`\n- no quotes\n```\n- `in/a/fence`\n```\nText `not/a/list`\n## Tests\n- `tests/t.rs`";
        assert_eq!(files(plan), ["docs/a.md", "src/b.rs", "src/cart.rs"]);
        assert_eq!(files("**Files:**\n\n- `a.rs`"), ["a.rs"]);
        assert_eq!(
            files("**Files**\n- `../up` `x`\n- `/etc/passwd`\n- ` /etc/hosts`"),
            ["../up", "/etc/hosts", "/etc/passwd"]
        );
        assert_eq!(files("## Files touched\n- `a`"), [""; 0]);
        assert_eq!(files("## Files\n- ``\n- `a"), [""; 0]);
    }

    #[test]
    fn the_rule_approves_only_inside_its_bounds() {
        let rule = PlanAutoApprove {
            max_files: 2,
            forbid_paths: vec![
                "migrations/".into(),
                "**/*.lock".into(),
                "/Cargo.toml".into(),
            ],
        };
        assert!(rule.is_valid());
        let objects = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            rule.objection(&files).is_some()
        };
        assert!(!objects(&["src/a.rs", "src/migrations.rs"]));
        for files in [
            &[][..],
            &["a", "b", "c"],
            &["migrations/1.sql"],
            &["MIGRATIONS/1.sql"],
            &["x/y.lock"],
            &["y.lock"],
            &["Cargo.toml"],
            &["../elsewhere"],
            &["/etc/passwd"],
        ] {
            assert!(objects(files), "{files:?}");
        }
        for globs in [
            vec!["[".to_owned()],
            vec![" ".to_owned()],
            vec!["x".to_owned(); 51],
        ] {
            let rule = PlanAutoApprove {
                max_files: 1,
                forbid_paths: globs,
            };
            assert!(!rule.is_valid(), "{rule:?}");
        }
    }

    #[test]
    fn hashes_name_what_changed() {
        let plan = ["a".to_owned(), "b".to_owned()];
        let made = PlanHashes::new("t", "d\r\nx ", &plan);
        assert_eq!(
            PlanHashes::new("t", "d\nx", &plan).changed_since(&made),
            None
        );
        let changed = PlanHashes::new("T", "d", &plan[..1]).changed_since(&made);
        assert_eq!(
            changed.as_deref(),
            Some("the title, the description and the plan")
        );
        let moved = ["ab".to_owned(), String::new()];
        let changed = PlanHashes::new("t", "d\nx", &moved).changed_since(&made);
        assert_eq!(changed.as_deref(), Some("the plan"));
        assert_eq!(made.short().len(), 16);
        assert_eq!(TicketHashes::new("t", "d\nx").description, made.description);
    }
}

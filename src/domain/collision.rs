//! Collision forecast: issues of one repository that change the same files do not run side by side. See
//! docs/behaviour.md#collision-forecast.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{IssueId, IssueKey};
use crate::lock_files::is_lock_file;
use crate::mapping::Mapping;
use crate::path_globs;
use crate::repository_load::RepositoryLoad;
use crate::sanitize;

/// Whether issues that change the same files run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CollisionRule {
    /// The later one waits.
    #[default]
    Wait,
    /// They run side by side.
    Allow,
}

/// Maximum number of files of one issue or pull request that are compared.
pub const MAX_FILES: usize = 300;

/// Maximum length of a path that is compared, in bytes.
const MAX_PATH: usize = 400;

/// Returns the files that are compared: a bounded number of paths that can be shown as they are, without lock files.
pub fn comparable_files(files: impl IntoIterator<Item = String>) -> Vec<String> {
    let is_comparable = |file: &String| {
        let is_sized = !file.is_empty() && file.len() <= MAX_PATH;
        let is_visible =
            !file.contains(char::is_control) && sanitize::strip_invisible(file) == *file;
        is_sized && is_visible && !is_lock_file(file)
    };
    files
        .into_iter()
        .filter(is_comparable)
        .take(MAX_FILES)
        .collect()
}

/// Files of a repository that are about to change, each with who changes it first.
#[derive(Debug, Default)]
pub struct ClaimedFiles(HashMap<String, Claim>);

#[derive(Debug, Clone)]
struct Claim {
    issue: IssueId,
    key: IssueKey,
    /// Open pull request; `None` for a run.
    pull: Option<u64>,
}

impl ClaimedFiles {
    /// Returns the files of the open pull requests and runs of a repository.
    pub fn of(load: &RepositoryLoad) -> Self {
        let mut claimed = Self::default();
        for run in &load.runs {
            claimed.add(&run.issue, &run.key, None, &run.files);
        }
        for pull in &load.pulls {
            claimed.add(&pull.issue, &pull.key, Some(pull.number), &pull.files);
        }
        claimed
    }

    /// Adds the files of a run that starts.
    pub fn add_run(&mut self, issue: &IssueId, key: &IssueKey, files: &[String]) {
        self.add(issue, key, None, files);
    }

    fn add(&mut self, issue: &IssueId, key: &IssueKey, pull: Option<u64>, files: &[String]) {
        let claim = Claim {
            issue: issue.clone(),
            key: key.clone(),
            pull,
        };
        for file in files.iter().take(MAX_FILES) {
            let entry = self.0.entry(file.clone());
            entry.or_insert_with(|| claim.clone());
        }
    }

    /// Returns which file of an issue another issue changes already, as a sentence. `None` if the mapping allows it.
    pub fn collision_message(
        &self,
        mapping: &Mapping,
        issue: &IssueId,
        files: &[String],
    ) -> Option<String> {
        if mapping.collisions == CollisionRule::Allow || self.0.is_empty() {
            return None;
        }
        let claims = files.iter().filter_map(|file| {
            let claim = self.0.get(file)?;
            (claim.issue != *issue).then_some((file, claim))
        });
        let mut claims = claims.peekable();
        claims.peek()?;
        // Globs are valid in every mapping. Without them, nothing is ignored.
        let ignored = path_globs::compile(&mapping.collision_ignore);
        let is_ignored = |file: &str| ignored.as_ref().is_some_and(|globs| globs.is_match(file));
        let (file, claim) = claims.find(|(file, _)| !is_ignored(file))?;
        let key = &claim.key;
        Some(match claim.pull {
            None => format!("Changes {file} as {key} does, which is running"),
            Some(number) => {
                format!("Changes {file} as {key} does, whose pull request #{number} is open")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mapping::example_mapping;
    use crate::repository_load::{HostKnowledge, OpenPull, OpeningRun};
    use crate::time::Timestamp;

    fn files(files: &[&str]) -> Vec<String> {
        files.iter().map(|file| (*file).to_owned()).collect()
    }

    /// ENG-41 runs and changes two files, ENG-42 has an open pull request with two.
    fn claimed() -> ClaimedFiles {
        ClaimedFiles::of(&RepositoryLoad {
            pulls: vec![OpenPull {
                number: 12,
                issue: "i-42".into(),
                key: "ENG-42".into(),
                opened_at: Timestamp::EPOCH,
                awaits_review: true,
                files: files(&["src/cart.rs", "docs/cart.md"]).into(),
            }],
            runs: vec![OpeningRun {
                issue: "i-41".into(),
                key: "ENG-41".into(),
                files: files(&["src/lib.rs", "src/cart.rs"]).into(),
            }],
            knowledge: HostKnowledge::Unread,
        })
    }

    #[test]
    fn names_the_first_common_file_and_who_changes_it() {
        let running = Some("Changes src/cart.rs as ENG-41 does, which is running");
        let open = Some("Changes docs/cart.md as ENG-42 does, whose pull request #12 is open");
        let ignoring = |globs: &[&str]| json!({ "collisionIgnore": globs });
        for (fields, issue, declared, expected) in [
            (json!({}), "i-1", &["a.rs", "src/cart.rs"][..], running),
            (json!({}), "i-1", &["docs/cart.md", "src/cart.rs"], open),
            (
                json!({}),
                "i-1",
                &["src/cart", "cart.rs", "SRC/cart.rs"],
                None,
            ),
            (json!({}), "i-1", &[], None),
            // The pull request and the run of the issue itself.
            (json!({}), "i-42", &["docs/cart.md"], None),
            (json!({}), "i-41", &["src/lib.rs"], None),
            (
                ignoring(&["SRC/"]),
                "i-1",
                &["src/cart.rs", "docs/cart.md"],
                open,
            ),
            (
                ignoring(&["**/*.rs", "docs/*"]),
                "i-1",
                &["src/cart.rs", "docs/cart.md"],
                None,
            ),
            (
                json!({"collisions": "allow"}),
                "i-1",
                &["src/cart.rs"],
                None,
            ),
        ] {
            let mapping = example_mapping(&fields);
            let found = claimed().collision_message(&mapping, &issue.into(), &files(declared));
            assert_eq!(found.as_deref(), expected, "{fields} {issue} {declared:?}");
        }
    }

    #[test]
    fn a_run_that_starts_claims_its_files() {
        let mapping = example_mapping(&json!({}));
        let mut claimed = ClaimedFiles::default();
        let declared = files(&["src/a.rs"]);
        let found =
            |claimed: &ClaimedFiles| claimed.collision_message(&mapping, &"i-2".into(), &declared);
        assert_eq!(found(&claimed), None);
        claimed.add_run(&"i-1".into(), &"ENG-1".into(), &declared);
        let expected = "Changes src/a.rs as ENG-1 does, which is running";
        assert_eq!(found(&claimed).as_deref(), Some(expected));
    }

    #[test]
    fn compares_a_bounded_number_of_plain_paths() {
        let odd = files(&[
            "",
            "a\nb",
            "a\u{202e}b",
            "web/yarn.lock",
            &"x".repeat(401),
            "src/a.rs",
        ]);
        assert_eq!(comparable_files(odd), ["src/a.rs"]);
        let many = (0..2_000).map(|number| format!("{number}.rs"));
        assert_eq!(comparable_files(many).len(), MAX_FILES);
    }
}

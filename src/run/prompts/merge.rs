//! Merge of the base branch, in prompts: files in conflict, and what both sides did to them. The titles of
//! commits and the names of files are fenced.

use super::material::{Mark, PromptMaterial};
use crate::context::BaseMerge;
use crate::git::merge::ConflictKind;
use domain::sanitize;

/// Task of an implement pass.
pub(super) const TASK: &str = "The branch holds a pull request for this ticket. Its base branch was merged into it, \
     and the merge stopped at the conflicts that are listed below. Resolve every one of them, so that the branch keeps \
     what it does for the ticket and the base branch keeps what was done there. Change nothing else.";

/// Maximum number of files listed.
const MAX_FILES: usize = 200;

/// Maximum length of a title or the name of a file, in characters.
const MAX_LINE: usize = 300;

/// Returns the section about the conflicts for an implement pass. Empty without conflicts.
pub(super) fn conflicts(material: &PromptMaterial<'_>, mark: &Mark) -> String {
    let Some(merge) = material.merge else {
        return String::new();
    };
    let [head, base] = merge.sides();
    let mut text = format!(
        "Files in conflict. Text between `<<<<<<< {head}` and `|||||||` is of the branch; between `|||||||` and \
         `=======` stands the common ancestor; between `=======` and `>>>>>>> {base}` stands the base branch `{}`. \
         No marker may stay.\n",
        material.dispatch.base_branch
    );
    text.push_str(&mark.fence("files in conflict", &files(merge)));
    for (label, titles) in [
        ("commits of the branch", &merge.branch_titles),
        ("commits of the base branch", &merge.base_titles),
    ] {
        let titles: Vec<String> = titles.iter().map(|title| line(title)).collect();
        text.push_str(&mark.fence(label, &titles.join("\n")));
    }
    text
}

/// Returns the section about the conflicts for a review pass. Empty without conflicts.
pub(super) fn review(material: &PromptMaterial<'_>, mark: &Mark) -> String {
    let Some(merge) = material.merge else {
        return String::new();
    };
    format!(
        "The change merges the base branch `{}` into the branch, which was in conflict with it. The diff leads from \
         the merge with conflict markers to the resolution. Judge the resolution: it must keep what both sides did, and \
         change nothing else. The rest of the branch was reviewed before.\n{}",
        material.dispatch.base_branch,
        mark.fence("files in conflict", &files(merge))
    )
}

fn files(merge: &BaseMerge) -> String {
    let conflicts = &merge.merged.conflicts;
    let listed = conflicts.iter().take(MAX_FILES).map(|conflict| {
        let state = match conflict.kind {
            ConflictKind::Content => "holds conflict markers",
            ConflictKind::DeletedOnBranch => {
                "deleted on the branch, changed on the base branch; keep it or delete it"
            }
            ConflictKind::DeletedOnBase => {
                "changed on the branch, deleted on the base branch; keep it or delete it"
            }
            ConflictKind::Binary => "not text; holds the version of the branch",
            ConflictKind::Other => {
                "a link, a submodule or a moved file; check that what is there is right"
            }
        };
        format!("- {}: {state}", line(&conflict.path))
    });
    let mut lines: Vec<String> = listed.collect();
    if conflicts.len() > MAX_FILES {
        lines.push(format!("- and {} more", conflicts.len() - MAX_FILES));
    }
    lines.join("\n")
}

fn line(text: &str) -> String {
    let text = sanitize::single_line(text);
    sanitize::truncate_chars(text.trim(), MAX_LINE, sanitize::ELLIPSIS).into_owned()
}

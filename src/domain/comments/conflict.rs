//! Comments on a pull request about conflicts with its base branch.

use crate::feedback::FollowUpPolicy;
use crate::job::Job;
use crate::sanitize;
use crate::time::Timestamp;

/// Returns the comment about a failed run, with the files that the run found in conflict.
pub(crate) fn with_conflicts(comment: String, job: &Job) -> String {
    let mut parts = vec![comment];
    if let Some(merge) = job.merge.as_ref().filter(|merge| !merge.is_clean()) {
        let files = merge.conflicts.iter();
        let mut lines: Vec<String> = files
            .map(|path| format!("- {}", sanitize::plain_text(path)))
            .collect();
        if merge.unnamed > 0 {
            lines.push(format!("- and {} more", merge.unnamed));
        }
        let files = lines.join("\n");
        parts.push(format!(
            "Files in conflict with the base branch:\n\n{files}"
        ));
    }
    parts.push(
        "No other run starts for this conflict until the branch or the base branch changes."
            .to_owned(),
    );
    parts.join("\n\n")
}

/// Returns the comment about a conflict that waits because of the limit of automatic runs.
pub fn conflict_limit_reached(until: Timestamp) -> String {
    format!(
        "Reached the limit of {} automatic runs per day. The conflicts with the base branch will be resolved after {}. To continue at once, merge the base branch into the branch by hand.",
        FollowUpPolicy::default().max_follow_ups,
        until.date_text()
    )
}

/// Returns the comment about a pull request to a branch that is not the project's.
pub fn conflict_with_other_base(base: &str, of_project: &str) -> String {
    format!(
        "This pull request is in conflict with {}. Conflicts are resolved automatically only with {}, the branch of the project. Resolve them by hand, or change the base branch of the pull request.",
        sanitize::plain_text(base),
        sanitize::plain_text(of_project)
    )
}

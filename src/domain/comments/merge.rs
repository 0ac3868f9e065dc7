//! Comments about pull requests that were merged by policy.

use crate::merge_policy::{MergeGrant, MergeMode, short_sha};
use crate::sanitize;

/// Returns the comment about a pull request that was merged by policy, on the pull request and on the ticket.
pub fn merged_by_policy(grant: &MergeGrant) -> String {
    let way = match grant.mode {
        MergeMode::Queue => "merge queue",
        MergeMode::Auto | MergeMode::Never => grant.method.as_str(),
    };
    format!("Merged by policy ({way}): {}.", merge_reasons(grant))
}

/// Returns the comment about a pull request that GitHub merged with commits that the policy did not judge.
pub fn merged_after_push(grant: &MergeGrant, merged: &str) -> String {
    format!(
        "GitHub merged {}, which was pushed after the policy had granted the merge of {} (approved by {}).",
        short_sha(merged),
        short_sha(&grant.head),
        approvers(grant)
    )
}

/// Returns why a merge was granted: approvals, head and checks. Without a full stop.
pub fn merge_reasons(grant: &MergeGrant) -> String {
    let checks = match grant.checks_passed {
        0 => "no checks are required".to_owned(),
        1 => "1 check passed".to_owned(),
        many => format!("{many} checks passed"),
    };
    format!(
        "approved by {} for {}; {checks}",
        approvers(grant),
        short_sha(&grant.head)
    )
}

fn approvers(grant: &MergeGrant) -> String {
    let logins = grant.approvers.iter();
    let logins: Vec<String> = logins
        .map(|login| format!("@{}", sanitize::single_line(login)))
        .collect();
    logins.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge_policy::MergeMethod;

    #[test]
    fn the_note_names_rule_approvers_and_head() {
        let grant = MergeGrant {
            head: "1a2b3c4d5e6f".into(),
            mode: MergeMode::Auto,
            method: MergeMethod::Squash,
            required_approvals: 1,
            approvers: vec!["mia".into()],
            checks_passed: 3,
        };
        assert_eq!(
            merged_by_policy(&grant),
            "Merged by policy (squash): approved by @mia for 1a2b3c4; 3 checks passed."
        );
        let queued = MergeGrant {
            mode: MergeMode::Queue,
            approvers: vec!["mia".into(), "kim".into()],
            checks_passed: 0,
            ..grant.clone()
        };
        assert_eq!(
            merged_by_policy(&queued),
            "Merged by policy (merge queue): approved by @mia, @kim for 1a2b3c4; no checks are required."
        );
        assert_eq!(
            merged_after_push(&grant, "9f8e7d6c5b4a"),
            "GitHub merged 9f8e7d6, which was pushed after the policy had granted the merge of 1a2b3c4 (approved by @mia)."
        );
    }
}

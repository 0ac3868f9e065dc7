//! State of a pull request and of its head commit: checks, reviews, whether it can be merged.

use serde::Deserialize;
use serde::de::IgnoredAny;

use domain::feedback::{
    ChecksState, HeadCommit, MergeState, PullRequestChecks, PullRequestReadiness, ReviewDecision,
};

/// Fields of one pull request. The counts cover all checks, whatever the page size is.
pub(super) const FIELDS: &str = "isDraft mergeable mergeStateStatus reviewDecision \
    headRefOid baseRefName baseRef { target { oid } } autoMergeRequest { enabledAt } \
    commits(last: 1) { nodes { commit { oid author { email } parents(first: 2) { nodes { oid } } } } } \
    latestOpinionatedReviews(first: 50) { nodes { state } } \
    statusCheckRollup { contexts(first: 1) { \
    checkRunCountsByState { state count } statusContextCountsByState { state count } } }";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadinessNode {
    pub(super) is_draft: bool,
    mergeable: String,
    merge_state_status: String,
    head_ref_oid: String,
    base_ref_name: Option<String>,
    base_ref: Option<BaseRef>,
    auto_merge_request: Option<IgnoredAny>,
    commits: Commits,
    review_decision: Option<String>,
    latest_opinionated_reviews: Option<Reviews>,
    status_check_rollup: Option<Rollup>,
}

#[derive(Deserialize)]
struct BaseRef {
    target: Option<Object>,
}

#[derive(Deserialize)]
struct Object {
    oid: String,
}

#[derive(Deserialize)]
struct Commits {
    nodes: Vec<Option<PullCommit>>,
}

#[derive(Deserialize)]
struct PullCommit {
    commit: Commit,
}

#[derive(Deserialize)]
struct Commit {
    oid: String,
    author: Option<GitActor>,
    parents: Parents,
}

#[derive(Deserialize)]
struct GitActor {
    email: Option<String>,
}

#[derive(Deserialize)]
struct Parents {
    nodes: Vec<Option<Object>>,
}

#[derive(Deserialize)]
struct Reviews {
    nodes: Vec<Option<Review>>,
}

#[derive(Deserialize)]
struct Review {
    state: String,
}

#[derive(Deserialize)]
struct Rollup {
    contexts: Contexts,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Contexts {
    check_run_counts_by_state: Option<Vec<StateCount>>,
    status_context_counts_by_state: Option<Vec<StateCount>>,
}

#[derive(Deserialize)]
struct StateCount {
    state: String,
    count: u64,
}

impl ReadinessNode {
    pub(super) fn translate(self) -> PullRequestReadiness {
        let latest = self.latest_opinionated_reviews;
        let approvals = latest.as_ref().map_or(0, Reviews::approvals);
        let decision = match self.review_decision.as_deref() {
            Some("APPROVED") => Some(ReviewDecision::Approved),
            Some("CHANGES_REQUESTED") => Some(ReviewDecision::ChangesRequested),
            Some("REVIEW_REQUIRED") => Some(ReviewDecision::ReviewRequired),
            // The host decides only if a rule of the branch requires reviews.
            _ => latest.and_then(Reviews::decision),
        };
        PullRequestReadiness {
            checks: self
                .status_check_rollup
                .and_then(|rollup| rollup.contexts.translate()),
            approvals,
            review_decision: decision,
            merge_state: MergeState::parse(&self.merge_state_status),
            head: Some(self.commits.head(self.head_ref_oid)),
            base: self
                .base_ref
                .and_then(|base| base.target)
                .map(|target| target.oid),
            base_branch: self.base_ref_name,
            is_auto_merge_armed: self.auto_merge_request.is_some(),
            mergeable: match self.mergeable.as_str() {
                "MERGEABLE" => Some(true),
                "CONFLICTING" => Some(false),
                _ => None,
            },
        }
    }
}

impl Commits {
    /// Returns the head commit. The list is from the same response, but the host may compute it later.
    fn head(self, sha: String) -> HeadCommit {
        let commits = self.nodes.into_iter().flatten().map(|node| node.commit);
        let commit = { commits }.find(|commit| commit.oid == sha);
        let (author, parents) = match commit {
            Some(commit) => (commit.author, commit.parents.nodes),
            None => (None, Vec::new()),
        };
        HeadCommit {
            sha,
            author_email: author.and_then(|author| author.email).unwrap_or_default(),
            parents: parents
                .into_iter()
                .flatten()
                .map(|parent| parent.oid)
                .collect(),
        }
    }
}

impl Reviews {
    /// Returns the number of reviewers who approve.
    fn approvals(&self) -> u32 {
        let reviews = self.nodes.iter().flatten();
        let approving = reviews.filter(|review| review.state == "APPROVED").count();
        u32::try_from(approving).unwrap_or(u32::MAX)
    }

    /// Returns the decision that the latest review of each reviewer amounts to.
    fn decision(self) -> Option<ReviewDecision> {
        let reviews: Vec<Review> = self.nodes.into_iter().flatten().collect();
        let has = |state: &str| reviews.iter().any(|review| review.state == state);
        match (has("CHANGES_REQUESTED"), has("APPROVED")) {
            (true, _) => Some(ReviewDecision::ChangesRequested),
            (false, true) => Some(ReviewDecision::Approved),
            (false, false) => None,
        }
    }
}

impl Contexts {
    fn translate(self) -> Option<PullRequestChecks> {
        let counts = [
            self.check_run_counts_by_state,
            self.status_context_counts_by_state,
        ];
        let (mut failed, mut pending, mut total) = (0, 0, 0);
        for StateCount { state, count } in counts.into_iter().flatten().flatten() {
            total += count;
            match state.as_str() {
                "SUCCESS" | "NEUTRAL" | "SKIPPED" | "COMPLETED" | "STALE" => {}
                "ACTION_REQUIRED" | "CANCELLED" | "ERROR" | "FAILURE" | "STARTUP_FAILURE"
                | "TIMED_OUT" => failed += count,
                // Queued, in progress, waiting, expected, and what the host may add.
                _ => pending += count,
            }
        }
        let state = match (failed, pending) {
            (1.., _) => ChecksState::Failure,
            (0, 1..) => ChecksState::Pending,
            (0, 0) => ChecksState::Success,
        };
        let checks = PullRequestChecks {
            state,
            failed,
            total,
        };
        (total > 0).then_some(checks)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn readiness(fields: &Value) -> PullRequestReadiness {
        let mut pull = json!({"isDraft": false, "mergeable": "UNKNOWN", "mergeStateStatus": "UNKNOWN",
            "headRefOid": "a1", "baseRefName": "main", "baseRef": null, "autoMergeRequest": null, "reviewDecision": null,
            "commits": {"nodes": [{"commit": {"oid": "a1", "author": {"email": "mia@example.com"},
                "parents": {"nodes": [{"oid": "b2"}]}}}]},
            "latestOpinionatedReviews": {"nodes": []}, "statusCheckRollup": null});
        for (name, value) in fields.as_object().unwrap() {
            pull[name] = value.clone();
        }
        let pull: ReadinessNode = serde_json::from_value(pull).unwrap();
        pull.translate()
    }

    #[test]
    fn summarizes_checks_by_their_states() {
        let counts = |runs: Value, statuses: Value| {
            let contexts = json!({
                "checkRunCountsByState": runs, "statusContextCountsByState": statuses,
            });
            let rollup = json!({"statusCheckRollup": {"contexts": contexts}});
            let checks = readiness(&rollup).checks;
            checks.map(|checks| (checks.state, checks.failed, checks.total))
        };
        let count = |state: &str, count: u64| json!({"state": state, "count": count});
        assert_eq!(counts(json!([]), Value::Null), None);
        assert_eq!(
            counts(json!([count("SUCCESS", 2), count("SKIPPED", 1)]), json!([])),
            Some((ChecksState::Success, 0, 3))
        );
        assert_eq!(
            counts(json!([count("SUCCESS", 2)]), json!([count("EXPECTED", 1)])),
            Some((ChecksState::Pending, 0, 3))
        );
        assert_eq!(
            counts(
                json!([count("TIMED_OUT", 2), count("QUEUED", 4)]),
                json!([count("ERROR", 1)])
            ),
            Some((ChecksState::Failure, 3, 7))
        );
    }

    #[test]
    fn decides_by_the_reviews_if_no_rule_requires_one() {
        let decision = |decision: Value, states: &[&str]| {
            let nodes: Vec<Value> = states.iter().map(|state| json!({"state": state})).collect();
            readiness(&json!({
                "reviewDecision": decision, "latestOpinionatedReviews": {"nodes": nodes},
            }))
            .review_decision
        };
        assert_eq!(decision(Value::Null, &[]), None);
        assert_eq!(
            decision(Value::Null, &["APPROVED"]),
            Some(ReviewDecision::Approved)
        );
        assert_eq!(
            decision(Value::Null, &["APPROVED", "CHANGES_REQUESTED"]),
            Some(ReviewDecision::ChangesRequested)
        );
        assert_eq!(
            decision(json!("REVIEW_REQUIRED"), &["APPROVED"]),
            Some(ReviewDecision::ReviewRequired)
        );
    }

    #[test]
    fn reads_whether_it_can_be_merged() {
        for (text, expected) in [
            ("MERGEABLE", Some(true)),
            ("CONFLICTING", Some(false)),
            ("UNKNOWN", None),
        ] {
            assert_eq!(readiness(&json!({ "mergeable": text })).mergeable, expected);
        }
        let state = |text: &str| readiness(&json!({ "mergeStateStatus": text })).merge_state;
        assert_eq!(state("BEHIND"), Some(MergeState::Behind));
        assert_eq!(state("UNKNOWN"), None);
    }

    #[test]
    fn reads_the_head_commit() {
        let head = readiness(&json!({})).head.unwrap();
        assert_eq!(
            (head.sha.as_str(), head.author_email.as_str()),
            ("a1", "mia@example.com")
        );
        assert_eq!(head.parents, ["b2"]);
        let moved = readiness(&json!({"headRefOid": "c3"})).head.unwrap();
        assert_eq!(
            (moved.sha.as_str(), moved.author_email.as_str()),
            ("c3", "")
        );
    }
}

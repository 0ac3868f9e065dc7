//! Parser of the repository host's webhook payloads. The caller has verified their signature.
//!
//! The parser reads single fields from untyped JSON and drops all others. An event with missing or
//! unexpected fields is ignored and is no error. The exception is a merged pull request, which must have
//! all required fields. See docs/behaviour.md#repository-webhook.

use serde_json::Value;

use crate::http;
use domain::feedback::{FeedbackAuthor, FeedbackSource, PullRequestId, ReviewComment, ReviewState};
use domain::ids::Repo;
use domain::time::Timestamp;

/// Names of all fields that the parser reads, and that events of issues are judged by. A payload has about three hundred
/// fields.
const FIELDS: &[&str] = &[
    "action",
    "body",
    "check_run",
    "check_suite",
    "comment",
    "comments",
    "created_at",
    "full_name",
    "head",
    "head_sha",
    "html_url",
    "id",
    "issue",
    "line",
    "login",
    "merge_commit_sha",
    "merged",
    "merged_at",
    "node_id",
    "number",
    "original_line",
    "path",
    "pull_request",
    "ref",
    "repository",
    "review",
    "sha",
    "state",
    "submitted_at",
    "thread",
    "type",
    "user",
    "workflow_run",
];

/// Event of the repository host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookEvent {
    /// New or edited feedback on a pull request.
    Feedback(FeedbackEvent),
    /// Feedback that no longer applies: deleted comments, a dismissed review or a resolved thread.
    Withdrawn {
        /// Pull request of the feedback.
        pull: PullRequestId,
        /// Kind of the feedback.
        source: FeedbackSource,
        /// Ids of the comments or reviews.
        ids: Vec<u64>,
    },
    /// Review thread that was reopened.
    ThreadReopened {
        /// Pull request of the thread.
        pull: PullRequestId,
        /// Ids of the thread's comments.
        ids: Vec<u64>,
    },
    /// Pull request that was merged.
    Merged(MergedPullRequest),
    /// Pull request that was closed without a merge.
    Closed(PullRequestId),
    /// New commits on the branch of a pull request, or a change of its flags.
    PullChanged(PullRequestId),
    /// Check that ended on a commit.
    CommitChecked(CheckedCommit),
    /// Change of an issue, of its comments, or of a label, which the next poll of issues reads.
    IssueChanged,
    /// Event without effect on the service. Holds the reason.
    Ignored(&'static str),
}

/// New or edited feedback, with the fields of its pull request that the payload contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedbackEvent {
    /// Pull request of the feedback.
    pub pull: PullRequestId,
    /// Comment or review.
    pub comment: ReviewComment,
    /// Description of the pull request. Its marker identifies the pull requests of this service.
    pub pull_body: String,
    /// Whether the pull request is open.
    pub is_open: bool,
    /// Whether the feedback is from the author of the pull request.
    pub is_by_pull_author: bool,
    /// Whether existing feedback was edited.
    pub is_edit: bool,
}

/// Merged pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedPullRequest {
    /// Repository and number.
    pub pull: PullRequestId,
    /// Web address.
    pub url: String,
    /// Name of the head branch.
    pub branch: String,
    /// Id of the merge commit.
    pub commit: String,
    /// Time of the merge.
    pub merged_at: Option<Timestamp>,
}

/// Commit on which a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedCommit {
    /// Repository.
    pub repo: Repo,
    /// SHA of the commit.
    pub sha: String,
    /// Whether a workflow run ended, and not only one of its checks.
    pub ends_run: bool,
}

/// Payload that is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// Required field missing in the payload of a merged pull request.
    #[error("the payload of a merged pull request lacks a required field")]
    MissingPullFields,
}

/// Parses the fields of a payload that [`parse_event`] reads. `None` if the body is no JSON object.
pub fn parse_payload(body: &[u8]) -> Option<Value> {
    http::read_json_fields(body, FIELDS).filter(Value::is_object)
}

/// Converts a payload to an event. Without the header that names the event, the event is inferred from
/// the fields of the payload.
///
/// # Errors
/// Fails if a merged pull request lacks its number, address, branch, commit or repository.
pub fn parse_event(event: Option<&str>, payload: &Value) -> Result<WebhookEvent, WebhookError> {
    let event = event.unwrap_or_else(|| infer_event(payload));
    let action = payload["action"].as_str().unwrap_or_default();
    let read = match (event, action) {
        ("pull_request", "closed") if payload["pull_request"]["merged"] == Value::Bool(true) => {
            let merged = merged(payload).ok_or(WebhookError::MissingPullFields)?;
            return Ok(WebhookEvent::Merged(merged));
        }
        ("pull_request", "closed") => match pull_id(payload) {
            Some(pull) => return Ok(WebhookEvent::Closed(pull)),
            None => return Ok(WebhookEvent::Ignored(NOT_MERGED)),
        },
        (
            "pull_request",
            "synchronize"
            | "reopened"
            | "ready_for_review"
            | "converted_to_draft"
            | "auto_merge_enabled"
            | "auto_merge_disabled",
        ) => pull_id(payload).map(WebhookEvent::PullChanged),
        ("check_run" | "check_suite" | "workflow_run", "completed") => checked_commit(
            payload,
            &payload[event]["head_sha"],
            event == "workflow_run",
        ),
        ("status", _) if payload["state"] != "pending" => {
            checked_commit(payload, &payload["sha"], false)
        }
        ("check_run" | "check_suite" | "workflow_run" | "status", _) => {
            return Ok(WebhookEvent::Ignored("the check has not ended"));
        }
        ("pull_request", _) => return Ok(WebhookEvent::Ignored(NOT_MERGED)),
        ("pull_request_review", "submitted" | "edited") => review(payload, action),
        ("pull_request_review", "dismissed") => {
            withdrawn(payload, FeedbackSource::Review, &payload["review"])
        }
        ("pull_request_review_comment", "created" | "edited") => line_comment(payload, action),
        ("pull_request_review_comment", "deleted") => {
            withdrawn(payload, FeedbackSource::ReviewComment, &payload["comment"])
        }
        ("pull_request_review_thread", "resolved" | "unresolved") => thread(payload, action),
        ("issues" | "label" | "issue_dependencies" | "sub_issues", _) => {
            return Ok(WebhookEvent::IssueChanged);
        }
        ("issue_comment", _) if !payload["issue"]["pull_request"].is_object() => {
            return Ok(WebhookEvent::IssueChanged);
        }
        ("issue_comment", "created" | "edited") => issue_comment(payload, action),
        ("issue_comment", "deleted") => {
            withdrawn(payload, FeedbackSource::IssueComment, &payload["comment"])
        }
        _ => return Ok(WebhookEvent::Ignored("unsupported event")),
    };
    Ok(read.unwrap_or(WebhookEvent::Ignored("incomplete payload")))
}

/// Reason of events of pull requests that were not merged.
pub const NOT_MERGED: &str = "not a merged pull request";

fn infer_event(payload: &Value) -> &'static str {
    let has = |field: &str| payload[field].is_object();
    match () {
        () if has("review") => "pull_request_review",
        () if has("thread") => "pull_request_review_thread",
        () if has("comment") && has("pull_request") => "pull_request_review_comment",
        () if has("comment") && has("issue") => "issue_comment",
        () if has("pull_request") => "pull_request",
        () if has("issue") => "issues",
        () if has("check_run") => "check_run",
        () if has("check_suite") => "check_suite",
        () if has("workflow_run") => "workflow_run",
        () if payload["sha"].is_string() => "status",
        () => "",
    }
}

fn checked_commit(payload: &Value, sha: &Value, ends_run: bool) -> Option<WebhookEvent> {
    let repo = Repo::parse(payload["repository"]["full_name"].as_str()?)?;
    let sha = text(sha)?;
    Some(WebhookEvent::CommitChecked(CheckedCommit {
        repo,
        sha,
        ends_run,
    }))
}

fn merged(payload: &Value) -> Option<MergedPullRequest> {
    let pull = &payload["pull_request"];
    Some(MergedPullRequest {
        pull: pull_id(payload)?,
        url: text(&pull["html_url"])?,
        branch: text(&pull["head"]["ref"])?,
        commit: text(&pull["merge_commit_sha"])?,
        merged_at: pull["merged_at"].as_str().and_then(Timestamp::parse),
    })
}

fn review(payload: &Value, action: &str) -> Option<WebhookEvent> {
    let review = &payload["review"];
    let state = ReviewState::parse(review["state"].as_str()?)?;
    let mut review_comment =
        review_comment(FeedbackSource::Review, review, &review["submitted_at"])?;
    review_comment.review_state = Some(state);
    feedback(payload, review_comment, &payload["pull_request"], action)
}

fn line_comment(payload: &Value, action: &str) -> Option<WebhookEvent> {
    let comment = &payload["comment"];
    let mut review_comment = review_comment(
        FeedbackSource::ReviewComment,
        comment,
        &comment["created_at"],
    )?;
    review_comment.path = text(&comment["path"]);
    let line = comment["original_line"].as_u64();
    review_comment.line = line.or_else(|| comment["line"].as_u64());
    feedback(payload, review_comment, &payload["pull_request"], action)
}

fn issue_comment(payload: &Value, action: &str) -> Option<WebhookEvent> {
    let comment = &payload["comment"];
    let review_comment = review_comment(
        FeedbackSource::IssueComment,
        comment,
        &comment["created_at"],
    )?;
    feedback(payload, review_comment, &payload["issue"], action)
}

/// Builds a feedback event. `pull` is the pull request, or the issue object of the same pull request.
fn feedback(
    payload: &Value,
    review_comment: ReviewComment,
    pull: &Value,
    action: &str,
) -> Option<WebhookEvent> {
    let opened_by = author(&pull["user"]);
    Some(WebhookEvent::Feedback(FeedbackEvent {
        pull: pull_id(payload)?,
        is_by_pull_author: opened_by.as_ref() == Some(&review_comment.author),
        comment: review_comment,
        pull_body: pull["body"].as_str().unwrap_or_default().to_owned(),
        is_open: pull["state"] == "open",
        is_edit: action == "edited",
    }))
}

fn review_comment(source: FeedbackSource, feedback: &Value, at: &Value) -> Option<ReviewComment> {
    let created_at = at.as_str().and_then(Timestamp::parse);
    Some(ReviewComment {
        source,
        id: feedback["id"].as_u64()?,
        author: author(&feedback["user"])?,
        review_state: None,
        path: None,
        line: None,
        body: feedback["body"].as_str().unwrap_or_default().to_owned(),
        created_at: created_at.unwrap_or_default(),
    })
}

fn author(user: &Value) -> Option<FeedbackAuthor> {
    let is_bot = user["type"] == "Bot";
    Some(FeedbackAuthor::from_account(&text(&user["login"])?, is_bot))
}

fn withdrawn(payload: &Value, source: FeedbackSource, item: &Value) -> Option<WebhookEvent> {
    Some(WebhookEvent::Withdrawn {
        pull: pull_id(payload)?,
        source,
        ids: vec![item["id"].as_u64()?],
    })
}

fn thread(payload: &Value, action: &str) -> Option<WebhookEvent> {
    let comments = payload["thread"]["comments"].as_array()?;
    let ids = comments
        .iter()
        .filter_map(|comment| comment["id"].as_u64())
        .collect();
    let (pull, source) = (pull_id(payload)?, FeedbackSource::ReviewComment);
    Some(match action {
        "resolved" => WebhookEvent::Withdrawn { pull, source, ids },
        _ => WebhookEvent::ThreadReopened { pull, ids },
    })
}

fn pull_id(payload: &Value) -> Option<PullRequestId> {
    let numbers = [
        &payload["pull_request"]["number"],
        &payload["issue"]["number"],
    ];
    let number = numbers.into_iter().find_map(Value::as_u64)?;
    let repo = Repo::parse(payload["repository"]["full_name"].as_str()?)?;
    (number > 0).then_some(PullRequestId { repo, number })
}

fn text(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            Just(json!("acme/shop")),
            Just(json!("submitted")),
            Just(json!("created")),
        ];
        let names = prop::sample::select([FIELDS, &["sender", "base"]].concat());
        leaf.prop_recursive(5, 64, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((names.clone(), inner), 0..8).prop_map(|fields| {
                    let fields = fields
                        .into_iter()
                        .map(|(name, value)| (name.to_owned(), value));
                    Value::Object(fields.collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn parses_any_payload_without_a_failure(payload in any_json(), event in 0_usize..7) {
            let events = [
                "pull_request", "pull_request_review", "pull_request_review_comment",
                "pull_request_review_thread", "issue_comment", "ping",
            ];
            let event = events.get(event).copied();
            let whole = parse_event(event, &payload);
            if let Some(kept) = super::parse_payload(payload.to_string().as_bytes()) {
                prop_assert_eq!(parse_event(event, &kept), whole);
            }
        }
    }

    #[test]
    fn keeps_the_issue_on_which_a_comment_is_announced() {
        let payload = json!({"action": "created", "comment": {"id": 5, "body": "x"},
            "issue": {"number": 7, "node_id": "I_7"}, "repository": {"full_name": "acme/shop"}});
        let kept = parse_payload(payload.to_string().as_bytes()).unwrap();
        let announced = crate::ticketing::announced_issue(domain::issue::System::GitHub, &kept);
        assert_eq!(announced, ["I_7", "acme/shop#7"]);
    }

    #[test]
    fn keeps_every_field_that_the_parser_reads() {
        let user = json!({"login": "mona", "type": "User", "id": 1, "node_id": "U_1"});
        let feedback = json!({"id": 5, "body": "Why?", "user": user, "path": "src/a.rs", "line": 3,
            "original_line": 2, "state": "commented", "created_at": "2026-11-22T10:00:00Z",
            "submitted_at": "2026-11-22T11:00:00Z", "reactions": {"+1": 1}});
        let opened = json!({"number": 7, "state": "open", "body": "text", "user": user, "merged": true,
            "html_url": "https://h/p/7", "head": {"ref": "b", "sha": "c"}, "merge_commit_sha": "abc",
            "merged_at": "2026-11-22T12:00:00Z",
            "pull_request": {"url": "https://h/p/7"}, "labels": [user]});
        let rows = [
            ("pull_request", "closed", &["pull_request"][..]),
            ("pull_request_review", "edited", &["pull_request", "review"]),
            (
                "pull_request_review",
                "dismissed",
                &["pull_request", "review"],
            ),
            (
                "pull_request_review_comment",
                "created",
                &["pull_request", "comment"],
            ),
            (
                "pull_request_review_comment",
                "deleted",
                &["pull_request", "comment"],
            ),
            (
                "pull_request_review_thread",
                "resolved",
                &["pull_request", "thread"],
            ),
            (
                "pull_request_review_thread",
                "unresolved",
                &["pull_request", "thread"],
            ),
            ("issue_comment", "created", &["issue", "comment"]),
            ("issue_comment", "deleted", &["issue", "comment"]),
        ];
        for (event, action, fields) in rows {
            let mut whole = json!({"action": action, "sender": user,
                "repository": {"full_name": "acme/shop", "owner": user}});
            for field in fields {
                whole[*field] = match *field {
                    "thread" => json!({"comments": [feedback], "node_id": "T_1"}),
                    "pull_request" | "issue" => opened.clone(),
                    _ => feedback.clone(),
                };
            }
            let kept = parse_payload(whole.to_string().as_bytes()).unwrap();
            let event_of_kept = parse_event(Some(event), &kept);
            assert_eq!(event_of_kept, parse_event(Some(event), &whole), "{event}");
            assert!(
                !matches!(event_of_kept, Ok(WebhookEvent::Ignored(_))),
                "{event} {action}"
            );
            assert_eq!(parse_event(None, &kept), event_of_kept, "{event} inferred");
            assert!(!kept.to_string().contains("reactions"), "{kept}");
        }
        assert_eq!(parse_payload(b"[]"), None);
        assert_eq!(parse_payload(b"{"), None);
    }

    #[test]
    fn rejects_a_merged_pull_request_with_a_missing_field() {
        let whole = json!({
            "action": "closed",
            "pull_request": {"number": 7, "html_url": "https://h/p/7", "merged": true,
                "head": {"ref": "b"}, "merge_commit_sha": "abc"},
            "repository": {"full_name": "acme/shop"},
        });
        assert!(matches!(
            parse_event(None, &whole),
            Ok(WebhookEvent::Merged(_))
        ));
        for field in [
            "/pull_request/number",
            "/pull_request/html_url",
            "/pull_request/head/ref",
            "/pull_request/merge_commit_sha",
            "/repository/full_name",
        ] {
            for bad in [Value::Null, json!(""), json!({})] {
                let mut incomplete = whole.clone();
                *incomplete.pointer_mut(field).unwrap() = bad;
                let result = parse_event(Some("pull_request"), &incomplete);
                assert_eq!(result, Err(WebhookError::MissingPullFields), "{field}");
            }
        }
        let mut closed = whole;
        closed["pull_request"]["merged"] = json!(false);
        let pull = PullRequestId {
            repo: Repo::new("acme", "shop"),
            number: 7,
        };
        assert_eq!(parse_event(None, &closed), Ok(WebhookEvent::Closed(pull)));
        closed["pull_request"]["number"] = json!(0);
        let ignored = WebhookEvent::Ignored(NOT_MERGED);
        assert_eq!(parse_event(None, &closed), Ok(ignored));
    }
}

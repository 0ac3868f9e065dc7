//! Fields of comments, reviews and review threads in the GraphQL API.

use serde_json::{Value, json};

use super::model::{CommentRecord, ReviewRecord, ReviewThreadRecord};
use crate::clock::iso_seconds as iso;

pub(super) fn comment_field(comment: &CommentRecord, name: &str) -> Value {
    match name {
        "fullDatabaseId" => json!(comment.id.to_string()),
        "isMinimized" => json!(false),
        "body" => json!(comment.body),
        "createdAt" => json!(iso(comment.created_at)),
        "updatedAt" => json!(iso(comment.updated_at)),
        "lastEditedAt" if comment.updated_at == comment.created_at => Value::Null,
        "lastEditedAt" => json!(iso(comment.updated_at)),
        _ => json!(format!("IC_{}", comment.id)),
    }
}

pub(super) fn review_field(review: &ReviewRecord, name: &str) -> Value {
    match name {
        "fullDatabaseId" => json!(review.id.to_string()),
        "state" => json!(review.state),
        "body" => json!(review.body),
        "submittedAt" => json!(iso(review.submitted_at)),
        _ => json!(format!("PRR_{}", review.id)),
    }
}

pub(super) fn thread_field(thread: &ReviewThreadRecord, name: &str) -> Value {
    match name {
        "isResolved" => json!(thread.resolved),
        "isOutdated" => json!(thread.outdated),
        "path" => json!(thread.path),
        "line" | "originalLine" => json!(thread.line),
        _ => json!(format!("PRRT_{}", thread.id)),
    }
}

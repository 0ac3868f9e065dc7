//! Paging parameters of list routes.

use crate::error::AdminApiError;
use crate::routing::QueryParams;
use domain::time::Timestamp;

/// Maximum number of entries per page.
pub(super) const MAX_LIMIT: usize = 500;

/// Maximum length of a text that is searched, in characters.
const MAX_TEXT: usize = 200;

/// Parses `limit`, or returns `default`. Rejects invalid values, because clients that read page by page
/// rely on it.
///
/// # Errors
/// When `limit` is not a whole number from 1 to [`MAX_LIMIT`].
pub(super) fn parse_limit(query: &QueryParams, default: usize) -> Result<usize, AdminApiError> {
    let Some(text) = query.get("limit") else {
        return Ok(default);
    };
    text.parse()
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| invalid("limit must be a whole number from 1 to 500"))
}

/// Returns a parameter. An empty one counts as absent.
pub(super) fn given<'q>(query: &'q QueryParams, name: &str) -> Option<&'q str> {
    let value = query.get(name).map(String::as_str);
    value.filter(|value| !value.is_empty())
}

/// Returns a text to search for.
///
/// # Errors
/// When it is longer than [`MAX_TEXT`].
pub(super) fn parse_text<'q>(
    query: &'q QueryParams,
    name: &str,
) -> Result<Option<&'q str>, AdminApiError> {
    match given(query, name) {
        Some(text) if text.chars().count() > MAX_TEXT => Err(invalid(&format!(
            "{name} must have at most {MAX_TEXT} characters"
        ))),
        text => Ok(text),
    }
}

/// Parses a time.
///
/// # Errors
/// When it is not in the format of RFC 3339.
pub(super) fn parse_time(
    query: &QueryParams,
    name: &str,
) -> Result<Option<Timestamp>, AdminApiError> {
    let Some(text) = given(query, name) else {
        return Ok(None);
    };
    let at = Timestamp::parse(text);
    at.map(Some)
        .ok_or_else(|| invalid(&format!("{name} must be an RFC 3339 time")))
}

/// Builds the error for a violated rule.
pub(super) fn invalid(rule: &str) -> AdminApiError {
    AdminApiError::Invalid(rule.to_owned())
}

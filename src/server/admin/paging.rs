//! Pages of lists, as queries ask for them.

use std::collections::BTreeMap;

use crate::error::AdminApiError;

/// The parameters of a query.
pub(super) type QueryParams = BTreeMap<String, String>;

/// Maximum length of a page.
pub(super) const MAX_LIMIT: usize = 500;

/// Reads `limit`. A number that is none is refused, since a client that reads page by page relies on it.
///
/// # Errors
/// When it is given and not a whole number up to [`MAX_LIMIT`].
pub(super) fn parse_limit(query: &QueryParams, otherwise: usize) -> Result<usize, AdminApiError> {
    let Some(given) = query.get("limit") else {
        return Ok(otherwise);
    };
    given
        .parse()
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| invalid("limit must be a whole number from 1 to 500"))
}

/// A rule that a query breaks.
pub(super) fn invalid(rule: &str) -> AdminApiError {
    AdminApiError::Invalid(rule.to_owned())
}

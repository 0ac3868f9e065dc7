//! Values of the status field that not every site has.
//!
//! Jira rejects a query with an unknown option. What a field accepts is learned from these rejections and remembered
//! for an hour, so that a poll takes one request per query.

use std::time::{Duration, Instant};

use super::fields::FieldId;
use super::{Jira, jql};
use crate::http::VendorError;
use domain::stage::Stage;

/// Time after which an option that was missing is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// Which values a query for flagged issues lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StatusQuery {
    /// The required values and those of these optional stages.
    Listed(Vec<Stage>),
    /// None, because the field lacks a required value.
    AnyValue,
}

/// Query that a field accepted, with the time of the first rejection.
pub(super) struct CachedQuery {
    query: StatusQuery,
    learned_at: Instant,
}

impl StatusQuery {
    fn complete() -> Self {
        Self::Listed(jql::OPTIONAL_STAGES.to_vec())
    }

    /// Builds the query for open issues of a clause.
    pub(super) fn jql(&self, clause: &str, status: FieldId) -> String {
        match self {
            Self::Listed(optional) => jql::flagged_issues(clause, status, optional),
            Self::AnyValue => jql::issues_with_any_status(clause, status),
        }
    }

    /// Returns the next query to try after a rejection. `None` after the last one.
    pub(super) fn after_rejection(&self, error: &VendorError) -> Option<Self> {
        let Self::Listed(optional) = self else {
            return None;
        };
        if optional.is_empty() {
            return Some(Self::AnyValue);
        }
        let message = error.to_string();
        let is_named = |stage: &&Stage| {
            stage
                .jira_status()
                .is_some_and(|value| message.contains(value))
        };
        let named: Vec<Stage> = optional.iter().filter(is_named).copied().collect();
        let mut kept = optional.clone();
        kept.retain(|stage| !named.is_empty() && !named.contains(stage));
        Some(Self::Listed(kept))
    }
}

impl Jira {
    /// Returns the query to try first for a status field. Only issues that wait for people can have an optional value.
    pub(super) fn status_query(&self, field: FieldId, is_any_waiting: bool) -> StatusQuery {
        let cache = self.cache();
        let known = cache.status_values.get(&field);
        let known = known.filter(|known| known.learned_at.elapsed() < RETRY_AFTER);
        match (known, is_any_waiting) {
            (Some(known), true) => known.query.clone(),
            (None, true) => StatusQuery::complete(),
            (Some(known), false) if known.query == StatusQuery::AnyValue => StatusQuery::AnyValue,
            (_, false) => StatusQuery::Listed(Vec::new()),
        }
    }

    /// Records the query that a status field accepted after more was tried.
    pub(super) fn remember_status_query(
        &self,
        field: FieldId,
        query: StatusQuery,
        is_any_waiting: bool,
    ) {
        if !is_any_waiting && query != StatusQuery::AnyValue {
            return;
        }
        let mut cache = self.cache();
        let known = cache.status_values.get(&field);
        if known
            .is_some_and(|known| known.query == query && known.learned_at.elapsed() < RETRY_AFTER)
        {
            return;
        }
        let learned_at = Instant::now();
        cache
            .status_values
            .insert(field, CachedQuery { query, learned_at });
    }

    /// Returns whether a status field has the option of a stage, as far as the account may read its options.
    pub(super) async fn has_option(
        &self,
        field: &FieldId,
        stage: Stage,
    ) -> Result<bool, VendorError> {
        let options = match self.field_options(&field.id()).await {
            Err(error) if error.is_permanent() => return Ok(false),
            options => options?,
        };
        Ok(options
            .iter()
            .any(|option| Some(option.value.as_str()) == stage.jira_status()))
    }
}

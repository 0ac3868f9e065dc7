//! `/api/audit`: audit log and its verification.

use super::paging::{self, invalid};
use crate::routing::{ApiResult, QueryParams, Route, ok};
use domain::audit::{AuditEntry, AuditVerification};
use engine::app::App;
use store::audit;

/// Default number of entries per page.
const DEFAULT_LIMIT: usize = 100;

/// Routes of `/api/audit`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/audit", "listAudit", list).returns::<Vec<AuditEntry>>(),
        Route::get("/api/audit/verify", "verifyAudit", verify_chain).returns::<AuditVerification>(),
    ]
}

/// Lists the latest entries, or those before a sequence number. Rejects an invalid number: if it returned
/// the latest entries instead, a client that reads page by page would never finish.
async fn list(query: QueryParams, app: App) -> ApiResult {
    let limit = paging::parse_limit(&query, DEFAULT_LIMIT)?;
    let before = match query.get("before") {
        None => None,
        Some(text) => {
            let seq = text.parse::<u64>();
            Some(seq.map_err(|_| invalid("before must be the seq of an entry"))?)
        }
    };
    let entries = app
        .core
        .store()
        .read_long(move |tx| audit::latest(tx, before, limit));
    Ok(ok(&entries.await?))
}

/// Verifies the hash chain. `head` is an earlier hash that must be part of the chain.
async fn verify_chain(query: QueryParams, app: App) -> ApiResult {
    let anchor = query.get("head").cloned();
    let report = app
        .core
        .store()
        .read_long(move |tx| audit::verify(tx, anchor.as_deref()));
    Ok(ok(&report.await?))
}

//! `/api/audit`: audit log, its export and its verification.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use warp::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use warp::reply::{Reply, Response};

use super::paging::{self, given, invalid, parse_text, parse_time};
use crate::error::AdminApiError;
use crate::routing::{ApiResult, QueryParams, Route, ok};
use domain::audit::{Actor, AuditEntry, AuditFilter, AuditVerification, csv};
use engine::admin::downloads;
use engine::app::App;
use store::{StoreResult, audit};

/// Default number of entries per page.
const DEFAULT_LIMIT: usize = 100;

/// Number of entries that an export reads at once.
const EXPORT_PAGE: usize = 1_000;

/// Routes of `/api/audit`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/audit", "listAudit", list).returns::<Vec<AuditEntry>>(),
        Route::get("/api/audit/export", "exportAudit", export),
        Route::get("/api/audit/verify", "verifyAudit", verify_chain).returns::<AuditVerification>(),
    ]
}

/// Lists the latest entries, or those before a sequence number. Rejects an invalid number: if it returned
/// the latest entries instead, a client that reads page by page would never finish.
async fn list(query: QueryParams, app: App) -> ApiResult {
    let limit = paging::parse_limit(&query, DEFAULT_LIMIT)?;
    let (filter, before) = (parse_filter(&query)?, parse_before(&query)?);
    let entries = app
        .core
        .store()
        .read_long(move |tx| audit::latest_selected(tx, &filter, before, limit));
    Ok(ok(&entries.await?))
}

fn parse_before(query: &QueryParams) -> Result<Option<u64>, AdminApiError> {
    let Some(text) = query.get("before") else {
        return Ok(None);
    };
    let seq = text.parse::<u64>();
    Ok(Some(seq.map_err(|_| {
        invalid("before must be the seq of an entry")
    })?))
}

fn parse_filter(query: &QueryParams) -> Result<AuditFilter, AdminApiError> {
    let text = |name: &str| Ok::<_, AdminApiError>(parse_text(query, name)?.map(str::to_owned));
    let actions = text("action")?.unwrap_or_default();
    let actions = actions.split(',').map(str::trim);
    Ok(AuditFilter {
        actions: actions
            .filter(|action| !action.is_empty())
            .map(str::to_owned)
            .collect(),
        actor: text("actor")?,
        target: text("target")?,
        text: text("q")?,
        from: parse_time(query, "from")?,
        to: parse_time(query, "to")?,
    })
}

/// Format of an export.
#[derive(Clone, Copy)]
enum ExportFormat {
    Csv,
    JsonLines,
}

impl ExportFormat {
    fn parse(query: &QueryParams) -> Result<Self, AdminApiError> {
        match given(query, "format") {
            None | Some("csv") => Ok(ExportFormat::Csv),
            Some("jsonl") => Ok(ExportFormat::JsonLines),
            Some(_) => Err(invalid("format must be csv or jsonl")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            ExportFormat::Csv => "csv",
            ExportFormat::JsonLines => "jsonl",
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            ExportFormat::Csv => "text/csv; charset=utf-8",
            ExportFormat::JsonLines => "application/x-ndjson",
        }
    }

    fn header(self) -> &'static str {
        match self {
            ExportFormat::Csv => csv::HEADER,
            ExportFormat::JsonLines => "",
        }
    }

    fn line(self, entry: &AuditEntry) -> String {
        match self {
            ExportFormat::Csv => csv::line(entry),
            ExportFormat::JsonLines => format!("{}\n", serde_json::json!(entry)),
        }
    }
}

/// Exports the selected entries, oldest first, with the record of this export as the last one if the filter
/// selects it.
async fn export(query: QueryParams, by: Actor, app: App) -> ApiResult {
    let (format, filter) = (ExportFormat::parse(&query)?, parse_filter(&query)?);
    let filters = ["action", "actor", "target", "q", "from", "to"];
    let filters = filters
        .iter()
        .filter_map(|name| Some(format!(" {name}={}", given(&query, name)?)));
    let selection = format!("{}{}", format.name(), filters.collect::<String>());
    downloads::record_audit_export(&app.core, by, &selection).await?;
    let last = app.core.store().read(audit::head)?.seq;
    let export = Export {
        app,
        filter,
        format,
        after: 0,
        last,
    };
    Ok(export.into_response())
}

/// Export in progress. Reads a page for each chunk that the client takes.
struct Export {
    app: App,
    filter: AuditFilter,
    format: ExportFormat,
    /// Sequence number of the last entry that was read.
    after: u64,
    /// Sequence number of the last entry of the export. Later entries are left out, so that it ends.
    last: u64,
}

impl Export {
    fn into_response(self) -> Response {
        let format = self.format;
        let header = io::Result::Ok(Bytes::from_static(format.header().as_bytes()));
        let lines = stream::try_unfold(self, Self::next_chunk);
        let chunks = stream::StreamExt::chain(stream::iter([header]), lines);
        let mut response = warp::reply::stream(chunks).into_response();
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static(format.content_type());
        headers.insert(CONTENT_TYPE, content_type);
        let disposition = match format {
            ExportFormat::Csv => "attachment; filename=\"audit.csv\"",
            ExportFormat::JsonLines => "attachment; filename=\"audit.jsonl\"",
        };
        headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
        response
    }

    async fn next_chunk(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.after >= self.last {
            return Ok(None);
        }
        let (chunk, after) = match self.read_page().await {
            Ok(page) => page,
            Err(error) => {
                tracing::error!(%error, "Failed to read the audit for an export.");
                return Err(io::Error::other("the export was aborted"));
            }
        };
        self.after = after;
        Ok(Some((chunk, self)))
    }

    /// Reads the next page. Returns its lines, and the sequence number up to which entries were read.
    async fn read_page(&self) -> StoreResult<(Bytes, u64)> {
        let (filter, after) = (self.filter.clone(), self.after);
        let store = self.app.core.store();
        let page = store.read_long(move |tx| audit::next_page(tx, &filter, after, EXPORT_PAGE));
        let (entries, read) = page.await?;
        let entries = entries.iter().filter(|entry| entry.seq <= self.last);
        let lines: String = entries.map(|entry| self.format.line(entry)).collect();
        Ok((Bytes::from(lines), read.unwrap_or(self.last)))
    }
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

//! `/api/admin/config-status`: which connections are configured and whether they work, and what
//! vendors still let us ask.

use serde::Serialize;
use warp::http::Method;
use warp::{Filter, path};

use crate::parts::{ApiResult, Routes, ok, one_of, only, signed_in, with};
use domain::time::Timestamp;
use engine::app::{App, Condition, Connection};
use engine::probe::{self, Allowance, Check};
use vendors::http::now_millis;

/// Routes of `/api/admin/config-status`.
pub fn routes(app: &App) -> Routes {
    let status = path!("api" / "admin" / "config-status").boxed();
    one_of([
        status
            .clone()
            .and(signed_in(app, Method::GET))
            .and(with(app))
            .then(show)
            .boxed(),
        only(&status, [Method::GET]),
    ])
}

async fn show(app: App) -> ApiResult {
    // The probes first: what vendors say to them is the news about the allowances.
    let checks = probe::checks(&app).await;
    Ok(ok(&StatusView {
        checks: checks.into_iter().map(CheckView::from).collect(),
        quota: probe::allowances(&app)
            .into_iter()
            .map(QuotaView::from)
            .collect(),
    }))
}

#[derive(Serialize)]
struct StatusView {
    checks: Vec<CheckView>,
    quota: Vec<QuotaView>,
}

#[derive(Serialize)]
struct CheckView {
    name: Connection,
    status: Condition,
    detail: String,
}

impl From<Check> for CheckView {
    fn from(check: Check) -> Self {
        Self {
            name: check.connection,
            status: check.finding.condition,
            detail: check.finding.detail,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QuotaView {
    account: String,
    remaining: Option<u64>,
    limit: Option<u64>,
    /// When requests are taken again, while none are; else when the allowance is renewed.
    reset_at: Option<Timestamp>,
}

impl From<Allowance> for QuotaView {
    fn from(Allowance { account, quota }: Allowance) -> Self {
        let held = quota
            .limited_until
            .filter(|_| quota.is_limited(now_millis()));
        Self {
            account,
            remaining: quota.remaining,
            limit: quota.limit,
            reset_at: held.or(quota.reset_at).map(Timestamp::from_millis),
        }
    }
}

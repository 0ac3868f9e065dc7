//! `/api/admin/config-status`: status of the connections, and rate limits of the vendors. See
//! docs/behaviour.md#configuration-status.

use schemars::JsonSchema;
use serde::Serialize;

use crate::routing::{ApiResult, Route, ok};
use domain::time::Timestamp;
use engine::app::{App, Connection, ProbeStatus};
use engine::probe::{self, ConnectionStatus, VendorQuota};
use vendors::http::now_millis;

/// Routes of `/api/admin/config-status`.
pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/api/admin/config-status", "configStatus", show).returns::<StatusView>()]
}

async fn show(app: App) -> ApiResult {
    // The probes run first, because their responses update the quotas.
    let checks = probe::probe_all(&app).await;
    Ok(ok(&StatusView {
        checks: checks.into_iter().map(CheckView::from).collect(),
        quota: probe::quotas(&app.vendors)
            .into_iter()
            .map(QuotaView::from)
            .collect(),
    }))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConfigStatus")]
struct StatusView {
    checks: Vec<CheckView>,
    quota: Vec<QuotaView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConnectionCheck")]
struct CheckView {
    name: Connection,
    status: ProbeStatus,
    detail: String,
}

impl From<ConnectionStatus> for CheckView {
    fn from(check: ConnectionStatus) -> Self {
        Self {
            name: check.connection,
            status: check.result.status,
            detail: check.result.detail,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "VendorQuota")]
struct QuotaView {
    /// Name of the vendor, and of the account if the vendor has several.
    account: String,
    remaining: Option<u64>,
    limit: Option<u64>,
    /// End of the rate limit while one is active, else the next reset of the quota.
    reset_at: Option<Timestamp>,
}

impl From<VendorQuota> for QuotaView {
    fn from(vendor_quota: VendorQuota) -> Self {
        let (account, quota) = (vendor_quota.name(), vendor_quota.quota);
        let limited_until = quota
            .limited_until
            .filter(|_| quota.is_limited(now_millis()));
        Self {
            account,
            remaining: quota.remaining,
            limit: quota.limit,
            reset_at: limited_until.or(quota.reset_at).map(Timestamp::from_millis),
        }
    }
}

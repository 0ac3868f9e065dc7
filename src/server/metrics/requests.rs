//! Requests by route, status and time.
//!
//! A route is counted as it is written here and never as it was asked for, so that nobody can make
//! new series: what is not in the table is `other`.

use std::time::Duration;

use engine::app::{MAX_ROUTES, Metrics};

/// The routes, the busiest first; a segment that begins with a colon stands for any.
pub const ROUTES: &[&str] = &[
    "/runner/progress",
    "/runner/result",
    "/runner/planning-context",
    "/api/repo-host/webhook",
    "/api/ticketing-a/webhook",
    "/api/ticketing-b/webhook",
    "/",
    "/api/token",
    "/api/status",
    "/api/step-report",
    "/trigger/gap-fill",
    "/metrics",
    "/api/events",
    "/api/auth",
    "/api/auth/logout",
    "/api/mappings",
    "/api/mappings/:teamKey",
    "/api/mappings/:teamKey/sync-workflows",
    "/api/mappings/:teamKey/secrets",
    "/api/mappings/:teamKey/secrets/:name",
    "/api/global-secrets",
    "/api/global-secrets/:name",
    "/api/log",
    "/api/jobs/:jobId",
    "/api/jobs/:jobId/steps",
    "/api/jobs/:jobId/patch",
    "/api/issues",
    "/api/pulls",
    "/api/blockers",
    "/api/why/:issue",
    "/api/sessions",
    "/api/sessions/:machineId",
    "/api/reaper/summary",
    "/api/reaper/recent",
    "/api/dedup",
    "/api/dedup/:issueId",
    "/api/parked",
    "/api/parked/unpark",
    "/api/outbox",
    "/api/outbox/:id",
    "/api/outbox/:id/retry",
    "/api/poll",
    "/api/runner-mode",
    "/api/settings",
    "/api/usage",
    "/api/audit",
    "/api/audit/verify",
    "/api/openapi.json",
    "/api/backup",
    "/api/customizations",
    "/api/pipelines-steps",
    "/api/ticketing-b/validate-query",
    "/api/ticketing-b/fields",
    "/api/ticketing-b/field-options",
    "/api/admin/config-status",
    "/api/admin/template-status",
    PANEL,
    OTHER,
];

/// The panel's page and its files.
const PANEL: &str = "/admin";
const OTHER: &str = "other";

const _: () = assert!(ROUTES.len() <= MAX_ROUTES);

/// Counts a request that was answered.
pub fn count(metrics: &Metrics, path: &str, status: u16, took: Duration) {
    metrics.observe_request(index(path), status, took);
}

/// Which route of the table a path belongs to.
fn index(path: &str) -> usize {
    let of = |route: &str| ROUTES.iter().position(|one| *one == route);
    let found = match path.strip_prefix(PANEL) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => of(PANEL),
        _ => ROUTES.iter().position(|route| fits(route, path)),
    };
    found.unwrap_or(ROUTES.len() - 1)
}

/// Whether a path is one of this route; a slash at the end counts for nothing.
fn fits(route: &str, path: &str) -> bool {
    if route == OTHER {
        return false;
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    let route = route.strip_suffix('/').unwrap_or(route);
    let (mut wanted, mut given) = (route.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(want), Some(have)) if want == have => {}
            (Some(want), Some(have)) if want.starts_with(':') && !have.is_empty() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_counted_as_its_route() {
        for (path, route) in [
            ("/", "/"),
            ("/runner/progress", "/runner/progress"),
            ("/runner/progress/", "/runner/progress"),
            ("/api/mappings/ENG", "/api/mappings/:teamKey"),
            (
                "/api/mappings/ENG/secrets/A",
                "/api/mappings/:teamKey/secrets/:name",
            ),
            ("/api/parked/unpark", "/api/parked/unpark"),
            ("/api/outbox/7/retry", "/api/outbox/:id/retry"),
            ("/admin", "/admin"),
            ("/admin/assets/js/main.js", "/admin"),
            ("/administrator", "other"),
            ("/api/mappings/ENG/secrets/A/B", "other"),
            ("/api/why//", "other"),
            ("/other", "other"),
            ("other", "other"),
            ("/.env", "other"),
            ("*", "other"),
        ] {
            assert_eq!(ROUTES[index(path)], route, "{path}");
        }
    }
}

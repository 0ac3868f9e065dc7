//! Request metrics by route, status and duration.
//!
//! Requests are counted under the route patterns of this table, so that clients cannot create new time
//! series. Unknown paths count as `other`.

use std::time::Duration;

use engine::app::{MAX_ROUTES, Metrics};

/// Route patterns, busiest first. A segment that begins with a colon matches any segment.
pub(crate) const ROUTES: &[&str] = &[
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

/// Page and files of the panel.
const PANEL: &str = "/admin";
const OTHER: &str = "other";

const _: () = assert!(ROUTES.len() <= MAX_ROUTES);

/// Records a completed request.
pub(crate) fn count(metrics: &Metrics, path: &str, status: u16, duration: Duration) {
    metrics.observe_request(index(path), status, duration);
}

/// Returns the index of the route that matches a path.
fn index(path: &str) -> usize {
    let index_of = |route: &str| ROUTES.iter().position(|other| *other == route);
    let found = match path.strip_prefix(PANEL) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => index_of(PANEL),
        _ => ROUTES.iter().position(|route| matches(route, path)),
    };
    found.unwrap_or(ROUTES.len() - 1)
}

/// Whether a path matches a route pattern. A trailing slash is ignored.
fn matches(route: &str, path: &str) -> bool {
    if route == OTHER {
        return false;
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    let route = route.strip_suffix('/').unwrap_or(route);
    let (mut patterns, mut segments) = (route.split('/'), path.split('/'));
    loop {
        match (patterns.next(), segments.next()) {
            (None, None) => return true,
            (Some(pattern), Some(segment)) if pattern == segment => {}
            (Some(pattern), Some(segment)) if pattern.starts_with(':') && !segment.is_empty() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_path_under_its_route() {
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

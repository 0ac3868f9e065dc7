//! HTTP server: API, webhooks, metrics and admin panel.
//!
//! This file collects the routes. Each resource has a module named like its path, which declares its
//! routes. Handlers parse the request, call the engine or read the store, and build the response. Business
//! rules are in the crates below; error statuses are in `error` only.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod app_creation;
mod backup;
mod body;
mod body_memory;
mod client_identity;
mod connection_limit;
mod control_socket;
mod egress_proxy;
mod embedded;
mod error;
mod etag;
mod events;
mod file_descriptors;
mod github_app;
mod gzip;
mod health;
mod html_page;
mod listen;
mod metrics;
mod openapi;
mod panel;
mod panel_compaction;
mod repo_host_webhook;
mod routing;
mod run_socket;
mod runner;
mod runner_program;
mod session;
mod session_cookie;
mod socket_file;
mod static_file;
mod tarpit;
mod ticketing_webhooks;
mod trigger;
mod verified_senders;
mod webhook_source;

use engine::app::App;
use routing::{Exposure, Route, Router};

pub use admin::score_columns::ScoreColumn;
pub use admin::scoreboard::{HoursView, ScoreView, ScoreboardView, load as scoreboard};
pub use admin::why::{IssueDecisionView, explain_issue as why};
pub use app_creation::{AppCreationRequest, serve_app_creation};
pub use control_socket::{ControlSocket, control_socket_path as control_socket};
pub use egress_proxy::{EgressSocket, serve_egress};
pub use file_descriptors::raise_descriptor_limit;
pub use listen::{bind, serve, serve_control, serve_runs};
pub use openapi::document;
pub use run_socket::RunSocket;

/// Builds the router of the network listener. The admin API exists only if an access code is set.
fn network_router(app: &App) -> Router {
    Router::new(app, all_routes(), |exposure| match exposure {
        Exposure::Runs | Exposure::Always => true,
        Exposure::AdminApi => app.core.config.admin_access_code.is_some(),
        Exposure::Metrics => app.core.config.metrics.enabled,
        Exposure::ControlSocket => false,
    })
}

/// Builds the router of the control socket: the routes of the network, the admin API even if no access code
/// is set, and the backup.
fn control_router(app: &App) -> Router {
    Router::new(app, all_routes(), |exposure| match exposure {
        Exposure::Runs | Exposure::Always | Exposure::AdminApi | Exposure::ControlSocket => true,
        Exposure::Metrics => app.core.config.metrics.enabled,
    })
}

/// Builds the router of the socket of runs.
fn run_socket_router(app: &App) -> Router {
    Router::new(app, all_routes(), |exposure| exposure == Exposure::Runs)
}

/// All routes, the busiest first.
fn all_routes() -> Vec<Route> {
    let groups = [
        (Exposure::Runs, run_routes()),
        (Exposure::Always, public_routes()),
        (Exposure::Metrics, metrics::routes()),
        (Exposure::AdminApi, admin_routes()),
        (Exposure::ControlSocket, backup::routes()),
        (Exposure::ControlSocket, admin::connections::sealed_routes()),
    ];
    let exposed = groups.into_iter().flat_map(|(exposure, routes)| {
        routes
            .into_iter()
            .map(move |route| route.exposure(exposure))
    });
    exposed.collect()
}

fn run_routes() -> Vec<Route> {
    let groups = [runner::routes(), session::routes()];
    groups.into_iter().flatten().collect()
}

fn public_routes() -> Vec<Route> {
    let groups = [
        runner_program::routes(),
        repo_host_webhook::routes(),
        ticketing_webhooks::routes(),
        health::routes(),
        trigger::routes(),
    ];
    groups.into_iter().flatten().collect()
}

fn admin_routes() -> Vec<Route> {
    let groups = [
        admin::routes(),
        github_app::routes(),
        events::routes(),
        openapi::routes(),
        panel::routes(),
    ];
    groups.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "openapi-generator")]
    #[test]
    fn the_openapi_document_describes_all_routes_but_the_panel_and_those_of_the_control_socket() {
        let undescribed: Vec<&str> = all_routes()
            .iter()
            .filter(|route| route.description.operation.is_none())
            .map(|route| route.pattern.label())
            .collect();
        assert_eq!(
            undescribed,
            ["/admin", "/api/backup", "/api/sealed-connections"]
        );
    }

    /// Without this rule, the answer to a request would depend on the order of the routes.
    #[test]
    fn a_request_matches_one_route() {
        let routes = all_routes();
        for route in &routes {
            let path = route.pattern.label();
            let matching = routes
                .iter()
                .filter(|other| other.method == route.method && other.pattern.matches(path));
            assert_eq!(matching.count(), 1, "{} {path}", route.method);
        }
    }

    #[test]
    fn counts_a_request_under_the_pattern_of_its_path() {
        let routes = all_routes();
        for (path, label) in [
            ("/", Some("/")),
            ("/runner/progress/", Some("/runner/progress")),
            ("/api/mappings/ENG", Some("/api/mappings/:teamKey")),
            (
                "/api/mappings/ENG/secrets/A",
                Some("/api/mappings/:teamKey/secrets/:name"),
            ),
            ("/api/parked/unpark", Some("/api/parked/unpark")),
            ("/api/outbox/7/retry", Some("/api/outbox/:id/retry")),
            ("/admin/assets/js/main.js", Some("/admin")),
            ("/administrator", None),
            ("/api/mappings/ENG/secrets/A/B", None),
            ("/api/why//", None),
            ("/.env", None),
            ("*", None),
        ] {
            let mut patterns = routes.iter().map(|route| route.pattern);
            let found = patterns.find(|pattern| pattern.matches(path));
            assert_eq!(found.map(routing::PathPattern::label), label, "{path}");
        }
    }

    #[test]
    fn the_socket_of_runs_offers_only_these_routes() {
        let routes = all_routes();
        let offered = routes
            .iter()
            .filter(|route| route.exposure == Exposure::Runs);
        let offered: Vec<&str> = offered.map(|route| route.pattern.label()).collect();
        assert_eq!(
            offered,
            [
                "/runner/progress",
                "/runner/log",
                "/runner/evidence",
                "/runner/result",
                "/runner/planning-context",
                "/runner/ticket-context",
                "/runner/attachments/:attachmentId",
                "/api/token",
                "/api/status",
                "/api/step-report",
            ]
        );
    }

    #[test]
    fn only_these_admin_routes_need_no_admin_token() {
        let routes = all_routes();
        let public = routes.iter().filter(|route| {
            let is_open = matches!(route.exposure, Exposure::Runs | Exposure::Always);
            !is_open && route.access != routing::Access::Admin
        });
        let public: Vec<&str> = public.map(|route| route.pattern.label()).collect();
        assert_eq!(
            public,
            ["/metrics", "/api/auth", "/api/openapi.json", "/admin"]
        );
    }
}

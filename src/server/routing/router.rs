//! Router: finds the route of a request and calls its handler.

use std::sync::Arc;

use warp::Filter;
use warp::filters::BoxedFilter;
use warp::http::{HeaderMap, Method};
use warp::path::FullPath;
use warp::reply::{Reply, Response};

use super::path::PathPattern;
use super::request::{Peer, Request};
use super::response::with_default_headers;
use super::{Access, ApiResult, Exposure, Route};
use crate::body::BodyStream;
use crate::client_identity::ClientIdentity;
use crate::error::ApiError;
use crate::etag::Condition;
use crate::gzip;
use crate::webhook_source::WebhookSource;
use engine::app::{App, RouteMetrics};
use store::crash_injection::CrashPoint;

/// Routes of one listener by path.
pub(crate) struct Router {
    app: App,
    paths: Vec<RoutedPath>,
    unknown: Arc<RouteMetrics>,
}

/// Path with the routes of its methods.
struct RoutedPath {
    pattern: PathPattern,
    /// Whether the listener offers the path. Requests are counted in any case.
    is_offered: bool,
    routes: Vec<Route>,
    metrics: Arc<RouteMetrics>,
}

impl RoutedPath {
    fn has(&self, method: &Method) -> bool {
        self.routes.iter().any(|route| route.method == *method)
    }
}

/// Number of a path in a router.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathNumber(usize);

/// What the listener knows about a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOrigin {
    /// Remote end of the connection.
    pub peer: Peer,
    /// Client that the request counts for.
    pub client: ClientIdentity,
    /// Path that the request matches; `None` if it is unknown.
    pub path: Option<PathNumber>,
}

/// Paths to which runs report their progress.
const PROGRESS_PATHS: [&str; 3] = ["/runner/progress", "/runner/log", "/api/step-report"];

impl Router {
    /// Builds the router of a listener, which offers the routes that `is_offered` selects.
    pub(crate) fn new(
        app: &App,
        routes: Vec<Route>,
        is_offered: impl Fn(Exposure) -> bool,
    ) -> Self {
        let mut paths: Vec<RoutedPath> = Vec::new();
        for route in routes {
            let known = paths.iter_mut().find(|path| path.pattern == route.pattern);
            match known {
                Some(path) => path.routes.push(route),
                None => paths.push(RoutedPath {
                    pattern: route.pattern,
                    is_offered: is_offered(route.exposure),
                    metrics: app.live.metrics.route(route.pattern.label()),
                    routes: vec![route],
                }),
            }
        }
        Self {
            app: app.clone(),
            paths,
            unknown: app.live.metrics.route("other"),
        }
    }

    /// Application state.
    pub(crate) fn app(&self) -> &App {
        &self.app
    }

    /// Finds the path that a request matches: the one that supports the method, if several have the pattern. For
    /// example, `/api/mappings/check` is a path of its own for `POST`, and a team key for other methods.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<PathNumber> {
        let mut matching = self.matching(path);
        let supports = |number: &usize| self.paths[*number].has(method);
        let number = matching.clone().find(supports);
        number.or_else(|| matching.next()).map(PathNumber)
    }

    fn matching(&self, path: &str) -> impl Iterator<Item = usize> + Clone {
        let paths = self.paths.iter().enumerate();
        let matching = paths.filter(move |(_, one)| one.pattern.matches(path));
        matching.map(|(number, _)| number)
    }

    /// Returns the sender of the webhooks of a path.
    pub(crate) fn webhook_source(&self, path: PathNumber) -> Option<WebhookSource> {
        let mut routes = self.paths[path.0].routes.iter();
        routes.find_map(|route| match route.access {
            Access::Webhook(source) => Some(source),
            _ => None,
        })
    }

    /// Whether a successful response to this method acknowledges a change that must not be lost with the machine.
    /// Progress of runs is frequent, and only shown.
    pub(crate) fn acknowledges_change(&self, path: PathNumber, method: &Method) -> bool {
        let label = self.paths[path.0].pattern.label();
        *method != Method::GET && !PROGRESS_PATHS.contains(&label)
    }

    /// Returns the metrics of a path. All unknown paths share one entry, so that clients cannot create time
    /// series.
    pub(crate) fn metrics(&self, path: Option<PathNumber>) -> &RouteMetrics {
        path.map_or(&self.unknown, |path| &self.paths[path.0].metrics)
    }

    /// Builds the warp filter that answers all requests. The listener must add a [`RequestOrigin`] to the
    /// extensions of each request.
    pub(crate) fn into_filter(self: Arc<Self>) -> BoxedFilter<(Response,)> {
        let no_query = warp::any().map(String::new);
        warp::method()
            .and(warp::path::full())
            .and(warp::query::raw().or(no_query).unify())
            .and(warp::header::headers_cloned())
            .and(warp::ext::get::<RequestOrigin>())
            .and(warp::body::stream())
            .then(
                move |method: Method,
                      path: FullPath,
                      query: String,
                      headers: HeaderMap,
                      origin: RequestOrigin,
                      body| {
                    let router = Arc::clone(&self);
                    let accepts_gzip = gzip::is_accepted(&headers);
                    let condition = Condition::of(&method, &headers);
                    let request = Request {
                        app: router.app.latest(),
                        peer: origin.peer,
                        client: origin.client,
                        method,
                        headers,
                        query,
                        params: Vec::new().into_iter(),
                        claims: None,
                        body: bytes::Bytes::new(),
                        unread_body: BodyStream::new(body),
                    };
                    async move {
                        let answer = router.answer(origin.path, path.as_str(), request);
                        let response = answer.await.unwrap_or_else(Reply::into_response);
                        let response = condition.apply(response).await;
                        with_default_headers(gzip::compress_json(response, accepts_gzip).await)
                    }
                },
            )
            .boxed()
    }

    async fn answer(
        &self,
        number: Option<PathNumber>,
        path: &str,
        mut request: Request,
    ) -> ApiResult {
        let found = number.map(|number| &self.paths[number.0]);
        let found = found.filter(|path| path.is_offered);
        let found = found.ok_or_else(ApiError::not_found)?;
        let params = found.pattern.params(path);
        request.params = params.ok_or_else(ApiError::not_found)?.into_iter();
        let mut routes = found.routes.iter();
        match routes.find(|route| route.method == request.method) {
            Some(route) => self.call(route, request).await,
            None => {
                let routes = self
                    .matching(path)
                    .flat_map(|number| &self.paths[number].routes);
                let allowed: Vec<Method> = routes.map(|route| route.method.clone()).collect();
                Err(ApiError::method_not_allowed(&allowed))
            }
        }
    }

    async fn call(&self, route: &Route, mut request: Request) -> ApiResult {
        route.access.check_head(&mut request)?;
        if let Some(limit) = route.body_limit {
            request.read_body(limit).await?;
            route.access.check_body(&request)?;
        }
        let response = (route.handler)(&mut request)?.await?;
        if route.exposure == Exposure::AdminApi && route.method != Method::GET {
            self.app
                .core
                .crash_plan
                .crash_if_planned(CrashPoint::AdminChangeStored);
        }
        Ok(response)
    }
}

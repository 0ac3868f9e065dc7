//! Routes: declared once with method, path, access and handler.
//!
//! From the declarations come the [`Router`] with its responses 404 and 405, the route label of the request
//! metrics, and the path items of the OpenAPI document.

mod access;
mod description;
mod path;
mod request;
mod response;
mod router;

use std::io;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use warp::http::Method;
use warp::reply::Response;

pub(crate) use super::body::{MAX_BODY, MAX_WEBHOOK_BODY};
use super::error::{AdminApiError, ApiError};
pub(crate) use access::{Access, AdminCredential, is_admin, record_job_id, verify_run_token};
pub(crate) use description::RouteDescription;
#[cfg(feature = "openapi-generator")]
pub(crate) use description::SchemaOf;
pub(crate) use path::{PathPattern, PathSegment};
pub(crate) use request::{
    Authorization, FromRequest, Handler, Peer, QueryPairs, QueryParams, RawQuery, Request,
    parse_json,
};
pub(crate) use response::{
    accepted, allow_forms_to, attachment, binary, json_text, ok, plain_text, with_default_headers,
};
pub(crate) use router::{RequestOrigin, Router};

/// Result of a handler.
pub(crate) type ApiResult = Result<Response, ApiError>;

type BoxedHandler =
    Box<dyn Fn(&mut Request) -> Result<BoxFuture<'static, ApiResult>, ApiError> + Send + Sync>;

/// Condition under which a listener offers a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// Every listener offers it: the routes of runs.
    Runs,
    /// Every listener but the socket of runs offers it.
    Always,
    /// The network offers it if an access code is set; the control socket always does.
    AdminApi,
    /// Every listener but the socket of runs offers it if metrics are enabled.
    Metrics,
    /// Only the control socket offers it.
    ControlSocket,
}

/// Method of a path, with its handler.
pub(crate) struct Route {
    pub method: Method,
    pub pattern: PathPattern,
    pub access: Access,
    pub exposure: Exposure,
    /// Maximum size of the body, in bytes; `None` if it is not read.
    pub body_limit: Option<usize>,
    /// What the OpenAPI document says about it.
    pub description: RouteDescription,
    handler: BoxedHandler,
}

impl Route {
    /// Declares a route of the admin API without a body. It requires an admin token.
    fn new<Args>(
        method: Method,
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<Args>,
    ) -> Self {
        Self {
            method,
            pattern: PathPattern::new(path),
            access: Access::Admin,
            exposure: Exposure::AdminApi,
            body_limit: None,
            description: RouteDescription::of(operation),
            handler: Box::new(move |request| handler.call(request)),
        }
    }

    /// Declares `GET path` of the admin API.
    pub(crate) fn get<Args>(
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<Args>,
    ) -> Self {
        Self::new(Method::GET, path, operation, handler)
    }

    /// Declares `POST path` of the admin API.
    pub(crate) fn post<Args>(
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<Args>,
    ) -> Self {
        Self::new(Method::POST, path, operation, handler)
    }

    /// Declares `PATCH path` of the admin API.
    pub(crate) fn patch<Args>(
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<Args>,
    ) -> Self {
        Self::new(Method::PATCH, path, operation, handler)
    }

    /// Declares `DELETE path` of the admin API.
    pub(crate) fn delete<Args>(
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<Args>,
    ) -> Self {
        Self::new(Method::DELETE, path, operation, handler)
    }

    /// Sets the credential that the route requires.
    pub(crate) fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Sets when the route is offered.
    pub(crate) fn exposure(self, exposure: Exposure) -> Self {
        Self { exposure, ..self }
    }

    /// Lets the route read a body of at most [`MAX_BODY`] bytes.
    pub(crate) fn body(self) -> Self {
        self.body_of(MAX_BODY)
    }

    /// Lets the route read a body of at most `limit` bytes.
    pub(crate) fn body_of(self, limit: usize) -> Self {
        let body_limit = Some(limit);
        Self { body_limit, ..self }
    }

    /// Describes a successful response by its type.
    pub(crate) fn returns<T: JsonSchema>(mut self) -> Self {
        self.description.set_response::<T>();
        self
    }

    /// Derives the schema of a type that the description of the operation refers to.
    pub(crate) fn mentions<T: JsonSchema>(mut self) -> Self {
        self.description.mention::<T>();
        self
    }

    /// Leaves the route out of the OpenAPI document.
    pub(crate) fn undescribed(mut self) -> Self {
        self.description.remove();
        self
    }
}

/// Runs file operations on a blocking thread. `path` is included in the error text.
///
/// # Errors
/// When the operation fails or panics.
pub(crate) async fn run_blocking<T: Send + 'static>(
    path: &str,
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let result = tasks::spawn_blocking(operation).await;
    let result = result.map_err(|_| ApiError::internal())?;
    result.map_err(|error| AdminApiError::FilesUnreadable(format!("{path}: {error}")).into())
}

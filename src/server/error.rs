//! Error responses of the HTTP API. Error statuses are defined in this file only.
//!
//! `/runner/*` and `/trigger/*` respond with slugs ([`RunnerApiError`], [`TriggerApiError`]), `/api/*` with
//! sentences ([`WebhookApiError`], [`AdminApiError`]). See docs/behaviour.md#errors.

mod admin;
mod page;

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use warp::http::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use warp::http::{Method, StatusCode};
use warp::reply::{Reply, Response};

use domain::crypto::run_token::RunTokenError;
use domain::report::{ResultReportError, StepRecordError};
use domain::run_log::LogReportError;
use engine::conversation::context::AttachmentError;
use engine::evidence::EvidenceError;
use engine::pull_requests::gap_fill::GapFillError;
use engine::run_reports::ReportError;
use store::StoreError;
use vendors::scm::webhook::WebhookError;

pub(crate) use admin::AdminApiError;
pub(crate) use page::error_page;

/// Error response. Boxed to keep `Result<Response, ApiError>` small.
#[derive(Debug, Clone)]
pub(crate) struct ApiError(Box<ErrorResponse>);

#[derive(Debug, Clone)]
struct ErrorResponse {
    status: StatusCode,
    body: Map<String, Value>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl ApiError {
    fn new(status: StatusCode, error: impl Into<Cow<'static, str>>) -> Self {
        let mut body = Map::new();
        body.insert("error".to_owned(), Value::from(error.into()));
        Self::with_body(status, body)
    }

    fn with_body(status: StatusCode, body: Map<String, Value>) -> Self {
        Self(Box::new(ErrorResponse {
            status,
            body,
            header: None,
        }))
    }

    /// Adds a field to the body.
    fn with(mut self, name: &str, value: Value) -> Self {
        self.0.body.insert(name.to_owned(), value);
        self
    }

    fn with_header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.0.header = Some((name, value.into()));
        self
    }

    /// 404 for an unknown path.
    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not found")
    }

    /// 405 with the methods that the path supports.
    pub(crate) fn method_not_allowed(allowed: &[Method]) -> Self {
        let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
        let error = Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed");
        match HeaderValue::from_str(&names.join(", ")) {
            Ok(names) => error.with_header(ALLOW, names),
            Err(_) => error,
        }
    }

    /// 413 for a body above the limit of its route.
    pub(crate) fn body_too_large(limit: usize) -> Self {
        let error = format!("Request body is larger than {} KiB", limit >> 10);
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    }

    /// 408 for a body that did not arrive in time.
    pub(crate) fn body_timeout() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "Request body took too long to arrive",
        )
    }

    /// 429 for a body that was not granted memory.
    pub(crate) fn too_many_large_bodies() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many large request bodies at once",
        )
        .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
    }

    /// 400 for a body that ended before its announced length.
    pub(crate) fn incomplete_body() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Request body ended early")
    }

    /// 503 of the health check, with the reasons in `state`.
    pub(crate) fn degraded(state: Map<String, Value>) -> Self {
        Self::with_body(StatusCode::SERVICE_UNAVAILABLE, state)
    }

    /// 503 for a change that another machine would not have if it took over now.
    pub(crate) fn not_in_standby() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "The change is not in the place of the standby yet",
        )
    }

    /// 502 with the error of a vendor.
    pub(crate) fn bad_gateway(cause: String) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, cause)
    }

    /// 500 for an internal error. Details are logged, not returned.
    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error")
    }
}

impl Reply for ApiError {
    fn into_response(self) -> Response {
        let mut response = warp::reply::json(&self.0.body).into_response();
        *response.status_mut() = self.0.status;
        if let Some((name, value)) = self.0.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "Store error during a request.");
        let message = match error {
            StoreError::DiskFull(_) => "The disk of the service is full",
            _ => "The store is not available",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

/// Whether a client takes this answer to a change as its receipt. 409: the change was received before.
pub(crate) fn is_acknowledgement(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::CONFLICT
}

/// Error of `/runner/*`, returned as a slug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunnerApiError {
    /// `RUNNER_TOKEN_SECRET` is not set.
    NotConfigured,
    /// The bearer token is missing.
    MissingBearer,
    /// The run token is invalid.
    Token(RunTokenError),
    /// The body is not a JSON object.
    InvalidBody,
    /// A field of the result is invalid.
    Result(ResultReportError),
    /// A field of the step is invalid.
    Step(StepRecordError),
    /// A field of the part of a log is invalid.
    Log(LogReportError),
    /// The phase of the result differs from the phase of the token.
    PhaseMismatch,
    /// A successful implementation has no URL of a pull request.
    MissingPrUrl,
    /// The run has already reported its result.
    AlreadyConsumed,
    /// No job matches the token.
    JobNotFound,
    /// The target of a program is missing or no target.
    InvalidTarget,
    /// The service has no program for the target.
    UnknownTarget,
    /// The maximum number of programs is being downloaded.
    TooManyDownloads,
    /// The ticket has no such attachment.
    NoAttachment,
    /// The attachment is neither an image nor a text, for this reason.
    UnreadableAttachment(&'static str),
    /// The ticketing system did not answer, for this reason.
    TicketUnread(String),
    /// The body is no report of evidence.
    InvalidEvidence,
    /// Evidence is not kept, for the reason with this slug.
    EvidenceNotKept(&'static str),
}

impl From<AttachmentError> for ApiError {
    fn from(error: AttachmentError) -> Self {
        match error {
            AttachmentError::NotFound => RunnerApiError::NoAttachment.into(),
            AttachmentError::Unreadable(reason) => {
                RunnerApiError::UnreadableAttachment(reason).into()
            }
            AttachmentError::Unanswered(reason) => RunnerApiError::TicketUnread(reason).into(),
        }
    }
}

impl From<RunnerApiError> for ApiError {
    fn from(error: RunnerApiError) -> Self {
        use StatusCode as S;
        let (status, slug) = match error {
            RunnerApiError::NotConfigured => (S::NOT_IMPLEMENTED, "Runner callback not configured"),
            RunnerApiError::MissingBearer => (S::UNAUTHORIZED, "missing_bearer"),
            RunnerApiError::Token(error) => (S::UNAUTHORIZED, error.slug()),
            RunnerApiError::InvalidBody => (S::BAD_REQUEST, "invalid_body"),
            RunnerApiError::Result(error) => (S::BAD_REQUEST, error.slug()),
            RunnerApiError::Step(StepRecordError::NotAnObject) => (S::BAD_REQUEST, "step_required"),
            RunnerApiError::Step(StepRecordError::Field(name)) => {
                return Self::new(S::BAD_REQUEST, format!("invalid_step_{name}"));
            }
            RunnerApiError::Log(error) => (S::BAD_REQUEST, error.slug()),
            RunnerApiError::PhaseMismatch => (S::BAD_REQUEST, "phase_mismatch"),
            RunnerApiError::MissingPrUrl => (S::BAD_REQUEST, "missing_prUrl"),
            RunnerApiError::AlreadyConsumed => (S::CONFLICT, "already_consumed"),
            RunnerApiError::JobNotFound => (S::NOT_FOUND, "job_not_found"),
            RunnerApiError::InvalidTarget => (S::BAD_REQUEST, "invalid_target"),
            RunnerApiError::UnknownTarget => (S::NOT_FOUND, "unknown_target"),
            RunnerApiError::TooManyDownloads => (S::TOO_MANY_REQUESTS, "too_many_downloads"),
            RunnerApiError::NoAttachment => (S::NOT_FOUND, "unknown_attachment"),
            RunnerApiError::UnreadableAttachment(reason) => (S::UNPROCESSABLE_ENTITY, reason),
            RunnerApiError::InvalidEvidence => (S::BAD_REQUEST, "invalid_evidence"),
            RunnerApiError::EvidenceNotKept(slug) => (S::CONFLICT, slug),
            RunnerApiError::TicketUnread(reason) => {
                return Self::new(S::SERVICE_UNAVAILABLE, reason);
            }
        };
        let error = Self::new(status, slug);
        match status {
            S::UNAUTHORIZED => {
                error.with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
            }
            S::TOO_MANY_REQUESTS => error.with_header(RETRY_AFTER, HeaderValue::from_static("5")),
            _ => error,
        }
    }
}

impl From<EvidenceError> for ApiError {
    fn from(error: EvidenceError) -> Self {
        match error {
            EvidenceError::UnknownJob => RunnerApiError::JobNotFound.into(),
            EvidenceError::Report(_) => RunnerApiError::InvalidEvidence.into(),
            EvidenceError::Ended => RunnerApiError::EvidenceNotKept("run_ended").into(),
            EvidenceError::TooMany => RunnerApiError::EvidenceNotKept("too_many_reports").into(),
            EvidenceError::NotKept => RunnerApiError::EvidenceNotKept("not_kept").into(),
            EvidenceError::Store(error) => error.into(),
        }
    }
}

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::UnknownJob => RunnerApiError::JobNotFound.into(),
            ReportError::AlreadyReported => RunnerApiError::AlreadyConsumed.into(),
            ReportError::InvalidResult(error) => RunnerApiError::Result(error).into(),
            ReportError::PhaseMismatch => RunnerApiError::PhaseMismatch.into(),
            ReportError::MissingPrUrl => RunnerApiError::MissingPrUrl.into(),
            ReportError::Store(error) => error.into(),
        }
    }
}

/// Error of `/trigger/gap-fill` before the request reaches the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TriggerApiError {
    /// `GAP_FILL_TRIGGER_SECRET` is not set.
    NotConfigured,
    /// The bearer token is missing or wrong.
    Unauthorized,
    /// A field of the body is missing or invalid.
    InvalidBody,
}

impl From<TriggerApiError> for ApiError {
    fn from(error: TriggerApiError) -> Self {
        use StatusCode as S;
        match error {
            TriggerApiError::NotConfigured => {
                Self::new(S::NOT_IMPLEMENTED, "Gap fill trigger not configured")
            }
            TriggerApiError::Unauthorized => Self::new(S::UNAUTHORIZED, "unauthorized")
                .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            TriggerApiError::InvalidBody => Self::new(
                S::BAD_REQUEST,
                "issueKey and positive integer prNumber required",
            ),
        }
    }
}

impl From<GapFillError> for ApiError {
    fn from(error: GapFillError) -> Self {
        use StatusCode as S;
        match error {
            GapFillError::NotFound => Self::new(S::NOT_FOUND, "mapping_not_found"),
            GapFillError::Paused(team) => {
                Self::new(S::LOCKED, "project_paused").with("teamKey", json!(team))
            }
            GapFillError::NotDispatched { detail, status } => {
                Self::new(S::BAD_GATEWAY, "dispatch_failed")
                    .with("detail", json!(detail))
                    .with("dispatchStatus", json!(status))
            }
            GapFillError::Store(error) => error.into(),
        }
    }
}

/// Error of a webhook route, returned as a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookApiError {
    /// The webhook secret is not set.
    NotConfigured,
    /// The signature is missing, wrong or too old.
    InvalidSignature,
    /// The payload is not a JSON object.
    InvalidPayload,
    /// A merged pull request lacks a required field.
    MissingPullFields,
}

impl From<WebhookApiError> for ApiError {
    fn from(error: WebhookApiError) -> Self {
        use StatusCode as S;
        let (status, sentence) = match error {
            WebhookApiError::NotConfigured => (S::SERVICE_UNAVAILABLE, "Webhook not configured"),
            WebhookApiError::InvalidSignature => (S::UNAUTHORIZED, "Invalid signature"),
            WebhookApiError::InvalidPayload => (S::BAD_REQUEST, "Invalid JSON payload"),
            WebhookApiError::MissingPullFields => (S::BAD_REQUEST, "Missing required PR fields"),
        };
        Self::new(status, sentence)
    }
}

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::MissingPullFields => WebhookApiError::MissingPullFields.into(),
        }
    }
}

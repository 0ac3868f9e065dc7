//! Every error that leaves over HTTP. Error statuses stand in this file only.
//!
//! `/runner/*` and `/trigger/*` speak in slugs ([`RunnerFault`], [`TriggerFault`]), `/api/*` in
//! sentences ([`AdminFault`]); they are the tables of the spec, row by row. (spec: *Errors*)

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use serde_json::{Map, Value, json};
use warp::http::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use warp::http::{Method, StatusCode};
use warp::reject::{Reject, Rejection};
use warp::reply::{Reply, Response};

use domain::crypto::run_token::RunTokenError;
use domain::mapping::MappingError;
use domain::report::{ResultReportError, StepRecordError};
use domain::runner_mode::{self, RunnerMode};
use domain::session_event::SessionEventError;
use domain::session_secrets::SecretNameError;
use engine::gap_fill::GapFillError;
use engine::outbox_admin::OutboxError;
use engine::run_reports::ReportError;
use engine::workflow_sync::SyncError;
use store::StoreError;
use vendors::scm::webhook::WebhookError;

/// A reply that is not a success. Boxed, so that a success is not as large as an error.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Fault>);

#[derive(Debug, Clone)]
struct Fault {
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
        Self(Box::new(Fault {
            status,
            body,
            header: None,
        }))
    }

    /// With another field beside the error.
    fn with(mut self, name: &str, value: Value) -> Self {
        self.0.body.insert(name.to_owned(), value);
        self
    }

    fn with_header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.0.header = Some((name, value.into()));
        self
    }

    /// No such path.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not found")
    }

    /// A path that is known, asked in a way that it is not.
    pub fn method_not_allowed(allowed: &[Method]) -> Self {
        let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
        let error = Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed");
        match HeaderValue::from_str(&names.join(", ")) {
            Ok(names) => error.with_header(ALLOW, names),
            Err(_) => error,
        }
    }

    /// A body beyond its route's limit.
    pub fn body_too_large(limit: usize) -> Self {
        let error = format!("Request body is larger than {} KiB", limit >> 10);
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    }

    /// A body that did not come to its end in time.
    pub fn body_timeout() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "Request body took too long to arrive",
        )
    }

    /// A body for which there is no room, now that others hold less than its sender.
    pub fn too_many_large_bodies() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many large request bodies at once",
        )
        .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
    }

    /// A body that broke off.
    pub fn incomplete_body() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "Request body ended early")
    }

    /// The service runs and cannot do its work.
    pub fn degraded(state: Map<String, Value>) -> Self {
        Self::with_body(StatusCode::SERVICE_UNAVAILABLE, state)
    }

    /// A vendor did not give what the answer needs; `cause` is what it said instead.
    pub fn bad_gateway(cause: String) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, cause)
    }

    /// A fault of ours that no caller can mend.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error")
    }

    fn from_rejection(rejection: &Rejection) -> Self {
        if let Some(ApiRejection(error)) = rejection.find() {
            error.clone()
        } else if rejection.is_not_found() {
            Self::not_found()
        } else {
            tracing::error!(?rejection, "A request was rejected for no known reason.");
            Self::internal()
        }
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
        tracing::error!(%error, "A request could not be stored or read.");
        let told = match error {
            StoreError::DiskFull(_) => "The disk of the service is full",
            _ => "The store is not available",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, told)
    }
}

/// An error found while routing: its request is refused whatever other routes say.
#[derive(Debug)]
pub struct ApiRejection(pub ApiError);

impl Reject for ApiRejection {}

impl From<ApiError> for Rejection {
    fn from(error: ApiError) -> Self {
        warp::reject::custom(ApiRejection(error))
    }
}

/// The one place where a rejection becomes a reply.
///
/// # Errors
/// Never.
pub async fn recover(rejection: Rejection) -> Result<Response, Infallible> {
    Ok(ApiError::from_rejection(&rejection).into_response())
}

/// Why a run is refused, in slugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerApiError {
    NotConfigured,
    MissingBearer,
    Token(RunTokenError),
    InvalidBody,
    Result(ResultReportError),
    Step(StepRecordError),
    PhaseMismatch,
    MissingPrUrl,
    AlreadyConsumed,
    JobNotFound,
}

impl From<RunnerApiError> for ApiError {
    fn from(fault: RunnerApiError) -> Self {
        use StatusCode as S;
        let (status, slug) = match fault {
            RunnerApiError::NotConfigured => (S::NOT_IMPLEMENTED, "Runner callback not configured"),
            RunnerApiError::MissingBearer => (S::UNAUTHORIZED, "missing_bearer"),
            RunnerApiError::Token(error) => (S::UNAUTHORIZED, error.slug()),
            RunnerApiError::InvalidBody => (S::BAD_REQUEST, "invalid_body"),
            RunnerApiError::Result(error) => (S::BAD_REQUEST, error.slug()),
            RunnerApiError::Step(StepRecordError::NotAnObject) => (S::BAD_REQUEST, "step_required"),
            RunnerApiError::Step(StepRecordError::Field(name)) => {
                return Self::new(S::BAD_REQUEST, format!("invalid_step_{name}"));
            }
            RunnerApiError::PhaseMismatch => (S::BAD_REQUEST, "phase_mismatch"),
            RunnerApiError::MissingPrUrl => (S::BAD_REQUEST, "missing_prUrl"),
            RunnerApiError::AlreadyConsumed => (S::CONFLICT, "already_consumed"),
            RunnerApiError::JobNotFound => (S::NOT_FOUND, "job_not_found"),
        };
        let error = Self::new(status, slug);
        if status == S::UNAUTHORIZED {
            error.with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
        } else {
            error
        }
    }
}

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::UnknownJob => RunnerApiError::JobNotFound.into(),
            ReportError::AlreadyReported => RunnerApiError::AlreadyConsumed.into(),
            ReportError::Store(error) => error.into(),
        }
    }
}

/// Why the trigger of a run is refused before anybody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerApiError {
    NotConfigured,
    Unauthorized,
    InvalidBody,
}

impl From<TriggerApiError> for ApiError {
    fn from(fault: TriggerApiError) -> Self {
        use StatusCode as S;
        match fault {
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

/// Why a webhook of the repository host is refused, in sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookApiError {
    NotConfigured,
    InvalidSignature,
    InvalidPayload,
    MissingPullFields,
}

impl From<WebhookApiError> for ApiError {
    fn from(fault: WebhookApiError) -> Self {
        use StatusCode as S;
        let (status, sentence) = match fault {
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

/// Why an administrator, or a session, is refused, in sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminApiError {
    Unauthorized,
    InvalidBody,
    InvalidAccessCode,
    /// Too many wrong codes; how long to wait.
    TooManyAttempts(Duration),
    /// As many watch as can.
    TooManyEventStreams,
    TeamNotFound,
    NothingDeleted,
    JobNotFound,
    NoPatch,
    IssueNotFound,
    IssueIdRequired,
    NonceAndOwnerRequired,
    NonceRequired,
    InvalidNonce,
    Event(SessionEventError),
    Step(StepRecordError),
    OwnerMismatch,
    TokenIssueFailed,
    JqlRequired,
    InvalidJson,
    FieldIdRequired,
    /// What the ticketing system says against a query or a configuration.
    TicketingRejected(Vec<String>),
    JiraNotConfigured,
    /// What a vendor said when we could not do what was asked.
    Vendor(String),
    /// A host of sessions that gave no answer, and why.
    HostUnreachable(String),
    /// Why some sessions could not be listed, and those that could.
    SessionsIncomplete {
        is_host_unreachable: bool,
        reason: String,
        sessions: Value,
    },
    InvalidMode,
    /// The mode was stored and the environment's is in force.
    ModeOverridden(RunnerMode),
    SessionsNotConfigured,
    NameAndValueRequired,
    /// A rule that a secret or a setting breaks.
    Invalid(String),
    SecretNotFound,
    /// What the system said to a look at the operator's own files.
    FilesUnreadable(String),
}

impl From<AdminApiError> for ApiError {
    fn from(fault: AdminApiError) -> Self {
        use StatusCode as S;
        let (status, sentence) = match fault {
            AdminApiError::Unauthorized => {
                return Self::new(S::UNAUTHORIZED, "Unauthorized")
                    .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            AdminApiError::InvalidBody => (S::BAD_REQUEST, "Invalid request body"),
            AdminApiError::InvalidAccessCode => (S::FORBIDDEN, "Invalid access code"),
            AdminApiError::TooManyAttempts(wait) => {
                // Rounded up: asking again at the second named must work.
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                return Self::new(
                    S::TOO_MANY_REQUESTS,
                    "Too many wrong access codes. Try again later.",
                )
                .with_header(RETRY_AFTER, seconds.max(1));
            }
            AdminApiError::TooManyEventStreams => {
                return Self::new(S::TOO_MANY_REQUESTS, "Too many event streams are open")
                    .with_header(RETRY_AFTER, HeaderValue::from_static("15"));
            }
            AdminApiError::TeamNotFound => (S::NOT_FOUND, "Team not found"),
            AdminApiError::NothingDeleted => {
                let body = Map::from_iter([("deleted".to_owned(), json!(false))]);
                return Self::with_body(S::NOT_FOUND, body);
            }
            AdminApiError::IssueIdRequired => (S::BAD_REQUEST, "issueId is required"),
            AdminApiError::JobNotFound => (S::NOT_FOUND, "job not found"),
            AdminApiError::NoPatch => (S::NOT_FOUND, "no patch"),
            AdminApiError::IssueNotFound => (S::NOT_FOUND, "issue not found"),
            AdminApiError::NonceAndOwnerRequired => {
                (S::BAD_REQUEST, "nonce and owner are required")
            }
            AdminApiError::NonceRequired => (S::BAD_REQUEST, "nonce is required"),
            AdminApiError::Event(SessionEventError::EventRequired) => {
                (S::BAD_REQUEST, "event is required")
            }
            AdminApiError::Event(SessionEventError::Unknown(event)) => {
                return Self::new(S::BAD_REQUEST, format!("Unknown event type: {event}"));
            }
            AdminApiError::Event(SessionEventError::PullRequired) => (
                S::BAD_REQUEST,
                "prNumber and prUrl of one pull request are required",
            ),
            AdminApiError::Step(StepRecordError::NotAnObject) => {
                (S::BAD_REQUEST, "step is required")
            }
            AdminApiError::Step(StepRecordError::Field(name)) => {
                let sentence = format!("step.{name} is required and must be a string");
                return Self::new(S::BAD_REQUEST, sentence);
            }
            AdminApiError::InvalidNonce => (S::FORBIDDEN, "Invalid or expired nonce"),
            AdminApiError::OwnerMismatch => (S::FORBIDDEN, "Owner mismatch"),
            AdminApiError::JqlRequired => (S::BAD_REQUEST, "jql field required"),
            AdminApiError::InvalidJson => (S::BAD_REQUEST, "Invalid JSON body"),
            AdminApiError::FieldIdRequired => (S::BAD_REQUEST, "fieldId query param required"),
            AdminApiError::TicketingRejected(problems) => {
                return Self::new(S::BAD_REQUEST, problems.join("; "));
            }
            AdminApiError::JiraNotConfigured => (S::NOT_IMPLEMENTED, "Ticketing-B not configured"),
            AdminApiError::Vendor(message) | AdminApiError::FilesUnreadable(message) => {
                return Self::new(S::INTERNAL_SERVER_ERROR, message);
            }
            AdminApiError::HostUnreachable(reason) => {
                return Self::new(S::SERVICE_UNAVAILABLE, reason);
            }
            AdminApiError::SessionsIncomplete {
                is_host_unreachable: unanswered,
                reason,
                sessions,
            } => {
                let status = match unanswered {
                    true => S::SERVICE_UNAVAILABLE,
                    false => S::INTERNAL_SERVER_ERROR,
                };
                return Self::new(status, reason).with("sessions", sessions);
            }
            AdminApiError::TokenIssueFailed => {
                (S::INTERNAL_SERVER_ERROR, "Failed to generate token")
            }
            AdminApiError::InvalidMode => (S::BAD_REQUEST, runner_mode::INVALID_MODE_MESSAGE),
            AdminApiError::ModeOverridden(mode) => {
                let sentence = "RUNNER_MODE env var is set; persisted to DB but has no effect at runtime until the env var is unset";
                return Self::new(S::CONFLICT, sentence)
                    .with("persisted", json!(true))
                    .with("mode", json!(mode.as_str()))
                    .with("source", json!("env"));
            }
            AdminApiError::SessionsNotConfigured => {
                (S::SERVICE_UNAVAILABLE, "Fly sessions config not set")
            }
            AdminApiError::NameAndValueRequired => (S::BAD_REQUEST, "name and value are required"),
            AdminApiError::Invalid(rule) => return Self::new(S::BAD_REQUEST, rule),
            AdminApiError::SecretNotFound => (S::NOT_FOUND, "Secret not found"),
        };
        Self::new(status, sentence)
    }
}

impl From<SecretNameError> for ApiError {
    fn from(error: SecretNameError) -> Self {
        AdminApiError::Invalid(error.to_string()).into()
    }
}

impl From<SyncError> for ApiError {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::NoTeam => AdminApiError::TeamNotFound.into(),
            SyncError::Failed(why) => AdminApiError::Vendor(why).into(),
            SyncError::Store(error) => error.into(),
        }
    }
}

impl From<OutboxError> for ApiError {
    fn from(error: OutboxError) -> Self {
        use StatusCode as S;
        let (status, sentence) = match error {
            OutboxError::NotFound => (S::NOT_FOUND, "effect not found"),
            OutboxError::Outdated => (
                S::CONFLICT,
                "A later run has set this anew since; it can only be dropped",
            ),
            OutboxError::InProgress => (S::CONFLICT, "It is being tried right now; drop it later"),
            OutboxError::Store(error) => return error.into(),
        };
        Self::new(status, sentence)
    }
}

impl From<MappingError> for ApiError {
    fn from(error: MappingError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

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

use domain::keys::run_token::TokenError;
use domain::mapping::MappingError;
use domain::report::{ResultError, StepError};
use domain::runner_mode::{self, RunnerMode};
use domain::secrets::SecretNameError;
use domain::session_event::SessionEventError;
use engine::errands::ErrandError;
use engine::gap_fill::GapFillError;
use engine::report::ReportError;
use engine::sync::SyncError;
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
    pub fn too_large(limit: usize) -> Self {
        let error = format!("Request body is larger than {} KiB", limit >> 10);
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    }

    /// A body that did not come to its end in time.
    pub fn too_slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "Request body took too long to arrive",
        )
    }

    /// A body for which there is no room, now that others hold less than its sender.
    pub fn crowded() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many large request bodies at once",
        )
        .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
    }

    /// A body that broke off.
    pub fn cut_off() -> Self {
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
        if let Some(Refused(error)) = rejection.find() {
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
            StoreError::Full(_) => "The disk of the service is full",
            _ => "The store is not available",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, told)
    }
}

/// An error found while routing: its request is refused whatever other routes say.
#[derive(Debug)]
pub struct Refused(pub ApiError);

impl Reject for Refused {}

impl From<ApiError> for Rejection {
    fn from(error: ApiError) -> Self {
        warp::reject::custom(Refused(error))
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
pub enum RunnerFault {
    NotConfigured,
    MissingBearer,
    Token(TokenError),
    InvalidBody,
    Result(ResultError),
    Step(StepError),
    PhaseMismatch,
    MissingPrUrl,
    AlreadyConsumed,
    JobNotFound,
}

impl From<RunnerFault> for ApiError {
    fn from(fault: RunnerFault) -> Self {
        use StatusCode as S;
        let (status, slug) = match fault {
            RunnerFault::NotConfigured => (S::NOT_IMPLEMENTED, "Runner callback not configured"),
            RunnerFault::MissingBearer => (S::UNAUTHORIZED, "missing_bearer"),
            RunnerFault::Token(error) => (S::UNAUTHORIZED, error.slug()),
            RunnerFault::InvalidBody => (S::BAD_REQUEST, "invalid_body"),
            RunnerFault::Result(error) => (S::BAD_REQUEST, error.slug()),
            RunnerFault::Step(StepError::NotAnObject) => (S::BAD_REQUEST, "step_required"),
            RunnerFault::Step(StepError::Field(name)) => {
                return Self::new(S::BAD_REQUEST, format!("invalid_step_{name}"));
            }
            RunnerFault::PhaseMismatch => (S::BAD_REQUEST, "phase_mismatch"),
            RunnerFault::MissingPrUrl => (S::BAD_REQUEST, "missing_prUrl"),
            RunnerFault::AlreadyConsumed => (S::CONFLICT, "already_consumed"),
            RunnerFault::JobNotFound => (S::NOT_FOUND, "job_not_found"),
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
            ReportError::UnknownJob => RunnerFault::JobNotFound.into(),
            ReportError::AlreadyConsumed => RunnerFault::AlreadyConsumed.into(),
            ReportError::Store(error) => error.into(),
        }
    }
}

/// Why the trigger of a run is refused before anybody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerFault {
    NotConfigured,
    Unauthorized,
    InvalidBody,
}

impl From<TriggerFault> for ApiError {
    fn from(fault: TriggerFault) -> Self {
        use StatusCode as S;
        match fault {
            TriggerFault::NotConfigured => {
                Self::new(S::NOT_IMPLEMENTED, "Gap fill trigger not configured")
            }
            TriggerFault::Unauthorized => Self::new(S::UNAUTHORIZED, "unauthorized")
                .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            TriggerFault::InvalidBody => Self::new(
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
pub enum WebhookFault {
    NotConfigured,
    InvalidSignature,
    InvalidPayload,
    MissingPullFields,
}

impl From<WebhookFault> for ApiError {
    fn from(fault: WebhookFault) -> Self {
        use StatusCode as S;
        let (status, sentence) = match fault {
            WebhookFault::NotConfigured => (S::SERVICE_UNAVAILABLE, "Webhook not configured"),
            WebhookFault::InvalidSignature => (S::UNAUTHORIZED, "Invalid signature"),
            WebhookFault::InvalidPayload => (S::BAD_REQUEST, "Invalid JSON payload"),
            WebhookFault::MissingPullFields => (S::BAD_REQUEST, "Missing required PR fields"),
        };
        Self::new(status, sentence)
    }
}

impl From<WebhookError> for ApiError {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::MissingPullFields => WebhookFault::MissingPullFields.into(),
        }
    }
}

/// Why an administrator, or a session, is refused, in sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminFault {
    Unauthorized,
    InvalidBody,
    InvalidAccessCode,
    /// Too many wrong codes; how long to wait.
    TooManyCodes(Duration),
    /// As many watch as can.
    AudienceFull,
    TeamNotFound,
    NothingDeleted,
    JobNotFound,
    NoPatch,
    IssueNotFound,
    IssueIdRequired,
    NonceAndOwnerRequired,
    NonceRequired,
    NonceUnknown,
    Event(SessionEventError),
    Step(StepError),
    OwnerMismatch,
    TokenFailed,
    JqlRequired,
    InvalidJson,
    FieldIdRequired,
    /// What the ticketing system says against a query or a configuration.
    TicketingRefused(Vec<String>),
    TicketingBNotConfigured,
    /// What a vendor said when we could not do what was asked.
    Vendor(String),
    /// A host of sessions that gave no answer, and why.
    HostUnanswered(String),
    /// Why some sessions could not be listed, and those that could.
    SessionsIncomplete {
        unanswered: bool,
        reason: String,
        sessions: Value,
    },
    ModeUnknown,
    /// The mode was stored and the environment's is in force.
    ModeOverridden(RunnerMode),
    SessionsNotConfigured,
    NameAndValueRequired,
    /// A rule that a secret or a setting breaks.
    Invalid(String),
    SecretNotFound,
    /// What the system said to a look at the operator's own files.
    Unreadable(String),
}

impl From<AdminFault> for ApiError {
    fn from(fault: AdminFault) -> Self {
        use StatusCode as S;
        let (status, sentence) = match fault {
            AdminFault::Unauthorized => {
                return Self::new(S::UNAUTHORIZED, "Unauthorized")
                    .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            AdminFault::InvalidBody => (S::BAD_REQUEST, "Invalid request body"),
            AdminFault::InvalidAccessCode => (S::FORBIDDEN, "Invalid access code"),
            AdminFault::TooManyCodes(wait) => {
                // Rounded up: asking again at the second named must work.
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                return Self::new(
                    S::TOO_MANY_REQUESTS,
                    "Too many wrong access codes. Try again later.",
                )
                .with_header(RETRY_AFTER, seconds.max(1));
            }
            AdminFault::AudienceFull => {
                return Self::new(S::TOO_MANY_REQUESTS, "Too many event streams are open")
                    .with_header(RETRY_AFTER, HeaderValue::from_static("15"));
            }
            AdminFault::TeamNotFound => (S::NOT_FOUND, "Team not found"),
            AdminFault::NothingDeleted => {
                let body = Map::from_iter([("deleted".to_owned(), json!(false))]);
                return Self::with_body(S::NOT_FOUND, body);
            }
            AdminFault::IssueIdRequired => (S::BAD_REQUEST, "issueId is required"),
            AdminFault::JobNotFound => (S::NOT_FOUND, "job not found"),
            AdminFault::NoPatch => (S::NOT_FOUND, "no patch"),
            AdminFault::IssueNotFound => (S::NOT_FOUND, "issue not found"),
            AdminFault::NonceAndOwnerRequired => (S::BAD_REQUEST, "nonce and owner are required"),
            AdminFault::NonceRequired => (S::BAD_REQUEST, "nonce is required"),
            AdminFault::Event(SessionEventError::EventRequired) => {
                (S::BAD_REQUEST, "event is required")
            }
            AdminFault::Event(SessionEventError::Unknown(event)) => {
                return Self::new(S::BAD_REQUEST, format!("Unknown event type: {event}"));
            }
            AdminFault::Event(SessionEventError::PullRequired) => (
                S::BAD_REQUEST,
                "prNumber and prUrl of one pull request are required",
            ),
            AdminFault::Step(StepError::NotAnObject) => (S::BAD_REQUEST, "step is required"),
            AdminFault::Step(StepError::Field(name)) => {
                let sentence = format!("step.{name} is required and must be a string");
                return Self::new(S::BAD_REQUEST, sentence);
            }
            AdminFault::NonceUnknown => (S::FORBIDDEN, "Invalid or expired nonce"),
            AdminFault::OwnerMismatch => (S::FORBIDDEN, "Owner mismatch"),
            AdminFault::JqlRequired => (S::BAD_REQUEST, "jql field required"),
            AdminFault::InvalidJson => (S::BAD_REQUEST, "Invalid JSON body"),
            AdminFault::FieldIdRequired => (S::BAD_REQUEST, "fieldId query param required"),
            AdminFault::TicketingRefused(problems) => {
                return Self::new(S::BAD_REQUEST, problems.join("; "));
            }
            AdminFault::TicketingBNotConfigured => {
                (S::NOT_IMPLEMENTED, "Ticketing-B not configured")
            }
            AdminFault::Vendor(message) | AdminFault::Unreadable(message) => {
                return Self::new(S::INTERNAL_SERVER_ERROR, message);
            }
            AdminFault::HostUnanswered(reason) => {
                return Self::new(S::SERVICE_UNAVAILABLE, reason);
            }
            AdminFault::SessionsIncomplete {
                unanswered,
                reason,
                sessions,
            } => {
                let status = match unanswered {
                    true => S::SERVICE_UNAVAILABLE,
                    false => S::INTERNAL_SERVER_ERROR,
                };
                return Self::new(status, reason).with("sessions", sessions);
            }
            AdminFault::TokenFailed => (S::INTERNAL_SERVER_ERROR, "Failed to generate token"),
            AdminFault::ModeUnknown => (S::BAD_REQUEST, runner_mode::MODES),
            AdminFault::ModeOverridden(mode) => {
                let sentence = "RUNNER_MODE env var is set; persisted to DB but has no effect at runtime until the env var is unset";
                return Self::new(S::CONFLICT, sentence)
                    .with("persisted", json!(true))
                    .with("mode", json!(mode.as_str()))
                    .with("source", json!("env"));
            }
            AdminFault::SessionsNotConfigured => {
                (S::SERVICE_UNAVAILABLE, "Fly sessions config not set")
            }
            AdminFault::NameAndValueRequired => (S::BAD_REQUEST, "name and value are required"),
            AdminFault::Invalid(rule) => return Self::new(S::BAD_REQUEST, rule),
            AdminFault::SecretNotFound => (S::NOT_FOUND, "Secret not found"),
        };
        Self::new(status, sentence)
    }
}

impl From<SecretNameError> for ApiError {
    fn from(error: SecretNameError) -> Self {
        AdminFault::Invalid(error.to_string()).into()
    }
}

impl From<SyncError> for ApiError {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::NoTeam => AdminFault::TeamNotFound.into(),
            SyncError::Failed(why) => AdminFault::Vendor(why).into(),
            SyncError::Store(error) => error.into(),
        }
    }
}

impl From<ErrandError> for ApiError {
    fn from(error: ErrandError) -> Self {
        use StatusCode as S;
        let (status, sentence) = match error {
            ErrandError::Unknown => (S::NOT_FOUND, "effect not found"),
            ErrandError::Outdated => (
                S::CONFLICT,
                "A later run has set this anew since; it can only be dropped",
            ),
            ErrandError::UnderWay => (S::CONFLICT, "It is being tried right now; drop it later"),
            ErrandError::Store(error) => return error.into(),
        };
        Self::new(status, sentence)
    }
}

impl From<MappingError> for ApiError {
    fn from(error: MappingError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

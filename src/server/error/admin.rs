//! Errors of the admin API.

use std::time::Duration;

use domain::mapping::Mapping;
use domain::mapping::MappingError;
use domain::mapping::MappingView;
use domain::report::StepRecordError;
use domain::runner_mode;
use domain::runner_mode::RunnerMode;
use domain::session_event::SessionEventError;
use engine::admin::connections::ConnectionError;
use engine::admin::downloads::PatchError;
use engine::admin::mapping_check::MappingCheckError;
use engine::admin::mappings::MappingChangeError;
use engine::admin::outbox::OutboxError;
use engine::admin::projects_file::ApplyError;
use engine::admin::secrets::SessionSecretError;
use engine::admin::sign_in::SignInError;
use engine::control::ControlError;
use engine::conversation::answers::AnswerError;
use engine::conversation::plans::PlanError;
use engine::github_app::GitHubAppError;
use engine::take_over::TakeOverError;
use engine::workflow_sync::SyncError;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use warp::http::StatusCode;
use warp::http::header::ETAG;
use warp::http::header::HeaderValue;
use warp::http::header::RETRY_AFTER;
use warp::http::header::WWW_AUTHENTICATE;

use super::ApiError;

/// Error of the admin API or of a session route, returned as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdminApiError {
    /// The admin token is missing, wrong or expired.
    Unauthorized,
    /// The session cookie came with a request that another site may have caused.
    CrossSiteRequest,
    /// The body is not JSON or lacks a field.
    InvalidBody,
    /// The access code is wrong.
    InvalidAccessCode,
    /// Too many wrong access codes, with the time to wait.
    TooManyAttempts(Duration),
    /// The maximum number of event streams is open.
    TooManyEventStreams,
    /// No mapping has this team key.
    TeamNotFound,
    /// The object to delete does not exist.
    NothingDeleted,
    /// No job has this id.
    JobNotFound,
    /// The job has no stored patch.
    NoPatch,
    /// No log of the job is kept.
    NoLog,
    /// No file of the job's evidence with this name is kept.
    NoEvidence,
    /// The issue has never been seen by a poll.
    IssueNotFound,
    /// The field `issueId` is missing.
    IssueIdRequired,
    /// The fields `nonce` and `owner` are missing.
    NonceAndOwnerRequired,
    /// The answer to a question is missing or blank.
    AnswerRequired,
    /// The field `instruction` is not a string.
    InstructionNotText,
    /// The field `retry` is not a boolean.
    RetryNotBoolean,
    /// The field `by` is not a string.
    ByNotText,
    /// The field `nonce` is missing.
    NonceRequired,
    /// No active job has this nonce.
    InvalidNonce,
    /// The session event is invalid.
    Event(SessionEventError),
    /// The step is invalid.
    Step(StepRecordError),
    /// The repository of the job has another owner.
    OwnerMismatch,
    /// The repository token could not be issued.
    TokenIssueFailed,
    /// The field `jql` is missing.
    JqlRequired,
    /// The body is not JSON.
    InvalidJson,
    /// The query parameter `fieldId` is missing.
    FieldIdRequired,
    /// Errors of the ticketing system about a query or a configuration.
    TicketingRejected(Vec<String>),
    /// Jira is not configured.
    JiraNotConfigured,
    /// Error text of a vendor that rejected a request.
    Vendor(String),
    /// Error text about a session host that does not respond.
    HostUnreachable(String),
    /// Some session hosts could not be listed.
    SessionsIncomplete {
        /// Whether a host did not respond, as opposed to responding with an error.
        is_host_unreachable: bool,
        /// Error texts of the hosts.
        reason: String,
        /// Sessions of the other hosts, as JSON.
        sessions: Value,
    },
    /// The runner mode is unknown.
    InvalidMode,
    /// The mode was stored, but this mode from the environment is in effect.
    ModeOverridden(RunnerMode),
    /// Neither Fly Machines nor local containers are in use.
    SessionsNotConfigured,
    /// The fields `name` and `value` are missing.
    NameAndValueRequired,
    /// Text of the rule that an input violates.
    Invalid(String),
    /// No secret has this name.
    SecretNotFound,
    /// No connection has this name.
    ConnectionNotFound,
    /// Error text about customization files that cannot be read.
    FilesUnreadable(String),
}

impl From<AdminApiError> for ApiError {
    fn from(error: AdminApiError) -> Self {
        use StatusCode as S;
        let (status, sentence) = match error {
            AdminApiError::Unauthorized => {
                return Self::new(S::UNAUTHORIZED, "Unauthorized")
                    .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            AdminApiError::CrossSiteRequest => (S::FORBIDDEN, "Cross-site request refused"),
            AdminApiError::InvalidBody => (S::BAD_REQUEST, "Invalid request body"),
            AdminApiError::InvalidAccessCode => (S::FORBIDDEN, "Invalid access code"),
            AdminApiError::TooManyAttempts(wait) => {
                return retry_later("Too many wrong access codes. Try again later.", wait);
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
            AdminApiError::NoLog => (S::NOT_FOUND, "no log"),
            AdminApiError::NoEvidence => (S::NOT_FOUND, "no such file"),
            AdminApiError::IssueNotFound => (S::NOT_FOUND, "issue not found"),
            AdminApiError::NonceAndOwnerRequired => {
                (S::BAD_REQUEST, "nonce and owner are required")
            }
            AdminApiError::AnswerRequired => (S::BAD_REQUEST, "answer is required"),
            AdminApiError::InstructionNotText => (S::BAD_REQUEST, "instruction must be a string"),
            AdminApiError::RetryNotBoolean => (S::BAD_REQUEST, "retry must be a boolean"),
            AdminApiError::ByNotText => (S::BAD_REQUEST, "by must be a string"),
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
                is_host_unreachable,
                reason,
                sessions,
            } => {
                let status = match is_host_unreachable {
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
            AdminApiError::ConnectionNotFound => (S::NOT_FOUND, "Connection not found"),
        };
        Self::new(status, sentence)
    }
}

impl From<SessionSecretError> for ApiError {
    fn from(error: SessionSecretError) -> Self {
        match error {
            SessionSecretError::NoSessions => AdminApiError::SessionsNotConfigured.into(),
            SessionSecretError::UnknownTeam => AdminApiError::TeamNotFound.into(),
            SessionSecretError::Name(error) => AdminApiError::Invalid(error.to_string()).into(),
            SessionSecretError::Value(rule) => AdminApiError::Invalid(rule).into(),
            SessionSecretError::Seal(error) => AdminApiError::Vendor(error.to_string()).into(),
            SessionSecretError::UnknownSecret => AdminApiError::SecretNotFound.into(),
            SessionSecretError::Store(error) => error.into(),
        }
    }
}

impl From<ConnectionError> for ApiError {
    fn from(error: ConnectionError) -> Self {
        use StatusCode as S;
        match error {
            ConnectionError::Rejected(sentence) => Self::new(S::BAD_REQUEST, sentence),
            ConnectionError::Unanswered(sentence) => Self::new(S::SERVICE_UNAVAILABLE, sentence),
            ConnectionError::Overridden(variable) => Self::new(
                S::CONFLICT,
                format!(
                    "{variable} is set in the environment, which takes precedence: unset it and restart the service to store credentials here"
                ),
            ),
            ConnectionError::NotStored => {
                Self::new(S::NOT_FOUND, "Nothing is stored for this connection")
            }
            ConnectionError::Seal(error) => AdminApiError::Vendor(error.to_string()).into(),
            ConnectionError::Clients(sentence) => AdminApiError::Vendor(sentence).into(),
            ConnectionError::Store(error) => error.into(),
        }
    }
}

impl From<GitHubAppError> for ApiError {
    fn from(error: GitHubAppError) -> Self {
        use StatusCode as S;
        let status = match error {
            GitHubAppError::Invalid(_) | GitHubAppError::CodeRefused => S::BAD_REQUEST,
            GitHubAppError::UnknownState => S::FORBIDDEN,
            GitHubAppError::Unsent(_) => S::SERVICE_UNAVAILABLE,
            GitHubAppError::Lost(_) => S::BAD_GATEWAY,
            GitHubAppError::Setup(_) => S::INTERNAL_SERVER_ERROR,
            GitHubAppError::Connection(error) => return error.into(),
            GitHubAppError::Store(error) => return error.into(),
        };
        Self::new(status, error.to_string())
    }
}

impl From<SignInError> for ApiError {
    fn from(error: SignInError) -> Self {
        match error {
            SignInError::NoAccessCode => AdminApiError::InvalidAccessCode.into(),
            SignInError::Random(error) => {
                tracing::error!(%error, "Failed to generate an admin token.");
                Self::internal()
            }
            SignInError::Store(error) => error.into(),
        }
    }
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::UnknownJob => AdminApiError::JobNotFound.into(),
            PatchError::NoPatch => AdminApiError::NoPatch.into(),
            PatchError::Store(error) => error.into(),
        }
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        use StatusCode as S;
        let (status, sentence) = match error {
            ControlError::UnknownRun => (S::NOT_FOUND, "Job not found"),
            ControlError::AlreadyEnded => (S::CONFLICT, "Job already ended"),
            ControlError::ActiveRun => (S::CONFLICT, "A run of this issue is active"),
            ControlError::TicketClosed => (S::CONFLICT, "The ticket is closed"),
            ControlError::NotRetryable(reason) => (S::CONFLICT, reason),
            ControlError::Unanswered(sentence) => {
                return Self::new(S::SERVICE_UNAVAILABLE, sentence);
            }
            ControlError::Store(error) => return error.into(),
        };
        Self::new(status, sentence)
    }
}

impl From<AnswerError> for ApiError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Blank => AdminApiError::AnswerRequired.into(),
            AnswerError::NoOpenQuestion => Self::new(StatusCode::NOT_FOUND, "No open question"),
            AnswerError::Store(error) => error.into(),
        }
    }
}

impl From<PlanError> for ApiError {
    fn from(error: PlanError) -> Self {
        use StatusCode as S;
        match error {
            PlanError::NotWaiting => Self::new(S::NOT_FOUND, "No plan waits for approval"),
            PlanError::Changed(_) => {
                Self::new(S::CONFLICT, "The ticket has changed since it was planned")
            }
            PlanError::NotApprover(_) => Self::new(
                S::FORBIDDEN,
                "Only the approvers of the project may approve its plans: comment on the ticket",
            ),
            PlanError::Unanswered(reason) => Self::new(
                S::SERVICE_UNAVAILABLE,
                format!("Cannot read the ticket: {reason}. Try again later."),
            ),
            PlanError::Store(error) => error.into(),
        }
    }
}

impl From<TakeOverError> for ApiError {
    fn from(error: TakeOverError) -> Self {
        use StatusCode as S;
        match error {
            TakeOverError::UnknownIssue => AdminApiError::IssueNotFound.into(),
            TakeOverError::UnknownPull => Self::new(S::NOT_FOUND, "Pull request not found"),
            TakeOverError::PullNotOpen => Self::new(S::CONFLICT, "The pull request is not open"),
            TakeOverError::Store(error) => error.into(),
        }
    }
}

impl From<SyncError> for ApiError {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::NoTeam => AdminApiError::TeamNotFound.into(),
            SyncError::Failed(reason) => AdminApiError::Vendor(reason).into(),
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
                "A later run has replaced this update; it can only be dropped",
            ),
            OutboxError::InProgress => {
                (S::CONFLICT, "This update is being performed; drop it later")
            }
            OutboxError::Store(error) => return error.into(),
        };
        Self::new(status, sentence)
    }
}

impl From<MappingChangeError> for ApiError {
    fn from(error: MappingChangeError) -> Self {
        match error {
            MappingChangeError::UnknownTeam => AdminApiError::TeamNotFound.into(),
            MappingChangeError::Invalid(error) => error.into(),
            MappingChangeError::Outdated(stored) => outdated(stored.as_deref()),
            MappingChangeError::TicketingRejected(problems) => {
                AdminApiError::TicketingRejected(problems).into()
            }
            MappingChangeError::Store(error) => error.into(),
        }
    }
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Invalid(problems) => {
                let error = Self::new(StatusCode::BAD_REQUEST, "The file is invalid");
                error.with("problems", json!(problems))
            }
            ApplyError::Store(error) => error.into(),
        }
    }
}

/// 412 with the mapping as it is stored now.
fn outdated(stored: Option<&Mapping>) -> ApiError {
    let sentence = "The project was changed in the meantime";
    let error = ApiError::new(StatusCode::PRECONDITION_FAILED, sentence)
        .with("mapping", json!(stored.map(MappingView::from_mapping)));
    match stored.and_then(|stored| HeaderValue::from_str(&stored.etag()).ok()) {
        Some(etag) => error.with_header(ETAG, etag),
        None => error,
    }
}

impl From<MappingCheckError> for ApiError {
    fn from(error: MappingCheckError) -> Self {
        match error {
            MappingCheckError::Invalid(error) => error.into(),
            MappingCheckError::TooMany(wait) => {
                retry_later("Too many checks. Try again later.", wait)
            }
            MappingCheckError::Store(error) => error.into(),
        }
    }
}

/// 429 with the time to wait.
fn retry_later(sentence: &'static str, wait: Duration) -> ApiError {
    // Rounded up, so that a retry after this time succeeds.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, sentence).with_header(RETRY_AFTER, seconds.max(1))
}

impl From<MappingError> for ApiError {
    fn from(error: MappingError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

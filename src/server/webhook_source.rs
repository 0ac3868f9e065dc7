//! Webhooks of vendors: signature, secret and delivery id.
//!
//! Requests without a well-formed signature header are rejected before their body is read. The signature is
//! verified over the raw bytes before they are parsed.

use warp::http::HeaderMap;

use super::error::WebhookApiError;
use domain::crypto::sha256_hex;
use domain::crypto::signature::{is_valid_signature, is_well_formed_signature};
use domain::secret::Secret;
use engine::app::App;

/// Maximum length of a delivery id. Longer ids are replaced by a hash. GitHub sends GUIDs.
const MAX_DELIVERY_ID: usize = 100;

/// Sender of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookSource {
    GitHub,
    Linear,
    Jira,
}

impl WebhookSource {
    fn signature_header(self) -> &'static str {
        match self {
            Self::GitHub => "x-hub-signature-256",
            Self::Linear => "linear-signature",
            Self::Jira => "x-hub-signature",
        }
    }

    fn delivery_header(self) -> &'static str {
        match self {
            Self::GitHub => "x-github-delivery",
            Self::Linear => "linear-delivery",
            Self::Jira => "x-atlassian-webhook-identifier",
        }
    }

    fn secret(self, app: &App) -> Result<&Secret, WebhookApiError> {
        let secret = match self {
            Self::GitHub => &app.vendors.credentials.scm_webhook_secret,
            Self::Linear => &app.vendors.credentials.linear_webhook_secret,
            Self::Jira => &app.vendors.credentials.jira_webhook_secret,
        };
        secret.as_ref().ok_or(WebhookApiError::NotConfigured)
    }

    /// Whether a request has a well-formed signature header.
    pub(crate) fn has_signature(self, headers: &HeaderMap) -> bool {
        header(headers, self.signature_header()).is_some_and(is_well_formed_signature)
    }

    /// Checks that the webhook is configured and that its signature header is well-formed.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn check_header(
        self,
        app: &App,
        headers: &HeaderMap,
    ) -> Result<(), WebhookApiError> {
        self.secret(app)?;
        match self.has_signature(headers) {
            true => Ok(()),
            false => Err(WebhookApiError::InvalidSignature),
        }
    }

    /// Checks the signature of a body.
    ///
    /// # Errors
    /// When it is wrong.
    pub(crate) fn check_signature(
        self,
        app: &App,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), WebhookApiError> {
        let signature = header(headers, self.signature_header()).unwrap_or_default();
        match is_valid_signature(body, signature, self.secret(app)?) {
            true => Ok(()),
            false => Err(WebhookApiError::InvalidSignature),
        }
    }

    /// Returns the id of a delivery. Without a usable id, identical bytes count as the same delivery.
    pub(crate) fn delivery_id(self, headers: &HeaderMap, body: &[u8]) -> String {
        match header(headers, self.delivery_header()) {
            Some(id) if !id.is_empty() && id.len() <= MAX_DELIVERY_ID => id.to_owned(),
            _ => format!("sha256:{}", sha256_hex(body)),
        }
    }
}

/// Returns a header; `None` if it is missing or not text.
pub(crate) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

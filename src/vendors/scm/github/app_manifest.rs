//! Creation of a GitHub App from a manifest: the exchange of GitHub's code for the App's credentials.

use serde::Deserialize;

use crate::http::{Client, Method, Request, VendorError, percent_encode};
use domain::crypto::app_jwt::AppKey;
use domain::secret::Secret;

use super::with_api_headers;

/// Maximum size of the response, in bytes.
const MAX_RESPONSE: usize = 64 << 10;

/// Maximum length of the name of an App in addresses.
const MAX_SLUG: usize = 100;

/// App that GitHub has just created.
#[derive(Debug, Clone)]
pub struct CreatedApp {
    /// ID of the App.
    pub id: u64,
    /// Name of the App in addresses.
    pub slug: String,
    /// Private key in PEM format.
    pub private_key: Secret,
    /// Secret of the webhook; `None` if GitHub generated none.
    pub webhook_secret: Option<Secret>,
}

/// Client for the creation of an App, without credentials.
pub struct AppCreation {
    client: Client,
    api_url: String,
}

impl AppCreation {
    /// Creates a client of the host with the REST API at `api_url`.
    pub fn new(client: Client, api_url: &str) -> Self {
        Self {
            client,
            api_url: api_url.trim_end_matches('/').to_owned(),
        }
    }

    /// Exchanges the code of a created App for its credentials. A code works once, so the request is not repeated if
    /// GitHub may have received it.
    ///
    /// # Errors
    /// `is_not_found()` if the code was used, has expired, or never existed. Ambiguous if the response was lost.
    pub async fn exchange_code(&self, code: &str) -> Result<CreatedApp, VendorError> {
        let (api, code) = (&self.api_url, percent_encode(code));
        let url = format!("{api}/app-manifests/{code}/conversions");
        let request = Request::new("creating the GitHub App", Method::POST, url);
        let request = with_api_headers(request).max_body(MAX_RESPONSE);
        let response = self.client.send(&request).await?;
        let app: Conversion = response.json()?;
        let is_slug = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if app.slug.is_empty() || app.slug.len() > MAX_SLUG || !app.slug.chars().all(is_slug) {
            return Err(response.decode_error("slug is not the name of an App"));
        }
        if AppKey::from_pem(&app.pem).is_err() {
            return Err(response.decode_error("pem is not a private key"));
        }
        let webhook_secret = app.webhook_secret.filter(|secret| !secret.is_empty());
        Ok(CreatedApp {
            id: app.id,
            slug: app.slug,
            private_key: Secret::new(app.pem),
            webhook_secret: webhook_secret.map(Secret::new),
        })
    }
}

#[derive(Deserialize)]
struct Conversion {
    id: u64,
    slug: String,
    pem: String,
    webhook_secret: Option<String>,
}

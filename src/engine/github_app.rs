//! Creation of the GitHub App from a manifest. See docs/install.md#github-app.
//!
//! The person sends the manifest to GitHub, creates the App there, and comes back with a code, which is exchanged
//! once for the App's credentials. A random state, of which only the hash is stored, proves that the service began
//! the creation. It works once, for an hour, and only in the browser that began.

use std::time::Duration;

use serde_json::Value;

use domain::audit::{Action, Actor};
use domain::connection::{ConnectionName, CredentialField, CredentialSet, CredentialValues};
use domain::crypto::admin_token::generate_token;
use domain::crypto::sha256_hex;
use domain::github_app::{self, ManifestAddresses};
use domain::secret::Secret;
use store::github_app_states::{self, GitHubAppState};
use store::{StoreError, audit, instance};
use vendors::http::VendorErrorKind;
use vendors::scm::{AppCreation, CreatedApp, web_address};

use crate::admin::connections::{self, ConnectionError};
use crate::app::App;
use crate::config::is_loopback;

/// Path to which GitHub sends the person back.
pub const RETURN_PATH: &str = "/admin/github-app/created";

/// Time in which GitHub accepts the code. The state is as short-lived.
pub const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Number of characters of the instance's id in the name of the App.
const SUFFIX_LENGTH: usize = 6;

/// Reason why the App was not created. No variant contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum GitHubAppError {
    /// A value of the request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The state is unknown, was used, has expired, or belongs to another browser.
    #[error(
        "This link is not valid: it was used before, is older than an hour, or began in another browser. Nothing was stored. If GitHub has created an App, delete it there (Settings, Developer settings, GitHub Apps). Then begin again."
    )]
    UnknownState,
    /// GitHub rejects the code.
    #[error(
        "GitHub does not accept the code: it was used before or is older than an hour. Nothing was stored. Delete the App on GitHub (Settings, Developer settings, GitHub Apps), and begin again."
    )]
    CodeRefused,
    /// GitHub did not receive the code, which is still valid.
    #[error("{0} Reload this page to try again.")]
    Unsent(String),
    /// The response was lost, so that the credentials of the App are lost, too.
    #[error(
        "{0} The credentials of the new App may be lost, because GitHub shows them once. Nothing was stored. Delete the App on GitHub (Settings, Developer settings, GitHub Apps), and begin again."
    )]
    Lost(String),
    /// The credentials could not be stored, or the environment decides.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The operating system provides no random bytes, or no client can be made.
    #[error("{0}")]
    Setup(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Addresses of the service as the person who begins sees them.
#[derive(Debug, Clone)]
pub struct ReturnAddress {
    /// Base address to which GitHub sends the person back.
    pub base: String,
    /// Whether the browser that begins is the one that comes back to the same address, so that it can keep a value.
    pub is_same_browser: bool,
}

/// Begun creation.
#[derive(Debug)]
pub struct BegunApp {
    /// Page of GitHub to which the manifest is sent, with the state.
    pub action: String,
    /// Manifest of the App.
    pub manifest: Value,
    /// State that GitHub returns.
    pub state: Secret,
    /// Value that the browser must keep; `None` if the creation is not bound to a browser.
    pub binding: Option<Secret>,
}

/// Origin of GitHub's pages, without a path.
pub fn web_origin(app: &App) -> String {
    web_address(&app.core.config.vendor_addresses.github_api_url)
}

/// Page on which the App in force is installed; `None` without an App, or if GitHub does not respond.
pub async fn install_url(app: &App) -> Option<String> {
    let app = app.latest();
    let github = app.vendors.github.as_ref()?;
    // The name of the App is known from the probe.
    let _ = github.probe().await;
    github.install_url()
}

/// Begins the creation of an App: makes the manifest and stores the hash of a new state.
///
/// # Errors
/// Fails if the environment has credentials of GitHub, or if the organization cannot be a name.
pub async fn begin(
    app: &App,
    actor: Actor,
    organization: Option<&str>,
    back_to: &ReturnAddress,
) -> Result<BegunApp, GitHubAppError> {
    connections::require_stored_source(app, &[CredentialSet::GitHub])?;
    let path = github_app::creation_path(organization).map_err(GitHubAppError::Invalid)?;
    let random = || generate_token().map_err(GitHubAppError::Setup);
    let state = random()?;
    let binding = match back_to.is_same_browser {
        true => Some(random()?),
        false => None,
    };
    let now = app.core.now();
    let row = GitHubAppState {
        began_by: actor.name().to_owned(),
        binding_hash: binding.as_ref().map(|value| sha256_hex(value.expose())),
        expires_at: now + LIFETIME,
    };
    let (hash, event) = (
        sha256_hex(state.expose()),
        actor.audit_event(Action::GitHubAppRequested, organization.unwrap_or_default()),
    );
    let stored = app.core.store.write(move |tx| {
        github_app_states::put(tx, &hash, &row, now)?;
        audit::append(tx, &event, now)
    });
    stored.await?;
    let instance = app.core.store.read(instance::id)?;
    let suffix: String = instance.chars().take(SUFFIX_LENGTH).collect();
    let public_url = app.core.config.callback_base_url.as_deref();
    let manifest = github_app::manifest(
        &suffix,
        ManifestAddresses {
            // GitHub refuses addresses that it cannot reach.
            public_url: public_url.filter(|url| !is_loopback(url)),
            redirect_url: &format!("{}{RETURN_PATH}", back_to.base),
        },
    );
    Ok(BegunApp {
        action: format!("{}{path}?state={}", web_origin(app), state.expose()),
        manifest,
        state,
        binding,
    })
}

/// Finishes the creation: exchanges the code, and stores the credentials of the App, which are in force at once.
///
/// # Errors
/// Fails if the state or the code is refused, or if the response of GitHub is lost. Nothing is stored then.
pub async fn finish(
    app: &App,
    code: &str,
    state: &str,
    binding: Option<&str>,
) -> Result<(), GitHubAppError> {
    if !github_app::is_code(code) {
        let sentence = "The address lacks a valid code of GitHub. Begin again.";
        return Err(GitHubAppError::Invalid(sentence.to_owned()));
    }
    let (hash, binding, now) = (sha256_hex(state), binding.map(sha256_hex), app.core.now());
    let taken = app
        .core
        .store
        .write(move |tx| github_app_states::take(tx, &hash, binding.as_deref(), now));
    let begun = taken.await?.ok_or(GitHubAppError::UnknownState)?;
    connections::require_stored_source(app, &[CredentialSet::GitHub])?;
    let created = match exchange(app, code).await {
        Ok(created) => created,
        Err(error) => {
            if matches!(error, GitHubAppError::Unsent(_)) {
                let (hash, now) = (sha256_hex(state), app.core.now());
                let kept = app
                    .core
                    .store
                    .write(move |tx| github_app_states::put(tx, &hash, &begun, now));
                kept.await?;
            }
            return Err(error);
        }
    };
    let mut values = CredentialValues::from([
        (
            CredentialField::GitHubAppId,
            Secret::new(created.id.to_string()),
        ),
        (CredentialField::GitHubAppPrivateKey, created.private_key),
    ]);
    // A secret of the environment stays in force; the panel says that it must be entered on GitHub.
    let has_own_secret = app
        .core
        .config
        .credentials
        .has(CredentialSet::GitHubWebhook);
    if let Some(secret) = created.webhook_secret.filter(|_| !has_own_secret) {
        values.insert(CredentialField::ScmWebhookSecret, secret);
    }
    let actor = Actor::stored(begun.began_by);
    connections::set_untested(app, actor, ConnectionName::GitHub, values).await?;
    tracing::info!(app = created.slug, "Created a GitHub App.");
    Ok(())
}

async fn exchange(app: &App, code: &str) -> Result<CreatedApp, GitHubAppError> {
    let client = app.github_client().map_err(GitHubAppError::Setup)?;
    let api_url = &app.core.config.vendor_addresses.github_api_url;
    AppCreation::new(client, api_url)
        .exchange_code(code)
        .await
        .map_err(|error| match &error.kind {
            VendorErrorKind::Status {
                status: 404 | 422, ..
            } => GitHubAppError::CodeRefused,
            VendorErrorKind::Connect(_) | VendorErrorKind::RateLimited { .. } => {
                GitHubAppError::Unsent(error.sentence("GitHub"))
            }
            _ => GitHubAppError::Lost(error.sentence("GitHub")),
        })
}

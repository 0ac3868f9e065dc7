//! Secrets of the configuration, read from their sources.

use domain::connection::{CredentialField, CredentialValues};
use domain::secret::Secret;

use super::credentials::credential_options;
use super::options::Options;
use super::sources::Sources;
use super::validator::Validator;

/// Minimum length of the secret that signs run tokens, in bytes.
const MIN_TOKEN_SECRET_LENGTH: usize = 32;

/// Minimum length of the access code, in bytes. Guesses are limited to a few per minute.
const MIN_ACCESS_CODE_LENGTH: usize = 8;

/// Minimum length of secrets that sign or authenticate requests, in bytes. Does not apply to the
/// ticketing systems, which generate theirs.
const MIN_SHARED_SECRET_LENGTH: usize = 8;

/// Secrets of the options, not validated yet.
pub(super) struct OptionSecrets {
    pub admin_access_code: Option<Secret>,
    pub runner_token_secret: Option<Secret>,
    pub gap_fill_trigger_secret: Option<Secret>,
    /// Credentials of the vendors, with their plain fields.
    pub credentials: CredentialValues,
    pub secrets_key: Option<Secret>,
    pub metrics_token: Option<Secret>,
    pub https_proxy: Option<Secret>,
    pub http_proxy: Option<Secret>,
}

impl OptionSecrets {
    /// Takes the secrets out of the options. Returns them with the problems of those that cannot be
    /// read.
    pub(super) fn take(options: &mut Options, sources: &mut Sources) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let mut secret = |name: &str, value: &mut Option<String>| {
            let secret = sources.secret(name, value.take());
            secret.unwrap_or_else(|problem| {
                problems.push(problem);
                None
            })
        };
        for (name, value) in options.bucket.secrets_mut() {
            let read = secret(name, value);
            *value = read.map(|secret| secret.expose().to_owned());
        }
        let notify_type = Some((
            CredentialField::NotifyType,
            Secret::new(&options.notify_type),
        ));
        let credentials = credential_options(options)
            .into_iter()
            .filter_map(|(field, value)| match field.is_secret() {
                true => Some((field, secret(field.variable(), value)?)),
                false => Some((field, Secret::new(value.take()?))),
            })
            .chain(notify_type)
            .collect();
        let secrets = Self {
            admin_access_code: secret("ADMIN_ACCESS_CODE", &mut options.admin_access_code),
            runner_token_secret: secret("RUNNER_TOKEN_SECRET", &mut options.runner_token_secret),
            gap_fill_trigger_secret: secret(
                "GAP_FILL_TRIGGER_SECRET",
                &mut options.gap_fill_trigger_secret,
            ),
            credentials,
            secrets_key: secret("SECRETS_KEY", &mut options.secrets_key),
            metrics_token: secret("METRICS_TOKEN", &mut options.metrics_token),
            https_proxy: secret("HTTPS_PROXY", &mut options.https_proxy),
            http_proxy: secret("HTTP_PROXY", &mut options.http_proxy),
        };
        (secrets, problems)
    }

    /// Rejects secrets that are too short.
    pub(super) fn check_lengths(&self, check: &mut Validator) {
        for (name, secret, min_length) in [
            (
                "ADMIN_ACCESS_CODE",
                &self.admin_access_code,
                MIN_ACCESS_CODE_LENGTH,
            ),
            (
                "RUNNER_TOKEN_SECRET",
                &self.runner_token_secret,
                MIN_TOKEN_SECRET_LENGTH,
            ),
            (
                "GAP_FILL_TRIGGER_SECRET",
                &self.gap_fill_trigger_secret,
                MIN_SHARED_SECRET_LENGTH,
            ),
        ] {
            let is_long = |secret: &Secret| secret.expose().len() >= min_length;
            check.require(secret.as_ref().is_none_or(is_long), || {
                format!("{name} must be at least {min_length} bytes long")
            });
        }
    }
}

//! Credentials of the vendors: from the environment, or stored by operators.

use domain::connection::{CredentialField, CredentialSet, CredentialValues};
use domain::secret::Secret;
use vendors::ticketing::{JiraCredentials, LinearCredentials};

use super::validator::Validator;
use super::{ChatConfig, GitHubAuthConfig, GitHubConfig, JiraConfig, LinearConfig, Options};

/// Minimum length of the secret of GitHub's webhook, in bytes. Ticketing systems generate theirs.
const MIN_WEBHOOK_SECRET_LENGTH: usize = 8;

/// Credentials of the vendors, and secrets of their webhooks. A missing one disables its feature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Linear account.
    pub linear: Option<LinearConfig>,
    /// Jira account.
    pub jira: Option<JiraConfig>,
    /// GitHub account.
    pub github: Option<GitHubConfig>,
    /// Secret of the repository webhook.
    pub scm_webhook_secret: Option<Secret>,
    /// Secret of Linear's webhook.
    pub linear_webhook_secret: Option<Secret>,
    /// Secret of Jira's webhook.
    pub jira_webhook_secret: Option<Secret>,
    /// Model credentials of sessions, by the variable that agents read.
    pub model_keys: Vec<(&'static str, Secret)>,
    /// Chat webhook.
    pub chat: Option<ChatConfig>,
    /// Token of Fly Machines.
    pub vm_token: Option<Secret>,
}

/// Addresses of the vendors' APIs, not validated yet. The environment alone sets them.
#[derive(Debug, Clone, Default)]
pub struct VendorAddresses {
    /// Base URL of Linear's API.
    pub linear_api_url: String,
    /// Base URL of the files that people upload to Linear.
    pub linear_uploads_url: String,
    /// Base URL of Jira's API, if it differs from the site.
    pub jira_api_url: Option<String>,
    /// Base URL of GitHub's API.
    pub github_api_url: String,
}

impl Credentials {
    /// Validates values. Returns the usable credentials, and the problems of the others.
    pub fn from_values(
        values: &CredentialValues,
        addresses: &VendorAddresses,
        allow_plain_http: bool,
    ) -> (Self, Vec<String>) {
        let mut check = Validator::new(Vec::new(), &allow_plain_http.to_string());
        let mut credentials = check.credentials(values, addresses);
        credentials.remove_invalid(&check.problems);
        (credentials, check.problems)
    }

    /// Removes the credentials that these problems are about, by the beginning of their variables.
    pub(super) fn remove_invalid(&mut self, problems: &[String]) {
        let is_invalid = |name: &str| problems.iter().any(|problem| problem.starts_with(name));
        self.linear.take_if(|_| is_invalid("LINEAR_"));
        self.jira.take_if(|_| is_invalid("JIRA_"));
        self.github.take_if(|_| is_invalid("GITHUB_"));
        self.chat.take_if(|_| is_invalid("NOTIFY_"));
        self.vm_token.take_if(|_| is_invalid("VM_"));
        self.scm_webhook_secret.take_if(|_| is_invalid("SCM_"));
    }

    /// Completes these credentials with those of another source.
    pub fn or(mut self, other: Self) -> Self {
        let missing = other
            .model_keys
            .into_iter()
            .filter(|(name, _)| !self.model_keys.iter().any(|(known, _)| known == name));
        let missing: Vec<_> = missing.collect();
        self.model_keys.extend(missing);
        Self {
            linear: self.linear.or(other.linear),
            jira: self.jira.or(other.jira),
            github: self.github.or(other.github),
            scm_webhook_secret: self.scm_webhook_secret.or(other.scm_webhook_secret),
            linear_webhook_secret: self.linear_webhook_secret.or(other.linear_webhook_secret),
            jira_webhook_secret: self.jira_webhook_secret.or(other.jira_webhook_secret),
            model_keys: self.model_keys,
            chat: self.chat.or(other.chat),
            vm_token: self.vm_token.or(other.vm_token),
        }
    }

    /// Whether a set is there.
    pub fn has(&self, set: CredentialSet) -> bool {
        let has_key = |field: CredentialField| {
            self.model_keys
                .iter()
                .any(|(name, _)| *name == field.variable())
        };
        match set {
            CredentialSet::GitHub => self.github.is_some(),
            CredentialSet::GitHubWebhook => self.scm_webhook_secret.is_some(),
            CredentialSet::Linear => self.linear.is_some(),
            CredentialSet::LinearWebhook => self.linear_webhook_secret.is_some(),
            CredentialSet::Jira => self.jira.is_some(),
            CredentialSet::JiraWebhook => self.jira_webhook_secret.is_some(),
            CredentialSet::AnthropicKey => has_key(CredentialField::AnthropicApiKey),
            CredentialSet::ClaudeCodeToken => has_key(CredentialField::ClaudeCodeOauthToken),
            CredentialSet::OpenAiKey => has_key(CredentialField::OpenAiApiKey),
            CredentialSet::GeminiKey => has_key(CredentialField::GeminiApiKey),
            CredentialSet::Chat => self.chat.is_some(),
            CredentialSet::FlyMachines => self.vm_token.is_some(),
        }
    }

    /// Whether a field has a value.
    pub fn has_field(&self, field: CredentialField) -> bool {
        let github = self.github.as_ref().map(|github| &github.credentials);
        let is_app = matches!(github, Some(GitHubAuthConfig::App { .. }));
        let linear = self.linear.as_ref().map(|linear| &linear.credentials);
        let is_oauth = matches!(linear, Some(LinearCredentials::OAuthClient { .. }));
        let jira = self.jira.as_ref();
        let is_bearer =
            jira.is_some_and(|jira| matches!(jira.credentials, JiraCredentials::Bearer(_)));
        self.has(field.set())
            && match field {
                CredentialField::GitHubAppId | CredentialField::GitHubAppPrivateKey => is_app,
                CredentialField::GitHubToken => !is_app,
                CredentialField::LinearApiKey => !is_oauth,
                CredentialField::LinearClientId | CredentialField::LinearClientSecret => is_oauth,
                CredentialField::JiraSiteUrl => jira.is_some_and(|jira| jira.site_url.is_some()),
                CredentialField::JiraEmail => !is_bearer,
                CredentialField::JiraCloudId => is_bearer,
                _ => true,
            }
    }

    /// All secret values, for redaction in logs and errors.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let github = self
            .github
            .as_ref()
            .map(|github| match &github.credentials {
                GitHubAuthConfig::Token(token) => token,
                GitHubAuthConfig::App { private_key, .. } => private_key,
            });
        [
            self.scm_webhook_secret.as_ref(),
            self.linear_webhook_secret.as_ref(),
            self.jira_webhook_secret.as_ref(),
            self.linear.as_ref().map(LinearConfig::secret),
            self.jira.as_ref().map(JiraConfig::secret),
            github,
            self.chat.as_ref().map(|chat| &chat.url),
            self.vm_token.as_ref(),
        ]
        .into_iter()
        .flatten()
        .chain(self.model_keys.iter().map(|(_, key)| key))
    }
}

impl Validator {
    pub(super) fn credentials(
        &mut self,
        values: &CredentialValues,
        addresses: &VendorAddresses,
    ) -> Credentials {
        use CredentialField as Field;
        let secret = |field: Field| values.get(&field).cloned();
        let text = |field: Field| {
            let value = values.get(&field)?.expose().trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let key = |field: Field| Some((field.variable(), secret(field)?));
        let scm_webhook_secret = secret(Field::ScmWebhookSecret);
        let is_long = |secret: &Secret| secret.expose().len() >= MIN_WEBHOOK_SECRET_LENGTH;
        self.require(scm_webhook_secret.as_ref().is_none_or(is_long), || {
            format!("SCM_WEBHOOK_SECRET must be at least {MIN_WEBHOOK_SECRET_LENGTH} bytes long")
        });
        let kind = text(Field::NotifyType).unwrap_or_else(|| "channel-a".to_owned());
        Credentials {
            linear: self.linear(values, addresses),
            jira: self.jira(values, addresses.jira_api_url.clone()),
            github: self.github(
                text(Field::GitHubAppId),
                secret(Field::GitHubAppPrivateKey),
                secret(Field::GitHubToken),
                &addresses.github_api_url,
            ),
            scm_webhook_secret,
            linear_webhook_secret: secret(Field::LinearWebhookSecret),
            jira_webhook_secret: secret(Field::JiraWebhookSecret),
            model_keys: [
                Field::AnthropicApiKey,
                Field::ClaudeCodeOauthToken,
                Field::OpenAiApiKey,
                Field::GeminiApiKey,
            ]
            .into_iter()
            .filter_map(key)
            .collect(),
            chat: self.chat(secret(Field::NotifyWebhookUrl), &kind),
            vm_token: secret(Field::VmSessionsToken),
        }
    }
}

/// Option of each field.
pub(super) fn credential_options(
    options: &mut Options,
) -> [(CredentialField, &mut Option<String>); 19] {
    use CredentialField as Field;
    [
        (Field::GitHubAppId, &mut options.github_app_id),
        (
            Field::GitHubAppPrivateKey,
            &mut options.github_app_private_key,
        ),
        (Field::GitHubToken, &mut options.github_token),
        (Field::ScmWebhookSecret, &mut options.scm_webhook_secret),
        (Field::LinearApiKey, &mut options.linear_api_key),
        (Field::LinearClientId, &mut options.linear_client_id),
        (Field::LinearClientSecret, &mut options.linear_client_secret),
        (
            Field::LinearWebhookSecret,
            &mut options.linear_webhook_secret,
        ),
        (Field::JiraSiteUrl, &mut options.jira_site_url),
        (Field::JiraEmail, &mut options.jira_email),
        (Field::JiraApiToken, &mut options.jira_api_token),
        (Field::JiraCloudId, &mut options.jira_cloud_id),
        (Field::JiraWebhookSecret, &mut options.jira_webhook_secret),
        (Field::AnthropicApiKey, &mut options.anthropic_api_key),
        (
            Field::ClaudeCodeOauthToken,
            &mut options.claude_code_oauth_token,
        ),
        (Field::OpenAiApiKey, &mut options.openai_api_key),
        (Field::GeminiApiKey, &mut options.gemini_api_key),
        (Field::NotifyWebhookUrl, &mut options.notify_webhook_url),
        (Field::VmSessionsToken, &mut options.vm_sessions_token),
    ]
}

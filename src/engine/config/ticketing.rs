//! Configuration of the ticketing systems: groups of values that must be set together.

use domain::connection::{CredentialField, CredentialValues};
use domain::secret::Secret;
use vendors::ticketing::{JiraCredentials, LinearCredentials};

use super::credentials::VendorAddresses;
use super::validator::Validator;

/// Base URL for OAuth bearer tokens, followed by the ID of the Jira cloud.
const JIRA_GATEWAY: &str = "https://api.atlassian.com/ex/jira";

/// Linear account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearConfig {
    /// Credentials.
    pub credentials: LinearCredentials,
    /// Base URL of the API, without a trailing slash.
    pub api_url: String,
    /// Base URL of the files that people upload, without a trailing slash.
    pub uploads_url: String,
}

/// Jira Cloud account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JiraConfig {
    /// Credentials.
    pub credentials: JiraCredentials,
    /// URL of the site, where people read tickets; `None` reads it from Jira.
    pub site_url: Option<String>,
    /// Base URL of the API, without `/rest/api/3` and a trailing slash.
    pub api_url: String,
}

impl Validator {
    pub(super) fn linear(
        &mut self,
        values: &CredentialValues,
        addresses: &VendorAddresses,
    ) -> Option<LinearConfig> {
        let id = non_blank(values, CredentialField::LinearClientId);
        let secret = |field| values.get(&field);
        let credentials = match (
            secret(CredentialField::LinearApiKey),
            id,
            secret(CredentialField::LinearClientSecret),
        ) {
            (None, None, None) => return None,
            (Some(key), None, None) => LinearCredentials::ApiKey(key.clone()),
            (None, Some(id), Some(secret)) => LinearCredentials::OAuthClient {
                id,
                secret: secret.clone(),
            },
            (Some(_), _, _) => {
                return self
                    .reject("LINEAR_API_KEY and an OAuth client of Linear are both set; set one");
            }
            (None, Some(_), None) => {
                return self.reject("LINEAR_CLIENT_ID is set and LINEAR_CLIENT_SECRET is not");
            }
            (None, None, Some(_)) => {
                return self.reject("LINEAR_CLIENT_SECRET is set and LINEAR_CLIENT_ID is not");
            }
        };
        Some(LinearConfig {
            credentials,
            api_url: self.base_url("LINEAR_API_URL", &addresses.linear_api_url),
            uploads_url: self.base_url("LINEAR_UPLOADS_URL", &addresses.linear_uploads_url),
        })
    }

    pub(super) fn jira(
        &mut self,
        values: &CredentialValues,
        api_url: Option<String>,
    ) -> Option<JiraConfig> {
        let (email, cloud) = (
            non_blank(values, CredentialField::JiraEmail),
            non_blank(values, CredentialField::JiraCloudId),
        );
        let site_url = non_blank(values, CredentialField::JiraSiteUrl);
        let site_url = self.optional_url("JIRA_SITE_URL", site_url);
        let api_url = self.optional_url("JIRA_API_URL", api_url);
        let Some(token) = values.get(&CredentialField::JiraApiToken).cloned() else {
            if site_url.is_some() || email.is_some() || cloud.is_some() {
                return self.reject("Jira is configured without JIRA_API_TOKEN");
            }
            return None;
        };
        let (credentials, api_url) = match (email, cloud, &site_url) {
            (Some(_), Some(_), _) => {
                return self.reject("JIRA_EMAIL and JIRA_CLOUD_ID are both set; set one");
            }
            (Some(_), None, None) => {
                return self.reject("JIRA_EMAIL is set and JIRA_SITE_URL is not");
            }
            (None, None, _) => {
                return self
                    .reject("JIRA_API_TOKEN needs JIRA_SITE_URL and JIRA_EMAIL, or JIRA_CLOUD_ID");
            }
            (Some(email), None, Some(site)) => (
                JiraCredentials::Basic { email, token },
                api_url.unwrap_or_else(|| site.clone()),
            ),
            (None, Some(cloud), _) => {
                let is_plain = cloud.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
                self.require(is_plain, || {
                    format!("JIRA_CLOUD_ID must be letters, digits and '-', not '{cloud}'")
                });
                (
                    JiraCredentials::Bearer(token),
                    api_url.unwrap_or_else(|| format!("{JIRA_GATEWAY}/{cloud}")),
                )
            }
        };
        Some(JiraConfig {
            credentials,
            site_url,
            api_url,
        })
    }

    fn reject<T>(&mut self, problem: &str) -> Option<T> {
        self.problems.push(problem.to_owned());
        None
    }
}

fn non_blank(values: &CredentialValues, field: CredentialField) -> Option<String> {
    let text = values.get(&field)?.expose().trim();
    (!text.is_empty()).then(|| text.to_owned())
}

impl LinearConfig {
    pub(super) fn secret(&self) -> &Secret {
        match &self.credentials {
            LinearCredentials::ApiKey(key) => key,
            LinearCredentials::OAuthClient { secret, .. } => secret,
        }
    }
}

impl JiraConfig {
    pub(super) fn secret(&self) -> &Secret {
        match &self.credentials {
            JiraCredentials::Basic { token, .. } | JiraCredentials::Bearer(token) => token,
        }
    }
}

/// Effective values of both systems for display, with secrets masked.
pub(super) fn effective(
    linear: Option<&LinearConfig>,
    jira: Option<&JiraConfig>,
) -> Vec<(&'static str, String)> {
    let shown = |text: Option<&str>| text.unwrap_or("<unset>").to_owned();
    let masked = |is_set: bool| shown(is_set.then_some("<set>"));
    let client = linear.and_then(|linear| match &linear.credentials {
        LinearCredentials::OAuthClient { id, .. } => Some(id.as_str()),
        LinearCredentials::ApiKey(_) => None,
    });
    let email = jira.and_then(|jira| match &jira.credentials {
        JiraCredentials::Basic { email, .. } => Some(email.as_str()),
        JiraCredentials::Bearer(_) => None,
    });
    vec![
        (
            "LINEAR_API_KEY",
            masked(linear.is_some() && client.is_none()),
        ),
        ("LINEAR_CLIENT_ID", shown(client)),
        ("LINEAR_CLIENT_SECRET", masked(client.is_some())),
        (
            "LINEAR_API_URL",
            shown(linear.map(|linear| linear.api_url.as_str())),
        ),
        (
            "LINEAR_UPLOADS_URL",
            shown(linear.map(|linear| linear.uploads_url.as_str())),
        ),
        (
            "JIRA_SITE_URL",
            shown(jira.and_then(|jira| jira.site_url.as_deref())),
        ),
        ("JIRA_EMAIL", shown(email)),
        ("JIRA_API_TOKEN", masked(jira.is_some())),
        (
            "JIRA_API_URL",
            shown(jira.map(|jira| jira.api_url.as_str())),
        ),
    ]
}

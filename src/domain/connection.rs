//! Connections to vendors: the credentials of each, by the names of their variables.

use std::collections::BTreeMap;

use crate::secret::Secret;

macro_rules! connection_names {
    ($($(#[$doc:meta])* $name:ident = $slug:literal, $title:literal;)*) => {
        /// Connection that an operator can set up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ConnectionName {
            $($(#[$doc])* $name,)*
        }

        impl ConnectionName {
            /// All connections, in the order in which an operator sets them up.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the name in the API, also the key of the stored rows.
            pub fn slug(self) -> &'static str {
                match self {
                    $(Self::$name => $slug,)*
                }
            }

            /// Returns the name that people know.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }
        }
    };
}

connection_names! {
    /// GitHub.
    GitHub = "github", "GitHub";
    /// Linear.
    Linear = "linear", "Linear";
    /// Jira Cloud.
    Jira = "jira", "Jira";
    /// Model provider of runs in machines and containers.
    Model = "model", "Model keys";
    /// Chat webhook.
    Chat = "chat", "Chat";
    /// Fly Machines.
    FlyMachines = "fly", "Fly Machines";
}

impl ConnectionName {
    /// Finds a connection by its name in the API.
    pub fn parse(slug: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|name| name.slug() == slug)
    }

    /// Returns where to get the credentials, and which rights they need.
    pub fn help(self) -> &'static str {
        match self {
            Self::GitHub => {
                "A GitHub App gives each run a token for its own repository only. A plain token goes to every run \
                 as it is: use a fine-grained token with read and write access to contents, pull requests, issues, \
                 actions and workflows of the target repositories."
            }
            Self::Linear => {
                "Create an API key in Linear (Settings, Security & access). It needs read and write access, and \
                 sees the teams of its user. An OAuth application works, too."
            }
            Self::Jira => {
                "Create an API token for an account that can browse, edit and comment the tickets of the projects. \
                 An OAuth token needs the cloud ID instead of the email."
            }
            Self::Model => {
                "Runs in machines and containers get these keys. Workflows use the secrets of their repository. \
                 The first run tests a key."
            }
            Self::Chat => {
                "Address of an incoming webhook of Slack or Teams. It is not tested, because that would post a \
                 message."
            }
            Self::FlyMachines => {
                "Create a deploy token of the app that runs the machines. Set the app in Settings."
            }
        }
    }

    /// Returns the page of the vendor on which the credentials are created.
    pub fn help_url(self) -> Option<&'static str> {
        match self {
            Self::GitHub => Some("https://github.com/settings/personal-access-tokens/new"),
            Self::Linear => Some("https://linear.app/settings/account/security"),
            Self::Jira => Some("https://id.atlassian.com/manage-profile/security/api-tokens"),
            Self::Model => Some("https://console.anthropic.com/settings/keys"),
            Self::FlyMachines => Some("https://fly.io/dashboard"),
            Self::Chat => None,
        }
    }

    /// Returns the fields of the connection.
    pub fn fields(self) -> impl Iterator<Item = CredentialField> {
        let all = CredentialField::ALL.iter().copied();
        all.filter(move |field| field.set().connection() == self)
    }
}

/// Fields that have one source: if the environment sets one of them, it decides about all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CredentialSet {
    /// Credentials of GitHub.
    GitHub,
    /// Secret of GitHub's webhook.
    GitHubWebhook,
    /// Credentials of Linear.
    Linear,
    /// Secret of Linear's webhook.
    LinearWebhook,
    /// Credentials of Jira.
    Jira,
    /// Secret of Jira's webhook.
    JiraWebhook,
    /// API key of Anthropic.
    AnthropicKey,
    /// OAuth token of Claude Code.
    ClaudeCodeToken,
    /// API key of OpenAI.
    OpenAiKey,
    /// API key of Gemini.
    GeminiKey,
    /// Chat webhook.
    Chat,
    /// Token of Fly Machines.
    FlyMachines,
}

impl CredentialSet {
    /// Returns the connection that the set belongs to.
    pub fn connection(self) -> ConnectionName {
        match self {
            Self::GitHub | Self::GitHubWebhook => ConnectionName::GitHub,
            Self::Linear | Self::LinearWebhook => ConnectionName::Linear,
            Self::Jira | Self::JiraWebhook => ConnectionName::Jira,
            Self::AnthropicKey | Self::ClaudeCodeToken | Self::OpenAiKey | Self::GeminiKey => {
                ConnectionName::Model
            }
            Self::Chat => ConnectionName::Chat,
            Self::FlyMachines => ConnectionName::FlyMachines,
        }
    }

    /// Whether the set alone makes the connection configured. Secrets of webhooks do not.
    pub fn is_main(self) -> bool {
        !matches!(
            self,
            Self::GitHubWebhook | Self::LinearWebhook | Self::JiraWebhook
        )
    }
}

macro_rules! credential_fields {
    ($($(#[$doc:meta])* $name:ident = $set:ident, $variable:literal, $label:literal, $is_secret:literal;)*) => {
        /// Field of a connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum CredentialField {
            $($(#[$doc])* $name,)*
        }

        impl CredentialField {
            /// All fields.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the variable, which is the name in the API and of the stored value, too.
            pub fn variable(self) -> &'static str {
                match self {
                    $(Self::$name => $variable,)*
                }
            }

            /// Returns the label in a form.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }

            /// Returns the set that the field belongs to.
            pub fn set(self) -> CredentialSet {
                match self {
                    $(Self::$name => CredentialSet::$set,)*
                }
            }

            /// Whether the value is a secret.
            pub fn is_secret(self) -> bool {
                match self {
                    $(Self::$name => $is_secret,)*
                }
            }
        }
    };
}

credential_fields! {
    /// ID of the GitHub App.
    GitHubAppId = GitHub, "GITHUB_APP_ID", "App ID", false;
    /// Private key of the GitHub App.
    GitHubAppPrivateKey = GitHub, "GITHUB_APP_PRIVATE_KEY", "Private key of the App", true;
    /// Plain GitHub token.
    GitHubToken = GitHub, "GITHUB_TOKEN", "Token, instead of an App", true;
    /// Secret of GitHub's webhook.
    ScmWebhookSecret = GitHubWebhook, "SCM_WEBHOOK_SECRET", "Webhook secret", true;
    /// API key of Linear.
    LinearApiKey = Linear, "LINEAR_API_KEY", "API key", true;
    /// ID of the OAuth application of Linear.
    LinearClientId = Linear, "LINEAR_CLIENT_ID", "OAuth client ID, instead of a key", false;
    /// Secret of the OAuth application of Linear.
    LinearClientSecret = Linear, "LINEAR_CLIENT_SECRET", "OAuth client secret", true;
    /// Secret of Linear's webhook.
    LinearWebhookSecret = LinearWebhook, "LINEAR_WEBHOOK_SECRET", "Webhook secret", true;
    /// URL of the Jira site.
    JiraSiteUrl = Jira, "JIRA_SITE_URL", "Address of the site", false;
    /// Email address of the owner of the API token.
    JiraEmail = Jira, "JIRA_EMAIL", "Email of the account", false;
    /// API token of Jira.
    JiraApiToken = Jira, "JIRA_API_TOKEN", "API token", true;
    /// ID of the Jira cloud.
    JiraCloudId = Jira, "JIRA_CLOUD_ID", "Cloud ID, for OAuth tokens", false;
    /// Secret of Jira's webhook.
    JiraWebhookSecret = JiraWebhook, "JIRA_WEBHOOK_SECRET", "Webhook secret", true;
    /// API key of Anthropic.
    AnthropicApiKey = AnthropicKey, "ANTHROPIC_API_KEY", "Anthropic API key", true;
    /// OAuth token of Claude Code.
    ClaudeCodeOauthToken = ClaudeCodeToken, "CLAUDE_CODE_OAUTH_TOKEN", "OAuth token of Claude Code", true;
    /// API key of OpenAI, for Codex.
    OpenAiApiKey = OpenAiKey, "OPENAI_API_KEY", "OpenAI API key, for Codex", true;
    /// API key of Gemini.
    GeminiApiKey = GeminiKey, "GEMINI_API_KEY", "Gemini API key", true;
    /// URL of the chat webhook.
    NotifyWebhookUrl = Chat, "NOTIFY_WEBHOOK_URL", "Webhook address", true;
    /// Kind of chat.
    NotifyType = Chat, "NOTIFY_TYPE", "channel-a (Slack) or channel-b (Teams)", false;
    /// Token of Fly Machines.
    VmSessionsToken = FlyMachines, "VM_SESSIONS_TOKEN", "Deploy token", true;
}

impl CredentialField {
    /// Finds a field by its variable.
    pub fn parse(variable: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|field| field.variable() == variable)
    }
}

/// Values of fields, not validated yet.
pub type CredentialValues = BTreeMap<CredentialField, Secret>;

/// Source of the credentials in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialSource {
    /// Environment, command line, file or systemd credential.
    Environment,
    /// The store of the service.
    Stored,
}

impl CredentialSource {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Environment => "env",
            Self::Stored => "stored",
        }
    }

    /// Returns the words in a message.
    pub fn words(self) -> &'static str {
        match self {
            Self::Environment => "from the environment",
            Self::Stored => "stored by this service",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_connections_and_fields_by_their_names() {
        for name in ConnectionName::ALL {
            assert_eq!(ConnectionName::parse(name.slug()), Some(*name));
            assert!(name.fields().any(|field| field.set().is_main()), "{name:?}");
        }
        for field in CredentialField::ALL {
            assert_eq!(CredentialField::parse(field.variable()), Some(*field));
        }
        assert_eq!(ConnectionName::parse("GitHub"), None);
        assert_eq!(CredentialField::parse("PATH"), None);
    }
}

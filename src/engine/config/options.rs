//! The command line and the environment, as they were given.

use std::path::PathBuf;

/// What `serve` takes, as it was given.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Address to listen on.
    #[arg(long, env = "LISTEN_ADDR", default_value = "127.0.0.1")]
    pub listen_addr: String,
    /// Port to listen on.
    #[arg(long, env = "PORT", default_value = "8080")]
    pub port: String,
    /// Folder of the store, of the key that stored secrets are sealed with, and of the logs.
    #[arg(long, env = "DATA_DIR", default_value = "./data")]
    pub data_dir: PathBuf,
    /// Folder of the operator's own pipelines and steps, as the admin panel shows it.
    #[arg(long, env = "CUSTOM_DIR", default_value = "./custom")]
    pub custom_dir: PathBuf,
    /// Access code of the admin panel and API; at least 8 bytes. Unset switches both off.
    #[arg(
        long,
        env = "ADMIN_ACCESS_CODE",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub admin_access_code: Option<String>,
    /// Milliseconds between two polls of the ticketing systems; at least 1000.
    #[arg(long, env = "POLL_INTERVAL_MS", default_value = "60000")]
    pub poll_interval_ms: String,
    /// Address under which runs reach this service, such as `https://agents.example.com`. Unset means
    /// that runs cannot report.
    #[arg(long, env = "RUNNER_CALLBACK_BASE_URL")]
    pub runner_callback_base_url: Option<String>,
    /// Secret that run tokens are signed with; at least 32 bytes. Unset means that runs cannot report.
    #[arg(
        long,
        env = "RUNNER_TOKEN_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub runner_token_secret: Option<String>,
    /// Secret that the repository host signs its webhooks with; at least 8 bytes. Unset switches them
    /// off.
    #[arg(
        long,
        env = "SCM_WEBHOOK_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub scm_webhook_secret: Option<String>,
    /// Secret that Linear signs its webhooks with; unset switches them off.
    #[arg(
        long,
        env = "LINEAR_WEBHOOK_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub linear_webhook_secret: Option<String>,
    /// Secret that Jira signs its webhooks with; unset switches them off.
    #[arg(
        long,
        env = "JIRA_WEBHOOK_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub jira_webhook_secret: Option<String>,
    /// Secret that the workflow behind /agent-implement comments shows; at least 8 bytes. Unset switches
    /// those runs off.
    #[arg(
        long,
        env = "GAP_FILL_TRIGGER_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub gap_fill_trigger_secret: Option<String>,
    /// API key of Linear. Unset, and without an OAuth application, Linear is off.
    #[arg(
        long,
        env = "LINEAR_API_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub linear_api_key: Option<String>,
    /// Id of an OAuth application of Linear, in place of an API key.
    #[arg(long, env = "LINEAR_CLIENT_ID")]
    pub linear_client_id: Option<String>,
    /// Secret of the OAuth application of Linear; goes with LINEAR_CLIENT_ID.
    #[arg(
        long,
        env = "LINEAR_CLIENT_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub linear_client_secret: Option<String>,
    /// Base address of Linear's API.
    #[arg(long, env = "LINEAR_API_URL", default_value = "https://api.linear.app")]
    pub linear_api_url: String,
    /// Address of the Jira site, such as `https://example.atlassian.net`.
    #[arg(long, env = "JIRA_SITE_URL")]
    pub jira_site_url: Option<String>,
    /// Email address of the person whose API token JIRA_API_TOKEN is; not for OAuth tokens.
    #[arg(long, env = "JIRA_EMAIL")]
    pub jira_email: Option<String>,
    /// API token of Jira, or with JIRA_CLOUD_ID an OAuth bearer token. Unset, Jira is off.
    #[arg(
        long,
        env = "JIRA_API_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub jira_api_token: Option<String>,
    /// Id of the Jira cloud that an OAuth bearer token is for.
    #[arg(long, env = "JIRA_CLOUD_ID")]
    pub jira_cloud_id: Option<String>,
    /// Base address of Jira's API, where it is not the site or the cloud's gateway. An API token
    /// with scopes needs the gateway: `https://api.atlassian.com/ex/jira/<cloud id>`.
    #[arg(long, env = "JIRA_API_URL")]
    pub jira_api_url: Option<String>,
    /// Id of the GitHub App that works on the target repositories. Without an App or GITHUB_TOKEN no
    /// run is started.
    #[arg(long, env = "GITHUB_APP_ID")]
    pub github_app_id: Option<String>,
    /// Private key of the GitHub App, as PEM; \n stands for a line break. Goes with GITHUB_APP_ID.
    #[arg(
        long,
        env = "GITHUB_APP_PRIVATE_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub github_app_private_key: Option<String>,
    /// A plain GitHub token in place of an App, for small set-ups. Each run is handed the whole token:
    /// use a fine-grained one for the target repositories alone.
    #[arg(
        long,
        env = "GITHUB_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub github_token: Option<String>,
    /// Whether GITHUB_TOKEN may have the right to change workflows, and runs with it: true or false.
    #[arg(long, env = "ALLOW_WORKFLOW_TOKEN", default_value = "false")]
    pub allow_workflow_token: String,
    /// Base address of GitHub's API; another one for GitHub Enterprise.
    #[arg(long, env = "GITHUB_API_URL", default_value = "https://api.github.com")]
    pub github_api_url: String,
    /// Image that CI runs and machines use; unset leaves the choice to the repository.
    #[arg(long, env = "SESSION_IMAGE")]
    pub session_image: Option<String>,
    /// Token of Fly Machines, for runs in virtual machines; unset switches them off.
    #[arg(
        long,
        env = "VM_SESSIONS_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub vm_sessions_token: Option<String>,
    /// Fly application that machines are made in; beats what operators chose in the panel.
    #[arg(long, env = "VM_SESSIONS_APP")]
    pub vm_sessions_app: Option<String>,
    /// Fly region that machines are made in; beats what operators chose in the panel. Unset means iad.
    #[arg(long, env = "VM_SESSIONS_REGION")]
    pub vm_sessions_region: Option<String>,
    /// Base address of the Fly Machines API.
    #[arg(long, env = "VM_API_URL", default_value = "https://api.machines.dev")]
    pub vm_api_url: String,
    /// Image that runs in containers of this machine use.
    #[arg(
        long,
        env = "LOCAL_RUNNER_IMAGE",
        default_value = "agent-implement-runner:local"
    )]
    pub local_runner_image: String,
    /// The container engine: `unix:///path` or `tcp://host:port`. Unset means
    /// `unix:///var/run/docker.sock`, where it is.
    #[arg(long, env = "DOCKER_HOST")]
    pub docker_host: Option<String>,
    /// Anthropic API key that runs in machines and containers are handed; workflows have the repository's
    /// own.
    #[arg(
        long,
        env = "ANTHROPIC_API_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub anthropic_api_key: Option<String>,
    /// OAuth token of Claude Code that runs in machines and containers are handed, in place of a key.
    #[arg(
        long,
        env = "CLAUDE_CODE_OAUTH_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub claude_code_oauth_token: Option<String>,
    /// Address of the chat webhook that is told of dispatches and ends; unset tells nobody.
    #[arg(
        long,
        env = "NOTIFY_WEBHOOK_URL",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub notify_webhook_url: Option<String>,
    /// Kind of the chat webhook: channel-a (Slack) or channel-b (Teams).
    #[arg(long, env = "NOTIFY_TYPE", default_value = "channel-a")]
    pub notify_type: String,
    /// Hours that a dispatched issue is not dispatched again; 0 means until its entry is cleared.
    #[arg(long, env = "DEDUP_WINDOW_HOURS", default_value = "24")]
    pub dedup_window_hours: String,
    /// Failures in a row after which an issue is parked; 0 means never.
    #[arg(long, env = "DISPATCH_BREAKER_THRESHOLD", default_value = "3")]
    pub dispatch_breaker_threshold: String,
    /// Key of the stored secrets: 32 bytes in base64. Unset means a file in DATA_DIR, made at the
    /// first start.
    #[arg(
        long,
        env = "SECRETS_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub secrets_key: Option<String>,
    /// Where runs execute, whatever operators chose in the panel: default, ci, vm, local or shadow.
    #[arg(long, env = "RUNNER_MODE")]
    pub runner_mode: Option<String>,
    /// What the images that repositories name in .agent-implement/image.yml may begin with,
    /// separated by commas; unset means ghcr.io/ and the repository's owner.
    #[arg(long, env = "RUNNER_IMAGE_PREFIXES")]
    pub runner_image_prefixes: Option<String>,
    /// Whether the reaper only records which machines it would destroy: true or false.
    #[arg(long, env = "REAPER_DRY_RUN", default_value = "false")]
    pub reaper_dry_run: String,
    /// Machines destroyed in one sweep at which the chat is told; 0 means never.
    #[arg(long, env = "REAPER_ALERT_THRESHOLD", default_value = "10")]
    pub reaper_alert_threshold: String,
    /// Addresses of reverse proxies whose X-Forwarded-For is believed, separated by commas.
    #[arg(long, env = "TRUSTED_PROXIES")]
    pub trusted_proxies: Option<String>,
    /// Proxy that addresses of https are asked through; it may hold a name and a password.
    #[arg(long, env = "HTTPS_PROXY", hide_env_values = true)]
    pub https_proxy: Option<String>,
    /// Proxy that addresses of plain http are asked through.
    #[arg(long, env = "HTTP_PROXY", hide_env_values = true)]
    pub http_proxy: Option<String>,
    /// Hosts that are asked without a proxy, separated by commas; this machine itself always is.
    #[arg(long, env = "NO_PROXY")]
    pub no_proxy: Option<String>,
    /// Whether vendors, the chat and runs may be reached over plain http beyond this machine: true or
    /// false.
    #[arg(long, env = "ALLOW_PLAIN_HTTP", default_value = "false")]
    pub allow_plain_http: String,
    /// Whether GET /metrics is there: true or false.
    #[arg(long, env = "METRICS", default_value = "true")]
    pub metrics: String,
    /// Bearer token of GET /metrics; unset lets only this machine read it.
    #[arg(
        long,
        env = "METRICS_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub metrics_token: Option<String>,
    /// Days that log files are kept in DATA_DIR/logs, today included; 0 writes none.
    #[arg(long, env = "LOG_KEEP_DAYS", default_value = "14")]
    pub log_keep_days: String,
    /// Form of the log on standard error: text or json.
    #[arg(long, env = "LOG_FORMAT", default_value = "text")]
    pub log_format: String,
    /// What is logged: error, warn, info, debug, trace, or a filter such as info,agent_implement=debug.
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

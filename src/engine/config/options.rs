//! Command line options and environment variables of `serve`.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};

use super::BucketOptions;

/// Returns the default of a variable. `None` if it has none.
pub fn default_of(variable: &str) -> Option<String> {
    let command = <Options as clap::Args>::augment_args(clap::Command::new("serve"));
    let mut options = command.get_arguments();
    let option = options.find(|option| option.get_env().is_some_and(|name| name == variable))?;
    let default = option.get_default_values().first()?;
    Some(default.to_string_lossy().into_owned())
}

/// Parser of paths that may be empty: an empty value is unset or a problem of the configuration, not of the command line.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Options of `serve`, not validated yet.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Address to listen on.
    #[arg(long, env = "LISTEN_ADDR", default_value = "127.0.0.1")]
    pub listen_addr: String,
    /// Port to listen on.
    #[arg(long, env = "PORT", default_value = "8080")]
    pub port: String,
    /// Directory of the store, of the key of stored secrets, and of the logs.
    #[arg(long, env = "DATA_DIR", default_value = "./data", value_parser = path())]
    pub data_dir: PathBuf,
    /// Directory of the operator's own pipelines and steps, as the admin panel shows it.
    #[arg(long, env = "CUSTOM_DIR", default_value = "./custom", value_parser = path())]
    pub custom_dir: PathBuf,
    /// Access code of the admin panel and API; at least 8 bytes. Unset disables both.
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
    /// URL at which runs reach this service, such as `https://agents.example.com`. If unset, local
    /// containers report through a socket, CI runs leave their result as an artifact, and machines
    /// do not start.
    #[arg(long, env = "RUNNER_CALLBACK_BASE_URL")]
    pub runner_callback_base_url: Option<String>,
    /// Secret that signs run tokens; at least 32 bytes. Needed together with
    /// RUNNER_CALLBACK_BASE_URL. If unset, the key of the stored secrets signs them.
    #[arg(
        long,
        env = "RUNNER_TOKEN_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub runner_token_secret: Option<String>,
    /// Secret that signs the repository host's webhooks; at least 8 bytes. Unset disables them.
    #[arg(
        long,
        env = "SCM_WEBHOOK_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub scm_webhook_secret: Option<String>,
    /// Secret that signs Linear's webhooks; unset disables them.
    #[arg(
        long,
        env = "LINEAR_WEBHOOK_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub linear_webhook_secret: Option<String>,
    /// Secret that signs Jira's webhooks; unset disables them.
    #[arg(
        long,
        env = "JIRA_WEBHOOK_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub jira_webhook_secret: Option<String>,
    /// Secret of the workflow that handles /agent-implement comments; at least 8 bytes. Unset
    /// disables those runs.
    #[arg(
        long,
        env = "GAP_FILL_TRIGGER_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub gap_fill_trigger_secret: Option<String>,
    /// API key of Linear. If unset, and without an OAuth application, Linear is disabled.
    #[arg(
        long,
        env = "LINEAR_API_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub linear_api_key: Option<String>,
    /// ID of an OAuth application of Linear, instead of an API key.
    #[arg(long, env = "LINEAR_CLIENT_ID")]
    pub linear_client_id: Option<String>,
    /// Secret of the OAuth application of Linear; set it together with LINEAR_CLIENT_ID.
    #[arg(
        long,
        env = "LINEAR_CLIENT_SECRET",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub linear_client_secret: Option<String>,
    /// Base URL of Linear's API.
    #[arg(long, env = "LINEAR_API_URL", default_value = "https://api.linear.app")]
    pub linear_api_url: String,
    /// Base URL of the files that people upload to Linear.
    #[arg(
        long,
        env = "LINEAR_UPLOADS_URL",
        default_value = "https://uploads.linear.app"
    )]
    pub linear_uploads_url: String,
    /// URL of the Jira site, such as `https://example.atlassian.net`.
    #[arg(long, env = "JIRA_SITE_URL")]
    pub jira_site_url: Option<String>,
    /// Email address of the owner of JIRA_API_TOKEN; not for OAuth tokens.
    #[arg(long, env = "JIRA_EMAIL")]
    pub jira_email: Option<String>,
    /// API token of Jira, or an OAuth bearer token together with JIRA_CLOUD_ID. Unset disables
    /// Jira.
    #[arg(
        long,
        env = "JIRA_API_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub jira_api_token: Option<String>,
    /// ID of the Jira cloud of an OAuth bearer token.
    #[arg(long, env = "JIRA_CLOUD_ID")]
    pub jira_cloud_id: Option<String>,
    /// Base URL of Jira's API, if it differs from the site and the cloud's gateway. An API token
    /// with scopes needs the gateway: `https://api.atlassian.com/ex/jira/<cloud id>`.
    #[arg(long, env = "JIRA_API_URL")]
    pub jira_api_url: Option<String>,
    /// ID of the GitHub App for the target repositories. Without an App or GITHUB_TOKEN no run
    /// starts.
    #[arg(long, env = "GITHUB_APP_ID")]
    pub github_app_id: Option<String>,
    /// Private key of the GitHub App in PEM format; \n stands for a line break. Set it together
    /// with GITHUB_APP_ID.
    #[arg(
        long,
        env = "GITHUB_APP_PRIVATE_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub github_app_private_key: Option<String>,
    /// Plain GitHub token instead of an App, for small setups. Every run gets the whole token: use
    /// a fine-grained token for the target repositories only.
    #[arg(
        long,
        env = "GITHUB_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub github_token: Option<String>,
    /// Whether GITHUB_TOKEN, and the runs that get it, may change workflows: true or false.
    #[arg(long, env = "ALLOW_WORKFLOW_TOKEN", default_value = "false")]
    pub allow_workflow_token: String,
    /// Base URL of GitHub's API; set it for GitHub Enterprise Server.
    #[arg(long, env = "GITHUB_API_URL", default_value = "https://api.github.com")]
    pub github_api_url: String,
    /// Image of runs in CI, machines and Kubernetes; if unset, the repository decides.
    #[arg(long, env = "SESSION_IMAGE")]
    pub session_image: Option<String>,
    /// Address from which CI runs without the program in their image fetch it, instead of from this service.
    #[arg(long, env = "RUNNER_PROGRAM_URL")]
    pub runner_program_url: Option<String>,
    /// SHA-256 of the program at RUNNER_PROGRAM_URL. If unset, it must be the program of the service.
    #[arg(long, env = "RUNNER_PROGRAM_SHA256")]
    pub runner_program_sha256: Option<String>,
    /// Token of Fly Machines, for runs in virtual machines; unset disables them.
    #[arg(
        long,
        env = "VM_SESSIONS_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub vm_sessions_token: Option<String>,
    /// Fly app of the machines; takes precedence over the setting in the panel.
    #[arg(long, env = "VM_SESSIONS_APP")]
    pub vm_sessions_app: Option<String>,
    /// Fly region of the machines; takes precedence over the setting in the panel. Default iad.
    #[arg(long, env = "VM_SESSIONS_REGION")]
    pub vm_sessions_region: Option<String>,
    /// Base URL of the Fly Machines API.
    #[arg(long, env = "VM_API_URL", default_value = "https://api.machines.dev")]
    pub vm_api_url: String,
    /// Image of runs in local containers.
    #[arg(
        long,
        env = "LOCAL_RUNNER_IMAGE",
        default_value = "agent-implement-runner:local"
    )]
    pub local_runner_image: String,
    /// Address of the container engine: `unix:///path` or `tcp://host:port`. If unset,
    /// `unix:///var/run/docker.sock`, if it exists.
    #[arg(long, env = "DOCKER_HOST")]
    pub docker_host: Option<String>,
    /// Path of DATA_DIR on the machine of the container engine. Set it if the service itself runs in
    /// a container and uses local containers.
    #[arg(long, env = "DATA_DIR_ON_HOST", value_parser = path())]
    pub data_dir_on_host: Option<PathBuf>,
    /// Network of local containers: proxy (none; other hosts are reached through a proxy of the service) or open (that
    /// of the container engine, with access to this machine and its network). If unset, proxy, unless the engine is on
    /// another machine and DATA_DIR_ON_HOST is unset.
    #[arg(long, env = "LOCAL_EGRESS")]
    pub local_egress: Option<String>,
    /// Hosts that local containers may reach through the proxy, separated by commas: names, *. and a name for its
    /// subdomains, addresses, each with or without a port; *, the default, is every public host.
    #[arg(long, env = "LOCAL_EGRESS_HOSTS")]
    pub local_egress_hosts: Option<String>,
    /// Megabytes that mirrors of repositories may take up in DATA_DIR, from which local containers copy what
    /// they would fetch; 0 disables them.
    #[arg(long, env = "GIT_MIRROR_LIMIT_MB", default_value = "5000")]
    pub git_mirror_limit_mb: String,
    /// Namespace for runs in Kubernetes; unset disables them.
    #[arg(long, env = "KUBERNETES_NAMESPACE")]
    pub kubernetes_namespace: Option<String>,
    /// kubeconfig file of the cluster. If unset, the service account of the pod that this service runs in.
    #[arg(long, env = "KUBECONFIG", value_parser = path())]
    pub kubeconfig: Option<PathBuf>,
    /// Runtime class of runs in Kubernetes, such as one of gVisor or Kata Containers.
    #[arg(long, env = "KUBERNETES_RUNTIME_CLASS")]
    pub kubernetes_runtime_class: Option<String>,
    /// Secret in the namespace with the credentials of the registry of the images.
    #[arg(long, env = "KUBERNETES_PULL_SECRET")]
    pub kubernetes_pull_secret: Option<String>,
    /// Place for backups that a standby shares: an absolute path or s3://BUCKET/PREFIX; unset disables it.
    #[arg(long, env = "STANDBY_PLACE")]
    pub standby_place: Option<String>,
    /// Seconds after which changes are in the place at the latest; before an effect they always are.
    #[arg(long, env = "STANDBY_INTERVAL", default_value = "30")]
    pub standby_interval: String,
    /// Access to the bucket of the place.
    #[command(flatten)]
    pub bucket: BucketOptions,
    /// Anthropic API key for runs in machines and containers; workflows use the secrets of their
    /// repository.
    #[arg(
        long,
        env = "ANTHROPIC_API_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub anthropic_api_key: Option<String>,
    /// OAuth token of Claude Code for runs in machines and containers, instead of an API key.
    #[arg(
        long,
        env = "CLAUDE_CODE_OAUTH_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub claude_code_oauth_token: Option<String>,
    /// OpenAI API key for runs of Codex in machines and containers.
    #[arg(
        long,
        env = "OPENAI_API_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub openai_api_key: Option<String>,
    /// Gemini API key for runs of Gemini CLI in machines and containers.
    #[arg(
        long,
        env = "GEMINI_API_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub gemini_api_key: Option<String>,
    /// URL of the chat webhook for messages about the start and end of runs; unset disables them.
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
    /// Hour of the day (UTC) of the chat message about what waits for people, 0 to 23; off disables it.
    #[arg(long, env = "NOTIFY_DIGEST_HOUR", default_value = "9")]
    pub notify_digest_hour: String,
    /// Hours in which a dispatched issue is not dispatched again; 0 means until its entry is
    /// removed.
    #[arg(long, env = "DEDUP_WINDOW_HOURS", default_value = "24")]
    pub dedup_window_hours: String,
    /// Consecutive failures after which an issue is parked; 0 means never.
    #[arg(long, env = "DISPATCH_BREAKER_THRESHOLD", default_value = "3")]
    pub dispatch_breaker_threshold: String,
    /// Key of the stored secrets: 32 bytes in base64. If unset, a file in DATA_DIR, created at the
    /// first start.
    #[arg(
        long,
        env = "SECRETS_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub secrets_key: Option<String>,
    /// Runner mode; takes precedence over the setting in the panel: default, ci, vm, local, shadow or
    /// kubernetes.
    #[arg(long, env = "RUNNER_MODE")]
    pub runner_mode: Option<String>,
    /// Allowed prefixes of the images that repositories name in .agent-implement/image.yml,
    /// separated by commas; if unset, ghcr.io/ and the repository's owner.
    #[arg(long, env = "RUNNER_IMAGE_PREFIXES")]
    pub runner_image_prefixes: Option<String>,
    /// Whether the reaper only records which machines it would destroy: true or false.
    #[arg(long, env = "REAPER_DRY_RUN", default_value = "false")]
    pub reaper_dry_run: String,
    /// Number of machines destroyed in one sweep from which a chat message is sent; 0 means never.
    #[arg(long, env = "REAPER_ALERT_THRESHOLD", default_value = "10")]
    pub reaper_alert_threshold: String,
    /// Addresses and networks of reverse proxies whose X-Forwarded-For is trusted, separated by commas.
    #[arg(long, env = "TRUSTED_PROXIES")]
    pub trusted_proxies: Option<String>,
    /// Proxy for https requests; the URL may contain user name and password.
    #[arg(long, env = "HTTPS_PROXY", hide_env_values = true)]
    pub https_proxy: Option<String>,
    /// Proxy for plain http requests.
    #[arg(long, env = "HTTP_PROXY", hide_env_values = true)]
    pub http_proxy: Option<String>,
    /// Hosts that are requested without a proxy, separated by commas; this machine always is.
    #[arg(long, env = "NO_PROXY")]
    pub no_proxy: Option<String>,
    /// Whether vendors, the chat and runs on other machines may be reached over plain http: true or
    /// false.
    #[arg(long, env = "ALLOW_PLAIN_HTTP", default_value = "false")]
    pub allow_plain_http: String,
    /// Whether GET /metrics exists: true or false.
    #[arg(long, env = "METRICS", default_value = "true")]
    pub metrics: String,
    /// Bearer token of GET /metrics; if unset, only this machine may read it.
    #[arg(
        long,
        env = "METRICS_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub metrics_token: Option<String>,
    /// Days for which log files are kept in DATA_DIR/logs, including today; 0 disables log files.
    #[arg(long, env = "LOG_KEEP_DAYS", default_value = "14")]
    pub log_keep_days: String,
    /// Format of the log on standard error: text or json.
    #[arg(long, env = "LOG_FORMAT", default_value = "text")]
    pub log_format: String,
    /// Log filter: error, warn, info, debug, trace, or a filter such as info,engine=debug.
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

//! Effective configuration for display, and the secrets that must be redacted.

use super::{
    Config, GitHubAuthConfig, KubernetesConfig, LogFormat, kubernetes, session_hosts, standby,
    ticketing,
};
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use vendors::chat::ChatKind;

impl Config {
    /// Effective values for display, with secrets masked.
    pub fn effective(&self) -> Vec<(&'static str, String)> {
        let mask = |set: bool| {
            if set {
                "<set>".to_owned()
            } else {
                "<unset>".to_owned()
            }
        };
        let plain = |value: Option<&str>| value.map_or_else(|| "<unset>".to_owned(), str::to_owned);
        let credentials = &self.credentials;
        let app = credentials
            .github
            .as_ref()
            .and_then(|github| match &github.credentials {
                GitHubAuthConfig::App { id, .. } => Some(id.as_str()),
                GitHubAuthConfig::Token(_) => None,
            });
        let mut values = vec![
            ("LISTEN_ADDR", self.listen.ip().to_string()),
            ("PORT", self.listen.port().to_string()),
            ("DATA_DIR", self.data_dir.display().to_string()),
            ("CUSTOM_DIR", self.custom_dir.display().to_string()),
            ("ADMIN_ACCESS_CODE", mask(self.admin_access_code.is_some())),
            (
                "POLL_INTERVAL_MS",
                self.poll_interval.as_millis().to_string(),
            ),
            (
                "RUNNER_CALLBACK_BASE_URL",
                plain(self.callback_base_url.as_deref()),
            ),
            (
                "RUNNER_TOKEN_SECRET",
                mask(self.runner_token_secret.is_some()),
            ),
            (
                "SCM_WEBHOOK_SECRET",
                mask(credentials.scm_webhook_secret.is_some()),
            ),
            (
                "LINEAR_WEBHOOK_SECRET",
                mask(credentials.linear_webhook_secret.is_some()),
            ),
            (
                "JIRA_WEBHOOK_SECRET",
                mask(credentials.jira_webhook_secret.is_some()),
            ),
            (
                "GAP_FILL_TRIGGER_SECRET",
                mask(self.gap_fill_trigger_secret.is_some()),
            ),
            ("GITHUB_APP_ID", plain(app)),
            ("GITHUB_APP_PRIVATE_KEY", mask(app.is_some())),
            (
                "GITHUB_TOKEN",
                mask(credentials.github.is_some() && app.is_none()),
            ),
            (
                "GITHUB_API_URL",
                plain(
                    credentials
                        .github
                        .as_ref()
                        .map(|github| github.api_url.as_str()),
                ),
            ),
            ("SESSION_IMAGE", plain(self.session_image.as_deref())),
            (
                "RUNNER_PROGRAM_URL",
                plain(
                    self.runner_program
                        .as_ref()
                        .map(|release| release.url.as_str()),
                ),
            ),
            (
                "RUNNER_PROGRAM_SHA256",
                plain(
                    self.runner_program
                        .as_ref()
                        .and_then(|release| release.sha256.as_deref()),
                ),
            ),
            ("NOTIFY_WEBHOOK_URL", mask(credentials.chat.is_some())),
            (
                "NOTIFY_TYPE",
                plain(credentials.chat.as_ref().map(|notify| match notify.kind {
                    ChatKind::Slack => "channel-a",
                    ChatKind::Teams => "channel-b",
                })),
            ),
            (
                "NOTIFY_DIGEST_HOUR",
                self.digest_hour
                    .map_or_else(|| "off".to_owned(), |hour| hour.to_string()),
            ),
            (
                "DEDUP_WINDOW_HOURS",
                (self.dedup_window.unwrap_or_default().as_secs() / 3600).to_string(),
            ),
            (
                "DISPATCH_BREAKER_THRESHOLD",
                self.breaker_threshold.unwrap_or(0).to_string(),
            ),
            ("SECRETS_KEY", mask(self.secrets_key.is_some())),
            (
                "RUNNER_MODE",
                plain(self.runner_mode.map(RunnerMode::as_str)),
            ),
            ("RUNNER_IMAGE_PREFIXES", self.image_prefixes.join(",")),
            ("REAPER_DRY_RUN", self.reaper.dry_run.to_string()),
            (
                "REAPER_ALERT_THRESHOLD",
                self.reaper.alert_threshold.unwrap_or(0).to_string(),
            ),
            ("TRUSTED_PROXIES", self.trusted_proxies.to_string()),
            (
                "LOG_FORMAT",
                match self.log_format {
                    LogFormat::Text => "text",
                    LogFormat::Json => "json",
                }
                .to_owned(),
            ),
            ("LOG_LEVEL", self.log_level.clone()),
            ("LOG_KEEP_DAYS", self.log_keep_days.to_string()),
            ("ALLOW_PLAIN_HTTP", self.allow_plain_http.to_string()),
            (
                "ALLOW_WORKFLOW_TOKEN",
                self.allow_workflow_token.to_string(),
            ),
            ("METRICS", self.metrics.enabled.to_string()),
            ("METRICS_TOKEN", mask(self.metrics.token.is_some())),
        ];
        values.extend(session_hosts::effective(
            &self.vm_sessions,
            &self.containers,
            credentials,
        ));
        values.extend(kubernetes::effective(self.kubernetes.as_ref()));
        values.extend(standby::effective(self.standby.as_ref()));
        values.extend(self.proxy.effective());
        values.extend(ticketing::effective(
            credentials.linear.as_ref(),
            credentials.jira.as_ref(),
        ));
        values
    }

    /// All secret values, for redaction in logs and errors.
    pub fn secrets(&self) -> Vec<&str> {
        [
            self.admin_access_code.as_ref(),
            self.runner_token_secret.as_ref(),
            self.gap_fill_trigger_secret.as_ref(),
            self.secrets_key.as_ref(),
            self.metrics.token.as_ref(),
        ]
        .into_iter()
        .flatten()
        .chain(self.credentials.secrets())
        .chain(self.proxy.passwords())
        .chain(self.kubernetes.iter().flat_map(KubernetesConfig::secrets))
        .chain(self.standby.iter().flat_map(|one| one.place.secrets()))
        .map(Secret::expose)
        .collect()
    }
}

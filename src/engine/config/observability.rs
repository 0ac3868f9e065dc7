//! Configuration of logs and metrics.

use domain::secret::Secret;

use super::validator::Validator;

/// Maximum number of days for which log files are kept.
const MAX_LOG_DAYS: u32 = 3650;

/// Configuration of the metrics endpoint.
#[derive(Debug, Clone)]
pub struct MetricsConfig {
    /// Whether `/metrics` exists.
    pub enabled: bool,
    /// Bearer token for readers on other machines; `None` rejects them.
    pub token: Option<Secret>,
}

impl Validator {
    pub(super) fn metrics(&mut self, on: &str, token: Option<Secret>) -> MetricsConfig {
        MetricsConfig {
            enabled: self.parse::<bool>("METRICS", on, "true or false"),
            token,
        }
    }

    /// Number of days for which log files are kept; 0 disables log files.
    pub(super) fn log_keep_days(&mut self, text: &str) -> u32 {
        let days = self.parse::<u32>("LOG_KEEP_DAYS", text, "a whole number of days");
        self.require(days <= MAX_LOG_DAYS, || {
            format!("LOG_KEEP_DAYS must be at most {MAX_LOG_DAYS}")
        });
        days
    }
}

//! How the service can be watched.

use domain::secret::Secret;

use super::validator::Validator;

/// Longest time that log files are kept, in days.
const MAX_LOG_DAYS: u32 = 3650;

/// Who may read `/metrics`.
#[derive(Debug, Clone)]
pub struct MetricsConfig {
    /// False takes the route away.
    pub enabled: bool,
    /// What readers from elsewhere must show; None shuts them out.
    pub token: Option<Secret>,
}

impl Validator {
    pub(super) fn metrics(&mut self, on: &str, token: Option<Secret>) -> MetricsConfig {
        MetricsConfig {
            enabled: self.parse::<bool>("METRICS", on, "true or false"),
            token,
        }
    }

    /// For how many days log files are kept; 0 writes none.
    pub(super) fn log_keep_days(&mut self, text: &str) -> u32 {
        let days = self.parse::<u32>("LOG_KEEP_DAYS", text, "a whole number of days");
        self.require(days <= MAX_LOG_DAYS, || {
            format!("LOG_KEEP_DAYS must be at most {MAX_LOG_DAYS}")
        });
        days
    }
}

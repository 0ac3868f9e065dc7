//! How the service can be watched.

use domain::secret::Secret;

use super::check::Check;

/// Longest time that log files are kept, in days.
const MAX_LOG_DAYS: u32 = 3650;

/// Who may read `/metrics`.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// False takes the route away.
    pub on: bool,
    /// What readers from elsewhere must show; None shuts them out.
    pub token: Option<Secret>,
}

impl Check {
    pub(super) fn metrics(&mut self, on: &str, token: Option<Secret>) -> Metrics {
        Metrics {
            on: self.parse::<bool>("METRICS", on, "true or false"),
            token,
        }
    }

    /// For how many days log files are kept; 0 writes none.
    pub(super) fn log_keep_days(&mut self, text: &str) -> u32 {
        let days = self.parse::<u32>("LOG_KEEP_DAYS", text, "a whole number of days");
        self.that(days <= MAX_LOG_DAYS, || {
            format!("LOG_KEEP_DAYS must be at most {MAX_LOG_DAYS}")
        });
        days
    }
}

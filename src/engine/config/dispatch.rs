//! Validation of options for dispatches: runner mode, images, dedup window, breaker, secrets key, reaper.

use std::time::Duration;

use domain::crypto::sealing::SealingKey;
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;

use super::ReaperConfig;
use super::validator::Validator;

impl Validator {
    pub(super) fn secrets_key(&mut self, key: Option<Secret>) -> Option<Secret> {
        if let Some(Err(cause)) = key.as_ref().map(SealingKey::parse) {
            self.problems.push(format!("SECRETS_KEY: {cause}"));
        }
        key
    }

    pub(super) fn runner_mode(&mut self, value: Option<&str>) -> Option<RunnerMode> {
        let text = value.map(str::trim).filter(|text| !text.is_empty())?;
        let mode = RunnerMode::parse(text);
        self.require(mode.is_some(), || {
            format!("RUNNER_MODE must be one of: default, ci, vm, local, shadow, kubernetes, not '{text}'")
        });
        mode
    }

    pub(super) fn image_prefixes(&mut self, value: Option<&str>) -> Vec<String> {
        let parts = value.unwrap_or_default().split(',').map(str::trim);
        let prefixes = parts.filter(|part| !part.is_empty()).map(str::to_owned);
        prefixes.collect()
    }

    /// Returns `None` for 0: every dispatch is allowed.
    pub(super) fn dedup_window(&mut self, hours: &str) -> Option<Duration> {
        let hours = self.parse::<u32>("DEDUP_WINDOW_HOURS", hours, "a whole number of hours");
        (hours > 0).then(|| Duration::from_secs(u64::from(hours) * 3600))
    }

    /// Returns `None` for `off`: no digest is sent.
    pub(super) fn digest_hour(&mut self, text: &str) -> Option<u8> {
        if text == "off" {
            return None;
        }
        let hour = text.parse().ok().filter(|hour| *hour < 24);
        self.require(hour.is_some(), || {
            format!("NOTIFY_DIGEST_HOUR must be an hour from 0 to 23, or off, not '{text}'")
        });
        hour
    }

    /// Returns `None` for 0: no issue is parked.
    pub(super) fn breaker_threshold(&mut self, failures: &str) -> Option<u32> {
        let threshold = self.parse::<u32>("DISPATCH_BREAKER_THRESHOLD", failures, "a whole number");
        Some(threshold).filter(|threshold| *threshold > 0)
    }

    pub(super) fn reaper(&mut self, dry_run: &str, alert_threshold: &str) -> ReaperConfig {
        let threshold = self.parse::<u32>(
            "REAPER_ALERT_THRESHOLD",
            alert_threshold,
            "a whole number of machines",
        );
        ReaperConfig {
            dry_run: self.parse::<bool>("REAPER_DRY_RUN", dry_run, "true or false"),
            alert_threshold: Some(threshold).filter(|threshold| *threshold > 0),
        }
    }
}

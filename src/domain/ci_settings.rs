//! Settings of a repository about failing checks: `ci` in `.agent-implement/config.yml` of its default branch.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::Value;

use crate::sanitize;

/// Settings file of a repository, from its root.
pub const SETTINGS_FILE: &str = ".agent-implement/config.yml";

/// Maximum number of runs for failing checks that a repository can set.
const MAX_ATTEMPTS: u64 = 10;

/// Default number of runs for failing checks until a person pushes.
const DEFAULT_ATTEMPTS: u32 = 2;

/// Maximum number of patterns, and maximum length of one in bytes.
const MAX_PATTERNS: usize = 100;
const MAX_PATTERN_BYTES: usize = 200;

/// Maximum length of a quoted value, in bytes.
const MAX_SHOWN: usize = 60;

/// What happens when checks of a pull request fail.
#[derive(Debug, Clone)]
pub struct CiSettings {
    ignored: GlobSet,
    /// Maximum number of runs for failing checks until a person pushes. Default 2.
    pub attempts: u32,
    /// Whether failed jobs of GitHub Actions run once more before a run starts. Default true.
    pub rerun: bool,
}

impl Default for CiSettings {
    fn default() -> Self {
        Self {
            ignored: GlobSet::empty(),
            attempts: DEFAULT_ATTEMPTS,
            rerun: true,
        }
    }
}

impl CiSettings {
    /// Reads the value of `ci`. Unknown settings are ignored, because a newer version may know them.
    ///
    /// # Errors
    /// A sentence about the first invalid setting.
    pub fn read(ci: &Value) -> Result<Self, String> {
        let invalid = |name: &str, expected: &str, value: &Value| {
            let value = value.to_string();
            let value = sanitize::truncate(sanitize::single_line(&value), MAX_SHOWN, "…");
            format!("{name} in {SETTINGS_FILE} must be {expected}, not {value}.")
        };
        let mut settings = Self::default();
        let fields = match ci {
            Value::Null => return Ok(settings),
            Value::Object(fields) => fields,
            other => return Err(invalid("ci", "a mapping", other)),
        };
        let set = |name: &str| fields.get(name).filter(|value| !value.is_null());
        if let Some(value) = set("ignore") {
            let expected = "a list of at most 100 name patterns";
            let error = || invalid("ci.ignore", expected, value);
            let patterns = value.as_array().ok_or_else(error)?;
            settings.ignored = compile(patterns).ok_or_else(error)?;
        }
        if let Some(value) = set("attempts") {
            let attempts = value.as_u64().filter(|count| *count <= MAX_ATTEMPTS);
            let attempts = attempts.and_then(|count| u32::try_from(count).ok());
            settings.attempts = attempts
                .ok_or_else(|| invalid("ci.attempts", "a whole number from 0 to 10", value))?;
        }
        if let Some(value) = set("rerun") {
            settings.rerun = value
                .as_bool()
                .ok_or_else(|| invalid("ci.rerun", "true or false", value))?;
        }
        Ok(settings)
    }

    /// Returns whether a check of this name is ignored.
    pub fn ignores(&self, name: &str) -> bool {
        self.ignored.is_match(name)
    }
}

/// Compiles patterns of check names. Names are no paths: `*` also matches a slash.
fn compile(patterns: &[Value]) -> Option<GlobSet> {
    if patterns.len() > MAX_PATTERNS {
        return None;
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.as_str()?;
        if pattern.is_empty() || pattern.len() > MAX_PATTERN_BYTES {
            return None;
        }
        set.add(GlobBuilder::new(pattern).build().ok()?);
    }
    set.build().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_settings_and_keeps_defaults() {
        for nothing in [json!(null), json!({}), json!({"later": 1, "ignore": null})] {
            let settings = CiSettings::read(&nothing).unwrap();
            assert_eq!((settings.attempts, settings.rerun), (2, true));
            assert!(!settings.ignores("test"));
        }
        let set = json!({"ignore": ["preview / *", "codecov*"], "attempts": 0, "rerun": false});
        let settings = CiSettings::read(&set).unwrap();
        assert_eq!((settings.attempts, settings.rerun), (0, false));
        for (name, is_ignored) in [
            ("preview / site", true),
            ("codecov/patch", true),
            ("test (linux)", false),
            ("my codecov", false),
        ] {
            assert_eq!(settings.ignores(name), is_ignored, "{name}");
        }
    }

    #[test]
    fn names_an_invalid_setting_and_its_value() {
        let rows = [
            (
                json!([]),
                "ci in .agent-implement/config.yml must be a mapping, not [].",
            ),
            (
                json!({"attempts": "many"}),
                "ci.attempts in .agent-implement/config.yml must be a whole number from 0 to 10, not \"many\".",
            ),
            (
                json!({"attempts": 11}),
                "ci.attempts in .agent-implement/config.yml must be a whole number from 0 to 10, not 11.",
            ),
            (
                json!({"rerun": "no"}),
                "ci.rerun in .agent-implement/config.yml must be true or false, not \"no\".",
            ),
            (
                json!({"ignore": "lint"}),
                "ci.ignore in .agent-implement/config.yml must be a list of at most 100 name patterns, not \"lint\".",
            ),
        ];
        for (value, sentence) in rows {
            assert_eq!(CiSettings::read(&value).unwrap_err(), sentence);
        }
        for ignore in [
            json!(["a["]),
            json!([1]),
            json!([""]),
            json!(vec!["a"; 101]),
        ] {
            assert!(
                CiSettings::read(&json!({ "ignore": ignore })).is_err(),
                "{ignore}"
            );
        }
    }
}

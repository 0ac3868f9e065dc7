//! Time zones of the IANA database. Their data is an argument: this crate reads no files.

use jiff::tz::TimeZone as Rules;

/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 64;

/// Names of the zone that needs no data.
const UTC_NAMES: [&str; 2] = ["UTC", "Etc/UTC"];

/// Time zone with its rules.
#[derive(Debug, Clone)]
pub struct TimeZone(Rules);

impl TimeZone {
    /// Returns whether text has the form of a zone's name, such as `Europe/Berlin`. Such a name is a relative path without
    /// dots.
    pub fn is_name(text: &str) -> bool {
        let is_part = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+');
            part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(allowed)
        };
        text.len() <= MAX_NAME && text.split('/').all(is_part)
    }

    /// Returns the zone if it needs no data.
    pub fn without_data(name: &str) -> Option<Self> {
        UTC_NAMES.contains(&name).then(|| Self(Rules::UTC))
    }

    /// Returns the zone with these rules.
    #[cfg(test)]
    pub(crate) fn from_rules(rules: Rules) -> Self {
        Self(rules)
    }

    /// Returns the rules.
    pub(crate) fn rules(&self) -> &Rules {
        &self.0
    }

    /// Reads the data of a zone: a file of the system's database (RFC 9636). `None` if it is not valid.
    pub fn from_data(name: &str, data: &[u8]) -> Option<Self> {
        Rules::tzif(name, data).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_paths_without_dots() {
        for name in [
            "UTC",
            "Europe/Berlin",
            "America/Argentina/Buenos_Aires",
            "Etc/GMT+3",
            "America/Port-au-Prince",
        ] {
            assert!(TimeZone::is_name(name), "{name}");
        }
        for name in [
            "",
            "/etc/passwd",
            "../etc",
            "Europe/",
            "Europe//Berlin",
            "a.b",
            "Europe/Berlin\0",
            "+02:00",
            " UTC",
        ] {
            assert!(!TimeZone::is_name(name), "{name:?}");
        }
        assert!(!TimeZone::is_name(&"a".repeat(65)));
        assert!(TimeZone::from_data("Europe/Berlin", b"TZif2 not really").is_none());
    }
}

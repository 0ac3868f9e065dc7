//! Validation of settings files with messages for their authors.

use serde_json::{Map, Value};

use domain::edit_distance::closest_name;
use domain::sanitize;

/// Maximum number of unknown settings reported.
const MAX_UNKNOWN: usize = 20;

/// Maximum length of a quoted name or value, in bytes.
const MAX_SHOWN: usize = 60;

/// Expected type of a setting.
#[derive(Debug, Clone, Copy)]
pub(super) enum SettingKind {
    /// String.
    Text,
    /// List of strings.
    TextList,
    /// Non-negative integer.
    Integer,
    /// Mapping with known settings.
    Table(&'static [KnownSetting]),
}

/// Name and type of a known setting.
pub(super) type KnownSetting = (&'static str, SettingKind);

/// Returns a message for each unknown setting, with the closest known name.
pub(super) fn unknown_settings(file: &str, text: &str, known: &[KnownSetting]) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(settings) = table(text) {
        collect(&settings, known, "", &mut found);
    }
    let rest = found.len().saturating_sub(MAX_UNKNOWN);
    found.truncate(MAX_UNKNOWN);
    let mut messages: Vec<String> = found
        .into_iter()
        .map(|message| format!("{file}: {message}"))
        .collect();
    if rest > 0 {
        messages.push(format!("{file}: {rest} more unknown settings"));
    }
    messages
}

/// Returns a message about the first setting with a value of the wrong type.
pub(super) fn invalid_value(text: &str, known: &[KnownSetting]) -> Option<String> {
    first_invalid(&table(text)?, known, "")
}

fn table(text: &str) -> Option<Map<String, Value>> {
    match serde_saphyr::from_str(text).ok()? {
        Value::Object(settings) => Some(settings),
        _ => None,
    }
}

fn collect(
    settings: &Map<String, Value>,
    known: &[KnownSetting],
    path: &str,
    found: &mut Vec<String>,
) {
    for (name, value) in settings {
        match (lookup(known, name), value) {
            (None, _) => {
                let names = known.iter().map(|(name, _)| *name);
                let suggestion = closest_name(name, names).map_or(String::new(), |closest| {
                    format!("; did you mean {path}{closest}?")
                });
                found.push(format!("unknown setting {path}{}{suggestion}", quote(name)));
            }
            (Some(SettingKind::Table(nested)), Value::Object(settings)) => {
                collect(settings, nested, &format!("{path}{name}."), found);
            }
            _ => {}
        }
    }
}

fn first_invalid(
    settings: &Map<String, Value>,
    known: &[KnownSetting],
    path: &str,
) -> Option<String> {
    settings.iter().find_map(|(name, value)| {
        let expected = match (lookup(known, name)?, value) {
            (_, Value::Null) => return None,
            (SettingKind::Text, value) if !value.is_array() && !value.is_object() => return None,
            (SettingKind::Integer, value) if value.is_u64() => return None,
            (SettingKind::TextList, Value::Array(items)) if items.iter().all(is_scalar) => {
                return None;
            }
            (SettingKind::Table(nested), Value::Object(settings)) => {
                return first_invalid(settings, nested, &format!("{path}{name}."));
            }
            (SettingKind::Text, _) => "a string",
            (SettingKind::Integer, _) => "a whole number",
            (SettingKind::TextList, _) => "a list of strings",
            (SettingKind::Table(_), _) => "a mapping",
        };
        let value = quote(&value.to_string());
        Some(format!("{path}{name} must be {expected}, not {value}"))
    })
}

fn is_scalar(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

fn lookup(known: &[KnownSetting], name: &str) -> Option<SettingKind> {
    let found = known.iter().find(|(known, _)| *known == name);
    found.map(|(_, kind)| *kind)
}

fn quote(text: &str) -> String {
    sanitize::truncate(text, MAX_SHOWN, sanitize::ELLIPSIS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[KnownSetting] = &[
        ("agent", SettingKind::Text),
        ("waitMs", SettingKind::Integer),
        ("names", SettingKind::TextList),
        (
            "models",
            SettingKind::Table(&[("plan", SettingKind::Text), ("review", SettingKind::Text)]),
        ),
    ];

    #[test]
    fn reports_unknown_settings_with_the_closest_name() {
        let rows: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("agent: codex\nmodels: {plan: x}", &[]),
            (
                "agnet: codex",
                &["f: unknown setting agnet; did you mean agent?"],
            ),
            (
                "Agent: codex",
                &["f: unknown setting Agent; did you mean agent?"],
            ),
            (
                "models: {paln: x}",
                &["f: unknown setting models.paln; did you mean models.plan?"],
            ),
            ("somethingElse: 1", &["f: unknown setting somethingElse"]),
            ("agent: [", &[]),
            ("- agnet", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(unknown_settings("f", text, KNOWN), expected, "{text}");
        }
        let many: String = (0..50).map(|at| format!("unheard{at}: 1\n")).collect();
        let messages = unknown_settings("f", &many, KNOWN);
        assert_eq!(messages.len(), MAX_UNKNOWN + 1);
        assert_eq!(messages.last().unwrap(), "f: 30 more unknown settings");
    }

    #[test]
    fn reports_values_of_the_wrong_type() {
        let rows = [
            (
                "waitMs: abc",
                Some("waitMs must be a whole number, not \"abc\""),
            ),
            ("waitMs: -1", Some("waitMs must be a whole number, not -1")),
            (
                "waitMs: 1.5",
                Some("waitMs must be a whole number, not 1.5"),
            ),
            (
                "agent: [claude]",
                Some("agent must be a string, not [\"claude\"]"),
            ),
            (
                "names: lint",
                Some("names must be a list of strings, not \"lint\""),
            ),
            ("models: big", Some("models must be a mapping, not \"big\"")),
            (
                "models: {plan: {}}",
                Some("models.plan must be a string, not {}"),
            ),
            ("waitMs: 7\nagent: 4.1\nnames: [a, 1]\nmodels:", None),
            ("agent: [", None),
        ];
        for (text, expected) in rows {
            assert_eq!(invalid_value(text, KNOWN).as_deref(), expected, "{text}");
        }
    }
}

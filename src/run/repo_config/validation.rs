//! Names and values of a settings file, checked in words for the person who wrote it.

use serde_json::{Map, Value};

use domain::edit_distance::closest_name;

/// How many unknown names are told of? A file that is all wrong needs no list of all.
const MAX_UNKNOWN: usize = 20;

/// How much of a wrong name or value is repeated?
const MAX_SHOWN: usize = 60;

/// What a setting is given as.
#[derive(Debug, Clone, Copy)]
pub enum SettingKind {
    Text,
    TextList,
    Integer,
    Table(&'static [KnownSetting]),
}

/// A setting that has an effect.
pub type KnownSetting = (&'static str, SettingKind);

/// The names in a file that have no effect, as sentences with the name that was probably meant.
pub fn unknown_settings(file: &str, text: &str, known: &[KnownSetting]) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(given) = table(text) {
        collect(&given, known, "", &mut found);
    }
    let rest = found.len().saturating_sub(MAX_UNKNOWN);
    found.truncate(MAX_UNKNOWN);
    let mut told: Vec<String> = found
        .into_iter()
        .map(|sentence| format!("{file}: {sentence}"))
        .collect();
    if rest > 0 {
        told.push(format!("{file}: {rest} more names are not known"));
    }
    told
}

/// What is wrong with a file that could not be read, if it is the value of a setting.
pub fn invalid_value(text: &str, known: &[KnownSetting]) -> Option<String> {
    first_wrong(&table(text)?, known, "")
}

fn table(text: &str) -> Option<Map<String, Value>> {
    let given: Option<Map<String, Value>> = serde_saphyr::from_str(text).ok()?;
    given
}

fn collect(
    given: &Map<String, Value>,
    known: &[KnownSetting],
    path: &str,
    found: &mut Vec<String>,
) {
    for (name, value) in given {
        match (lookup(known, name), value) {
            (None, _) => {
                let names = known.iter().map(|(name, _)| *name);
                let meant = closest_name(name, names).map_or(String::new(), |meant| {
                    format!("; did you mean {path}{meant}?")
                });
                found.push(format!("{path}{} is not known{meant}", shown(name)));
            }
            (Some(SettingKind::Table(below)), Value::Object(given)) => {
                collect(given, below, &format!("{path}{name}."), found);
            }
            _ => {}
        }
    }
}

fn first_wrong(given: &Map<String, Value>, known: &[KnownSetting], path: &str) -> Option<String> {
    given.iter().find_map(|(name, value)| {
        let wanted = match (lookup(known, name)?, value) {
            (_, Value::Null) => return None,
            (SettingKind::Text, value) if !value.is_array() && !value.is_object() => return None,
            (SettingKind::Integer, value) if value.is_u64() => return None,
            (SettingKind::TextList, Value::Array(items)) if items.iter().all(is_scalar) => {
                return None;
            }
            (SettingKind::Table(below), Value::Object(given)) => {
                return first_wrong(given, below, &format!("{path}{name}."));
            }
            (SettingKind::Text, _) => "a text",
            (SettingKind::Integer, _) => "a whole number",
            (SettingKind::TextList, _) => "a list of texts",
            (SettingKind::Table(_), _) => "a table of settings",
        };
        let value = shown(&value.to_string());
        Some(format!("{path}{name} must be {wanted}, not {value}"))
    })
}

fn is_scalar(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

fn lookup(known: &[KnownSetting], name: &str) -> Option<SettingKind> {
    let found = known.iter().find(|(known, _)| *known == name);
    found.map(|(_, kind)| *kind)
}

fn shown(text: &str) -> String {
    crate::text::truncate(text, MAX_SHOWN)
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
    fn a_name_without_effect_is_told_with_the_one_that_was_meant() {
        let rows: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("agent: codex\nmodels: {plan: x}", &[]),
            (
                "agnet: codex",
                &["f: agnet is not known; did you mean agent?"],
            ),
            (
                "Agent: codex",
                &["f: Agent is not known; did you mean agent?"],
            ),
            (
                "models: {paln: x}",
                &["f: models.paln is not known; did you mean models.plan?"],
            ),
            ("somethingElse: 1", &["f: somethingElse is not known"]),
            ("agent: [", &[]),
            ("- agnet", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(unknown_settings("f", text, KNOWN), expected, "{text}");
        }
        let many: String = (0..50).map(|at| format!("unheard{at}: 1\n")).collect();
        let told = unknown_settings("f", &many, KNOWN);
        assert_eq!(told.len(), MAX_UNKNOWN + 1);
        assert_eq!(told.last().unwrap(), "f: 30 more names are not known");
    }

    #[test]
    fn a_wrong_value_is_told_in_plain_words() {
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
                Some("agent must be a text, not [\"claude\"]"),
            ),
            (
                "names: lint",
                Some("names must be a list of texts, not \"lint\""),
            ),
            (
                "models: big",
                Some("models must be a table of settings, not \"big\""),
            ),
            (
                "models: {plan: {}}",
                Some("models.plan must be a text, not {}"),
            ),
            ("waitMs: 7\nagent: 4.1\nnames: [a, 1]\nmodels:", None),
            ("agent: [", None),
        ];
        for (text, expected) in rows {
            assert_eq!(invalid_value(text, KNOWN).as_deref(), expected, "{text}");
        }
    }
}

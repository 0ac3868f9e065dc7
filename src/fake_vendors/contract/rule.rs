//! Tables of calls: path pattern, parameters, body, and the types of their values.

use serde_json::{Map, Value};

/// Rule of one call.
pub(super) struct CallRule {
    pub method: &'static str,
    /// Path. `*` is one segment, `**` is one or more.
    pub path: &'static str,
    /// Query parameters.
    pub query: &'static [Field],
    /// Type of the JSON body; `None` if there is none.
    pub body: Option<Kind>,
}

/// Name, whether it is required, and type.
pub(super) type Field = (&'static str, bool, Kind);

pub(super) const REQUIRED: bool = true;
pub(super) const OPTIONAL: bool = false;

/// Type of a value. Everything that a type does not name is a violation.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Text of 1 to this number of characters.
    Text(usize),
    /// Text, possibly empty, of at most this number of characters.
    MaybeEmpty(usize),
    /// Text that begins with another text.
    StartsWith(&'static str),
    /// Object name of git: 40 or 64 hexadecimal digits.
    GitHash,
    /// Number from, to.
    Number(i64, i64),
    Bool,
    OneOf(&'static [&'static str]),
    /// At most this number of items.
    List(usize, &'static Kind),
    Record(&'static [Field]),
    /// Record with any names; at most this number.
    Map(usize, &'static Kind),
    /// Null, or the type.
    OrNull(&'static Kind),
    /// Any value; the vendor's `check` reads it.
    Any,
}

/// Length of a text that the vendor does not limit.
pub(super) const UNLIMITED: usize = usize::MAX;

impl CallRule {
    pub(super) const fn get(path: &'static str, query: &'static [Field]) -> Self {
        Self {
            method: "GET",
            path,
            query,
            body: None,
        }
    }

    pub(super) const fn delete(path: &'static str, query: &'static [Field]) -> Self {
        Self {
            method: "DELETE",
            path,
            query,
            body: None,
        }
    }

    pub(super) const fn send(method: &'static str, path: &'static str, body: Kind) -> Self {
        Self {
            method,
            path,
            query: &[],
            body: Some(body),
        }
    }

    /// Returns a name for people, such as `github GET /repos/*/*`.
    pub(super) fn name(&self, vendor: &str) -> String {
        format!("{vendor} {} {}", self.method, self.path)
    }

    pub(super) fn check(&self, query: &[(String, String)], body: &Value) -> Vec<String> {
        let mut violations = Vec::new();
        let mut parameters = Map::new();
        for (name, value) in query {
            let kind = self.query.iter().find(|(known, ..)| known == name);
            let value = kind.map_or_else(
                || value.as_str().into(),
                |(.., kind)| kind.query_value(value),
            );
            if parameters.insert(name.clone(), value).is_some() {
                violations.push(format!("query.{name}: given twice"));
            }
        }
        check_record("query", self.query, &parameters, &mut violations);
        match &self.body {
            Some(kind) => kind.check("body", body, &mut violations),
            None if !body.is_null() => violations.push("body: this call has none".to_owned()),
            None => {}
        }
        violations
    }
}

/// Returns the first rule of a method and path.
pub(super) fn matching_rule<'a>(
    rules: &'a [CallRule],
    method: &str,
    path: &str,
) -> Option<&'a CallRule> {
    let segments: Vec<&str> = path.split('/').collect();
    rules.iter().find(|rule| {
        let pattern: Vec<&str> = rule.path.split('/').collect();
        rule.method == method && is_match(&pattern, &segments)
    })
}

fn is_match(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], [_, tail @ ..]) => is_match(rest, tail) || is_match(pattern, tail),
        (["*", rest @ ..], [one, tail @ ..]) => !one.is_empty() && is_match(rest, tail),
        ([want, rest @ ..], [one, tail @ ..]) => want == one && is_match(rest, tail),
        _ => false,
    }
}

impl Kind {
    /// Returns the JSON value of a query parameter of this type.
    fn query_value(self, text: &str) -> Value {
        match self {
            Self::Number(..) => text
                .parse::<i64>()
                .map_or_else(|_| text.into(), Value::from),
            Self::Bool => text
                .parse::<bool>()
                .map_or_else(|_| text.into(), Value::from),
            _ => text.into(),
        }
    }

    pub(super) fn check(&self, at: &str, value: &Value, violations: &mut Vec<String>) {
        let mut violation = |text: String| violations.push(format!("{at}: {text}"));
        match (*self, value) {
            (Self::Any, _) | (Self::OrNull(_), Value::Null) | (Self::Bool, Value::Bool(_)) => {}
            (Self::OrNull(kind), value) => kind.check(at, value, violations),
            (Self::Text(_), Value::String(text)) if text.is_empty() => {
                violation("is empty".to_owned())
            }
            (Self::Text(most) | Self::MaybeEmpty(most), Value::String(text)) => {
                let length = text.chars().count();
                if length > most {
                    violation(format!("has {length} characters; the limit is {most}"));
                }
            }
            (Self::StartsWith(start), Value::String(text)) => {
                if text.len() <= start.len() || !text.starts_with(start) {
                    violation(format!("must begin with {start}"));
                }
            }
            (Self::GitHash, Value::String(text)) => {
                let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
                if !is_hex || !matches!(text.len(), 40 | 64) {
                    violation(format!("{text} is not an object name of git"));
                }
            }
            (Self::Number(from, to), Value::Number(number)) => {
                if !number
                    .as_i64()
                    .is_some_and(|number| (from..=to).contains(&number))
                {
                    violation(format!("{number} is not from {from} to {to}"));
                }
            }
            (Self::OneOf(choices), Value::String(text)) => {
                if !choices.contains(&text.as_str()) {
                    violation(format!("{text} is not one of {choices:?}"));
                }
            }
            (Self::List(most, kind), Value::Array(items)) => {
                if items.len() > most {
                    violation(format!("has {} items; the limit is {most}", items.len()));
                }
                for (index, item) in items.iter().enumerate() {
                    kind.check(&format!("{at}[{index}]"), item, violations);
                }
            }
            (Self::Record(fields), Value::Object(object)) => {
                check_record(at, fields, object, violations)
            }
            (Self::Map(most, kind), Value::Object(object)) => {
                if object.len() > most {
                    violation(format!("has {} entries; the limit is {most}", object.len()));
                }
                for (name, value) in object {
                    kind.check(&format!("{at}.{name}"), value, violations);
                }
            }
            (_, value) => violation(format!("has the wrong type: {value:.80}")),
        }
    }
}

fn check_record(
    at: &str,
    fields: &[Field],
    object: &Map<String, Value>,
    violations: &mut Vec<String>,
) {
    for (name, value) in object {
        match fields.iter().find(|(known, ..)| known == name) {
            Some((.., kind)) => kind.check(&format!("{at}.{name}"), value, violations),
            None => violations.push(format!("{at}.{name}: unknown")),
        }
    }
    for (name, required, _) in fields {
        if *required && !object.contains_key(*name) {
            violations.push(format!("{at}.{name}: missing"));
        }
    }
}

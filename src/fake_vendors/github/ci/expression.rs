//! Evaluator of workflow expressions.
//!
//! Expressions are evaluated before the job starts. Parts that are only known while the job runs (step
//! outputs, the job's status) become shell words that runner.sh evaluates.

use serde_json::{Map, Value};

use super::expression_parser::{Expr, parse};
use super::workflow::plain_text;

/// Result of an expression: a value, or a shell word for runner.sh.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprValue {
    Known(Value),
    Deferred(String),
}

/// Expression contexts: `github`, `inputs`, `secrets`, `vars`, `env`, `runner`.
pub(crate) struct ExprContexts(pub Map<String, Value>);

impl ExprContexts {
    /// Replaces the `${{ ... }}` expressions in a text. Deferred ones are marked for runner.sh.
    pub(crate) fn interpolate(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${{") {
            let tail = &rest[start + 3..];
            let end = find_end(tail).ok_or_else(|| format!("unclosed expression in {text:?}"))?;
            out.push_str(&rest[..start]);
            match self.eval(&tail[..end])? {
                ExprValue::Known(value) => out.push_str(&display_text(&value)),
                ExprValue::Deferred(word) => out.push_str(&format!("\u{2}{word}\u{3}")),
            }
            rest = &tail[end + 2..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Converts a condition to a shell word. Without a status function it includes `success()`.
    pub(crate) fn condition(&self, text: Option<&str>) -> Result<String, String> {
        let text = text.unwrap_or("success()").trim();
        let inner = text
            .strip_prefix("${{")
            .and_then(|text| text.strip_suffix("}}"))
            .unwrap_or(text);
        let has_status_function = ["success()", "failure()", "cancelled()", "always()"]
            .iter()
            .any(|call| inner.contains(call));
        let whole = if has_status_function {
            inner.to_owned()
        } else {
            format!("success() && ({inner})")
        };
        Ok(shell_word(&self.eval(&whole)?))
    }

    pub(crate) fn eval(&self, text: &str) -> Result<ExprValue, String> {
        self.value(&parse(text)?)
    }

    fn value(&self, expr: &Expr) -> Result<ExprValue, String> {
        Ok(match expr {
            Expr::Literal(value) => ExprValue::Known(value.clone()),
            Expr::Path(path) => self.path(path),
            Expr::Index(of, key) => match (self.value(of)?, self.value(key)?) {
                (ExprValue::Known(of), ExprValue::Known(key)) => {
                    ExprValue::Known(member_of(&of, &plain_text(&key)))
                }
                _ => ExprValue::Known(Value::Null),
            },
            Expr::Not(inner) => match self.value(inner)? {
                ExprValue::Known(value) => ExprValue::Known(Value::Bool(!truthy(&value))),
                deferred => deferred_call("later_not", &[deferred]),
            },
            Expr::And(a, b) => match self.value(a)? {
                ExprValue::Known(value) if truthy(&value) => self.value(b)?,
                ExprValue::Known(value) => ExprValue::Known(value),
                deferred => deferred_call("later_and", &[deferred, self.value(b)?]),
            },
            Expr::Or(a, b) => match self.value(a)? {
                ExprValue::Known(value) if truthy(&value) => ExprValue::Known(value),
                ExprValue::Known(_) => self.value(b)?,
                deferred => deferred_call("later_or", &[deferred, self.value(b)?]),
            },
            Expr::Compare(operator, a, b) => compare(operator, self.value(a)?, self.value(b)?),
            Expr::Call(name, args) => {
                let args = args.iter().map(|arg| self.value(arg));
                call_function(name, args.collect::<Result<Vec<_>, _>>()?)?
            }
        })
    }

    fn path(&self, path: &[String]) -> ExprValue {
        let joined = path[1..].join(".");
        match path[0].as_str() {
            "steps" => ExprValue::Deferred(format!("\"$(later_step {})\"", shell_quote(&joined))),
            "needs" => ExprValue::Deferred(format!(
                "\"$(later_file {})\"",
                shell_quote(&format!("needs/{joined}"))
            )),
            "job" => ExprValue::Deferred("\"$(later_status status)\"".into()),
            root => {
                let context = self.0.get(root).cloned().unwrap_or_default();
                let value = path[1..]
                    .iter()
                    .fold(context, |of, key| member_of(&of, key));
                match (root, value) {
                    ("env", Value::Null) if path.len() == 2 => {
                        ExprValue::Deferred(format!("\"$(later_env {})\"", shell_quote(&joined)))
                    }
                    (_, value) => ExprValue::Known(value),
                }
            }
        }
    }
}

/// Returns the end of the expression: the first `}}` outside of strings.
fn find_end(text: &str) -> Option<usize> {
    let mut in_string = false;
    let bytes = text.as_bytes();
    (0..bytes.len().saturating_sub(1)).find(|&at| {
        if bytes[at] == b'\'' {
            in_string = !in_string;
        }
        !in_string && &bytes[at..at + 2] == b"}}"
    })
}

/// Returns a member of a value. Keys are case-insensitive.
fn member_of(of: &Value, key: &str) -> Value {
    match of {
        Value::Object(map) => {
            let found = map.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        }
        Value::Array(items) => {
            let at = key.parse::<usize>().ok();
            at.and_then(|at| items.get(at)).cloned().unwrap_or_default()
        }
        _ => Value::Null,
    }
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

fn display_text(value: &Value) -> String {
    match value {
        Value::Array(_) => "Array".into(),
        Value::Object(_) => "Object".into(),
        simple => plain_text(simple),
    }
}

fn compare(operator: &str, a: ExprValue, b: ExprValue) -> ExprValue {
    let (ExprValue::Known(left), ExprValue::Known(right)) = (&a, &b) else {
        let function = if operator == "!=" {
            "later_ne"
        } else {
            "later_eq"
        };
        return deferred_call(function, &[a, b]);
    };
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => {
            Some(left.to_lowercase().cmp(&right.to_lowercase()))
        }
        _ => number(left).partial_cmp(&number(right)),
    };
    ExprValue::Known(Value::Bool(match operator {
        "==" => order.is_some_and(|order| order.is_eq()),
        "!=" => !order.is_some_and(|order| order.is_eq()),
        "<" => order.is_some_and(|order| order.is_lt()),
        "<=" => order.is_some_and(|order| order.is_le()),
        ">" => order.is_some_and(|order| order.is_gt()),
        _ => order.is_some_and(|order| order.is_ge()),
    }))
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Null => 0.0,
        Value::Bool(flag) => f64::from(u8::from(*flag)),
        Value::Number(number) => number.as_f64().unwrap_or(f64::NAN),
        Value::String(text) if text.is_empty() => 0.0,
        Value::String(text) => text.trim().parse().unwrap_or(f64::NAN),
        _ => f64::NAN,
    }
}

fn call_function(name: &str, args: Vec<ExprValue>) -> Result<ExprValue, String> {
    let name = name.to_ascii_lowercase();
    if matches!(
        name.as_str(),
        "success" | "failure" | "cancelled" | "always"
    ) {
        return Ok(ExprValue::Deferred(format!("\"$(later_status {name})\"")));
    }
    let known: Option<Vec<Value>> = args
        .iter()
        .map(|arg| match arg {
            ExprValue::Known(value) => Some(value.clone()),
            ExprValue::Deferred(_) => None,
        })
        .collect();
    let Some(known) = known else {
        return call_deferred_function(&name, args);
    };
    let arg = |at: usize| known.get(at).cloned().unwrap_or_default();
    let lower = |at: usize| plain_text(&arg(at)).to_lowercase();
    Ok(ExprValue::Known(match name.as_str() {
        "tojson" => Value::String(serde_json::to_string_pretty(&arg(0)).unwrap_or_default()),
        "fromjson" => serde_json::from_slice(plain_text(&arg(0)).as_bytes())
            .map_err(|error| format!("fromJSON: {error}"))?,
        "format" => Value::String(format_text(&known)),
        "contains" => Value::Bool(match arg(0) {
            Value::Array(items) => items
                .iter()
                .any(|item| plain_text(item).to_lowercase() == lower(1)),
            _ => lower(0).contains(&lower(1)),
        }),
        "startswith" => Value::Bool(lower(0).starts_with(&lower(1))),
        "endswith" => Value::Bool(lower(0).ends_with(&lower(1))),
        "join" => {
            let separator = known.get(1).map_or(",".into(), plain_text);
            let items = arg(0).as_array().cloned().unwrap_or_else(|| vec![arg(0)]);
            Value::String(
                items
                    .iter()
                    .map(plain_text)
                    .collect::<Vec<_>>()
                    .join(&separator),
            )
        }
        "hashfiles" => Value::String(String::new()),
        other => return Err(format!("Unrecognized function: '{other}'")),
    }))
}

fn call_deferred_function(name: &str, args: Vec<ExprValue>) -> Result<ExprValue, String> {
    match (name, args.as_slice()) {
        ("contains", [_, _]) => Ok(deferred_call("later_contains", &args)),
        ("startswith", [_, _]) => Ok(deferred_call("later_starts", &args)),
        ("tojson" | "fromjson", [ExprValue::Deferred(inner)]) => {
            Ok(ExprValue::Deferred(inner.clone()))
        }
        _ => Err(format!(
            "{name}: not possible with values of running steps here"
        )),
    }
}

fn format_text(args: &[Value]) -> String {
    let mut text = args.first().map(plain_text).unwrap_or_default();
    for (at, arg) in args.iter().skip(1).enumerate() {
        text = text.replace(&format!("{{{at}}}"), &plain_text(arg));
    }
    text.replace("{{", "{").replace("}}", "}")
}

fn deferred_call(function: &str, args: &[ExprValue]) -> ExprValue {
    let args: Vec<String> = args.iter().map(shell_word).collect();
    ExprValue::Deferred(format!("\"$({function} {})\"", args.join(" ")))
}

/// Converts a value to one shell word.
fn shell_word(value: &ExprValue) -> String {
    match value {
        ExprValue::Known(value) => shell_quote(&display_text(value)),
        ExprValue::Deferred(word) => word.clone(),
    }
}

pub(crate) fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

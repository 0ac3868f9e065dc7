//! The expression language of workflow files.
//!
//! Evaluated before the job starts. What is only known while it runs (step outputs, the job's
//! status) becomes a shell word that runner.sh evaluates then; everything else is a value now.

use serde_json::{Map, Value};

use super::expression_parser::{Expr, parse};
use super::workflow::plain_text;

/// What an expression is: known, or a shell word to be evaluated by the runner.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprValue {
    Known(Value),
    Deferred(String),
}

/// The contexts: `github`, `inputs`, `secrets`, `vars`, `env`, `runner`.
pub(crate) struct ExprContexts(pub Map<String, Value>);

impl ExprContexts {
    /// A text with `${{ … }}` in it. Places to be filled in later are marked for runner.sh.
    pub fn interpolate(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${{") {
            let tail = &rest[start + 3..];
            let end = closing(tail).ok_or_else(|| format!("unclosed expression in {text:?}"))?;
            out.push_str(&rest[..start]);
            match self.eval(&tail[..end])? {
                ExprValue::Known(value) => out.push_str(&shown(&value)),
                ExprValue::Deferred(word) => out.push_str(&format!("\u{2}{word}\u{3}")),
            }
            rest = &tail[end + 2..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// A condition as a shell word. One that asks for no status holds only while all went well.
    pub fn condition(&self, text: Option<&str>) -> Result<String, String> {
        let text = text.unwrap_or("success()").trim();
        let inner = text
            .strip_prefix("${{")
            .and_then(|text| text.strip_suffix("}}"))
            .unwrap_or(text);
        let asks = ["success()", "failure()", "cancelled()", "always()"]
            .iter()
            .any(|call| inner.contains(call));
        let whole = if asks {
            inner.to_owned()
        } else {
            format!("success() && ({inner})")
        };
        Ok(word(&self.eval(&whole)?))
    }

    pub fn eval(&self, text: &str) -> Result<ExprValue, String> {
        self.value(&parse(text)?)
    }

    fn value(&self, expr: &Expr) -> Result<ExprValue, String> {
        Ok(match expr {
            Expr::Literal(value) => ExprValue::Known(value.clone()),
            Expr::Path(path) => self.path(path),
            Expr::Index(of, key) => match (self.value(of)?, self.value(key)?) {
                (ExprValue::Known(of), ExprValue::Known(key)) => {
                    ExprValue::Known(member(&of, &plain_text(&key)))
                }
                _ => ExprValue::Known(Value::Null),
            },
            Expr::Not(inner) => match self.value(inner)? {
                ExprValue::Known(value) => ExprValue::Known(Value::Bool(!truthy(&value))),
                later => call("later_not", &[later]),
            },
            Expr::And(a, b) => match self.value(a)? {
                ExprValue::Known(value) if truthy(&value) => self.value(b)?,
                ExprValue::Known(value) => ExprValue::Known(value),
                later => call("later_and", &[later, self.value(b)?]),
            },
            Expr::Or(a, b) => match self.value(a)? {
                ExprValue::Known(value) if truthy(&value) => ExprValue::Known(value),
                ExprValue::Known(_) => self.value(b)?,
                later => call("later_or", &[later, self.value(b)?]),
            },
            Expr::Compare(operator, a, b) => compare(operator, self.value(a)?, self.value(b)?),
            Expr::Call(name, args) => {
                let args = args.iter().map(|arg| self.value(arg));
                apply(name, args.collect::<Result<Vec<_>, _>>()?)?
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
                let value = path[1..].iter().fold(context, |of, key| member(&of, key));
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

/// Where the expression ends, not counting braces inside strings.
fn closing(text: &str) -> Option<usize> {
    let mut in_string = false;
    let bytes = text.as_bytes();
    (0..bytes.len().saturating_sub(1)).find(|&at| {
        if bytes[at] == b'\'' {
            in_string = !in_string;
        }
        !in_string && &bytes[at..at + 2] == b"}}"
    })
}

/// Keys are found whatever their case.
fn member(of: &Value, key: &str) -> Value {
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

fn shown(value: &Value) -> String {
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
        return call(function, &[a, b]);
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

fn apply(name: &str, args: Vec<ExprValue>) -> Result<ExprValue, String> {
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
        return apply_later(&name, args);
    };
    let arg = |at: usize| known.get(at).cloned().unwrap_or_default();
    let low = |at: usize| plain_text(&arg(at)).to_lowercase();
    Ok(ExprValue::Known(match name.as_str() {
        "tojson" => Value::String(serde_json::to_string_pretty(&arg(0)).unwrap_or_default()),
        "fromjson" => serde_json::from_str(&plain_text(&arg(0)))
            .map_err(|error| format!("fromJSON: {error}"))?,
        "format" => Value::String(format_text(&known)),
        "contains" => Value::Bool(match arg(0) {
            Value::Array(items) => items
                .iter()
                .any(|item| plain_text(item).to_lowercase() == low(1)),
            _ => low(0).contains(&low(1)),
        }),
        "startswith" => Value::Bool(low(0).starts_with(&low(1))),
        "endswith" => Value::Bool(low(0).ends_with(&low(1))),
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

fn apply_later(name: &str, args: Vec<ExprValue>) -> Result<ExprValue, String> {
    match (name, args.as_slice()) {
        ("contains", [_, _]) => Ok(call("later_contains", &args)),
        ("startswith", [_, _]) => Ok(call("later_starts", &args)),
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

fn call(function: &str, args: &[ExprValue]) -> ExprValue {
    let args: Vec<String> = args.iter().map(word).collect();
    ExprValue::Deferred(format!("\"$({function} {})\"", args.join(" ")))
}

/// A value as one shell word.
fn word(value: &ExprValue) -> String {
    match value {
        ExprValue::Known(value) => shell_quote(&shown(value)),
        ExprValue::Deferred(word) => word.clone(),
    }
}

pub(crate) fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

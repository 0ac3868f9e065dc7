//! Findings of reviews that block a change.

use serde::Deserialize;
use serde_json::{Value, json};

use domain::sanitize;

/// Maximum length of a finding in one line, in bytes.
const MAX_FINDING: usize = 2000;

/// Finding that blocks a change.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockingFinding {
    title: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    problem: String,
    #[serde(default)]
    required_fix: String,
    /// Whether a change of the code can resolve the finding. False for a missing review.
    #[serde(skip, default = "yes")]
    is_fixable: bool,
}

fn yes() -> bool {
    true
}

impl BlockingFinding {
    /// Creates a finding of a reviewer.
    pub(crate) fn fixable(title: &str, location: &str, problem: &str) -> Self {
        Self {
            title: title.to_owned(),
            location: location.to_owned(),
            problem: problem.to_owned(),
            required_fix: String::new(),
            is_fixable: true,
        }
    }

    /// Creates a finding about a missing review, which no change of the code can resolve.
    pub(crate) fn unfixable(title: &str, problem: &str) -> Self {
        Self {
            is_fixable: false,
            ..Self::fixable(title, "", problem)
        }
    }

    /// Whether a change of the code can resolve the finding.
    pub(crate) fn is_fixable(&self) -> bool {
        self.is_fixable
    }

    /// Returns the finding as one line, for people.
    pub(crate) fn summary_line(&self) -> String {
        let location = match self.location.trim() {
            "" => String::new(),
            location => format!(" ({location})"),
        };
        let line = format!("{}{location}: {}", self.title.trim(), self.problem.trim());
        let line = sanitize::single_line(&line);
        sanitize::truncate(line, MAX_FINDING, sanitize::ELLIPSIS).into_owned()
    }

    /// Returns the finding for the outputs of its step: severity, file, line and text.
    pub(crate) fn output(&self) -> Value {
        let location = self.location.trim();
        let (file, line) = match location.rsplit_once(':') {
            Some((file, lines)) => (file, first_number(lines)),
            None => (location, None),
        };
        // A location that is not `file:line` is shown as it is.
        let file = if line.is_some() { file } else { location };
        let text = format!("{}: {}", self.title.trim(), self.problem.trim());
        json!({
            "severity": "blocking",
            "file": Some(file).filter(|file| !file.is_empty()),
            "line": line,
            "text": sanitize::single_line(&text),
        })
    }

    /// Returns the whole finding, for the next implement pass.
    pub(crate) fn prompt_text(&self) -> String {
        match self.required_fix.trim() {
            "" => format!("- {}", self.summary_line()),
            fix => format!("- {}\n  Required fix: {fix}", self.summary_line()),
        }
    }
}

/// Returns the number that a text such as `3` or `3-7` begins with.
fn first_number(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_the_location() {
        for (location, file, line) in [
            ("src/a.rs:3", json!("src/a.rs"), json!(3)),
            ("src/a.rs:3-7", json!("src/a.rs"), json!(3)),
            (" src/a.rs ", json!("src/a.rs"), json!(null)),
            ("C:no line", json!("C:no line"), json!(null)),
            ("", json!(null), json!(null)),
        ] {
            let output = BlockingFinding::fixable("A race", location, "two\nwriters").output();
            let expected = json!({"severity": "blocking", "file": file, "line": line, "text": "A race: two writers"});
            assert_eq!(output, expected, "{location}");
        }
    }
}

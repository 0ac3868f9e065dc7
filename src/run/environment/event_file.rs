//! Event file of CI. It holds the run's inputs and tokens, and children could read it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::print::print_line;
use domain::sensitive_files::find_secrets;

/// Inputs that are removed from the event file, because children could read them.
const TOKEN_INPUTS: [&str; 2] = ["run_token", "run_progress_token"];

/// Error of reading the event file: path and cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the event file {0}: {1}")]
pub struct EventFileError(PathBuf, String);

/// Event file with its contents.
pub(super) struct EventFile {
    path: PathBuf,
    event: Value,
}

impl EventFile {
    /// Reads the file; `None` if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, EventFileError> {
        let path = path.to_owned();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(EventFileError(path, error.to_string())),
        };
        match serde_json::from_slice(text.as_bytes()) {
            Ok(event) => Ok(Some(Self { path, event })),
            Err(_) => Err(EventFileError(path, "not valid JSON".to_owned())),
        }
    }

    /// Returns the contents.
    pub(super) fn event(&self) -> &Value {
        &self.event
    }

    /// Writes the file back without tokens. Failure, e.g. on a read-only mount, is only logged: it
    /// is one of several protections.
    pub(super) fn remove_tokens(&self) {
        let mut event = self.event.clone();
        let Some(inputs) = event.get_mut("inputs").and_then(Value::as_object_mut) else {
            return;
        };
        let removed = TOKEN_INPUTS
            .iter()
            .filter(|name| inputs.shift_remove(**name).is_some())
            .count();
        if removed > 0 && std::fs::write(&self.path, event.to_string()).is_err() {
            print_line("Cannot write the event file. The run's tokens remain in it.");
        }
    }

    /// Returns the `add-mask` commands for tokens, and for secrets in the other inputs.
    pub(super) fn add_mask_commands(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        for (name, text) in self.event["inputs"].as_object().into_iter().flatten() {
            let Some(text) = text.as_str() else {
                continue;
            };
            if TOKEN_INPUTS.contains(&name.as_str()) {
                secrets.push(text.to_owned());
            } else {
                let found = find_secrets(text).into_iter();
                secrets.extend(found.map(|range| text[range].to_owned()));
            }
        }
        let lines = secrets.iter().flat_map(|secret| secret.lines());
        lines
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("-----"))
            .map(|line| format!("::add-mask::{line}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removes_tokens_from_the_event_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("event.json");
        let event =
            json!({"inputs": {"run_token": "a.b.c", "run_progress_token": "d.e.f", "phase": "x"}});
        std::fs::write(&path, event.to_string()).unwrap();
        EventFile::read(&path).unwrap().unwrap().remove_tokens();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            r#"{"inputs":{"phase":"x"}}"#
        );
    }
}

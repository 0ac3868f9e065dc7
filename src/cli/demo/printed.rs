//! Keys of the events that a demo has printed, kept in its folder so that a resumed demo prints only new ones.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::Context;

/// Name of the file: one key per line, as JSON strings.
const FILE: &str = "printed.jsonl";

/// Printed events.
pub(super) struct PrintedEvents {
    keys: HashSet<String>,
    file: File,
}

impl PrintedEvents {
    /// Loads the events that were printed from this folder.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(FILE);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        // The last line of a killed demo may be incomplete.
        let keys = text
            .lines()
            .filter_map(|line| serde_json::from_slice(line.as_bytes()).ok());
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = file.with_context(|| format!("opening {}", path.display()))?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self {
            keys: keys.collect(),
            file,
        })
    }

    /// Whether events were printed.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether an event was printed.
    pub(super) fn contains(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Records an event.
    pub(super) fn insert(&mut self, key: String) {
        // If it cannot be written, a resumed demo prints the event again.
        let _ = writeln!(self.file, "{}", serde_json::Value::from(key.as_str()));
        self.keys.insert(key);
    }
}

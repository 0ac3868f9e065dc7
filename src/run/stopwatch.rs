//! Durations of the parts of a step, for its outputs.

use std::time::Instant;

use serde_json::{Map, Value, json};

/// Stopwatch of the parts of a step. The parts follow each other.
pub(crate) struct Stopwatch {
    began: Instant,
    milliseconds: Map<String, Value>,
}

impl Stopwatch {
    /// Starts the first part.
    pub(crate) fn start() -> Self {
        Self {
            began: Instant::now(),
            milliseconds: Map::new(),
        }
    }

    /// Ends a part and starts the next one. A part may occur several times; its durations are added.
    pub(crate) fn lap(&mut self, part: &str) {
        let now = Instant::now();
        let took = u64::try_from((now - self.began).as_millis()).unwrap_or_default();
        self.began = now;
        let before = self.milliseconds.get(part).and_then(Value::as_u64);
        let total = before.unwrap_or_default() + took;
        self.milliseconds.insert(part.to_owned(), json!(total));
    }

    /// Returns the milliseconds of each part.
    pub(crate) fn milliseconds(self) -> Value {
        Value::Object(self.milliseconds)
    }
}

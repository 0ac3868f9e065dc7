//! Detection of web client configuration, in which API keys are public.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// Number of bytes before a key that are searched for its configuration.
const BYTES_BEFORE: usize = 400;
/// Number of bytes after a key that are searched for its configuration.
const BYTES_AFTER: usize = 600;

/// Texts that occur in web client configuration.
const MARKERS: [&str; 14] = [
    "initializeApp",
    "FIREBASE_API_KEY",
    "NEXT_PUBLIC_",
    "EXPO_PUBLIC_",
    "VITE_",
    "REACT_APP_",
    "authDomain",
    "messagingSenderId",
    "firebaseapp.com",
    "firebaseConfig",
    "maps.googleapis.com/maps/api/js",
    "current_key",
    "mobilesdk_app_id",
    "GCM_SENDER_ID",
];

/// Length of the longest marker, in bytes.
const MAX_MARKER_LEN: usize = 31;

#[expect(clippy::unwrap_used, reason = "the markers are constants")]
static AUTOMATON: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let mut builder = AhoCorasick::builder();
    builder.kind(Some(AhoCorasickKind::DFA));
    builder.build(MARKERS).unwrap()
});

/// Incremental search for markers. Reads each byte of a text once.
#[derive(Debug, Default)]
pub(super) struct WebConfigScan {
    /// End of the text that was read.
    end: usize,
    /// Range of the last marker.
    last: Option<Range<usize>>,
}

impl WebConfigScan {
    /// Returns whether a key is part of web client configuration. Keys must be passed in the order of the
    /// text.
    pub(super) fn contains(&mut self, text: &[u8], key: &Range<usize>) -> bool {
        let around = key.start.saturating_sub(BYTES_BEFORE)..text.len().min(key.end + BYTES_AFTER);
        let from = around.start.max(self.end.saturating_sub(MAX_MARKER_LEN));
        if around.end > self.end {
            let new = AUTOMATON.find_iter(&text[from..around.end]).last();
            if let Some(marker) = new {
                self.last = Some(from + marker.start()..from + marker.end());
            }
            self.end = around.end;
        }
        let is_inside =
            |marker: &Range<usize>| around.start <= marker.start && marker.end <= around.end;
        self.last.as_ref().is_some_and(is_inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_marker_near_each_of_several_keys() {
        assert_eq!(
            MARKERS.iter().map(|marker| marker.len()).max(),
            Some(MAX_MARKER_LEN)
        );
        for marker in MARKERS {
            for (gap, is_near) in [(BYTES_BEFORE - 60, true), (BYTES_BEFORE + 60, false)] {
                let text = format!("{marker}{:gap$}KEY{:gap$}KEY", "", "");
                let mut config = WebConfigScan::default();
                let first = marker.len() + gap;
                assert_eq!(
                    config.contains(text.as_bytes(), &(first..first + 3)),
                    is_near
                );
                let second = text.len() - 3;
                assert!(!config.contains(text.as_bytes(), &(second..second + 3)));
            }
            let text = format!("KEY{0:40}KEY{0:500}{marker}", "");
            let mut config = WebConfigScan::default();
            for key in [0..3, 43..46] {
                assert!(config.contains(text.as_bytes(), &key), "{marker}");
            }
        }
    }
}

//! The configuration of a web page, where everybody sees the keys.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// How far before and behind a key its configuration is looked for, in bytes?
const BEFORE: usize = 400;
const BEHIND: usize = 600;

const MARKS: [&str; 14] = [
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

const LONGEST: usize = 31;

#[expect(clippy::unwrap_used, reason = "the marks are constants")]
static AUTOMATON: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let mut builder = AhoCorasick::builder();
    builder.kind(Some(AhoCorasickKind::DFA));
    builder.build(MARKS).unwrap()
});

/// The marks of a configuration, each byte of a text read once.
#[derive(Debug, Default)]
pub(super) struct WebConfigScan {
    /// How far the text was read.
    end: usize,
    /// Where the last mark stands.
    last: Option<Range<usize>>,
}

impl WebConfigScan {
    /// Whether a key stands in a configuration. Keys come in the order of the text.
    pub fn contains(&mut self, text: &[u8], key: &Range<usize>) -> bool {
        let around = key.start.saturating_sub(BEFORE)..text.len().min(key.end + BEHIND);
        let from = around.start.max(self.end.saturating_sub(LONGEST));
        if around.end > self.end {
            let new = AUTOMATON.find_iter(&text[from..around.end]).last();
            if let Some(mark) = new {
                self.last = Some(from + mark.start()..from + mark.end());
            }
            self.end = around.end;
        }
        let is_inside = |mark: &Range<usize>| around.start <= mark.start && mark.end <= around.end;
        self.last.as_ref().is_some_and(is_inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_near_a_key_is_found_however_many_keys_there_are() {
        assert_eq!(MARKS.iter().map(|mark| mark.len()).max(), Some(LONGEST));
        for mark in MARKS {
            for (gap, is_near) in [(BEFORE - 60, true), (BEFORE + 60, false)] {
                let text = format!("{mark}{:gap$}KEY{:gap$}KEY", "", "");
                let mut config = WebConfigScan::default();
                let first = mark.len() + gap;
                assert_eq!(
                    config.contains(text.as_bytes(), &(first..first + 3)),
                    is_near
                );
                let second = text.len() - 3;
                assert!(!config.contains(text.as_bytes(), &(second..second + 3)));
            }
            let text = format!("KEY{0:40}KEY{0:500}{mark}", "");
            let mut config = WebConfigScan::default();
            for key in [0..3, 43..46] {
                assert!(config.contains(text.as_bytes(), &key), "{mark}");
            }
        }
    }
}

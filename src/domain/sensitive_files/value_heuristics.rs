//! What a person chose or a machine drew, and what names something in a program.

use std::sync::LazyLock;

use data_encoding::{BASE64, BASE64_NOPAD};

use super::plausibility::{has_exempt_prefix, is_placeholder};
use super::text_stats::{ALNUM, ByteSet, DIGIT, LETTER, LOWERCASE, TextStats, UPPERCASE};
use super::word_automaton::WordAutomaton;

const HEX: ByteSet = ByteSet::of(b"0123456789abcdefABCDEF");
const SIGN: ByteSet = ByteSet::of(b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~");

impl TextStats<'_> {
    /// Whether a value without quotes between the words of a program can be nothing but a secret:
    /// capitals, small letters and digits in quick turn, or as many hexadecimal digits as a key has.
    pub fn is_certainly_random(&self) -> bool {
        let length = self.text.len();
        let is_hex = || length >= 32 && self.bytes.is_subset(HEX);
        let is_quick = || {
            length >= 20
                && self.is_mixed_case()
                && self.sequence_stats().class_changes * 3 >= length
        };
        (is_hex() || is_quick())
            && self.digits() >= 3
            && !self.bytes.contains(b'.')
            && self.is_credential()
    }

    /// Letters, digits and signs that no encoding has, as frameworks draw them for their own keys.
    pub fn is_random_with_symbols(&self) -> bool {
        const SIGNS: ByteSet = ByteSet::of(b"!\"#$&'()*;<>?@[]^`{|}~");
        let length = self.text.len();
        length >= 32
            && self.bytes.intersects(LETTER)
            && self.bytes.intersects(DIGIT)
            && self.bytes.intersection_len(SIGNS) >= 4
            && self.sequence_stats().class_changes * 2 >= length
            && !self.text.starts_with(b"$")
            && self.has_min_entropy(4.2)
            && !self.has_example_word()
    }

    /// What a person takes for a good password: letters of both cases with digits, or letters with
    /// digits and signs, and no word that stands for one.
    pub fn is_password(&self) -> bool {
        const OTHER_SIGNS: ByteSet = ByteSet::of(b"!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");
        let kinds =
            [LOWERCASE, UPPERCASE, DIGIT, OTHER_SIGNS].map(|kind| self.bytes.intersects(kind));
        (8..=64).contains(&self.text.len())
            && self.bytes.intersects(DIGIT)
            && kinds.iter().filter(|kind| **kind).count() >= 3
            && self.bytes.is_subset(ALNUM.with(SIGN))
            && self.sequence_stats().class_changes >= 3
            && self.distinct_bytes() >= 6
            && !self.is_path()
            && !self.is_identifier()
            && !self.has_example_word()
            && !self.is_placeholder()
    }

    /// Paths, addresses and the names of members.
    fn is_path(&self) -> bool {
        const PARTS: ByteSet = ByteSet::of(b":->");
        let is_joined = || {
            let mut pairs = self.text.windows(2);
            pairs.any(|pair| matches!(pair, b"::" | b"->"))
        };
        self.bytes.contains(b'/')
            || (self.bytes.intersects(PARTS) && is_joined())
            || self.is_member()
    }

    /// The name of a member of something: `settings.password1`.
    fn is_member(&self) -> bool {
        const NAME: ByteSet = ALNUM.with(ByteSet::of(b"_."));
        self.bytes.contains(b'.')
            && self.bytes.is_subset(NAME)
            && self
                .text
                .split(|byte| *byte == b'.')
                .all(|part| part.first().is_some_and(u8::is_ascii_alphabetic))
    }

    /// A value that names something in a program: `settings.password1`, `x25519_private_key`.
    pub fn is_identifier(&self) -> bool {
        const NAME: ByteSet = ALNUM.with(ByteSet::of(b"_."));
        static WORDS: LazyLock<WordAutomaton> = LazyLock::new(|| {
            WordAutomaton::new(&["key", "token", "secret", "passw", "credential", "auth"])
        });
        if !self.bytes.is_subset(NAME) {
            return false;
        }
        let is_joined = self.bytes.contains(b'_');
        if !is_joined && self.sequence_stats().class_changes * 5 >= self.text.len() * 2 {
            return false;
        }
        self.is_member()
            || WORDS.is_match(self.text)
            || (is_joined && self.text.split(|byte| *byte == b'_').all(is_word))
    }

    /// A cheap test before all others: a value of a [secret's length](may_be_secret) has a digit or
    /// is long without one.
    pub fn may_be_secret(&self) -> bool {
        (self.text.len() >= 20 || self.bytes.intersects(DIGIT)) && self.bytes.intersects(LETTER)
    }

    /// Keys that are public or have a rule of their own, hashes of passwords, and placeholders in
    /// base64.
    pub fn is_excluded(&self) -> bool {
        let is_hash = || {
            let mut parts = self.text.split(|byte| *byte == b'$');
            parts.next() == Some(b"")
                && parts.next().is_some_and(|kind| kind.len() <= 16)
                && parts.next().is_some()
        };
        let is_encoded = || {
            // What was drawn is no text from the beginning.
            let mut head = [0; 6];
            let first = self.text.get(..8);
            let begins = first.is_some_and(|first| {
                BASE64_NOPAD.decode_mut(first, &mut head).is_ok() && is_text(&head)
            });
            (begins || self.text.len() == 8)
                && BASE64.decode(self.text).is_ok_and(|plain| {
                    plain.len() >= 4 && is_text(&plain) && is_placeholder(&plain)
                })
        };
        has_exempt_prefix(self.text) || is_hash() || is_encoded()
    }
}

/// Whether values of this length, in bytes, may be secrets that only their names give away.
pub(super) fn is_secret_length(length: usize) -> bool {
    (8..=128).contains(&length)
}

/// A word, perhaps with a digit or more at its end: `Win32`.
fn is_word(part: &[u8]) -> bool {
    let letters = part.iter().rposition(u8::is_ascii_alphabetic);
    let end = letters.map_or(0, |last| last + 1);
    end > 0 && part[1..end].iter().all(u8::is_ascii_lowercase) && part[0].is_ascii_alphabetic()
}

fn is_text(value: &[u8]) -> bool {
    value
        .iter()
        .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

//! Heuristics for generated values, chosen passwords, and identifiers of source code.

use std::sync::LazyLock;

use data_encoding::{BASE64, BASE64_NOPAD};

use super::plausibility::{has_exempt_prefix, is_placeholder};
use super::text_stats::{ALNUM, ByteSet, DIGIT, LETTER, LOWERCASE, TextStats, UPPERCASE};
use super::word_automaton::WordAutomaton;

const HEX: ByteSet = ByteSet::of(b"0123456789abcdefABCDEF");
const SYMBOL: ByteSet = ByteSet::of(b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~");

impl TextStats<'_> {
    /// Returns whether an unquoted value in source code is certainly random: upper-case letters, lower-case
    /// letters and digits that alternate quickly, or as many hexadecimal digits as a key has.
    pub(super) fn is_certainly_random(&self) -> bool {
        let length = self.text.len();
        let is_hex = || length >= 32 && self.bytes.is_subset(HEX);
        let alternates_quickly = || {
            length >= 20
                && self.is_mixed_case()
                && self.sequence_stats().class_changes * 3 >= length
        };
        (is_hex() || alternates_quickly())
            && self.digits() >= 3
            && !self.bytes.contains(b'.')
            && self.is_credential()
    }

    /// Returns whether the value mixes letters, digits and symbols outside any encoding, like keys that
    /// frameworks generate.
    pub(super) fn is_random_with_symbols(&self) -> bool {
        const SYMBOLS: ByteSet = ByteSet::of(b"!\"#$&'()*;<>?@[]^`{|}~");
        let length = self.text.len();
        length >= 32
            && self.bytes.intersects(LETTER)
            && self.bytes.intersects(DIGIT)
            && self.bytes.intersection_len(SYMBOLS) >= 4
            && self.sequence_stats().class_changes * 2 >= length
            && !self.text.starts_with(b"$")
            && self.has_min_entropy(4.2)
            && !self.has_example_word()
    }

    /// Returns whether the value looks like a chosen password: letters of both cases with digits, or letters
    /// with digits and symbols, and not a placeholder.
    pub(super) fn is_password(&self) -> bool {
        const SYMBOLS: ByteSet = ByteSet::of(b"!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");
        let classes =
            [LOWERCASE, UPPERCASE, DIGIT, SYMBOLS].map(|class| self.bytes.intersects(class));
        (8..=64).contains(&self.text.len())
            && self.bytes.intersects(DIGIT)
            && classes.iter().filter(|class| **class).count() >= 3
            && self.bytes.is_subset(ALNUM.with(SYMBOL))
            && self.sequence_stats().class_changes >= 3
            && self.distinct_bytes() >= 6
            && !self.is_path()
            && !self.is_identifier()
            && !self.has_example_word()
            && !self.is_placeholder()
    }

    /// Returns whether the value is a path, an address or a member access.
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

    /// Returns whether the value is a member access: `settings.password1`.
    fn is_member(&self) -> bool {
        const NAME: ByteSet = ALNUM.with(ByteSet::of(b"_."));
        self.bytes.contains(b'.')
            && self.bytes.is_subset(NAME)
            && self
                .text
                .split(|byte| *byte == b'.')
                .all(|part| part.first().is_some_and(u8::is_ascii_alphabetic))
    }

    /// Returns whether the value is an identifier of source code: `settings.password1`, `x25519_private_key`.
    pub(super) fn is_identifier(&self) -> bool {
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

    /// Returns whether the value can be a secret at all: it has letters, and a digit or at least 20 bytes.
    /// Cheap check before all others.
    pub(super) fn may_be_secret(&self) -> bool {
        (self.text.len() >= 20 || self.bytes.intersects(DIGIT)) && self.bytes.intersects(LETTER)
    }

    /// Returns whether the value is a public key, a key with its own rule, a password hash, or a
    /// base64-encoded placeholder.
    pub(super) fn is_excluded(&self) -> bool {
        let is_hash = || {
            let mut parts = self.text.split(|byte| *byte == b'$');
            parts.next() == Some(b"")
                && parts.next().is_some_and(|kind| kind.len() <= 16)
                && parts.next().is_some()
        };
        let is_encoded = || {
            // Random bytes rarely begin with text: decode the beginning first.
            let mut head = [0; 6];
            let first = self.text.get(..8);
            let begins_with_text = first.is_some_and(|first| {
                BASE64_NOPAD.decode_mut(first, &mut head).is_ok() && is_text(&head)
            });
            (begins_with_text || self.text.len() == 8)
                && BASE64.decode(self.text).is_ok_and(|plain| {
                    plain.len() >= 4 && is_text(&plain) && is_placeholder(&plain)
                })
        };
        has_exempt_prefix(self.text) || is_hash() || is_encoded()
    }
}

/// Returns whether a value of this length, in bytes, can be a secret that is identified by its name only.
pub(super) fn is_secret_length(length: usize) -> bool {
    (8..=128).contains(&length)
}

/// Returns whether the part is a word, optionally with digits at its end: `Win32`.
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

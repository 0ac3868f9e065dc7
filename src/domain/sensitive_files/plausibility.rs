//! Telling a secret from what only stands for one: an example, a placeholder, a variable, a hash.

use std::collections::HashSet;

use data_encoding::BASE64URL_NOPAD;

pub(super) use super::hosts::{is_local, is_remote};
use super::placeholders::{consists_of_placeholder_words, has_variable};
use super::text_stats::{ALNUM, ByteSet, DIGIT, LETTER, LOWERCASE, TextStats, UPPERCASE};

/// A run of the alphabet, of digits or of one character that is no coincidence.
const LONG_RUN: usize = 8;

/// How few different characters give away that nobody drew them by lot?
const FEW: usize = 9;

impl TextStats<'_> {
    /// A token of a manual: it says so, it counts, or it hardly varies.
    pub fn is_dummy(&self) -> bool {
        self.distinct_bytes() < FEW
            || self.sequence_stats().longest_repeat >= LONG_RUN
            || self.sequence_stats().longest_sequence >= LONG_RUN
            || self.has_example_word()
    }

    /// Whether a text of letters and digits varies as a random one does.
    pub fn is_random(&self) -> bool {
        !self.is_dummy() && self.has_min_entropy(3.0)
    }

    /// Capital and small letters: no hash, no identifier of one kind.
    pub fn is_mixed_case(&self) -> bool {
        self.bytes.intersects(UPPERCASE) && self.bytes.intersects(LOWERCASE)
    }

    /// The length and the characters of a credential.
    pub fn has_token_shape(&self) -> bool {
        const LETTERS: ByteSet = ALNUM.with(ByteSet::of(b"+/=_-.~"));
        (14..=512).contains(&self.text.len())
            && self.bytes.is_subset(LETTERS)
            && self.bytes.intersects(LETTER)
    }

    /// Whether a value can be a credential that somebody drew: letters and digits without a word in
    /// them, or an identifier of hexadecimal digits.
    pub fn is_credential(&self) -> bool {
        let length = self.text.len();
        self.has_token_shape()
            && self.sequence_stats().class_changes * 5 >= length
            && !self.is_dummy()
            && (self.digits() >= 2 || self.is_drawn())
            && !has_exempt_prefix(self.text)
            && !self.is_identifier()
            && self.has_min_entropy(if length < 20 { 3.0 } else { 3.3 })
            && !self.is_placeholder()
    }

    /// Whether letters alone change their case as often as those that a machine drew.
    fn is_drawn(&self) -> bool {
        const PACKED: ByteSet = ByteSet::of(b"+/");
        const LETTERS: ByteSet = ALNUM.with(PACKED).with(ByteSet::of(b"-_"));
        let times = if self.bytes.intersects(PACKED) { 2 } else { 3 };
        let length = self.text.len();
        length >= 20
            && self.is_mixed_case()
            && self.bytes.is_subset(LETTERS)
            && (self.bytes.is_subset(ALNUM) || self.bytes.intersects(DIGIT))
            && self.sequence_stats().class_changes * times >= length
    }

    /// Whether an unquoted value can be a secret, and is no word of a program.
    pub fn may_be_unquoted_secret(&self) -> bool {
        (self.digits() >= 2 || self.is_drawn()) && !self.bytes.contains(b'$')
    }

    /// Something random enough to mention.
    pub fn is_high_entropy(&self) -> bool {
        const LETTERS: ByteSet = ALNUM.with(ByteSet::of(b"+/=_-.~!@#^&"));
        self.bytes.intersects(DIGIT)
            && self.bytes.intersects(LETTER)
            && self.bytes.is_subset(LETTERS)
            && !self.is_dummy()
            && self.has_min_entropy(3.6)
            && !self.is_placeholder()
    }

    /// A password that stands for one: a variable, a bracketed word, well-known dummies put together.
    pub fn is_placeholder(&self) -> bool {
        const VARIABLE: ByteSet = ByteSet::of(b"$%{<[(`*");
        (self.bytes.intersects(VARIABLE) && has_variable(self.text))
            || self.distinct_letters() <= 2
            || self.has_placeholder_word()
            || self.sequence_stats().longest_sequence >= self.text.len().saturating_sub(2).max(4)
            || consists_of_placeholder_words(self.text)
    }
}

/// Key material that is none: three dots drawn out, or one letter.
pub(super) fn is_dummy_key(body: &[u8]) -> bool {
    let lower = body.to_ascii_lowercase();
    ByteSet::of(body).len() < FEW || contains(&lower, b"example") || contains(&lower, b"xxxx")
}

/// A password that stands for one.
pub(super) fn is_placeholder(password: &[u8]) -> bool {
    TextStats::of(password).is_placeholder()
}

/// Letters of one case alone.
pub(super) fn is_single_case_word(secret: &[u8]) -> bool {
    secret.iter().all(u8::is_ascii_lowercase) || secret.iter().all(u8::is_ascii_uppercase)
}

/// Keys that their vendors call public, and those that have a rule of their own.
pub(super) fn has_exempt_prefix(value: &[u8]) -> bool {
    let prefixes: [&[u8]; 6] = [b"pk_", b"pk-", b"pub", b"UA-", b"sk_test_", b"AIza"];
    prefixes.iter().any(|prefix| value.starts_with(prefix))
}

/// User and password of manuals.
pub(super) fn is_tutorial_login(pair: &[u8]) -> bool {
    let known: [&[u8]; 6] = [
        b"aladdin:opensesame",
        b"aladdin:open sesame",
        b"user:pass",
        b"username:password",
        b"test:123",
        b"john:",
    ];
    let lower = pair.to_ascii_lowercase();
    known.iter().any(|known| lower.starts_with(known))
}

/// Whether somebody drew or chose a password, and it is no example: even a host without a domain does not
/// excuse it.
pub(super) fn is_strong_password(password: &[u8]) -> bool {
    let traits = TextStats::of(password);
    traits.is_password() || traits.is_credential()
}

/// The words that a wallet is restored from, but for those that everybody tests with.
pub(super) fn is_mnemonic(value: &[u8]) -> bool {
    let words: Vec<&[u8]> = value.split(|byte| *byte == b' ').collect();
    let is_word =
        |word: &&[u8]| (3..=8).contains(&word.len()) && word.iter().all(u8::is_ascii_lowercase);
    let different: HashSet<&[u8]> = words.iter().copied().collect();
    [12, 15, 18, 21, 24].contains(&words.len())
        && words.iter().all(is_word)
        && different.len() * 4 >= words.len() * 3
}

/// A signed token of a manual or a test: its claims say so.
pub(super) fn is_sample_jwt(token: &[u8]) -> bool {
    let claims = token.split(|byte| *byte == b'.').nth(1).unwrap_or_default();
    let Ok(claims) = BASE64URL_NOPAD.decode(claims) else {
        return true;
    };
    let lower = claims.to_ascii_lowercase();
    let samples: [&[u8]; 6] = [
        b"john doe",
        b"1234567890",
        b"example",
        b"\"test",
        b"localhost",
        b"\"foo\"",
    ];
    samples.iter().any(|sample| contains(&lower, sample)) || has_long_run(token)
}

/// Whether one character stands many times in a row.
fn has_long_run(token: &[u8]) -> bool {
    let mut same = token.chunk_by(|one, other| one == other);
    same.any(|run| run.len() >= LONG_RUN)
}

pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

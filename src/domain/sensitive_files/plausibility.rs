//! Checks that separate secrets from examples, placeholders, variables and hashes.

use std::collections::HashSet;

use data_encoding::BASE64URL_NOPAD;

pub(super) use super::hosts::{is_local, is_remote};
use super::placeholders::{consists_of_placeholder_words, has_variable};
use super::text_stats::{ALNUM, ByteSet, DIGIT, LETTER, LOWERCASE, TextStats, UPPERCASE};

/// Length, in bytes, from which a run of one character or of an alphabetic sequence is not random.
const LONG_RUN: usize = 8;

/// Minimum number of distinct bytes in a random token.
const MIN_DISTINCT_BYTES: usize = 9;

impl TextStats<'_> {
    /// Returns whether the token is an example: it contains an example word, a long sequence or repeat, or
    /// too few distinct bytes.
    pub(super) fn is_dummy(&self) -> bool {
        self.distinct_bytes() < MIN_DISTINCT_BYTES
            || self.sequence_stats().longest_repeat >= LONG_RUN
            || self.sequence_stats().longest_sequence >= LONG_RUN
            || self.has_example_word()
    }

    /// Returns whether a text of letters and digits looks random.
    pub(super) fn is_random(&self) -> bool {
        !self.is_dummy() && self.has_min_entropy(3.0)
    }

    /// Returns whether the text contains upper-case and lower-case letters, unlike hashes.
    pub(super) fn is_mixed_case(&self) -> bool {
        self.bytes.intersects(UPPERCASE) && self.bytes.intersects(LOWERCASE)
    }

    /// Returns whether the text has the length and the characters of a credential.
    pub(super) fn has_token_shape(&self) -> bool {
        const LETTERS: ByteSet = ALNUM.with(ByteSet::of(b"+/=_-.~"));
        (14..=512).contains(&self.text.len())
            && self.bytes.is_subset(LETTERS)
            && self.bytes.intersects(LETTER)
    }

    /// Returns whether the value can be a generated credential: random letters and digits without words, or
    /// hexadecimal digits.
    pub(super) fn is_credential(&self) -> bool {
        let length = self.text.len();
        self.has_token_shape()
            && self.sequence_stats().class_changes * 5 >= length
            && !self.is_dummy()
            && (self.digits() >= 2 || self.has_random_case())
            && !has_exempt_prefix(self.text)
            && !self.is_identifier()
            && self.has_min_entropy(if length < 20 { 3.0 } else { 3.3 })
            && !self.is_placeholder()
    }

    /// Returns whether the letter case changes as often as in generated values.
    fn has_random_case(&self) -> bool {
        const PACKED: ByteSet = ByteSet::of(b"+/");
        const LETTERS: ByteSet = ALNUM.with(PACKED).with(ByteSet::of(b"-_"));
        let factor = if self.bytes.intersects(PACKED) { 2 } else { 3 };
        let length = self.text.len();
        length >= 20
            && self.is_mixed_case()
            && self.bytes.is_subset(LETTERS)
            && (self.bytes.is_subset(ALNUM) || self.bytes.intersects(DIGIT))
            && self.sequence_stats().class_changes * factor >= length
    }

    /// Returns whether an unquoted value can be a secret and is not an identifier of source code.
    pub(super) fn may_be_unquoted_secret(&self) -> bool {
        (self.digits() >= 2 || self.has_random_case()) && !self.bytes.contains(b'$')
    }

    /// Returns whether the value is random enough for a warning.
    pub(super) fn is_high_entropy(&self) -> bool {
        const LETTERS: ByteSet = ALNUM.with(ByteSet::of(b"+/=_-.~!@#^&"));
        self.bytes.intersects(DIGIT)
            && self.bytes.intersects(LETTER)
            && self.bytes.is_subset(LETTERS)
            && !self.is_dummy()
            && self.has_min_entropy(3.6)
            && !self.is_placeholder()
    }

    /// Returns whether the password is a placeholder: a variable, a bracketed word, or a combination of
    /// common example words.
    pub(super) fn is_placeholder(&self) -> bool {
        const VARIABLE: ByteSet = ByteSet::of(b"$%{<[(`*");
        (self.bytes.intersects(VARIABLE) && has_variable(self.text))
            || self.distinct_letters() <= 2
            || self.has_placeholder_word()
            || self.sequence_stats().longest_sequence >= self.text.len().saturating_sub(2).max(4)
            || consists_of_placeholder_words(self.text)
    }
}

/// Returns whether key material is an example, such as dots or one repeated letter.
pub(super) fn is_dummy_key(body: &[u8]) -> bool {
    let lower = body.to_ascii_lowercase();
    ByteSet::of(body).len() < MIN_DISTINCT_BYTES
        || contains(&lower, b"example")
        || contains(&lower, b"xxxx")
}

/// Returns whether the password is a placeholder.
pub(super) fn is_placeholder(password: &[u8]) -> bool {
    TextStats::of(password).is_placeholder()
}

/// Returns whether the secret consists of letters of one case.
pub(super) fn is_single_case_word(secret: &[u8]) -> bool {
    secret.iter().all(u8::is_ascii_lowercase) || secret.iter().all(u8::is_ascii_uppercase)
}

/// Returns whether the value has the prefix of a public key or of a key with its own rule.
pub(super) fn has_exempt_prefix(value: &[u8]) -> bool {
    let prefixes: [&[u8]; 6] = [b"pk_", b"pk-", b"pub", b"UA-", b"sk_test_", b"AIza"];
    prefixes.iter().any(|prefix| value.starts_with(prefix))
}

/// Returns whether a `user:password` pair is a common documentation example.
pub(super) fn is_tutorial_login(pair: &[u8]) -> bool {
    let examples: [&[u8]; 6] = [
        b"aladdin:opensesame",
        b"aladdin:open sesame",
        b"user:pass",
        b"username:password",
        b"test:123",
        b"john:",
    ];
    let lower = pair.to_ascii_lowercase();
    examples.iter().any(|example| lower.starts_with(example))
}

/// Returns whether the password looks generated or deliberately chosen. Such a password is reported even for
/// a host without a domain.
pub(super) fn is_strong_password(password: &[u8]) -> bool {
    let traits = TextStats::of(password);
    traits.is_password() || traits.is_credential()
}

/// Returns whether the value is a wallet recovery phrase. Phrases with many repeated words are test phrases.
pub(super) fn is_mnemonic(value: &[u8]) -> bool {
    let words: Vec<&[u8]> = value.split(|byte| *byte == b' ').collect();
    let is_word =
        |word: &&[u8]| (3..=8).contains(&word.len()) && word.iter().all(u8::is_ascii_lowercase);
    let distinct: HashSet<&[u8]> = words.iter().copied().collect();
    [12, 15, 18, 21, 24].contains(&words.len())
        && words.iter().all(is_word)
        && distinct.len() * 4 >= words.len() * 3
}

/// Returns whether a JSON Web Token is an example, by its claims.
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

/// Returns whether a character is repeated at least [`LONG_RUN`] times in a row.
fn has_long_run(token: &[u8]) -> bool {
    let mut runs = token.chunk_by(|one, other| one == other);
    runs.any(|run| run.len() >= LONG_RUN)
}

/// Returns whether `part` occurs in the text.
pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

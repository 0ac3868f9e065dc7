//! Telling a secret from what only stands for one: an example, a placeholder, a variable, a hash.

use std::sync::LazyLock;

use data_encoding::BASE64URL_NOPAD;

use super::traits::{ALNUM, CAPITAL, DIGIT, LETTER, SMALL, Set, Traits};
use super::words::Words;

/// A run of the alphabet, of digits or of one character that is no coincidence.
const LONG_RUN: usize = 8;

/// How few different characters give away that nobody drew them by lot?
const FEW: usize = 9;

impl Traits<'_> {
    /// A token of a manual: it says so, it counts, or it hardly varies.
    pub fn is_filler(&self) -> bool {
        self.different() < FEW
            || self.order().same >= LONG_RUN
            || self.order().rising >= LONG_RUN
            || self.is_telling()
    }

    /// Whether a text of letters and digits varies as a random one does.
    pub fn is_random(&self) -> bool {
        !self.is_filler() && self.has_entropy(3.0)
    }

    /// Capital and small letters: no hash, no identifier of one kind.
    pub fn is_mixed(&self) -> bool {
        self.bytes.meets(CAPITAL) && self.bytes.meets(SMALL)
    }

    /// The length and the characters of a credential.
    pub fn is_token(&self) -> bool {
        const LETTERS: Set = ALNUM.with(Set::of(b"+/=_-.~"));
        (14..=512).contains(&self.text.len())
            && self.bytes.is_within(LETTERS)
            && self.bytes.meets(LETTER)
    }

    /// Whether a value can be a credential that somebody drew: letters and digits without a word in
    /// them, or an identifier of hexadecimal digits.
    pub fn is_credential(&self) -> bool {
        let length = self.text.len();
        self.is_token()
            && self.order().changes * 5 >= length
            && !self.is_filler()
            && (self.digits() >= 2 || self.is_drawn())
            && !is_public(self.text)
            && self.has_entropy(if length < 20 { 3.0 } else { 3.3 })
            && !self.is_placeholder()
    }

    /// Whether letters alone change their case as often as those that a machine drew.
    fn is_drawn(&self) -> bool {
        let length = self.text.len();
        length >= 20 && self.bytes.is_within(ALNUM) && self.order().changes * 3 >= length
    }

    /// Whether an unquoted value can be a secret, and is no word of a program.
    pub fn is_value(&self) -> bool {
        (self.digits() >= 2 || self.is_drawn()) && !self.text.contains(&b'$')
    }

    /// Something random enough to mention.
    pub fn is_suspicious(&self) -> bool {
        const LETTERS: Set = ALNUM.with(Set::of(b"+/=_-.~!@#^&"));
        self.bytes.meets(DIGIT)
            && self.bytes.meets(LETTER)
            && self.bytes.is_within(LETTERS)
            && !self.is_filler()
            && self.has_entropy(3.6)
            && !self.is_placeholder()
    }

    /// A password that stands for one: a variable, a bracketed word, well-known dummies put together.
    pub fn is_placeholder(&self) -> bool {
        const VARIABLE: Set = Set::of(b"${}<>%*[]()`");
        self.bytes.meets(VARIABLE)
            || self.different_letters() <= 2
            || self.stands_for_one()
            || self.order().rising >= self.text.len().saturating_sub(2).max(4)
            || is_made_of_dummies(self.text)
    }
}

/// Key material that is none: three dots drawn out, or one letter.
pub(super) fn is_no_key(body: &[u8]) -> bool {
    let lower = body.to_ascii_lowercase();
    Set::of(body).len() < FEW || holds(&lower, b"example") || holds(&lower, b"xxxx")
}

/// A password that stands for one.
pub(super) fn is_placeholder(password: &[u8]) -> bool {
    Traits::of(password).is_placeholder()
}

/// Letters of one case alone.
pub(super) fn is_word(secret: &[u8]) -> bool {
    secret.iter().all(u8::is_ascii_lowercase) || secret.iter().all(u8::is_ascii_uppercase)
}

/// Keys that their vendors call public, and those that have a rule of their own.
fn is_public(value: &[u8]) -> bool {
    let prefixes: [&[u8]; 6] = [b"pk_", b"pk-", b"pub", b"UA-", b"sk_test_", b"AIza"];
    prefixes.iter().any(|prefix| value.starts_with(prefix))
}

/// User and password of manuals.
pub(super) fn is_tutorial(pair: &[u8]) -> bool {
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
    samples.iter().any(|sample| holds(&lower, sample)) || has_long_run(token)
}

/// Whether one character stands many times in a row.
fn has_long_run(token: &[u8]) -> bool {
    let mut same = token.chunk_by(|one, other| one == other);
    same.any(|run| run.len() >= LONG_RUN)
}

/// Whether nothing is left of a password when the words are taken away that everybody uses.
fn is_made_of_dummies(password: &[u8]) -> bool {
    static WORDS: LazyLock<Words> = LazyLock::new(|| Words::new(&DUMMIES));
    const DUMMIES: [&str; 48] = [
        "password",
        "passwort",
        "passphrase",
        "passwd",
        "passw",
        "pass",
        "word",
        "pwd",
        "pw",
        "secret",
        "supersecure",
        "super",
        "secure",
        "token",
        "apikey",
        "key",
        "postgres",
        "mysql",
        "mongo",
        "redis",
        "rabbit",
        "database",
        "admin",
        "administrator",
        "root",
        "user",
        "name",
        "guest",
        "test",
        "testing",
        "tests",
        "change",
        "changeit",
        "dummy",
        "fake",
        "none",
        "null",
        "undefined",
        "hunter",
        "development",
        "dev",
        "local",
        "my",
        "some",
        "the",
        "default",
        "login",
        "me",
    ];
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let end = password
        .iter()
        .rposition(is_letter)
        .map_or(0, |last| last + 1);
    let words = &*WORDS;
    let mut state = words.start();
    // Which prefixes are made of words only? One bit each, of the whole text so far the lowest.
    const LONGEST: u32 = (1 << 14) - 1;
    let mut reached = 1_u32;
    for letter in password[..end].iter().filter_map(|byte| unleet(*byte)) {
        state = words.next(state, letter);
        reached <<= 1;
        for word in words.ends_at(state) {
            reached |= reached >> words.length(word) & 1;
        }
        if reached & LONGEST == 0 {
            return false;
        }
    }
    reached & 1 == 1
}

/// Letters as they were before digits took their places; nothing for what stands between words.
fn unleet(byte: u8) -> Option<u8> {
    match byte {
        b'0' => Some(b'o'),
        b'3' => Some(b'e'),
        b'4' | b'@' => Some(b'a'),
        b'5' => Some(b's'),
        letter if letter.is_ascii_alphabetic() => Some(letter),
        _ => None,
    }
}

/// A host that others can reach; one without a dot is a neighbour in a compose file.
pub(super) fn is_remote(host: &[u8]) -> bool {
    host.contains(&b'.') && !is_local(host)
}

/// This machine, a container's host, or a name of manuals.
pub(super) fn is_local(host: &[u8]) -> bool {
    let host = host.to_ascii_lowercase();
    let local: [&[u8]; 15] = [
        b"localhost",
        b".local",
        b".localhost",
        b".localdomain",
        b".test",
        b".example",
        b".invalid",
        b"docker.internal",
        b"google.internal",
        b"example.com",
        b"example.org",
        b"example.net",
        b"example.internal",
        b"domain.com",
        b"domain.tld",
    ];
    let is_local = local.iter().any(|ending| host.ends_with(ending));
    let stands_for_one = [&b"host"[..], b"server", b"hostname", b"your", b"my"]
        .iter()
        .any(|word| host.starts_with(word) && holds(&host, b"."))
        && host.iter().filter(|byte| **byte == b'.').count() == 1;
    let is_loopback = host.starts_with(b"127.") || host.starts_with(b"0.");
    is_local || is_loopback || stands_for_one
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

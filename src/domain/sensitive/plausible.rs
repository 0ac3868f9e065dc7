//! Telling a secret from what only stands for one: an example, a placeholder, a variable, a hash.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use data_encoding::BASE64URL_NOPAD;

/// What manuals and tests write into a token. None of these is likely in a random one.
const TELLING: [&str; 19] = [
    "example",
    "xxxx",
    "****",
    "....",
    "placeholder",
    "your_",
    "your-",
    "yourtoken",
    "yourkey",
    "changeme",
    "change-me",
    "change_me",
    "redacted",
    "insert",
    "replace",
    "dummy",
    "notreal",
    "fake_",
    "fake-",
];

/// The same for passwords, of which one may hold more.
const PLACEHOLDERS: [&str; 5] = ["your", "example", "xxxx", "....", "placeholder"];

static TELLING_WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| words(&TELLING));
static PLACEHOLDER_WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| words(&PLACEHOLDERS));

#[expect(clippy::unwrap_used, reason = "the words are constants")]
fn words(words: &[&str]) -> AhoCorasick {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(words)
        .unwrap()
}

/// A run of the alphabet, of digits or of one character that is no coincidence.
const LONG_RUN: usize = 8;

/// How few different characters give away that nobody drew them by lot?
const FEW: usize = 9;

/// A token of a manual: it says so, it counts, or it hardly varies.
pub(super) fn is_filler(token: &[u8]) -> bool {
    different(token) < FEW
        || longest_run(token, |one, next| next.eq_ignore_ascii_case(&one)) >= LONG_RUN
        || longest_run(token, follows) >= LONG_RUN
        || TELLING_WORDS.is_match(token)
}

/// Key material that is none: three dots drawn out, or one letter.
pub(super) fn is_no_key(body: &[u8]) -> bool {
    let lower = body.to_ascii_lowercase();
    different(body) < FEW || holds(&lower, b"example") || holds(&lower, b"xxxx")
}

/// Whether a text of letters and digits varies as a random one does.
pub(super) fn is_random(secret: &[u8]) -> bool {
    !is_filler(secret) && entropy(secret) >= 3.0
}

/// Capital and small letters: no hash, no identifier of one kind.
pub(super) fn is_mixed(secret: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| secret.iter().any(is);
    has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// Letters of one case alone.
pub(super) fn is_word(secret: &[u8]) -> bool {
    secret.iter().all(u8::is_ascii_lowercase) || secret.iter().all(u8::is_ascii_uppercase)
}

/// Whether a value can be a credential that somebody drew: letters and digits without a word in them, or
/// an identifier of hexadecimal digits.
pub(super) fn is_credential(value: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=_-.~".contains(byte);
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    (14..=512).contains(&value.len())
        && value.iter().all(is_letter)
        && value.iter().any(u8::is_ascii_alphabetic)
        && (digits >= 2 || is_drawn(value))
        && entropy(value) >= if value.len() < 20 { 3.0 } else { 3.3 }
        && changes(value) * 5 >= value.len()
        && !is_public(value)
        && !is_filler(value)
        && !is_placeholder(value)
}

/// Whether letters alone change their case as often as those that a machine drew.
pub(super) fn is_drawn(value: &[u8]) -> bool {
    value.len() >= 20
        && value.iter().all(u8::is_ascii_alphanumeric)
        && changes(value) * 3 >= value.len()
}

/// Keys that their vendors call public, and those that have a rule of their own.
fn is_public(value: &[u8]) -> bool {
    let prefixes: [&[u8]; 6] = [b"pk_", b"pk-", b"pub", b"UA-", b"sk_test_", b"AIza"];
    prefixes.iter().any(|prefix| value.starts_with(prefix))
}

/// How often letters, capitals and digits take turns: often where a machine drew them.
fn changes(value: &[u8]) -> usize {
    let class = |byte: &u8| match byte {
        b'0'..=b'9' => 0,
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        _ => 3,
    };
    value
        .windows(2)
        .filter(|pair| class(&pair[0]) != class(&pair[1]))
        .count()
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

/// Something random enough to mention.
pub(super) fn is_suspicious(value: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| value.iter().any(is);
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=_-.~!@#^&".contains(byte);
    has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        && value.iter().all(is_word)
        && entropy(value) >= 3.6
        && !is_filler(value)
        && !is_placeholder(value)
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
    samples.iter().any(|sample| holds(&lower, sample)) || longest_run_of_one(token)
}

fn longest_run_of_one(token: &[u8]) -> bool {
    longest_run(token, |one, next| next == one) >= LONG_RUN
}

/// A password that stands for one: a variable, a bracketed word, well-known dummies put together.
pub(super) fn is_placeholder(password: &[u8]) -> bool {
    let lower = password.to_ascii_lowercase();
    let is_variable = lower.iter().any(|byte| b"${}<>%*[]()`".contains(byte));
    is_variable
        || different(&lower) <= 2
        || PLACEHOLDER_WORDS.is_match(password)
        || longest_run(&lower, follows) >= lower.len().saturating_sub(2).max(4)
        || is_made_of_dummies(&lower)
}

/// Whether nothing is left of a password when the words are taken away that everybody uses.
fn is_made_of_dummies(lower: &[u8]) -> bool {
    const WORDS: [&str; 48] = [
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
    let is_letter = |byte: &u8| byte.is_ascii_lowercase();
    let end = lower.iter().rposition(is_letter).map_or(0, |last| last + 1);
    let letters = lower[..end].iter();
    let plain: Vec<u8> = letters.filter_map(|byte| unleet(*byte)).collect();
    // Which prefixes are made of words only?
    let mut reached = vec![false; plain.len() + 1];
    reached[0] = true;
    for at in 0..plain.len() {
        if !reached[at] {
            continue;
        }
        for word in WORDS
            .iter()
            .filter(|word| plain[at..].starts_with(word.as_bytes()))
        {
            reached[at + word.len()] = true;
        }
    }
    reached[plain.len()]
}

/// Letters as they were before digits took their places; nothing for what stands between words.
fn unleet(byte: u8) -> Option<u8> {
    match byte {
        b'0' => Some(b'o'),
        b'3' => Some(b'e'),
        b'4' | b'@' => Some(b'a'),
        b'5' => Some(b's'),
        letter if letter.is_ascii_lowercase() => Some(letter),
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

/// Shannon entropy, in bits a byte.
fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text {
        counts[usize::from(*byte)] += 1;
    }
    // Each byte is asked for once: most of the table is zero.
    let length = text.len() as f64;
    let mut sum = 0.0;
    for byte in text {
        let count = std::mem::take(&mut counts[usize::from(*byte)]);
        if count > 0 {
            sum += f64::from(count) * f64::from(count).log2();
        }
    }
    length.log2() - sum / length
}

fn different(text: &[u8]) -> usize {
    let mut seen = [false; 256];
    for byte in text {
        seen[usize::from(*byte)] = true;
    }
    seen.iter().filter(|seen| **seen).count()
}

fn follows(one: u8, next: u8) -> bool {
    one.is_ascii_alphanumeric() && next.to_ascii_lowercase() == one.to_ascii_lowercase() + 1
}

/// How many characters the longest stretch has in which each goes with the one before.
fn longest_run(text: &[u8], goes_with: impl Fn(u8, u8) -> bool) -> usize {
    let (mut longest, mut run) = (0, 0);
    let mut previous = None;
    for byte in text {
        run = match previous {
            Some(previous) if goes_with(previous, *byte) => run + 1,
            _ => 1,
        };
        longest = longest.max(run);
        previous = Some(*byte);
    }
    longest
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

//! Passwords that stand for one: variables, bracketed words, what everybody writes into an example.

use std::sync::LazyLock;

use super::word_automaton::WordAutomaton;

/// Whether another value is put in: `${NAME}`, `<password>`, `%s`, `$PASSWORD`.
pub(super) fn has_variable(password: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_put_in = |at: usize| {
        let rest = &password[at + 1..];
        let name = rest.iter().take_while(|byte| is_name(byte)).count();
        let is_loud = name >= 3 && rest[..name].iter().all(|byte| !byte.is_ascii_lowercase());
        match password[at] {
            b'$' => at == 0 || is_loud || matches!(rest.first(), Some(b'{' | b'(' | b'$')),
            b'%' => at == 0 || rest.is_empty() || rest.starts_with(b"("),
            b'{' | b'<' | b'[' | b'(' => true,
            b'`' => true,
            b'*' => rest.first() == Some(&b'*') || password.len() <= 3,
            _ => false,
        }
    };
    (0..password.len()).any(is_put_in)
}

/// Words that passwords of examples are made of.
const DUMMIES: [&str; 95] = [
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
    "qwerty",
    "welcome",
    "letmein",
    "abc",
    "temp",
    "temporary",
    "demo",
    "sample",
    "foo",
    "bar",
    "baz",
    "value",
    "string",
    "here",
    "valid",
    "invalid",
    "new",
    "old",
    "wrong",
    "correct",
    "good",
    "bad",
    "long",
    "short",
    "weak",
    "strong",
    "hello",
    "world",
    "is",
    "not",
    "this",
    "for",
    "your",
    "client",
    "api",
    "auth",
    "private",
    "public",
    "app",
    "service",
    "account",
    "server",
    "host",
    "email",
    "encrypted",
    "hash",
    "hashed",
];

/// The second letters of words, one bit each, by the first letter. Most passwords begin otherwise.
const BEGINNINGS: [u32; 26] = {
    let mut seconds = [0; 26];
    let mut at = 0;
    while at < DUMMIES.len() {
        let word = DUMMIES[at].as_bytes();
        seconds[(word[0] - b'a') as usize] |= 1 << (word[1] - b'a');
        at += 1;
    }
    seconds
};

/// Whether nothing is left of a password when the words are taken away that everybody uses.
pub(super) fn consists_of_placeholder_words(password: &[u8]) -> bool {
    static WORDS: LazyLock<WordAutomaton> = LazyLock::new(|| WordAutomaton::new(&DUMMIES));
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let end = password
        .iter()
        .rposition(is_letter)
        .map_or(0, |last| last + 1);
    let mut letters = password[..end].iter().filter_map(|byte| unleet(*byte));
    let [Some(first), Some(second)] = [letters.next(), letters.next()] else {
        return end == 0;
    };
    let place = |letter: u8| letter.to_ascii_lowercase() - b'a';
    if BEGINNINGS[usize::from(place(first))] >> place(second) & 1 == 0 {
        return false;
    }
    let words = &*WORDS;
    let mut state = words.start_state();
    // Which prefixes are made of words only? One bit each, of the whole text so far the lowest.
    const LONGEST: u32 = (1 << 14) - 1;
    let mut reached = 1_u32;
    for letter in [first, second].into_iter().chain(letters) {
        state = words.next_state(state, letter);
        reached <<= 1;
        for word in words.words_ending_at(state) {
            reached |= reached >> words.word_len(word) & 1;
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

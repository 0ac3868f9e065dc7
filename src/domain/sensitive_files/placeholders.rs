//! Detection of placeholder passwords: variables, bracketed words, common example passwords.

use std::sync::LazyLock;

use super::word_automaton::WordAutomaton;

/// Returns whether the password contains a variable or a placeholder in brackets: `${NAME}`, `<password>`,
/// `%s`, `$PASSWORD`.
pub(super) fn has_variable(password: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_variable_start = |at: usize| {
        let rest = &password[at + 1..];
        let name = rest.iter().take_while(|byte| is_name(byte)).count();
        let is_upper_case_name =
            name >= 3 && rest[..name].iter().all(|byte| !byte.is_ascii_lowercase());
        match password[at] {
            b'$' => {
                at == 0 || is_upper_case_name || matches!(rest.first(), Some(b'{' | b'(' | b'$'))
            }
            b'%' => at == 0 || rest.is_empty() || rest.starts_with(b"("),
            b'{' | b'<' | b'[' | b'(' => true,
            b'`' => true,
            b'*' => rest.first() == Some(&b'*') || password.len() <= 3,
            _ => false,
        }
    };
    (0..password.len()).any(is_variable_start)
}

/// Words that example passwords consist of.
const PLACEHOLDER_WORDS: [&str; 95] = [
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

/// Second letters of the placeholder words, one bit each, by first letter. Rejects most passwords quickly.
const SECOND_LETTERS: [u32; 26] = {
    let mut seconds = [0; 26];
    let mut at = 0;
    while at < PLACEHOLDER_WORDS.len() {
        let word = PLACEHOLDER_WORDS[at].as_bytes();
        seconds[(word[0] - b'a') as usize] |= 1 << (word[1] - b'a');
        at += 1;
    }
    seconds
};

/// Returns whether the password consists of placeholder words only. Digits that replace letters are read as
/// these letters; other digits and symbols are skipped.
pub(super) fn consists_of_placeholder_words(password: &[u8]) -> bool {
    static WORDS: LazyLock<WordAutomaton> =
        LazyLock::new(|| WordAutomaton::new(&PLACEHOLDER_WORDS));
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let end = password
        .iter()
        .rposition(is_letter)
        .map_or(0, |last| last + 1);
    let mut letters = password[..end].iter().filter_map(|byte| unleet(*byte));
    let [Some(first), Some(second)] = [letters.next(), letters.next()] else {
        return end == 0;
    };
    let index = |letter: u8| letter.to_ascii_lowercase() - b'a';
    if SECOND_LETTERS[usize::from(index(first))] >> index(second) & 1 == 0 {
        return false;
    }
    let words = &*WORDS;
    let mut state = words.start_state();
    // One bit per prefix, set if the prefix consists of words only. The lowest bit is the whole text so far.
    const PREFIX_MASK: u32 = (1 << 14) - 1;
    let mut reached = 1_u32;
    for letter in [first, second].into_iter().chain(letters) {
        state = words.next_state(state, letter);
        reached <<= 1;
        for word in words.words_ending_at(state) {
            reached |= reached >> words.word_len(word) & 1;
        }
        if reached & PREFIX_MASK == 0 {
            return false;
        }
    }
    reached & 1 == 1
}

/// Returns the letter that a byte stands for, such as `o` for `0`. Returns `None` for separators.
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

//! What the name of a setting says of its value.

use super::traits::Set;

/// What a name says that its value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secret {
    /// What a person may have chosen.
    Password,
    /// A token, or a key that is said to be secret.
    Token,
    /// Any key: of a cache, a table, a translation.
    Key,
}

impl Secret {
    /// Reads a name: `API_TOKEN`, `clientSecret`, `password2`, and not `token_url`, `public_key` or
    /// `password_length`.
    pub fn of(name: &[u8]) -> Option<Secret> {
        const ENDS: [&[u8]; 23] = [
            b"salt",
            b"key",
            b"token",
            b"secret",
            b"password",
            b"passwd",
            b"passwort",
            b"pwd",
            b"pass",
            b"passphrase",
            b"auth",
            b"credential",
            b"credentials",
            b"creds",
            b"cred",
            b"bearer",
            b"keys",
            b"tokens",
            b"secrets",
            b"pat",
            b"passcode",
            b"jwt",
            b"authorization",
        ];
        const TAILS: [&[u8]; 12] = [
            b"value",
            b"base",
            b"prod",
            b"production",
            b"live",
            b"b64",
            b"base64",
            b"string",
            b"raw",
            b"plain",
            b"default",
            b"v2",
        ];
        const PUBLIC: [&[u8]; 18] = [
            b"publickey",
            b"csrf",
            b"xsrf",
            b"authenticity",
            b"forgery",
            b"page",
            b"next",
            b"continuation",
            b"idempotency",
            b"public",
            b"publishable",
            b"pub",
            b"site",
            b"sort",
            b"primary",
            b"foreign",
            b"cache",
            b"partition",
        ];
        // Most names do not even end in one of these letters.
        const LAST: Set = Set::of_ends(&ENDS).with(Set::of_ends(&TAILS));
        let mut end = trimmed(name);
        if !LAST.has(end.last().map_or(0, u8::to_ascii_lowercase)) {
            return None;
        }
        for tail in TAILS {
            if ends_in(end, tail) {
                end = trimmed(&end[..end.len() - tail.len()]);
            }
        }
        const PASSWORDS: [&[u8]; 6] = [
            b"passw",
            b"pwd",
            b"pass",
            b"passphrase",
            b"passcode",
            b"pswd",
        ];
        const SECRET_KEYS: [&[u8]; 22] = [
            b"api",
            b"secret",
            b"access",
            b"private",
            b"auth",
            b"sign",
            b"signing",
            b"encrypt",
            b"encryption",
            b"master",
            b"session",
            b"jwt",
            b"app",
            b"client",
            b"account",
            b"admin",
            b"service",
            b"webhook",
            b"crypt",
            b"hmac",
            b"shared",
            b"license",
        ];
        let word = ENDS
            .iter()
            .filter(|word| ends_in(end, word))
            .max_by_key(|word| word.len())?;
        let head = trimmed(&end[..end.len() - word.len()]);
        if PUBLIC.iter().any(|word| ends_in(head, word)) {
            return None;
        }
        if PASSWORDS.iter().any(|password| word.starts_with(password)) {
            return Some(Secret::Password);
        }
        let is_any = matches!(*word, b"key" | b"keys" | b"salt")
            && !SECRET_KEYS.iter().any(|word| ends_in(head, word));
        Some(if is_any { Secret::Key } else { Secret::Token })
    }
}

/// Whether a name ends in a word, in either case. Most differ in the last letter.
#[inline(always)]
fn ends_in(name: &[u8], word: &[u8]) -> bool {
    let (Some(one), Some(other)) = (name.last(), word.last()) else {
        return false;
    };
    (one | 0x20) == *other
        && name.len() >= word.len()
        && name[name.len() - word.len()..].eq_ignore_ascii_case(word)
}

fn trimmed(mut name: &[u8]) -> &[u8] {
    while let [rest @ .., last] = name
        && !last.is_ascii_alphabetic()
    {
        name = rest;
    }
    name
}

//! What the name of a setting says of its value.

/// What names of secrets end in.
const ENDS: Endings<23> = Endings::new([
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
]);

/// What may follow that.
const TAILS: Endings<9> = Endings::new([
    b"value",
    b"base",
    b"prod",
    b"production",
    b"live",
    b"string",
    b"raw",
    b"plain",
    b"default",
]);

/// What says that a key or token is none of these secrets.
const PUBLIC: Endings<18> = Endings::new([
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
]);

/// What says that a key is secret.
const SECRET_KEYS: Endings<22> = Endings::new([
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
]);

const PASSWORDS: [&[u8]; 6] = [
    b"passw",
    b"pwd",
    b"pass",
    b"passphrase",
    b"passcode",
    b"pswd",
];

/// What a name says that its value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretNameKind {
    /// What a person may have chosen.
    Password,
    /// A token, or a key that is said to be secret.
    Token,
    /// Any key: of a cache, a table, a translation.
    GenericKey,
}

impl SecretNameKind {
    /// Reads a name: `API_TOKEN`, `clientSecret`, `password2`, and not `token_url`, `public_key` or
    /// `password_length`.
    pub fn classify(name: &[u8]) -> Option<SecretNameKind> {
        let mut end = trimmed(name);
        // Most names do not even end in one of these letters.
        if !(ENDS.may_end(end) || TAILS.may_end(end)) {
            return None;
        }
        while let Some(tail) = TAILS.at_end_of(end) {
            end = trimmed(&end[..end.len() - tail.len()]);
        }
        let word = ENDS.at_end_of(end)?;
        let head = trimmed(&end[..end.len() - word.len()]);
        if PUBLIC.at_end_of(head).is_some() {
            return None;
        }
        if PASSWORDS.iter().any(|password| word.starts_with(password)) {
            return Some(SecretNameKind::Password);
        }
        let is_any =
            matches!(word, b"key" | b"keys" | b"salt") && SECRET_KEYS.at_end_of(head).is_none();
        Some(if is_any {
            SecretNameKind::GenericKey
        } else {
            SecretNameKind::Token
        })
    }
}

/// Words that names may end in, by their last letter.
struct Endings<const N: usize> {
    /// The longest of those with the same last letter first.
    words: [&'static [u8]; N],
    /// Where the words of each letter begin and end.
    places: [(u8, u8); 26],
}

impl<const N: usize> Endings<N> {
    const fn new(mut words: [&'static [u8]; N]) -> Self {
        const fn last(word: &[u8]) -> u8 {
            word[word.len() - 1]
        }
        let mut at = 1;
        while at < N {
            let mut to = at;
            while to > 0 {
                let (one, other) = (words[to - 1], words[to]);
                let is_sorted = last(one) < last(other)
                    || (last(one) == last(other) && one.len() >= other.len());
                if is_sorted {
                    break;
                }
                words.swap(to - 1, to);
                to -= 1;
            }
            at += 1;
        }
        let mut places = [(0, 0); 26];
        at = 0;
        while at < N {
            let place = &mut places[(last(words[at]) - b'a') as usize];
            if place.1 == 0 {
                place.0 = at as u8;
            }
            place.1 = at as u8 + 1;
            at += 1;
        }
        Endings { words, places }
    }

    /// Whether a word has the last letter of a name.
    fn may_end(&self, name: &[u8]) -> bool {
        !self.alike(name).is_empty()
    }

    /// The longest word that a name ends in, in either case.
    #[inline]
    fn at_end_of(&self, name: &[u8]) -> Option<&'static [u8]> {
        let ends = |word: &&&[u8]| {
            let start = name.len().checked_sub(word.len());
            start.is_some_and(|start| name[start..].eq_ignore_ascii_case(word))
        };
        self.alike(name).iter().find(ends).copied()
    }

    /// The words that have the last letter of a name, the longest first.
    fn alike(&self, name: &[u8]) -> &[&'static [u8]] {
        let letter = name.last().map_or(0, |last| last | 0x20);
        let place = self.places.get(usize::from(letter.wrapping_sub(b'a')));
        place.map_or(&[], |(from, to)| {
            &self.words[usize::from(*from)..usize::from(*to)]
        })
    }
}

fn trimmed(mut name: &[u8]) -> &[u8] {
    while let [rest @ .., last] = name
        && !last.is_ascii_alphabetic()
    {
        name = rest;
    }
    name
}

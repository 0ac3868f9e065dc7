//! Classification of setting names that indicate a secret.

/// Words that the name of a secret ends with.
const SECRET_SUFFIXES: SuffixSet<23> = SuffixSet::new([
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

/// Words that may follow a secret suffix.
const TRAILING_WORDS: SuffixSet<9> = SuffixSet::new([
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

/// Words before `key` or `token` that make it public.
const PUBLIC_QUALIFIERS: SuffixSet<18> = SuffixSet::new([
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

/// Words before `key` or `salt` that make it secret.
const SECRET_KEY_QUALIFIERS: SuffixSet<22> = SuffixSet::new([
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

/// Prefixes of the suffixes that mean a password.
const PASSWORD_WORDS: [&[u8]; 6] = [
    b"passw",
    b"pwd",
    b"pass",
    b"passphrase",
    b"passcode",
    b"pswd",
];

/// Kind of secret that a name indicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretNameKind {
    /// Password, which a person may have chosen.
    Password,
    /// Token, or a key whose name says that it is secret.
    Token,
    /// Any other key, such as one of a cache, a table or a translation.
    GenericKey,
}

impl SecretNameKind {
    /// Classifies a name. Matches `API_TOKEN`, `clientSecret`, `password2`; does not match `token_url`,
    /// `public_key` or `password_length`.
    pub(super) fn classify(name: &[u8]) -> Option<SecretNameKind> {
        let mut end = trimmed(name);
        // The last letter rules out most names.
        if !(SECRET_SUFFIXES.may_end(end) || TRAILING_WORDS.may_end(end)) {
            return None;
        }
        while let Some(tail) = TRAILING_WORDS.longest_suffix(end) {
            end = trimmed(&end[..end.len() - tail.len()]);
        }
        let word = SECRET_SUFFIXES.longest_suffix(end)?;
        let head = trimmed(&end[..end.len() - word.len()]);
        if PUBLIC_QUALIFIERS.longest_suffix(head).is_some() {
            return None;
        }
        if PASSWORD_WORDS
            .iter()
            .any(|password| word.starts_with(password))
        {
            return Some(SecretNameKind::Password);
        }
        let is_generic = matches!(word, b"key" | b"keys" | b"salt")
            && SECRET_KEY_QUALIFIERS.longest_suffix(head).is_none();
        Some(if is_generic {
            SecretNameKind::GenericKey
        } else {
            SecretNameKind::Token
        })
    }
}

/// Set of words that names may end with, indexed by last letter.
struct SuffixSet<const N: usize> {
    /// Words sorted by last letter, longer words first.
    words: [&'static [u8]; N],
    /// Start and end of the words of each last letter.
    ranges: [(u8, u8); 26],
}

impl<const N: usize> SuffixSet<N> {
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
        let mut ranges = [(0, 0); 26];
        at = 0;
        while at < N {
            let range = &mut ranges[(last(words[at]) - b'a') as usize];
            if range.1 == 0 {
                range.0 = at as u8;
            }
            range.1 = at as u8 + 1;
            at += 1;
        }
        SuffixSet { words, ranges }
    }

    /// Returns whether a word has the same last letter as the name.
    fn may_end(&self, name: &[u8]) -> bool {
        !self.candidates(name).is_empty()
    }

    /// Returns the longest word that the name ends with, ignoring case.
    #[inline]
    fn longest_suffix(&self, name: &[u8]) -> Option<&'static [u8]> {
        let ends = |word: &&&[u8]| {
            let start = name.len().checked_sub(word.len());
            start.is_some_and(|start| name[start..].eq_ignore_ascii_case(word))
        };
        self.candidates(name).iter().find(ends).copied()
    }

    /// Returns the words with the same last letter as the name, longer words first.
    fn candidates(&self, name: &[u8]) -> &[&'static [u8]] {
        let letter = name.last().map_or(0, |last| last | 0x20);
        let range = self.ranges.get(usize::from(letter.wrapping_sub(b'a')));
        range.map_or(&[], |(from, to)| {
            &self.words[usize::from(*from)..usize::from(*to)]
        })
    }
}

/// Removes trailing characters that are not letters.
fn trimmed(mut name: &[u8]) -> &[u8] {
    while let [rest @ .., last] = name
        && !last.is_ascii_alphabetic()
    {
        name = rest;
    }
    name
}

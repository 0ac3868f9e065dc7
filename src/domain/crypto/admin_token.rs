//! Signing in to the panel: the access code, and the tokens given out for it.

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::secret::Secret;

use super::signature::sign;

/// A fresh token of 32 random bytes, as text that fits a header.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn generate_token() -> Result<Secret, String> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| "reading random bytes from the operating system".to_owned())?;
    Ok(Secret::new(BASE64URL_NOPAD.encode(&bytes)))
}

/// What is stored in a token's place. Under another access code it is another: a new code signs
/// everybody out.
pub fn hash_token(token: &str, access_code: &Secret) -> String {
    sign(token.as_bytes(), access_code)
}

/// Whether two texts are the same, in a time that depends on neither.
pub fn constant_time_eq(given: &str, expected: &Secret) -> bool {
    // MACs under a key nobody knows have one length and tell nothing about what was compared.
    let Ok(key) = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()) else {
        return false;
    };
    let tag = hmac::sign(&key, given.as_bytes());
    hmac::verify(&key, expected.expose().as_bytes(), tag.as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_their_hash_is_stable_under_one_code() {
        let (one, two) = (generate_token().unwrap(), generate_token().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.expose().len(), 43);
        let text = "The quick brown fox jumps over the lazy dog";
        assert_eq!(
            hash_token(text, &Secret::new("key")),
            "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"
        );
        assert_ne!(
            hash_token(text, &Secret::new("key")),
            hash_token(text, &Secret::new("other"))
        );
    }

    #[test]
    fn only_the_whole_code_matches() {
        let code = Secret::new("open sesame");
        assert!(constant_time_eq("open sesame", &code));
        for wrong in ["", "open", "open sesame ", "Open sesame"] {
            assert!(!constant_time_eq(wrong, &code));
        }
    }
}

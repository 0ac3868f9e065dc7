//! Signing in to the panel: the access code, and the tokens given out for it.

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::domain::secret::Secret;

use super::sha256_hex;

/// A fresh token of 32 random bytes, as text that fits a header.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn fresh() -> Result<Secret, String> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| "reading random bytes from the operating system".to_owned())?;
    Ok(Secret::new(BASE64URL_NOPAD.encode(&bytes)))
}

/// What is stored in a token's place.
pub fn hash(token: &str) -> String {
    sha256_hex(token)
}

/// Whether two texts are the same, in a time that depends on neither.
pub fn access_code_matches(given: &str, expected: &Secret) -> bool {
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
    fn tokens_differ_and_their_hash_is_stable() {
        let (one, two) = (fresh().unwrap(), fresh().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.expose().len(), 43);
        assert_eq!(hash("abc").len(), 64);
        assert_eq!(
            hash("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn only_the_whole_code_matches() {
        let code = Secret::new("open sesame");
        assert!(access_code_matches("open sesame", &code));
        for wrong in ["", "open", "open sesame ", "Open sesame"] {
            assert!(!access_code_matches(wrong, &code));
        }
    }
}

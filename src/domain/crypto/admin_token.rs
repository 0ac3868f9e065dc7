//! Access code of the panel, and the tokens issued for it.

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::secret::Secret;

use super::signature::sign;

/// Generates a token of 32 random bytes, in URL-safe base64.
///
/// # Errors
/// The operating system provides no random bytes.
pub fn generate_token() -> Result<Secret, String> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| "cannot read random bytes from the operating system".to_owned())?;
    Ok(Secret::new(BASE64URL_NOPAD.encode(&bytes)))
}

/// Returns the stored hash of a token. It depends on the access code, so that a new access code
/// invalidates all tokens.
pub fn hash_token(token: &str, access_code: &Secret) -> String {
    sign(token.as_bytes(), access_code)
}

/// Returns whether two texts are equal. The time taken depends on neither.
pub fn constant_time_eq(input: &str, expected: &Secret) -> bool {
    // MACs under a random key have equal length and reveal nothing about the texts.
    let Ok(key) = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()) else {
        return false;
    };
    let tag = hmac::sign(&key, input.as_bytes());
    hmac::verify(&key, expected.expose().as_bytes(), tag.as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_unique_and_hashes_depend_on_the_access_code() {
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
    fn matches_only_the_exact_code() {
        let code = Secret::new("open sesame");
        assert!(constant_time_eq("open sesame", &code));
        for wrong in ["", "open", "open sesame ", "Open sesame"] {
            assert!(!constant_time_eq(wrong, &code));
        }
    }
}

//! Signatures of webhooks, and bearer tokens.

use data_encoding::HEXLOWER_PERMISSIVE;
use ring::hmac;

use crate::secret::Secret;

use super::admin_token::constant_time_eq;

/// Returns whether `signature` is the hexadecimal HMAC-SHA256 of the raw body, with or without the
/// prefix `sha256=`. Takes constant time.
pub fn is_valid_signature(body: &[u8], signature: &str, secret: &Secret) -> bool {
    let hex = digits(signature);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    HEXLOWER_PERMISSIVE
        .decode(hex.as_bytes())
        .is_ok_and(|tag| hmac::verify(&key, body, &tag).is_ok())
}

/// Returns whether a header has the form of a signature.
pub fn is_well_formed_signature(signature: &str) -> bool {
    let hex = digits(signature);
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes the prefix of a signature.
fn digits(signature: &str) -> &str {
    let signature = signature.trim();
    signature.strip_prefix("sha256=").unwrap_or(signature)
}

/// Returns the signature of a body, without prefix.
pub fn sign(body: &[u8], secret: &Secret) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    HEXLOWER_PERMISSIVE.encode(hmac::sign(&key, body).as_ref())
}

/// Returns whether an `Authorization` header contains this secret as bearer token. Takes constant
/// time in the secret.
pub fn bearer_token_matches(header: &str, secret: &Secret) -> bool {
    bearer_token(header).is_some_and(|token| constant_time_eq(token, secret))
}

/// Returns the bearer token of an `Authorization` header.
pub fn bearer_token(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_the_signature_of_the_same_bytes() {
        // Example from the documentation of GitHub.
        let secret = Secret::new("It's a Secret to Everybody");
        let hex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let body = b"Hello, World!";
        assert_eq!(sign(body, &secret), hex);
        assert!(is_valid_signature(body, &format!("sha256={hex}"), &secret));
        assert!(is_valid_signature(body, &hex.to_uppercase(), &secret));
        for wrong in ["", "sha256=", "sha1=757107", &hex[..62], "zz"] {
            assert!(!is_valid_signature(body, wrong, &secret), "{wrong}");
            assert!(!is_well_formed_signature(wrong), "{wrong}");
        }
        let foreign = format!(" sha256={} ", "0".repeat(64));
        assert!(is_well_formed_signature(&foreign) && !is_valid_signature(body, &foreign, &secret));
        assert!(is_well_formed_signature(hex) && !is_well_formed_signature(&"g".repeat(64)));
        assert!(!is_valid_signature(b"Hello, World", hex, &secret));
        assert!(!is_valid_signature(body, hex, &Secret::new("other")));
    }

    #[test]
    fn bearer_scheme_ignores_case() {
        let secret = Secret::new("s3cret");
        assert!(bearer_token_matches("Bearer s3cret", &secret));
        assert!(bearer_token_matches("bearer  s3cret ", &secret));
        for wrong in [
            "s3cret",
            "Basic s3cret",
            "Bearer",
            "Bearer ",
            "Bearer s3crets",
        ] {
            assert!(!bearer_token_matches(wrong, &secret), "{wrong}");
        }
    }
}

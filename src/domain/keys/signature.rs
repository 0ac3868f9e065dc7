//! Checking who sent a webhook.

use data_encoding::HEXLOWER_PERMISSIVE;
use ring::hmac;

use crate::secret::Secret;

use super::admin_token::access_code_matches;

/// Whether `signature` is the hexadecimal HMAC-SHA256 of the raw body under the secret. A leading
/// `sha256=` may stand before it. Constant time.
pub fn is_signed(body: &[u8], signature: &str, secret: &Secret) -> bool {
    let hex = digits(signature);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    HEXLOWER_PERMISSIVE
        .decode(hex.as_bytes())
        .is_ok_and(|tag| hmac::verify(&key, body, &tag).is_ok())
}

/// Whether a header could be a signature, whatever the body is.
pub fn is_well_formed(signature: &str) -> bool {
    let hex = digits(signature);
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn digits(signature: &str) -> &str {
    let signature = signature.trim();
    signature.strip_prefix("sha256=").unwrap_or(signature)
}

/// The signature a sender would put on a body, without prefix.
pub fn sign(body: &[u8], secret: &Secret) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    HEXLOWER_PERMISSIVE.encode(hmac::sign(&key, body).as_ref())
}

/// Whether an Authorization header is `Bearer` with this secret. Constant time in the secret.
pub fn bearer_equals(header: &str, secret: &Secret) -> bool {
    bearer(header).is_some_and(|token| access_code_matches(token, secret))
}

/// The token of an Authorization header of the scheme Bearer.
pub fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_senders_signature_over_the_same_bytes_counts() {
        // The example of the host's own documentation.
        let secret = Secret::new("It's a Secret to Everybody");
        let hex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let body = b"Hello, World!";
        assert_eq!(sign(body, &secret), hex);
        assert!(is_signed(body, &format!("sha256={hex}"), &secret));
        assert!(is_signed(body, &hex.to_uppercase(), &secret));
        for wrong in ["", "sha256=", "sha1=757107", &hex[..62], "zz"] {
            assert!(!is_signed(body, wrong, &secret), "{wrong}");
            assert!(!is_well_formed(wrong), "{wrong}");
        }
        let foreign = format!(" sha256={} ", "0".repeat(64));
        assert!(is_well_formed(&foreign) && !is_signed(body, &foreign, &secret));
        assert!(is_well_formed(hex) && !is_well_formed(&"g".repeat(64)));
        assert!(!is_signed(b"Hello, World", hex, &secret));
        assert!(!is_signed(body, hex, &Secret::new("other")));
    }

    #[test]
    fn a_bearer_is_read_whatever_its_case() {
        let secret = Secret::new("s3cret");
        assert!(bearer_equals("Bearer s3cret", &secret));
        assert!(bearer_equals("bearer  s3cret ", &secret));
        for wrong in [
            "s3cret",
            "Basic s3cret",
            "Bearer",
            "Bearer ",
            "Bearer s3crets",
        ] {
            assert!(!bearer_equals(wrong, &secret), "{wrong}");
        }
    }
}

//! JSON Web Tokens of the GitHub App.

use data_encoding::BASE64;
use ring::signature::RsaKeyPair;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

use crate::secret::Secret;
use crate::time::Timestamp;

use super::jwt;

/// Assumed maximum by which the local clock runs ahead of the host's.
const BACKDATE: Duration = Duration::from_secs(60);

/// Lifetime of a token. The host accepts at most ten minutes.
const LIFETIME: Duration = Duration::from_secs(9 * 60);

/// Private key of the GitHub App.
#[derive(Clone)]
pub struct AppKey {
    key: Arc<RsaKeyPair>,
}

impl AppKey {
    /// Parses a PEM private key in PKCS#1 (as GitHub issues it) or PKCS#8. Line breaks may be
    /// written as `\n`, as in environment files.
    ///
    /// # Errors
    /// The reason why the key is invalid, without any of its text.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let pem = pem.replace("\\r", "").replace("\\n", "\n");
        let body = |label: &str| block(&pem, label);
        let key = if let Some(text) = body("RSA PRIVATE KEY") {
            RsaKeyPair::from_der(&decode(&text)?)
        } else if let Some(text) = body("PRIVATE KEY") {
            RsaKeyPair::from_pkcs8(&decode(&text)?)
        } else if pem.contains("ENCRYPTED PRIVATE KEY") {
            return Err("the private key is encrypted; remove its passphrase".into());
        } else {
            return Err("no PEM block of an RSA private key was found".into());
        };
        match key {
            Ok(key) => Ok(Self { key: Arc::new(key) }),
            Err(rejected) => Err(format!("the private key is not usable: {rejected}")),
        }
    }

    /// Returns a token for the App with this id, valid for nine minutes.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn token(&self, app_id: &str, now: Timestamp) -> Result<Secret, String> {
        let claims = Claims {
            iat: (now - BACKDATE).as_secs(),
            exp: (now + LIFETIME).as_secs(),
            iss: app_id,
        };
        jwt::sign_rs256(&self.key, &claims)
            .map(Secret::new)
            .ok_or_else(|| "cannot sign with the private key of the GitHub App".to_owned())
    }
}

impl std::fmt::Debug for AppKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<private key>")
    }
}

#[derive(Serialize)]
struct Claims<'a> {
    iat: u64,
    exp: u64,
    iss: &'a str,
}

/// Returns the base64 text of a PEM block.
fn block(pem: &str, label: &str) -> Option<String> {
    let (_, rest) = pem.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    Some(body.split_whitespace().collect())
}

fn decode(text: &str) -> Result<Vec<u8>, String> {
    BASE64
        .decode(text.as_bytes())
        .map_err(|_| "the private key is not valid base64".to_owned())
}

/// Key for tests only.
#[cfg(test)]
mod sample {
    use super::*;

    /// Stored without PEM markers, so that secret scanners do not report it.
    const KEY: &str = include_str!("testdata/rsa-test-key.pkcs8.base64");

    /// Length of the PKCS#8 header before the PKCS#1 form of a 2048-bit RSA key, in bytes.
    const PKCS8_PREFIX: usize = 26;

    fn pem(label: &str, base64: &str) -> String {
        format!(
            "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
            base64.trim()
        )
    }

    /// Returns the key as PEM in PKCS#8.
    pub(super) fn pkcs8() -> String {
        pem("PRIVATE KEY", KEY)
    }

    /// Returns the key as PEM in PKCS#1.
    pub(super) fn pkcs1() -> String {
        let der = decode(&KEY.split_whitespace().collect::<String>()).unwrap();
        pem("RSA PRIVATE KEY", &BASE64.encode(&der[PKCS8_PREFIX..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64URL_NOPAD;
    use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::sample::{pkcs1, pkcs8};

    #[test]
    fn signs_with_keys_in_both_formats() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        for pem in [
            pkcs1(),
            pkcs8(),
            pkcs8().trim().replace('\n', "\\n"),
            pkcs8().replace('\n', "\r\n"),
        ] {
            let key = AppKey::from_pem(&pem).unwrap();
            let token = key.token("42", now).unwrap();
            let (signed, signature) = token.expose().rsplit_once('.').unwrap();
            let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
            let public = UnparsedPublicKey::new(
                &RSA_PKCS1_2048_8192_SHA256,
                key.key.public_key().as_ref().to_vec(),
            );
            public.verify(signed.as_bytes(), &signature).unwrap();
            let parts = jwt::UnverifiedJwt::parse(token.expose()).unwrap();
            let claims: serde_json::Value = parts.claims().unwrap();
            assert_eq!(claims["iss"], "42");
            assert_eq!(claims["iat"], 1_800_000_000 - 60);
            assert!(claims["exp"].as_u64().unwrap() <= 1_800_000_000 + 600);
        }
    }

    #[test]
    fn rejects_an_invalid_key_without_quoting_it() {
        for bad in [
            "",
            "MIIE-secret",
            "-----BEGIN RSA PRIVATE KEY-----\nsecret!\n-----END RSA PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nsecret\n-----END ENCRYPTED PRIVATE KEY-----",
        ] {
            let error = AppKey::from_pem(bad).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!(
            format!("{:?}", AppKey::from_pem(&pkcs8()).unwrap()),
            "<private key>"
        );
    }
}

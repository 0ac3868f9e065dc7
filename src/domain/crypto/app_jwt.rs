//! Proving to the repository host that we are its App.

use data_encoding::BASE64;
use ring::signature::RsaKeyPair;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

use crate::secret::Secret;
use crate::time::Timestamp;

use super::jwt;

/// How far may our clock run ahead of the host's?
const BACKDATE: Duration = Duration::from_secs(60);

/// How long is a proof good for? The host allows ten minutes from now at most.
const LIFETIME: Duration = Duration::from_secs(9 * 60);

/// The App's private key.
#[derive(Clone)]
pub struct AppKey {
    key: Arc<RsaKeyPair>,
}

impl AppKey {
    /// Reads a PEM private key, PKCS#1 (as the host gives it out) or PKCS#8. Line breaks may be
    /// written as `\n`, as environment files often have them.
    ///
    /// # Errors
    /// What is wrong with it, without any of its text.
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

    /// A proof for the App with this id, good for some minutes.
    ///
    /// # Errors
    /// When the key cannot sign.
    pub fn token(&self, app_id: &str, now: Timestamp) -> Result<Secret, String> {
        let claims = Claims {
            iat: (now - BACKDATE).as_secs(),
            exp: (now + LIFETIME).as_secs(),
            iss: app_id,
        };
        jwt::sign_rs256(&self.key, &claims)
            .map(Secret::new)
            .ok_or_else(|| "signing with the App's private key".to_owned())
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

/// The base64 text between the markers of a PEM block.
fn block(pem: &str, label: &str) -> Option<String> {
    let (_, rest) = pem.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    Some(body.split_whitespace().collect())
}

fn decode(text: &str) -> Result<Vec<u8>, String> {
    BASE64
        .decode(text.as_bytes())
        .map_err(|_| "the private key is no valid base64".to_owned())
}

/// A throw-away key for tests.
#[cfg(test)]
mod sample {
    use super::*;

    /// It stands in the file without its PEM markers, so that no scanner takes it for a leak.
    const KEY: &str = include_str!("testdata/rsa-test-key.pkcs8.base64");

    /// Bytes of the PKCS#8 wrapping before a 2048-bit RSA key's own PKCS#1 form begins.
    const PKCS8_PREFIX: usize = 26;

    fn pem(label: &str, base64: &str) -> String {
        format!(
            "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
            base64.trim()
        )
    }

    pub fn pkcs8() -> String {
        pem("PRIVATE KEY", KEY)
    }

    pub fn pkcs1() -> String {
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
    fn both_forms_of_a_key_sign_what_the_host_can_verify() {
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
    fn a_bad_key_is_refused_without_showing_it() {
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

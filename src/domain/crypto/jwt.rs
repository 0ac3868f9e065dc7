//! JSON Web Tokens in compact form, with HS256 and RS256 only.
//!
//! Parsing, verifying the signature and reading the claims are separate steps, so that callers can
//! distinguish the errors. The caller chooses the algorithm. The algorithm in the token's header is
//! only compared with it.
//!
//! Rightly ours: `jsonwebtoken` does not support ring. It would add a second cryptography stack, 40
//! packages.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Maximum length of a token, in bytes. GitHub's installation tokens have about 520 characters.
const MAX_LENGTH: usize = 8 << 10;

/// Parsed token whose signature is not verified yet.
#[derive(Debug)]
pub(crate) struct UnverifiedJwt<'a> {
    header: String,
    claims: String,
    signed: &'a str,
    signature: &'a str,
}

impl<'a> UnverifiedJwt<'a> {
    /// Parses a token. `None` if it does not have two dots, or if the header or the claims are not
    /// JSON objects.
    pub(crate) fn parse(token: &'a str) -> Option<Self> {
        if token.len() > MAX_LENGTH {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let object = |part: &str| {
            let bytes = BASE64URL_NOPAD.decode(part.as_bytes()).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            serde_json::from_slice::<Object>(text.as_bytes()).ok()?;
            Some(text)
        };
        Some(Self {
            header: object(header)?,
            claims: object(claims)?,
            signed,
            signature,
        })
    }

    /// Returns whether the header names HS256 and the signature matches the key. Takes constant
    /// time.
    pub(crate) fn is_signed_hs256(&self, key: &hmac::Key) -> bool {
        let signature = BASE64URL_NOPAD.decode(self.signature.as_bytes());
        let header = serde_json::from_slice::<Header>(self.header.as_bytes());
        header.is_ok_and(|header| header.alg == "HS256")
            && signature.is_ok_and(|signature| {
                hmac::verify(key, self.signed.as_bytes(), &signature).is_ok()
            })
    }

    /// Deserializes the claims. `None` if a field is missing or has another type. Callers must
    /// verify the signature before they trust the claims.
    pub(crate) fn claims<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.claims.as_bytes()).ok()
    }
}

/// JSON object whose content is discarded, to avoid allocations for each request.
struct Object;

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for Object {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self)
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

/// Returns a token signed with a shared key. Equal claims give equal tokens.
pub(crate) fn sign_hs256(key: &hmac::Key, claims: &impl Serialize) -> String {
    let signed = signing_input("HS256", claims);
    let signature = hmac::sign(key, signed.as_bytes());
    format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
}

/// Returns a token signed with a private key. `None` if the key cannot sign.
pub(crate) fn sign_rs256(key: &RsaKeyPair, claims: &impl Serialize) -> Option<String> {
    let signed = signing_input("RS256", claims);
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        signed.as_bytes(),
        &mut signature,
    )
    .ok()?;
    Some(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
}

fn signing_input(algorithm: &str, claims: &impl Serialize) -> String {
    let header = format!(r#"{{"alg":"{algorithm}","typ":"JWT"}}"#);
    // Claims are structs of strings and numbers, whose serialization cannot fail.
    let claims = serde_json::to_vec(claims).unwrap_or_default();
    format!(
        "{}.{}",
        BASE64URL_NOPAD.encode(header.as_bytes()),
        BASE64URL_NOPAD.encode(&claims)
    )
}

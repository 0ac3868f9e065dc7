//! JSON Web Tokens in their compact form, HS256 and RS256, and nothing else.
//!
//! Taking apart, checking the signature and reading the claims are separate steps, so that a
//! caller can tell one failure from another. The algorithm is the caller's choice: what a token's
//! header asks for is only compared with it.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// A longer token is nobody's. GitHub's installation tokens are about 520 characters.
const MAX_LENGTH: usize = 8 << 10;

/// A token taken apart, its signature not yet checked.
#[derive(Debug)]
pub struct UnverifiedJwt<'a> {
    header: String,
    claims: String,
    signed: &'a str,
    signature: &'a str,
}

impl<'a> UnverifiedJwt<'a> {
    /// Takes a token apart. None when it has not two dots, or header or claims are no JSON objects.
    pub fn parse(token: &'a str) -> Option<Self> {
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
            serde_json::from_str::<Object>(&text).ok()?;
            Some(text)
        };
        Some(Self {
            header: object(header)?,
            claims: object(claims)?,
            signed,
            signature,
        })
    }

    /// Whether the token says it is HS256 and its signature is this key's. Constant time.
    pub fn is_signed_hs256(&self, key: &hmac::Key) -> bool {
        let signature = BASE64URL_NOPAD.decode(self.signature.as_bytes());
        let header = serde_json::from_str::<Header>(&self.header);
        header.is_ok_and(|header| header.alg == "HS256")
            && signature.is_ok_and(|signature| {
                hmac::verify(key, self.signed.as_bytes(), &signature).is_ok()
            })
    }

    /// Reads the claims into a type; None when a field is missing or of another type. They must not be
    /// believed before the signature is checked.
    pub fn claims<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&self.claims).ok()
    }
}

/// A JSON object of which nothing is kept: a token is shown with every report.
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

/// A token signed with a shared key. The same claims always make the same token.
pub fn sign_hs256(key: &hmac::Key, claims: &impl Serialize) -> String {
    let signed = signing_input("HS256", claims);
    let signature = hmac::sign(key, signed.as_bytes());
    format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
}

/// A token signed with a private key; None when the key cannot sign.
pub fn sign_rs256(key: &RsaKeyPair, claims: &impl Serialize) -> Option<String> {
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
    // Claims are plain structs of texts and numbers, which always serialize.
    let claims = serde_json::to_vec(claims).unwrap_or_default();
    format!(
        "{}.{}",
        BASE64URL_NOPAD.encode(header.as_bytes()),
        BASE64URL_NOPAD.encode(&claims)
    )
}

//! Encryption of stored secrets with AES-256-GCM.
//!
//! Each value has a fresh nonce. The name of the secret is authenticated with it, so that a value
//! that was moved to another name cannot be decrypted.

use data_encoding::{BASE64, BASE64_NOPAD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use crate::secret::Secret;

/// Length of a key, in bytes.
const KEY_LEN: usize = 32;

/// Salt of derived keys. Changing it invalidates the tokens and reports of open runs.
const DERIVATION_SALT: &[u8] = b"agent-implement derived keys";

/// Error of encryption or decryption. Contains no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key is not 32 bytes in base64.
    #[error("it must be 32 bytes in base64, such as the output of `openssl rand -base64 32`")]
    InvalidKey,
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random bytes")]
    RandomnessUnavailable,
    /// The value was encrypted with another key or name, or was changed.
    #[error("it was encrypted with another key, or was changed")]
    DecryptionFailed,
}

/// Encryption key of stored secrets. Its `Debug` output does not contain the key.
#[derive(Clone)]
pub struct SealingKey {
    aead: LessSafeKey,
    /// Source of keys for other purposes.
    extracted: hkdf::Prk,
}

impl SealingKey {
    /// Parses a key: 32 bytes in base64, with or without padding.
    ///
    /// # Errors
    /// [`SealError::InvalidKey`] for any other text.
    pub fn parse(text: &Secret) -> Result<Self, SealError> {
        let text = text.expose().trim().trim_end_matches('=');
        let bytes = BASE64_NOPAD.decode(text.as_bytes());
        let bytes = bytes.map_err(|_| SealError::InvalidKey)?;
        let bytes = Some(bytes).filter(|bytes| bytes.len() == KEY_LEN);
        let bytes = bytes.ok_or(SealError::InvalidKey)?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| SealError::InvalidKey)?;
        Ok(Self {
            aead: LessSafeKey::new(key),
            extracted: hkdf::Salt::new(hkdf::HKDF_SHA256, DERIVATION_SALT).extract(&bytes),
        })
    }

    /// Derives a key for another purpose (HKDF-SHA256) and returns its text. It discloses neither this
    /// key nor a key of another purpose.
    ///
    /// # Errors
    /// [`SealError::InvalidKey`] if the key cannot be derived, which its fixed length rules out.
    pub fn derive(&self, purpose: &str) -> Result<Secret, SealError> {
        let mut derived = [0; KEY_LEN];
        let purpose = [purpose.as_bytes()];
        let expanded = self.extracted.expand(&purpose, hkdf::HKDF_SHA256);
        expanded
            .and_then(|key| key.fill(&mut derived))
            .map_err(|_| SealError::InvalidKey)?;
        Ok(Secret::new(BASE64.encode(&derived)))
    }

    /// Generates a key and returns its text.
    ///
    /// # Errors
    /// [`SealError::RandomnessUnavailable`] if the operating system provides no random bytes.
    pub fn generate() -> Result<Secret, SealError> {
        Ok(Secret::new(BASE64.encode(&random::<KEY_LEN>()?)))
    }

    /// Encrypts a value under a name. Returns nonce, ciphertext and tag in base64.
    ///
    /// # Errors
    /// [`SealError::RandomnessUnavailable`] if no nonce can be generated.
    pub fn seal(&self, name: &str, value: &Secret) -> Result<String, SealError> {
        let nonce = random::<NONCE_LEN>()?;
        let mut sealed = value.expose().as_bytes().to_vec();
        self.aead
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut sealed,
            )
            .map_err(|_| SealError::RandomnessUnavailable)?;
        Ok(BASE64.encode(&[&nonce[..], &sealed].concat()))
    }

    /// Decrypts a value that was encrypted under this name.
    ///
    /// # Errors
    /// [`SealError::DecryptionFailed`] for another key or name, or a changed value.
    pub fn open(&self, name: &str, sealed: &str) -> Result<Secret, SealError> {
        let failed = SealError::DecryptionFailed;
        let bytes = BASE64.decode(sealed.as_bytes()).map_err(|_| failed)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(failed)?;
        let mut sealed = sealed.to_vec();
        let opened = self.aead.open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from(name.as_bytes()),
            &mut sealed,
        );
        let text = std::str::from_utf8(opened.map_err(|_| failed)?);
        Ok(Secret::new(text.map_err(|_| failed)?))
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey")
    }
}

fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled
        .map(|()| bytes)
        .map_err(|_| SealError::RandomnessUnavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SealingKey {
        SealingKey::parse(&SealingKey::generate().unwrap()).unwrap()
    }

    #[test]
    fn opens_only_with_the_same_key_and_name() {
        let (key, value) = (key(), Secret::new("pässword"));
        let sealed = key.seal("ENG_TOKEN", &value).unwrap();
        assert_eq!(key.open("ENG_TOKEN", &sealed), Ok(value.clone()));
        assert_ne!(sealed, key.seal("ENG_TOKEN", &value).unwrap());
        let failed = Err(SealError::DecryptionFailed);
        assert_eq!(key.open("OPS_TOKEN", &sealed), failed);
        assert_eq!(super::tests::key().open("ENG_TOKEN", &sealed), failed);
    }

    #[test]
    fn rejects_any_changed_bit() {
        let key = key();
        let sealed = key.seal("N", &Secret::new("value")).unwrap();
        let bytes = BASE64.decode(sealed.as_bytes()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let opened = key.open("N", &BASE64.encode(&changed));
            assert_eq!(opened, Err(SealError::DecryptionFailed), "byte {at}");
        }
        for invalid in ["", "AAAA", "not base64!"] {
            assert_eq!(key.open("N", invalid), Err(SealError::DecryptionFailed));
        }
    }

    #[test]
    fn derives_one_key_per_purpose() {
        let key = SealingKey::parse(&Secret::new(BASE64.encode(&[7; 32]))).unwrap();
        let (one, other) = (key.derive("one").unwrap(), key.derive("other").unwrap());
        assert_eq!(key.derive("one"), Ok(one.clone()));
        assert_ne!(one, other);
        assert_ne!(super::tests::key().derive("one"), Ok(one.clone()));
        assert_eq!(BASE64.decode(one.expose().as_bytes()).unwrap().len(), 32);
        // Fixed: after an upgrade, open runs still have valid tokens.
        assert_eq!(one.expose(), "7Tax14cp/btkfHUAfBTL5cl59ACaiCPJJWPnj2jydyI=");
    }

    #[test]
    fn a_key_is_32_bytes_in_base64() {
        let good = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        for text in [good.to_owned(), format!(" {good}=\n")] {
            assert!(SealingKey::parse(&Secret::new(text)).is_ok());
        }
        for text in ["", "short", &good[1..], "ä", &format!("{good}AAAA")] {
            let result = SealingKey::parse(&Secret::new(text)).map(drop);
            assert_eq!(result, Err(SealError::InvalidKey), "{text:?}");
        }
    }
}

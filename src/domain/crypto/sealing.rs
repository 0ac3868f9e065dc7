//! Sealing what is stored and must not be read: AES-256-GCM.
//!
//! Every value has a fresh nonce; the name it is stored under is authenticated with it, so that a
//! row that was moved to another name does not open.

use data_encoding::{BASE64, BASE64_NOPAD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::secret::Secret;

/// Bytes of a key.
const KEY_LEN: usize = 32;

/// Why something could not be sealed or opened. None of these quotes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("it must be 32 bytes in base64, as `openssl rand -base64 32` makes them")]
    InvalidKey,
    #[error("the operating system gave no random bytes")]
    RandomnessUnavailable,
    #[error("it was sealed with another key, or altered since")]
    DecryptionFailed,
}

/// The key of the vault. It cannot be printed.
#[derive(Clone)]
pub struct SealingKey(LessSafeKey);

impl SealingKey {
    /// Reads a key: 32 bytes in base64, with or without padding.
    ///
    /// # Errors
    /// [`SealError::NoKey`] when the text is anything else.
    pub fn parse(text: &Secret) -> Result<Self, SealError> {
        let text = text.expose().trim().trim_end_matches('=');
        let bytes = BASE64_NOPAD.decode(text.as_bytes());
        let bytes = bytes.map_err(|_| SealError::InvalidKey)?;
        let key = Some(bytes).filter(|bytes| bytes.len() == KEY_LEN);
        let key = UnboundKey::new(&AES_256_GCM, &key.ok_or(SealError::InvalidKey)?);
        Ok(Self(LessSafeKey::new(
            key.map_err(|_| SealError::InvalidKey)?,
        )))
    }

    /// Makes the text of a new key.
    ///
    /// # Errors
    /// [`SealError::NoRandomness`] when the operating system gives no random bytes.
    pub fn generate() -> Result<Secret, SealError> {
        Ok(Secret::new(BASE64.encode(&random::<KEY_LEN>()?)))
    }

    /// Seals a value under a name: nonce, ciphertext and tag in base64.
    ///
    /// # Errors
    /// [`SealError::NoRandomness`] when there is no fresh nonce.
    pub fn seal(&self, name: &str, value: &Secret) -> Result<String, SealError> {
        let nonce = random::<NONCE_LEN>()?;
        let mut sealed = value.expose().as_bytes().to_vec();
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut sealed,
            )
            .map_err(|_| SealError::RandomnessUnavailable)?;
        Ok(BASE64.encode(&[&nonce[..], &sealed].concat()))
    }

    /// Opens what was sealed under this name.
    ///
    /// # Errors
    /// [`SealError::DoesNotOpen`] under another key or name, and when a bit of it was changed.
    pub fn open(&self, name: &str, sealed: &str) -> Result<Secret, SealError> {
        let closed = SealError::DecryptionFailed;
        let bytes = BASE64.decode(sealed.as_bytes()).map_err(|_| closed)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(closed)?;
        let mut sealed = sealed.to_vec();
        let opened = self.0.open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from(name.as_bytes()),
            &mut sealed,
        );
        let text = std::str::from_utf8(opened.map_err(|_| closed)?);
        Ok(Secret::new(text.map_err(|_| closed)?))
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
    fn what_is_sealed_opens_under_its_key_and_name_only() {
        let (key, value) = (key(), Secret::new("pässword"));
        let sealed = key.seal("ENG_TOKEN", &value).unwrap();
        assert_eq!(key.open("ENG_TOKEN", &sealed), Ok(value.clone()));
        assert_ne!(sealed, key.seal("ENG_TOKEN", &value).unwrap());
        let closed = Err(SealError::DecryptionFailed);
        assert_eq!(key.open("OPS_TOKEN", &sealed), closed);
        assert_eq!(super::tests::key().open("ENG_TOKEN", &sealed), closed);
    }

    #[test]
    fn a_changed_bit_is_noticed_wherever_it_is() {
        let key = key();
        let sealed = key.seal("N", &Secret::new("value")).unwrap();
        let bytes = BASE64.decode(sealed.as_bytes()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let opened = key.open("N", &BASE64.encode(&changed));
            assert_eq!(opened, Err(SealError::DecryptionFailed), "byte {at}");
        }
        for broken in ["", "AAAA", "not base64!"] {
            assert_eq!(key.open("N", broken), Err(SealError::DecryptionFailed));
        }
    }

    #[test]
    fn a_key_is_32_bytes_in_base64() {
        let good = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        for text in [good.to_owned(), format!(" {good}=\n")] {
            assert!(SealingKey::parse(&Secret::new(text)).is_ok());
        }
        for text in ["", "short", &good[1..], "ä", &format!("{good}AAAA")] {
            let refused = SealingKey::parse(&Secret::new(text)).map(drop);
            assert_eq!(refused, Err(SealError::InvalidKey), "{text:?}");
        }
    }
}

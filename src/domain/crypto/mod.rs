//! Keys, signatures and tokens.
//!
//! Pure functions, apart from reading random bytes. Comparisons of untrusted values with secrets
//! take constant time. Nothing is stored or sent here.

pub(crate) mod jwt;

pub mod admin_token;
pub mod app_jwt;
pub mod run_token;
pub mod sealing;
pub mod signature;

use ring::digest::{Context, SHA256, digest};

/// Returns a UUID derived from a text, in the form of version 4.
///
/// Vendors that accept ids from the client reject a second creation with the same id, so that a
/// creation can be repeated safely.
pub fn deterministic_uuid(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// Returns the SHA-256 of a text, in lower-case hexadecimal.
pub fn sha256_hex(text: &str) -> String {
    data_encoding::HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref())
}

/// SHA-256 of contents that are read in parts.
pub struct Sha256Hasher(Context);

impl Default for Sha256Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Sha256Hasher {
    /// Adds a part.
    pub fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// Returns the hash in lower-case hexadecimal.
    pub fn finish_hex(self) -> String {
        data_encoding::HEXLOWER.encode(self.0.finish().as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_parts_like_the_whole() {
        let mut hasher = Sha256Hasher::default();
        for part in ["ab", "", "c"] {
            hasher.update(part.as_bytes());
        }
        assert_eq!(hasher.finish_hex(), sha256_hex("abc"));
    }

    #[test]
    fn deterministic_uuids_are_stable() {
        let id = deterministic_uuid("01J/comment/1");
        assert_eq!(id, deterministic_uuid("01J/comment/1"));
        assert_ne!(id, deterministic_uuid("01J/comment/2"));
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]));
    }
}

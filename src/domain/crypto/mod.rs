//! Keys, signatures and tokens.
//!
//! Pure functions, apart from reading random bytes. Comparisons of untrusted values with secrets
//! take constant time. Nothing is stored or sent here.

pub(crate) mod jwt;

pub mod admin_token;
pub mod app_jwt;
pub mod aws_signature;
pub mod run_token;
pub mod sealing;
pub mod signature;

use ring::digest::{Context, SHA256, digest};

/// Returns a UUID derived from a text, in the form of version 4.
///
/// Vendors that accept ids from the client reject a second creation with the same id, so that a
/// creation can be repeated safely. The end of the id is derived from its beginning, so that
/// [`is_deterministic_uuid`] recognizes it among random ids.
pub fn deterministic_uuid(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let mut bytes = [0; 16];
    bytes[..10].copy_from_slice(&hash.as_ref()[..10]);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let end = uuid_end(&bytes[..10]);
    bytes[10..].copy_from_slice(&end);
    hyphenated(&bytes)
}

/// Returns the UUID that older versions derived from a text instead of [`deterministic_uuid`].
pub fn hashed_uuid(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    hyphenated(&bytes)
}

/// Returns whether [`deterministic_uuid`] returned an id.
pub fn is_deterministic_uuid(id: &str) -> bool {
    let digits = id.replace('-', "").to_lowercase();
    match data_encoding::HEXLOWER.decode(digits.as_bytes()) {
        Ok(bytes) if bytes.len() == 16 => bytes[10..] == uuid_end(&bytes[..10]),
        _ => false,
    }
}

/// Returns the end of a deterministic UUID with this beginning.
fn uuid_end(beginning: &[u8]) -> [u8; 6] {
    let hash = digest(&SHA256, &[b"agent-implement uuid\0", beginning].concat());
    let mut end = [0; 6];
    end.copy_from_slice(&hash.as_ref()[..6]);
    end
}

fn hyphenated(bytes: &[u8; 16]) -> String {
    let hex = data_encoding::HEXLOWER.encode(bytes);
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// Returns the SHA-256 of a text or bytes, in lower-case hexadecimal.
pub fn sha256_hex(content: &(impl AsRef<[u8]> + ?Sized)) -> String {
    data_encoding::HEXLOWER.encode(digest(&SHA256, content.as_ref()).as_ref())
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
        assert!(is_deterministic_uuid(&id) && is_deterministic_uuid(&id.to_uppercase()));
        let other_end = if id.ends_with('0') { "1" } else { "0" };
        for foreign in [&format!("{}{other_end}", &id[..35]), "", "c1", &id[..35]] {
            assert!(!is_deterministic_uuid(foreign), "{foreign}");
        }
    }
}

//! Detection of key material and public material by the first bytes of a binary file.

/// `pkcs7-data`, the outermost content type of a PKCS #12 store.
const OID_PKCS7_DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";

/// Prefix of `pkcs5PBES2` and older password-based encryption schemes, the outermost algorithm of an
/// encrypted key.
const OID_PKCS5: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05";

/// Key algorithms in PKCS #8: RSA, elliptic curves, Ed25519 and related curves.
const KEY_ALGORITHM_OIDS: [&[u8]; 3] = [
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01",
    b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01",
    b"\x06\x03\x2b\x65",
];

/// Returns the label of a key store or a private key, or `None`.
pub(super) fn key_material_label(content: &[u8]) -> Option<&'static str> {
    match content {
        [0xfe, 0xed, 0xfe, 0xed, ..] => return Some("Java key store"),
        [0xce, 0xce, 0xce, 0xce, ..] => return Some("Java key store"),
        [0x03, 0xd9, 0xa2, 0x9a, 0x65..=0x67, 0xfb, 0x4b, 0xb5, ..] => {
            return Some("KeePass database");
        }
        _ => {}
    }
    match sequence_content(content)? {
        [0x02, 0x01, 0x03, 0x30, rest @ ..] => {
            occurs_near_start(rest, OID_PKCS7_DATA).then_some("PKCS #12 store")
        }
        [0x02, 0x01, 0x00 | 0x01, 0x30, rest @ ..] => KEY_ALGORITHM_OIDS
            .iter()
            .any(|oid| occurs_near_start(rest, oid))
            .then_some("private key"),
        // Encrypted key: algorithm, then the encrypted bytes.
        [0x30, _, rest @ ..] => rest.starts_with(OID_PKCS5).then_some("private key"),
        // PKCS #1: version, then a modulus of at least 1,024 bits.
        [0x02, 0x01, 0x00, 0x02, 0x81 | 0x82, ..] => Some("private key"),
        // SEC 1: version 1, then an octet string of the size of a curve.
        [0x02, 0x01, 0x01, 0x04, 0x20 | 0x30 | 0x42, ..] => Some("private key"),
        _ => None,
    }
}

/// Returns whether bytes begin like a private key. Cheap check before [`key_material_label`].
pub(super) fn has_key_header(head: &[u8]) -> bool {
    matches!(
        sequence_content(head),
        Some(
            [0x02, 0x01, 0x00 | 0x01 | 0x03, 0x02 | 0x04 | 0x30, ..]
                | [0x30, _, 0x06, 0x09, 0x2a, ..]
        )
    )
}

/// Returns whether the content is a certificate, a public key, or an OpenPGP public key ring.
pub(super) fn is_public_material(content: &[u8]) -> bool {
    match content {
        [0x98 | 0x99 | 0xc6, ..] => true,
        _ => {
            matches!(
                sequence_content(content).and_then(sequence_content),
                Some([0xa0, 0x03, 0x02, 0x01, _, ..] | [0x02, 0x01, 0x00, 0x30, ..])
            ) || is_public_key(content)
        }
    }
}

/// Returns whether the content is a bare public key, which begins with its algorithm or with an RSA modulus.
fn is_public_key(content: &[u8]) -> bool {
    match sequence_content(content) {
        Some(inner @ [0x30, ..]) => sequence_content(inner).is_some_and(|algorithm| {
            KEY_ALGORITHM_OIDS
                .iter()
                .any(|oid| algorithm.starts_with(oid))
        }),
        Some([0x02, 0x81 | 0x82, ..]) => true,
        _ => false,
    }
}

/// Returns the content of an ASN.1 sequence.
fn sequence_content(content: &[u8]) -> Option<&[u8]> {
    match content {
        [0x30, 0x81, _, inner @ ..] | [0x30, 0x82, _, _, inner @ ..] => Some(inner),
        [0x30, 0x83, _, _, _, inner @ ..] => Some(inner),
        // 0x80 is the indefinite length.
        [0x30, 0x80, inner @ ..] | [0x30, 0x01..=0x7f, inner @ ..] => Some(inner),
        _ => None,
    }
}

/// Returns whether `part` occurs near the start, after up to 8 bytes of enclosing lengths.
fn occurs_near_start(bytes: &[u8], part: &[u8]) -> bool {
    bytes[..bytes.len().min(part.len() + 8)]
        .windows(part.len())
        .any(|window| window == part)
}

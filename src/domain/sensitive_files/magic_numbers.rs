//! Binary files by their first bytes.

/// `pkcs7-data`, the outermost content of a PKCS #12 store.
const OID_PKCS7_DATA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";

/// `pkcs5PBES2` and the older kinds of encryption with a password, the outermost of an encrypted key.
const OID_PKCS5: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05";

/// Algorithms of keys, as PKCS #8 names them: RSA, elliptic curves, Ed25519 and its kin.
const OIDS_OF_KEYS: [&[u8]; 3] = [
    b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01",
    b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01",
    b"\x06\x03\x2b\x65",
];

/// A store of keys or a key, whatever its name is.
pub(super) fn key_material_label(content: &[u8]) -> Option<&'static str> {
    match content {
        [0xfe, 0xed, 0xfe, 0xed, ..] => return Some("Java key store"),
        [0xce, 0xce, 0xce, 0xce, ..] => return Some("Java key store"),
        [0x03, 0xd9, 0xa2, 0x9a, 0x65..=0x67, 0xfb, 0x4b, 0xb5, ..] => {
            return Some("KeePass database");
        }
        _ => {}
    }
    let inside = inside_sequence(content)?;
    match inside {
        [0x02, 0x01, 0x03, 0x30, rest @ ..] => {
            begins_soon(rest, OID_PKCS7_DATA).then_some("PKCS #12 store")
        }
        [0x02, 0x01, 0x00 | 0x01, 0x30, rest @ ..] => OIDS_OF_KEYS
            .iter()
            .any(|oid| begins_soon(rest, oid))
            .then_some("private key"),
        // An encrypted key: how, then the bytes.
        [0x30, _, rest @ ..] => rest.starts_with(OID_PKCS5).then_some("private key"),
        // PKCS #1: version, then a modulus of at least 1,024 bits.
        [0x02, 0x01, 0x00, 0x02, 0x81 | 0x82, ..] => Some("private key"),
        // SEC 1: version 1, then an octet string of the size of a curve.
        [0x02, 0x01, 0x01, 0x04, 0x20 | 0x30 | 0x42, ..] => Some("private key"),
        _ => None,
    }
}

/// Whether bytes begin as a key's structure does: a cheap test before [`key_store`].
pub(super) fn has_key_header(head: &[u8]) -> bool {
    matches!(
        inside_sequence(head),
        Some(
            [0x02, 0x01, 0x00 | 0x01 | 0x03, 0x02 | 0x04 | 0x30, ..]
                | [0x30, _, 0x06, 0x09, 0x2a, ..]
        )
    )
}

/// A certificate, or a ring of public keys: nothing in it is secret.
pub(super) fn is_public_material(content: &[u8]) -> bool {
    match content {
        [0x98 | 0x99 | 0xc6, ..] => true,
        _ => {
            matches!(
                inside_sequence(content).and_then(inside_sequence),
                Some([0xa0, 0x03, 0x02, 0x01, _, ..] | [0x02, 0x01, 0x00, 0x30, ..])
            ) || is_public_key(content)
        }
    }
}

/// A public key by itself: its algorithm first, or the modulus of an RSA key.
fn is_public_key(content: &[u8]) -> bool {
    match inside_sequence(content) {
        Some(inside @ [0x30, ..]) => inside_sequence(inside)
            .is_some_and(|inside| OIDS_OF_KEYS.iter().any(|oid| inside.starts_with(oid))),
        Some([0x02, 0x81 | 0x82, ..]) => true,
        _ => false,
    }
}

/// What an ASN.1 sequence holds.
fn inside_sequence(content: &[u8]) -> Option<&[u8]> {
    match content {
        [0x30, 0x81, _, inside @ ..] | [0x30, 0x82, _, _, inside @ ..] => Some(inside),
        [0x30, 0x83, _, _, _, inside @ ..] => Some(inside),
        // Of a length that is not known beforehand.
        [0x30, 0x80, inside @ ..] | [0x30, 0x01..=0x7f, inside @ ..] => Some(inside),
        _ => None,
    }
}

/// Whether `part` stands among the first bytes, after the lengths of what it is in.
fn begins_soon(bytes: &[u8], part: &[u8]) -> bool {
    bytes[..bytes.len().min(part.len() + 8)]
        .windows(part.len())
        .any(|window| window == part)
}

//! Tests of encoded secrets: in base64, behind escapes, in UTF-16 and UTF-32, in archives, next to a zero
//! byte.

use std::io::Write;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use fastrand::Rng;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};

use super::corpus::generate;
use super::{
    AllowList, GuardReason, GuardVerdict, KeysAndCertificates, WORD, block_reason, build_token,
    check_file, private_key,
};

fn blocks(path: &str, content: &[u8]) -> bool {
    matches!(
        check_file(path, b"", content, &AllowList::default()),
        GuardVerdict::Block(_)
    )
}

fn token() -> String {
    generate(&mut Rng::with_seed(8), "ghp_{alnum:36}")
}

#[test]
fn finds_secrets_in_base64() {
    let (token, key) = (token(), private_key());
    let service_account = format!(
        "{{\"type\": \"service_account\", \"private_key\": \"{}\"}}",
        key.replace('\n', "\\n")
    );
    for secret in [token.as_str(), key.as_str(), service_account.as_str()] {
        let once = BASE64.encode(secret.as_bytes());
        let twice = BASE64.encode(once.as_bytes());
        let url = BASE64URL_NOPAD.encode(secret.as_bytes());
        for encoded in [&once, &twice, &url] {
            for text in [
                format!("data:\n  token: {encoded}\n"),
                format!("x = \"{encoded}\""),
                encoded.clone(),
            ] {
                assert!(blocks("secret.yaml", text.as_bytes()), "{text}");
            }
        }
    }
    let wide: Vec<u8> = token.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(blocks(
        "run.ps1",
        format!("powershell -enc {}", BASE64.encode(&wide)).as_bytes()
    ));
    // A DER key without PEM armor, and a public key.
    let mut der = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
    der.extend((0..32).map(|byte| byte * 7));
    assert!(blocks(
        "a.json",
        format!("{{\"key\": \"{}\"}}", BASE64.encode(&der)).as_bytes()
    ));
    let public =
        b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00abcdefghijklmnopqrstuvwxyz012345";
    assert!(!blocks("a.json", BASE64.encode(public).as_bytes()));
}

#[test]
fn finds_secrets_behind_escapes_and_invisible_characters() {
    let token = token();
    let (head, tail) = token.split_at(12);
    for text in [
        token.replace('_', "%5F"),
        token.replace('_', "\\u005f"),
        token.replace('_', "\\x5f"),
        format!("{head}\u{200b}{tail}"),
        format!("{head}\u{2060}{tail}"),
        format!("{head}\u{feff}{tail}"),
        format!("{head}\u{ad}{tail}"),
        format!("{head}\\u200b{tail}"),
        token.replace('_', "\\u{5f}"),
        token.replace('_', "\\137"),
        token.replace('_', "&#95;"),
        token.replace('_', "&#x5F;"),
        format!("100 % of {head}\u{ad}{tail}"),
        format!("{head}\u{2063}{tail}"),
        format!("{head}\u{202c}{tail}"),
        format!("{head}\u{180e}{tail}"),
        format!("{head}\u{34f}{tail}"),
        format!("{head}\u{e0061}{tail}"),
    ] {
        assert!(blocks("a.txt", text.as_bytes()), "{text:?}");
    }
}

#[test]
fn reads_wide_encodings_with_and_without_a_byte_order_mark() {
    let line = format!("setting = '{}'\r\n", token());
    let padding = "a line like any other, so that the file is long\r\n".repeat(20_000);
    for text in [line.clone(), format!("{padding}{line}")] {
        let little =
            |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        let big =
            |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_be_bytes).collect() };
        let wide = |text: &str, bytes: fn(u32) -> [u8; 4]| -> Vec<u8> {
            text.chars().flat_map(|c| bytes(u32::from(c))).collect()
        };
        for (encoding, content) in [
            ("UTF-16LE", little(&text)),
            ("UTF-16BE", big(&text)),
            ("UTF-16LE with a mark", little(&format!("\u{feff}{text}"))),
            ("UTF-16BE with a mark", big(&format!("\u{feff}{text}"))),
            ("UTF-32LE", wide(&text, u32::to_le_bytes)),
            ("UTF-32BE", wide(&text, u32::to_be_bytes)),
            (
                "UTF-32LE with a mark",
                wide(&format!("\u{feff}{text}"), u32::to_le_bytes),
            ),
        ] {
            assert!(
                blocks("a.ps1", &content),
                "{encoding}, {} bytes",
                content.len()
            );
        }
    }
}

#[test]
fn reads_utf_16_of_other_scripts_without_a_byte_order_mark() {
    let text = format!(
        "обычный текст для примера\r\n{}ключ {}\r\n",
        "строка\r\n".repeat(30),
        token()
    );
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert!(blocks("a.txt", &little) && blocks("a.txt", &big));
}

#[test]
fn finds_secrets_next_to_a_zero_byte() {
    let text = format!("a = 1\nb = \"{}\"\n\0\n", token());
    assert!(blocks("a.txt", text.as_bytes()));
    let first = format!("\0{}", "a = 1\n".repeat(100)) + &token();
    assert!(blocks("a.txt", first.as_bytes()));
}

/// Builds a zip of deflated files.
fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let mut packer = DeflateEncoder::new(Vec::new(), Compression::best());
        packer.write_all(content).unwrap();
        let packed = packer.finish().unwrap();
        let size = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
        let short = |length: usize| u16::try_from(length).unwrap().to_le_bytes();
        let at = archive.len();
        let middle = [
            &[20, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &size(packed.len()),
            &size(content.len()),
            &short(name.len()),
            &[0, 0],
        ]
        .concat();
        archive.extend([b"PK\x03\x04", &middle[..], name.as_bytes(), &packed].concat());
        directory.extend(
            [
                b"PK\x01\x02\x14\x00",
                &middle[..],
                &[0; 10],
                &size(at),
                name.as_bytes(),
            ]
            .concat(),
        );
    }
    let at = u32::try_from(archive.len()).unwrap().to_le_bytes();
    let size = u32::try_from(directory.len()).unwrap().to_le_bytes();
    archive.extend([&directory[..], b"PK\x05\x06", &[0; 8], &size, &at, &[0, 0]].concat());
    archive
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(content).unwrap();
    packer.finish().unwrap()
}

fn tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    let size = format!("{:011o}", content.len());
    block[124..135].copy_from_slice(size.as_bytes());
    block[156] = b'0';
    block[257..262].copy_from_slice(b"ustar");
    let mut archive = [&block[..], content].concat();
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    archive
}

#[test]
fn checks_archive_entries_by_name_and_content() {
    let secret = format!("token = '{}'\n", token());
    let text = secret.as_bytes();
    for (path, content) in [
        (
            "a.zip",
            zip(&[("readme.txt", b"nothing"), ("deep/settings.py", text)]),
        ),
        ("a.zip", zip(&[("app/.env", b"A=1")])),
        ("a.jar", zip(&[("inner.zip", &zip(&[("a.txt", text)]))])),
        ("a.tar", tar("conf/settings.py", text)),
        ("a.tar", tar("home/.ssh/id_rsa", b"x")),
        ("a.tgz", gzip(&tar("a.txt", text))),
        ("a.txt.gz", gzip(text)),
    ] {
        assert!(blocks(path, &content), "{path}");
        assert_eq!(
            check_file(path, &content, &content, &AllowList::default()),
            GuardVerdict::Pass,
            "{path}: nothing new"
        );
    }
    let harmless = zip(&[("readme.txt", b"nothing"), ("src/main.rs", b"fn main() {}")]);
    assert_eq!(
        check_file("a.zip", b"", &harmless, &AllowList::default()),
        GuardVerdict::Pass
    );
    let allow = AllowList::compile(&["fixtures/*.zip".to_owned()]).unwrap();
    let sample = zip(&[("a.txt", text)]);
    assert_eq!(
        check_file("fixtures/a.zip", b"", &sample, &allow),
        GuardVerdict::Pass
    );
}

#[test]
fn warns_of_archives_that_cannot_be_read_completely() {
    let zipped = zip(&[("readme.txt", b"nothing")]);
    let find = |signature: &[u8]| {
        let mut places = zipped.windows(4);
        places.position(|place| place == signature).unwrap()
    };
    let (directory, end) = (find(b"PK\x01\x02"), find(b"PK\x05\x06"));
    let edited = |at: usize, bytes: &[u8]| {
        let mut content = zipped.clone();
        content[at..at + bytes.len()].copy_from_slice(bytes);
        content
    };
    let (gzipped, tarred) = (gzip(b"some text"), tar("a.txt", &[b'a'; 2_000]));
    let mut sizeless = tarred.clone();
    sizeless[124..135].fill(0xff);
    for (case, content) in [
        ("bzip2 in a zip", edited(directory + 10, &[12])),
        ("a size beyond the end", edited(directory + 20, &[0xff; 4])),
        ("damaged content", edited(40, &[0xff; 4])),
        ("an offset of ZIP64", edited(end + 16, &[0xff; 4])),
        ("fewer files than promised", edited(end + 10, &[2])),
        ("no directory", zipped[..directory].to_vec()),
        ("a gzip that is cut", gzipped[..gzipped.len() - 9].to_vec()),
        ("a tar that is cut", tarred[..1_000].to_vec()),
        ("a tar without a size", sizeless),
    ] {
        let verdict = check_file("a", b"", &content, &AllowList::default());
        let is_warning = matches!(verdict, GuardVerdict::Warn(GuardReason::Content(_, label)) if label.starts_with("archive"));
        assert!(is_warning, "{case}: {verdict:?}");
    }
    // An archive with a password is judged by the names in it.
    let encrypted = edited(directory + 8, &[1]);
    for content in [zipped, encrypted, gzipped, tarred] {
        let verdict = check_file("a", b"", &content, &AllowList::default());
        assert_eq!(verdict, GuardVerdict::Pass);
    }
}

#[test]
fn does_not_unpack_decompression_bombs() {
    let zeros = vec![b'a'; 200 << 20];
    let bomb = zip(&[("a.txt", &zeros), ("b.txt", &zeros)]);
    let nested = gzip(&gzip(&gzip(&gzip(&zeros))));
    for content in [bomb, gzip(&zeros), nested] {
        let began = std::time::Instant::now();
        let verdict = check_file("a.zip", b"", &content, &AllowList::default());
        let is_warning = matches!(verdict, GuardVerdict::Warn(GuardReason::Content(_, label)) if label.starts_with("archive"));
        assert!(is_warning, "{verdict:?} for {} bytes", content.len());
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }
}

#[test]
fn checks_other_encodings_and_binary_key_stores() {
    let utf16 = |text: &str| -> Vec<u8> {
        let units = text.encode_utf16().flat_map(u16::to_le_bytes);
        [0xff, 0xfe].into_iter().chain(units).collect()
    };
    let token = build_token("ghp_", WORD, 36);
    let text = utf16(&format!("$token = '{token}'\r\n"));
    assert!(block_reason("x.ps1", b"", &text).is_some());
    assert_eq!(block_reason("x.ps1", &text, &text), None);
    let pkcs12 = b"\x30\x82\x0a\x01\x02\x01\x03\x30\x82\x09\xc7\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01\xa0\x00";
    let pkcs8 = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    let stores: [(&[u8], &str); 4] = [
        (pkcs12, "PKCS #12 store"),
        (pkcs8, "private key"),
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02", "Java key store"),
        (b"\x03\xd9\xa2\x9a\x67\xfb\x4b\xb5\x00", "KeePass database"),
    ];
    for (content, label) in stores {
        let expected = Some(GuardReason::Content(KeysAndCertificates, label));
        assert_eq!(
            block_reason("assets/blob.bin", b"", content),
            expected,
            "{label}"
        );
    }
    let certificate = b"\x30\x82\x03\x01\x30\x82\x02\x01\xa0\x03\x02\x01\x02\x02";
    assert_eq!(block_reason("ca.der", b"", certificate), None);
    assert_eq!(
        block_reason("assets/blob.bin", b"", b"\x00\x01binary"),
        None
    );
    for signature in [
        &b"BZh91AY&SY\x37\x0d\x80"[..],
        b"\xfd7zXZ\0\0\x04\xe6\xd6",
        b"7z\xbc\xaf\x27\x1c\0\x04",
    ] {
        let content = [signature, &[0, 1, 2, 3, 0xf0, 0xf1].repeat(20)].concat();
        let found = check_file("a.bin", b"", &content, &AllowList::default());
        assert!(matches!(found, GuardVerdict::Warn(_)), "{found:?}");
    }
    let packed = format!("\0\u{1}{}", private_key());
    assert!(block_reason("assets/blob.bin", b"", packed.as_bytes()).is_some());
}

//! Detection of binary content and decoding of UTF-16 and UTF-32.

use std::borrow::Cow;

/// Number of bytes at the start of a file that decide its encoding.
const SAMPLE_LEN: usize = 8_000;

/// Width and byte order of a wide encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WideEncoding {
    /// Bytes per code unit.
    width: usize,
    is_little_endian: bool,
}

/// Decodes UTF-16 and UTF-32, with or without a byte order mark, to UTF-8. Returns other content unchanged.
pub(super) fn decode_text(content: &[u8]) -> Cow<'_, [u8]> {
    let (wide, rest) = match content {
        [0xff, 0xfe, 0, 0, rest @ ..] => (
            Some(WideEncoding {
                width: 4,
                is_little_endian: true,
            }),
            rest,
        ),
        [0, 0, 0xfe, 0xff, rest @ ..] => (
            Some(WideEncoding {
                width: 4,
                is_little_endian: false,
            }),
            rest,
        ),
        [0xff, 0xfe, rest @ ..] => (
            Some(WideEncoding {
                width: 2,
                is_little_endian: true,
            }),
            rest,
        ),
        [0xfe, 0xff, rest @ ..] => (
            Some(WideEncoding {
                width: 2,
                is_little_endian: false,
            }),
            rest,
        ),
        _ => (guess_encoding(content), content),
    };
    let Some(wide) = wide else {
        return Cow::Borrowed(content);
    };
    let units = rest.chunks_exact(wide.width).map(|unit| {
        let byte = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
        match wide.is_little_endian {
            true => unit.iter().rev().fold(0, byte),
            false => unit.iter().fold(0, byte),
        }
    });
    let text: String = if wide.width == 4 {
        units
            .map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    } else {
        let units = units.map(|unit| u16::try_from(unit).unwrap_or_default());
        char::decode_utf16(units)
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    };
    Cow::Owned(text.into_bytes())
}

/// Detects a wide encoding without a byte order mark: in nearly all code units, all bytes but one are zero.
fn guess_encoding(content: &[u8]) -> Option<WideEncoding> {
    let head = &content[..content.len().min(SAMPLE_LEN)];
    if head.len() < 16 || !head.contains(&0) {
        return None;
    }
    let candidates = [(4, true), (4, false), (2, true), (2, false)];
    let fits = |wide: &WideEncoding| {
        let letter = if wide.is_little_endian {
            0
        } else {
            wide.width - 1
        };
        let mut units = head.chunks_exact(wide.width);
        let is_plain = |unit: &[u8]| {
            let others = unit.iter().enumerate().filter(|(at, _)| *at != letter);
            is_text(unit[letter]) && others.into_iter().all(|(_, byte)| *byte == 0)
        };
        let plain = units.by_ref().filter(|unit| is_plain(unit)).count();
        plain * 10 >= head.len() / wide.width * 8
    };
    let wide = candidates.map(|(width, is_little_endian)| WideEncoding {
        width,
        is_little_endian,
    });
    wide.into_iter().find(fits).or_else(|| {
        let orders = [true, false].map(|is_little_endian| WideEncoding {
            width: 2,
            is_little_endian,
        });
        orders.into_iter().find(|wide| is_other_script(head, wide))
    })
}

/// Returns whether the content looks like UTF-16 in a script other than Latin: ASCII spaces and line breaks,
/// letters of few Unicode blocks, and hardly any invalid characters.
fn is_other_script(head: &[u8], wide: &WideEncoding) -> bool {
    const MAX_BLOCKS: usize = 16;
    let units: Vec<u16> = head
        .chunks_exact(2)
        .map(|unit| match wide.is_little_endian {
            true => u16::from_le_bytes([unit[0], unit[1]]),
            false => u16::from_be_bytes([unit[0], unit[1]]),
        })
        .collect();
    let mut blocks = [false; 256];
    let (mut plain, mut invalid, mut pairs) = (0, 0, 0);
    for unit in &units {
        match unit {
            0x20..=0x7e | 0x09 | 0x0a | 0x0d => plain += 1,
            0..=0x9f | 0xd800..=0xf8ff | 0xfff0.. => invalid += 1,
            // Two ASCII letters.
            _ if unit.to_be_bytes().iter().all(u8::is_ascii_graphic) => pairs += 1,
            _ => {}
        }
        blocks[usize::from(unit >> 8)] = true;
    }
    let blocks = blocks.iter().filter(|block| **block).count();
    units.len() >= 32
        && plain * 20 >= units.len()
        && pairs * 2 < units.len()
        && invalid * 100 <= units.len()
        && blocks <= MAX_BLOCKS
}

/// Returns whether the content is binary: it has many control characters or is mostly invalid UTF-8. A few
/// control characters, such as a stray zero byte, do not make a file binary.
pub(super) fn is_binary(content: &[u8]) -> bool {
    let head = &content[..content.len().min(SAMPLE_LEN)];
    let invalid = head.iter().filter(|byte| !is_text(**byte)).count();
    invalid * 20 > head.len()
        || (invalid > 0
            && std::str::from_utf8(head).is_err()
            && high_byte_count(head) * 4 > head.len())
}

fn high_byte_count(head: &[u8]) -> usize {
    head.iter().filter(|byte| **byte >= 0x80).count()
}

fn is_text(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b | 0x08)
}

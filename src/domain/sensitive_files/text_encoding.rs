//! Texts in wide characters, and what is no text at all.

use std::borrow::Cow;

/// How much of a file tells what it is.
const HEAD: usize = 8_000;

/// The order of the bytes of a wide character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wide {
    /// How many bytes a character has.
    width: usize,
    is_little: bool,
}

/// The text in the letters that rules are made of: UTF-16 and UTF-32, with a mark or without.
pub(super) fn decode_text(content: &[u8]) -> Cow<'_, [u8]> {
    let (wide, rest) = match content {
        [0xff, 0xfe, 0, 0, rest @ ..] => (
            Some(Wide {
                width: 4,
                is_little: true,
            }),
            rest,
        ),
        [0, 0, 0xfe, 0xff, rest @ ..] => (
            Some(Wide {
                width: 4,
                is_little: false,
            }),
            rest,
        ),
        [0xff, 0xfe, rest @ ..] => (
            Some(Wide {
                width: 2,
                is_little: true,
            }),
            rest,
        ),
        [0xfe, 0xff, rest @ ..] => (
            Some(Wide {
                width: 2,
                is_little: false,
            }),
            rest,
        ),
        _ => (guessed(content), content),
    };
    let Some(wide) = wide else {
        return Cow::Borrowed(content);
    };
    let units = rest.chunks_exact(wide.width).map(|unit| {
        let byte = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
        match wide.is_little {
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

/// Wide characters without a mark: of every two or four bytes all but one are nearly always zero.
fn guessed(content: &[u8]) -> Option<Wide> {
    let head = &content[..content.len().min(HEAD)];
    if head.len() < 16 || !head.contains(&0) {
        return None;
    }
    let candidates = [(4, true), (4, false), (2, true), (2, false)];
    let fits = |wide: &Wide| {
        let letter = if wide.is_little { 0 } else { wide.width - 1 };
        let mut units = head.chunks_exact(wide.width);
        let is_plain = |unit: &[u8]| {
            let others = unit.iter().enumerate().filter(|(at, _)| *at != letter);
            is_text(unit[letter]) && others.into_iter().all(|(_, byte)| *byte == 0)
        };
        let plain = units.by_ref().filter(|unit| is_plain(unit)).count();
        plain * 10 >= head.len() / wide.width * 8
    };
    let wide = candidates.map(|(width, is_little)| Wide { width, is_little });
    wide.into_iter().find(fits).or_else(|| {
        let orders = [true, false].map(|is_little| Wide {
            width: 2,
            is_little,
        });
        orders.into_iter().find(|wide| is_other_script(head, wide))
    })
}

/// UTF-16 in another script than Latin: spaces and line ends with a zero byte, letters of a few blocks, and
/// nothing that is no character.
fn is_other_script(head: &[u8], wide: &Wide) -> bool {
    const MOST_BLOCKS: usize = 16;
    let units: Vec<u16> = head
        .chunks_exact(2)
        .map(|unit| match wide.is_little {
            true => u16::from_le_bytes([unit[0], unit[1]]),
            false => u16::from_be_bytes([unit[0], unit[1]]),
        })
        .collect();
    let mut blocks = [false; 256];
    let (mut plain, mut odd, mut pairs) = (0, 0, 0);
    for unit in &units {
        match unit {
            0x20..=0x7e | 0x09 | 0x0a | 0x0d => plain += 1,
            0..=0x9f | 0xd800..=0xf8ff | 0xfff0.. => odd += 1,
            // Two letters of ASCII.
            _ if unit.to_be_bytes().iter().all(u8::is_ascii_graphic) => pairs += 1,
            _ => {}
        }
        blocks[usize::from(unit >> 8)] = true;
    }
    let blocks = blocks.iter().filter(|block| **block).count();
    units.len() >= 32
        && plain * 20 >= units.len()
        && pairs * 2 < units.len()
        && odd * 100 <= units.len()
        && blocks <= MOST_BLOCKS
}

/// Whether the content is no text: many bytes in it that no text has. A few of them, such as a zero byte
/// that an editor left, do not hide a file.
pub(super) fn is_binary(content: &[u8]) -> bool {
    let head = &content[..content.len().min(HEAD)];
    let odd = head.iter().filter(|byte| !is_text(**byte)).count();
    odd * 20 > head.len()
        || (odd > 0 && std::str::from_utf8(head).is_err() && high(head) * 4 > head.len())
}

fn high(head: &[u8]) -> usize {
    head.iter().filter(|byte| **byte >= 0x80).count()
}

fn is_text(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b | 0x08)
}

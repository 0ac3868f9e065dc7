//! Decoded views of a text: with escapes decoded, with invisible characters removed, and with base64 decoded.
//!
//! Each view is built in one pass and scanned once. Base64 within base64 is decoded once more. The total size
//! of the views is a small multiple of the text.

use std::ops::Range;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD};

use super::magic_numbers;
use super::token_format::{CharClass, is_in_class};

/// Minimum length, in bytes, of base64 that is decoded.
const MIN_BASE64_LEN: usize = 24;

/// Maximum nesting of base64.
const MAX_DEPTH: usize = 2;

/// Number of context bytes before a range that an invisible character can replace.
const INVISIBLE_CONTEXT: usize = 8;

/// Number of pieces that are searched for the end of a range before the binary search.
const NEAR_PIECES: usize = 8;

/// Text decoded from a source text, with a mapping of its ranges to the source.
pub(super) struct DecodedView {
    text: Vec<u8>,
    /// Pieces of the view: start in the view, and source range.
    pieces: Vec<(usize, Range<usize>)>,
    /// Whether each piece maps to its whole source range, as in base64.
    is_packed: bool,
    /// Ranges of binary private keys in the view.
    keys: Vec<Range<usize>>,
}

impl DecodedView {
    /// Returns the decoded text.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the start of a range in the source text, if the range was copied unchanged together with
    /// `before` bytes before it and one byte after it. An invisible character before the range replaces up to
    /// 8 bytes of that context, because no name or token continues across it. `last` is the piece of the
    /// previous call, where the search begins.
    pub(super) fn verbatim_source_start(
        &self,
        before: usize,
        range: &Range<usize>,
        last: &mut usize,
    ) -> Option<usize> {
        if self.is_packed {
            return None;
        }
        while *last > 0 && self.pieces[*last].0 > range.start {
            *last -= 1;
        }
        let next = |at: usize| self.pieces.get(at + 1).map(|(start, _)| *start);
        while next(*last).is_some_and(|start| start <= range.start) {
            *last += 1;
        }
        // Copied pieces and escapes alternate.
        let is_copied = last.is_multiple_of(2) && next(*last).is_none_or(|end| end > range.end);
        let (start, source) = &self.pieces[*last];
        let is_inside = is_copied
            && (start + before <= range.start
                || (before <= INVISIBLE_CONTEXT
                    && *start == range.start
                    && self.is_after_invisible(*last)));
        is_inside.then(|| source.start + range.start - start)
    }

    /// Returns whether a piece follows an invisible character that is not written as an escape and does not
    /// follow the opening bracket of a tag.
    fn is_after_invisible(&self, piece: usize) -> bool {
        const MIN_ESCAPE_LEN: usize = 6;
        let Some((before, source)) = piece.checked_sub(1).map(|before| &self.pieces[before]) else {
            return false;
        };
        *before == self.pieces[piece].0
            && source.len() < MIN_ESCAPE_LEN
            && !self.text[..*before].ends_with(b"<")
    }

    /// Returns the ranges of binary private keys.
    pub(super) fn binary_keys(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.keys.iter().cloned()
    }

    /// Returns the source range of a range in the view.
    pub(super) fn source_range(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let begins = |at: usize| move |(start, _): &(usize, Range<usize>)| *start <= at;
        let from = self.pieces.partition_point(begins(range.start));
        let (first, start) = self.pieces.get(from.checked_sub(1)?)?;
        // Most ranges end in the piece in which they begin, or in one of the next.
        let last = range.end.saturating_sub(1);
        let near = &self.pieces[from..self.pieces.len().min(from + NEAR_PIECES)];
        let to = match near.partition_point(begins(last)) {
            NEAR_PIECES => self.pieces.partition_point(begins(last)),
            within => from + within,
        };
        let (last, end) = self.pieces.get(to.checked_sub(1)?)?;
        if self.is_packed {
            return Some(start.start..end.end);
        }
        let from = start.start + (range.start - first);
        let to = end.start + (range.end - last);
        Some(from..to.max(end.end.min(to)))
    }
}

/// Returns all decoded views of a text. A view that would equal the text is left out.
pub(super) fn decoded_views(text: &[u8]) -> Vec<DecodedView> {
    let mut views: Vec<DecodedView> = unescape(text).into_iter().collect();
    let mut layer = decode_base64(views.first().map_or(text, |view| view.text()));
    if let (Some(decoded), Some(unescaped)) = (&mut layer, views.first()) {
        rebase(decoded, unescaped);
    }
    for _ in 1..MAX_DEPTH {
        let Some(outer) = layer else { break };
        let mut inner = decode_base64(outer.text());
        if let Some(inner) = &mut inner {
            rebase(inner, &outer);
        }
        views.push(outer);
        layer = inner;
    }
    views.extend(layer);
    views
}

/// Maps the pieces of a view to the source of its base view.
fn rebase(view: &mut DecodedView, base: &DecodedView) {
    for (_, range) in &mut view.pieces {
        if let Some(source) = base.source_range(range) {
            *range = source;
        }
    }
}

/// Decodes escapes and removes invisible characters. Returns `None` if the text contains neither.
fn unescape(text: &[u8]) -> Option<DecodedView> {
    let mut view: Option<DecodedView> = None;
    let mut copied = 0;
    for at in escape_candidates(text) {
        if at < copied {
            continue;
        }
        let Some((letter, length)) = parse_escape(&text[at..]) else {
            continue;
        };
        let view = view.get_or_insert_with(|| DecodedView {
            text: Vec::with_capacity(text.len()),
            pieces: Vec::new(),
            is_packed: false,
            keys: Vec::new(),
        });
        view.pieces.push((view.text.len(), copied..at));
        view.text.extend_from_slice(&text[copied..at]);
        view.pieces.push((view.text.len(), at..at + length));
        view.text.extend(letter);
        copied = at + length;
    }
    let mut view = view?;
    view.pieces.push((view.text.len(), copied..text.len()));
    view.text.extend_from_slice(&text[copied..]);
    Some(view)
}

/// Returns the positions where an escape or an invisible character may begin, in order.
fn escape_candidates(text: &[u8]) -> Box<dyn Iterator<Item = usize> + '_> {
    if text.is_ascii() {
        return Box::new(memchr::memchr3_iter(b'%', b'\\', b'&', text));
    }
    let begins = |byte: u8| {
        matches!(
            byte,
            b'%' | b'\\' | b'&' | 0xc2 | 0xcd | 0xe1 | 0xe2 | 0xef | 0xf3
        )
    };
    Box::new((0..text.len()).filter(move |at| begins(text[*at])))
}

/// Parses an escape or an invisible character. Returns the decoded byte, which is `None` for an invisible
/// character, and the length in the source.
fn parse_escape(rest: &[u8]) -> Option<(Option<u8>, usize)> {
    let hex = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let letter = |code: u32| {
        u8::try_from(code)
            .ok()
            .filter(|byte| byte.is_ascii_graphic())
    };
    match rest {
        [b'%', one, two, ..] => Some((Some(letter(hex(&[*one, *two])?)?), 3)),
        [b'\\', b'x', one, two, ..] => Some((Some(letter(hex(&[*one, *two])?)?), 4)),
        [b'\\', b'u', b'{', digits @ ..] => {
            let end = digits.iter().take(7).position(|byte| *byte == b'}')?;
            match hex(&digits[..end])? {
                0x200b..=0x200f | 0x2060..=0x2064 | 0xfeff | 0xad => Some((None, end + 4)),
                code => Some((Some(letter(code)?), end + 4)),
            }
        }
        [b'\\', b'u', digits @ ..] if digits.len() >= 4 => match hex(&digits[..4])? {
            0x200b..=0x200f | 0x2060 | 0xfeff | 0xad => Some((None, 6)),
            code => Some((Some(letter(code)?), 6)),
        },
        [
            b'\\',
            one @ b'0'..=b'1',
            two @ b'0'..=b'7',
            three @ b'0'..=b'7',
            ..,
        ] => {
            let code = [one, two, three]
                .iter()
                .fold(0, |code, digit| code * 8 + u32::from(**digit - b'0'));
            Some((Some(letter(code)?), 4))
        }
        [b'&', b'#', digits @ ..] => {
            let end = digits.iter().take(6).position(|byte| *byte == b';')?;
            let code = match &digits[..end] {
                [b'x' | b'X', digits @ ..] => hex(digits)?,
                digits => std::str::from_utf8(digits).ok()?.parse().ok()?,
            };
            Some((Some(letter(code)?), end + 3))
        }
        // Not `sanitize::is_visible`: this scan reads bytes, which may be no UTF-8, and is hot. Zero-width space,
        // non-joiner and joiner, direction marks, word joiner, invisible operators, byte order mark, variation
        // selectors, soft hyphen, grapheme joiner, tags.
        [0xe2, 0x80, 0x8b..=0x8f | 0xaa..=0xae, ..]
        | [0xe2, 0x81, 0xa0..=0xaf, ..]
        | [0xe1, 0xa0, 0x8b..=0x8e, ..]
        | [0xef, 0xb8, 0x80..=0x8f, ..]
        | [0xef, 0xbb, 0xbf, ..] => Some((None, 3)),
        [0xc2, 0xad, ..] | [0xcd, 0x8f, ..] => Some((None, 2)),
        [0xf3, 0xa0, 0x80..=0x87, _, ..] => Some((None, 4)),
        _ => None,
    }
}

/// Decodes all base64 in a text, one line per encoded run. Returns `None` if nothing decodes to text or a
/// key.
fn decode_base64(text: &[u8]) -> Option<DecodedView> {
    let mut view = DecodedView {
        text: Vec::new(),
        pieces: Vec::new(),
        is_packed: true,
        keys: Vec::new(),
    };
    let is_letter = |byte: u8| is_in_class(CharClass::AnyBase64, byte);
    let mut at = MIN_BASE64_LEN - 1;
    let mut done = 0;
    while at < text.len() {
        if !is_letter(text[at]) {
            at += MIN_BASE64_LEN;
            continue;
        }
        let start = text[done..at]
            .iter()
            .rposition(|byte| !is_letter(*byte))
            .map_or(done, |before| done + before + 1);
        let end = text[at..]
            .iter()
            .position(|byte| !is_letter(*byte))
            .map_or(text.len(), |length| at + length);
        if end - start >= MIN_BASE64_LEN {
            view.push_base64(text, start..end);
        }
        done = end;
        at = end + MIN_BASE64_LEN;
    }
    (!view.text.is_empty()).then_some(view)
}

impl DecodedView {
    /// Decodes one run of base64, and appends it if it begins like text or like a private key.
    fn push_base64(&mut self, text: &[u8], range: Range<usize>) {
        let letters = &text[range.clone()];
        let is_url = letters.iter().any(|byte| b"-_".contains(byte));
        let decode = |letters: &[u8]| {
            let whole = &letters[..letters.len() - usize::from(letters.len() % 4 == 1)];
            let encoding = if is_url {
                &BASE64URL_NOPAD
            } else {
                &BASE64_NOPAD
            };
            // The unused bits of the last letter may be nonzero.
            encoding
                .decode(whole)
                .or_else(|_| encoding.decode(&whole[..whole.len() / 4 * 4]))
                .ok()
        };
        let Some(head) = decode(&letters[..MIN_BASE64_LEN]) else {
            return;
        };
        let is_key = magic_numbers::has_key_header(&head);
        let is_wide = head
            .chunks_exact(2)
            .all(|pair| pair[1] == 0 && is_text(pair[0]));
        if !(is_key || is_wide || head.iter().all(|byte| is_text(*byte))) {
            return;
        }
        let Some(mut plain) = decode(letters) else {
            return;
        };
        if is_wide {
            plain.retain(|byte| *byte != 0);
        }
        let start = self.text.len();
        if is_key {
            if magic_numbers::key_material_label(&plain).is_none() {
                return;
            }
            self.keys.push(start..start + plain.len());
        }
        self.pieces.push((start, range));
        self.text.extend(plain);
        self.text.push(b'\n');
    }
}

fn is_text(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace() || byte >= 0xc2
}

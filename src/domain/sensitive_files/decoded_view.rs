//! Texts within a text: what stands behind escapes, between characters that nobody sees, and in base64.
//!
//! Each view is made in one pass and read once; base64 in base64 is looked into once more. All of it
//! together is a small multiple of the text.

use std::ops::Range;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD};

use super::magic_numbers;
use super::token_format::{CharClass, is_in_class};

/// How many letters a stretch of base64 has at least that is worth a look.
const SHORTEST: usize = 24;

/// How deep base64 in base64 is followed.
const DEPTH: usize = 2;

/// How many bytes before a place an invisible character stands for.
const INVISIBLE: usize = 8;

/// In how many pieces the end of a place is looked for first.
const NEAR: usize = 8;

/// A text that was made of another one.
pub(super) struct DecodedView {
    text: Vec<u8>,
    /// Where stretches of the view begin, and what they were made of.
    pieces: Vec<(usize, Range<usize>)>,
    /// Whether each stretch stands for the whole of what it was made of.
    is_packed: bool,
    /// Private keys in binary.
    keys: Vec<Range<usize>>,
}

impl DecodedView {
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Where a place stood in the text that the view was made of, if it was copied letter for letter,
    /// with so many bytes before and one behind it. An invisible character before it is as good as some of
    /// them: no name or token goes on there. Places come mostly in order: the search begins at the piece
    /// of the last one.
    pub fn verbatim_source_start(
        &self,
        before: usize,
        place: &Range<usize>,
        last: &mut usize,
    ) -> Option<usize> {
        if self.is_packed {
            return None;
        }
        while *last > 0 && self.pieces[*last].0 > place.start {
            *last -= 1;
        }
        let next = |at: usize| self.pieces.get(at + 1).map(|(start, _)| *start);
        while next(*last).is_some_and(|start| start <= place.start) {
            *last += 1;
        }
        // What was copied and escapes take turns.
        let is_copied = last.is_multiple_of(2) && next(*last).is_none_or(|end| end > place.end);
        let (start, origin) = &self.pieces[*last];
        let is_inside = is_copied
            && (start + before <= place.start
                || (before <= INVISIBLE
                    && *start == place.start
                    && self.is_after_invisible(*last)));
        is_inside.then(|| origin.start + place.start - start)
    }

    /// Whether a piece follows an invisible character that is not spelt in letters, and no bracket of a tag
    /// before that.
    fn is_after_invisible(&self, piece: usize) -> bool {
        const SHORTEST_SPELT: usize = 6;
        let Some((before, origin)) = piece.checked_sub(1).map(|before| &self.pieces[before]) else {
            return false;
        };
        *before == self.pieces[piece].0
            && origin.len() < SHORTEST_SPELT
            && !self.text[..*before].ends_with(b"<")
    }

    /// Places of keys in binary.
    pub fn binary_keys(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.keys.iter().cloned()
    }

    /// What a place in the view was made of.
    pub fn source_range(&self, place: &Range<usize>) -> Option<Range<usize>> {
        let begins = |at: usize| move |(start, _): &(usize, Range<usize>)| *start <= at;
        let from = self.pieces.partition_point(begins(place.start));
        let (first, start) = self.pieces.get(from.checked_sub(1)?)?;
        // Most places end in the piece that they begin in, or soon after.
        let last = place.end.saturating_sub(1);
        let near = &self.pieces[from..self.pieces.len().min(from + NEAR)];
        let to = match near.partition_point(begins(last)) {
            NEAR => self.pieces.partition_point(begins(last)),
            within => from + within,
        };
        let (last, end) = self.pieces.get(to.checked_sub(1)?)?;
        if self.is_packed {
            return Some(start.start..end.end);
        }
        let from = start.start + (place.start - first);
        let to = end.start + (place.end - last);
        Some(from..to.max(end.end.min(to)))
    }
}

/// All that the text holds beside itself.
pub(super) fn decoded_views(text: &[u8]) -> Vec<DecodedView> {
    let mut views: Vec<DecodedView> = plain(text).into_iter().collect();
    let mut layer = unpacked(views.first().map_or(text, |view| view.text()));
    if let (Some(packed), Some(plain)) = (&mut layer, views.first()) {
        rebase(packed, plain);
    }
    for _ in 1..DEPTH {
        let Some(outer) = layer else { break };
        let mut inner = unpacked(outer.text());
        if let Some(inner) = &mut inner {
            rebase(inner, &outer);
        }
        views.push(outer);
        layer = inner;
    }
    views.extend(layer);
    views
}

/// Lets a view tell places in what its base was made of.
fn rebase(view: &mut DecodedView, base: &DecodedView) {
    for (_, place) in &mut view.pieces {
        if let Some(origin) = base.source_range(place) {
            *place = origin;
        }
    }
}

/// The text without escapes and invisible characters; nothing where it has none.
fn plain(text: &[u8]) -> Option<DecodedView> {
    let mut view: Option<DecodedView> = None;
    let mut copied = 0;
    for at in candidates(text) {
        if at < copied {
            continue;
        }
        let Some((letter, length)) = escape(&text[at..]) else {
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

/// Where escapes and invisible characters may begin, in order.
fn candidates(text: &[u8]) -> Box<dyn Iterator<Item = usize> + '_> {
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

/// The letter that an escape stands for, none for an invisible character, and the length of both.
fn escape(rest: &[u8]) -> Option<(Option<u8>, usize)> {
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
        // Zero-width space, non-joiner, joiner, marks of direction, word joiner, signs that nobody sees, byte
        // order mark, variation selectors, soft hyphen, grapheme joiner, tags.
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

/// What stands in base64, one stretch a line; nothing where none is text.
fn unpacked(text: &[u8]) -> Option<DecodedView> {
    let mut view = DecodedView {
        text: Vec::new(),
        pieces: Vec::new(),
        is_packed: true,
        keys: Vec::new(),
    };
    let is_letter = |byte: u8| is_in_class(CharClass::AnyBase64, byte);
    let mut at = SHORTEST - 1;
    let mut done = 0;
    while at < text.len() {
        if !is_letter(text[at]) {
            at += SHORTEST;
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
        if end - start >= SHORTEST {
            view.add(text, start..end);
        }
        done = end;
        at = end + SHORTEST;
    }
    (!view.text.is_empty()).then_some(view)
}

impl DecodedView {
    /// Adds a stretch of base64 where it begins as a text or a key does.
    fn add(&mut self, text: &[u8], place: Range<usize>) {
        let letters = &text[place.clone()];
        let is_url = letters.iter().any(|byte| b"-_".contains(byte));
        let decode = |letters: &[u8]| {
            let whole = &letters[..letters.len() - usize::from(letters.len() % 4 == 1)];
            let coded = if is_url {
                &BASE64URL_NOPAD
            } else {
                &BASE64_NOPAD
            };
            // The last letter may carry bits that mean nothing.
            coded
                .decode(whole)
                .or_else(|_| coded.decode(&whole[..whole.len() / 4 * 4]))
                .ok()
        };
        let Some(head) = decode(&letters[..SHORTEST]) else {
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
        self.pieces.push((start, place));
        self.text.extend(plain);
        self.text.push(b'\n');
    }
}

fn is_text(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace() || byte >= 0xc2
}

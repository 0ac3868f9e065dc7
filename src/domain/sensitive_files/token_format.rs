//! The notation for token formats: `ghp_{alnum:36}` is a literal and 36 letters or digits.
//!
//! A shape is matched around the place of its longest literal. Every piece is a run of one class of
//! characters, and the end of a run is remembered, so that overlapping candidates do not read the
//! same bytes again and again: matching costs the same per keyword whatever surrounds it.

use std::ops::{Range, RangeInclusive};

/// A set of characters that a piece of a token is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CharClass {
    Digit,
    /// Digits and `a` to `f`.
    LowerHex,
    /// The same in either case.
    AnyHex,
    /// Capitals and digits.
    UpperAlnum,
    /// Small letters and digits.
    LowerAlnum,
    Letter,
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Base64Url,
    /// The same with `.`.
    Dotted,
    /// The letters of base32.
    Base32,
    Base64,
    /// Base64 as it stands in a query: `%`, `+`, `/` and `=` too.
    QueryBase64,
    /// Base64 of both alphabets with its end.
    PaddedBase64,
    /// Base64 of either alphabet.
    AnyBase64,
    /// All that tokens are made of.
    TokenText,
    /// Letters, digits and `-`.
    AlnumDash,
    /// Letters, digits, `/`, `-` and `_`.
    Path,
    /// Letters, digits and `_~.-`.
    Unreserved,
    /// Base64 of both alphabets, with commas between tokens.
    Base64List,
    /// What identifiers and the paths to settings are made of.
    SettingName,
    /// What values without quotes are made of: nothing that may stand between a name and its value.
    UnquotedValue,
    /// User, password and host of a URL.
    Authority,
    /// What stands between the lines of a key.
    KeyBody,
    /// The name of a user in a URL.
    User,
    /// A password in a URL.
    Password,
}

const CLASSES: usize = 26;

/// For each byte the classes it belongs to, one bit each.
const MEMBERS: [u32; 256] = {
    let mut table = [0_u32; 256];
    let mut byte = 0_usize;
    while byte < 256 {
        table[byte] = classes_of(byte as u8);
        byte += 1;
    }
    table
};

const fn classes_of(byte: u8) -> u32 {
    const fn bit(class: CharClass, is_member: bool) -> u32 {
        (is_member as u32) << class as u32
    }
    let (digit, lower, upper) = (
        byte.is_ascii_digit(),
        byte.is_ascii_lowercase(),
        byte.is_ascii_uppercase(),
    );
    let alnum = digit || lower || upper;
    let word = alnum || byte == b'_';
    let base64 = alnum || byte == b'+' || byte == b'/';
    let is_quote = byte == b'"' || byte == b'\'' || byte == b'`';
    let is_printed = byte > b' ' && byte != 0x7f;
    let is_bracket = matches!(byte, b'<' | b'>' | b'(' | b')' | b'[' | b']' | b'{' | b'}');
    bit(CharClass::Digit, digit)
        | bit(CharClass::LowerHex, digit || matches!(byte, b'a'..=b'f'))
        | bit(CharClass::AnyHex, byte.is_ascii_hexdigit())
        | bit(CharClass::UpperAlnum, upper || digit)
        | bit(CharClass::LowerAlnum, lower || digit)
        | bit(CharClass::Letter, lower || upper)
        | bit(CharClass::Alnum, alnum)
        | bit(CharClass::Word, word)
        | bit(CharClass::Base64Url, word || byte == b'-')
        | bit(CharClass::Dotted, word || byte == b'-' || byte == b'.')
        | bit(CharClass::Base32, upper || matches!(byte, b'2'..=b'7'))
        | bit(CharClass::Base64, base64)
        | bit(
            CharClass::QueryBase64,
            base64 || byte == b'%' || byte == b'=',
        )
        | bit(
            CharClass::PaddedBase64,
            base64 || matches!(byte, b'_' | b'-' | b'=' | b'%'),
        )
        | bit(CharClass::AnyBase64, base64 || matches!(byte, b'_' | b'-'))
        | bit(
            CharClass::TokenText,
            base64 || matches!(byte, b'_' | b'-' | b'.' | b'=' | b'~'),
        )
        | bit(CharClass::AlnumDash, alnum || byte == b'-')
        | bit(CharClass::Path, word || byte == b'-' || byte == b'/')
        | bit(
            CharClass::Unreserved,
            word || matches!(byte, b'-' | b'.' | b'~'),
        )
        | bit(
            CharClass::Base64List,
            base64 || matches!(byte, b'_' | b'-' | b'=' | b','),
        )
        | bit(CharClass::SettingName, word || byte == b'-' || byte == b'.')
        | bit(
            CharClass::UnquotedValue,
            is_printed
                && !is_quote
                && !is_bracket
                && !matches!(byte, b',' | b';' | b'=' | b':' | b'|' | b'&' | b'\\'),
        )
        | bit(
            CharClass::Authority,
            is_printed && !is_quote && !matches!(byte, b'/' | b'?' | b'#' | b'\\' | b'<' | b'>'),
        )
        | bit(
            CharClass::KeyBody,
            base64
                || matches!(byte, b'=' | b' ' | b'\t' | b'\r' | b'\n' | b'\\' | b',')
                || is_quote,
        )
        | bit(
            CharClass::User,
            !byte.is_ascii_whitespace() && !matches!(byte, b'/' | b'@' | b'"' | b':'),
        )
        | bit(
            CharClass::Password,
            !byte.is_ascii_whitespace() && !matches!(byte, b'/' | b'@' | b'"'),
        )
}

pub(super) fn is_in_class(class: CharClass, byte: u8) -> bool {
    MEMBERS[usize::from(byte)] >> class as u32 & 1 == 1
}

/// How many runs of one class are remembered: those of a token do not displace each other.
const KNOWN: usize = 4;

/// The runs that were read last, for each class those at the same place in a format.
pub(super) struct RunCache<'t> {
    text: &'t [u8],
    known: [[(usize, usize); KNOWN]; CLASSES],
    #[cfg(test)]
    pub steps: usize,
}

impl<'t> RunCache<'t> {
    pub fn new(text: &'t [u8]) -> Self {
        Self {
            text,
            known: [[(0, 0); KNOWN]; CLASSES],
            #[cfg(test)]
            steps: 0,
        }
    }

    /// How many characters of the class follow at a place, counted to one more than `most`.
    pub fn run_length_after(&mut self, class: CharClass, at: usize, most: usize) -> usize {
        self.ahead_at(0, class, at, most)
    }

    /// The same for a piece of a format.
    fn ahead_at(&mut self, piece: usize, class: CharClass, at: usize, most: usize) -> usize {
        // Literals stand between runs.
        let piece = piece / 2 % KNOWN;
        let (start, end) = self.known[class as usize][piece];
        let (start, mut end) = if (start..=end).contains(&at) {
            (start, end)
        } else {
            (at, at)
        };
        let limit = at
            .saturating_add(most)
            .saturating_add(1)
            .min(self.text.len());
        let known = end;
        while end < limit && is_in_class(class, self.text[end]) {
            end += 1;
        }
        self.count(end + 1 - known.min(end));
        self.known[class as usize][piece] = (start, end);
        end.min(limit).saturating_sub(at)
    }

    /// The classes that the characters at a place have in common, one bit each.
    pub fn common_classes(&self, at: usize) -> u32 {
        let ahead = self.text.get(at..at + LEAD);
        ahead.map_or(0, |ahead| {
            let classes = ahead.iter().map(|byte| MEMBERS[usize::from(*byte)]);
            classes.fold(u32::MAX, |common, classes| common & classes)
        })
    }

    /// How many characters of the class stand before a place, counted to one more than `most`.
    pub fn run_length_before(&mut self, class: CharClass, at: usize, most: usize) -> usize {
        let before = self.text[..at].iter().rev().take(most + 1);
        let count = before.take_while(|byte| is_in_class(class, **byte)).count();
        self.count(count);
        count
    }

    #[cfg(test)]
    fn count(&mut self, steps: usize) {
        self.steps += steps;
    }

    #[cfg(not(test))]
    fn count(&mut self, _: usize) {}
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Vec<u8>),
    Run {
        class: CharClass,
        least: usize,
        most: usize,
    },
}

/// A token's format.
#[derive(Debug)]
pub(super) struct TokenFormat {
    pieces: Vec<Piece>,
    /// The piece whose place is known when matching begins.
    anchor: usize,
    /// The class of the run behind that piece, where it is long; none is zero.
    lead: u32,
    /// How long a token may be.
    lengths: RangeInclusive<usize>,
}

/// How many characters behind a keyword are looked at before anything else.
const LEAD: usize = 8;

impl TokenFormat {
    /// Reads the notation; nothing where it is wrong, which a test looks for.
    pub fn parse(notation: &str) -> Option<TokenFormat> {
        let mut pieces = Vec::new();
        let mut rest = notation;
        while let Some((before, after)) = rest.split_once('{') {
            let (run, left) = after.split_once('}')?;
            if !before.is_empty() {
                pieces.push(Piece::Literal(before.into()));
            }
            pieces.extend(runs_of(run)?);
            rest = left;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.into()));
        }
        let length = |piece: &Piece| match piece {
            Piece::Literal(text) => text.len(),
            Piece::Run { .. } => 0,
        };
        let anchor = match pieces.first()? {
            Piece::Literal(_) => 0,
            Piece::Run { .. } => (0..pieces.len()).max_by_key(|at| length(&pieces[*at]))?,
        };
        let lead = match pieces.get(anchor + 1) {
            Some(Piece::Run { class, least, .. }) if *least >= LEAD => 1 << *class as u32,
            _ => 0,
        };
        let lengths = pieces
            .iter()
            .fold(0..=0, |sum: RangeInclusive<usize>, piece| {
                let (least, most) = match piece {
                    Piece::Literal(text) => (text.len(), text.len()),
                    Piece::Run { least, most, .. } => (*least, *most),
                };
                sum.start() + least..=sum.end().saturating_add(most)
            });
        Some(TokenFormat {
            pieces,
            anchor,
            lead,
            lengths,
        })
    }

    /// Whether the token can be one, by the classes that the characters behind its keyword have in
    /// common.
    pub fn may_match(&self, common: u32) -> bool {
        self.lead == 0 || self.lead & common != 0
    }

    /// The literal that gives the format away: the first piece, or the longest literal after a run.
    pub fn keyword(&self) -> &[u8] {
        match &self.pieces[self.anchor] {
            Piece::Literal(text) => text,
            Piece::Run { .. } => b"",
        }
    }

    /// Whether the keyword is the first piece.
    pub fn starts_with_keyword(&self) -> bool {
        self.anchor == 0
    }

    /// The token around its keyword, which stands at `at`.
    pub fn match_around(&self, runs: &mut RunCache<'_>, at: usize) -> Option<Range<usize>> {
        let mut end = at;
        let last = self.pieces.len() - 1;
        for (number, piece) in self.pieces.iter().enumerate().skip(self.anchor) {
            end = piece.after(runs, end, number, last)?;
        }
        let mut start = at;
        for piece in self.pieces[..self.anchor].iter().rev() {
            start = piece.before(runs, start)?;
        }
        Some(start..end)
    }

    /// Whether the token is all that stands at a place.
    pub fn matches_exactly(&self, runs: &mut RunCache<'_>, place: &Range<usize>) -> bool {
        if !self.lengths.contains(&place.len()) {
            return false;
        }
        let mut end = place.start;
        let last = self.pieces.len() - 1;
        let ends = self.pieces.iter().enumerate().all(|(number, piece)| {
            let after = piece.after(runs, end, number, last);
            end = after.unwrap_or(end);
            after.is_some()
        });
        ends && end == place.end
    }
}

impl Piece {
    /// The end of the piece that begins at a place. The last one goes on for as long as its run does.
    fn after(
        &self,
        runs: &mut RunCache<'_>,
        at: usize,
        number: usize,
        last: usize,
    ) -> Option<usize> {
        match self {
            Piece::Literal(text) => runs.text[at..].starts_with(text).then(|| at + text.len()),
            Piece::Run { class, least, most } => {
                let count = runs.ahead_at(number, *class, at, *most);
                (count >= *least && (count <= *most || number < last))
                    .then(|| at + count.min(*most))
            }
        }
    }

    fn before(&self, runs: &mut RunCache<'_>, at: usize) -> Option<usize> {
        match self {
            Piece::Literal(text) => runs.text[..at].ends_with(text).then(|| at - text.len()),
            Piece::Run { class, least, most } => {
                let count = runs.run_length_before(*class, at, *most).min(*most);
                (count >= *least).then(|| at - count)
            }
        }
    }
}

/// The pieces that one pair of braces stands for.
fn runs_of(run: &str) -> Option<Vec<Piece>> {
    if run == "uuid" {
        return Some(TokenFormat::parse("{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}")?.pieces);
    }
    let (class, count) = run.split_once(':')?;
    let (least, most) = count.split_once('-').unwrap_or((count, count));
    let class = match class {
        "dig" => CharClass::Digit,
        "hex" => CharClass::LowerHex,
        "xdig" => CharClass::AnyHex,
        "upper" => CharClass::UpperAlnum,
        "lower" => CharClass::LowerAlnum,
        "letter" => CharClass::Letter,
        "alnum" => CharClass::Alnum,
        "word" => CharClass::Word,
        "url" => CharClass::Base64Url,
        "dot" => CharClass::Dotted,
        "b32" => CharClass::Base32,
        "b64" => CharClass::Base64,
        "tilde" => CharClass::Unreserved,
        "fly" => CharClass::Base64List,
        "tail" => CharClass::PaddedBase64,
        "free" => CharClass::TokenText,
        "slack" => CharClass::AlnumDash,
        "path" => CharClass::Path,
        "query" => CharClass::QueryBase64,
        "user" => CharClass::User,
        "password" => CharClass::Password,
        _ => return None,
    };
    let least = least.parse().ok()?;
    let most = match most {
        "" => usize::MAX,
        most => most.parse().ok()?,
    };
    Some(vec![Piece::Run { class, least, most }])
}

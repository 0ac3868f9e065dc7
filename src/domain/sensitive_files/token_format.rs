//! Parser and matcher of token formats: `ghp_{alnum:36}` is a literal followed by 36 letters or digits.
//!
//! A format is matched around its keyword. Every other piece is a run of one character class. The end of a
//! run is cached, so that overlapping candidates do not read the same bytes repeatedly. The cost per keyword
//! is therefore bounded for any content.

use std::ops::{Range, RangeInclusive};

/// Character class of a piece of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CharClass {
    /// Digits.
    Digit,
    /// Digits and `a` to `f`.
    LowerHex,
    /// Hexadecimal digits in either case.
    AnyHex,
    /// Upper-case letters and digits.
    UpperAlnum,
    /// Lower-case letters and digits.
    LowerAlnum,
    /// Letters.
    Letter,
    /// Letters and digits.
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Base64Url,
    /// Letters, digits, `_`, `-` and `.`.
    Dotted,
    /// The base32 alphabet.
    Base32,
    /// The standard base64 alphabet.
    Base64,
    /// Base64 in a URL query: also `%` and `=`.
    QueryBase64,
    /// Both base64 alphabets with padding, also percent-encoded.
    PaddedBase64,
    /// Both base64 alphabets.
    AnyBase64,
    /// All characters of tokens: both base64 alphabets, `.`, `=` and `~`.
    TokenText,
    /// Letters, digits and `-`.
    AlnumDash,
    /// Letters, digits, `/`, `-` and `_`.
    Path,
    /// Letters, digits and `_~.-`.
    Unreserved,
    /// Both base64 alphabets with padding, and commas between tokens.
    Base64List,
    /// Characters of identifiers and of dotted setting names.
    SettingName,
    /// Characters of unquoted values. Excludes operators, quotes and brackets.
    UnquotedValue,
    /// Characters of the authority of a URL: user, password and host.
    Authority,
    /// Characters of a key body: base64, white space, quotes and separators of its lines.
    KeyBody,
    /// Characters of a user name in a URL.
    User,
    /// Characters of a password in a URL.
    Password,
}

/// Number of character classes.
const CLASS_COUNT: usize = 26;

/// Character classes of each byte, one bit per class.
const CLASS_BITS: [u32; 256] = {
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

/// Returns whether a byte belongs to a class.
pub(super) fn is_in_class(class: CharClass, byte: u8) -> bool {
    CLASS_BITS[usize::from(byte)] >> class as u32 & 1 == 1
}

/// Number of cached runs per class, so that the runs of one token do not evict each other.
const RUNS_PER_CLASS: usize = 4;

/// Cache of the last runs read, per class and position in a format.
pub(super) struct RunCache<'t> {
    text: &'t [u8],
    runs: [[(usize, usize); RUNS_PER_CLASS]; CLASS_COUNT],
    /// Number of bytes read.
    #[cfg(test)]
    pub steps: usize,
}

impl<'t> RunCache<'t> {
    /// Creates an empty cache for a text.
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self {
            text,
            runs: [[(0, 0); RUNS_PER_CLASS]; CLASS_COUNT],
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Returns the length of the run of a class that starts at a position, counted up to `max + 1`.
    pub(super) fn run_length_after(&mut self, class: CharClass, at: usize, max: usize) -> usize {
        self.run_length_at(0, class, at, max)
    }

    /// Like [`RunCache::run_length_after`], for the piece of a format with this index.
    fn run_length_at(&mut self, piece: usize, class: CharClass, at: usize, max: usize) -> usize {
        // Runs alternate with literals.
        let piece = piece / 2 % RUNS_PER_CLASS;
        let (start, end) = self.runs[class as usize][piece];
        let (start, mut end) = if (start..=end).contains(&at) {
            (start, end)
        } else {
            (at, at)
        };
        let limit = at
            .saturating_add(max)
            .saturating_add(1)
            .min(self.text.len());
        let cached_end = end;
        while end < limit && is_in_class(class, self.text[end]) {
            end += 1;
        }
        self.add_steps(end + 1 - cached_end.min(end));
        self.runs[class as usize][piece] = (start, end);
        end.min(limit).saturating_sub(at)
    }

    /// Returns the classes that the next [`LOOKAHEAD`] bytes have in common, one bit per class. Returns 0
    /// near the end of the text.
    pub(super) fn common_classes(&self, at: usize) -> u32 {
        let ahead = self.text.get(at..at + LOOKAHEAD);
        ahead.map_or(0, |ahead| {
            let classes = ahead.iter().map(|byte| CLASS_BITS[usize::from(*byte)]);
            classes.fold(u32::MAX, |common, classes| common & classes)
        })
    }

    /// Returns the length of the run of a class that ends at a position, counted up to `max + 1`.
    pub(super) fn run_length_before(&mut self, class: CharClass, at: usize, max: usize) -> usize {
        let before = self.text[..at].iter().rev().take(max + 1);
        let count = before.take_while(|byte| is_in_class(class, **byte)).count();
        self.add_steps(count);
        count
    }

    #[cfg(test)]
    fn add_steps(&mut self, steps: usize) {
        self.steps += steps;
    }

    #[cfg(not(test))]
    fn add_steps(&mut self, _: usize) {}
}

/// Part of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Vec<u8>),
    Run {
        class: CharClass,
        min: usize,
        max: usize,
    },
}

/// Format of a token.
#[derive(Debug)]
pub(super) struct TokenFormat {
    pieces: Vec<Piece>,
    /// Index of the piece that is the keyword.
    anchor: usize,
    /// Class bit of the run after the keyword if the run has at least [`LOOKAHEAD`] bytes, otherwise 0.
    lookahead_class: u32,
    /// Minimum and maximum length of a token, in bytes.
    lengths: RangeInclusive<usize>,
}

/// Number of bytes after a keyword that are checked before the format is matched.
const LOOKAHEAD: usize = 8;

impl TokenFormat {
    /// Parses the notation. Returns `None` if it is invalid. A test parses all formats.
    pub(super) fn parse(notation: &str) -> Option<TokenFormat> {
        let mut pieces = Vec::new();
        let mut rest = notation;
        while let Some((before, after)) = rest.split_once('{') {
            let (run, left) = after.split_once('}')?;
            if !before.is_empty() {
                pieces.push(Piece::Literal(before.into()));
            }
            pieces.extend(parse_runs(run)?);
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
        let lookahead_class = match pieces.get(anchor + 1) {
            Some(Piece::Run { class, min, .. }) if *min >= LOOKAHEAD => 1 << *class as u32,
            _ => 0,
        };
        let lengths = pieces
            .iter()
            .fold(0..=0, |sum: RangeInclusive<usize>, piece| {
                let (min, max) = match piece {
                    Piece::Literal(text) => (text.len(), text.len()),
                    Piece::Run { min, max, .. } => (*min, *max),
                };
                sum.start() + min..=sum.end().saturating_add(max)
            });
        Some(TokenFormat {
            pieces,
            anchor,
            lookahead_class,
            lengths,
        })
    }

    /// Returns whether a token can match, by the common classes of the bytes after its keyword.
    pub(super) fn may_match(&self, common: u32) -> bool {
        self.lookahead_class == 0 || self.lookahead_class & common != 0
    }

    /// Returns the literal by which the format is found: the first piece, or the longest literal after a run.
    pub(super) fn keyword(&self) -> &[u8] {
        match &self.pieces[self.anchor] {
            Piece::Literal(text) => text,
            Piece::Run { .. } => b"",
        }
    }

    /// Returns whether the keyword is the first piece.
    pub(super) fn starts_with_keyword(&self) -> bool {
        self.anchor == 0
    }

    /// Matches the token around its keyword, which starts at `at`.
    pub(super) fn match_around(&self, runs: &mut RunCache<'_>, at: usize) -> Option<Range<usize>> {
        let mut end = at;
        let last = self.pieces.len() - 1;
        for (number, piece) in self.pieces.iter().enumerate().skip(self.anchor) {
            end = piece.match_after(runs, end, number, last)?;
        }
        let mut start = at;
        for piece in self.pieces[..self.anchor].iter().rev() {
            start = piece.match_before(runs, start)?;
        }
        Some(start..end)
    }

    /// Returns whether the token fills the range exactly.
    pub(super) fn matches_exactly(&self, runs: &mut RunCache<'_>, range: &Range<usize>) -> bool {
        if !self.lengths.contains(&range.len()) {
            return false;
        }
        let mut end = range.start;
        let last = self.pieces.len() - 1;
        let matches = self.pieces.iter().enumerate().all(|(number, piece)| {
            let after = piece.match_after(runs, end, number, last);
            end = after.unwrap_or(end);
            after.is_some()
        });
        matches && end == range.end
    }
}

impl Piece {
    /// Returns the end of the piece that starts at a position. The last piece must include its whole run.
    fn match_after(
        &self,
        runs: &mut RunCache<'_>,
        at: usize,
        number: usize,
        last: usize,
    ) -> Option<usize> {
        match self {
            Piece::Literal(text) => runs.text[at..].starts_with(text).then(|| at + text.len()),
            Piece::Run { class, min, max } => {
                let count = runs.run_length_at(number, *class, at, *max);
                (count >= *min && (count <= *max || number < last)).then(|| at + count.min(*max))
            }
        }
    }

    /// Returns the start of the piece that ends at a position.
    fn match_before(&self, runs: &mut RunCache<'_>, at: usize) -> Option<usize> {
        match self {
            Piece::Literal(text) => runs.text[..at].ends_with(text).then(|| at - text.len()),
            Piece::Run { class, min, max } => {
                let count = runs.run_length_before(*class, at, *max).min(*max);
                (count >= *min).then(|| at - count)
            }
        }
    }
}

/// Parses the text between a pair of braces.
fn parse_runs(run: &str) -> Option<Vec<Piece>> {
    if run == "uuid" {
        return Some(TokenFormat::parse("{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}")?.pieces);
    }
    let (class, count) = run.split_once(':')?;
    let (min, max) = count.split_once('-').unwrap_or((count, count));
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
    let min = min.parse().ok()?;
    let max = match max {
        "" => usize::MAX,
        max => max.parse().ok()?,
    };
    Some(vec![Piece::Run { class, min, max }])
}

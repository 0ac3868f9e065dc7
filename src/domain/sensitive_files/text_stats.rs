//! Statistics of a text: its set of bytes, character sequences, entropy, and example words.

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use super::word_automaton::WordAutomaton;

/// Set of bytes, as a bitmap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    /// Creates the set of these bytes in a constant context.
    pub(super) const fn of(bytes: &[u8]) -> ByteSet {
        let mut set = ByteSet([0; 4]);
        let mut at = 0;
        while at < bytes.len() {
            set.add(bytes[at]);
            at += 1;
        }
        set
    }

    /// Creates the set of the bytes of a text. Faster than [`ByteSet::of`] for ASCII.
    fn from_text(text: &[u8]) -> ByteSet {
        // Two local variables stay in registers; an array would be loaded and stored for each byte.
        let [mut low, mut high] = [0_u64; 2];
        for byte in text {
            let (bit, is_high) = (1_u64 << (byte & 63), u64::from(byte >> 6 & 1));
            high |= bit & is_high.wrapping_neg();
            low |= bit & is_high.wrapping_sub(1);
        }
        if text.is_ascii() {
            ByteSet([low, high, 0, 0])
        } else {
            ByteSet::of(text)
        }
    }

    const fn add(&mut self, byte: u8) {
        self.0[(byte >> 6) as usize] |= 1 << (byte & 63);
    }

    /// Returns the union of both sets.
    pub(super) const fn with(self, other: ByteSet) -> ByteSet {
        let (a, b) = (self.0, other.0);
        ByteSet([a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]])
    }

    /// Returns whether the set contains a byte.
    pub(super) fn contains(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    /// Returns whether the sets have a byte in common.
    pub(super) fn intersects(self, other: ByteSet) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .any(|(one, other)| one & other != 0)
    }

    /// Returns whether all bytes of this set are in the other one.
    pub(super) fn is_subset(self, other: ByteSet) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .all(|(one, other)| one & !other == 0)
    }

    /// Returns the number of bytes in both sets.
    pub(super) fn intersection_len(self, other: ByteSet) -> usize {
        let both = self.0.iter().zip(other.0);
        both.map(|(one, other)| (one & other).count_ones() as usize)
            .sum()
    }

    /// Returns the number of bytes in the set.
    pub(super) fn len(self) -> usize {
        self.0.iter().map(|part| part.count_ones() as usize).sum()
    }

    /// Returns the set with upper-case letters replaced by lower-case ones.
    fn lowercase(self) -> ByteSet {
        const UPPER: u64 = UPPERCASE.0[1];
        let [first, letters, third, last] = self.0;
        let lower = letters & !UPPER | (letters & UPPER) << 32;
        ByteSet([first, lower, third, last])
    }
}

/// Decimal digits.
pub(super) const DIGIT: ByteSet = ByteSet::of(b"0123456789");
/// Lower-case ASCII letters.
pub(super) const LOWERCASE: ByteSet = ByteSet::of(b"abcdefghijklmnopqrstuvwxyz");
/// Upper-case ASCII letters.
pub(super) const UPPERCASE: ByteSet = ByteSet::of(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ");
/// ASCII letters.
pub(super) const LETTER: ByteSet = LOWERCASE.with(UPPERCASE);
/// ASCII letters and digits.
pub(super) const ALNUM: ByteSet = LETTER.with(DIGIT);

/// Packed properties of a byte: its lower-case form, its successor and its class. One integer per byte keeps
/// the lookup table fast.
#[derive(Debug, Clone, Copy)]
struct CharInfo(u32);

impl CharInfo {
    /// Successor of a byte without one. Not a byte value.
    const NO_SUCCESSOR: u32 = 0x1ff;

    const fn of(byte: u8) -> CharInfo {
        let lower = byte.to_ascii_lowercase() as u32;
        let next = if byte.is_ascii_alphanumeric() {
            lower + 1
        } else {
            CharInfo::NO_SUCCESSOR
        };
        let class: u32 = match byte {
            b'0'..=b'9' => 0,
            b'a'..=b'z' => 1,
            b'A'..=b'Z' => 2,
            _ => 3,
        };
        CharInfo(lower | next << 9 | class << 18)
    }

    /// Returns whether the byte is a digit.
    fn is_digit(self) -> bool {
        self.0 < 1 << 18
    }

    /// Returns whether both are digits, lower-case letters, upper-case letters, or other bytes.
    fn has_class_of(self, other: CharInfo) -> bool {
        (self.0 ^ other.0) < 1 << 18
    }

    /// Returns whether both are the same byte, ignoring case.
    fn equals_ignoring_case(self, other: CharInfo) -> bool {
        (self.0 ^ other.0) & 0x1ff == 0
    }

    /// Returns whether this byte is the successor of the other in the alphabet or the digits.
    fn follows(self, other: CharInfo) -> bool {
        (self.0 ^ other.0 >> 9) & 0x1ff == 0
    }
}

const CHAR_INFO: [CharInfo; 256] = {
    let mut table = [CharInfo(0); 256];
    let mut at = 0;
    while at < 256 {
        table[at] = CharInfo::of(at as u8);
        at += 1;
    }
    table
};

/// Words of example tokens. None is likely in a random token.
const EXAMPLE_WORDS: [&str; 19] = [
    "example",
    "xxxx",
    "****",
    "....",
    "placeholder",
    "your_",
    "your-",
    "yourtoken",
    "yourkey",
    "changeme",
    "change-me",
    "change_me",
    "redacted",
    "insert",
    "replace",
    "dummy",
    "notreal",
    "fake_",
    "fake-",
];

/// Words of placeholder passwords.
const PLACEHOLDER_WORDS: [&str; 5] = ["your", "example", "xxxx", "....", "placeholder"];

static WORDS: LazyLock<WordAutomaton> = LazyLock::new(|| {
    WordAutomaton::new(&[EXAMPLE_WORDS.as_slice(), PLACEHOLDER_WORDS.as_slice()].concat())
});

/// Length of the words that repeat one character.
const REPEATED_WORD_LEN: usize = 4;

/// Bytes of each example and placeholder word, except for words that repeat one character. A text that lacks
/// one of these bytes cannot contain the word.
const WORD_BYTES: [ByteSet; EXAMPLE_WORDS.len() + PLACEHOLDER_WORDS.len()] = {
    let mut sets = [ByteSet([u64::MAX; 4]); EXAMPLE_WORDS.len() + PLACEHOLDER_WORDS.len()];
    let mut at = 0;
    while at < sets.len() {
        let word = match at < EXAMPLE_WORDS.len() {
            true => EXAMPLE_WORDS[at].as_bytes(),
            false => PLACEHOLDER_WORDS[at - EXAMPLE_WORDS.len()].as_bytes(),
        };
        if word[0] != word[1] {
            sets[at] = ByteSet::of(word);
        } else {
            assert!(word.len() == REPEATED_WORD_LEN);
        }
        at += 1;
    }
    sets
};

/// Lazily computed statistics of a text.
#[derive(Debug, Clone)]
pub(super) struct TextStats<'t> {
    /// Analyzed text.
    pub text: &'t [u8],
    /// Set of its bytes.
    pub bytes: ByteSet,
    sequence_stats: OnceCell<SequenceStats>,
    words: OnceCell<WordMatches>,
}

/// Statistics of the order of characters.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SequenceStats {
    /// Number of digits.
    pub digits: usize,
    /// Number of changes between digits, lower-case letters, upper-case letters and other bytes.
    pub class_changes: usize,
    /// Length of the longest run of one character, ignoring case.
    pub longest_repeat: usize,
    /// Length of the longest run of consecutive letters or digits, such as `abcd`.
    pub longest_sequence: usize,
}

/// Kinds of words that a text contains.
#[derive(Debug, Clone, Copy, Default)]
struct WordMatches {
    example: bool,
    placeholder: bool,
}

impl<'t> TextStats<'t> {
    /// Creates the statistics of a text.
    pub(super) fn of(text: &'t [u8]) -> Self {
        TextStats {
            text,
            bytes: ByteSet::from_text(text),
            sequence_stats: OnceCell::new(),
            words: OnceCell::new(),
        }
    }

    /// Returns the statistics of the order of characters.
    pub(super) fn sequence_stats(&self) -> &SequenceStats {
        self.sequence_stats.get_or_init(|| {
            let mut stats = SequenceStats::default();
            let Some((first, rest)) = self.text.split_first() else {
                return stats;
            };
            // Start of the current repeat and of the current sequence.
            let (mut repeat_start, mut sequence_start) = (0, 0);
            let mut previous = CHAR_INFO[usize::from(*first)];
            stats.digits = usize::from(previous.is_digit());
            for (at, byte) in (1..).zip(rest) {
                let info = CHAR_INFO[usize::from(*byte)];
                stats.digits += usize::from(info.is_digit());
                stats.class_changes += usize::from(!info.has_class_of(previous));
                repeat_start = if info.equals_ignoring_case(previous) {
                    repeat_start
                } else {
                    at
                };
                sequence_start = if info.follows(previous) {
                    sequence_start
                } else {
                    at
                };
                stats.longest_repeat = stats.longest_repeat.max(at - repeat_start);
                stats.longest_sequence = stats.longest_sequence.max(at - sequence_start);
                previous = info;
            }
            stats.longest_repeat += 1;
            stats.longest_sequence += 1;
            stats
        })
    }

    /// Searches the text for example and placeholder words.
    fn words(&self) -> WordMatches {
        *self.words.get_or_init(|| {
            let mut found = WordMatches::default();
            let lower = self.bytes.lowercase();
            let has_run = || self.sequence_stats().longest_repeat >= REPEATED_WORD_LEN;
            if !WORD_BYTES.iter().any(|word| word.is_subset(lower)) && !has_run() {
                return found;
            }
            WORDS.for_each_match(self.text, |word, _| {
                match word < EXAMPLE_WORDS.len() {
                    true => found.example = true,
                    false => found.placeholder = true,
                }
                ControlFlow::Continue(())
            });
            found
        })
    }

    /// Returns whether the text contains an example word.
    pub(super) fn has_example_word(&self) -> bool {
        self.words().example
    }

    /// Returns whether the text contains a placeholder word.
    pub(super) fn has_placeholder_word(&self) -> bool {
        self.words().placeholder
    }

    /// Returns the number of distinct bytes.
    pub(super) fn distinct_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of distinct bytes, ignoring case.
    pub(super) fn distinct_letters(&self) -> usize {
        self.bytes.lowercase().len()
    }

    /// Returns the number of digits.
    pub(super) fn digits(&self) -> usize {
        self.sequence_stats().digits
    }

    /// Returns whether the Shannon entropy is at least `min_bits` per byte.
    pub(super) fn has_min_entropy(&self, min_bits: f64) -> bool {
        let length = self.text.len();
        // The entropy is lowest if all distinct bytes but one occur once. That bound often suffices.
        if let Some(whole) = ENTROPY_TABLES.products.get(length)
            && whole - ENTROPY_TABLES.products[(length + 1).saturating_sub(self.distinct_bytes())]
                >= min_bits * length as f64
        {
            return true;
        }
        let mut counts = [0_u16; 256];
        let mut sum = 0;
        for byte in self.text {
            let count = &mut counts[usize::from(*byte)];
            sum += ENTROPY_TABLES.steps[usize::from(*count).min(TABLE_LEN - 1)];
            *count = count.saturating_add(1);
        }
        let whole = ENTROPY_TABLES.products.get(length).copied();
        let rest = whole.unwrap_or_else(|| product(length)) - sum as f64 / FIXED_POINT_SCALE;
        rest >= (min_bits - 1e-9) * length as f64
    }
}

/// Length of the tables. Longer texts are computed without them.
const TABLE_LEN: usize = 1 << 10;

/// Fixed-point scale of the entropy sum. Integers are added faster than floats.
const FIXED_POINT_SCALE: f64 = (1_u64 << 40) as f64;

/// Tables of `count * log2(count)` and of its increments in fixed point.
struct EntropyTables {
    products: Vec<f64>,
    steps: Vec<u64>,
}

static ENTROPY_TABLES: LazyLock<EntropyTables> = LazyLock::new(|| EntropyTables {
    products: (0..TABLE_LEN).map(product).collect(),
    steps: (0..TABLE_LEN)
        .map(|count| ((product(count + 1) - product(count)) * FIXED_POINT_SCALE).round() as u64)
        .collect(),
});

/// Returns `count * log2(count)`.
fn product(count: usize) -> f64 {
    count as f64 * (count.max(1) as f64).log2()
}

//! What one reading of a text shows: which characters it has, how they change, and which words.

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use super::word_automaton::WordAutomaton;

/// A set of bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ByteSet([u64; 4]);

impl ByteSet {
    pub const fn of(bytes: &[u8]) -> ByteSet {
        let mut set = ByteSet([0; 4]);
        let mut at = 0;
        while at < bytes.len() {
            set.add(bytes[at]);
            at += 1;
        }
        set
    }

    /// The bytes of a text.
    fn among(text: &[u8]) -> ByteSet {
        // Two registers: a place in memory would be read again for each byte.
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

    pub const fn with(self, other: ByteSet) -> ByteSet {
        let (a, b) = (self.0, other.0);
        ByteSet([a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]])
    }

    pub fn contains(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    pub fn intersects(self, other: ByteSet) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .any(|(one, other)| one & other != 0)
    }

    pub fn is_subset(self, other: ByteSet) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .all(|(one, other)| one & !other == 0)
    }

    /// How many bytes both sets have.
    pub fn intersection_len(self, other: ByteSet) -> usize {
        let both = self.0.iter().zip(other.0);
        both.map(|(one, other)| (one & other).count_ones() as usize)
            .sum()
    }

    pub fn len(self) -> usize {
        self.0.iter().map(|part| part.count_ones() as usize).sum()
    }

    /// The set in small letters.
    fn lowercase(self) -> ByteSet {
        const CAPITALS: u64 = UPPERCASE.0[1];
        let [first, letters, third, last] = self.0;
        let small = letters & !CAPITALS | (letters & CAPITALS) << 32;
        ByteSet([first, small, third, last])
    }
}

pub(super) const DIGIT: ByteSet = ByteSet::of(b"0123456789");
pub(super) const LOWERCASE: ByteSet = ByteSet::of(b"abcdefghijklmnopqrstuvwxyz");
pub(super) const UPPERCASE: ByteSet = ByteSet::of(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ");
pub(super) const LETTER: ByteSet = LOWERCASE.with(UPPERCASE);
pub(super) const ALNUM: ByteSet = LETTER.with(DIGIT);

/// What is compared of a byte, in one number: a table of numbers is read fastest.
#[derive(Debug, Clone, Copy)]
struct Letter(u32);

impl Letter {
    /// What comes next in the alphabet where nothing does: no byte.
    const NONE: u32 = 0x1ff;

    const fn of(byte: u8) -> Letter {
        let small = byte.to_ascii_lowercase() as u32;
        let next = if byte.is_ascii_alphanumeric() {
            small + 1
        } else {
            Letter::NONE
        };
        let kind: u32 = match byte {
            b'0'..=b'9' => 0,
            b'a'..=b'z' => 1,
            b'A'..=b'Z' => 2,
            _ => 3,
        };
        Letter(small | next << 9 | kind << 18)
    }

    fn is_digit(self) -> bool {
        self.0 < 1 << 18
    }

    /// Whether both are digits, small letters, capitals or else.
    fn is_of_kind(self, other: Letter) -> bool {
        (self.0 ^ other.0) < 1 << 18
    }

    /// Whether both are the same letter, in either case.
    fn is_same(self, other: Letter) -> bool {
        (self.0 ^ other.0) & 0x1ff == 0
    }

    /// Whether it comes after the other in the alphabet.
    fn follows(self, other: Letter) -> bool {
        (self.0 ^ other.0 >> 9) & 0x1ff == 0
    }
}

const LETTERS: [Letter; 256] = {
    let mut letters = [Letter(0); 256];
    let mut at = 0;
    while at < 256 {
        letters[at] = Letter::of(at as u8);
        at += 1;
    }
    letters
};

/// What manuals and tests write into a token. None of these is likely in a random one.
const TELLING: [&str; 19] = [
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

/// The same for passwords, of which one may hold more.
const PLACEHOLDERS: [&str; 5] = ["your", "example", "xxxx", "....", "placeholder"];

static WORDS: LazyLock<WordAutomaton> =
    LazyLock::new(|| WordAutomaton::new(&[TELLING.as_slice(), PLACEHOLDERS.as_slice()].concat()));

/// Words of one character have so many of it.
const SHORTEST_RUN: usize = 4;

/// What these words are made of, but for those of one character. Few texts have all letters of one.
const PARTS: [ByteSet; TELLING.len() + PLACEHOLDERS.len()] = {
    let mut parts = [ByteSet([u64::MAX; 4]); TELLING.len() + PLACEHOLDERS.len()];
    let mut at = 0;
    while at < parts.len() {
        let word = match at < TELLING.len() {
            true => TELLING[at].as_bytes(),
            false => PLACEHOLDERS[at - TELLING.len()].as_bytes(),
        };
        if word[0] != word[1] {
            parts[at] = ByteSet::of(word);
        } else {
            assert!(word.len() == SHORTEST_RUN);
        }
        at += 1;
    }
    parts
};

/// What a text shows.
#[derive(Debug, Clone)]
pub(super) struct TextStats<'t> {
    pub text: &'t [u8],
    /// The bytes that it is made of.
    pub bytes: ByteSet,
    order: OnceCell<SequenceStats>,
    words: OnceCell<Found>,
}

/// What the order of the characters shows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SequenceStats {
    pub digits: usize,
    /// How often digits, small letters, capitals and all else take turns.
    pub class_changes: usize,
    /// The longest stretch of one character, in either case.
    pub longest_repeat: usize,
    /// The longest stretch in which each letter or digit is followed by the next of the alphabet.
    pub longest_sequence: usize,
}

/// Which words stand in a text.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    telling: bool,
    placeholder: bool,
}

impl<'t> TextStats<'t> {
    pub fn of(text: &'t [u8]) -> Self {
        TextStats {
            text,
            bytes: ByteSet::among(text),
            order: OnceCell::new(),
            words: OnceCell::new(),
        }
    }

    pub fn sequence_stats(&self) -> &SequenceStats {
        self.order.get_or_init(|| {
            let mut order = SequenceStats::default();
            let Some((first, rest)) = self.text.split_first() else {
                return order;
            };
            // Where the last stretch of either kind began.
            let (mut same, mut rising) = (0, 0);
            let mut previous = LETTERS[usize::from(*first)];
            order.digits = usize::from(previous.is_digit());
            for (at, byte) in (1..).zip(rest) {
                let letter = LETTERS[usize::from(*byte)];
                order.digits += usize::from(letter.is_digit());
                order.class_changes += usize::from(!letter.is_of_kind(previous));
                same = if letter.is_same(previous) { same } else { at };
                rising = if letter.follows(previous) { rising } else { at };
                order.longest_repeat = order.longest_repeat.max(at - same);
                order.longest_sequence = order.longest_sequence.max(at - rising);
                previous = letter;
            }
            order.longest_repeat += 1;
            order.longest_sequence += 1;
            order
        })
    }

    fn words(&self) -> Found {
        *self.words.get_or_init(|| {
            let mut found = Found::default();
            let small = self.bytes.lowercase();
            let has_run = || self.sequence_stats().longest_repeat >= SHORTEST_RUN;
            if !PARTS.iter().any(|word| word.is_subset(small)) && !has_run() {
                return found;
            }
            WORDS.for_each_match(self.text, |word, _| {
                match word < TELLING.len() {
                    true => found.telling = true,
                    false => found.placeholder = true,
                }
                ControlFlow::Continue(())
            });
            found
        })
    }

    /// It holds a word of manuals.
    pub fn has_example_word(&self) -> bool {
        self.words().telling
    }

    /// It holds a word that stands for a password.
    pub fn has_placeholder_word(&self) -> bool {
        self.words().placeholder
    }

    /// How many different characters it has.
    pub fn distinct_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The same without a difference between capitals and small letters.
    pub fn distinct_letters(&self) -> usize {
        self.bytes.lowercase().len()
    }

    /// How many digits it has.
    pub fn digits(&self) -> usize {
        self.sequence_stats().digits
    }

    /// Whether the Shannon entropy is at least so many bits a byte.
    pub fn has_min_entropy(&self, least: f64) -> bool {
        let length = self.text.len();
        // It is lowest where all but one character stand once.
        if let Some(whole) = PRODUCTS.products.get(length)
            && whole - PRODUCTS.products[(length + 1).saturating_sub(self.distinct_bytes())]
                >= least * length as f64
        {
            return true;
        }
        let mut counts = [0_u16; 256];
        let mut sum = 0;
        for byte in self.text {
            let count = &mut counts[usize::from(*byte)];
            sum += PRODUCTS.steps[usize::from(*count).min(LONGEST - 1)];
            *count = count.saturating_add(1);
        }
        let whole = PRODUCTS.products.get(length).copied();
        let rest = whole.unwrap_or_else(|| product(length)) - sum as f64 / UNIT;
        rest >= (least - 1e-9) * length as f64
    }
}

/// The longest text for which there is a table.
const LONGEST: usize = 1 << 10;

/// Parts of a bit: whole numbers are added faster.
const UNIT: f64 = (1_u64 << 40) as f64;

/// `count * log2(count)` for small counts, and by how many parts of a bit it grows with each more.
struct Products {
    products: Vec<f64>,
    steps: Vec<u64>,
}

static PRODUCTS: LazyLock<Products> = LazyLock::new(|| Products {
    products: (0..LONGEST).map(product).collect(),
    steps: (0..LONGEST)
        .map(|count| ((product(count + 1) - product(count)) * UNIT).round() as u64)
        .collect(),
});

fn product(count: usize) -> f64 {
    count as f64 * (count.max(1) as f64).log2()
}

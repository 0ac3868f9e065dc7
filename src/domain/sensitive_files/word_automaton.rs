//! An automaton of words, read one byte after the other.

use std::ops::{ControlFlow, Range};

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, PatternID};

/// Finds every occurrence of every word, in either case, overlapping ones too.
pub(super) struct WordAutomaton {
    automaton: DFA,
    start: StateID,
}

impl WordAutomaton {
    #[expect(clippy::unwrap_used, reason = "the words are constants")]
    pub fn new(words: &[impl AsRef<[u8]>]) -> WordAutomaton {
        let mut builder = DFA::builder();
        builder.ascii_case_insensitive(true).prefilter(false);
        let automaton = builder.build(words).unwrap();
        let start = automaton.start_state(Anchored::No).unwrap();
        WordAutomaton { automaton, start }
    }

    /// Calls back for every word in a text, with its number and its place, until told to break.
    pub fn for_each_match(
        &self,
        text: &[u8],
        mut found: impl FnMut(usize, Range<usize>) -> ControlFlow<()>,
    ) {
        let mut state = self.start;
        for (at, byte) in text.iter().enumerate() {
            state = self.next_state(state, *byte);
            for word in self.words_ending_at(state) {
                let place = at + 1 - self.word_len(word)..at + 1;
                if found(word, place).is_break() {
                    return;
                }
            }
        }
    }

    /// Whether one of the words stands in a text.
    pub fn is_match(&self, text: &[u8]) -> bool {
        let mut is_one = false;
        self.for_each_match(text, |_, _| {
            is_one = true;
            ControlFlow::Break(())
        });
        is_one
    }

    /// The state before the first byte.
    pub fn start_state(&self) -> StateID {
        self.start
    }

    pub fn next_state(&self, state: StateID, byte: u8) -> StateID {
        self.automaton.next_state(Anchored::No, state, byte)
    }

    /// The numbers of the words that end at a state.
    pub fn words_ending_at(&self, state: StateID) -> impl Iterator<Item = usize> + '_ {
        let count = match self.automaton.is_special(state) && self.automaton.is_match(state) {
            true => self.automaton.match_len(state),
            false => 0,
        };
        (0..count).map(move |at| self.automaton.match_pattern(state, at).as_usize())
    }

    /// The length of a word.
    pub fn word_len(&self, word: usize) -> usize {
        self.automaton.pattern_len(PatternID::must(word))
    }
}

//! Case-insensitive multi-word automaton that can be advanced byte by byte.

use std::ops::{ControlFlow, Range};

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, PatternID};

/// Automaton that finds all occurrences of all words, ignoring case, including overlapping ones.
pub(super) struct WordAutomaton {
    automaton: DFA,
    start: StateID,
}

impl WordAutomaton {
    /// Builds the automaton.
    #[expect(clippy::unwrap_used, reason = "the words are constants")]
    pub(super) fn new(words: &[impl AsRef<[u8]>]) -> WordAutomaton {
        let mut builder = DFA::builder();
        builder.ascii_case_insensitive(true).prefilter(false);
        let automaton = builder.build(words).unwrap();
        let start = automaton.start_state(Anchored::No).unwrap();
        WordAutomaton { automaton, start }
    }

    /// Calls `found` with the index and the range of every word in a text, until `found` returns `Break`.
    pub(super) fn for_each_match(
        &self,
        text: &[u8],
        mut found: impl FnMut(usize, Range<usize>) -> ControlFlow<()>,
    ) {
        let mut state = self.start;
        for (at, byte) in text.iter().enumerate() {
            state = self.next_state(state, *byte);
            for word in self.words_ending_at(state) {
                let range = at + 1 - self.word_len(word)..at + 1;
                if found(word, range).is_break() {
                    return;
                }
            }
        }
    }

    /// Returns whether the text contains one of the words.
    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        let mut is_match = false;
        self.for_each_match(text, |_, _| {
            is_match = true;
            ControlFlow::Break(())
        });
        is_match
    }

    /// Returns the state before the first byte.
    pub(super) fn start_state(&self) -> StateID {
        self.start
    }

    /// Returns the state after a byte.
    pub(super) fn next_state(&self, state: StateID, byte: u8) -> StateID {
        self.automaton.next_state(Anchored::No, state, byte)
    }

    /// Returns the indexes of the words that end at a state.
    pub(super) fn words_ending_at(&self, state: StateID) -> impl Iterator<Item = usize> + '_ {
        let count = match self.automaton.is_special(state) && self.automaton.is_match(state) {
            true => self.automaton.match_len(state),
            false => 0,
        };
        (0..count).map(move |at| self.automaton.match_pattern(state, at).as_usize())
    }

    /// Returns the length of a word, in bytes.
    pub(super) fn word_len(&self, word: usize) -> usize {
        self.automaton.pattern_len(PatternID::must(word))
    }
}

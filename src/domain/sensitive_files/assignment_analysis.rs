//! Cached analysis of an assignment: name kind, value statistics, and secret checks.

use std::cell::OnceCell;

use super::assignment::Assignment;
use super::content_scan::Confidence;
use super::scan_pass::{MAX_VENDOR_DISTANCE, VendorMention};
use super::secret_name::SecretNameKind;
use super::text_stats::{ByteSet, TextStats};
use super::value_heuristics::is_secret_length;

/// Assignment with lazily computed properties of its name and value.
pub(super) struct AssignmentAnalysis<'t> {
    /// Analyzed assignment.
    pub assignment: Assignment,
    /// Start of the assignment in the source text of a decoded view, if it was copied unchanged.
    source_start: Option<usize>,
    stats: OnceCell<TextStats<'t>>,
    name_kind: OnceCell<Option<SecretNameKind>>,
    is_credential: OnceCell<bool>,
    is_random: OnceCell<bool>,
}

impl<'t> AssignmentAnalysis<'t> {
    /// Creates an analysis. `source_start` is the assignment's position in the source text of a decoded view.
    pub(super) fn new(assignment: Assignment, source_start: Option<usize>) -> Self {
        Self {
            assignment,
            source_start,
            stats: OnceCell::new(),
            name_kind: OnceCell::new(),
            is_credential: OnceCell::new(),
            is_random: OnceCell::new(),
        }
    }

    /// Returns whether the scan of the source text has already checked this assignment against the vendor:
    /// the distance to the vendor's name is small enough there.
    pub(super) fn is_duplicate_for(&self, vendor: VendorMention) -> bool {
        let Some((start, end)) = self.source_start.zip(vendor.source_end) else {
            return false;
        };
        let value = start + self.assignment.value.start - self.assignment.name.start;
        end + MAX_VENDOR_DISTANCE >= value
    }

    /// Returns the statistics of the value.
    pub(super) fn stats(&self, text: &'t [u8]) -> &TextStats<'t> {
        let value = self.assignment.value.clone();
        self.stats.get_or_init(|| TextStats::of(&text[value]))
    }

    /// Returns the kind of secret that the name indicates, or `None`.
    pub(super) fn name_kind(&self, text: &'t [u8]) -> Option<SecretNameKind> {
        let name = self.assignment.name.clone();
        *self
            .name_kind
            .get_or_init(|| SecretNameKind::classify(&text[name]))
    }

    /// Returns whether the value is a literal and not an expression.
    pub(super) fn is_literal(&self, text: &'t [u8]) -> bool {
        self.assignment.is_quoted
            || (self.assignment.is_plain_value(text) && self.stats(text).may_be_unquoted_secret())
    }

    /// Returns whether the value looks like a credential and the name indicates one.
    pub(super) fn is_credential(&self, text: &'t [u8]) -> bool {
        let is_match = || {
            let stats = self.stats(text);
            stats.has_token_shape()
                && self.name_kind(text).is_some()
                && stats.is_credential()
                && self.is_literal(text)
        };
        *self.is_credential.get_or_init(is_match)
    }

    /// Returns whether the value is one word and looks random.
    pub(super) fn is_random(&self, text: &'t [u8]) -> bool {
        const SPACE: ByteSet = ByteSet::of(b" \t");
        let is_match = || {
            let stats = self.stats(text);
            !stats.bytes.intersects(SPACE) && stats.is_random() && self.is_literal(text)
        };
        *self.is_random.get_or_init(is_match)
    }

    /// Returns the confidence that the value is a secret, without regard to vendor names.
    pub(super) fn generic_confidence(
        &self,
        is_config_file: bool,
        is_source_file: bool,
        text: &'t [u8],
    ) -> Option<Confidence> {
        if !is_secret_length(self.assignment.value.len()) {
            return None;
        }
        let stats = self.stats(text);
        if !stats.may_be_secret() {
            return None;
        }
        let name = self.name_kind(text)?;
        let is_likely = (name != SecretNameKind::GenericKey || stats.is_random_with_symbols())
            && self.is_likely(name, is_config_file, text);
        let is_possible = || {
            stats.text.len() >= 16
                && (self.assignment.is_quoted || is_config_file)
                && stats.is_high_entropy()
                && self.is_literal(text)
        };
        let confidence = match is_likely {
            // Literals in source code include table keys, identifiers and test vectors.
            true if is_source_file
                && name != SecretNameKind::Password
                && !stats.is_random_with_symbols() =>
            {
                Confidence::Possible
            }
            true => Confidence::Likely,
            false if is_possible() => Confidence::Possible,
            false => return None,
        };
        (!stats.is_excluded()).then_some(confidence)
    }

    fn is_likely(&self, name: SecretNameKind, is_config_file: bool, text: &'t [u8]) -> bool {
        let (stats, assignment) = (self.stats(text), &self.assignment);
        let is_literal_value =
            || assignment.is_quoted || (assignment.is_terminated(text) && !stats.is_identifier());
        let is_password = || name == SecretNameKind::Password && stats.is_password();
        let is_random = || stats.is_credential() || stats.is_random_with_symbols();
        let is_certain = || stats.is_certainly_random() || stats.is_random_with_symbols();
        let is_match = match assignment.operator {
            // Lists of words or values.
            b',' => assignment.is_quoted && (is_certain() || is_password()),
            b' ' => assignment.is_config_line(text) && (is_password() || is_random()),
            _ if assignment.is_quoted || is_config_file || assignment.is_config_line(text) => {
                is_password() || is_random()
            }
            // An unquoted value in source code is usually a variable.
            _ => is_certain(),
        };
        is_match && is_literal_value()
    }
}

//! A name with its value, judged at most once.

use std::cell::OnceCell;

use super::assignment::Assignment;
use super::content_scan::Confidence;
use super::scan_pass::{MAX_VENDOR_DISTANCE, VendorMention};
use super::secret_name::SecretNameKind;
use super::text_stats::{ByteSet, TextStats};
use super::value_heuristics::is_secret_length;

/// A name with its value, and what is known of the value.
pub(super) struct AssignmentAnalysis<'t> {
    pub assignment: Assignment,
    /// Where it stands in the text that a view was made of.
    copied: Option<usize>,
    traits: OnceCell<TextStats<'t>>,
    secret: OnceCell<Option<SecretNameKind>>,
    is_credential: OnceCell<bool>,
    is_random: OnceCell<bool>,
}

impl<'t> AssignmentAnalysis<'t> {
    pub fn new(assignment: Assignment, copied: Option<usize>) -> Self {
        Self {
            assignment,
            copied,
            traits: OnceCell::new(),
            secret: OnceCell::new(),
            is_credential: OnceCell::new(),
            is_random: OnceCell::new(),
        }
    }

    /// Whether it was read with a vendor's name in the text that a view was made of: they stand as near
    /// there.
    pub fn is_duplicate_for(&self, vendor: VendorMention) -> bool {
        let Some((start, end)) = self.copied.zip(vendor.source_end) else {
            return false;
        };
        let value = start + self.assignment.value.start - self.assignment.name.start;
        end + MAX_VENDOR_DISTANCE >= value
    }

    pub fn traits(&self, text: &'t [u8]) -> &TextStats<'t> {
        let value = self.assignment.value.clone();
        self.traits.get_or_init(|| TextStats::of(&text[value]))
    }

    /// What the name says of the value; nothing where it is no secret's.
    pub fn name_kind(&self, text: &'t [u8]) -> Option<SecretNameKind> {
        let name = self.assignment.name.clone();
        *self
            .secret
            .get_or_init(|| SecretNameKind::classify(&text[name]))
    }

    pub fn is_literal(&self, text: &'t [u8]) -> bool {
        self.assignment.is_quoted
            || (self.assignment.is_plain_value(text) && self.traits(text).may_be_unquoted_secret())
    }

    /// The value can be anybody's credential.
    pub fn is_credential(&self, text: &'t [u8]) -> bool {
        let is_one = || {
            let traits = self.traits(text);
            traits.has_token_shape()
                && self.name_kind(text).is_some()
                && traits.is_credential()
                && self.is_literal(text)
        };
        *self.is_credential.get_or_init(is_one)
    }

    /// The value is one word and varies as a random one does.
    pub fn is_random(&self, text: &'t [u8]) -> bool {
        const SPACE: ByteSet = ByteSet::of(b" \t");
        let is_one = || {
            let traits = self.traits(text);
            !traits.bytes.intersects(SPACE) && traits.is_random() && self.is_literal(text)
        };
        *self.is_random.get_or_init(is_one)
    }

    /// How surely the value is a secret where no vendor is named.
    pub fn generic_confidence(
        &self,
        is_settings: bool,
        is_program: bool,
        text: &'t [u8],
    ) -> Option<Confidence> {
        if !is_secret_length(self.assignment.value.len()) {
            return None;
        }
        let traits = self.traits(text);
        if !traits.may_be_secret() {
            return None;
        }
        let name = self.name_kind(text)?;
        let is_likely = (name != SecretNameKind::GenericKey || traits.is_random_with_symbols())
            && self.is_likely(name, is_settings, text);
        let is_possible = || {
            traits.text.len() >= 16
                && (self.assignment.is_quoted || is_settings)
                && traits.is_high_entropy()
                && self.is_literal(text)
        };
        let strength = match is_likely {
            // Keys of tables, identifiers and test vectors stand among literals.
            true if is_program
                && name != SecretNameKind::Password
                && !traits.is_random_with_symbols() =>
            {
                Confidence::Possible
            }
            true => Confidence::Likely,
            false if is_possible() => Confidence::Possible,
            false => return None,
        };
        (!traits.is_excluded()).then_some(strength)
    }

    fn is_likely(&self, name: SecretNameKind, is_settings: bool, text: &'t [u8]) -> bool {
        let (traits, read) = (self.traits(text), &self.assignment);
        let is_set = || read.is_quoted || (read.is_terminated(text) && !traits.is_identifier());
        let is_password = || name == SecretNameKind::Password && traits.is_password();
        let is_drawn = || traits.is_credential() || traits.is_random_with_symbols();
        let is_sure = || traits.is_certainly_random() || traits.is_random_with_symbols();
        let is_one = match read.operator {
            // Lists of words, and values beside each other.
            b',' => read.is_quoted && (is_sure() || is_password()),
            b' ' => read.is_config_line(text) && (is_password() || is_drawn()),
            _ if read.is_quoted || is_settings || read.is_config_line(text) => {
                is_password() || is_drawn()
            }
            // Between the words of a program a value without quotes mostly is a variable.
            _ => is_sure(),
        };
        is_one && is_set()
    }
}

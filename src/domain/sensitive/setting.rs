//! A name with its value, judged at most once.

use std::cell::OnceCell;

use super::assignment::Assignment;
use super::look::{NEAR, Vendor};
use super::traits::{Set, Traits};

/// A name with its value, and what is known of the value.
pub(super) struct Setting<'t> {
    pub assignment: Assignment,
    /// Where it stands in the text that a view was made of.
    copied: Option<usize>,
    traits: OnceCell<Traits<'t>>,
    is_secret: OnceCell<bool>,
    is_credential: OnceCell<bool>,
    is_random: OnceCell<bool>,
}

impl<'t> Setting<'t> {
    pub fn new(assignment: Assignment, copied: Option<usize>) -> Self {
        Self {
            assignment,
            copied,
            traits: OnceCell::new(),
            is_secret: OnceCell::new(),
            is_credential: OnceCell::new(),
            is_random: OnceCell::new(),
        }
    }

    /// Whether it was read with a vendor's name in the text that a view was made of: they stand as near
    /// there.
    pub fn is_known_with(&self, vendor: Vendor) -> bool {
        let Some((start, end)) = self.copied.zip(vendor.copied) else {
            return false;
        };
        let value = start + self.assignment.value.start - self.assignment.name.start;
        end + NEAR >= value
    }

    pub fn traits(&self, text: &'t [u8]) -> &Traits<'t> {
        let value = self.assignment.value.clone();
        self.traits.get_or_init(|| Traits::of(&text[value]))
    }

    /// The name is that of a secret, and the value no expression.
    pub fn is_secret(&self, text: &'t [u8]) -> bool {
        *self
            .is_secret
            .get_or_init(|| self.assignment.is_secret(text))
    }

    pub fn is_literal(&self, text: &'t [u8]) -> bool {
        self.assignment.is_quoted
            || (self.assignment.is_plain(text) && self.traits(text).is_value())
    }

    /// The value can be anybody's credential.
    pub fn is_credential(&self, text: &'t [u8]) -> bool {
        let is_one = || {
            let traits = self.traits(text);
            traits.is_token()
                && self.is_secret(text)
                && traits.is_credential()
                && self.is_literal(text)
        };
        *self.is_credential.get_or_init(is_one)
    }

    /// The value is one word and varies as a random one does.
    pub fn is_random(&self, text: &'t [u8]) -> bool {
        const SPACE: Set = Set::of(b" \t");
        let is_one = || {
            let traits = self.traits(text);
            !traits.bytes.meets(SPACE) && traits.is_random() && self.is_literal(text)
        };
        *self.is_random.get_or_init(is_one)
    }

    /// Whether the value counts where no vendor is named: in quotes, or in a file of settings.
    pub fn is_generic(&self, is_settings: bool, text: &'t [u8]) -> bool {
        (16..=128).contains(&self.assignment.value.len())
            && (self.assignment.is_quoted || is_settings)
            && self.traits(text).is_suspicious()
            && self.is_secret(text)
            && self.is_literal(text)
    }
}

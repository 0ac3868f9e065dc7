//! A name with its value, judged at most once.

use std::cell::OnceCell;

use super::assignment::Assignment;
use super::chosen::may_be_secret;
use super::contents::Strength;
use super::look::{NEAR, Vendor};
use super::secret_name::Secret;
use super::traits::{Set, Traits};

/// A name with its value, and what is known of the value.
pub(super) struct Setting<'t> {
    pub assignment: Assignment,
    /// Where it stands in the text that a view was made of.
    copied: Option<usize>,
    traits: OnceCell<Traits<'t>>,
    secret: OnceCell<Option<Secret>>,
    is_credential: OnceCell<bool>,
    is_random: OnceCell<bool>,
}

impl<'t> Setting<'t> {
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

    /// What the name says of the value; nothing where it is no secret's.
    pub fn secret(&self, text: &'t [u8]) -> Option<Secret> {
        let name = self.assignment.name.clone();
        *self.secret.get_or_init(|| Secret::of(&text[name]))
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
                && self.secret(text).is_some()
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

    /// How surely the value is a secret where no vendor is named.
    pub fn generic(&self, is_settings: bool, is_program: bool, text: &'t [u8]) -> Option<Strength> {
        if !may_be_secret(self.assignment.value.len()) {
            return None;
        }
        let traits = self.traits(text);
        if !traits.may_be_secret() {
            return None;
        }
        let name = self.secret(text)?;
        let is_likely =
            (name != Secret::Key || traits.is_noise()) && self.is_likely(name, is_settings, text);
        let is_possible = || {
            traits.text.len() >= 16
                && (self.assignment.is_quoted || is_settings)
                && traits.is_suspicious()
                && self.is_literal(text)
        };
        let strength = match is_likely {
            // Keys of tables, identifiers and test vectors stand among literals.
            true if is_program && name != Secret::Password && !traits.is_noise() => {
                Strength::Possible
            }
            true => Strength::Likely,
            false if is_possible() => Strength::Possible,
            false => return None,
        };
        (!traits.stands_for_another()).then_some(strength)
    }

    fn is_likely(&self, name: Secret, is_settings: bool, text: &'t [u8]) -> bool {
        let (traits, read) = (self.traits(text), &self.assignment);
        let is_set = || read.is_quoted || (read.ends(text) && !traits.is_identifier());
        let is_password = || name == Secret::Password && traits.is_password();
        let is_drawn = || traits.is_credential() || traits.is_noise();
        let is_sure = || traits.is_surely_drawn() || traits.is_noise();
        let is_one = match read.operator {
            // Lists of words, and values beside each other.
            b',' => read.is_quoted && (is_sure() || is_password()),
            b' ' => read.is_line(text) && (is_password() || is_drawn()),
            _ if read.is_quoted || is_settings || read.is_line(text) => is_password() || is_drawn(),
            // Between the words of a program a value without quotes mostly is a variable.
            _ => is_sure(),
        };
        is_one && is_set()
    }
}

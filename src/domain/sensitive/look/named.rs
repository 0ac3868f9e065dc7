//! Rules with a matcher of their own.

use std::ops::Range;

use super::Look;
use crate::sensitive::contents::Strength;
use crate::sensitive::rules::Kind;
use crate::sensitive::scanner::SCANNER;
use crate::sensitive::shape::Shape;
use crate::sensitive::traits::Traits;
use crate::sensitive::{around, assignment, plausible, special};

impl Look<'_> {
    pub(super) fn special(&mut self, order: usize, keyword: Range<usize>) {
        let rule = SCANNER.rules[order];
        let found = match rule.kind {
            Kind::Armor => special::armor(&mut self.runs, self.text, &keyword),
            Kind::Url => {
                let found = special::url(&mut self.runs, self.text, &keyword);
                if let Some((kind, place, strength)) = found {
                    self.push(SCANNER.first(kind), place, strength);
                }
                return;
            }
            Kind::Header => special::header(&mut self.runs, self.text, &keyword),
            Kind::Argument => {
                let argued = &mut self.argued[keyword.len().min(15)];
                if keyword.start < *argued {
                    return;
                }
                let line = special::command_line(self.text, &keyword);
                *argued = line.end;
                special::argument(self.text, &keyword, line)
            }
            Kind::WebKey => {
                let from = self.web_key_end;
                let (end, place) = around::web_key(&mut self.runs, self.text, &keyword, from);
                self.web_key_end = end.max(from);
                place.map(|place| (place, Strength::Certain))
            }
            Kind::Manifest => {
                let from = self.manifest_end;
                let (end, place) = around::manifest(&mut self.runs, self.text, &keyword, from);
                self.manifest_end = end;
                place.map(|place| (place, Strength::Likely))
            }
            Kind::Driver => around::driver(self.text, &keyword),
            Kind::Setting => self.setting(order, &keyword),
            _ => None,
        };
        if let Some((place, strength)) = found {
            self.push(order, place, strength);
        }
    }

    /// What a name is set to in the files that a rule asks for.
    fn setting(
        &mut self,
        order: usize,
        keyword: &Range<usize>,
    ) -> Option<(Range<usize>, Strength)> {
        let rule = SCANNER.rules[order];
        if !(rule.files.is_empty() || rule.files.iter().any(|end| self.path.ends_with(end))) {
            return None;
        }
        let read = assignment::read(&mut self.runs, self.text, keyword.end..keyword.end)?;
        let place = read.name.start..read.value.end;
        if self.copied(1, &place).is_some() {
            return None;
        }
        let value = &self.text[read.value.clone()];
        let shapes = SCANNER.shapes_of(order);
        let mut fits = |shape: &Shape| shape.is_whole(&mut self.runs, &read.value);
        if !(shapes.is_empty() || shapes.iter().any(&mut fits)) {
            return None;
        }
        match rule.kind {
            Kind::Setting if rule.names == ["identified by"] => (read.is_quoted
                && plausible::is_strong(value))
            .then_some((read.value, Strength::Likely)),
            Kind::Setting if rule.names[0] == "mnemonic" => {
                plausible::is_mnemonic(value).then_some((read.value, Strength::Likely))
            }
            Kind::Setting if shapes.is_empty() => {
                let is_one = value.len() >= 4 && !plausible::is_placeholder(value);
                is_one.then_some((read.value, Strength::Likely))
            }
            Kind::Setting if rule.names == ["private_key_id"] => {
                (!Traits::of(value).is_filler()).then_some((read.value, Strength::Certain))
            }
            Kind::Setting => Traits::of(value)
                .is_random()
                .then_some((read.value, Strength::Likely)),
            _ => None,
        }
    }
}

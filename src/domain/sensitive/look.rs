//! One pass over a text: what follows each keyword.

mod named;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use super::assignment::{self, Assignment};
use super::chosen::may_be_secret;
use super::contents::{Finding, Strength};
use super::decode::View;
use super::rules::{self, Kind};
use super::scanner::{Keyword, Role, SCANNER};
use super::setting::Setting;
use super::shape::{Class, Runs, Shape};
use super::traits::Traits;
use super::web_config::WebConfig;
use super::{Category, apart, plausible, special};

/// The shortest secret that only its vendor's name gives away.
const SHORTEST: usize = 14;

/// How far after a vendor's name its secret may begin?
pub(super) const NEAR: usize = 96;

/// Which rules a text is read by.
#[derive(Clone, Copy)]
pub(super) enum Reading<'v> {
    /// All that files are judged by.
    File,
    /// The same of what was decoded: nothing random counts.
    Decoded(&'v View),
    /// Looser formats as well.
    Prose,
}

/// How far before a token what may escape its first letter begins.
const BEFORE: usize = 8;

/// How far behind a finding that is enough another reason for it is looked for.
const BEHIND: usize = 1 << 10;

/// A vendor's name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vendor {
    order: usize,
    pub end: usize,
    /// Where it ends in the text that a view was made of.
    pub copied: Option<usize>,
}

/// What is remembered of the keywords before.
pub(super) struct Look<'t> {
    path: &'t str,
    text: &'t [u8],
    reading: Reading<'t>,
    pub runs: Runs<'t>,
    /// The piece of a view that was asked for last.
    piece: usize,
    /// Names of vendors that are near, in the order of the text, each with its rule.
    vendors: VecDeque<Vendor>,
    /// The name that was read last: where it ends, and what it is set to.
    last: Option<(usize, Option<Setting<'t>>)>,
    /// The file holds settings, where values need no quotes.
    is_settings: bool,
    /// The file holds a program.
    is_program: bool,
    /// Where the last candidates of rules ended, for those that end behind the keyword.
    ends: Vec<(usize, usize)>,
    /// How far the arguments of commands were read, by the length of the command's name.
    argued: [usize; 16],
    /// How far JSON web keys and manifests of secrets were read.
    web_key_end: usize,
    manifest_end: usize,
    connection_end: usize,
    web_config: WebConfig,
    /// Up to where the host of the connection string is known, and whether others reach it; none is
    /// one that they do not.
    host: (usize, Option<bool>),
    pub found: Vec<Finding<'t>>,
    /// What has a looser format.
    pub loose: Vec<Range<usize>>,
    /// First and last lines of keys, in texts for people.
    pub frames: Vec<special::Frame>,
}

impl<'t> Look<'t> {
    /// Reads a text, or its beginning where a finding there is `enough`.
    pub fn over(
        path: &'t str,
        text: &'t [u8],
        reading: Reading<'t>,
        enough: impl Fn(&Finding<'t>) -> bool,
    ) -> Self {
        let mut look = Look {
            path,
            text,
            reading,
            runs: Runs::new(text),
            piece: 0,
            vendors: VecDeque::new(),
            last: None,
            is_settings: assignment::is_settings(path),
            is_program: assignment::is_program(path),
            ends: Vec::new(),
            argued: [0; 16],
            web_key_end: 0,
            manifest_end: 0,
            connection_end: 0,
            web_config: WebConfig::default(),
            host: (0, None),
            found: Vec::new(),
            loose: Vec::new(),
            frames: Vec::new(),
        };
        let (mut seen, mut end) = (0, usize::MAX);
        SCANNER.read(text, |keyword, place| {
            if place.start > end {
                return ControlFlow::Break(());
            }
            let at = place.end;
            look.keyword(keyword, place);
            if look.found[seen..].iter().any(&enough) {
                end = end.min(at + BEHIND);
            }
            seen = look.found.len();
            ControlFlow::Continue(())
        });
        look
    }

    fn keyword(&mut self, keyword: &Keyword, place: Range<usize>) {
        if !keyword.shapes.is_empty() {
            let common = self.runs.common(place.end);
            for (rule, shape) in &keyword.shapes {
                let shape = &SCANNER.shapes[*shape];
                if shape.can_follow(common) {
                    self.shape(*rule, shape, place.start);
                }
            }
        }
        for role in &keyword.roles {
            match *role {
                Role::Vendor(rule) => self.vendor(rule, place.clone()),
                Role::Special(rule) => self.special(rule, place.clone()),
                Role::Telling => self.telling(place.end),
                Role::Connection => self.connection_end = place.end,
                Role::Loose(shape) if matches!(self.reading, Reading::Prose) => {
                    self.loose(&SCANNER.shapes[shape], place.start);
                }
                Role::Frame if matches!(self.reading, Reading::Prose) => {
                    self.frames.extend(special::frame(self.text, &place));
                }
                Role::Loose(_) | Role::Frame => {}
            }
        }
    }

    fn push(&mut self, order: usize, place: Range<usize>, strength: Strength) {
        self.found.push(Finding {
            rule: SCANNER.rules[order],
            secret: Cow::Borrowed(&self.text[place.clone()]),
            range: place,
            strength,
            order,
        });
    }

    /// Where a place of a view stands in the text that the view was made of, where it was read as well.
    fn copied(&mut self, before: usize, place: &Range<usize>) -> Option<usize> {
        match self.reading {
            Reading::Decoded(view) => view.copied(before, place, &mut self.piece),
            Reading::File | Reading::Prose => None,
        }
    }

    /// A format around its keyword.
    fn shape(&mut self, order: usize, shape: &Shape, at: usize) {
        let rule = SCANNER.rules[order];
        if shape.begins_with_keyword() && !apart::begins(rule.kind, shape.keyword(), self.text, at)
        {
            return;
        }
        let Some(place) = shape.around(&mut self.runs, at) else {
            return;
        };
        // Of candidates that end together only the first is one.
        if self.ends.contains(&(order, place.end))
            || !apart::stands_apart(rule.kind, shape.keyword(), self.text, &place)
        {
            return;
        }
        self.ends
            .retain(|(known, end)| *known != order && *end > at);
        self.ends.push((order, place.end));
        let previous = self.text[..place.start].last().copied().unwrap_or(b' ');
        let before = match previous {
            b'/' | b'+' | b'-' | b'.' | b'_' => BEFORE,
            letter if letter.is_ascii_alphanumeric() => BEFORE,
            // No letter of an escape or a path: what is before it does not matter.
            _ => 1,
        };
        if self.copied(before, &place).is_some() {
            return;
        }
        let token = &self.text[place.clone()];
        let strength = match rule.kind {
            Kind::PrivateKey => Strength::Certain,
            Kind::Jwt if plausible::is_sample_jwt(token) => return,
            Kind::Jwt => Strength::Likely,
            _ if Traits::of(token).is_filler() => return,
            Kind::Trial => Strength::Possible,
            Kind::MaybePublic if self.web_config.holds(self.text, &place) => Strength::Possible,
            _ => Strength::Certain,
        };
        self.push(order, place, strength);
    }

    /// A looser format, where a word begins or behind the scheme of a URL.
    fn loose(&mut self, shape: &Shape, at: usize) {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let follows_word = self.text[..at].last().is_some_and(is_word);
        if follows_word == is_word(&self.text[at]) {
            return;
        }
        let place = shape.around(&mut self.runs, at);
        let known = self.loose.last().map(|last| last.end);
        let place = place.filter(|place| known != Some(place.end));
        self.loose.extend(place);
    }

    fn vendor(&mut self, order: usize, name: Range<usize>) {
        if !assignment::is_word(self.text, &name) {
            return;
        }
        while self
            .vendors
            .front()
            .is_some_and(|known| known.end + NEAR < name.start)
        {
            self.vendors.pop_front();
        }
        let copied = self.copied(1, &name).map(|start| start + name.len());
        let vendor = Vendor {
            order,
            end: name.end,
            copied,
        };
        self.vendors.push_back(vendor);
        // `key_of_vendor = …`: the telling word came before.
        let end = name.end
            + self
                .runs
                .ahead(Class::Name, name.end, assignment::LONGEST_NAME);
        let is_last = |(known, read): &mut (usize, Option<Setting<'t>>)| {
            *known == end
                && read
                    .as_ref()
                    .is_some_and(|read| !read.is_known_with(vendor))
        };
        if let Some((end, Some(setting))) = self.last.take_if(is_last) {
            if let Some(strength) = self.under_vendor(&setting, vendor) {
                self.push(order, setting.assignment.value.clone(), strength);
            }
            self.last = Some((end, Some(setting)));
        }
    }

    /// A word that says that a secret follows; each name is read once.
    fn telling(&mut self, word_end: usize) {
        let tail = self
            .runs
            .ahead(Class::Name, word_end, assignment::LONGEST_NAME);
        let end = word_end + tail;
        let is_known = self.last.as_ref().is_some_and(|(known, _)| *known == end);
        if is_known || tail > assignment::LONGEST_NAME {
            return;
        }
        self.last = Some((end, None));
        let Some(read) = assignment::read(&mut self.runs, self.text, word_end..end) else {
            return;
        };
        self.connection(&read);
        let length = read.value.len();
        if length < SHORTEST && !may_be_secret(length) {
            return;
        }
        let copied = self.copied(1, &(read.name.start..read.value.end));
        let setting = Setting::new(read, copied);
        if length >= SHORTEST {
            self.under_vendors(&setting);
        }
        self.generic(&setting);
        if length >= SHORTEST {
            self.last = Some((end, Some(setting)));
        }
    }

    /// A value under the names of vendors: the first rule that it fits, of each strength.
    fn under_vendors(&mut self, setting: &Setting<'t>) {
        let start = setting.assignment.value.start;
        let mut first: [Option<usize>; 2] = [None; 2];
        let mut seen = [0_u64; rules::COUNT.div_ceil(64)];
        // The last mention of each counts.
        for at in (0..self.vendors.len()).rev() {
            let vendor = self.vendors[at];
            if vendor.end + NEAR < start {
                break;
            }
            let (seen, bit) = (&mut seen[vendor.order / 64], 1 << (vendor.order % 64));
            let is_seen = *seen & bit != 0;
            *seen |= bit;
            if is_seen || setting.is_known_with(vendor) {
                continue;
            }
            if !setting.is_credential(self.text) && !setting.is_random(self.text) {
                return;
            }
            if let Some(strength) = self.under_vendor(setting, vendor) {
                let first = &mut first[usize::from(strength == Strength::Certain)];
                *first = Some(first.map_or(vendor.order, |first| first.min(vendor.order)));
            }
        }
        for (order, strength) in first.into_iter().zip([Strength::Likely, Strength::Certain]) {
            if let Some(order) = order {
                self.push(order, setting.assignment.value.clone(), strength);
            }
        }
    }

    /// How sure it is that a value is a secret of a vendor.
    fn under_vendor(&mut self, setting: &Setting<'t>, vendor: Vendor) -> Option<Strength> {
        let order = vendor.order;
        let (rule, text) = (SCANNER.rules[order], self.text);
        let is_inside = rule.kind != Kind::Prefixed || vendor.end > setting.assignment.name.start;
        if !is_inside || (rule.kind == Kind::Mixed && !setting.traits(text).is_mixed()) {
            return None;
        }
        let shapes = SCANNER.shapes_of(order);
        if shapes.is_empty() {
            return setting.is_credential(text).then_some(Strength::Likely);
        }
        let value = &setting.assignment.value;
        let mut fits = |shape: &Shape| shape.is_whole(&mut self.runs, value);
        let is_one = setting.is_random(text) && shapes.iter().any(&mut fits);
        // A format of mere letters and digits may be an example's.
        let is_sure = rule.kind == Kind::Mixed || rule.category == Category::KeysAndCertificates;
        is_one.then_some(if is_sure {
            Strength::Certain
        } else {
            Strength::Likely
        })
    }

    /// `Server=…;Password=…`
    fn connection(&mut self, assignment: &Assignment) {
        let since = self.connection_end..assignment.name.start;
        if self.connection_end == 0
            || since.len() > 300
            || !special::is_in_connection(self.text, since, assignment)
        {
            return;
        }
        let at = assignment.name.start;
        if at >= self.host.0 {
            self.host = (at + 150, special::connection_host(self.text, assignment));
        }
        let value = &self.text[assignment.value.clone()];
        let is_sure = self.text[at - 1] == b';' || plausible::is_strong(value);
        if (self.host.1 == Some(true) || (self.host.1 == Some(false) && is_sure))
            && !plausible::is_placeholder(value)
        {
            let order = SCANNER.first(Kind::Connection);
            self.push(order, assignment.value.clone(), Strength::Likely);
        }
    }

    fn generic(&mut self, setting: &Setting<'t>) {
        let Range { start, end } = setting.assignment.value;
        // What stands before the name counts: no invisible character may take its place.
        let before = setting.assignment.name.start.checked_sub(1);
        if before.is_some_and(|at| self.copied(0, &(at..end)).is_some()) {
            return;
        }
        let Some(strength) = setting.generic(self.is_settings, self.is_program, self.text) else {
            return;
        };
        let kind = match strength {
            Strength::Possible if matches!(self.reading, Reading::Decoded(_)) => return,
            Strength::Possible => Kind::Random,
            _ => Kind::Generic,
        };
        self.push(SCANNER.first(kind), start..end, strength);
    }
}

//! Secrets by their shape, wherever in a file they stand.
//!
//! One pass of a keyword automaton finds where a rule may match at all; what a rule then looks at is
//! bounded, or remembered from the keyword before. So a file costs the same per byte, whatever it
//! holds, and no line is too long. A generic "this looks random" never blocks; only formats do, and
//! random values under a vendor's name.

use std::ops::Range;

use super::assignment::{self, Assignment};
use super::rules::{Kind, Rule};
use super::scanner::{Role, SCANNER};
use super::shape::{Class, Runs, Shape};
use super::{decode, plausible, special};

/// A secret that was found.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub rule: &'static Rule,
    /// Where it stands in the text that was read: itself, or what it is encoded in.
    pub range: Range<usize>,
    /// The secret in plain letters.
    pub secret: Vec<u8>,
    pub strength: Strength,
    order: usize,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// Worth a person's look.
    Possible,
    /// Blocks, but for files of tests.
    Likely,
    /// Blocks.
    Certain,
}

/// The shortest secret that only its vendor's name gives away.
const SHORTEST: usize = 14;

/// How far after a vendor's name its secret may begin?
const NEAR: usize = 96;

/// All secrets that the text holds, in the order of rules: as they stand there, behind escapes and in
/// base64.
pub(super) fn scan(path: &str, text: &[u8]) -> Vec<Finding> {
    let mut found = look(path, text);
    let decoded = decode::views(text);
    for view in &decoded {
        let mut inside = look(path, view.text());
        inside.retain(|finding| finding.rule.kind != Kind::Random);
        inside.extend(view.keys().map(|place| Finding::key(place, view.text())));
        for mut finding in inside {
            if let Some(place) = view.origin(&finding.range) {
                finding.range = place;
                found.push(finding);
            }
        }
    }
    found.sort_by_key(|finding| (finding.order, finding.range.start, finding.range.end));
    found.dedup_by(|one, other| (one.order, &one.range) == (other.order, &other.range));
    found
}

impl Finding {
    /// Key material in binary, of which the view tells the place.
    fn key(place: Range<usize>, text: &[u8]) -> Finding {
        let order = SCANNER.first(Kind::Armor);
        Finding {
            rule: SCANNER.rules[order],
            secret: text[place.clone()].to_vec(),
            range: place,
            strength: Strength::Certain,
            order,
        }
    }
}

/// All keywords, for tests that make files of them.
#[cfg(test)]
pub(super) fn keywords() -> Vec<Vec<u8>> {
    let mut keywords: Vec<Vec<u8>> = SCANNER.texts.clone();
    keywords.sort();
    keywords
}

/// How many bytes were looked at beside those that the automaton read.
#[cfg(test)]
pub(super) fn steps(text: &[u8]) -> usize {
    looked("", text).runs.steps
}

/// What is remembered of the keywords before.
struct Look<'t> {
    path: &'t str,
    text: &'t [u8],
    runs: Runs<'t>,
    /// Names of vendors that are near: the rule, and where the name ends.
    vendors: Vec<(usize, usize)>,
    /// The name that was read last, and what it is set to.
    last: Option<(usize, Option<Assignment>)>,
    /// The file holds settings, where values need no quotes.
    is_settings: bool,
    /// For each rule where its last candidate ended.
    ends: Vec<usize>,
    /// How far the arguments of commands were read, by the length of the command's name.
    argued: [usize; 16],
    telling_end: usize,
    connection_end: usize,
    /// Up to where the host of the connection string is known, and whether others reach it; none is
    /// one that they do not.
    host: (usize, Option<bool>),
    found: Vec<Finding>,
}

/// Secrets in the text as it stands.
fn look(path: &str, text: &[u8]) -> Vec<Finding> {
    looked(path, text).found
}

fn looked<'t>(path: &'t str, text: &'t [u8]) -> Look<'t> {
    let scanner = &*SCANNER;
    let mut look = Look {
        path,
        text,
        runs: Runs::new(text),
        vendors: Vec::new(),
        last: None,
        is_settings: assignment::is_settings(path),
        ends: vec![0; scanner.rules.len()],
        argued: [0; 16],
        telling_end: 0,
        connection_end: 0,
        host: (0, None),
        found: Vec::new(),
    };
    for hit in scanner.automaton.find_overlapping_iter(text) {
        for role in &scanner.roles[hit.pattern().as_usize()] {
            match *role {
                Role::Shape { rule, shape } => {
                    look.shape(rule, &scanner.shapes[shape], hit.start())
                }
                Role::Vendor(rule) => look.vendor(rule, hit.range()),
                Role::Special(rule) => look.special(rule, hit.range()),
                Role::Telling => look.telling(hit.end()),
                Role::Connection => look.connection_end = hit.end(),
            }
        }
    }
    look
}

impl Look<'_> {
    fn push(&mut self, order: usize, place: Range<usize>, strength: Strength) {
        self.found.push(Finding {
            rule: SCANNER.rules[order],
            secret: self.text[place.clone()].to_vec(),
            range: place,
            strength,
            order,
        });
    }

    /// A format around its keyword.
    fn shape(&mut self, order: usize, shape: &Shape, at: usize) {
        let rule = SCANNER.rules[order];
        if shape.begins_with_keyword() && !begins(rule, shape.keyword(), self.text, at) {
            return;
        }
        let Some(place) = shape.around(&mut self.runs, at) else {
            return;
        };
        // Of candidates that end together only the first is one.
        if self.ends[order] == place.end || !stands_apart(rule, shape.keyword(), self.text, &place)
        {
            return;
        }
        self.ends[order] = place.end;
        let token = &self.text[place.clone()];
        let strength = match rule.kind {
            Kind::PrivateKey => Strength::Certain,
            Kind::Jwt if plausible::is_sample_jwt(token) => return,
            Kind::Jwt if self.telling_end + 64 >= place.start && self.telling_end > 0 => {
                Strength::Likely
            }
            Kind::Jwt => Strength::Possible,
            _ if plausible::is_filler(token) => return,
            Kind::Trial => Strength::Possible,
            Kind::MaybePublic if special::is_web_config(self.text, &place) => Strength::Possible,
            _ => Strength::Certain,
        };
        self.push(order, place, strength);
    }

    fn vendor(&mut self, order: usize, name: Range<usize>) {
        if !assignment::is_word(self.text, &name) {
            return;
        }
        self.vendors
            .retain(|(known, end)| *known != order && end + NEAR >= name.start);
        self.vendors.push((order, name.end));
        // `key_of_vendor = …`: the telling word came before.
        let end = name.end
            + self
                .runs
                .ahead(Class::Name, name.end, assignment::LONGEST_NAME);
        if self.last.as_ref().is_some_and(|(known, _)| *known == end) {
            let assignment = self.last.as_ref().and_then(|(_, read)| read.clone());
            if let Some(assignment) = assignment {
                self.under_vendor(&assignment, order, name.end);
            }
        }
    }

    /// A word that says that a secret follows; each name is read once.
    fn telling(&mut self, word_end: usize) {
        self.telling_end = word_end;
        let tail = self
            .runs
            .ahead(Class::Name, word_end, assignment::LONGEST_NAME);
        let end = word_end + tail;
        let is_known = self.last.as_ref().is_some_and(|(known, _)| *known == end);
        if is_known || tail > assignment::LONGEST_NAME {
            return;
        }
        let read = assignment::read(&mut self.runs, self.text, word_end..end);
        self.last = Some((end, read.clone()));
        let Some(assignment) = read else { return };
        let is_long = assignment.value.len() >= SHORTEST;
        for at in 0..self.vendors.len() {
            let (order, name_end) = self.vendors[at];
            if is_long && name_end + NEAR >= assignment.value.start {
                self.under_vendor(&assignment, order, name_end);
            }
        }
        self.connection(&assignment);
        if is_long {
            self.generic(&assignment);
        }
    }

    /// A value that is random enough, under a vendor's name.
    fn under_vendor(&mut self, assignment: &Assignment, order: usize, name_end: usize) {
        let rule = SCANNER.rules[order];
        let value = &self.text[assignment.value.clone()];
        let shapes = SCANNER.shapes_of(order);
        let is_one = if shapes.is_empty() {
            plausible::is_credential(value) && assignment.is_secret(self.text)
        } else {
            let start = assignment.value.start;
            let fits = |shape: &Shape| {
                shape
                    .from(&mut self.runs, start)
                    .is_some_and(|found| found.end == assignment.value.end)
            };
            shapes.iter().any(fits) && plausible::is_random(value)
        };
        let is_inside = rule.kind != Kind::Prefixed || name_end > assignment.name.start;
        let is_mixed = rule.kind != Kind::Mixed || plausible::is_mixed(value);
        if is_one && is_mixed && is_inside && assignment.is_literal(self.text) {
            let is_format = !SCANNER.shapes_of(order).is_empty();
            let strength = if is_format {
                Strength::Certain
            } else {
                Strength::Likely
            };
            self.push(order, assignment.value.clone(), strength);
        }
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
        let separator = self.text[at - 1];
        if (self.host.1 == Some(true) || (self.host.1 == Some(false) && separator == b';'))
            && !plausible::is_placeholder(value)
        {
            let order = SCANNER.first(Kind::Connection);
            self.push(order, assignment.value.clone(), Strength::Likely);
        }
    }

    fn generic(&mut self, assignment: &Assignment) {
        let value = &self.text[assignment.value.clone()];
        if assignment.is_generic(self.is_settings, self.text) && plausible::is_suspicious(value) {
            self.push(
                SCANNER.rules.len() - 1,
                assignment.value.clone(),
                Strength::Possible,
            );
        }
    }

    fn special(&mut self, order: usize, keyword: Range<usize>) {
        let rule = SCANNER.rules[order];
        let found = match rule.kind {
            Kind::Armor => special::armor(&mut self.runs, self.text, &keyword),
            Kind::Url => {
                let Some((kind, place)) = special::url(&mut self.runs, self.text, &keyword) else {
                    return;
                };
                return self.push(SCANNER.first(kind), place, Strength::Likely);
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
            Kind::WebKey | Kind::Setting => self.setting(order, &keyword),
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
        let value = &self.text[read.value.clone()];
        let shapes = SCANNER.shapes_of(order);
        let mut fits = |shape: &Shape| {
            let found = shape.from(&mut self.runs, read.value.start);
            found.is_some_and(|found| found.end == read.value.end)
        };
        if !(shapes.is_empty() || shapes.iter().any(&mut fits)) {
            return None;
        }
        match rule.kind {
            Kind::WebKey
                if special::is_web_key(self.text, &read.value) && !plausible::is_filler(value) =>
            {
                Some((read.value, Strength::Certain))
            }
            Kind::Setting if shapes.is_empty() => {
                let is_one = value.len() >= 4 && !plausible::is_placeholder(value);
                is_one.then_some((read.value, Strength::Likely))
            }
            Kind::Setting if rule.names == ["private_key_id"] => {
                (!plausible::is_filler(value)).then_some((read.value, Strength::Certain))
            }
            Kind::Setting => plausible::is_random(value).then_some((read.value, Strength::Likely)),
            _ => None,
        }
    }
}

/// Whether a token is a word of its own, and not a piece of a longer one such as an encoded image.
fn stands_apart(rule: &Rule, keyword: &[u8], text: &[u8], place: &Range<usize>) -> bool {
    let next = text.get(place.end).copied().unwrap_or(b' ');
    rule.kind == Kind::PrivateKey
        || (begins(rule, keyword, text, place.start) && !joins(keyword, next))
}

/// Whether a byte beside a token makes one word with it. A keyword of letters alone may come by chance
/// where something is encoded.
fn joins(keyword: &[u8], byte: u8) -> bool {
    is_word(byte) || (!is_telling(keyword) && b"+-".contains(&byte))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_telling(keyword: &[u8]) -> bool {
    keyword.iter().any(|byte| !byte.is_ascii_alphanumeric())
}

/// Whether a word begins at a place.
fn begins(rule: &Rule, keyword: &[u8], text: &[u8], start: usize) -> bool {
    let before = &text[..start];
    let previous = before.last().copied().unwrap_or(b' ');
    let is_in_path = previous == b'/' && !before.ends_with(b"://");
    let is_jwt = rule.kind == Kind::Jwt && previous == b'.';
    let is_open = !is_word(text[start]);
    let is_apart =
        (is_open || !joins(keyword, previous)) && (is_telling(keyword) || !is_in_path) && !is_jwt;
    rule.kind == Kind::PrivateKey || is_apart || ends_in_escape(before)
}

/// `\n`, `\t`, `\u0022` or `%3D`: the last letter belongs to what is before.
fn ends_in_escape(before: &[u8]) -> bool {
    match before {
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'%', one, two] => [one, two].iter().all(|byte| byte.is_ascii_hexdigit()),
        [.., b'\\', b'u', _, _, _, _] => true,
        _ => false,
    }
}

//! One pass over a text: what follows each keyword.

mod custom_rules;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use super::assignment::{self, Assignment};
use super::assignment_analysis::AssignmentAnalysis;
use super::content_scan::{Confidence, SecretMatch};
use super::decoded_view::DecodedView;
use super::rules::{self, RuleKind};
use super::scanner::{Keyword, KeywordRole, SCANNER};
use super::text_stats::TextStats;
use super::token_format::{CharClass, RunCache, TokenFormat};
use super::value_heuristics::is_secret_length;
use super::web_config::WebConfigScan;
use super::{SecretCategory, matchers, plausibility, token_boundary};

/// The shortest secret that only its vendor's name gives away.
const SHORTEST: usize = 14;

/// How far after a vendor's name its secret may begin?
pub(super) const MAX_VENDOR_DISTANCE: usize = 96;

/// Which rules a text is read by.
#[derive(Clone, Copy)]
pub(super) enum ScanMode<'v> {
    /// All that files are judged by.
    File,
    /// The same of what was decoded: nothing random counts.
    Decoded(&'v DecodedView),
    /// Looser formats as well.
    Redaction,
}

/// How far before a token what may escape its first letter begins.
const BEFORE: usize = 8;

/// How far behind a finding that is enough another reason for it is looked for.
const BEHIND: usize = 1 << 10;

/// A vendor's name.
#[derive(Debug, Clone, Copy)]
pub(super) struct VendorMention {
    order: usize,
    pub end: usize,
    /// Where it ends in the text that a view was made of.
    pub source_end: Option<usize>,
}

/// What is remembered of the keywords before.
pub(super) struct ScanPass<'t> {
    path: &'t str,
    text: &'t [u8],
    reading: ScanMode<'t>,
    pub runs: RunCache<'t>,
    /// The piece of a view that was asked for last.
    piece: usize,
    /// Names of vendors that are near, in the order of the text, each with its rule.
    vendors: VecDeque<VendorMention>,
    /// The name that was read last: where it ends, and what it is set to.
    last: Option<(usize, Option<AssignmentAnalysis<'t>>)>,
    /// The file holds settings, where values need no quotes.
    is_settings: bool,
    /// The file holds a program.
    is_program: bool,
    /// Where the last candidates of rules ended, for those that end behind the keyword.
    ends: Vec<(usize, usize)>,
    /// How far the arguments of commands were read, by the length of the command's name.
    argument_ends: [usize; 16],
    /// How far JSON web keys and manifests of secrets were read.
    web_key_end: usize,
    manifest_end: usize,
    connection_end: usize,
    web_config: WebConfigScan,
    /// Up to where the host of the connection string is known, and whether others reach it; none is
    /// one that they do not.
    host: (usize, Option<bool>),
    pub matches: Vec<SecretMatch<'t>>,
    /// What has a looser format.
    pub loose_matches: Vec<Range<usize>>,
    /// First and last lines of keys, in texts for people.
    pub key_boundaries: Vec<matchers::KeyBoundary>,
}

impl<'t> ScanPass<'t> {
    /// Reads a text, or its beginning where a finding there is `enough`.
    pub fn run(
        path: &'t str,
        text: &'t [u8],
        reading: ScanMode<'t>,
        enough: impl Fn(&SecretMatch<'t>) -> bool,
    ) -> Self {
        let mut look = ScanPass {
            path,
            text,
            reading,
            runs: RunCache::new(text),
            piece: 0,
            vendors: VecDeque::new(),
            last: None,
            is_settings: assignment::is_config_file(path),
            is_program: assignment::is_source_file(path),
            ends: Vec::new(),
            argument_ends: [0; 16],
            web_key_end: 0,
            manifest_end: 0,
            connection_end: 0,
            web_config: WebConfigScan::default(),
            host: (0, None),
            matches: Vec::new(),
            loose_matches: Vec::new(),
            key_boundaries: Vec::new(),
        };
        let (mut seen, mut end) = (0, usize::MAX);
        SCANNER.for_each_keyword(text, |keyword, place| {
            if place.start > end {
                return ControlFlow::Break(());
            }
            let at = place.end;
            look.keyword(keyword, place);
            if look.matches[seen..].iter().any(&enough) {
                end = end.min(at + BEHIND);
            }
            seen = look.matches.len();
            ControlFlow::Continue(())
        });
        look
    }

    fn keyword(&mut self, keyword: &Keyword, place: Range<usize>) {
        if !keyword.formats.is_empty() {
            let common = self.runs.common_classes(place.end);
            for (rule, shape) in &keyword.formats {
                let shape = &SCANNER.formats[*shape];
                if shape.may_match(common) {
                    self.shape(*rule, shape, place.start);
                }
            }
        }
        for role in &keyword.roles {
            match *role {
                KeywordRole::Vendor(rule) => self.vendor(rule, place.clone()),
                KeywordRole::CustomRule(rule) => self.run_custom_rule(rule, place.clone()),
                KeywordRole::SecretWord => self.telling(place.end),
                KeywordRole::ConnectionString => self.connection_end = place.end,
                KeywordRole::LooseFormat(shape) if matches!(self.reading, ScanMode::Redaction) => {
                    self.loose(&SCANNER.formats[shape], place.start);
                }
                KeywordRole::KeyBoundary if matches!(self.reading, ScanMode::Redaction) => {
                    self.key_boundaries
                        .extend(matchers::key_boundary(self.text, &place));
                }
                KeywordRole::LooseFormat(_) | KeywordRole::KeyBoundary => {}
            }
        }
    }

    fn push(&mut self, order: usize, place: Range<usize>, strength: Confidence) {
        self.matches.push(SecretMatch {
            rule: SCANNER.rules[order],
            secret: Cow::Borrowed(&self.text[place.clone()]),
            range: place,
            confidence: strength,
            rule_index: order,
        });
    }

    /// Where a place of a view stands in the text that the view was made of, where it was read as well.
    fn verbatim_source_start(&mut self, before: usize, place: &Range<usize>) -> Option<usize> {
        match self.reading {
            ScanMode::Decoded(view) => view.verbatim_source_start(before, place, &mut self.piece),
            ScanMode::File | ScanMode::Redaction => None,
        }
    }

    /// A format around its keyword.
    fn shape(&mut self, order: usize, shape: &TokenFormat, at: usize) {
        let rule = SCANNER.rules[order];
        if shape.starts_with_keyword()
            && !token_boundary::is_token_start(rule.kind, shape.keyword(), self.text, at)
        {
            return;
        }
        let Some(place) = shape.match_around(&mut self.runs, at) else {
            return;
        };
        // Of candidates that end together only the first is one.
        if self.ends.contains(&(order, place.end))
            || !token_boundary::is_whole_token(rule.kind, shape.keyword(), self.text, &place)
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
        if self.verbatim_source_start(before, &place).is_some() {
            return;
        }
        let token = &self.text[place.clone()];
        let strength = match rule.kind {
            RuleKind::PrivateKey => Confidence::Certain,
            RuleKind::Jwt if plausibility::is_sample_jwt(token) => return,
            RuleKind::Jwt => Confidence::Likely,
            _ if TextStats::of(token).is_dummy() => return,
            RuleKind::TestKey => Confidence::Possible,
            RuleKind::MaybePublic if self.web_config.contains(self.text, &place) => {
                Confidence::Possible
            }
            _ => Confidence::Certain,
        };
        self.push(order, place, strength);
    }

    /// A looser format, where a word begins or behind the scheme of a URL.
    fn loose(&mut self, shape: &TokenFormat, at: usize) {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let follows_word = self.text[..at].last().is_some_and(is_word);
        if follows_word == is_word(&self.text[at]) {
            return;
        }
        let place = shape.match_around(&mut self.runs, at);
        let known = self.loose_matches.last().map(|last| last.end);
        let place = place.filter(|place| known != Some(place.end));
        self.loose_matches.extend(place);
    }

    fn vendor(&mut self, order: usize, name: Range<usize>) {
        if !assignment::is_whole_word(self.text, &name) {
            return;
        }
        while self
            .vendors
            .front()
            .is_some_and(|known| known.end + MAX_VENDOR_DISTANCE < name.start)
        {
            self.vendors.pop_front();
        }
        let copied = self
            .verbatim_source_start(1, &name)
            .map(|start| start + name.len());
        let vendor = VendorMention {
            order,
            end: name.end,
            source_end: copied,
        };
        self.vendors.push_back(vendor);
        // `key_of_vendor = …`: the telling word came before.
        let end = name.end
            + self.runs.run_length_after(
                CharClass::SettingName,
                name.end,
                assignment::LONGEST_NAME,
            );
        let is_last = |(known, read): &mut (usize, Option<AssignmentAnalysis<'t>>)| {
            *known == end
                && read
                    .as_ref()
                    .is_some_and(|read| !read.is_duplicate_for(vendor))
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
        let tail =
            self.runs
                .run_length_after(CharClass::SettingName, word_end, assignment::LONGEST_NAME);
        let end = word_end + tail;
        let is_known = self.last.as_ref().is_some_and(|(known, _)| *known == end);
        if is_known || tail > assignment::LONGEST_NAME {
            return;
        }
        self.last = Some((end, None));
        let Some(read) = assignment::parse_assignment(&mut self.runs, self.text, word_end..end)
        else {
            return;
        };
        self.connection(&read);
        let length = read.value.len();
        if length < SHORTEST && !is_secret_length(length) {
            return;
        }
        let copied = self.verbatim_source_start(1, &(read.name.start..read.value.end));
        let setting = AssignmentAnalysis::new(read, copied);
        if length >= SHORTEST {
            self.under_vendors(&setting);
        }
        self.generic(&setting);
        if length >= SHORTEST {
            self.last = Some((end, Some(setting)));
        }
    }

    /// A value under the names of vendors: the first rule that it fits, of each strength.
    fn under_vendors(&mut self, setting: &AssignmentAnalysis<'t>) {
        let start = setting.assignment.value.start;
        let mut first: [Option<usize>; 2] = [None; 2];
        let mut seen = [0_u64; rules::RULE_COUNT.div_ceil(64)];
        // The last mention of each counts.
        for at in (0..self.vendors.len()).rev() {
            let vendor = self.vendors[at];
            if vendor.end + MAX_VENDOR_DISTANCE < start {
                break;
            }
            let (seen, bit) = (&mut seen[vendor.order / 64], 1 << (vendor.order % 64));
            let is_seen = *seen & bit != 0;
            *seen |= bit;
            if is_seen || setting.is_duplicate_for(vendor) {
                continue;
            }
            if !setting.is_credential(self.text) && !setting.is_random(self.text) {
                return;
            }
            if let Some(strength) = self.under_vendor(setting, vendor) {
                let first = &mut first[usize::from(strength == Confidence::Certain)];
                *first = Some(first.map_or(vendor.order, |first| first.min(vendor.order)));
            }
        }
        for (order, strength) in first
            .into_iter()
            .zip([Confidence::Likely, Confidence::Certain])
        {
            if let Some(order) = order {
                self.push(order, setting.assignment.value.clone(), strength);
            }
        }
    }

    /// How sure it is that a value is a secret of a vendor.
    fn under_vendor(
        &mut self,
        setting: &AssignmentAnalysis<'t>,
        vendor: VendorMention,
    ) -> Option<Confidence> {
        let order = vendor.order;
        let (rule, text) = (SCANNER.rules[order], self.text);
        let is_inside =
            rule.kind != RuleKind::VendorPrefix || vendor.end > setting.assignment.name.start;
        if !is_inside
            || (rule.kind == RuleKind::VendorMixedCase && !setting.traits(text).is_mixed_case())
        {
            return None;
        }
        let shapes = SCANNER.formats_of(order);
        if shapes.is_empty() {
            return setting.is_credential(text).then_some(Confidence::Likely);
        }
        let value = &setting.assignment.value;
        let mut fits = |shape: &TokenFormat| shape.matches_exactly(&mut self.runs, value);
        let is_one = setting.is_random(text) && shapes.iter().any(&mut fits);
        // A format of mere letters and digits may be an example's.
        let is_sure = rule.kind == RuleKind::VendorMixedCase
            || rule.category == SecretCategory::KeysAndCertificates;
        is_one.then_some(if is_sure {
            Confidence::Certain
        } else {
            Confidence::Likely
        })
    }

    /// `Server=…;Password=…`
    fn connection(&mut self, assignment: &Assignment) {
        let since = self.connection_end..assignment.name.start;
        if self.connection_end == 0
            || since.len() > 300
            || !matchers::is_connection_string_password(self.text, since, assignment)
        {
            return;
        }
        let at = assignment.name.start;
        if at >= self.host.0 {
            self.host = (
                at + 150,
                matchers::is_connection_host_remote(self.text, assignment),
            );
        }
        let value = &self.text[assignment.value.clone()];
        let is_sure = self.text[at - 1] == b';' || plausibility::is_strong_password(value);
        if (self.host.1 == Some(true) || (self.host.1 == Some(false) && is_sure))
            && !plausibility::is_placeholder(value)
        {
            let order = SCANNER.first_rule_of(RuleKind::ConnectionString);
            self.push(order, assignment.value.clone(), Confidence::Likely);
        }
    }

    fn generic(&mut self, setting: &AssignmentAnalysis<'t>) {
        let Range { start, end } = setting.assignment.value;
        // What stands before the name counts: no invisible character may take its place.
        let before = setting.assignment.name.start.checked_sub(1);
        if before.is_some_and(|at| self.verbatim_source_start(0, &(at..end)).is_some()) {
            return;
        }
        let Some(strength) =
            setting.generic_confidence(self.is_settings, self.is_program, self.text)
        else {
            return;
        };
        let kind = match strength {
            Confidence::Possible if matches!(self.reading, ScanMode::Decoded(_)) => return,
            Confidence::Possible => RuleKind::Random,
            _ => RuleKind::Generic,
        };
        self.push(SCANNER.first_rule_of(kind), start..end, strength);
    }
}

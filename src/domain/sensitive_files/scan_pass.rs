//! One pass over a text: runs the rules of each keyword that the automaton finds.

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

/// Minimum length, in bytes, of a secret that is identified by its vendor's name only.
const MIN_VENDOR_SECRET: usize = 14;

/// Maximum distance, in bytes, from the end of a vendor's name to the start of its secret.
pub(super) const MAX_VENDOR_DISTANCE: usize = 96;

/// Set of rules that a pass applies.
#[derive(Clone, Copy)]
pub(super) enum ScanMode<'v> {
    /// All rules of the guard.
    File,
    /// All rules of the guard, on a decoded view. Randomness alone is not reported.
    Decoded(&'v DecodedView),
    /// All rules of the guard, the loose formats, and the boundaries of private keys.
    Redaction,
}

/// Number of bytes before a token in which an escape of its first letter may begin.
const ESCAPE_CONTEXT: usize = 8;

/// Number of bytes that are still scanned after a match that ends the pass. A rule with a lower index may
/// match there.
const SCAN_AFTER_END: usize = 1 << 10;

/// Occurrence of a vendor's name.
#[derive(Debug, Clone, Copy)]
pub(super) struct VendorMention {
    rule_index: usize,
    /// End of the name in the scanned text.
    pub end: usize,
    /// End of the name in the source text of a decoded view, if it was copied unchanged.
    pub source_end: Option<usize>,
}

/// State of a pass: matches, and what was read for earlier keywords.
pub(super) struct ScanPass<'t> {
    path: &'t str,
    text: &'t [u8],
    mode: ScanMode<'t>,
    /// Cache of character runs.
    pub runs: RunCache<'t>,
    /// Piece of the decoded view that was used last.
    last_piece: usize,
    /// Vendor names near the current position, in the order of the text.
    vendors: VecDeque<VendorMention>,
    /// Last assignment that was read: the end of its name, and its analysis.
    last_assignment: Option<(usize, Option<AssignmentAnalysis<'t>>)>,
    /// Whether the file is a configuration file, where values need no quotes.
    is_config_file: bool,
    /// Whether the file is source code.
    is_source_file: bool,
    /// Ends of the last format matches, as (rule index, end), for matches that end after the keyword.
    match_ends: Vec<(usize, usize)>,
    /// End of the command arguments that were read, by the length of the command's name.
    argument_ends: [usize; 16],
    /// End of the text that was read for JSON web keys.
    web_key_end: usize,
    /// End of the text that was read for manifests of Kubernetes Secrets.
    manifest_end: usize,
    /// End of the last keyword of a connection string.
    connection_end: usize,
    web_config: WebConfigScan,
    /// Position up to which the host of the connection string is known, and whether it is remote. `None`
    /// means a local host.
    host: (usize, Option<bool>),
    /// Secrets found.
    pub matches: Vec<SecretMatch<'t>>,
    /// Matches of loose formats.
    pub loose_matches: Vec<Range<usize>>,
    /// First and last lines of private keys. Filled for redaction only.
    pub key_boundaries: Vec<matchers::KeyBoundary>,
}

impl<'t> ScanPass<'t> {
    /// Scans a text. Stops shortly after the first match that `enough` accepts.
    pub(super) fn run(
        path: &'t str,
        text: &'t [u8],
        mode: ScanMode<'t>,
        enough: impl Fn(&SecretMatch<'t>) -> bool,
    ) -> Self {
        let mut pass = ScanPass {
            path,
            text,
            mode,
            runs: RunCache::new(text),
            last_piece: 0,
            vendors: VecDeque::new(),
            last_assignment: None,
            is_config_file: assignment::is_config_file(path),
            is_source_file: assignment::is_source_file(path),
            match_ends: Vec::new(),
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
        SCANNER.for_each_keyword(text, |keyword, range| {
            if range.start > end {
                return ControlFlow::Break(());
            }
            let at = range.end;
            pass.run_keyword(keyword, range);
            if pass.matches[seen..].iter().any(&enough) {
                end = end.min(at + SCAN_AFTER_END);
            }
            seen = pass.matches.len();
            ControlFlow::Continue(())
        });
        pass
    }

    /// Runs all rules of a keyword.
    fn run_keyword(&mut self, keyword: &Keyword, range: Range<usize>) {
        if !keyword.formats.is_empty() {
            let common = self.runs.common_classes(range.end);
            for (rule, format) in &keyword.formats {
                let format = &SCANNER.formats[*format];
                if format.may_match(common) {
                    self.match_format(*rule, format, range.start);
                }
            }
        }
        for role in &keyword.roles {
            match *role {
                KeywordRole::Vendor(rule) => self.match_vendor(rule, range.clone()),
                KeywordRole::CustomRule(rule) => self.run_custom_rule(rule, range.clone()),
                KeywordRole::SecretWord => self.match_secret_word(range.end),
                KeywordRole::ConnectionString => self.connection_end = range.end,
                KeywordRole::LooseFormat(format) if matches!(self.mode, ScanMode::Redaction) => {
                    self.match_loose_format(&SCANNER.formats[format], range.start);
                }
                KeywordRole::KeyBoundary if matches!(self.mode, ScanMode::Redaction) => {
                    self.key_boundaries
                        .extend(matchers::key_boundary(self.text, &range));
                }
                KeywordRole::LooseFormat(_) | KeywordRole::KeyBoundary => {}
            }
        }
    }

    /// Adds a match.
    fn push(&mut self, rule_index: usize, range: Range<usize>, confidence: Confidence) {
        self.matches.push(SecretMatch {
            rule: SCANNER.rules[rule_index],
            secret: Cow::Borrowed(&self.text[range.clone()]),
            range,
            confidence,
            rule_index,
        });
    }

    /// Returns the start of a range in the source text, if the pass reads a decoded view that copied the
    /// range unchanged. Such a match was already found in the source text.
    fn verbatim_source_start(&mut self, before: usize, range: &Range<usize>) -> Option<usize> {
        match self.mode {
            ScanMode::Decoded(view) => {
                view.verbatim_source_start(before, range, &mut self.last_piece)
            }
            ScanMode::File | ScanMode::Redaction => None,
        }
    }

    /// Matches a format around its keyword.
    fn match_format(&mut self, rule_index: usize, format: &TokenFormat, at: usize) {
        let rule = SCANNER.rules[rule_index];
        if format.starts_with_keyword()
            && !token_boundary::is_token_start(rule.kind, format.keyword(), self.text, at)
        {
            return;
        }
        let Some(range) = format.match_around(&mut self.runs, at) else {
            return;
        };
        // Only the first of several candidates with the same end is reported.
        if self.match_ends.contains(&(rule_index, range.end))
            || !token_boundary::is_whole_token(rule.kind, format.keyword(), self.text, &range)
        {
            return;
        }
        self.match_ends
            .retain(|(known, end)| *known != rule_index && *end > at);
        self.match_ends.push((rule_index, range.end));
        let previous = self.text[..range.start].last().copied().unwrap_or(b' ');
        let before = match previous {
            b'/' | b'+' | b'-' | b'.' | b'_' => ESCAPE_CONTEXT,
            byte if byte.is_ascii_alphanumeric() => ESCAPE_CONTEXT,
            // Not part of an escape or a path, so the bytes before it do not matter.
            _ => 1,
        };
        if self.verbatim_source_start(before, &range).is_some() {
            return;
        }
        let token = &self.text[range.clone()];
        let confidence = match rule.kind {
            RuleKind::PrivateKey => Confidence::Certain,
            RuleKind::Jwt if plausibility::is_sample_jwt(token) => return,
            RuleKind::Jwt => Confidence::Likely,
            _ if TextStats::of(token).is_dummy() => return,
            RuleKind::TestKey => Confidence::Possible,
            RuleKind::MaybePublic if self.web_config.contains(self.text, &range) => {
                Confidence::Possible
            }
            _ => Confidence::Certain,
        };
        self.push(rule_index, range, confidence);
    }

    /// Matches a loose format at the start of a word or after the scheme of a URL.
    fn match_loose_format(&mut self, format: &TokenFormat, at: usize) {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let follows_word = self.text[..at].last().is_some_and(is_word);
        if follows_word == is_word(&self.text[at]) {
            return;
        }
        let range = format.match_around(&mut self.runs, at);
        let known = self.loose_matches.last().map(|last| last.end);
        let range = range.filter(|range| known != Some(range.end));
        self.loose_matches.extend(range);
    }

    /// Records a vendor's name, and checks the last assignment if the name is part of its name.
    fn match_vendor(&mut self, rule_index: usize, name: Range<usize>) {
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
        let source_start = self
            .verbatim_source_start(1, &name)
            .map(|start| start + name.len());
        let vendor = VendorMention {
            rule_index,
            end: name.end,
            source_end: source_start,
        };
        self.vendors.push_back(vendor);
        // `key_of_vendor = …`: the secret word comes before the vendor's name.
        let end = name.end
            + self.runs.run_length_after(
                CharClass::SettingName,
                name.end,
                assignment::MAX_NAME_LEN,
            );
        let is_last = |(known, assignment): &mut (usize, Option<AssignmentAnalysis<'t>>)| {
            *known == end
                && assignment
                    .as_ref()
                    .is_some_and(|assignment| !assignment.is_duplicate_for(vendor))
        };
        if let Some((end, Some(analysis))) = self.last_assignment.take_if(is_last) {
            if let Some(confidence) = self.vendor_confidence(&analysis, vendor) {
                self.push(rule_index, analysis.assignment.value.clone(), confidence);
            }
            self.last_assignment = Some((end, Some(analysis)));
        }
    }

    /// Reads the assignment whose name contains a secret word. Each name is read once.
    fn match_secret_word(&mut self, word_end: usize) {
        let tail =
            self.runs
                .run_length_after(CharClass::SettingName, word_end, assignment::MAX_NAME_LEN);
        let end = word_end + tail;
        let is_known = self
            .last_assignment
            .as_ref()
            .is_some_and(|(known, _)| *known == end);
        if is_known || tail > assignment::MAX_NAME_LEN {
            return;
        }
        self.last_assignment = Some((end, None));
        let Some(assignment) =
            assignment::parse_assignment(&mut self.runs, self.text, word_end..end)
        else {
            return;
        };
        self.check_connection_string(&assignment);
        let length = assignment.value.len();
        if length < MIN_VENDOR_SECRET && !is_secret_length(length) {
            return;
        }
        let source_start =
            self.verbatim_source_start(1, &(assignment.name.start..assignment.value.end));
        let analysis = AssignmentAnalysis::new(assignment, source_start);
        if length >= MIN_VENDOR_SECRET {
            self.check_vendors(&analysis);
        }
        self.check_generic(&analysis);
        if length >= MIN_VENDOR_SECRET {
            self.last_assignment = Some((end, Some(analysis)));
        }
    }

    /// Checks a value against the vendors named before it. Reports the first matching rule of each
    /// confidence.
    fn check_vendors(&mut self, analysis: &AssignmentAnalysis<'t>) {
        let start = analysis.assignment.value.start;
        let mut first: [Option<usize>; 2] = [None; 2];
        let mut seen = [0_u64; rules::RULE_COUNT.div_ceil(64)];
        // Only the last mention of each vendor is used.
        for at in (0..self.vendors.len()).rev() {
            let vendor = self.vendors[at];
            if vendor.end + MAX_VENDOR_DISTANCE < start {
                break;
            }
            let (seen, bit) = (
                &mut seen[vendor.rule_index / 64],
                1 << (vendor.rule_index % 64),
            );
            let is_seen = *seen & bit != 0;
            *seen |= bit;
            if is_seen || analysis.is_duplicate_for(vendor) {
                continue;
            }
            if !analysis.is_credential(self.text) && !analysis.is_random(self.text) {
                return;
            }
            if let Some(confidence) = self.vendor_confidence(analysis, vendor) {
                let first = &mut first[usize::from(confidence == Confidence::Certain)];
                *first =
                    Some(first.map_or(vendor.rule_index, |first| first.min(vendor.rule_index)));
            }
        }
        for (rule_index, confidence) in first
            .into_iter()
            .zip([Confidence::Likely, Confidence::Certain])
        {
            if let Some(rule_index) = rule_index {
                self.push(rule_index, analysis.assignment.value.clone(), confidence);
            }
        }
    }

    /// Returns the confidence that a value is a secret of this vendor.
    fn vendor_confidence(
        &mut self,
        analysis: &AssignmentAnalysis<'t>,
        vendor: VendorMention,
    ) -> Option<Confidence> {
        let rule_index = vendor.rule_index;
        let (rule, text) = (SCANNER.rules[rule_index], self.text);
        let is_inside =
            rule.kind != RuleKind::VendorPrefix || vendor.end > analysis.assignment.name.start;
        if !is_inside
            || (rule.kind == RuleKind::VendorMixedCase && !analysis.stats(text).is_mixed_case())
        {
            return None;
        }
        let formats = SCANNER.formats_of(rule_index);
        if formats.is_empty() {
            return analysis.is_credential(text).then_some(Confidence::Likely);
        }
        let value = &analysis.assignment.value;
        let mut fits = |format: &TokenFormat| format.matches_exactly(&mut self.runs, value);
        let is_match = analysis.is_random(text) && formats.iter().any(&mut fits);
        // An example may match a format that consists of letters and digits only.
        let is_certain = rule.kind == RuleKind::VendorMixedCase
            || rule.category == SecretCategory::KeysAndCertificates;
        is_match.then_some(if is_certain {
            Confidence::Certain
        } else {
            Confidence::Likely
        })
    }

    /// Checks whether the assignment is the password of a connection string: `Server=…;Password=…`.
    fn check_connection_string(&mut self, assignment: &Assignment) {
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
        let is_certain = self.text[at - 1] == b';' || plausibility::is_strong_password(value);
        if (self.host.1 == Some(true) || (self.host.1 == Some(false) && is_certain))
            && !plausibility::is_placeholder(value)
        {
            let rule_index = SCANNER.first_rule_of(RuleKind::ConnectionString);
            self.push(rule_index, assignment.value.clone(), Confidence::Likely);
        }
    }

    /// Checks a value by its name and randomness only.
    fn check_generic(&mut self, analysis: &AssignmentAnalysis<'t>) {
        let Range { start, end } = analysis.assignment.value;
        // Include the byte before the name: an invisible character there changes how the name is read.
        let before = analysis.assignment.name.start.checked_sub(1);
        if before.is_some_and(|at| self.verbatim_source_start(0, &(at..end)).is_some()) {
            return;
        }
        let Some(confidence) =
            analysis.generic_confidence(self.is_config_file, self.is_source_file, self.text)
        else {
            return;
        };
        let kind = match confidence {
            Confidence::Possible if matches!(self.mode, ScanMode::Decoded(_)) => return,
            Confidence::Possible => RuleKind::Random,
            _ => RuleKind::Generic,
        };
        self.push(SCANNER.first_rule_of(kind), start..end, confidence);
    }
}

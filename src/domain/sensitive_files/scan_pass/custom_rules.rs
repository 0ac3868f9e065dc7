//! Rules with a matcher of their own.

use std::ops::Range;

use super::ScanPass;
use crate::sensitive_files::content_scan::Confidence;
use crate::sensitive_files::rules::RuleKind;
use crate::sensitive_files::scanner::SCANNER;
use crate::sensitive_files::text_stats::TextStats;
use crate::sensitive_files::token_format::TokenFormat;
use crate::sensitive_files::{assignment, context_matchers, matchers, plausibility};

impl ScanPass<'_> {
    pub(super) fn run_custom_rule(&mut self, order: usize, keyword: Range<usize>) {
        let rule = SCANNER.rules[order];
        let found = match rule.kind {
            RuleKind::ArmoredKey => {
                matchers::match_armored_key(&mut self.runs, self.text, &keyword)
            }
            RuleKind::DatabaseUrl => {
                let found = matchers::match_url_password(&mut self.runs, self.text, &keyword);
                if let Some((kind, place, strength)) = found {
                    self.push(SCANNER.first_rule_of(kind), place, strength);
                }
                return;
            }
            RuleKind::AuthorizationHeader => {
                matchers::match_authorization_header(&mut self.runs, self.text, &keyword)
            }
            RuleKind::CommandArgument => {
                let argued = &mut self.argument_ends[keyword.len().min(15)];
                if keyword.start < *argued {
                    return;
                }
                let line = matchers::argument_range(self.text, &keyword);
                *argued = line.end;
                matchers::match_command_argument(self.text, &keyword, line)
            }
            RuleKind::JsonWebKey => {
                let from = self.web_key_end;
                let (end, place) =
                    context_matchers::match_json_web_key(&mut self.runs, self.text, &keyword, from);
                self.web_key_end = end.max(from);
                place.map(|place| (place, Confidence::Certain))
            }
            RuleKind::KubernetesSecret => {
                let from = self.manifest_end;
                let (end, place) = context_matchers::match_kubernetes_secret(
                    &mut self.runs,
                    self.text,
                    &keyword,
                    from,
                );
                self.manifest_end = end;
                place.map(|place| (place, Confidence::Likely))
            }
            RuleKind::DriverDsn => context_matchers::match_driver_dsn(self.text, &keyword),
            RuleKind::Setting => self.setting(order, &keyword),
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
    ) -> Option<(Range<usize>, Confidence)> {
        let rule = SCANNER.rules[order];
        if !(rule.path_suffixes.is_empty()
            || rule
                .path_suffixes
                .iter()
                .any(|end| self.path.ends_with(end)))
        {
            return None;
        }
        let read =
            assignment::parse_assignment(&mut self.runs, self.text, keyword.end..keyword.end)?;
        let place = read.name.start..read.value.end;
        if self.verbatim_source_start(1, &place).is_some() {
            return None;
        }
        let value = &self.text[read.value.clone()];
        let shapes = SCANNER.formats_of(order);
        let mut fits = |shape: &TokenFormat| shape.matches_exactly(&mut self.runs, &read.value);
        if !(shapes.is_empty() || shapes.iter().any(&mut fits)) {
            return None;
        }
        match rule.kind {
            RuleKind::Setting if rule.keywords == ["identified by"] => (read.is_quoted
                && plausibility::is_strong_password(value))
            .then_some((read.value, Confidence::Likely)),
            RuleKind::Setting if rule.keywords[0] == "mnemonic" => {
                plausibility::is_mnemonic(value).then_some((read.value, Confidence::Likely))
            }
            RuleKind::Setting if shapes.is_empty() => {
                let is_one = value.len() >= 4 && !plausibility::is_placeholder(value);
                is_one.then_some((read.value, Confidence::Likely))
            }
            RuleKind::Setting if rule.keywords == ["private_key_id"] => {
                (!TextStats::of(value).is_dummy()).then_some((read.value, Confidence::Certain))
            }
            RuleKind::Setting => TextStats::of(value)
                .is_random()
                .then_some((read.value, Confidence::Likely)),
            _ => None,
        }
    }
}

//! Dispatch to the rules that have their own matcher.

use std::ops::Range;

use super::ScanPass;
use crate::sensitive_files::content_scan::Confidence;
use crate::sensitive_files::rules::RuleKind;
use crate::sensitive_files::scanner::SCANNER;
use crate::sensitive_files::text_stats::TextStats;
use crate::sensitive_files::token_format::TokenFormat;
use crate::sensitive_files::{assignment, context_matchers, matchers, plausibility};

impl ScanPass<'_> {
    /// Runs the matcher of a rule at its keyword, and adds a match.
    pub(super) fn run_custom_rule(&mut self, rule_index: usize, keyword: Range<usize>) {
        let rule = SCANNER.rules[rule_index];
        let found = match rule.kind {
            RuleKind::ArmoredKey => {
                matchers::match_armored_key(&mut self.runs, self.text, &keyword)
            }
            RuleKind::DatabaseUrl => {
                let found = matchers::match_url_password(&mut self.runs, self.text, &keyword);
                if let Some((kind, range, confidence)) = found {
                    self.push(SCANNER.first_rule_of(kind), range, confidence);
                }
                return;
            }
            RuleKind::AuthorizationHeader => {
                matchers::match_authorization_header(&mut self.runs, self.text, &keyword)
            }
            RuleKind::CommandArgument => {
                let read_until = &mut self.argument_ends[keyword.len().min(15)];
                if keyword.start < *read_until {
                    return;
                }
                let line = matchers::argument_range(self.text, &keyword);
                *read_until = line.end;
                matchers::match_command_argument(self.text, &keyword, line)
            }
            RuleKind::JsonWebKey => {
                let from = self.web_key_end;
                let (end, range) =
                    context_matchers::match_json_web_key(&mut self.runs, self.text, &keyword, from);
                self.web_key_end = end.max(from);
                range.map(|range| (range, Confidence::Certain))
            }
            RuleKind::KubernetesSecret => {
                let from = self.manifest_end;
                let (end, range) = context_matchers::match_kubernetes_secret(
                    &mut self.runs,
                    self.text,
                    &keyword,
                    from,
                );
                self.manifest_end = end;
                range.map(|range| (range, Confidence::Likely))
            }
            RuleKind::DriverDsn => context_matchers::match_driver_dsn(self.text, &keyword),
            RuleKind::Setting => self.match_setting(rule_index, &keyword),
            _ => None,
        };
        if let Some((range, confidence)) = found {
            self.push(rule_index, range, confidence);
        }
    }

    /// Matches the value of a setting in the files that the rule applies to.
    fn match_setting(
        &mut self,
        rule_index: usize,
        keyword: &Range<usize>,
    ) -> Option<(Range<usize>, Confidence)> {
        let rule = SCANNER.rules[rule_index];
        if !(rule.path_suffixes.is_empty()
            || rule
                .path_suffixes
                .iter()
                .any(|end| self.path.ends_with(end)))
        {
            return None;
        }
        let assignment =
            assignment::parse_assignment(&mut self.runs, self.text, keyword.end..keyword.end)?;
        let range = assignment.name.start..assignment.value.end;
        if self.verbatim_source_start(1, &range).is_some() {
            return None;
        }
        let value = &self.text[assignment.value.clone()];
        let formats = SCANNER.formats_of(rule_index);
        let mut fits =
            |format: &TokenFormat| format.matches_exactly(&mut self.runs, &assignment.value);
        if !(formats.is_empty() || formats.iter().any(&mut fits)) {
            return None;
        }
        match rule.kind {
            RuleKind::Setting if rule.keywords == ["identified by"] => (assignment.is_quoted
                && plausibility::is_strong_password(value))
            .then_some((assignment.value, Confidence::Likely)),
            RuleKind::Setting if rule.keywords[0] == "mnemonic" => {
                plausibility::is_mnemonic(value).then_some((assignment.value, Confidence::Likely))
            }
            RuleKind::Setting if formats.is_empty() => {
                let is_secret = value.len() >= 4 && !plausibility::is_placeholder(value);
                is_secret.then_some((assignment.value, Confidence::Likely))
            }
            RuleKind::Setting if rule.keywords == ["private_key_id"] => (!TextStats::of(value)
                .is_dummy())
            .then_some((assignment.value, Confidence::Certain)),
            RuleKind::Setting => TextStats::of(value)
                .is_random()
                .then_some((assignment.value, Confidence::Likely)),
            _ => None,
        }
    }
}

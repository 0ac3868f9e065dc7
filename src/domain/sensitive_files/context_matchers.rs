//! Matchers for secrets that are identified by the surrounding text: private JSON web keys, manifests of
//! Kubernetes Secrets, driver addresses.

use std::ops::Range;

use data_encoding::BASE64;

use super::content_scan::Confidence;
use super::matchers::{MatchResult, find, find_last, host_of};
use super::secret_name::SecretNameKind;
use super::text_stats::TextStats;
use super::token_format::RunCache;
use super::{assignment, plausibility};

/// Matches the private member of a JSON web key near `kty`: `d`, or `k` of a symmetric key. Text before
/// `from` is skipped because it was read for an earlier keyword. Also returns the end of the text that was
/// read.
pub(super) fn match_json_web_key(
    runs: &mut RunCache<'_>,
    text: &[u8],
    keyword: &Range<usize>,
    from: usize,
) -> (usize, Option<Range<usize>>) {
    const MAX_DISTANCE: usize = 2_500;
    let end = text.len().min(keyword.end + MAX_DISTANCE);
    let start = keyword
        .start
        .saturating_sub(MAX_DISTANCE)
        .max(from)
        .min(end);
    let is_symmetric = find(&text[keyword.end..text.len().min(keyword.end + 16)], b"oct").is_some();
    let member = if is_symmetric { b'k' } else { b'd' };
    let found = memchr::memchr_iter(member, &text[start..end]).find_map(|at| {
        let at = start + at;
        let before = text[..at].last().copied().unwrap_or(b' ');
        let after = text.get(at + 1).copied().unwrap_or(b' ');
        if !b"\"' \n{,\t".contains(&before) || !b"\"':=\\ ".contains(&after) {
            return None;
        }
        let assignment = assignment::parse_assignment(runs, text, at..at + 1)?;
        let value = &text[assignment.value.clone()];
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=".contains(byte);
        let is_key = (32..=1_400).contains(&value.len())
            && value.iter().all(is_letter)
            && !TextStats::of(value).is_dummy();
        (assignment.name.len() == 1 && is_key).then_some(assignment.value)
    });
    (end, found)
}

/// Matches the password before the host of `user:password@tcp(host:3306)/name` or
/// `jdbc:oracle:thin:user/password@host`.
pub(super) fn match_driver_dsn(text: &[u8], keyword: &Range<usize>) -> MatchResult {
    const MAX_LEN: usize = 120;
    let is_letter = |byte: &u8| byte.is_ascii_graphic() && !b"\"'`@/:".contains(byte);
    let range = if text[keyword.start] == b'@' {
        let before = &text[keyword.start.saturating_sub(MAX_LEN)..keyword.start];
        let length = before
            .iter()
            .rev()
            .take_while(|byte| is_letter(byte))
            .count();
        if !before[..before.len() - length].ends_with(b":") {
            return None;
        }
        keyword.start - length..keyword.start
    } else {
        let rest = &text[keyword.end..text.len().min(keyword.end + MAX_LEN)];
        let user = rest.iter().take_while(|byte| is_letter(byte)).count();
        if rest.get(user) != Some(&b'/') {
            return None;
        }
        let length = rest[user + 1..]
            .iter()
            .take_while(|byte| is_letter(byte))
            .count();
        if rest.get(user + 1 + length) != Some(&b'@') {
            return None;
        }
        keyword.end + user + 1..keyword.end + user + 1 + length
    };
    let password = &text[range.clone()];
    let host = host_of(skip_host_prefix(&text[range.end..]));
    let is_secret = password.len() >= 4
        && !plausibility::is_placeholder(password)
        && (plausibility::is_remote(host)
            || (!plausibility::is_local(host) && plausibility::is_strong_password(password)));
    is_secret.then_some((range, Confidence::Likely))
}

/// Skips the characters between a password and its host.
fn skip_host_prefix(rest: &[u8]) -> &[u8] {
    let prefix = rest
        .iter()
        .take(3)
        .take_while(|byte| b"@/".contains(byte))
        .count();
    let rest = &rest[prefix..];
    rest.strip_prefix(b"tcp(").unwrap_or(rest)
}

/// Matches a password in the manifest of a Kubernetes Secret around its `kind`. Text before `from` is skipped
/// because it was read for an earlier keyword. Also returns the end of the text that was read.
pub(super) fn match_kubernetes_secret(
    runs: &mut RunCache<'_>,
    text: &[u8],
    keyword: &Range<usize>,
    from: usize,
) -> (usize, Option<Range<usize>>) {
    const MAX_DISTANCE: usize = 16_384;
    let is_whole_kind = text
        .get(keyword.end)
        .is_none_or(|next| b"\"'\r\n, }#".contains(next));
    if !is_whole_kind || keyword.start < from {
        return (from, None);
    }
    let start = keyword.start.saturating_sub(MAX_DISTANCE).max(from);
    let start = find_last(&text[start..keyword.start], b"\n---").map_or(start, |at| start + at);
    let limit = text.len().min(keyword.end + MAX_DISTANCE);
    let end = find(&text[keyword.end..limit], b"\n---").map_or(limit, |at| keyword.end + at);
    let found = memchr::memchr_iter(b':', &text[start..end]).find_map(|at| {
        let at = start + at;
        let quote = usize::from(at > 0 && b"\"'".contains(&text[at - 1]));
        let assignment = assignment::parse_assignment(runs, text, at - quote..at - quote)?;
        let value = &text[assignment.value.clone()];
        let plain = BASE64
            .decode(value)
            .ok()
            .filter(|plain| plain.iter().all(u8::is_ascii_graphic));
        let password = plain.as_deref().unwrap_or(value);
        let is_secret = SecretNameKind::classify(&text[assignment.name.clone()]).is_some()
            && password.len() >= 6
            && !plausibility::is_placeholder(password)
            && !TextStats::of(password).is_identifier();
        is_secret.then_some(assignment.value)
    });
    (end, found)
}

//! Matchers for secrets without a fixed format: PEM private keys, URLs, headers, command arguments.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::LazyLock;

use data_encoding::{BASE64, BASE64_NOPAD};

use super::assignment::Assignment;
use super::content_scan::Confidence;
use super::plausibility;
use super::rules::{self, Rule, RuleKind};
use super::text_stats::TextStats;
use super::token_format::{CharClass, RunCache};
use super::word_automaton::WordAutomaton;

/// Range and confidence of a secret, or `None`.
pub(super) type MatchResult = Option<(Range<usize>, Confidence)>;

/// Maximum length of a private key, in bytes.
const MAX_KEY_LEN: usize = 16_384;

/// First or last line of a private key.
#[derive(Debug)]
pub(super) struct KeyBoundary {
    /// Range of the line.
    pub range: Range<usize>,
    /// Whether the line begins a key.
    pub is_begin: bool,
}

/// Keywords of the first and last lines of private keys.
pub(super) const KEY_BOUNDARY_KEYWORDS: [&str; 2] = ["PRIVATE KEY", "PuTTY-User-Key-File-"];

/// Returns the last boundary of a private key in the text.
pub(super) fn last_key_boundary(text: &[u8]) -> Option<KeyBoundary> {
    static KEYWORDS: LazyLock<WordAutomaton> =
        LazyLock::new(|| WordAutomaton::new(&KEY_BOUNDARY_KEYWORDS));
    let mut last = None;
    // Every boundary contains a dash.
    if memchr::memchr(b'-', text).is_some() {
        KEYWORDS.for_each_match(text, |_, range| {
            last = key_boundary(text, &range).or(last.take());
            ControlFlow::Continue(())
        });
    }
    last
}

/// Returns the boundary around one of the [`KEY_BOUNDARY_KEYWORDS`].
pub(super) fn key_boundary(text: &[u8], keyword: &Range<usize>) -> Option<KeyBoundary> {
    if keyword.len() == KEY_BOUNDARY_KEYWORDS[0].len() {
        return armor_line(text, keyword);
    }
    let is_versioned = matches!(&text[keyword.end..], [b'2' | b'3', b':', b' ', ..]);
    is_versioned.then_some(KeyBoundary {
        range: keyword.start..keyword.end + 3,
        is_begin: true,
    })
}

/// Returns the PEM boundary around its keyword.
fn armor_line(text: &[u8], keyword: &Range<usize>) -> Option<KeyBoundary> {
    const MAX_PREFIX: usize = 48;
    let rest = &text[keyword.end..];
    let rest = rest.strip_prefix(b" BLOCK").unwrap_or(rest);
    let rest = rest
        .strip_prefix(b"-----")
        .or(rest.strip_prefix(b" ----"))?;
    let head = &text[keyword.start.saturating_sub(MAX_PREFIX)..keyword.start];
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b" _-".contains(byte);
    let line = head.iter().rposition(|byte| !is_part(byte));
    let line = &head[line.map_or(0, |before| before + 1)..];
    let dashes = line.windows(4).rposition(|four| four == b"----")?;
    let label = &line[dashes + 4..];
    let label = label.strip_prefix(b" ").unwrap_or(label);
    let begins = label.starts_with(b"BEGIN ");
    let fifth_dash = usize::from(line[..dashes].ends_with(b"-"));
    (begins || label.starts_with(b"END ")).then(|| KeyBoundary {
        range: keyword.start - (line.len() - dashes) - fifth_dash..text.len() - rest.len(),
        is_begin: begins,
    })
}

/// Matches a PEM private key with its header. Key material must follow, because code that parses keys
/// contains the header alone.
pub(super) fn match_armored_key(
    runs: &mut RunCache<'_>,
    text: &[u8],
    keyword: &Range<usize>,
) -> MatchResult {
    let header = armor_line(text, keyword).filter(|line| line.is_begin)?;
    let start = header.range.end;
    let body = start + preamble_len(&text[start..]);
    let length = runs
        .run_length_after(CharClass::KeyBody, body, MAX_KEY_LEN)
        .min(MAX_KEY_LEN);
    let material = first_key_letters(&text[body..body + length]);
    (material.len() >= 24 && !plausibility::is_dummy_key(&material))
        .then(|| (header.range.start..body + length, Confidence::Certain))
}

/// Returns the first base64 letters of a key, from one line or from several long lines.
fn first_key_letters(material: &[u8]) -> Vec<u8> {
    const MAX_LETTERS: usize = 64;
    const MIN_LINE: usize = 16;
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let mut letters = Vec::new();
    for line in material[..material.len().min(512)].split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        let length = line.iter().take_while(|byte| is_letter(byte)).count();
        letters.extend_from_slice(&line[..length]);
        if letters.len() >= MAX_LETTERS || length < line.len() || length < MIN_LINE {
            break;
        }
    }
    letters.truncate(MAX_LETTERS);
    letters
}

/// Returns the number of bytes between the header line and the key: line breaks in any notation, quotes,
/// comments and PEM headers.
fn preamble_len(rest: &[u8]) -> usize {
    const HEADERS: [&[u8]; 7] = [
        b"Proc-Type",
        b"DEK-Info",
        b"Version",
        b"Comment",
        b"Hash",
        b"Charset",
        b"Subject",
    ];
    let mut at = 0;
    while at < 600 {
        match &rest[at..] {
            [b'\\', b'r' | b'n' | b't', ..] => at += 2,
            [b'/', b'/', ..] => at += 2,
            [b'&', b'#', b'1', b'0' | b'3', b';', ..] => at += 5,
            [byte, ..] if b" \t\r\n\"'+,;\\>|*#.()`-&".contains(byte) => at += 1,
            left if HEADERS.iter().any(|header| left.starts_with(header)) => {
                let line = &left[..left.len().min(200)];
                let end = line.iter().position(|byte| *byte == b'\n');
                let escaped = find(line, b"\\n");
                at += end.into_iter().chain(escaped).min().unwrap_or(line.len());
            }
            _ => break,
        }
    }
    at
}

/// Rule kinds by URL scheme.
static SCHEMES: LazyLock<HashMap<&'static [u8], RuleKind>> = LazyLock::new(|| {
    let url_rules = rules::all()
        .filter(|(_, rule)| matches!(rule.kind, RuleKind::DatabaseUrl | RuleKind::WebUrl));
    let names = |rule: &'static Rule| {
        rule.keywords
            .iter()
            .map(|name| (name.as_bytes(), rule.kind))
    };
    url_rules.flat_map(|(_, rule)| names(rule)).collect()
});

/// Matches a password in a URL. Also returns the kind of rule that the scheme belongs to.
pub(super) fn match_url_password(
    runs: &mut RunCache<'_>,
    text: &[u8],
    keyword: &Range<usize>,
) -> Option<(RuleKind, Range<usize>, Confidence)> {
    const MAX_AUTHORITY: usize = 400;
    let kind = *SCHEMES.get(
        scheme(runs, text, keyword.start)
            .to_ascii_lowercase()
            .as_slice(),
    )?;
    let length = runs.run_length_after(CharClass::Authority, keyword.end, MAX_AUTHORITY);
    if length > MAX_AUTHORITY {
        return None;
    }
    let authority = &text[keyword.end..keyword.end + length];
    let at = authority.iter().rposition(|byte| *byte == b'@')?;
    let colon = authority[..at].iter().position(|byte| *byte == b':')?;
    let password = &authority[colon + 1..at];
    let host = host_of(&authority[at + 1..]);
    let is_web = kind == RuleKind::WebUrl;
    let is_secret = password.len() >= if is_web { 6 } else { 4 }
        && !plausibility::is_placeholder(password)
        && !plausibility::is_local(host)
        && (plausibility::is_remote(host)
            || (!host.is_empty() && plausibility::is_strong_password(password)))
        && !(is_web && plausibility::is_single_case_word(password));
    let start = keyword.end + colon + 1;
    // A host without a domain is usually another service in the same compose file.
    let confidence = match plausibility::is_remote(host) {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    is_secret.then(|| (kind, start..keyword.end + at, confidence))
}

/// Returns the scheme of a URL without its driver: `postgresql` for `postgresql+asyncpg`.
fn scheme<'t>(runs: &mut RunCache<'_>, text: &'t [u8], end: usize) -> &'t [u8] {
    const MAX_SCHEME: usize = 24;
    let count = runs.run_length_before(CharClass::Alnum, end, MAX_SCHEME);
    let start = end - count;
    if !text[..start].ends_with(b"+") {
        return &text[start..end];
    }
    let name = runs.run_length_before(CharClass::Alnum, start - 1, MAX_SCHEME);
    &text[start - 1 - name..start - 1]
}

/// Returns the host at the start of an authority, without the port.
pub(super) fn host_of(authority: &[u8]) -> &[u8] {
    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let end = authority
        .iter()
        .position(|byte| !is_host(byte))
        .unwrap_or(authority.len());
    &authority[..end]
}

/// Returns whether an assignment is the password of a connection string. `since` is the text between the last
/// keyword of a connection string and the assignment.
pub(super) fn is_connection_string_password(
    text: &[u8],
    since: Range<usize>,
    assignment: &Assignment,
) -> bool {
    let name = &text[assignment.name.clone()];
    let is_password = ["password", "pwd", "passwd"]
        .iter()
        .any(|word| name.eq_ignore_ascii_case(word.as_bytes()));
    let separator = text[..assignment.name.start]
        .last()
        .copied()
        .unwrap_or(b'\n');
    is_password
        && assignment.has_equals_operator()
        && b";?& ".contains(&separator)
        && memchr::memchr(b'\n', &text[since]).is_none()
}

/// Returns whether the host of a connection string is remote. Returns `Some(false)` for a host without a
/// domain and `None` for the local machine.
pub(super) fn is_connection_host_remote(text: &[u8], assignment: &Assignment) -> Option<bool> {
    const MAX_LINE_PART: usize = 300;
    const HOST_KEYWORDS: [&[u8]; 6] = [
        b"server=",
        b"source=",
        b"host=",
        b"hostname=",
        b"addr=",
        b"://",
    ];
    let start = assignment.name.start;
    let before = &text[start.saturating_sub(MAX_LINE_PART)..start];
    let from = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
    let after = &text[start..text.len().min(start + MAX_LINE_PART)];
    let to = memchr::memchr(b'\n', after).unwrap_or(after.len());
    let line = [&before[from..], &after[..to]]
        .concat()
        .to_ascii_lowercase();
    let host = HOST_KEYWORDS.iter().find_map(|keyword| {
        let rest = &line[find(&line, keyword)? + keyword.len()..];
        let rest = rest.strip_prefix(b"tcp:").unwrap_or(rest);
        let host = host_of(rest);
        (!host.is_empty()).then_some(host)
    })?;
    match (plausibility::is_remote(host), plausibility::is_local(host)) {
        (true, _) => Some(true),
        (false, false) => Some(false),
        (false, true) => None,
    }
}

/// Matches the credentials of an Authorization header: `Basic dXNlcjpwYXNz`, `Bearer …`.
pub(super) fn match_authorization_header(
    runs: &mut RunCache<'_>,
    text: &[u8],
    keyword: &Range<usize>,
) -> MatchResult {
    const MAX_LEN: usize = 300;
    // `"auth": "…"` of a container registry encodes the same pair.
    let is_basic =
        text[keyword.start] == b'"' || text[keyword.clone()].eq_ignore_ascii_case(b"basic ");
    let is_header = || {
        if is_basic && text[keyword.start] == b'"' {
            return true;
        }
        let around = &text[keyword.start.saturating_sub(48)..keyword.start];
        find(&around.to_ascii_lowercase(), b"auth").is_some()
    };
    if !is_basic {
        let length = runs.run_length_after(CharClass::Unreserved, keyword.end, MAX_LEN);
        let range = keyword.end..keyword.end + length;
        let is_secret = (24..=MAX_LEN).contains(&length)
            && !text[range.clone()].starts_with(b"eyJ")
            && TextStats::of(&text[range.clone()]).is_credential();
        if !is_secret {
            return None;
        }
        return match is_header() {
            true => Some((range, Confidence::Likely)),
            false if text[keyword.clone()].eq_ignore_ascii_case(b"bearer ") => {
                Some((range, Confidence::Possible))
            }
            false => None,
        };
    }
    let length = runs.run_length_after(CharClass::Base64, keyword.end, MAX_LEN);
    let range = keyword.end..keyword.end + length;
    if !(8..=MAX_LEN).contains(&length) || !is_header() {
        return None;
    }
    let letters = &text[range.clone()];
    let plain = BASE64_NOPAD
        .decode(letters)
        .or_else(|_| BASE64.decode(letters))
        .ok()?;
    let colon = plain.iter().position(|byte| *byte == b':')?;
    let (user, password) = (&plain[..colon], &plain[colon + 1..]);
    let is_text = plain.iter().all(|byte| byte.is_ascii_graphic());
    let is_secret = is_text
        && user.len() + password.len() >= 8
        && !(plausibility::is_placeholder(password) && plausibility::is_placeholder(user));
    let is_real = is_secret
        && (password.is_empty() || !plausibility::is_placeholder(password))
        && !plausibility::is_tutorial_login(&plain);
    is_real.then_some((range, Confidence::Likely))
}

/// Returns the range of a command's arguments: the rest of the line with its continuation lines, or the lines
/// of a netrc entry. At most 400 bytes.
pub(super) fn argument_range(text: &[u8], keyword: &Range<usize>) -> Range<usize> {
    const MAX_LEN: usize = 400;
    let limit = text.len().min(keyword.end + MAX_LEN);
    let rest = &text[keyword.end..limit];
    if text[keyword.clone()].eq_ignore_ascii_case(NETRC) {
        return keyword.end..limit;
    }
    let mut ends = memchr::memchr_iter(b'\n', rest);
    let end = ends.find(|end| !rest[..*end].ends_with(b"\\"));
    keyword.end..end.map_or(limit, |end| keyword.end + end)
}

/// Keyword of a netrc entry.
const NETRC: &[u8] = b"machine ";

/// Matches a password in command arguments: `curl -u user:password`, `sshpass -p password`,
/// `machine … login … password …`.
pub(super) fn match_command_argument(
    text: &[u8],
    keyword: &Range<usize>,
    line: Range<usize>,
) -> MatchResult {
    let command = &text[keyword.clone()];
    let before = text[..keyword.start].last().copied().unwrap_or(b' ');
    if before.is_ascii_alphanumeric() || b"-_.".contains(&before) {
        return None;
    }
    let is_netrc = command.eq_ignore_ascii_case(NETRC);
    let rest = &text[line];
    let lower = command.to_ascii_lowercase();
    let (flags, is_user_and_password): (&[&[u8]], bool) = match lower.as_slice() {
        b"machine " => (&[b"password "], false),
        b"curl " | b"wget " => (
            &[
                b"-u ",
                b"--user ",
                b"--user=",
                b"-u",
                b"--http-password=",
                b"--password=",
            ],
            true,
        ),
        b"sshpass " => (&[b"-p ", b"-p"], false),
        b"docker login" | b"podman login" | b"registry login" | b"az login" | b"mongo "
        | b"mongosh " | b"mongodump " | b"mongorestore " => {
            (&[b"-p ", b"--password ", b"--password="], false)
        }
        b"redis-cli " => (&[b"-a ", b"--pass "], false),
        b"sqlcmd " => (&[b"-P ", b"-P"], false),
        b"ldapsearch " | b"ldapadd " | b"ldapmodify " => (&[b"-w "], false),
        b"http " => (&[b"-a ", b"--auth ", b"--auth="], true),
        _ => (&[b"--password=", b"-p"], false),
    };
    if is_netrc && find(rest, b"login ").is_none() {
        return None;
    }
    flags.iter().find_map(|flag| {
        let at = find_option(rest, flag)? + flag.len();
        let quote = rest.get(at).copied().filter(|byte| b"\"'".contains(byte));
        let at = at + usize::from(quote.is_some());
        let end = rest[at..].iter().position(|byte| match quote {
            Some(quote) => *byte == quote,
            None => byte.is_ascii_whitespace() || b"\"'`".contains(byte),
        });
        let end = end.map_or(rest.len(), |end| at + end);
        let mut start = at;
        if is_user_and_password && !flag.ends_with(b"password=") {
            start = at + rest[at..end].iter().position(|byte| *byte == b':')? + 1;
        }
        let password = &rest[start..end];
        let is_secret = password.len() >= 4
            && !plausibility::is_placeholder(password)
            && !plausibility::is_single_case_word(password)
            && !password.starts_with(b"-");
        let base = keyword.end;
        is_secret.then_some((base + start..base + end, Confidence::Likely))
    })
}

/// Finds an option that is preceded by a space.
fn find_option(rest: &[u8], flag: &[u8]) -> Option<usize> {
    let at = find(rest, flag)?;
    let before = if at == 0 { b' ' } else { rest[at - 1] };
    before.is_ascii_whitespace().then_some(at)
}

/// Returns the position of the first occurrence of `part`.
pub(super) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, part)
}

/// Returns the position of the last occurrence of `part`.
pub(super) fn find_last(text: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::rfind(text, part)
}

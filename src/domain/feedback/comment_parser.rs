//! How the text of a remark is built: commands, marks, headings, lists of things to do, and the signs
//! by which its author says that nothing needs to be done.

use super::IgnoreReason;

/// Begins a comment that asks for a run. (spec: *What the service does*)
const COMMAND: &str = "/agent-implement";

/// Begins the markers in everything we write on a pull request.
const OWN_MARKER: &str = "<!-- agent-implement";

/// Headings above what must be changed.
const BLOCKING_HEADINGS: &[&str] = &[
    "action items",
    "action required",
    "blocker",
    "blockers",
    "blocking",
    "blocking comments",
    "blocking feedback",
    "blocking findings",
    "blocking issue",
    "blocking issues",
    "changes requested",
    "changes required",
    "must fix",
    "requested changes",
    "required changes",
    "to do",
    "todo",
];

/// Marks in front of what must be changed.
const BLOCKING_MARKS: &[&str] = &["blocker", "blocking", "must fix", "must-fix"];

/// What people write where nothing is to be told.
const NOTHING: &[&str] = &["", "-", "n/a", "na", "nil", "no", "none", "nothing"];

/// Words that make the line above a list a request.
const REQUESTS: &[&str] = &[
    "address", "change", "changes", "fix", "must", "need", "needs", "please", "required", "should",
    "todo",
];

/// Words that take a request back.
const WAIVERS: &[&str] = &[
    "consider",
    "could",
    "future",
    "later",
    "maybe",
    "nice",
    "nit",
    "nits",
    "not",
    "optional",
    "optionally",
];

/// Labels that say that a remark may be left alone.
const OPTIONAL_LABELS: &[&str] = &[
    "chore (non-blocking)",
    "fyi",
    "minor",
    "nit",
    "nitpick",
    "nits",
    "non-blocking",
    "not blocking",
    "note",
    "optional",
    "praise",
    "thought",
];

/// Words that praise or agree; a remark of nothing but these and [`FILLERS`] asks for nothing.
const PRAISES: &[&str] = &[
    "ack",
    "agree",
    "agreed",
    "approved",
    "awesome",
    "beautiful",
    "brilliant",
    "clever",
    "cool",
    "ditto",
    "done",
    "elegant",
    "excellent",
    "fantastic",
    "fixed",
    "good",
    "great",
    "lgtm",
    "love",
    "neat",
    "nice",
    "nicely",
    "ok",
    "okay",
    "perfect",
    "resolved",
    "thank",
    "thanks",
    "yep",
    "yes",
];

const FILLERS: &[&str] = &[
    "1", "a", "all", "and", "approach", "are", "catch", "change", "changes", "code", "for", "here",
    "i", "idea", "is", "it", "job", "like", "looks", "makes", "me", "much", "my", "now", "of",
    "one", "point", "really", "same", "sense", "so", "solution", "sounds", "that", "the", "these",
    "this", "those", "to", "too", "touch", "very", "was", "well", "work", "you", "your",
];

/// The instruction of a comment that asks for a run; none when it is no such comment.
pub fn parse_command(body: &str) -> Option<String> {
    let rest = body.strip_prefix(COMMAND)?;
    let is_word = rest.chars().next().is_none_or(char::is_whitespace);
    is_word.then(|| rest.trim().to_owned())
}

/// Whether a text is one of ours: whatever a run or the service writes carries a marker.
pub(super) fn is_own_comment(body: &str) -> bool {
    body.lines().any(|line| line.starts_with(OWN_MARKER))
}

/// Whether a remark's first line carries a mark that its author uses for what must be mended. Words
/// further down are no mark: "not blocking" would be one.
pub fn is_marked_blocking(body: &str) -> bool {
    let first = body.lines().map(str::trim).find(|line| !line.is_empty());
    let first = first.unwrap_or_default();
    let words = first.replace(['*', '_', '`'], "").to_lowercase();
    let words = words.trim_start_matches(|c: char| !c.is_alphanumeric());
    let graded = words.strip_prefix("severity:").map(|grade| {
        let grade = grade.trim_start_matches(|c: char| !c.is_alphanumeric());
        ["major", "high", "critical", "blocker"]
            .iter()
            .any(|worst| grade.starts_with(worst))
    });
    first.contains(['🔴', '🟠']) || words.starts_with("blocking:") || graded == Some(true)
}

/// Why a remark at a line may be left alone, if it may.
pub(super) fn ignore_reason(body: &str) -> Option<IgnoreReason> {
    let lines = own_lines(body);
    let first = lines.first().map(|line| plain(line)).unwrap_or_default();
    if body.trim_start().starts_with(['🟡', '🟣', '🟢']) || is_labelled_optional(&first) {
        return Some(IgnoreReason::Nit);
    }
    let shows_code = body.contains("```") || body.contains('`');
    (!shows_code && is_praise(&lines.join(" "))).then_some(IgnoreReason::Praise)
}

fn is_labelled_optional(first: &str) -> bool {
    let first = first.trim_start_matches(['[', '(']);
    let label = first.split_once(':').map_or("", |(label, _)| label.trim());
    // As in "suggestion (non-blocking): …".
    if ["(non-blocking)", "(optional)", "(nit)", "(if-minor)"]
        .iter()
        .any(|decoration| label.ends_with(decoration))
    {
        return true;
    }
    OPTIONAL_LABELS.iter().any(|optional| {
        first.strip_prefix(optional).is_some_and(|rest| {
            let next = rest.chars().next();
            let ends = matches!(next, None | Some(':' | ')' | ']' | ',' | ';'))
                || rest.trim_start().starts_with(['-', '–', '—'])
                    && next.is_some_and(char::is_whitespace);
            // "Nit" is no word of any sentence about code.
            ends || (optional.starts_with("nit") && next.is_some_and(char::is_whitespace))
        })
    })
}

fn is_praise(text: &str) -> bool {
    let text = text.to_lowercase();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let known = |word: &&str| PRAISES.contains(word) || FILLERS.contains(word);
    let praises = words.iter().any(|word| PRAISES.contains(word));
    let is_question = text.contains('?');
    // Without a word it is a sign of approval, or a sigh.
    words.is_empty() && !is_question
        || praises && !is_question && words.len() <= 20 && words.iter().all(known)
}

/// Whether a text holds something to be done: an open task, a mark or a heading of what blocks, or a
/// list below a request.
pub(super) fn is_actionable(body: &str) -> bool {
    let lines = own_lines(body);
    lines.iter().enumerate().any(|(at, line)| {
        let below = &lines[at + 1..];
        is_open_task(line)
            || is_marked(line)
            || (is_blocking_heading(line) && has_content(below))
            || (is_request(line) && below.first().is_some_and(|next| is_item(next)))
    })
}

/// A text's own lines: no quotations, no code, nothing that is not shown.
fn own_lines(body: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut fence, mut hidden) = (None::<&str>, false);
    for line in body.lines() {
        let trimmed = line.trim();
        let marker = ["```", "~~~"]
            .into_iter()
            .find(|marker| trimmed.starts_with(marker));
        match (fence, marker) {
            (Some(open), Some(found)) if open == found => fence = None,
            (Some(_), _) => {}
            (None, Some(found)) => fence = Some(found),
            (None, None) => {
                let shown = shown(trimmed, &mut hidden);
                if !shown.trim().is_empty() && !trimmed.starts_with('>') {
                    lines.push(shown.trim().to_owned());
                }
            }
        }
    }
    lines
}

/// A line without its HTML comments, which may go on over lines.
fn shown(line: &str, hidden: &mut bool) -> String {
    let (mut shown, mut rest) = (String::new(), line);
    while !rest.is_empty() {
        let (mark, other) = if *hidden {
            ("-->", true)
        } else {
            ("<!--", false)
        };
        let (before, after) = match rest.split_once(mark) {
            Some((before, after)) => (before, Some(after)),
            None => (rest, None),
        };
        if !other {
            shown.push_str(before);
        }
        let Some(after) = after else { break };
        *hidden = !*hidden;
        rest = after;
    }
    shown
}

/// In lower case, without emphasis and what stands before the first word.
fn plain(line: &str) -> String {
    let text = line.replace(['*', '_', '`'], "").to_lowercase();
    let leading = |c: char| !c.is_alphanumeric() && !matches!(c, '[' | '(');
    text.trim_start_matches(leading).trim_end().to_owned()
}

fn is_item(line: &str) -> bool {
    let numbered = || {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.len() < line.len() && (rest.starts_with(". ") || rest.starts_with(") "))
    };
    ["- ", "* ", "+ "]
        .iter()
        .any(|bullet| line.starts_with(bullet))
        && !is_closed_task(line)
        || numbered()
}

fn task(line: &str) -> Option<&str> {
    ["- [", "* [", "+ ["]
        .iter()
        .find_map(|bullet| line.strip_prefix(bullet))
}

fn is_open_task(line: &str) -> bool {
    let text = task(line).and_then(|task| task.strip_prefix(" ] "));
    text.is_some_and(|text| !is_labelled_optional(&plain(text)))
}

fn is_closed_task(line: &str) -> bool {
    task(line).is_some_and(|task| task.to_lowercase().starts_with("x]"))
}

/// As in "Blocking: …", "issue (blocking): …", "\[blocking\] …" and "🔴 …".
fn is_marked(line: &str) -> bool {
    let bare = line.trim_start_matches(['-', '*', '+', ' ']);
    if bare.starts_with(['🔴', '🟠']) {
        return true;
    }
    let text = plain(line);
    let told = |rest: &str| !is_nothing(rest);
    if let Some(rest) = text.strip_prefix('[') {
        let tagged = rest.split_once(']');
        return tagged
            .is_some_and(|(tag, rest)| BLOCKING_MARKS.contains(&tag.trim()) && told(rest));
    }
    let Some((label, rest)) = text.split_once(':') else {
        return false;
    };
    let label = label.trim();
    let decorated = label.ends_with("(blocking)") && !label.contains("not");
    (BLOCKING_MARKS.contains(&label) || decorated) && told(rest)
}

fn is_nothing(text: &str) -> bool {
    let text = text.trim().trim_end_matches(['.', '!']).trim();
    NOTHING.contains(&text)
}

fn heading(line: &str) -> Option<String> {
    let is_bold = line.len() > 4
        && line.starts_with("**")
        && line.trim_end_matches(':').ends_with("**")
        && !line[2..]
            .trim_end_matches(':')
            .trim_end_matches("**")
            .contains("**");
    if !line.starts_with('#') && !is_bold {
        return None;
    }
    let title = plain(line);
    // A count may stand behind it.
    let title = title.split(['(', ':']).next().unwrap_or_default();
    let title = title.trim_end_matches(|c: char| !c.is_alphabetic());
    Some(title.replace('-', " "))
}

fn is_blocking_heading(line: &str) -> bool {
    heading(line).is_some_and(|title| BLOCKING_HEADINGS.contains(&title.as_str()))
}

/// Whether anything is told before the next heading.
fn has_content(below: &[String]) -> bool {
    let section = below.iter().take_while(|line| heading(line).is_none());
    let mut told = section.filter(|line| !is_closed_task(line));
    told.any(|line| !is_nothing(&plain(line)))
}

fn is_request(line: &str) -> bool {
    let text = plain(line);
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    text.ends_with(':')
        && words.iter().any(|word| REQUESTS.contains(word))
        && !words.iter().any(|word| WAIVERS.contains(word))
}

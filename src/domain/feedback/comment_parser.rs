//! Parser of review comments: commands, labels, headings, task lists, and marks for optional
//! comments.

use super::IgnoreReason;

/// Start of a comment that requests a run. See docs/behaviour.md#gap-fill-runs.
const COMMAND: &str = "/agent-implement";

/// Start of the markers in all texts that the service or a run writes on a pull request.
const OWN_MARKER: &str = "<!-- agent-implement";

/// Headings of sections that request changes.
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

/// Labels of text that requests changes.
const BLOCKING_LABELS: &[&str] = &["blocker", "blocking", "must fix", "must-fix"];

/// Texts of an empty section.
const EMPTY_TEXTS: &[&str] = &["", "-", "n/a", "na", "nil", "no", "none", "nothing"];

/// Words that make the line above a list a request.
const REQUEST_WORDS: &[&str] = &[
    "address", "change", "changes", "fix", "must", "need", "needs", "please", "required", "should",
    "todo",
];

/// Words that turn a request into an option.
const WAIVER_WORDS: &[&str] = &[
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

/// Labels of optional comments.
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

/// Words that praise or agree. A comment that contains only these and [`FILLER_WORDS`] requests
/// nothing.
const PRAISE_WORDS: &[&str] = &[
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

/// Words that may stand beside praise.
const FILLER_WORDS: &[&str] = &[
    "1", "a", "all", "and", "approach", "are", "catch", "change", "changes", "code", "for", "here",
    "i", "idea", "is", "it", "job", "like", "looks", "makes", "me", "much", "my", "now", "of",
    "one", "point", "really", "same", "sense", "so", "solution", "sounds", "that", "the", "these",
    "this", "those", "to", "too", "touch", "very", "was", "well", "work", "you", "your",
];

/// Returns the instruction of a command. `None` if the comment is not a command.
pub fn parse_command(body: &str) -> Option<String> {
    let rest = body.strip_prefix(COMMAND)?;
    let is_word = rest.chars().next().is_none_or(char::is_whitespace);
    is_word.then(|| rest.trim().to_owned())
}

/// Returns whether the service or a run wrote the text: it contains a marker.
pub(super) fn is_own_comment(body: &str) -> bool {
    body.lines().any(|line| line.starts_with(OWN_MARKER))
}

/// Returns whether the first line of a comment marks it as blocking. Later lines are ignored,
/// because "not blocking" would match.
pub fn is_marked_blocking(body: &str) -> bool {
    let first = body.lines().map(str::trim).find(|line| !line.is_empty());
    let first = first.unwrap_or_default();
    let text = first.replace(['*', '_', '`'], "").to_lowercase();
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    let is_severe = text.strip_prefix("severity:").map(|severity| {
        let severity = severity.trim_start_matches(|c: char| !c.is_alphanumeric());
        ["major", "high", "critical", "blocker"]
            .iter()
            .any(|level| severity.starts_with(level))
    });
    first.contains(['🔴', '🟠']) || text.starts_with("blocking:") || is_severe == Some(true)
}

/// Returns the reason why a comment at a line can be ignored, if any.
pub(super) fn ignore_reason(body: &str) -> Option<IgnoreReason> {
    let lines = own_lines(body);
    let first = lines
        .first()
        .map(|line| normalize(line))
        .unwrap_or_default();
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
            // "Nit" has no other meaning in a sentence about code.
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
    let is_praise_or_filler =
        |word: &&str| PRAISE_WORDS.contains(word) || FILLER_WORDS.contains(word);
    let has_praise = words.iter().any(|word| PRAISE_WORDS.contains(word));
    let is_question = text.contains('?');
    // Text without words is an emoji.
    words.is_empty() && !is_question
        || has_praise && !is_question && words.len() <= 20 && words.iter().all(is_praise_or_filler)
}

/// Returns whether a text requests changes: an open task, a blocking label or heading, or a list
/// below a request.
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

/// Returns the visible lines written by the author: without quotations, code and HTML comments.
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
                let visible = without_html_comments(trimmed, &mut hidden);
                if !visible.trim().is_empty() && !trimmed.starts_with('>') {
                    lines.push(visible.trim().to_owned());
                }
            }
        }
    }
    lines
}

/// Removes HTML comments from a line. `hidden` carries an open comment to the next line.
fn without_html_comments(line: &str, hidden: &mut bool) -> String {
    let (mut visible, mut rest) = (String::new(), line);
    while !rest.is_empty() {
        let (delimiter, is_hidden) = if *hidden {
            ("-->", true)
        } else {
            ("<!--", false)
        };
        let (before, after) = match rest.split_once(delimiter) {
            Some((before, after)) => (before, Some(after)),
            None => (rest, None),
        };
        if !is_hidden {
            visible.push_str(before);
        }
        let Some(after) = after else { break };
        *hidden = !*hidden;
        rest = after;
    }
    visible
}

/// Returns a line in lower case, without emphasis and without characters before the first word.
fn normalize(line: &str) -> String {
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
    text.is_some_and(|text| !is_labelled_optional(&normalize(text)))
}

fn is_closed_task(line: &str) -> bool {
    task(line).is_some_and(|task| task.to_lowercase().starts_with("x]"))
}

/// Returns whether a line has a blocking label, such as "Blocking: …", "issue (blocking): …",
/// "\[blocking\] …" and "🔴 …".
fn is_marked(line: &str) -> bool {
    let bare = line.trim_start_matches(['-', '*', '+', ' ']);
    if bare.starts_with(['🔴', '🟠']) {
        return true;
    }
    let text = normalize(line);
    let has_text = |rest: &str| !is_empty_text(rest);
    if let Some(rest) = text.strip_prefix('[') {
        let tagged = rest.split_once(']');
        return tagged
            .is_some_and(|(tag, rest)| BLOCKING_LABELS.contains(&tag.trim()) && has_text(rest));
    }
    let Some((label, rest)) = text.split_once(':') else {
        return false;
    };
    let label = label.trim();
    let decorated = label.ends_with("(blocking)") && !label.contains("not");
    (BLOCKING_LABELS.contains(&label) || decorated) && has_text(rest)
}

fn is_empty_text(text: &str) -> bool {
    let text = text.trim().trim_end_matches(['.', '!']).trim();
    EMPTY_TEXTS.contains(&text)
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
    let title = normalize(line);
    // Drops a trailing count.
    let title = title.split(['(', ':']).next().unwrap_or_default();
    let title = title.trim_end_matches(|c: char| !c.is_alphabetic());
    Some(title.replace('-', " "))
}

fn is_blocking_heading(line: &str) -> bool {
    heading(line).is_some_and(|title| BLOCKING_HEADINGS.contains(&title.as_str()))
}

/// Returns whether the section contains text before the next heading.
fn has_content(below: &[String]) -> bool {
    let section = below.iter().take_while(|line| heading(line).is_none());
    let mut open_lines = section.filter(|line| !is_closed_task(line));
    open_lines.any(|line| !is_empty_text(&normalize(line)))
}

fn is_request(line: &str) -> bool {
    let text = normalize(line);
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    text.ends_with(':')
        && words.iter().any(|word| REQUEST_WORDS.contains(word))
        && !words.iter().any(|word| WAIVER_WORDS.contains(word))
}

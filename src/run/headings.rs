//! Normalization of the headings in an agent's summary.
//!
//! Models write headings at any level and in any form. The pull-request body has sections of its own,
//! and a repeated section reads like a mistake.

/// Sections that a summary may have, each once and at one level.
const SECTIONS: [&str; 3] = ["Summary", "Approach", "Test plan"];

/// Heading level of a section.
const LEVEL: usize = 2;

/// Heading found in a text.
struct Heading<'t> {
    level: usize,
    title: &'t str,
}

/// Returns the text with headings that fit into a pull-request body. The highest heading gets the
/// level of a section. A heading that repeats a section of the body (`body_sections`) or of the
/// text is removed; the text below it stays.
pub(crate) fn normalize(text: &str, body_sections: &[&str]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let top = headings(&lines).map(|(_, found)| found.level).min();
    let mut named: Vec<String> = body_sections.iter().map(|title| key(title)).collect();
    let mut normalized = String::new();
    let mut at = 0;
    let mut found = headings(&lines).peekable();
    while at < lines.len() {
        let Some((_, heading)) = found.next_if(|(line, _)| *line == at) else {
            normalized.push_str(lines[at]);
            normalized.push('\n');
            at += 1;
            continue;
        };
        at += 1 + usize::from(is_underlined(&lines, at));
        let key = key(heading.title);
        let section = SECTIONS.iter().find(|title| title.to_lowercase() == key);
        if named.contains(&key) {
            continue;
        }
        let (level, title) = match section {
            Some(title) => (LEVEL, *title),
            None => (heading.level - top.unwrap_or(LEVEL) + LEVEL, heading.title),
        };
        normalized.push_str(&format!("{} {title}\n", "#".repeat(level.min(6))));
        // Sub-headings of different sections may share a name.
        if section.is_some() {
            named.push(key);
        }
    }
    normalized.trim().to_owned()
}

/// Returns the headings outside code blocks, with the index of their line.
fn headings<'t>(lines: &'t [&'t str]) -> impl Iterator<Item = (usize, Heading<'t>)> {
    let mut fence: Option<&str> = None;
    lines.iter().enumerate().filter_map(move |(at, line)| {
        let mark = fence_of(line);
        match (fence, mark) {
            (None, Some(opened)) => {
                fence = Some(opened);
                return None;
            }
            (Some(opened), Some(closed)) if closed.starts_with(opened) => {
                fence = None;
                return None;
            }
            (Some(_), _) => return None,
            (None, None) => {}
        }
        Some((at, heading(lines, at)?))
    })
}

/// Returns the characters that open or close a code block.
fn fence_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| "`~".contains(*c))?;
    let end = line.find(|c| c != mark).unwrap_or(line.len());
    (end >= 3).then(|| &line[..end])
}

/// Returns the heading at a line: marked with `#`, underlined, or a section name alone on its line.
fn heading<'t>(lines: &'t [&'t str], at: usize) -> Option<Heading<'t>> {
    let line = lines[at].trim();
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let is_marked = (1..=6).contains(&level) && rest.starts_with([' ', '\t']);
    // Four spaces of indentation mark code.
    if is_marked && !lines[at].starts_with("    ") {
        let title = rest.trim().trim_end_matches('#').trim_end();
        return Some(Heading { level, title });
    }
    if is_underlined(lines, at) {
        let level = 1 + usize::from(lines[at + 1].starts_with('-'));
        return Some(Heading { level, title: line });
    }
    let is_alone = line.ends_with([':', '*', '_']) && is_section(line);
    is_alone.then_some(Heading {
        level: LEVEL,
        title: line,
    })
}

fn is_section(title: &str) -> bool {
    let key = key(title);
    SECTIONS.iter().any(|known| known.to_lowercase() == key)
}

/// Whether a section name is underlined as a heading. Below other text the line may be a horizontal
/// rule.
fn is_underlined(lines: &[&str], at: usize) -> bool {
    let line = lines.get(at + 1).map_or("", |line| line.trim_end());
    let is_rule = line.len() >= 3
        && ["=", "-"]
            .iter()
            .any(|mark| line.replace(mark, "").is_empty());
    is_rule && is_section(lines[at])
}

/// Returns a title in the form used for comparison.
fn key(title: &str) -> String {
    let plain = title.trim_matches(|c: char| !c.is_alphanumeric());
    plain
        .to_lowercase()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_each_section_once_in_every_form() {
        let expected = "It works.\n## Approach\nSlowly.\n## Test plan\n- ran it";
        for (summary, approach, plan) in [
            ("## Summary", "## Approach", "## Test plan"),
            ("# SUMMARY", "# approach", "# Test Plan:"),
            ("### Summary ###", "#### Approach", "##### TEST PLAN"),
            ("**Summary**", "**Approach:**", "__Test plan__"),
            ("Summary:", "Approach:", "Test plan:"),
            ("Summary\n=======", "Approach\n---", "Test Plan\n---"),
        ] {
            let text = format!("{summary}\nIt works.\n{approach}\nSlowly.\n{plan}\n- ran it");
            assert_eq!(normalize(&text, &["Summary"]), expected, "{summary}");
            let twice = format!("{text}\n{summary}\n{plan}\n{approach}");
            assert_eq!(normalize(&twice, &["Summary"]), expected, "{summary}");
        }
    }

    #[test]
    fn keeps_order_and_relative_level_of_other_headings() {
        let rows = [
            ("# Add it\n## How\n### Why", "## Add it\n### How\n#### Why"),
            ("### How\n#### Why\n### How", "## How\n### Why\n## How"),
            ("## Checks\nran", "ran"),
            ("###### Deep\n# High", "###### Deep\n## High"),
            ("plain words", "plain words"),
            ("", ""),
        ];
        for (text, expected) in rows {
            assert_eq!(normalize(text, &["Summary", "Checks"]), expected, "{text}");
        }
    }

    #[test]
    fn keeps_text_that_only_resembles_a_heading() {
        for text in [
            "```sh\n# Summary\necho\n```\nend",
            "~~~~\n## Summary\n~~~\n# Summary\n~~~~\nend",
            "    # Summary",
            "#Summary",
            "In summary: it works.",
            "Summary of what was done:",
            "words\n---\nwords",
            "- **Approach** was slow",
        ] {
            assert_eq!(normalize(text, &["Summary"]), text.trim(), "{text}");
        }
    }
}

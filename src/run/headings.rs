//! The headings of an agent's summary, made to stand among the sections of a pull request.
//!
//! Models write headings of their own, at any level and in any form. Those of our sections stand in
//! the body already, and a section that is named twice is read as a mistake.

/// Sections that a summary may have, each once and at one level, as they are written.
const SECTIONS: [&str; 3] = ["Summary", "Approach", "Test plan"];

/// The level of a section.
const LEVEL: usize = 2;

/// A line that is a heading.
struct Heading<'t> {
    level: usize,
    title: &'t str,
}

/// Returns a text whose headings fit below a section of a body: the highest stands at the level of
/// sections, and neither a section that the body has itself (`ours`) nor one that was there before is
/// named again. What stands below such a heading stays.
pub fn normalize(text: &str, ours: &[&str]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let top = headings(&lines).map(|(_, found)| found.level).min();
    let mut named: Vec<String> = ours.iter().map(|title| key(title)).collect();
    let mut fitted = String::new();
    let mut at = 0;
    let mut found = headings(&lines).peekable();
    while at < lines.len() {
        let Some((_, heading)) = found.next_if(|(line, _)| *line == at) else {
            fitted.push_str(lines[at]);
            fitted.push('\n');
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
        fitted.push_str(&format!("{} {title}\n", "#".repeat(level.min(6))));
        // Parts of different sections may have the same name.
        if section.is_some() {
            named.push(key);
        }
    }
    fitted.trim().to_owned()
}

/// The headings outside of code, with the line that each begins at.
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

/// The three or more characters that open or close code.
fn fence_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| "`~".contains(*c))?;
    let end = line.find(|c| c != mark).unwrap_or(line.len());
    (end >= 3).then(|| &line[..end])
}

/// The heading that begins at a line, in any of its forms: marked, underlined, or the name of a
/// section alone on a line.
fn heading<'t>(lines: &'t [&'t str], at: usize) -> Option<Heading<'t>> {
    let line = lines[at].trim();
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let is_marked = (1..=6).contains(&level) && rest.starts_with([' ', '\t']);
    // Four spaces make code of a line.
    if is_marked && !lines[at].starts_with("    ") {
        let title = rest.trim().trim_end_matches('#').trim_end();
        return Some(Heading { level, title });
    }
    if is_underlined(lines, at) {
        let level = 1 + usize::from(lines[at + 1].starts_with('-'));
        return Some(Heading { level, title: line });
    }
    let alone = line.ends_with([':', '*', '_']) && is_section(line);
    alone.then_some(Heading {
        level: LEVEL,
        title: line,
    })
}

fn is_section(title: &str) -> bool {
    let key = key(title);
    SECTIONS.iter().any(|known| known.to_lowercase() == key)
}

/// Whether a section's name is made a heading by the line below it. Of other lines that may be a rule.
fn is_underlined(lines: &[&str], at: usize) -> bool {
    let line = lines.get(at + 1).map_or("", |line| line.trim_end());
    let is_rule = line.len() >= 3
        && ["=", "-"]
            .iter()
            .any(|mark| line.replace(mark, "").is_empty());
    is_rule && is_section(lines[at])
}

/// A title as it is compared.
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
    fn each_section_is_named_once_whatever_its_form() {
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
    fn other_headings_keep_their_order_and_their_distance() {
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
    fn what_only_looks_like_a_heading_stays() {
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

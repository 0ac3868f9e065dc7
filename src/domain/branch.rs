//! The branch a run works on, and the prefix a mapping may give it.

use super::ids::IssueKey;

const MAX_PREFIX: usize = 64;
const MAX_SLUG: usize = 48;

/// The branch of an issue: `[prefix/]agent-implement/<identifier>-<title slug>`.
///
/// It is fixed at the first dispatch and kept with the issue, so that a changed title opens no
/// second pull request.
pub fn branch_name(prefix: Option<&str>, key: &IssueKey, title: &str) -> String {
    let own = match slug(title) {
        slug if slug.is_empty() => self::slug(key.as_str()),
        slug => format!("{}-{slug}", self::slug(key.as_str())),
    };
    match prefix {
        Some(prefix) => format!("{prefix}/agent-implement/{own}"),
        None => format!("agent-implement/{own}"),
    }
}

/// Lower-case ASCII letters and digits in words joined by single dashes, cut between words.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for word in text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        let word = word.to_ascii_lowercase();
        if slug.is_empty() {
            slug.extend(word.chars().take(MAX_SLUG));
        } else if slug.len() + 1 + word.len() <= MAX_SLUG {
            slug.push('-');
            slug.push_str(&word);
        } else {
            break;
        }
    }
    slug
}

/// Checks a branch prefix. Leading and trailing slashes are trimmed, one each; the error names the
/// rule that is broken.
pub fn parse_prefix(text: &str) -> Result<Option<String>, &'static str> {
    let trimmed = text.strip_prefix('/').unwrap_or(text);
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    if trimmed.is_empty() {
        return Ok(None);
    }
    if trimmed.len() > MAX_PREFIX {
        return Err("must be at most 64 characters");
    }
    if trimmed.contains("..") {
        return Err("must not contain '..'");
    }
    for segment in trimmed.split('/') {
        check_segment(segment)?;
    }
    Ok(Some(trimmed.to_owned()))
}

fn check_segment(segment: &str) -> Result<(), &'static str> {
    let Some(first) = segment.chars().next() else {
        return Err("must not contain '//'");
    };
    if !first.is_ascii_alphanumeric() {
        return Err("each segment must begin with a letter or digit");
    }
    if !segment
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    {
        return Err("only letters, digits, '.', '_', '-' and '/' are allowed");
    }
    if segment.ends_with(".lock") {
        return Err("a segment must not end with '.lock'");
    }
    if segment.ends_with('.') {
        return Err("a segment must not end with '.'");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_readable_and_always_valid() {
        let key = IssueKey::from("ENG-42");
        assert_eq!(
            branch_name(None, &key, "Fix the  Login (again)!"),
            "agent-implement/eng-42-fix-the-login-again"
        );
        assert_eq!(
            branch_name(Some("bots/x"), &key, "日本語"),
            "bots/x/agent-implement/eng-42"
        );
        let long = branch_name(None, &key, &"word ".repeat(40));
        assert!(long.len() < 80 && !long.ends_with('-'), "{long}");
        assert!(branch_name(None, &key, &"w".repeat(400)).len() < 80);
    }

    #[test]
    fn a_prefix_is_refused_by_the_rule_it_breaks() {
        for (good, parsed) in [
            ("", None),
            ("/", None),
            ("bot", Some("bot")),
            ("/a/b.c/", Some("a/b.c")),
            ("A_1-x", Some("A_1-x")),
        ] {
            assert_eq!(parse_prefix(good), Ok(parsed.map(str::to_owned)), "{good}");
        }
        for (bad, rule) in [
            ("a//b", "must not contain '//'"),
            ("//a", "must not contain '//'"),
            ("a..b", "must not contain '..'"),
            ("-a", "each segment must begin with a letter or digit"),
            ("a/.b", "each segment must begin with a letter or digit"),
            (
                "a b",
                "only letters, digits, '.', '_', '-' and '/' are allowed",
            ),
            (
                "a~1",
                "only letters, digits, '.', '_', '-' and '/' are allowed",
            ),
            ("a.lock", "a segment must not end with '.lock'"),
            ("a.lock/b", "a segment must not end with '.lock'"),
            ("a.", "a segment must not end with '.'"),
        ] {
            assert_eq!(parse_prefix(bad), Err(rule), "{bad}");
        }
        assert_eq!(
            parse_prefix(&"a".repeat(65)),
            Err("must be at most 64 characters")
        );
    }
}

//! Branch names of runs.

use super::ids::IssueKey;

/// Maximum length of a prefix.
const MAX_PREFIX: usize = 64;
/// Maximum length of the part derived from the title.
const MAX_SLUG: usize = 48;

/// Returns the branch of an issue: `[prefix/]agent-implement/<identifier>-<title slug>`.
///
/// It is determined at the first dispatch and stored with the issue, so that a changed title does
/// not lead to a second pull request.
pub fn branch_name(prefix: Option<&str>, key: &IssueKey, title: &str) -> String {
    let name = match slug(title) {
        slug if slug.is_empty() => self::slug(key.as_str()),
        slug => format!("{}-{slug}", self::slug(key.as_str())),
    };
    match prefix {
        Some(prefix) => format!("{prefix}/agent-implement/{name}"),
        None => format!("agent-implement/{name}"),
    }
}

/// Returns lower-case ASCII words joined by dashes, truncated between words.
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

/// Validates a branch prefix. One leading and one trailing slash are removed.
///
/// # Errors
/// The rule that is broken.
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
    fn branch_names_are_always_valid() {
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
    fn rejects_a_prefix_with_the_broken_rule() {
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

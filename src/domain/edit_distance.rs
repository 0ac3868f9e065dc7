//! Suggestions for misspelt names.

/// Maximum length of a name, in bytes. The cost of a comparison is the product of both lengths.
const MAX_LENGTH: usize = 128;

/// Returns the known name that is closest to `name`. `None` if all differ by more than one edit per
/// three characters. Letter case is ignored. The first of equally close names is returned.
pub fn closest_name<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    closest_name_within(name, (name.chars().count() / 3).max(1), known)
}

/// Returns the known name that is closest to `name`, with at most `max_edits` edits. Otherwise
/// like [`closest_name`].
pub fn closest_name_within<'k>(
    name: &str,
    max_edits: usize,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let name = folded(name)?;
    let candidates = known.into_iter().filter_map(|candidate| {
        let edits = edits(&name, &folded(candidate)?);
        (edits <= max_edits).then_some((edits, candidate))
    });
    let (_, found) = candidates.min_by_key(|(edits, _)| *edits)?;
    Some(found)
}

/// Returns the lower-case characters of a name. `None` if it is too long.
fn folded(name: &str) -> Option<Vec<char>> {
    let is_short = name.len() <= MAX_LENGTH;
    is_short.then(|| name.chars().flat_map(char::to_lowercase).collect())
}

/// Returns the minimum number of insertions, deletions, substitutions and transpositions between
/// two words (optimal string alignment).
fn edits(one: &[char], other: &[char]) -> usize {
    let mut previous_row: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, left) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, right) in other.iter().enumerate() {
            let mut least = (last[column] + usize::from(left != right))
                .min(last[column + 1] + 1)
                .min(next[column] + 1);
            let is_swapped =
                row > 0 && column > 0 && *left == other[column - 1] && one[row - 1] == *right;
            if is_swapped {
                least = least.min(previous_row[column - 1] + 1);
            }
            next.push(least);
        }
        previous_row = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        let rows = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("agent", "agent", 0),
            ("agnet", "agent", 1),
            ("modle", "model", 1),
            ("kitten", "sitting", 3),
            ("ca", "abc", 3),
        ];
        for (one, other, expected) in rows {
            let chars = |word: &str| word.chars().collect::<Vec<_>>();
            assert_eq!(edits(&chars(one), &chars(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn suggests_the_closest_name() {
        let known = [
            "agent",
            "models",
            "guard",
            "LINEAR_API_KEY",
            "LINEAR_API_URL",
            "PORT",
        ];
        let rows = [
            ("agnet", Some("agent")),
            ("Agent", Some("agent")),
            ("model", Some("models")),
            ("LINEAR_APIKEY", Some("LINEAR_API_KEY")),
            ("linear_api_url", Some("LINEAR_API_URL")),
            ("LINEAR_API_KEY.txt", Some("LINEAR_API_KEY")),
            ("POTR", Some("PORT")),
            ("colour", None),
            ("x", None),
            ("", None),
        ];
        for (name, expected) in rows {
            assert_eq!(closest_name(name, known), expected, "{name}");
        }
    }

    #[test]
    fn ignores_names_that_are_too_long() {
        let long = "a".repeat(1 << 20);
        assert_eq!(closest_name(&long, ["agent"]), None);
        assert_eq!(closest_name("agent", [long.as_str()]), None);
    }
}

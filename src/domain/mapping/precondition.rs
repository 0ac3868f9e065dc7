//! Versions of stored mappings, so that a change cannot overwrite one that its author has not seen.

use super::Mapping;
use crate::crypto::sha256_hex;

/// Number of hexadecimal digits of a version.
const DIGITS: usize = 32;

impl Mapping {
    /// Returns the version of the stored mapping as a strong entity tag, in quotes.
    pub fn etag(&self) -> String {
        // A mapping always serializes.
        let stored = serde_json::to_string(self).unwrap_or_default();
        format!("\"{}\"", &sha256_hex(&stored)[..DIGITS])
    }
}

/// Condition on the stored mapping under which a change is made: the header `If-Match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappingPrecondition {
    /// The change is made in any case.
    None,
    /// A mapping must be stored.
    Exists,
    /// The stored mapping must have one of these entity tags.
    OneOf(Vec<String>),
}

impl MappingPrecondition {
    /// Parses the values of the header. A value that is not an entity tag matches no mapping.
    pub fn parse(values: impl IntoIterator<Item = String>) -> Self {
        let values: Vec<String> = values.into_iter().collect();
        let tags = || {
            values
                .iter()
                .flat_map(|value| value.split(','))
                .map(str::trim)
        };
        if values.is_empty() {
            Self::None
        } else if tags().any(|tag| tag == "*") {
            Self::Exists
        } else {
            Self::OneOf(tags().map(str::to_owned).collect())
        }
    }

    /// Whether the stored mapping meets the condition.
    pub fn is_met_by(&self, stored: Option<&Mapping>) -> bool {
        match self {
            Self::None => true,
            Self::Exists => stored.is_some(),
            Self::OneOf(tags) => stored.is_some_and(|stored| tags.contains(&stored.etag())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mapping::example_mapping;

    #[test]
    fn matches_the_strong_tag_of_the_stored_content() {
        let stored = example_mapping(&json!({}));
        let changed = example_mapping(&json!({"maxTurns": 7}));
        let (tag, other) = (stored.etag(), changed.etag());
        assert_ne!(tag, other);
        assert_eq!(tag, stored.clone().etag());
        assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() == DIGITS + 2);
        let unquoted = tag.trim_matches('"').to_owned();
        let rows = [
            (vec![], true, true),
            (vec!["*".to_owned()], true, false),
            (vec![tag.clone()], true, false),
            (vec![format!("{other} , {tag}")], true, false),
            (vec![other.clone(), tag.clone()], true, false),
            (vec![other], false, false),
            (vec![format!("W/{tag}")], false, false),
            (vec![unquoted], false, false),
            (vec![String::new()], false, false),
        ];
        for (values, matches, matches_none) in rows {
            let condition = MappingPrecondition::parse(values);
            assert_eq!(condition.is_met_by(Some(&stored)), matches, "{condition:?}");
            assert_eq!(condition.is_met_by(None), matches_none, "{condition:?}");
        }
    }
}

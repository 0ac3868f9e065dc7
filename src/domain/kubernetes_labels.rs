//! Labels of Kubernetes objects.

use super::machine::EnvVarMap;

/// Maximum number of labels that select nodes.
const MAX_SELECTOR: usize = 10;

/// Maximum length of the name and of the value of a label.
const MAX_NAME: usize = 63;

/// Maximum length of a DNS name, such as the prefix of a name.
const MAX_DNS_NAME: usize = 253;

/// Returns whether these are valid labels that select nodes.
pub fn is_node_selector(labels: &EnvVarMap) -> bool {
    let is_valid = |(name, value): (&String, &String)| is_name(name) && is_label_value(value);
    labels.len() <= MAX_SELECTOR && labels.iter().all(is_valid)
}

/// Returns whether a label can have this value. An annotation can have any.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_word(text)
}

fn is_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_word(name),
        None => is_word(text),
    }
}

fn is_word(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    text.len() <= MAX_NAME
        && text.starts_with(is_end)
        && text.ends_with(is_end)
        && text
            .chars()
            .all(|c| is_end(c) || matches!(c, '-' | '_' | '.'))
}

/// Returns whether this is a DNS name in lower case, as the names of most objects are.
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= MAX_DNS_NAME && text.split('.').all(is_dns_label)
}

/// Returns whether this is one label of a DNS name in lower case, as the names of namespaces are.
pub fn is_dns_label(text: &str) -> bool {
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= MAX_NAME
        && text.starts_with(is_lower)
        && text.ends_with(is_lower)
        && text.chars().all(|c| is_lower(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_narrow_alphabet() {
        let long = "x".repeat(64);
        for valid in ["", "ENG-1", "a", "a_b.c-D", &long[..63]] {
            assert!(is_label_value(valid), "{valid}");
        }
        for invalid in ["acme/shop", "2026-01-01T00:00:00Z", "-a", "a-", "é", &long] {
            assert!(!is_label_value(invalid), "{invalid}");
        }
    }

    #[test]
    fn selectors_have_names_with_an_optional_prefix() {
        let is_valid = |name: &str| is_node_selector(&[(name.to_owned(), "x".to_owned())].into());
        for valid in ["pool", "kubernetes.io/arch", "a-b.example.com/Name_1"] {
            assert!(is_valid(valid), "{valid}");
        }
        for invalid in ["", "/arch", "a/b/c", "Upper.io/arch", "a..b/c", "a b", "x/"] {
            assert!(!is_valid(invalid), "{invalid}");
        }
        let many = (0..11).map(|at| (format!("l{at}"), String::new()));
        assert!(!is_node_selector(&many.collect()));
        assert!(is_node_selector(&EnvVarMap::new()));
    }
}

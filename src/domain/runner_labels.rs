//! Labels of GitHub Actions runners.

/// Maximum number of labels.
const MAX_LABELS: usize = 10;

/// Maximum length of a label, in characters.
const MAX_LABEL: usize = 100;

/// Label of runners that an organization operates itself.
const SELF_HOSTED: &str = "self-hosted";

/// Returns whether these are valid labels of one runner. They become a part of an expression of the workflow as a JSON
/// list, so they must not look like expressions themselves. An empty list stands for the default of the workflow.
pub fn are_valid(labels: &[String]) -> bool {
    labels.len() <= MAX_LABELS && labels.iter().all(|label| is_valid(label))
}

fn is_valid(label: &str) -> bool {
    let is_printable = |c: char| !c.is_control() && (c == ' ' || !c.is_whitespace());
    !label.trim().is_empty()
        && label.chars().count() <= MAX_LABEL
        && label.chars().all(is_printable)
        && !label.contains("${{")
}

/// Returns whether the labels name a runner that the organization operates itself.
pub fn are_self_hosted(labels: &[String]) -> bool {
    labels
        .iter()
        .any(|label| label.eq_ignore_ascii_case(SELF_HOSTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_few_short_and_no_expressions() {
        let labels = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        for valid in [
            &[][..],
            &["ubuntu-latest-16-cores"],
            &["self-hosted", "linux", "x64"],
            &["große Maschine"],
            &["a"; 10],
        ] {
            assert!(are_valid(&labels(valid)), "{valid:?}");
        }
        let long = "x".repeat(101);
        for invalid in [
            &[""][..],
            &[" "],
            &["a\nb"],
            &["${{ secrets.X }}"],
            &["a"; 11],
            &[long.as_str()],
        ] {
            assert!(!are_valid(&labels(invalid)), "{invalid:?}");
        }
        assert!(are_self_hosted(&labels(&["linux", "Self-Hosted"])));
        assert!(!are_self_hosted(&labels(&["ubuntu-latest"])));
    }
}

//! Log tail: the last lines of a run's output, within the limits for display.

/// Maximum number of lines in a log tail.
const LINES: usize = 60;
/// Maximum size of a log tail in bytes.
const BYTES: usize = 6_000;

/// Number of lines requested from a host. Larger than `LINES`, because some lines may be dropped.
pub(super) const REQUESTED_LINES: usize = 200;

/// Returns the last lines of a log.
pub(super) fn tail(log: &str) -> String {
    let mut bytes = 0;
    let mut kept: Vec<&str> = log
        .lines()
        .rev()
        .map(str::trim_end)
        .take(LINES)
        .take_while(|line| {
            bytes += line.len() + 1;
            bytes <= BYTES
        })
        .collect();
    kept.reverse();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_of_a_log_within_the_limits() {
        let long: String = (0..500).map(|line| format!("line {line}\n")).collect();
        let end = tail(&long);
        assert_eq!(end.lines().count(), LINES);
        assert!(end.ends_with("line 499"));
        assert!(tail(&"x".repeat(1_000).repeat(3)).len() <= BYTES);
        assert_eq!(tail(""), "");
    }
}

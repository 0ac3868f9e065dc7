//! The end of a log, as much of it as people read.

/// Most lines and bytes that are shown.
const LINES: usize = 60;
const BYTES: usize = 6_000;

/// How many lines a host is asked for: what is left out of them must not leave nothing.
pub(super) const REQUESTED_LINES: usize = 200;

/// The last lines of a log.
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
    fn the_end_of_a_log_is_kept_within_limits() {
        let long: String = (0..500).map(|line| format!("line {line}\n")).collect();
        let end = tail(&long);
        assert_eq!(end.lines().count(), LINES);
        assert!(end.ends_with("line 499"));
        assert!(tail(&"x".repeat(1_000).repeat(3)).len() <= BYTES);
        assert_eq!(tail(""), "");
    }
}

//! Progress comments of sessions.

use std::time::Duration;

use crate::sanitize;
use crate::time::Timestamp;

/// Returns a progress comment of a session: a sentence, its time and a link to the log.
pub fn session_comment(sentence: &str, at: Timestamp, log_url: Option<&str>) -> String {
    let at = at.date_text();
    match log_url {
        Some(url) => format!("{sentence}\n\n{at} · [log]({url})"),
        None => format!("{sentence}\n\n{at}"),
    }
}

/// Progress comment: the session machine was created.
pub(crate) const SESSION_CREATED: &str =
    "Session machine created. Cloning repo and running setup...";

/// Returns the progress comment about a destroyed session machine.
pub(crate) fn session_cleaned_up(lifetime: Duration) -> String {
    format!(
        "Session machine cleaned up. Duration: {}",
        format_duration(lifetime)
    )
}

/// Start of a reason that names the problem of a machine.
pub(crate) const MACHINE_PROBLEM: &str = "the session failed: ";

/// Reason of a run in Kubernetes that a signal stopped although nobody had cancelled it.
pub(crate) const STOPPED_FROM_OUTSIDE: &str = "the run was stopped from outside, for example by a drain of its node, a \
     preemption or the deletion of its pod";

/// Returns the progress comment about a failed session.
pub(crate) fn session_failed(reason: &str) -> String {
    let reason = first_line(reason);
    let problem = reason.strip_prefix(MACHINE_PROBLEM).unwrap_or(&reason);
    format!("Session failed: {problem}. Machine will be cleaned up.")
}

/// Returns the progress comment about a session that timed out.
pub(crate) fn session_timed_out(reason: &str) -> String {
    format!(
        "Session timed out: {}. Machine will be cleaned up.",
        first_line(reason)
    )
}

/// Returns the first line of a reason without its full stop, for use inside a sentence. The failure
/// comment contains the whole reason.
fn first_line(reason: &str) -> String {
    let line = reason.lines().find(|line| !line.trim().is_empty());
    let line = sanitize::plain_text(line.unwrap_or_default().trim());
    line.trim_end_matches(['.', ':']).to_owned()
}

/// Formats a duration, such as `3m 20s`.
fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m {seconds}s"),
        _ => format!("{hours}h {minutes}m {seconds}s"),
    }
}

/// Progress comment: the repository is cloned and set up.
pub(crate) const SESSION_READY: &str = "Environment ready. Implementation is running...";

/// Progress comment: the verification script started.
pub(crate) const VERIFY_RUNNING: &str = "Running verification script...";

/// Progress comment: the verification script succeeded.
pub(crate) const VERIFY_PASSED: &str = "Verification passed";

/// Returns the progress comment about a failed verification script.
pub(crate) fn verify_failed(summary: &str) -> String {
    format!("Verification failed: {}", sanitize::plain_text(summary))
}

/// Returns the progress comment about the opened pull request.
pub(crate) fn session_finished(number: u64, url: &str) -> String {
    format!("Finished. PR #{number} opened: {url}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_comments_have_the_specified_wording() {
        let rows = [
            (
                session_cleaned_up(Duration::from_secs(3)),
                "Session machine cleaned up. Duration: 3s",
            ),
            (
                session_cleaned_up(Duration::from_secs(200)),
                "Session machine cleaned up. Duration: 3m 20s",
            ),
            (
                session_cleaned_up(Duration::from_secs(3_600)),
                "Session machine cleaned up. Duration: 1h 0m 0s",
            ),
            (
                session_failed("\ngit clone failed (exit 128): no.\nmore"),
                "Session failed: git clone failed (exit 128): no. Machine will be cleaned up.",
            ),
            (
                session_failed("the session failed: its pod ended: Evicted"),
                "Session failed: its pod ended: Evicted. Machine will be cleaned up.",
            ),
            (
                session_timed_out("the run exceeded its time budget of 60 minutes"),
                "Session timed out: the run exceeded its time budget of 60 minutes. Machine will be cleaned up.",
            ),
        ];
        for (comment, expected) in rows {
            assert_eq!(comment, expected);
        }
        let at = Timestamp::parse("2026-11-21T16:00:00Z").unwrap();
        assert_eq!(
            session_comment(SESSION_CREATED, at, Some("https://log")),
            "Session machine created. Cloning repo and running setup...\n\n21 Nov 16:00 UTC · [log](https://log)"
        );
    }
}

//! Comments about failing checks of a pull request.

use crate::job::{Job, JobState, PullRequestRef, RunHandle};
use crate::red_checks::{CiRecord, CiStatus, CiStop};
use crate::sanitize;
use crate::time::Timestamp;

/// Number of digits of a commit that are shown.
const SHORT_SHA: usize = 7;

/// Returns the comment on a ticket about failing checks of its pull request. `None` if none fails, or if those that
/// fail are not the pull request's.
pub fn checks_on_ticket(status: &CiStatus, pull: &PullRequestRef) -> Option<String> {
    let advice = match status {
        CiStatus::Repairing { .. } => "This comment is removed when the checks pass.",
        CiStatus::Stopped { .. } => "A person is needed. The pull request says what was tried.",
        CiStatus::Quiet
        | CiStatus::Unjudged
        | CiStatus::OnBase { .. }
        | CiStatus::Rerunning { .. }
        | CiStatus::Due { .. } => return None,
    };
    let sentence = sanitize::plain_text(&status.message()?);
    let link = format!("[#{}]({})", pull.number, pull.url);
    Some(format!("{sentence} ({link})\n\n{advice}"))
}

/// Returns the comment on a pull request about its failing checks. `None` if there is nothing to say there.
pub fn checks_on_pull(ci: &CiRecord, jobs: &[Job]) -> Option<String> {
    if ci.status == CiStatus::Unjudged {
        return None;
    }
    let message = ci.status.message().map(|text| sanitize::plain_text(&text));
    let mut body = match (&ci.status, message) {
        (CiStatus::OnBase { .. }, Some(message)) => format!(
            "{message}. These checks fail on the base branch too, so they are not repaired here."
        ),
        (CiStatus::Stopped { reason, .. }, Some(message)) => {
            format!("{message}. {}{}", advice(*reason), attempts(ci, jobs))
        }
        (_, Some(message)) => {
            ci.comment.as_ref()?;
            format!("{message}.")
        }
        (_, None) => match flakes(ci) {
            Some(flakes) => return Some(flakes),
            None => {
                ci.comment.as_ref()?;
                return Some("The checks no longer fail.".to_owned());
            }
        },
    };
    if let Some(error) = &ci.settings_error {
        let error = sanitize::plain_text(error);
        body.push_str(&format!("\n\nThe defaults are in force: {error}"));
    }
    Some(body)
}

fn advice(reason: CiStop) -> &'static str {
    match reason {
        CiStop::Off => "The repository's settings allow no run for failing checks.",
        CiStop::SameFailure | CiStop::AttemptsUsed | CiStop::Cancelled => {
            "A person is needed. No run for failing checks starts until somebody pushes to the branch. \
             To start one at once, comment `/agent-implement`."
        }
    }
}

/// Lists what was tried since the last push of a person.
fn attempts(ci: &CiRecord, jobs: &[Job]) -> String {
    let lines = ci.attempts.iter().enumerate().map(|(number, attempt)| {
        let job = jobs.iter().find(|job| job.id == attempt.job);
        let url = job.and_then(|job| match &job.run {
            Some(RunHandle::Ci { url, .. }) => Some(url),
            _ => None,
        });
        let run = match url {
            Some(url) => format!("[run]({url})"),
            None => format!("run {}", attempt.job),
        };
        let result = match (&attempt.commit, job.map(|job| &job.state)) {
            (Some(commit), _) => format!("pushed {}", short(commit)),
            (None, Some(JobState::Completed)) => "pushed nothing".to_owned(),
            (None, _) => "failed and pushed nothing".to_owned(),
        };
        format!("\n- Attempt {}: {run}, {result}", number + 1)
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\n\nWhat was tried:\n{lines}"),
    }
}

/// Names the checks that turned out to be flaky on the current head commit.
fn flakes(ci: &CiRecord) -> Option<String> {
    let flake = ci.flakes.last();
    let flake = flake.filter(|flake| Some(&flake.head) == ci.head.as_ref())?;
    let checks = sanitize::plain_text(&flake.checks.join(", "));
    Some(format!(
        "Flaky: {checks} failed on {}, and passed when it ran again on the same commit.",
        short(&flake.head)
    ))
}

fn short(sha: &str) -> &str {
    sha.get(..SHORT_SHA).unwrap_or(sha)
}

/// Returns the pull request comment about failing checks that wait for the daily limit of automatic runs.
pub fn repairs_limit_reached(limit: usize, until: Timestamp) -> String {
    format!(
        "Reached the limit of {limit} automatic runs per day. The failing checks will be worked on after {}. To start a run at once, comment `/agent-implement`.",
        until.date_text()
    )
}

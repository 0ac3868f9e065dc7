//! `agent-implement why`: latest decision about an issue, with advice, its runs and its pull requests.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};

use domain::comments::run_kind_name;
use domain::decision::{Decision, DecisionOutcome, advice};
use domain::ids::IssueKey;
use domain::job::JobKind;
use domain::report::Usage;
use domain::sanitize::single_line;
use domain::time::Timestamp;

use engine::clock::Clock;
use vendors::http::percent_encode;

use super::local_service::{ServiceLocation, ServiceOrStore, connect_or_open};

/// Exit code for an issue that waits.
const WAITING: u8 = 3;

/// Exit code for an issue that no poll has seen.
const UNKNOWN: u8 = 4;

/// Exit code for an issue whose last run failed.
const FAILED: u8 = 5;

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct WhyArgs {
    /// Key of the issue, for example ENG-123.
    #[arg(value_name = "ISSUE")]
    issue: String,
    /// Print the response of GET /api/why/:issue.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

const HELP: &str = "\
Exit codes: 0 the issue was dispatched, is in progress or is done; 3 it waits; 4 no poll has seen it with its \
trigger; 5 its last run failed, at most 7 days ago; 1 neither the service nor its store could be read; 2 the command \
line is wrong.

Works while the service runs (over DATA_DIR/control.sock, as its user or root) and while it is stopped.";

/// Prints the latest decision about an issue, its runs and its pull requests.
pub(super) async fn why(arguments: WhyArgs) -> anyhow::Result<ExitCode> {
    let Some(body) = load(&arguments).await? else {
        eprintln!(
            "agent-implement: no poll has seen {} with its trigger. Check that the trigger is set, the project is mapped \
             and the ticketing system is connected; see agent-implement doctor.",
            arguments.issue
        );
        return Ok(ExitCode::from(UNKNOWN));
    };
    let view: IssueView = serde_json::from_value(body.clone())?;
    if arguments.json {
        println!("{body:#}");
    } else {
        let mut text = String::new();
        view.write(&mut text, Clock::System.now())?;
        print!("{text}");
    }
    Ok(match view.decision.map(|decision| decision.outcome) {
        Some(DecisionOutcome::Waiting) => ExitCode::from(WAITING),
        Some(DecisionOutcome::Failed) => ExitCode::from(FAILED),
        Some(DecisionOutcome::Dispatched | DecisionOutcome::InProgress | DecisionOutcome::Done)
        | None => ExitCode::SUCCESS,
    })
}

async fn load(arguments: &WhyArgs) -> anyhow::Result<Option<Value>> {
    let issue = arguments.issue.trim();
    Ok(
        match connect_or_open(arguments.location.data_dir()).await? {
            ServiceOrStore::Running(service) => {
                let path = format!("/api/why/{}", percent_encode(issue));
                service.get(&path).await?
            }
            ServiceOrStore::Stopped(store) => {
                let now = Clock::System.now();
                let view = store.read(|tx| server::why(tx, &IssueKey::new(issue), now))?;
                view.map(|view| json!(view))
            }
        },
    )
}

/// Maximum number of runs and of pull requests printed.
const MAX_SHOWN: usize = 5;

/// Response of the API, as far as this command prints it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssueView {
    identifier: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    url: String,
    decision: Option<Decision>,
    history: Vec<Decision>,
    #[serde(default)]
    jobs: Vec<RunView>,
    #[serde(default)]
    pull_requests: Vec<PullRequestView>,
    #[serde(default)]
    pending_updates: Vec<PendingUpdate>,
    #[serde(default)]
    taken_over: Option<TakenOver>,
}

/// Person who continues the work by hand.
#[derive(Deserialize)]
struct TakenOver {
    by: String,
    at: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunView {
    id: String,
    kind: JobKind,
    attempt: u32,
    status: String,
    conclusion: Option<String>,
    timeout_reason: Option<String>,
    failure_reason: Option<String>,
    run_url: Option<String>,
    reserved_at: Timestamp,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullRequestView {
    pr_number: u64,
    pr_url: String,
    state: String,
    draft: bool,
    findings_waiting: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PendingUpdate {
    description: String,
    last_error: Option<String>,
    given_up: bool,
}

impl IssueView {
    /// Writes the view with its times as they are read at `now`.
    fn write(&self, f: &mut impl Write, now: Timestamp) -> fmt::Result {
        writeln!(f, "{}  {}", self.identifier, single_line(&self.title))?;
        writeln!(f, "{}\n", single_line(&self.url))?;
        match &self.decision {
            Some(decision) => write_decision(f, decision, now)?,
            None => writeln!(f, "No decision yet.")?,
        }
        if let Some(TakenOver { by, at }) = &self.taken_over {
            let (by, since) = (single_line(by), at.clock_text(now));
            writeln!(
                f,
                "\nTaken over by {by} since {since}. To end it: agent-implement give-back {}",
                self.identifier
            )?;
        }
        if !self.pending_updates.is_empty() {
            writeln!(f, "\nPending updates:")?;
        }
        for update in &self.pending_updates {
            write!(f, "  {}", single_line(&update.description))?;
            match (&update.last_error, update.given_up) {
                (_, true) => f.write_str(" (given up: retry or drop it in the panel, Overview)")?,
                (Some(_), false) => f.write_str(" (is retried)")?,
                (None, false) => {}
            }
            match &update.last_error {
                Some(error) => writeln!(f, ": {}", single_line(error))?,
                None => writeln!(f)?,
            }
        }
        write_list(f, "Runs", &self.jobs, |f, run| run.write(f, now))?;
        write_list(f, "Pull requests", &self.pull_requests, |f, pull| {
            pull.write(f)
        })?;
        if !self.history.is_empty() {
            writeln!(f, "\nEarlier decisions:")?;
        }
        for decision in &self.history {
            let (at, what) = (decision.at.clock_text(now), headline(decision));
            writeln!(f, "  {at}  {what}: {}", single_line(&decision.message))?;
        }
        Ok(())
    }
}

/// Writes the newest items of a list, which is sorted newest first, and the number of the others.
fn write_list<W: Write, T>(
    f: &mut W,
    title: &str,
    items: &[T],
    write_item: impl Fn(&mut W, &T) -> fmt::Result,
) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{title}:")?;
    for item in items.iter().take(MAX_SHOWN) {
        write_item(f, item)?;
    }
    match items.len().saturating_sub(MAX_SHOWN) {
        0 => Ok(()),
        older => writeln!(f, "  and {older} older"),
    }
}

fn write_decision(f: &mut impl Write, decision: &Decision, now: Timestamp) -> fmt::Result {
    let since = decision.at.clock_text(now);
    if decision.outcome == DecisionOutcome::Failed {
        // The message says it, with the reason and how to retry.
        for line in lines(&decision.message) {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "  Since {since}.")?;
    } else {
        writeln!(f, "{} since {since}", headline(decision))?;
        write_indented(f, "  ", &decision.message)?;
    }
    match advice(decision) {
        Some(advice) => writeln!(f, "  What to do: {advice}"),
        None => Ok(()),
    }
}

impl RunView {
    fn write(&self, f: &mut impl Write, now: Timestamp) -> fmt::Result {
        write!(
            f,
            "  {}  {}, attempt {}: {}",
            self.reserved_at.clock_text(now),
            run_kind_name(self.kind),
            self.attempt,
            self.status_text(),
        )?;
        if let Some(cost) = self.usage.and_then(|usage| usage.cost_usd) {
            write!(f, ", ${cost:.2}")?;
        }
        writeln!(f, "  (run {})", single_line(&self.id))?;
        if let Some(reason) = &self.failure_reason {
            write_indented(f, "    ", reason)?;
        }
        match &self.run_url {
            Some(url) => writeln!(f, "    {}", single_line(url)),
            None => Ok(()),
        }
    }

    fn status_text(&self) -> String {
        let words = |word: &str| single_line(word).replace('_', " ");
        match (self.status.as_str(), self.conclusion.as_deref()) {
            ("unknown", _) => "reserved".to_owned(),
            ("failed", Some("cancelled")) => "cancelled".to_owned(),
            (status, _) => match &self.timeout_reason {
                Some(reason) => format!("{} ({})", words(status), words(reason)),
                None => words(status),
            },
        }
    }
}

impl PullRequestView {
    fn write(&self, f: &mut impl Write) -> fmt::Result {
        write!(f, "  #{} {}", self.pr_number, single_line(&self.state))?;
        if self.draft && self.state == "open" {
            f.write_str(", draft")?;
        }
        match self.findings_waiting {
            0 => {}
            1 => f.write_str(", 1 finding waits")?,
            many => write!(f, ", {many} findings wait")?,
        }
        writeln!(f, "  {}", single_line(&self.pr_url))
    }
}

/// Returns the outcome, and the reason for waiting as the documentation names it.
fn headline(decision: &Decision) -> String {
    let outcome = match decision.outcome {
        DecisionOutcome::Dispatched => "Dispatched",
        DecisionOutcome::Waiting => "Waiting",
        DecisionOutcome::InProgress => "In progress",
        DecisionOutcome::Done => "Done",
        DecisionOutcome::Failed => "Failed",
    };
    match decision.reason {
        Some(reason) => format!("{outcome} ({})", reason.as_str()),
        None => outcome.to_owned(),
    }
}

/// Returns the non-empty lines of a text, without control characters.
fn lines(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(single_line)
}

/// Writes each non-empty line of a text, indented.
fn write_indented(f: &mut impl Write, indent: &str, text: &str) -> fmt::Result {
    lines(text).try_for_each(|line| writeln!(f, "{indent}{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_failure_the_newest_runs_and_their_pull_requests() {
        let now = Timestamp::parse("2026-11-23T12:00:00Z").unwrap();
        let run = |attempt: u32| {
            json!({
                "id": format!("J{attempt}"), "kind": "gap-fill", "attempt": attempt, "status": "timed_out",
                "timeoutReason": "run_not_found", "reservedAt": "2026-11-22T08:30:00.000Z", "usage": null,
            })
        };
        let mut jobs = vec![json!({
            "id": "J7", "kind": "implementation", "attempt": 7, "status": "failed", "conclusion": "failure",
            "failureReason": "verify failed\n\n  make: *** [test]\u{1b}[31m Error 2\r\nsee the log",
            "reservedAt": "2026-11-23T08:30:00.000Z", "runUrl": "https://github.test/runs/7",
            "usage": {"turns": 3, "inputTokens": 1, "outputTokens": 1, "costUsd": 0.42},
        })];
        jobs.extend((1..=6).rev().map(run));
        let view: IssueView = serde_json::from_value(json!({
            "identifier": "ENG-1", "title": "Make it work", "url": "https://tickets.test/ENG-1", "history": [],
            "decision": {
                "at": "2026-11-23T09:00:00.000Z", "issueIdentifier": "ENG-1", "teamKey": "ENG", "outcome": "failed",
                "reason": "parked", "message": "Failed: verify failed. To retry, fix it.", "phase": null,
            },
            "jobs": jobs,
            "pullRequests": [{
                "prNumber": 12, "prUrl": "https://github.test/pull/12", "state": "open", "draft": true, "findingsWaiting": 1,
            }],
            "pendingUpdates": [{"description": "cancel run", "lastError": "GitHub did not answer in time", "givenUp": false}],
        }))
        .unwrap();
        let mut shown = String::new();
        view.write(&mut shown, now).unwrap();
        let expected = "\
ENG-1  Make it work
https://tickets.test/ENG-1

Failed: verify failed. To retry, fix it.
  Since 09:00 UTC.
  What to do: Its runs failed several times in a row. Fix the cause (see the reason of the last run). Then unpark it \
in the panel (Blockers), or run `agent-implement retry ENG-1`.

Pending updates:
  cancel run (is retried): GitHub did not answer in time

Runs:
  08:30 UTC  Implementation, attempt 7: failed, $0.42  (run J7)
    verify failed
    make: *** [test] Error 2
    see the log
    https://github.test/runs/7
  22 Nov 08:30 UTC  Gap fill, attempt 6: timed out (run not found)  (run J6)
  22 Nov 08:30 UTC  Gap fill, attempt 5: timed out (run not found)  (run J5)
  22 Nov 08:30 UTC  Gap fill, attempt 4: timed out (run not found)  (run J4)
  22 Nov 08:30 UTC  Gap fill, attempt 3: timed out (run not found)  (run J3)
  and 2 older

Pull requests:
  #12 open, draft, 1 finding waits  https://github.test/pull/12
";
        assert_eq!(shown, expected);
    }
}

//! `agent-implement why`: latest decision about an issue, with advice.

use std::fmt::{self, Write};
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};

use domain::decision::{Decision, DecisionOutcome, WaitReason, advice};
use domain::ids::IssueKey;
use domain::sanitize::single_line;
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

/// Prints the latest decision about an issue.
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
        print!("{view}");
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

/// Response of the API, as far as this command prints it.
#[derive(Deserialize)]
struct IssueView {
    identifier: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    url: String,
    decision: Option<Decision>,
    history: Vec<Decision>,
    #[serde(default)]
    job: Option<LatestRun>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LatestRun {
    id: String,
    kind: String,
    status: String,
    run_url: Option<String>,
    pr_url: Option<String>,
    failure_reason: Option<String>,
}

impl fmt::Display for IssueView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", self.identifier, single_line(&self.title))?;
        writeln!(f, "{}\n", single_line(&self.url))?;
        match &self.decision {
            Some(decision) => {
                writeln!(f, "{} since {}", headline(decision), decision.at)?;
                write_indented(f, &decision.message)?;
                if let Some(advice) = advice(decision) {
                    writeln!(f, "  What to do: {advice}")?;
                }
            }
            None => writeln!(f, "no decision yet")?,
        }
        if let Some(run) = &self.job {
            write!(f, "\n{run}")?;
        }
        if !self.history.is_empty() {
            writeln!(f, "\nEarlier decisions:")?;
        }
        for decision in &self.history {
            let (at, what) = (decision.at, headline(decision));
            writeln!(f, "  {at}  {what}: {}", single_line(&decision.message))?;
        }
        Ok(())
    }
}

impl fmt::Display for LatestRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Last run: {} {}, {}",
            single_line(&self.kind),
            self.id,
            self.status
        )?;
        if let Some(reason) = &self.failure_reason {
            write_indented(f, reason)?;
        }
        for url in [&self.run_url, &self.pr_url].into_iter().flatten() {
            writeln!(f, "  {}", single_line(url))?;
        }
        Ok(())
    }
}

fn headline(decision: &Decision) -> String {
    let mut line = outcome_text(decision.outcome);
    if let Some(reason) = decision.reason {
        // Writing to a string cannot fail.
        let _ = write!(line, " ({})", reason_text(reason));
    }
    line
}

fn outcome_text(outcome: DecisionOutcome) -> String {
    json!(outcome).as_str().unwrap_or_default().to_owned()
}

fn reason_text(reason: WaitReason) -> String {
    json!(reason).as_str().unwrap_or_default().to_owned()
}

/// Writes each non-empty line of a text, indented.
fn write_indented(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    { lines }.try_for_each(|line| writeln!(f, "  {}", single_line(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_each_line_of_a_failure_reason_on_its_own_line() {
        let view: IssueView = serde_json::from_value(json!({
            "identifier": "ENG-1", "history": [], "decision": null,
            "job": {
                "id": "J", "kind": "implementation", "status": "failed",
                "failureReason": "verify failed\n\n  make: *** [test]\u{1b}[31m Error 2\r\nsee the log",
            },
        }))
        .unwrap();
        let shown = view.to_string();
        let end = "failed\n  verify failed\n  make: *** [test] Error 2\n  see the log\n";
        assert!(shown.ends_with(end), "{shown}");
    }
}

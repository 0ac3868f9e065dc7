//! `agent-implement cancel` and `agent-implement retry`: control of runs of the running service.

use std::process::ExitCode;

use anyhow::bail;
use domain::sanitize::single_line;
use serde_json::{Value, json};
use vendors::http::percent_encode;

use super::local_service::{ControlClient, ServiceLocation, ServiceOrStore, connect_or_open};

/// Exit code for a request that the state of the run does not allow.
pub(super) const REFUSED: u8 = 3;

/// Exit code for an unknown run or issue.
pub(super) const UNKNOWN: u8 = 4;

/// Arguments of `cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = CANCEL_HELP)]
pub(super) struct CancelArgs {
    /// Key of an issue, for example ENG-123: its active run is cancelled. Or the id of a run, as agent-implement
    /// why prints it.
    #[arg(value_name = "ISSUE-OR-JOB")]
    named: String,
    /// Dispatch the work again. Without this flag it is given up: the ticket loses all labels of the service, or in
    /// Jira its Agent-Implement Status.
    #[arg(long)]
    retry: bool,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

/// Arguments of `retry`.
#[derive(Debug, clap::Args)]
#[command(after_help = RETRY_HELP)]
pub(super) struct RetryArgs {
    /// Key of an issue, for example ENG-123: the work of its latest run is tried again. Or the id of a run, as
    /// agent-implement why prints it.
    #[arg(value_name = "ISSUE-OR-JOB")]
    named: String,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

const CANCEL_HELP: &str = "\
The run ends at once and stops as soon as its host answers. Unpushed changes are lost.

Exit codes: 0 the run is cancelled; 3 it has ended before; 4 there is no such run; 1 the service could not be \
reached; 2 the command line is wrong.

Needs a running service (over DATA_DIR/control.sock, as its user or root). While it is stopped, runs continue at \
their hosts: start the service and cancel then.";

const RETRY_HELP: &str = "\
Clears what keeps the issue from being dispatched (dedup entry, parking, count of failures) and sets its trigger \
again. Another run starts when no other reason keeps it waiting.

Exit codes: 0 the retry is requested (see agent-implement why); 3 a run of the issue is \
active, or its ticket or pull request is closed; 4 there is no such run; 1 the service or the vendor could not be \
reached; 2 the command line is wrong.

Needs a running service (over DATA_DIR/control.sock, as its user or root).";

/// Cancels a run.
pub(super) async fn cancel(arguments: CancelArgs) -> anyhow::Result<ExitCode> {
    let service = connect(&arguments.location).await?;
    let path = path(&arguments.named, "cancel");
    let body = json!({ "retry": arguments.retry });
    let (status, answer) = service.post(&path, &body).await?;
    if status == 200 {
        let then = match arguments.retry {
            true => "dispatched again",
            false => "given up",
        };
        let id = answer["jobId"].as_str().unwrap_or_default();
        let id = single_line(id);
        println!("Cancelled run {id}. Its work is {then}. It stops as soon as its host answers.");
        return Ok(ExitCode::SUCCESS);
    }
    refusal(&arguments.named, status, &answer)
}

/// Requests another run for the work of an ended run.
pub(super) async fn retry(arguments: RetryArgs) -> anyhow::Result<ExitCode> {
    let service = connect(&arguments.location).await?;
    let path = path(&arguments.named, "retry");
    let (status, answer) = service.post(&path, &json!({})).await?;
    if status == 202 {
        let named = single_line(arguments.named.trim());
        println!("Retrying {named}. Another run starts when nothing keeps it waiting.");
        return Ok(ExitCode::SUCCESS);
    }
    refusal(&arguments.named, status, &answer)
}

fn path(named: &str, action: &str) -> String {
    format!("/api/jobs/{}/{action}", percent_encode(named.trim()))
}

/// Connects to the running service.
pub(super) async fn connect(location: &ServiceLocation) -> anyhow::Result<ControlClient> {
    match connect_or_open(location.data_dir()).await? {
        ServiceOrStore::Running(service) => Ok(service),
        ServiceOrStore::Stopped(_) => bail!(
            "the service in {} is stopped. Start it (systemctl start agent-implement) and repeat the command; \
             until then its runs continue at their hosts and nothing new starts",
            location.data_dir().display()
        ),
    }
}

/// Prints why the service refused, and returns the exit code.
fn refusal(named: &str, status: u16, answer: &Value) -> anyhow::Result<ExitCode> {
    let error = single_line(answer["error"].as_str().unwrap_or("no reason given"));
    let named = single_line(named.trim());
    match status {
        404 => {
            eprintln!(
                "agent-implement: {named} is neither the id of a run nor the key of an issue with a run."
            );
            Ok(ExitCode::from(UNKNOWN))
        }
        409 => {
            eprintln!("agent-implement: {named}: {error}.");
            Ok(ExitCode::from(REFUSED))
        }
        _ => bail!("{named}: {error}"),
    }
}

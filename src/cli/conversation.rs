//! `agent-implement answer`, `approve`, `reject` and `replan`: what people reply to runs, through the running service.

use std::process::ExitCode;

use anyhow::bail;
use domain::sanitize::single_line;
use serde_json::{Value, json};
use vendors::http::percent_encode;

use super::control::{REFUSED, UNKNOWN, connect};
use super::local_service::ServiceLocation;

/// Arguments of `answer`.
#[derive(Debug, clap::Args)]
#[command(after_help = ANSWER_HELP)]
pub(super) struct AnswerArgs {
    /// Key of the issue, for example ENG-123.
    #[arg(value_name = "ISSUE")]
    issue: String,
    /// Answer to all questions of the run, in Markdown.
    #[arg(value_name = "ANSWER")]
    answer: String,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

/// Arguments of `approve` and `reject`.
#[derive(Debug, clap::Args)]
#[command(after_help = PLAN_HELP)]
pub(super) struct PlanArgs {
    /// Key of the issue, for example ENG-123.
    #[arg(value_name = "ISSUE")]
    issue: String,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

/// Arguments of `replan`.
#[derive(Debug, clap::Args)]
#[command(after_help = PLAN_HELP)]
pub(super) struct ReplanArgs {
    /// Key of the issue, for example ENG-123.
    #[arg(value_name = "ISSUE")]
    issue: String,
    /// What the next plan is to do differently.
    #[arg(value_name = "INSTRUCTION", default_value = "")]
    instruction: String,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

const ANSWER_HELP: &str = "\
The work goes on with the answer, on the same branch. A comment on the ticket does the same.

Exit codes: 0 the answer counts; 4 no question of the issue is open; 1 the service could not be reached; 2 the \
command line is wrong.

Needs a running service (over DATA_DIR/control.sock, as its user or root).";

const PLAN_HELP: &str = "\
The plan stands in the comments of the ticket. An approval counts only if title, description and plan are still those \
that the plan was made for.

Exit codes: 0 done; 3 the ticket has changed, or only the approvers of the project may do this; 4 no plan of the \
issue waits; 1 the service or the ticketing system could not be reached; 2 the command line is wrong.

Needs a running service (over DATA_DIR/control.sock, as its user or root).";

/// Answers the open question of an issue.
pub(super) async fn answer(arguments: AnswerArgs) -> anyhow::Result<ExitCode> {
    let path = format!(
        "/api/questions/{}/answer",
        percent_encode(arguments.issue.trim())
    );
    let body = json!({ "answer": arguments.answer });
    let done = "Answered. The work goes on when no other reason keeps it waiting.";
    post(&arguments.location, &arguments.issue, &path, &body, done).await
}

/// Approves a plan.
pub(super) async fn approve(arguments: PlanArgs) -> anyhow::Result<ExitCode> {
    let PlanArgs { issue, location } = arguments;
    let done = "Approved. The implementation starts when no other reason keeps it waiting.";
    post_plan(&location, &issue, "approve", &json!({}), done).await
}

/// Rejects a plan.
pub(super) async fn reject(arguments: PlanArgs) -> anyhow::Result<ExitCode> {
    let PlanArgs { issue, location } = arguments;
    let done = "Rejected. Set the trigger of the ticket again for another plan.";
    post_plan(&location, &issue, "reject", &json!({}), done).await
}

/// Requests another plan.
pub(super) async fn replan(arguments: ReplanArgs) -> anyhow::Result<ExitCode> {
    let body = json!({ "instruction": arguments.instruction });
    let done = "The ticket is planned again when no other reason keeps it waiting.";
    post_plan(&arguments.location, &arguments.issue, "replan", &body, done).await
}

/// Posts a decision about the plan of an issue.
async fn post_plan(
    location: &ServiceLocation,
    issue: &str,
    action: &str,
    body: &Value,
    done: &str,
) -> anyhow::Result<ExitCode> {
    let path = format!("/api/plans/{}/{action}", percent_encode(issue.trim()));
    post(location, issue, &path, body, done).await
}

/// Posts a request, and prints the sentence for success or why the service refused.
async fn post(
    location: &ServiceLocation,
    issue: &str,
    path: &str,
    body: &Value,
    done: &str,
) -> anyhow::Result<ExitCode> {
    let service = connect(location).await?;
    let (status, answer) = service.post(path, body).await?;
    let error = single_line(answer["error"].as_str().unwrap_or("no reason given"));
    let issue = single_line(issue.trim());
    match status {
        200 | 202 => {
            println!("{done}");
            Ok(ExitCode::SUCCESS)
        }
        403 | 404 | 409 => {
            eprintln!("agent-implement: {issue}: {error}.");
            Ok(ExitCode::from(if status == 404 {
                UNKNOWN
            } else {
                REFUSED
            }))
        }
        _ => bail!("{issue}: {error}"),
    }
}

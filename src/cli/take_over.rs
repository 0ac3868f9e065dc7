//! `agent-implement take` and `agent-implement give-back`: people continue issues by hand.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use domain::comments::run_kind_name;
use domain::feedback::{ChecksState, PullRequestChecks, ReviewDecision};
use domain::sanitize::{log_line, single_line};
use domain::take_over::person_name;
use domain::take_over_guide::{
    TakeOverFinding, TakeOverGuide, TakeOverPull, TakeOverRun, shell_word,
};
use vendors::http::percent_encode;

use super::checkout::{self, CheckoutError};
use super::control::{REFUSED, UNKNOWN, connect};
use super::local_service::{ControlClient, ServiceLocation};
use super::terminal::print_bytes;

/// Arguments of `take`.
#[derive(Debug, clap::Args)]
#[command(after_help = TAKE_HELP)]
pub(super) struct TakeArgs {
    /// Key of the issue, for example ENG-123.
    #[arg(value_name = "ISSUE")]
    issue: String,
    /// Perform the printed commands in the clone of the repository that is the current folder. It must be clean.
    #[arg(long)]
    checkout: bool,
    /// Print the work of the last run that is not on the branch, for git apply, and nothing else. Nobody takes over.
    #[arg(long, conflicts_with = "checkout")]
    print_patch: bool,
    /// Print the response of the service as JSON.
    #[arg(long, conflicts_with_all = ["checkout", "print_patch"])]
    json: bool,
    #[command(flatten)]
    person: Person,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

/// Arguments of `give-back`.
#[derive(Debug, clap::Args)]
#[command(after_help = GIVE_BACK_HELP)]
pub(super) struct GiveBackArgs {
    /// Key of the issue, for example ENG-123.
    #[arg(value_name = "ISSUE")]
    issue: String,
    #[command(flatten)]
    person: Person,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

/// Person who takes over or gives back.
#[derive(Debug, clap::Args)]
struct Person {
    /// Name that the pull request and the panel show. Default: user.name of git.
    #[arg(long)]
    name: Option<String>,
}

impl Person {
    /// Body of the request. Without a name, the service names an operator.
    fn body(&self) -> Value {
        let name = self.name.clone().or_else(checkout::user_name);
        match name.as_deref().and_then(person_name) {
            Some(name) => json!({ "by": name }),
            None => json!({}),
        }
    }
}

const TAKE_HELP: &str = "\
Records that a person continues the issue by hand, and prints how: commands for a clone of the repository, the work of \
the last run that is not on the branch, open findings, checks and links. Until agent-implement give-back, no run of \
the issue starts and nothing automatic happens on its pull request. Commands in comments still start runs.

Exit codes: 0 done; 3 the current folder is no clean clone of the repository, or there is no patch to print; 4 neither \
a poll nor a run knows the issue; 1 the service could not be reached, or git failed; 2 the command line is wrong.

Needs a running service (over DATA_DIR/control.sock, as its user or root).";

const GIVE_BACK_HELP: &str = "\
Runs of the issue start again when no other reason keeps them waiting, and follow-ups for feedback that came meanwhile.

Exit codes: 0 nobody has the issue any more; 4 neither a poll nor a run knows the issue; 1 the service could not be \
reached; 2 the command line is wrong.

Needs a running service (over DATA_DIR/control.sock, as its user or root).";

/// Records that a person has an issue, and prints or performs how to continue.
pub(super) async fn take(arguments: TakeArgs) -> anyhow::Result<ExitCode> {
    let service = connect(&arguments.location).await?;
    let issue = arguments.issue.trim();
    if arguments.print_patch || arguments.checkout {
        let Some(shown) = service.get(&path(issue, "take")).await? else {
            return Ok(unknown(issue));
        };
        let guide: TakeOverGuide = serde_json::from_value(shown)?;
        return match arguments.print_patch {
            true => print_patch(&service, &guide).await,
            false => take_and_check_out(&service, issue, &arguments.person, guide).await,
        };
    }
    let (status, answer) = service
        .post(&path(issue, "take"), &arguments.person.body())
        .await?;
    if status != 200 {
        return refusal(issue, status, &answer);
    }
    if arguments.json {
        println!("{answer:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let guide: TakeOverGuide = serde_json::from_value(answer)?;
    let mut text = String::new();
    write(&mut text, &guide)?;
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// Gives an issue back.
pub(super) async fn give_back(arguments: GiveBackArgs) -> anyhow::Result<ExitCode> {
    let service = connect(&arguments.location).await?;
    let issue = arguments.issue.trim();
    let (status, answer) = service
        .post(&path(issue, "give-back"), &arguments.person.body())
        .await?;
    if status != 200 {
        return refusal(issue, status, &answer);
    }
    println!(
        "Nobody has {} any more. Automatic work goes on.",
        single_line(issue)
    );
    Ok(ExitCode::SUCCESS)
}

fn path(issue: &str, action: &str) -> String {
    format!("/api/issues/{}/{action}", percent_encode(issue))
}

fn unknown(issue: &str) -> ExitCode {
    let issue = single_line(issue);
    eprintln!("agent-implement: neither a poll nor a run knows {issue}.");
    ExitCode::from(UNKNOWN)
}

/// Prints why the service refused, and returns the exit code.
fn refusal(issue: &str, status: u16, answer: &Value) -> anyhow::Result<ExitCode> {
    if status == 404 {
        return Ok(unknown(issue));
    }
    let error = single_line(answer["error"].as_str().unwrap_or("no reason given"));
    bail!("{}: {error}", single_line(issue))
}

/// Downloads the kept patch, if there is one.
async fn download_patch(
    service: &ControlClient,
    guide: &TakeOverGuide,
) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(patch) = &guide.patch else {
        return Ok(None);
    };
    let path = format!("/api/jobs/{}/patch", percent_encode(patch.job_id.as_str()));
    let mut content = Vec::new();
    let write_chunk = |chunk: &[u8]| {
        content.extend_from_slice(chunk);
        Ok(())
    };
    service.download(&path, write_chunk).await?;
    Ok(Some(content))
}

/// Prints the patch, byte by byte unless a terminal would interpret it.
async fn print_patch(service: &ControlClient, guide: &TakeOverGuide) -> anyhow::Result<ExitCode> {
    let Some(patch) = download_patch(service, guide).await? else {
        let issue = single_line(guide.issue_identifier.as_str()).into_owned();
        eprintln!("agent-implement: {issue}: no run kept a patch.");
        return Ok(ExitCode::from(REFUSED));
    };
    match io::stdout().is_terminal() {
        true => String::from_utf8_lossy(&patch)
            .lines()
            .for_each(|line| println!("{}", log_line(line))),
        false => print_bytes(&patch),
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the current folder, takes the issue over, and puts its work into the folder.
async fn take_and_check_out(
    service: &ControlClient,
    issue: &str,
    person: &Person,
    guide: TakeOverGuide,
) -> anyhow::Result<ExitCode> {
    let patch = download_patch(service, &guide).await?;
    let folder = std::env::current_dir().context("cannot read the current folder")?;
    let opened = checkout::open(&folder, &guide, patch.as_deref());
    let work_tree = match opened {
        Ok(work_tree) => work_tree,
        Err(error) => return refuse(&folder, error),
    };
    let (status, answer) = service.post(&path(issue, "take"), &person.body()).await?;
    if status != 200 {
        return refusal(issue, status, &answer);
    }
    let guide: TakeOverGuide = serde_json::from_value(answer)?;
    let mut text = String::new();
    write_head(&mut text, &guide)?;
    let done = match work_tree.check_out(patch.as_deref()) {
        Ok(done) => done,
        Err(error) => {
            print!("{text}");
            return refuse(&folder, error);
        }
    };
    writeln!(text, "\nIn {}:", single_line(&folder.display().to_string()))?;
    for line in done {
        writeln!(text, "  {}", single_line(&line))?;
    }
    write_details(&mut text, &guide)?;
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn refuse(folder: &Path, error: CheckoutError) -> anyhow::Result<ExitCode> {
    match error {
        CheckoutError::Refused(sentence) => {
            eprintln!("agent-implement: {}", single_line(&sentence));
            Ok(ExitCode::from(REFUSED))
        }
        CheckoutError::Failed(message) => {
            let lines: Vec<_> = message.lines().map(log_line).collect();
            bail!("git in {}: {}", folder.display(), lines.join("\n"))
        }
    }
}

/// Writes the guide for a person who performs the commands.
fn write(f: &mut String, guide: &TakeOverGuide) -> fmt::Result {
    write_head(f, guide)?;
    match (&guide.branch, &guide.repo) {
        (Some(branch), Some(repo)) => {
            let state = if guide.branch_exists {
                ""
            } else {
                " (not pushed yet)"
            };
            let (branch, repo) = (single_line(branch), single_line(repo));
            writeln!(f, "\nBranch {branch} of {repo}{state}, in a clone:")?;
        }
        _ => writeln!(f, "\nNo run has worked on it yet, so there is no branch.")?,
    }
    for command in &guide.commands {
        writeln!(f, "  {}", single_line(command))?;
    }
    if let Some(patch) = &guide.patch {
        let issue = shell_word(guide.issue_identifier.as_str());
        let (job, file) = (single_line(patch.job_id.as_str()), shell_word(&patch.file));
        writeln!(
            f,
            "\nWork of run {job} that is not on the branch ({} bytes):",
            patch.bytes
        )?;
        writeln!(f, "  agent-implement take {issue} --print-patch > {file}")?;
        writeln!(f, "  {}", single_line(&patch.command))?;
    }
    write_details(f, guide)
}

fn write_head(f: &mut String, guide: &TakeOverGuide) -> fmt::Result {
    let key = single_line(guide.issue_identifier.as_str());
    writeln!(f, "{key}  {}", single_line(&guide.issue_title))?;
    writeln!(f, "{}\n", single_line(&guide.issue_url))?;
    if let (Some(by), Some(at)) = (&guide.taken_by, guide.taken_at) {
        writeln!(
            f,
            "Taken over by {} since {}. Automatic work pauses until: agent-implement give-back {}",
            single_line(by),
            at.date_text(),
            shell_word(&key)
        )?;
    }
    if guide.last_run.as_ref().is_some_and(|run| run.active) {
        writeln!(
            f,
            "A run is at work and may push to the branch. To stop it: agent-implement cancel {}",
            shell_word(&key)
        )?;
    }
    Ok(())
}

fn write_details(f: &mut String, guide: &TakeOverGuide) -> fmt::Result {
    if let Some(pull) = &guide.pull_request {
        write_pull(f, pull)?;
    }
    if let Some(run) = &guide.last_run {
        write_run(f, run)?;
    }
    if !guide.findings.is_empty() {
        writeln!(f, "\nOpen findings:")?;
    }
    for finding in &guide.findings {
        write_finding(f, finding)?;
    }
    Ok(())
}

fn write_pull(f: &mut String, pull: &TakeOverPull) -> fmt::Result {
    let (state, url) = (single_line(&pull.state), single_line(&pull.url));
    writeln!(f, "\nPull request #{} ({state})  {url}", pull.number)?;
    let checks = pull
        .checks
        .as_ref()
        .map_or("none reported".to_owned(), checks_text);
    writeln!(f, "  Checks: {checks}")?;
    if let Some(decision) = pull.review_decision {
        writeln!(f, "  Review: {}", review_text(decision))?;
    }
    Ok(())
}

fn checks_text(checks: &PullRequestChecks) -> String {
    match checks.state {
        ChecksState::Success => format!("all {} passed", checks.total),
        ChecksState::Failure => format!("{} of {} failed", checks.failed, checks.total),
        ChecksState::Pending => "running".to_owned(),
    }
}

fn review_text(decision: ReviewDecision) -> &'static str {
    match decision {
        ReviewDecision::Approved => "approved",
        ReviewDecision::ChangesRequested => "changes requested",
        ReviewDecision::ReviewRequired => "a required review is missing",
    }
}

fn write_run(f: &mut String, run: &TakeOverRun) -> fmt::Result {
    let status = single_line(&run.status).replace('_', " ");
    let id = single_line(run.job_id.as_str());
    writeln!(
        f,
        "\nLast run: {}, {status}  (run {id})",
        run_kind_name(run.kind)
    )?;
    if let Some(url) = &run.url {
        writeln!(f, "  {}", single_line(url))?;
    }
    if let Some(reason) = &run.failure_reason {
        write_indented(f, reason)?;
    }
    if let Some(summary) = &run.summary {
        writeln!(f, "\nSummary of the agent:")?;
        write_indented(f, summary)?;
    }
    Ok(())
}

fn write_finding(f: &mut String, finding: &TakeOverFinding) -> fmt::Result {
    let place = match (&finding.file, finding.line) {
        (Some(file), Some(line)) => format!("{file}:{line} "),
        (Some(file), None) => format!("{file} "),
        (None, _) => String::new(),
    };
    let author = finding.author.as_deref().unwrap_or("review of the run");
    let head = format!("{place}({author})");
    writeln!(f, "- {}", single_line(&head))?;
    write_indented(f, &finding.text)
}

/// Writes the lines of a text, indented and without control characters.
fn write_indented(f: &mut String, text: &str) -> fmt::Result {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(log_line)
        .try_for_each(|line| writeln!(f, "  {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_commands_findings_and_links() {
        let guide: TakeOverGuide = serde_json::from_value(json!({
            "taken": true, "takenBy": "Kim", "takenAt": "2026-11-23T12:03:00.000Z",
            "issueIdentifier": "acme/shop#12", "issueTitle": "Cart \u{1b}[31mtotal", "issueUrl": "https://t.test/12",
            "repo": "acme/shop", "branch": "agent-implement/12-cart", "branchExists": true, "baseBranch": "main",
            "commands": ["git fetch origin agent-implement/12-cart", "git switch agent-implement/12-cart"],
            "pullRequest": {
                "url": "https://github.test/pull/3", "number": 3, "state": "open", "reviewDecision": "changes_requested",
                "checks": {"state": "failure", "failed": 1, "total": 3},
            },
            "lastRun": {
                "jobId": "J7", "kind": "follow-up", "active": true, "status": "timed_out", "failureReason": "No\n\ntime",
                "summary": "I \u{7}added it.", "url": null,
            },
            "findings": [
                {"author": "mia", "file": "src/a.rs", "line": 3, "text": "Handle it"},
                {"author": null, "file": null, "line": null, "text": "A race"},
            ],
            "patch": {"jobId": "J7", "bytes": 120, "file": "acme_shop_12.patch", "command": "git apply --3way acme_shop_12.patch"},
        }))
        .unwrap();
        let mut shown = String::new();
        write(&mut shown, &guide).unwrap();
        let expected = "\
acme/shop#12  Cart total
https://t.test/12

Taken over by Kim since 23 Nov 12:03 UTC. Automatic work pauses until: agent-implement give-back 'acme/shop#12'
A run is at work and may push to the branch. To stop it: agent-implement cancel 'acme/shop#12'

Branch agent-implement/12-cart of acme/shop, in a clone:
  git fetch origin agent-implement/12-cart
  git switch agent-implement/12-cart

Work of run J7 that is not on the branch (120 bytes):
  agent-implement take 'acme/shop#12' --print-patch > acme_shop_12.patch
  git apply --3way acme_shop_12.patch

Pull request #3 (open)  https://github.test/pull/3
  Checks: 1 of 3 failed
  Review: changes requested

Last run: Follow-up, timed out  (run J7)
  No
  time

Summary of the agent:
  I added it.

Open findings:
- src/a.rs:3 (mia)
  Handle it
- (review of the run)
  A race
";
        assert_eq!(shown, expected);
    }
}

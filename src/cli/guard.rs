//! `agent-implement guard scan`: the sensitive-file guard at a shell, in a hook and in CI.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use domain::sensitive_files::{SecretCategory, find_secrets, redact_ranges};
use run::scan::{self, GuardFinding, ScanReport};

/// The exit code of a scan that finds what would block a push.
const BLOCKED: u8 = 1;
/// The exit code of a scan that did not come about.
const NOT_SCANNED: u8 = 2;

#[derive(Debug, clap::Args)]
pub struct GuardArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Judge files as if a run were about to push them. Exit code 0: they pass; 1: a push would be
    /// blocked; 2: nothing was judged. The secret itself is never printed.
    Scan(Scan),
}

#[derive(Debug, clap::Args)]
struct Scan {
    /// Print a line of JSON for each file that blocks or warns.
    #[arg(long)]
    json: bool,
    /// The file that names what is permitted (`guard: {allow: [...]}`); by default
    /// `.agent-implement/config.yml` of the current folder, where it is there.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Judge what is staged in git.
    #[arg(long, conflicts_with_all = ["diff", "paths"])]
    staged: bool,
    /// Judge what the commits of a range bring, from where its two ends part.
    #[arg(long, value_name = "BASE..HEAD", conflicts_with = "paths")]
    diff: Option<String>,
    /// Files and folders; by default the current folder. Files are judged as new, whatever git knows.
    paths: Vec<PathBuf>,
}

/// Carries out a command of the guard.
pub async fn guard(arguments: GuardArgs) -> anyhow::Result<ExitCode> {
    let Command::Scan(scan) = arguments.command;
    let scanned = match scanned(&scan).await {
        Ok(scanned) => scanned,
        Err(cause) => {
            eprintln!("agent-implement guard scan: {cause}");
            return Ok(ExitCode::from(NOT_SCANNED));
        }
    };
    let line = if scan.json { in_json } else { in_words };
    let lines: String = scanned.findings.iter().map(line).collect();
    super::ignore_broken_pipe(io::stdout().lock().write_all(lines.as_bytes()))?;
    let blocked = scanned
        .findings
        .iter()
        .filter(|found| found.is_blocking)
        .count();
    if !scan.json {
        eprintln!("{}", summary(&scanned, blocked));
    }
    Ok(match blocked {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(BLOCKED),
    })
}

async fn scanned(scan: &Scan) -> Result<ScanReport, String> {
    let folder = std::env::current_dir().map_err(|error| error.to_string())?;
    let allow = scan::read_allow_list(&folder, scan.config.as_deref())?;
    match (&scan.diff, scan.staged, scan.paths.as_slice()) {
        (Some(range), ..) => scan::scan_range(&folder, range, &allow).await,
        (None, true, _) => scan::scan_staged(&folder, &allow).await,
        (None, false, []) => scan::scan_files(&folder, &[".".into()], &allow),
        (None, false, paths) => scan::scan_files(&folder, paths, &allow),
    }
}

fn in_json(found: &GuardFinding) -> String {
    let path = &found.hit.path;
    let line = json!({
        "path": redact_ranges(path, &find_secrets(path)),
        "verdict": verdict(found),
        "category": found.hit.reason.category().map(SecretCategory::as_str),
        "rule": found.hit.reason.rule(),
        "line": found.line,
    });
    format!("{line}\n")
}

fn in_words(found: &GuardFinding) -> String {
    let line = found
        .line
        .map_or_else(String::new, |line| format!(" (line {line})"));
    format!("{} {}{line}\n", verdict(found), found.hit)
}

fn verdict(found: &GuardFinding) -> &'static str {
    if found.is_blocking { "blocks" } else { "warns" }
}

fn summary(scanned: &ScanReport, blocked: usize) -> String {
    let warned = scanned.findings.len() - blocked;
    format!(
        "{} file(s) judged: {blocked} would block a push, {warned} to look at.",
        scanned.file_count
    )
}

//! `agent-implement guard scan`: the sensitive-file guard for shells, git hooks and CI.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use domain::sensitive_files::{SecretCategory, find_secrets, redact_ranges};
use run::scan::{self, GuardFinding, ScanReport};

/// Exit code of a scan with findings that would block a push.
const BLOCKED: u8 = 1;
/// Exit code of a scan that failed.
const SCAN_FAILED: u8 = 2;

/// Arguments of `guard`.
#[derive(Debug, clap::Args)]
pub(super) struct GuardArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Scan files with the rules that apply to the push of a run. Exit code 0: nothing would block a push;
    /// 1: something would; 2: the scan failed. Secrets are never printed.
    Scan(Scan),
}

#[derive(Debug, clap::Args)]
struct Scan {
    /// Print one line of JSON per finding.
    #[arg(long)]
    json: bool,
    /// File with the permitted paths (`guard: {allow: [...]}`); default: `.agent-implement/config.yml` in the
    /// current folder, if it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Scan the changes staged in git.
    #[arg(long, conflicts_with_all = ["diff", "paths"])]
    staged: bool,
    /// Scan the changes of a range of commits, from the merge base of its two ends.
    #[arg(long, value_name = "BASE..HEAD", conflicts_with = "paths")]
    diff: Option<String>,
    /// Files and folders to scan; default: the current folder. Every file counts as new, whether git tracks
    /// it or not.
    paths: Vec<PathBuf>,
}

/// Scans files and prints the findings.
pub(super) async fn guard(arguments: GuardArgs) -> anyhow::Result<ExitCode> {
    let Command::Scan(scan) = arguments.command;
    let report = match run_scan(&scan).await {
        Ok(report) => report,
        Err(cause) => {
            eprintln!("agent-implement guard scan: {cause}");
            return Ok(ExitCode::from(SCAN_FAILED));
        }
    };
    let format_line = if scan.json { json_line } else { text_line };
    let lines: String = report.findings.iter().map(format_line).collect();
    print!("{lines}");
    let blocking = report
        .findings
        .iter()
        .filter(|finding| finding.is_blocking)
        .count();
    if !scan.json {
        eprintln!("{}", summary(&report, blocking));
    }
    Ok(match blocking {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(BLOCKED),
    })
}

async fn run_scan(scan: &Scan) -> Result<ScanReport, String> {
    let folder = std::env::current_dir().map_err(|error| error.to_string())?;
    let allow = scan::read_allow_list(&folder, scan.config.as_deref())?;
    match (&scan.diff, scan.staged, scan.paths.as_slice()) {
        (Some(range), ..) => scan::scan_range(&folder, range, &allow).await,
        (None, true, _) => scan::scan_staged(&folder, &allow).await,
        (None, false, []) => scan::scan_files(&folder, &[".".into()], &allow),
        (None, false, paths) => scan::scan_files(&folder, paths, &allow),
    }
}

fn json_line(finding: &GuardFinding) -> String {
    let path = &finding.hit.path;
    let line = json!({
        "path": redact_ranges(path, &find_secrets(path)),
        "verdict": verdict(finding),
        "category": finding.hit.reason.category().map(SecretCategory::as_str),
        "rule": finding.hit.reason.rule(),
        "line": finding.line,
    });
    format!("{line}\n")
}

fn text_line(finding: &GuardFinding) -> String {
    let line = finding
        .line
        .map_or_else(String::new, |line| format!(" (line {line})"));
    format!("{} {}{line}\n", verdict(finding), finding.hit)
}

fn verdict(finding: &GuardFinding) -> &'static str {
    if finding.is_blocking {
        "blocks"
    } else {
        "warns"
    }
}

fn summary(report: &ScanReport, blocking: usize) -> String {
    let warnings = report.findings.len() - blocking;
    format!(
        "Scanned {} file(s): {blocking} would block a push, {warnings} warning(s).",
        report.file_count
    )
}

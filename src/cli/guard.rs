//! `agent-implement guard scan`: the sensitive-file guard at a shell, in a hook and in CI.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use domain::sensitive::{Category, secrets_in, without};
use run::scan::{self, Found, Scanned};

/// The exit code of a scan that finds what would block a push.
const BLOCKED: u8 = 1;
/// The exit code of a scan that did not come about.
const NOT_SCANNED: u8 = 2;

#[derive(Debug, clap::Args)]
pub struct Arguments {
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
pub async fn guard(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Command::Scan(scan) = arguments.command;
    let scanned = match scanned(&scan).await {
        Ok(scanned) => scanned,
        Err(cause) => {
            eprintln!("agent-implement guard scan: {cause}");
            return Ok(ExitCode::from(NOT_SCANNED));
        }
    };
    let line = if scan.json { in_json } else { in_words };
    let lines: String = scanned.found.iter().map(line).collect();
    super::printed(io::stdout().lock().write_all(lines.as_bytes()))?;
    let blocked = scanned.found.iter().filter(|found| found.blocks).count();
    if !scan.json {
        eprintln!("{}", summary(&scanned, blocked));
    }
    Ok(match blocked {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(BLOCKED),
    })
}

async fn scanned(scan: &Scan) -> Result<Scanned, String> {
    let folder = std::env::current_dir().map_err(|error| error.to_string())?;
    let allow = scan::allow_list(&folder, scan.config.as_deref())?;
    match (&scan.diff, scan.staged, scan.paths.as_slice()) {
        (Some(range), ..) => scan::range(&folder, range, &allow).await,
        (None, true, _) => scan::staged(&folder, &allow).await,
        (None, false, []) => scan::files(&folder, &[".".into()], &allow),
        (None, false, paths) => scan::files(&folder, paths, &allow),
    }
}

fn in_json(found: &Found) -> String {
    let path = &found.hit.path;
    let line = json!({
        "path": without(path, &secrets_in(path)),
        "verdict": verdict(found),
        "category": found.hit.reason.category().map(Category::as_str),
        "rule": found.hit.reason.rule(),
        "line": found.line,
    });
    format!("{line}\n")
}

fn in_words(found: &Found) -> String {
    let line = found
        .line
        .map_or_else(String::new, |line| format!(" (line {line})"));
    format!("{} {}{line}\n", verdict(found), found.hit)
}

fn verdict(found: &Found) -> &'static str {
    if found.blocks { "blocks" } else { "warns" }
}

fn summary(scanned: &Scanned, blocked: usize) -> String {
    let warned = scanned.found.len() - blocked;
    format!(
        "{} file(s) judged: {blocked} would block a push, {warned} to look at.",
        scanned.files
    )
}

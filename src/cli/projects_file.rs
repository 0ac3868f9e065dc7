//! `agent-implement export` and `agent-implement apply`: projects, settings and the runner mode as a file.

use std::fmt::{self, Display};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::ValueEnum;
use domain::sanitize::single_line;
use engine::admin::projects_file;
use serde::Deserialize;
use serde_json::{Value, json};

use super::local_service::{ServiceLocation, ServiceOrStore, connect_or_open};

/// Maximum size of a file, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Path that stands for the standard input.
const STDIN: &str = "-";

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXPORT_HELP)]
pub(super) struct ExportArgs {
    /// Format of the file.
    #[arg(long, value_enum, default_value_t = FileFormat::Yaml)]
    format: FileFormat,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FileFormat {
    Yaml,
    Json,
}

/// Arguments of `apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = APPLY_HELP)]
pub(super) struct ApplyArgs {
    /// File in YAML or JSON, as agent-implement export prints it; - reads the standard input.
    file: PathBuf,
    /// Remove projects that are not in the file, with their secrets.
    #[arg(long)]
    prune: bool,
    /// Print what differs, and store nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

const EXPORT_HELP: &str = "\
Prints projects, settings and the runner mode without values that are defaults. Secrets are never printed.

Works while the service runs (over DATA_DIR/control.sock, as its user or root) and while it is stopped.";

const APPLY_HELP: &str = "\
The file has mappings (projects by key), settings and runnerMode, each optional. Omitted fields of a project get their \
defaults, except paused, which stays. Settings take effect at the next start of the service.

All changes are stored, or none. Exit codes: 0 the file is applied, or nothing differs; 1 the file is invalid, or \
the service could not be reached; 2 the command line is wrong.

Needs a running service (over DATA_DIR/control.sock, as its user or root).";

/// Prints the file that describes what is stored.
pub(super) async fn export(arguments: ExportArgs) -> anyhow::Result<ExitCode> {
    let file = match connect_or_open(arguments.location.data_dir()).await? {
        ServiceOrStore::Running(service) => {
            let file = service.get("/api/projects-file").await?;
            file.context("this version of the service has no export; restart it after an upgrade")?
        }
        ServiceOrStore::Stopped(store) => store.read(projects_file::export)?,
    };
    match arguments.format {
        FileFormat::Json => println!("{file:#}"),
        FileFormat::Yaml => print!("{}", serde_saphyr::to_string(&file)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Applies a file and prints what differed.
pub(super) async fn apply(arguments: ApplyArgs) -> anyhow::Result<ExitCode> {
    let file = read(&arguments.file)?;
    let location = arguments.location.data_dir();
    let ServiceOrStore::Running(service) = connect_or_open(location).await? else {
        bail!(
            "the service in {} is stopped. Start it and repeat the command",
            location.display()
        );
    };
    let body = json!({"file": file, "prune": arguments.prune, "dryRun": arguments.dry_run});
    let (status, answer) = service.post("/api/projects-file", &body).await?;
    if status != 200 {
        return refused(status, answer);
    }
    let result: Applied = serde_json::from_value(answer)?;
    for change in &result.changes {
        print!("{change}");
    }
    let count = match result.changes.len() {
        1 => "1 change".to_owned(),
        count => format!("{count} changes"),
    };
    match (result.changes.is_empty(), result.applied) {
        (true, _) => println!("Nothing differs."),
        (false, true) => println!("Applied {count}."),
        (false, false) => println!("{count}. Nothing was stored, because of --dry-run."),
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let name = path.display();
    let mut text = String::new();
    let size = match path.as_os_str() == STDIN {
        true => std::io::stdin()
            .take(MAX_SIZE + 1)
            .read_to_string(&mut text),
        false => std::fs::File::open(path)
            .and_then(|file| file.take(MAX_SIZE + 1).read_to_string(&mut text)),
    };
    if size.with_context(|| format!("reading {name}"))? as u64 > MAX_SIZE {
        bail!("{name} is larger than 1 MiB");
    }
    // JSON is YAML, too.
    serde_saphyr::from_str(&text).with_context(|| format!("{name} is not valid YAML or JSON"))
}

/// Prints the problems of a file.
fn refused(status: u16, answer: Value) -> anyhow::Result<ExitCode> {
    let Ok(refusal) = serde_json::from_value::<Refusal>(answer) else {
        bail!("the service answered {status}");
    };
    if refusal.problems.is_empty() {
        bail!("{}", single_line(&refusal.error));
    }
    for problem in &refusal.problems {
        eprintln!("agent-implement: {problem}");
    }
    eprintln!("Nothing was stored.");
    Ok(ExitCode::FAILURE)
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    problems: Vec<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    place: String,
    message: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = single_line(&self.message);
        match self.place.as_str() {
            "" => write!(f, "The file {message}"),
            place => write!(f, "{}: {message}", single_line(place)),
        }
    }
}

#[derive(Deserialize)]
struct Applied {
    applied: bool,
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    target: String,
    action: String,
    key: String,
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Field {
    field: String,
    before: Value,
    after: Value,
}

impl Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = single_line(&self.key);
        match (self.target.as_str(), self.action.as_str()) {
            ("mapping", "create") => writeln!(f, "+ project {key}")?,
            ("mapping", "remove") => writeln!(f, "- project {key}")?,
            ("mapping", _) => writeln!(f, "~ project {key}")?,
            ("setting", _) => return write_value(f, &format!("setting {key}"), &self.fields),
            _ => return write_value(f, "runner mode", &self.fields),
        }
        self.fields.iter().try_for_each(|field| {
            let name = single_line(&field.field);
            let (before, after) = (text(&field.before), text(&field.after));
            match self.action.as_str() {
                "create" if field.after.is_null() => Ok(()),
                "create" => writeln!(f, "    {name}: {after}"),
                "remove" => writeln!(f, "    {name}: {before}"),
                _ => writeln!(f, "    {name}: {before} → {after}"),
            }
        })
    }
}

fn write_value(f: &mut fmt::Formatter<'_>, what: &str, fields: &[Field]) -> fmt::Result {
    fields.iter().try_for_each(|field| {
        writeln!(
            f,
            "~ {what}: {} → {}",
            text(&field.before),
            text(&field.after)
        )
    })
}

/// A value in one line.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => single_line(text).into_owned(),
        other => single_line(&other.to_string()).into_owned(),
    }
}

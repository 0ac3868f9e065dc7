//! `agent-implement doctor`: what is wrong with a set-up, why it matters, and how it is mended.

mod callback_identity;
mod config_values;
mod local_host;
mod stored_setup;

use std::fmt::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use domain::check_result::{CheckLevel, CheckResult};
use engine::app::{App, AppOptions};
use engine::config::{Config, ConfigError, EnvFile, Options};
use engine::doctor::examine;

use vendors::http::Redactor;

use super::terminal::{has_colours, sanitize_for_terminal};
use stored_setup::StoredSetup;

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct DoctorArgs {
    #[command(flatten)]
    options: Options,
    /// File with the service's variables, as systemd's EnvironmentFile= has them. It beats this
    /// shell's environment, and flags beat it.
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Option<PathBuf>,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Checks the set-up that `serve` would have with the same flags and environment: values, data folder, key, port, \
store, clock, credentials, rights on every mapped repository, workflows, the address that runs report to, \
hosts of runs, model keys, chat. The projects are those of the running service, or of its store. Nothing is \
changed, and no message is sent.

Exit codes: 0 nothing is wrong (there may be warnings); 1 something is; 2 the command line is wrong.";

pub async fn doctor(arguments: DoctorArgs) -> anyhow::Result<ExitCode> {
    // The command line was read with it, so it was there a moment ago.
    let file = arguments.env_file.as_deref();
    let variables = file.and_then(|file| EnvFile::read(file).ok());
    let (config, values) =
        Config::from_options_lenient(arguments.options.clone(), variables.as_ref());
    let problems = values.as_ref().err().map_or(&[][..], ConfigError::problems);
    let mut findings = config_values::check_values(&config, problems);
    findings.extend(config_values::check_file_permissions(
        &config,
        file.zip(variables.as_ref()),
    ));
    findings.extend(config_values::mark_unchecked(
        check(config.clone(), problems).await?,
        problems,
    ));
    let redactor = Redactor::new(config.secrets());
    let report = Report {
        findings: &findings,
        colours: has_colours(&std::io::stdout()),
    };
    let text = match arguments.json {
        true => format!("{:#}\n", json!({ "findings": findings })),
        false => report.to_string(),
    };
    print!("{}", redactor.redact(&text));
    let is_wrong = findings.iter().any(|one| one.level == CheckLevel::Error);
    Ok(match is_wrong {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Everything but the values themselves.
async fn check(config: Config, problems: &[String]) -> anyhow::Result<Vec<CheckResult>> {
    let mut findings = local_host::check_data_dir(&config);
    let (setup, standing, found) = stored_setup::load(&config).await;
    findings.extend(found);
    if !config_values::has_problem(problems, &["PORT", "LISTEN_ADDR"]) {
        findings.push(local_host::check_port(&config, standing));
    }
    findings.extend([
        local_host::check_custom_dir(&config),
        local_host::check_admin_access(&config),
    ]);
    let app = rehearse(config, setup).await?;
    findings.extend(examine(&app, standing).await?);
    Ok(findings)
}

/// The engine of this configuration and these projects, with a store of its own that is forgotten.
async fn rehearse(config: Config, setup: StoredSetup) -> anyhow::Result<App> {
    let store = setup.into_memory_store().await?;
    App::new(config, store, AppOptions::default()).map_err(anyhow::Error::msg)
}

/// Findings for people.
struct Report<'a> {
    findings: &'a [CheckResult],
    colours: bool,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|one| name(one.check).len()).max();
        let width = width.unwrap_or_default();
        for one in self.findings {
            let level = format!("{:<7}", one.level.as_str());
            match colour(one.level).filter(|_| self.colours) {
                Some(code) => write!(f, "\x1b[{code}m{level}\x1b[0m")?,
                None => f.write_str(&level)?,
            }
            let subject = one.subject.as_ref();
            let subject = subject.map_or_else(String::new, |subject| format!("{subject}: "));
            let what = sanitize_for_terminal(&one.message);
            writeln!(f, "  {:<width$}  {subject}{what}", name(one.check))?;
            for (word, text) in [("why", &one.impact), ("mend", &one.remedy)] {
                if !text.is_empty() {
                    writeln!(
                        f,
                        "         {:<width$}  {word}: {}",
                        "",
                        sanitize_for_terminal(text)
                    )?;
                }
            }
        }
        let count = |level| {
            self.findings
                .iter()
                .filter(|one| one.level == level)
                .count()
        };
        let (errors, warnings) = (count(CheckLevel::Error), count(CheckLevel::Warning));
        f.write_char('\n')?;
        writeln!(f, "errors: {errors}, warnings: {warnings}")
    }
}

fn colour(level: CheckLevel) -> Option<&'static str> {
    match level {
        CheckLevel::Ok => Some("32"),
        CheckLevel::NotConfigured => None,
        CheckLevel::Warning => Some("33"),
        CheckLevel::Error => Some("31"),
    }
}

/// What people call what is checked. Scripts have the names of the API.
fn name(check: &str) -> &str {
    match check {
        "ticketing-a" => "Linear",
        "ticketing-b" => "Jira",
        "repo-host" => "GitHub",
        "vm-sessions" => "Fly Machines",
        "local-containers" => "containers",
        other => other,
    }
}

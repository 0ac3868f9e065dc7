//! `agent-implement doctor`: problems of a setup, their impact and their remedies.

mod callback_identity;
mod config_values;
mod local_host;
mod stored_setup;

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use domain::check_result::{CheckLevel, CheckResult};
use domain::sanitize::single_line;
use engine::app::{App, AppOptions};
use engine::config::{Config, ConfigError, EnvFile, Options};
use engine::doctor::examine;

use vendors::http::Redactor;

use super::DEFAULT_ENV_FILE;
use super::terminal::has_colours;
use stored_setup::StoredSetup;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    options: Options,
    /// File with the service's variables, in the format of systemd's EnvironmentFile=. It overrides the
    /// environment of this shell; flags override the file.
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Option<PathBuf>,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Checks the setup that `serve` would have with the same flags and environment: values, data folder, key, port, \
store, clock, credentials, permissions on every mapped repository, workflows, the callback address, hosts of runs, \
model keys, chat and the place of a standby. Projects are read from the running service, or from its store. The \
command changes nothing and sends no messages.

Exit codes: 0 no errors (there may be warnings); 1 at least one error; 2 the command line is wrong.";

/// Checks the setup and prints the findings.
pub(super) async fn doctor(arguments: DoctorArgs) -> anyhow::Result<ExitCode> {
    // The file could be read when the command line was parsed.
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
    if file == Some(Path::new(DEFAULT_ENV_FILE)) {
        findings.extend(local_host::check_unit(&config));
    }
    findings.extend(config_values::mark_unchecked(
        check(config.clone(), problems).await?,
        problems,
    ));
    let redactor = Redactor::new(config.secrets());
    let report = Report {
        findings: &findings,
        use_colors: has_colours(&std::io::stdout()),
    };
    let text = match arguments.json {
        true => format!("{:#}\n", json!({ "findings": findings })),
        false => report.to_string(),
    };
    print!("{}", redactor.redact(&text));
    let has_errors = findings
        .iter()
        .any(|finding| finding.level == CheckLevel::Error);
    Ok(match has_errors {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Runs every check except those of the values themselves.
pub(super) async fn check(config: Config, problems: &[String]) -> anyhow::Result<Vec<CheckResult>> {
    let mut findings = local_host::check_data_dir(&config);
    let (setup, service_state, store_findings) = stored_setup::load(&config).await;
    findings.extend(store_findings);
    if !config_values::has_problem(problems, &["PORT", "LISTEN_ADDR"]) {
        findings.push(local_host::check_port(&config, service_state));
    }
    findings.extend([
        local_host::check_custom_dir(&config),
        local_host::check_admin_access(&config),
    ]);
    let app = temporary_app(config, setup).await?;
    findings.extend(examine(&app, service_state).await?);
    Ok(findings)
}

/// Engine with this configuration and what the service has stored, on a temporary store in memory.
pub(super) async fn app_of_setup(config: Config) -> anyhow::Result<App> {
    let setup = stored_setup::load(&config).await.0;
    temporary_app(config, setup).await
}

/// Engine with this configuration and these projects, on a temporary store in memory.
async fn temporary_app(config: Config, mut setup: StoredSetup) -> anyhow::Result<App> {
    let config = setup.with_key(config);
    let store = setup.into_memory_store().await?;
    Ok(App::new(config, store, AppOptions::default())?)
}

/// Findings as text for a terminal.
struct Report<'a> {
    findings: &'a [CheckResult],
    use_colors: bool,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.findings.iter().map(|finding| name(finding.check));
        let width = names.map(str::len).max();
        let width = width.unwrap_or_default();
        for finding in self.findings {
            let level = format!("{:<7}", finding.level.as_str());
            match color(finding.level).filter(|_| self.use_colors) {
                Some(code) => write!(f, "\x1b[{code}m{level}\x1b[0m")?,
                None => f.write_str(&level)?,
            }
            let subject = finding.subject.as_ref();
            let subject = subject.map_or_else(String::new, |subject| format!("{subject}: "));
            let message = single_line(&finding.message);
            writeln!(f, "  {:<width$}  {subject}{message}", name(finding.check))?;
            for (label, text) in [("why", &finding.impact), ("fix", &finding.remedy)] {
                if !text.is_empty() {
                    writeln!(f, "         {:<width$}  {label}: {}", "", single_line(text))?;
                }
            }
        }
        let count = |level| {
            self.findings
                .iter()
                .filter(|finding| finding.level == level)
                .count()
        };
        let (errors, warnings) = (count(CheckLevel::Error), count(CheckLevel::Warning));
        f.write_char('\n')?;
        writeln!(f, "errors: {errors}, warnings: {warnings}")
    }
}

/// ANSI color code of a level.
fn color(level: CheckLevel) -> Option<&'static str> {
    match level {
        CheckLevel::Ok => Some("32"),
        CheckLevel::NotConfigured => None,
        CheckLevel::Warning => Some("33"),
        CheckLevel::Error => Some("31"),
    }
}

/// Display name of a check. The JSON output keeps the names of the API.
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

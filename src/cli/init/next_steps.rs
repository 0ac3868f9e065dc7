//! End of `init`: what does not work yet, and the next three steps.

use std::process::ExitCode;

use domain::check_result::{CheckLevel, CheckResult};
use domain::sanitize::single_line;
use engine::config::Config;

use crate::cli::doctor;

use super::candidate::Candidate;
use super::project::Outcome;

/// Check of the workflows on the default branch, which wait for their pull request.
const WORKFLOWS_CHECK: &str = "project-workflows";

/// Check of the repository's model key.
const SECRETS_CHECK: &str = "project-secrets";

/// Prints what does not work yet and the next steps. The exit code says whether the setup is complete.
pub(super) async fn print(candidate: &Candidate, outcome: &Outcome) -> anyhow::Result<ExitCode> {
    let config = candidate.config()?;
    let findings = doctor::check(config.clone(), &[]).await?;
    let expected = |finding: &&CheckResult| finding.check != WORKFLOWS_CHECK;
    let errors: Vec<&CheckResult> = findings
        .iter()
        .filter(|finding| finding.level == CheckLevel::Error)
        .filter(expected)
        .collect();
    for error in &errors {
        println!("\nNot working yet: {}", single_line(&error.message));
        println!("  {}", single_line(&error.remedy));
    }
    let lacks_secret = findings
        .iter()
        .any(|finding| finding.check == SECRETS_CHECK && finding.level == CheckLevel::Warning);
    println!("\nNext:");
    let steps = [
        start(candidate, &config),
        prepare(candidate, &config, outcome, lacks_secret),
        format!(
            "{} Its pull request is linked on it when the run is done; agent-implement why{} ISSUE shows why it waits.",
            outcome.trigger,
            env_file_flag(candidate)
        ),
    ];
    for (at, step) in steps.iter().enumerate() {
        println!("  {}. {}", at + 1, step.replace('\n', "\n     "));
    }
    Ok(match errors.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Flag of commands for this service. They find that of the package without it.
fn env_file_flag(candidate: &Candidate) -> String {
    match candidate.files.is_installed() {
        true => String::new(),
        false => format!(" --env-file {}", candidate.files.env_file().display()),
    }
}

fn start(candidate: &Candidate, config: &Config) -> String {
    let (listen, code) = (
        config.listen,
        candidate.files.secret_path("ADMIN_ACCESS_CODE"),
    );
    let command = match candidate.files.is_installed() {
        true => "systemctl restart agent-implement".to_owned(),
        false => format!("agent-implement serve{}", env_file_flag(candidate)),
    };
    format!(
        "Start the service: {command}\nIts panel: http://{listen}/admin, with the access code in {}",
        code.display()
    )
}

fn prepare(
    candidate: &Candidate,
    config: &Config,
    outcome: &Outcome,
    lacks_secret: bool,
) -> String {
    let repo = &outcome.repo;
    let mut lines = Vec::new();
    if let Some(url) = &outcome.workflows_pull {
        lines.push(format!("Merge the workflows: {url}"));
        if config.callback_base_url.is_none() {
            lines.push(format!(
                "Allow workflows to open pull requests: {repo}, Settings, Actions, General, \"Allow GitHub Actions to create \
                 and approve pull requests\"."
            ));
        }
    }
    if lacks_secret {
        lines.push(format!(
            "Add the model key as a secret of the repository: gh secret set ANTHROPIC_API_KEY --repo {repo}"
        ));
    }
    if lines.is_empty() {
        lines.push(format!(
            "Check the setup: agent-implement doctor{}",
            env_file_flag(candidate)
        ));
    }
    lines.join("\n")
}

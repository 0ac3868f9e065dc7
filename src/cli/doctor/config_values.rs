//! Checks of the configuration values themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use domain::check_result::{CheckLevel, CheckResult};
use engine::config::{Config, EnvFile};

/// Prefix of variable names -> checks that depend on those variables.
const DEPENDENTS: [(&str, &[&str]); 6] = [
    ("LINEAR_", &["ticketing-a", "ticketing", "project-tickets"]),
    ("JIRA_", &["ticketing-b", "ticketing", "project-tickets"]),
    ("GITHUB_", &["repo-host"]),
    ("NOTIFY_", &["notifications"]),
    ("VM_", &["vm-sessions", "project-runner"]),
    ("RUNNER_", &["runner-callback", "project-runner"]),
];

/// Whether a problem concerns one of these variables.
pub(super) fn has_problem(problems: &[String], names: &[&str]) -> bool {
    let concerns = |problem: &String| names.iter().any(|name| problem.starts_with(name));
    problems.iter().any(concerns)
}

/// Reports wrong values, unknown names, and settings that are allowed but weak.
pub(super) fn check_values(config: &Config, problems: &[String]) -> Vec<CheckResult> {
    let check = "configuration";
    let errors = problems.iter().map(|problem| {
        CheckResult::error(check, problem.clone())
            .with_impact("The service does not start.")
            .with_remedy("Correct the value; see `agent-implement serve --help`.")
    });
    let mut findings: Vec<CheckResult> = errors.collect();
    if findings.is_empty() {
        findings.push(CheckResult::ok(check, "every value is valid"));
    }
    let unknown = config.notices.unknown_names.iter().map(|notice| {
        CheckResult::warning("unknown-setting", notice.clone())
            .with_impact("The intended setting keeps its default.")
            .with_remedy("Correct the name, or remove it.")
    });
    findings.extend(unknown);
    // The check of the callback address reports plain http for it.
    let is_other = |name: &&&str| **name != "RUNNER_CALLBACK_BASE_URL";
    let plain_http: Vec<&str> = config
        .notices
        .plain_http_variables
        .iter()
        .filter(is_other)
        .copied()
        .collect();
    if !plain_http.is_empty() {
        let message = format!(
            "plain http, allowed by ALLOW_PLAIN_HTTP: {}",
            plain_http.join(", ")
        );
        findings.push(
            CheckResult::warning("plain-http", message)
                .with_impact("Anyone on the network path can read the credentials and use them.")
                .with_remedy("Use https addresses and remove ALLOW_PLAIN_HTTP."),
        );
    }
    findings
}

/// Reports files with secrets that every user of this machine can read. The environment file is checked if it
/// contains a secret.
pub(super) fn check_file_permissions(
    config: &Config,
    env_file: Option<(&Path, &EnvFile)>,
) -> Vec<CheckResult> {
    let secret_files = config
        .notices
        .secret_files
        .iter()
        .map(|path| (path.as_path(), "600"));
    let env_file = env_file.filter(|(_, variables)| variables.holds_secret());
    let all = secret_files.chain(env_file.map(|(path, _)| (path, "640")));
    all.filter_map(|(path, mode)| check_readable_file(path, mode))
        .collect()
}

fn check_readable_file(path: &Path, mode: &str) -> Option<CheckResult> {
    let others = fs::metadata(path).ok()?.permissions().mode() & 0o007;
    let shown = path.display();
    (others != 0).then(|| {
        CheckResult::warning(
            "credential-files",
            format!("{shown} can be read by every user of this machine"),
        )
        .with_impact("It contains a secret of the service.")
        .with_remedy(format!("chmod {mode} {shown}"))
    })
}

/// Replaces findings that depend on a wrong value by "not checked".
pub(super) fn mark_unchecked(findings: Vec<CheckResult>, problems: &[String]) -> Vec<CheckResult> {
    let is_unchecked = |check: &str| {
        let mut affected = DEPENDENTS
            .iter()
            .filter(|(name, _)| has_problem(problems, &[name]));
        affected.any(|(_, checks)| checks.contains(&check))
    };
    let marked = findings.into_iter().map(|finding| {
        if finding.level == CheckLevel::Ok || !is_unchecked(finding.check) {
            return finding;
        }
        let unchecked =
            CheckResult::not_configured(finding.check, "not checked: a required value is wrong");
        match finding.subject {
            Some(subject) => unchecked.for_subject(subject),
            None => unchecked,
        }
    });
    marked.collect()
}

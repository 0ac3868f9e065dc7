//! What the values of the configuration tell by themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use domain::check_result::{CheckLevel, CheckResult};
use engine::config::{Config, EnvFile};

/// What depends on a value, by the beginning of its name.
const DEPENDENTS: [(&str, &[&str]); 6] = [
    ("LINEAR_", &["ticketing-a", "ticketing", "project-tickets"]),
    ("JIRA_", &["ticketing-b", "ticketing", "project-tickets"]),
    ("GITHUB_", &["repo-host"]),
    ("NOTIFY_", &["notifications"]),
    ("VM_", &["vm-sessions", "project-runner"]),
    ("RUNNER_", &["runner-callback", "project-runner"]),
];

/// Whether a problem is about one of these values.
pub(super) fn has_problem(problems: &[String], names: &[&str]) -> bool {
    let is_of = |problem: &String| names.iter().any(|name| problem.starts_with(name));
    problems.iter().any(is_of)
}

/// Wrong values, misspelt names, and settings that are allowed and weak.
pub(super) fn check_values(config: &Config, problems: &[String]) -> Vec<CheckResult> {
    let check = "configuration";
    let wrong = problems.iter().map(|problem| {
        CheckResult::error(check, problem.clone())
            .with_impact("The service does not start.")
            .with_remedy("Correct the value; `agent-implement serve --help` says what each takes.")
    });
    let mut found: Vec<CheckResult> = wrong.collect();
    if found.is_empty() {
        found.push(CheckResult::ok(check, "every value can be used"));
    }
    let unknown = config.notices.unknown_names.iter().map(|notice| {
        CheckResult::warning("unknown-setting", notice.clone())
            .with_impact("What was meant is not set.")
            .with_remedy("Correct the name, or remove it.")
    });
    found.extend(unknown);
    // What is said of the callback address says this, too.
    let is_other = |name: &&&str| **name != "RUNNER_CALLBACK_BASE_URL";
    let plain: Vec<&str> = config
        .notices
        .plain_http_variables
        .iter()
        .filter(is_other)
        .copied()
        .collect();
    if !plain.is_empty() {
        let what = format!(
            "plain http, as ALLOW_PLAIN_HTTP allows: {}",
            plain.join(", ")
        );
        found.push(
            CheckResult::warning("plain-http", what)
                .with_impact("Anyone on the network path can read the credentials and use them.")
                .with_remedy("Use https addresses and take ALLOW_PLAIN_HTTP away."),
        );
    }
    found
}

/// Files with secrets that everybody on this machine may read. The environment file counts when a secret
/// stands in it.
pub(super) fn check_file_permissions(
    config: &Config,
    env_file: Option<(&Path, &EnvFile)>,
) -> Vec<CheckResult> {
    let named = config
        .notices
        .secret_files
        .iter()
        .map(|path| (path.as_path(), "600"));
    let env_file = env_file.filter(|(_, variables)| variables.holds_secret());
    let all = named.chain(env_file.map(|(path, _)| (path, "640")));
    all.filter_map(|(path, mode)| readable_file(path, mode))
        .collect()
}

fn readable_file(path: &Path, mode: &str) -> Option<CheckResult> {
    let others = fs::metadata(path).ok()?.permissions().mode() & 0o007;
    let shown = path.display();
    (others != 0).then(|| {
        CheckResult::warning(
            "credential-files",
            format!("{shown} can be read by everybody on this machine"),
        )
        .with_impact("It holds a secret of the service.")
        .with_remedy(format!("chmod {mode} {shown}"))
    })
}

/// What was found, with what depends on a wrong value marked as not checked.
pub(super) fn mark_unchecked(found: Vec<CheckResult>, problems: &[String]) -> Vec<CheckResult> {
    let is_left_out = |check: &str| {
        let mut wrong = DEPENDENTS
            .iter()
            .filter(|(name, _)| has_problem(problems, &[name]));
        wrong.any(|(_, checks)| checks.contains(&check))
    };
    let marked = found.into_iter().map(|one| {
        if one.level == CheckLevel::Ok || !is_left_out(one.check) {
            return one;
        }
        let unchecked =
            CheckResult::not_configured(one.check, "not checked: a value that it needs is wrong");
        match one.subject {
            Some(subject) => unchecked.for_subject(subject),
            None => unchecked,
        }
    });
    marked.collect()
}

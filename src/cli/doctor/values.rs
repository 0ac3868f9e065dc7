//! What the values of the configuration tell by themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use domain::checkup::{Finding, Level};
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
pub(super) fn is_wrong(problems: &[String], names: &[&str]) -> bool {
    let is_of = |problem: &String| names.iter().any(|name| problem.starts_with(name));
    problems.iter().any(is_of)
}

/// Wrong values, misspelt names, and settings that are allowed and weak.
pub(super) fn findings(config: &Config, problems: &[String]) -> Vec<Finding> {
    let check = "configuration";
    let wrong = problems.iter().map(|problem| {
        Finding::error(check, problem.clone())
            .because("The service does not start.")
            .mend("Correct the value; `agent-implement serve --help` says what each takes.")
    });
    let mut found: Vec<Finding> = wrong.collect();
    if found.is_empty() {
        found.push(Finding::ok(check, "every value can be used"));
    }
    let unknown = config.notices.unknown_names.iter().map(|notice| {
        Finding::warning("unknown-setting", notice.clone())
            .because("What was meant is not set.")
            .mend("Correct the name, or remove it.")
    });
    found.extend(unknown);
    // What is said of the callback address says this, too.
    let is_other = |name: &&&str| **name != "RUNNER_CALLBACK_BASE_URL";
    let plain: Vec<&str> = config
        .notices
        .plain_http
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
            Finding::warning("plain-http", what)
                .because("Anyone on the network path can read the credentials and use them.")
                .mend("Use https addresses and take ALLOW_PLAIN_HTTP away."),
        );
    }
    found
}

/// Files with secrets that everybody on this machine may read. The environment file counts when a secret
/// stands in it.
pub(super) fn readable_files(config: &Config, env_file: Option<(&Path, &EnvFile)>) -> Vec<Finding> {
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

fn readable_file(path: &Path, mode: &str) -> Option<Finding> {
    let others = fs::metadata(path).ok()?.permissions().mode() & 0o007;
    let shown = path.display();
    (others != 0).then(|| {
        Finding::warning(
            "credential-files",
            format!("{shown} can be read by everybody on this machine"),
        )
        .because("It holds a secret of the service.")
        .mend(format!("chmod {mode} {shown}"))
    })
}

/// What was found, with what depends on a wrong value marked as not checked.
pub(super) fn left_out(found: Vec<Finding>, problems: &[String]) -> Vec<Finding> {
    let is_left_out = |check: &str| {
        let mut wrong = DEPENDENTS
            .iter()
            .filter(|(name, _)| is_wrong(problems, &[name]));
        wrong.any(|(_, checks)| checks.contains(&check))
    };
    let marked = found.into_iter().map(|one| {
        if one.level == Level::Ok || !is_left_out(one.check) {
            return one;
        }
        let unchecked = Finding::off(one.check, "not checked: a value that it needs is wrong");
        match one.subject {
            Some(subject) => unchecked.of(subject),
            None => unchecked,
        }
    });
    marked.collect()
}

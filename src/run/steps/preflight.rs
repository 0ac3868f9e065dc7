//! Preflight step: runs the project's own checks. Failures do not block; they are listed in the pull
//! request for reviewers.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::child::ChildError;
use crate::context::{
    PreflightCheck, PreflightOutcome, Reporting, StepOutcome, TimeLimits, Workspace,
};
use crate::failure::RunFailure;

/// Maximum time of one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Maximum time of all checks.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Time reserved for pushing the work.
const RESERVE: Duration = Duration::from_secs(2 * 60);

/// Scripts of `package.json` that only check.
const NODE_SCRIPTS: [&str; 5] = ["typecheck", "type-check", "check", "lint", "test"];

/// Text of the placeholder test script of `npm init`.
const NO_TEST_SPECIFIED: &str = "no test specified";

/// Executes the step.
pub(super) async fn execute(
    workspace: &Workspace,
    reporting: &Reporting,
    limits: &TimeLimits,
    results: &mut Vec<PreflightCheck>,
) -> Result<StepOutcome, RunFailure> {
    let checks = checks(&workspace.folders.work_tree());
    if checks.is_empty() {
        return Ok(StepOutcome::Skipped("No checks found in this repository"));
    }
    let latest = limits.deadline_before(RESERVE);
    let latest = latest.min(Instant::now() + TOTAL_TIMEOUT);
    for line in checks {
        reporting.log(&format!("Running check: {line}"));
        let deadline = latest.min(Instant::now() + CHECK_TIMEOUT);
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let ended = workspace.run_program(&reporting.console, &words, Vec::new(), deadline);
        let outcome = match ended.await {
            Ok(result) if result.exit.success() => PreflightOutcome::Passed,
            Ok(_) => PreflightOutcome::Failed,
            Err(ChildError::Start { .. }) => PreflightOutcome::Unavailable,
            Err(_) => PreflightOutcome::TimedOut,
        };
        reporting.log(&format!("{line}: {outcome:?}"));
        results.push(PreflightCheck {
            name: line,
            outcome,
        });
    }
    let outputs: Vec<Value> = results
        .iter()
        .map(|check| json!({ "name": check.name, "ended": format!("{:?}", check.outcome) }))
        .collect();
    Ok(StepOutcome::Passed(json!({ "checks": outputs })))
}

/// Returns the command lines that check this project.
fn checks(tree: &Path) -> Vec<String> {
    let has = |file: &str| tree.join(file).is_file();
    if has("tests/run.sh") {
        return vec!["bash tests/run.sh".to_owned()];
    }
    let mut checks = node_checks(tree);
    if has("Cargo.toml") {
        checks.push("cargo test --quiet".to_owned());
    }
    if has("go.mod") {
        checks.extend(["go vet ./...", "go test ./..."].map(str::to_owned));
    }
    if has("pytest.ini") || has("conftest.py") || has("tests/conftest.py") {
        let python = if has(".venv/bin/python") {
            ".venv/bin/python"
        } else {
            "python3"
        };
        checks.push(format!("{python} -m pytest -q"));
    }
    if checks.is_empty() && has_make_test(tree) {
        checks.push("make test".to_owned());
    }
    checks
}

fn node_checks(tree: &Path) -> Vec<String> {
    let package: Value = std::fs::read_to_string(tree.join("package.json"))
        .ok()
        .and_then(|text| serde_json::from_slice(text.as_bytes()).ok())
        .unwrap_or_default();
    let manager = [
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
        ("bun.lock", "bun"),
        ("bun.lockb", "bun"),
    ]
    .into_iter()
    .find(|(file, _)| tree.join(file).is_file())
    .map_or("npm", |(_, manager)| manager);
    NODE_SCRIPTS
        .iter()
        .filter(|name| {
            package["scripts"][**name]
                .as_str()
                .is_some_and(|script| !script.contains(NO_TEST_SPECIFIED))
        })
        .map(|name| format!("{manager} run {name}"))
        .collect()
}

fn has_make_test(tree: &Path) -> bool {
    ["Makefile", "makefile", "GNUmakefile"].iter().any(|file| {
        std::fs::read_to_string(tree.join(file))
            .is_ok_and(|text| text.lines().any(|line| line.starts_with("test:")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_checks_of_a_project() {
        let package = r#"{"scripts":{"lint":"eslint .","test":"echo \"Error: no test specified\" && exit 1","build":"x"}}"#;
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
        let rows: [Row<'_>; 5] = [
            (&[], &[]),
            (&[("package.json", package)], &["npm run lint"]),
            (
                &[
                    ("package.json", package),
                    ("yarn.lock", ""),
                    ("Cargo.toml", ""),
                ],
                &["yarn run lint", "cargo test --quiet"],
            ),
            (&[("Makefile", "all:\ntest: all\n\tx\n")], &["make test"]),
            (&[("Makefile", "tested:\n")], &[]),
        ];
        for (files, expected) in rows {
            let tree = tempfile::tempdir().unwrap();
            for (file, text) in files {
                std::fs::write(tree.path().join(file), text).unwrap();
            }
            assert_eq!(checks(tree.path()), expected, "{files:?}");
        }
    }
}

//! Installs what the project depends on, with the package manager its lock file names.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::own_script;
use crate::domain::report::FailureCode;
use crate::pipeline::run::{Failure, Run, StepOutcome};

/// How long may installing take?
const TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Files in the root of a project, and the command that installs exactly what they lock. The first
/// of each family counts.
#[rustfmt::skip]
const MANAGERS: [(&str, Family, &str); 16] = [
    ("pnpm-lock.yaml", Family::Node, "pnpm install --frozen-lockfile"),
    ("yarn.lock", Family::Node, "yarn install --frozen-lockfile"),
    ("bun.lock", Family::Node, "bun install --frozen-lockfile"),
    ("bun.lockb", Family::Node, "bun install --frozen-lockfile"),
    ("package-lock.json", Family::Node, "npm ci --no-audit --no-fund"),
    ("npm-shrinkwrap.json", Family::Node, "npm ci --no-audit --no-fund"),
    ("Cargo.lock", Family::Rust, "cargo fetch --locked"),
    ("go.sum", Family::Go, "go mod download"),
    ("uv.lock", Family::Python, "uv sync --locked"),
    ("poetry.lock", Family::Python, "poetry install --no-interaction"),
    ("requirements.txt", Family::Python, "python3 -m venv .venv && .venv/bin/pip install --requirement requirements.txt"),
    ("Gemfile.lock", Family::Ruby, "bundle install"),
    ("pom.xml", Family::Java, "mvn --batch-mode --quiet dependency:go-offline"),
    ("gradlew", Family::Java, "./gradlew --no-daemon --quiet dependencies"),
    ("build.gradle", Family::Java, "gradle --no-daemon --quiet dependencies"),
    ("build.gradle.kts", Family::Java, "gradle --no-daemon --quiet dependencies"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Node,
    Rust,
    Go,
    Python,
    Ruby,
    Java,
}

pub(super) async fn perform(run: &mut Run) -> Result<StepOutcome, Failure> {
    let commands = commands(&run.folders.tree());
    if commands.is_empty() {
        return Ok(StepOutcome::Skipped("no lock file was found"));
    }
    for command in &commands {
        run.console.say(&format!("installing: {command}"));
        own_script(run, &format!("install: {command}"), command, TIMEOUT)
            .await
            .map_err(|reason| Failure::new(FailureCode::InstallFailed, reason))?;
    }
    Ok(StepOutcome::Passed(json!({ "commands": commands })))
}

/// One command for each family of languages that the project uses.
fn commands(tree: &Path) -> Vec<&'static str> {
    let mut families = Vec::new();
    let mut commands = Vec::new();
    for (file, family, command) in MANAGERS {
        if tree.join(file).is_file() && !families.contains(&family) {
            families.push(family);
            commands.push(command);
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_names_the_manager() {
        let rows: [(&[&str], &[&str]); 5] = [
            (&[], &[]),
            (&["package.json"], &[]),
            (&["package-lock.json"], &["npm ci --no-audit --no-fund"]),
            (
                &["package-lock.json", "pnpm-lock.yaml"],
                &["pnpm install --frozen-lockfile"],
            ),
            (
                &["Cargo.lock", "yarn.lock"],
                &["yarn install --frozen-lockfile", "cargo fetch --locked"],
            ),
        ];
        for (files, expected) in rows {
            let tree = tempfile::tempdir().unwrap();
            for file in files {
                std::fs::write(tree.path().join(file), "").unwrap();
            }
            assert_eq!(commands(tree.path()), expected, "{files:?}");
        }
    }
}

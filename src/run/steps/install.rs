//! Install step: installs dependencies with the package manager of the lock file.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::context::{Reporting, StepOutcome, TimeLimits, Workspace};
use crate::failure::RunFailure;
use domain::report::FailureCode;

/// Maximum time of one install command.
const TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Package managers: name, file in the project's root that selects it, language family, and command
/// that installs the locked versions. The first match of each family is used.
#[rustfmt::skip]
const MANAGERS: [(&str, &str, Family, &str); 16] = [
    ("pnpm", "pnpm-lock.yaml", Family::Node, "pnpm install --frozen-lockfile"),
    ("yarn", "yarn.lock", Family::Node, "yarn install --frozen-lockfile"),
    ("bun", "bun.lock", Family::Node, "bun install --frozen-lockfile"),
    ("bun", "bun.lockb", Family::Node, "bun install --frozen-lockfile"),
    ("npm", "package-lock.json", Family::Node, "npm ci --no-audit --no-fund"),
    ("npm", "npm-shrinkwrap.json", Family::Node, "npm ci --no-audit --no-fund"),
    ("cargo", "Cargo.lock", Family::Rust, "cargo fetch --locked"),
    ("go", "go.sum", Family::Go, "go mod download"),
    ("uv", "uv.lock", Family::Python, "uv sync --locked"),
    ("poetry", "poetry.lock", Family::Python, "poetry install --no-interaction"),
    ("pip", "requirements.txt", Family::Python, "python3 -m venv .venv && .venv/bin/pip install --requirement requirements.txt"),
    ("bundler", "Gemfile.lock", Family::Ruby, "bundle install"),
    ("maven", "pom.xml", Family::Java, "mvn --batch-mode --quiet dependency:go-offline"),
    ("gradle", "gradlew", Family::Java, "./gradlew --no-daemon --quiet dependencies"),
    ("gradle", "build.gradle", Family::Java, "gradle --no-daemon --quiet dependencies"),
    ("gradle", "build.gradle.kts", Family::Java, "gradle --no-daemon --quiet dependencies"),
];

/// Setting that disables installation.
const NONE: &str = "none";

/// Language family of a package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Node,
    Rust,
    Go,
    Python,
    Ruby,
    Java,
}

/// Executes the step.
pub(super) async fn execute(
    workspace: &Workspace,
    reporting: &Reporting,
    limits: &TimeLimits,
    package_manager: Option<&str>,
) -> Result<StepOutcome, RunFailure> {
    let tree = workspace.folders.work_tree();
    let commands = match package_manager {
        None => commands(&tree),
        Some(NONE) => {
            return Ok(StepOutcome::Skipped(
                "Installation is disabled by packageManager: none",
            ));
        }
        Some(name) => vec![configured_command(&tree, name)?],
    };
    if commands.is_empty() {
        return Ok(StepOutcome::Skipped("No lock file found"));
    }
    for command in &commands {
        reporting.log(&format!("Installing: {command}"));
        let name = format!("install: {command}");
        let deadline = limits.deadline_within(TIMEOUT);
        workspace
            .run_script(&reporting.console, &name, command, deadline)
            .await
            .map_err(|reason| RunFailure::new(FailureCode::InstallFailed, reason))?;
    }
    Ok(StepOutcome::Passed(json!({ "commands": commands })))
}

/// Returns the command of the package manager named in the settings, whatever files exist.
fn configured_command(tree: &Path, name: &str) -> Result<&'static str, RunFailure> {
    let mut named = MANAGERS.iter().filter(|(known, ..)| *known == name);
    let first = named.clone().next();
    let present = named.find(|(_, file, ..)| tree.join(file).is_file());
    present
        .or(first)
        .map(|(.., command)| *command)
        .ok_or_else(|| {
            let mut names = MANAGERS.map(|(name, ..)| name).to_vec();
            names.dedup();
            let reason = format!(
                "unknown packageManager {name}; known: {}, {NONE}",
                names.join(", ")
            );
            RunFailure::new(FailureCode::InstallFailed, reason)
        })
}

/// Returns one install command for each language family of the project.
fn commands(tree: &Path) -> Vec<&'static str> {
    let mut families = Vec::new();
    let mut commands = Vec::new();
    for (_, file, family, command) in MANAGERS {
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
    fn selects_the_manager_by_lock_file() {
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

    #[test]
    fn settings_override_the_lock_file() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("yarn.lock"), "").unwrap();
        std::fs::write(tree.path().join("build.gradle"), "").unwrap();
        let rows = [
            ("npm", "npm ci --no-audit --no-fund"),
            ("gradle", "gradle --no-daemon --quiet dependencies"),
        ];
        for (name, command) in rows {
            assert_eq!(configured_command(tree.path(), name).unwrap(), command);
        }
        let unknown = configured_command(tree.path(), "apt").unwrap_err();
        assert_eq!(unknown.code, Some(FailureCode::InstallFailed));
        assert!(
            unknown
                .reason
                .contains("known: pnpm, yarn, bun, npm, cargo"),
            "{unknown}"
        );
    }
}

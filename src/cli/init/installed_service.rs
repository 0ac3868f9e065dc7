//! Limits that the unit of the package sets for the service.

use std::path::Path;

use anyhow::{Context, bail};
use tokio::process::Command;

use super::candidate::Candidate;
use super::setup_files::SetupFiles;

/// Folders that the unit hides from the service with ProtectHome= and PrivateTmp=.
const HIDDEN_FOLDERS: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// Drop-in of the unit that gives the service access to Docker.
const DROP_IN: &str = include_str!("../../../packaging/systemd/local-containers.conf");

/// Path of the drop-in.
pub(super) const DROP_IN_PATH: &str =
    "/etc/systemd/system/agent-implement.service.d/local-containers.conf";

/// Group whose members may use Docker's socket.
const DOCKER_GROUP: &str = "docker:";

/// Refuses a path that the service of the package cannot see, unlike this user.
pub(super) fn require_visible(files: &SetupFiles, name: &str, path: &Path) -> anyhow::Result<()> {
    let mut hidden = HIDDEN_FOLDERS.iter();
    if files.is_installed() && hidden.any(|folder| path.starts_with(folder)) {
        bail!(
            "{name}: the unit of the service hides {} from it, with all home folders and temporary files. Run the \
             command again with a path elsewhere that the user agent-implement may use",
            path.display()
        );
    }
    Ok(())
}

/// Gives the service of the package access to Docker, as its unit gives none. Does nothing if it has a drop-in, or for
/// a service without the package.
pub(super) async fn permit_containers(candidate: &Candidate) -> anyhow::Result<()> {
    let path = Path::new(DROP_IN_PATH);
    if !candidate.files.is_installed() || path.exists() {
        return Ok(());
    }
    let groups = std::fs::read_to_string("/etc/group").context("reading /etc/group")?;
    if !groups.lines().any(|line| line.starts_with(DOCKER_GROUP)) {
        println!(
            "The service needs access to the socket of the container engine: see \"Local containers\" in \
             docs/install.md."
        );
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().unwrap_or(path))
        .and_then(|()| std::fs::write(path, DROP_IN))
        .with_context(|| format!("writing {DROP_IN_PATH}"))?;
    println!("Gave the service access to Docker in {DROP_IN_PATH}.");
    let reloaded = Command::new("systemctl")
        .arg("daemon-reload")
        .status()
        .await;
    match reloaded.context("running systemctl")?.success() {
        true => Ok(()),
        false => bail!("systemctl daemon-reload failed"),
    }
}

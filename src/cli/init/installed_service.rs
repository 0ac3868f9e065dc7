//! Access of the installed service to the container engine.

use std::path::Path;

use anyhow::{Context, bail};
use tokio::process::Command;

use super::candidate::Candidate;

/// Drop-in of the unit that gives the service access to Docker.
const DROP_IN: &str = include_str!("../../../packaging/systemd/local-containers.conf");

/// Path of the drop-in.
const DROP_IN_PATH: &str = "/etc/systemd/system/agent-implement.service.d/local-containers.conf";

/// Group whose members may use Docker's socket.
const DOCKER_GROUP: &str = "docker:";

/// Gives the service of the package access to Docker, as its unit gives none. Does nothing if it has a drop-in, or for
/// a service without the package.
pub(super) async fn permit_containers(candidate: &mut Candidate) -> anyhow::Result<()> {
    let path = Path::new(DROP_IN_PATH);
    if !candidate.files.is_installed() || path.exists() {
        return Ok(());
    }
    let groups = std::fs::read_to_string("/etc/group").context("reading /etc/group")?;
    if !groups.lines().any(|line| line.starts_with(DOCKER_GROUP)) {
        println!(
            "The service needs access to the socket of the container engine: copy \
             /usr/share/doc/agent-implement/examples/local-containers.conf to {DROP_IN_PATH} and adapt it."
        );
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().unwrap_or(path))
        .and_then(|()| std::fs::write(path, DROP_IN))
        .with_context(|| format!("writing {DROP_IN_PATH}"))?;
    candidate.has_changed = true;
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

//! Check of the folders that local containers mount: the sockets of runs, and mirrors of repositories.

use std::path::Path;

use crate::config::Config;
use domain::check_result::CheckResult;

/// Files by which Docker and Podman mark the inside of a container.
const CONTAINER_MARKS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

/// Checks that the container engine can mount the folders. `is_needed` states whether runs of a project execute in
/// containers. `None` if they mount nothing.
pub(super) fn examine(config: &Config, is_needed: bool) -> Option<CheckResult> {
    let has_socket = !config.has_callbacks() && config.containers_can_report();
    if !is_needed || !(has_socket || config.isolates_containers() || config.mirrors_repositories())
    {
        return None;
    }
    let check = "run-socket";
    let folder = match config.socket_folder_on_host() {
        Ok(folder) => folder,
        Err(error) => {
            let what = format!("cannot resolve {}: {error}", config.data_dir.display());
            return Some(
                CheckResult::error(check, what)
                    .with_impact("Runs in containers do not start.")
                    .with_remedy("Set DATA_DIR to an existing folder."),
            );
        }
    };
    let in_container = CONTAINER_MARKS.iter().any(|mark| Path::new(mark).exists());
    Some(match in_container && config.containers.data_dir_on_host.is_none() {
        true => CheckResult::error(
            check,
            format!("this service runs in a container, so {} may not be its path on the machine of the container engine", folder.display()),
        )
        .with_impact("Runs in containers do not start, or cannot report.")
        .with_remedy("Set DATA_DIR_ON_HOST to the path of DATA_DIR on that machine. It is not needed only with RUNNER_CALLBACK_BASE_URL, RUNNER_TOKEN_SECRET, LOCAL_EGRESS=open and GIT_MIRROR_LIMIT_MB=0."),
        false => CheckResult::ok(
            check,
            format!("runs in containers use the sockets in {}", folder.display()),
        ),
    })
}

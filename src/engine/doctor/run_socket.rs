//! Check of the socket through which local containers report.

use std::path::Path;

use crate::config::Config;
use domain::check_result::CheckResult;

/// Files by which Docker and Podman mark the inside of a container.
const CONTAINER_MARKS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

/// Checks that the container engine can mount the folder of the socket. `is_needed` states whether runs of a
/// project execute in containers. `None` if they report to the address of the service.
pub(super) fn examine(config: &Config, is_needed: bool) -> Option<CheckResult> {
    if !is_needed || config.has_callbacks() || !config.containers_can_report() {
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
        .with_remedy("Set DATA_DIR_ON_HOST to the path of DATA_DIR on that machine, or set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET."),
        false => CheckResult::ok(
            check,
            format!("runs in containers report through {}", folder.display()),
        ),
    })
}

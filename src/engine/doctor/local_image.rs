//! Check of the image of local containers.

use crate::app::App;
use crate::local_image::BUILD_COMMAND;
use crate::runner_image::{VERSION, VERSION_LABEL};
use domain::check_result::CheckResult;
use domain::machine::{EnvVarMap, HostKind};
use domain::sanitize::single_line;

/// Label of images that contain this program. See packaging/docker/Dockerfile.runner.
const LABEL: &str = "agent_implement_runner";

/// Checks the image. `is_needed` states whether runs of a project execute in it. Returns `None`
/// without a container engine, and if the engine does not respond, which the connection check
/// reports.
pub(super) async fn examine(app: &App, is_needed: bool) -> Option<CheckResult> {
    let containers = &app.core.config.containers;
    if !app.vendors.sessions.has_host(HostKind::Local) || !(is_needed || containers.is_explicit) {
        return None;
    }
    let image = containers.image.as_str();
    let labels = app.vendors.sessions.image_labels(image).await.ok()?;
    Some(match labels {
        None => missing(image, is_needed),
        Some(labels) => present(image, &labels),
    })
}

const CHECK: &str = "local-image";

fn missing(image: &str, is_needed: bool) -> CheckResult {
    let what = format!("the image {image} is not on this machine");
    let missing = match is_needed {
        true => CheckResult::error(CHECK, what),
        false => CheckResult::warning(CHECK, what),
    };
    missing
        .with_impact("Runs in containers fail unless a registry provides the image.")
        .with_remedy(format!(
            "Build it ({BUILD_COMMAND} --tag {image}), or set LOCAL_RUNNER_IMAGE."
        ))
}

fn present(image: &str, labels: &EnvVarMap) -> CheckResult {
    if !labels.contains_key(LABEL) {
        return CheckResult::warning(CHECK, format!("{image} has no label {LABEL}"))
            .with_impact("It may lack agent-implement, git or an agent; runs fail without them.")
            .with_remedy(format!(
                "Build it ({BUILD_COMMAND} --tag {image}), or build yours on top of that image."
            ));
    }
    let version = labels
        .get(VERSION_LABEL)
        .map(|version| single_line(version));
    let what = match version.as_deref() {
        Some(VERSION) => {
            return CheckResult::ok(
                CHECK,
                format!("the image {image} is available, with version {VERSION}"),
            );
        }
        Some(other) => {
            format!("{image} contains version {other:.40}, and the service is version {VERSION}")
        }
        None => format!("{image} does not state its version, and the service is version {VERSION}"),
    };
    CheckResult::warning(CHECK, what)
        .with_impact("Runs use another version of this program than the service.")
        .with_remedy(format!("Build it again: {BUILD_COMMAND} --tag {image}."))
}

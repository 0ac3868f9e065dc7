//! Check of the image of local containers.

use crate::app::App;
use domain::check_result::CheckResult;
use domain::machine::HostKind;

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
    let (check, image) = ("local-image", containers.image.as_str());
    let labels = app.vendors.sessions.image_labels(image).await.ok()?;
    let build = "docker build -f packaging/docker/Dockerfile.runner -t";
    Some(match labels {
        None => {
            let what = format!("the image {image} is not on this machine");
            let missing = match is_needed {
                true => CheckResult::error(check, what),
                false => CheckResult::warning(check, what),
            };
            missing
                .with_impact("Runs in containers fail unless a registry provides the image.")
                .with_remedy(format!("Build it ({build} {image} .), or set LOCAL_RUNNER_IMAGE."))
        }
        Some(labels) if labels.contains_key(LABEL) => CheckResult::ok(check, format!("the image {image} is available")),
        Some(_) => CheckResult::warning(check, format!("{image} has no label {LABEL}"))
            .with_impact("It may lack agent-implement, git or an agent; runs fail without them.")
            .with_remedy(format!("Build it from packaging/docker/Dockerfile.runner ({build} {image} .), or build yours on top of that image.")),
    })
}

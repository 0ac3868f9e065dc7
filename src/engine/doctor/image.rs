//! Whether the image of local containers is there and made for runs.

use crate::app::App;
use domain::checkup::Finding;
use domain::machine::HostKind;

/// The label of images that hold this program. (packaging/docker/Dockerfile.runner)
const LABEL: &str = "agent_implement_runner";

/// Looks at the image. `is_needed` tells whether runs of a project execute in it. None without an engine,
/// and when another check says that the engine does not answer.
pub(super) async fn examine(app: &App, is_needed: bool) -> Option<Finding> {
    let containers = &app.config.containers;
    if !app.sessions.has(HostKind::Local) || !(is_needed || containers.named) {
        return None;
    }
    let (check, image) = ("local-image", containers.image.as_str());
    let labels = app.sessions.image_labels(image).await.ok()?;
    let build = "docker build -f packaging/docker/Dockerfile.runner -t";
    Some(match labels {
        None => {
            let what = format!("the image {image} is not on this machine");
            let missing = match is_needed {
                true => Finding::error(check, what),
                false => Finding::warning(check, what),
            };
            missing
                .because("A run in a container fails unless a registry has the image.")
                .mend(format!("Build it ({build} {image} .), or set LOCAL_RUNNER_IMAGE."))
        }
        Some(labels) if labels.contains_key(LABEL) => Finding::ok(check, format!("{image} is there")),
        Some(_) => Finding::warning(check, format!("{image} has no label {LABEL}"))
            .because("It may lack agent-implement, git or an agent; a run fails without them.")
            .mend(format!("Build it from packaging/docker/Dockerfile.runner ({build} {image} .), or on top of that image.")),
    })
}

//! Image of local containers: whether the engine has it.

use crate::app::App;
use crate::runner_image::{VERSION, VERSION_LABEL};
use domain::decision::{Decision, DecisionOutcome, WaitReason};
use domain::machine::HostKind;
use domain::runner_mode::RunnerMode;
use vendors::session_hosts::SessionHostError;

/// Command that builds the image.
pub(crate) const BUILD_COMMAND: &str = "agent-implement image build";

/// Returns whether the image of local containers must be built: no registry can have it, and the engine does not
/// have it in this version.
///
/// # Errors
/// Fails if the engine rejects the request or does not respond.
pub async fn must_be_built(app: &App) -> Result<bool, SessionHostError> {
    let image = &app.core.config.containers.image;
    if !is_only_local(image) {
        return Ok(false);
    }
    let labels = app.vendors.sessions.image_labels(image).await?;
    let version = labels.as_ref().and_then(|labels| labels.get(VERSION_LABEL));
    Ok(version.is_none_or(|version| version != VERSION))
}

/// Makes issues that are about to run in local containers wait if their image is missing and no registry
/// can have it.
pub(crate) async fn hold_back_without_image<I>(
    app: &App,
    mode: RunnerMode,
    decided: &mut [(I, Decision)],
) {
    let is_about_to_run = |decision: &Decision| decision.outcome == DecisionOutcome::Dispatched;
    if mode != RunnerMode::Local || !decided.iter().any(|(_, one)| is_about_to_run(one)) {
        return;
    }
    let Some(why) = missing_reason(app).await else {
        return;
    };
    for (_, decision) in decided {
        if is_about_to_run(decision) {
            decision.set_waiting(WaitReason::Ineligible, &why);
        }
    }
}

/// Returns why runs in local containers cannot start. `None` if the engine has the image, if a registry may
/// have it, and if the engine does not respond.
async fn missing_reason(app: &App) -> Option<String> {
    let image = &app.core.config.containers.image;
    if !is_only_local(image) || !app.vendors.sessions.has_host(HostKind::Local) {
        return None;
    }
    match app.vendors.sessions.image_labels(image).await {
        Ok(None) => Some(format!(
            "The image {image} is not on this machine. Run \"{BUILD_COMMAND}\", or set LOCAL_RUNNER_IMAGE."
        )),
        Ok(Some(_)) | Err(_) => None,
    }
}

/// Returns whether an image can only be on this machine. Without a folder, a registry looks for an official
/// image, and none is a runner's.
fn is_only_local(image: &str) -> bool {
    !image.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_without_a_folder_are_local() {
        assert!(is_only_local("agent-implement-runner:local"));
        for image in [
            "acme/runner",
            "ghcr.io/acme/runner:1",
            "localhost:5000/runner",
        ] {
            assert!(!is_only_local(image), "{image}");
        }
    }
}

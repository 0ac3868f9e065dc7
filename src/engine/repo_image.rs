//! The image that a repository asks for, read from its default branch when a run is about to start.
//!
//! An unchanged file costs nothing of the host's allowance. A file that cannot be followed keeps the
//! run waiting, with its reason; one that the host does not show now is read again before the start:
//! another image may lack what the work needs.

use crate::app::App;
use domain::ids::Repo;
use domain::runner_image::{self, IMAGE_FILE, RequestedImage};

/// The image that a repository names at this place of its history.
///
/// # Errors
/// A sentence for operators, when the file cannot be followed.
pub(super) async fn fetch(app: &App, repo: &Repo, git_ref: &str) -> Result<RequestedImage, String> {
    let Some(github) = &app.github else {
        return Ok(RequestedImage::Unspecified);
    };
    match github.file(repo, IMAGE_FILE, git_ref).await {
        Ok(None) => Ok(RequestedImage::Unspecified),
        Ok(Some(file)) => {
            runner_image::parse_image_file(&file.text, repo, &app.config.image_prefixes)
                .map(RequestedImage::Image)
                .map_err(|error| format!("{repo}: {error}."))
        }
        Err(error) => {
            tracing::warn!(%repo, %error, "{IMAGE_FILE} could not be read.");
            Ok(RequestedImage::LookupFailed)
        }
    }
}

//! Image named by a repository, read from its default branch before a run starts.
//!
//! Reading an unchanged file does not count against GitHub's rate limit. A file with an invalid
//! image keeps the run waiting, with the reason. A file that cannot be read now is read again
//! before the start, because the default image may lack what the repository needs.

use crate::app::App;
use domain::ids::Repo;
use domain::runner_image::{self, IMAGE_FILE, RequestedImage};

/// Reads the image that a repository names at a git reference.
///
/// # Errors
/// Returns a sentence for operators if the file is invalid.
pub(super) async fn fetch(app: &App, repo: &Repo, git_ref: &str) -> Result<RequestedImage, String> {
    let Some(github) = &app.vendors.github else {
        return Ok(RequestedImage::Unspecified);
    };
    match github.file(repo, IMAGE_FILE, git_ref).await {
        Ok(None) => Ok(RequestedImage::Unspecified),
        Ok(Some(file)) => {
            runner_image::parse_image_file(&file.text, repo, &app.core.config.image_prefixes)
                .map(RequestedImage::Image)
                .map_err(|error| format!("{repo}: {error}."))
        }
        Err(error) => {
            tracing::warn!(%repo, %error, "Failed to read {IMAGE_FILE}.");
            Ok(RequestedImage::LookupFailed)
        }
    }
}

//! The image that a repository asks for, read from its default branch when a run is about to start.
//!
//! An unchanged file costs nothing of the host's allowance. A file that cannot be read or followed
//! keeps the run waiting, with its reason: another image may lack what the work needs.

use crate::app::App;
use crate::domain::image::{self, IMAGE_FILE};
use crate::domain::mapping::Mapping;

/// The image named in the mapping's repository; none when it names none.
///
/// # Errors
/// A sentence for operators.
pub(super) async fn asked(app: &App, mapping: &Mapping) -> Result<Option<String>, String> {
    let Some(github) = &app.github else {
        return Ok(None);
    };
    let repo = mapping.target();
    let file = github.file(&repo, IMAGE_FILE, &mapping.default_branch);
    match file.await {
        Ok(None) => Ok(None),
        Ok(Some(file)) => image::read(&file.text, &repo, &app.config.image_prefixes)
            .map(Some)
            .map_err(|error| format!("{repo}: {error}.")),
        Err(error) => Err(format!(
            "{IMAGE_FILE} of {repo} could not be read: {error}."
        )),
    }
}

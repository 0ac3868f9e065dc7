//! The image that a repository asks for, read from its default branch when a run is about to start.
//!
//! An unchanged file costs nothing of the host's allowance. A file that cannot be read or followed
//! keeps the run waiting, with its reason: another image may lack what the work needs.

use crate::app::App;
use crate::domain::image::{self, IMAGE_FILE};
use crate::domain::mapping::Mapping;

/// Why it is not known which image a repository asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unclear {
    /// The file is there and cannot be followed.
    Refused(String),
    /// The host did not show it.
    Unread(String),
}

impl Unclear {
    /// A sentence for operators.
    pub fn why(self) -> String {
        match self {
            Unclear::Refused(why) | Unclear::Unread(why) => why,
        }
    }
}

/// The image named in the mapping's repository; none when it names none.
///
/// # Errors
/// When it cannot be told.
pub(super) async fn asked(app: &App, mapping: &Mapping) -> Result<Option<String>, Unclear> {
    let Some(github) = &app.github else {
        return Ok(None);
    };
    let repo = mapping.target();
    let file = github.file(&repo, IMAGE_FILE, &mapping.default_branch);
    match file.await {
        Ok(None) => Ok(None),
        Ok(Some(file)) => image::read(&file.text, &repo, &app.config.image_prefixes)
            .map(Some)
            .map_err(|error| Unclear::Refused(format!("{repo}: {error}."))),
        Err(error) => Err(Unclear::Unread(format!(
            "{IMAGE_FILE} of {repo} could not be read: {error}."
        ))),
    }
}

//! Image named by a repository, read from its default branch before a run starts.
//!
//! Reading an unchanged file does not count against GitHub's rate limit. A file with an invalid
//! image keeps the run waiting, with the reason. A file that cannot be read now is read again
//! before the start, because the default image may lack what the repository needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::app::App;
use domain::ids::{Repo, TeamKey};
use domain::runner_image::{self, IMAGE_FILE, RequestedImage};
use vendors::scm::FileResult;

/// Reads the image that a repository names at a git reference.
///
/// # Errors
/// Returns a sentence for operators if the file is invalid.
pub(super) async fn fetch(app: &App, repo: &Repo, git_ref: &str) -> Result<RequestedImage, String> {
    match &app.vendors.github {
        Some(github) => read(app, repo, github.file(repo, IMAGE_FILE, git_ref).await),
        None => Ok(RequestedImage::Unspecified),
    }
}

/// Reads the images that the target repositories of mappings name, with one request per owner. Fails like
/// [`fetch`] for each.
pub(super) async fn fetch_each(
    app: &App,
    targets: &BTreeMap<TeamKey, (Repo, String)>,
) -> BTreeMap<TeamKey, Result<RequestedImage, String>> {
    let Some(github) = &app.vendors.github else {
        return BTreeMap::new();
    };
    // Several mappings can have the same target.
    let places: BTreeSet<&(Repo, String)> = targets.values().collect();
    let places: Vec<(Repo, String)> = places.into_iter().cloned().collect();
    let files = github.file_of_each(IMAGE_FILE, &places).await;
    let images = places.iter().zip(files);
    let images: BTreeMap<_, _> = images
        .map(|(place, file)| (place, read(app, &place.0, file)))
        .collect();
    let of_team = |(team, place): (&TeamKey, &_)| Some((team.clone(), images.get(place)?.clone()));
    targets.iter().filter_map(of_team).collect()
}

fn read(app: &App, repo: &Repo, file: FileResult) -> Result<RequestedImage, String> {
    match file {
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

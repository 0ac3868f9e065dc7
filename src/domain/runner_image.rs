//! Which image a run uses, and who may choose it. (spec: *Limits* rule 3)
//!
//! A repository names its image in `.agent-implement/image.yml` on its default branch:
//!
//! ```yaml
//! image: ghcr.io/acme/shop-runner:3
//! ```
//!
//! A run in it sees the model key and the team's secrets, so only images below permitted prefixes
//! count: what the operator lists, else what the repository's own owner publishes.

use serde::Deserialize;

use super::ids::Repo;
use super::job::RunnerKind;

/// Where a repository names its image.
pub const IMAGE_FILE: &str = ".agent-implement/image.yml";

/// Longest name of an image, in characters.
const MAX_IMAGE: usize = 255;

/// What is known of the image that a repository asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RequestedImage {
    #[default]
    Unspecified,
    Image(String),
    /// The host did not show it; it is asked again before the run starts.
    LookupFailed,
}

impl RequestedImage {
    pub fn into_image(self) -> Option<String> {
        match self {
            RequestedImage::Image(image) => Some(image),
            RequestedImage::Unspecified | RequestedImage::LookupFailed => None,
        }
    }
}

/// Why an image file is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageFileError {
    #[error("{IMAGE_FILE} must be YAML with one text, image")]
    InvalidFile,
    #[error("{IMAGE_FILE} must name an image such as ghcr.io/acme/runner:1")]
    InvalidName,
    #[error("{IMAGE_FILE} names {image}, which does not begin with {allowed}")]
    NotAllowed { image: String, allowed: String },
}

#[derive(Deserialize)]
struct ImageFile {
    image: String,
}

/// Reads the image that a repository asks for.
///
/// # Errors
/// When the file is none, or names what is no image or none that is permitted.
pub fn parse_image_file(
    text: &str,
    repo: &Repo,
    prefixes: &[String],
) -> Result<String, ImageFileError> {
    let file: ImageFile = serde_saphyr::from_str(text).map_err(|_| ImageFileError::InvalidFile)?;
    let image = file.image.trim();
    if !is_image(image) {
        return Err(ImageFileError::InvalidName);
    }
    let own = [format!("ghcr.io/{}/", repo.owner.to_ascii_lowercase())];
    let allowed = if prefixes.is_empty() { &own } else { prefixes };
    if allowed.iter().any(|prefix| is_below(image, prefix)) {
        return Ok(image.to_owned());
    }
    Err(ImageFileError::NotAllowed {
        image: image.to_owned(),
        allowed: allowed.join(" or "),
    })
}

/// The image of a run: what the repository asks for, then what the operator configured for this
/// kind of runner, then the one that stands for all machines of an owner. In CI the rest is the
/// workflow's to decide, and a container always has the operator's.
pub fn resolve_image(
    runner: RunnerKind,
    repo: &Repo,
    asked: Option<String>,
    configured: Option<&str>,
) -> Option<String> {
    let configured = || configured.map(str::to_owned);
    let built_in = || {
        let owner = repo.owner.to_ascii_lowercase();
        (runner == RunnerKind::Vm).then(|| format!("ghcr.io/{owner}/agent-implement-runner:latest"))
    };
    asked.or_else(configured).or_else(built_in)
}

/// Whether a prefix is the image or ends where a part of its name does: `ghcr.io/acme` is no prefix
/// of `ghcr.io/acme-evil/x`.
fn is_below(image: &str, prefix: &str) -> bool {
    match image.strip_prefix(prefix) {
        Some("") => true,
        Some(rest) => prefix.ends_with('/') || rest.starts_with(['/', ':', '@']),
        None => false,
    }
}

fn is_image(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    text.len() <= MAX_IMAGE
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(allowed)
        && !text.contains("..")
        && !text.contains("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo() -> Repo {
        Repo::new("Acme", "shop")
    }

    #[test]
    fn an_image_is_followed_below_permitted_prefixes_only() {
        let prefixes: Vec<String> = vec!["registry.test/team".into(), "ghcr.io/other/".into()];
        let rows = [
            ("ghcr.io/acme/runner:1", &[][..], true),
            ("ghcr.io/acme-evil/runner:1", &[], false),
            ("docker.io/acme/runner", &[], false),
            ("registry.test/team", &prefixes, true),
            ("registry.test/team:2", &prefixes, true),
            ("registry.test/team/x@sha256:abc", &prefixes, true),
            ("registry.test/teammates/x", &prefixes, false),
            ("ghcr.io/other/x", &prefixes, true),
            ("ghcr.io/acme/runner:1", &prefixes, false),
        ];
        for (image, prefixes, fine) in rows {
            let read = parse_image_file(&format!("image: {image}\n"), &repo(), prefixes);
            assert_eq!(read.is_ok(), fine, "{image}: {read:?}");
        }
    }

    #[test]
    fn what_is_no_image_file_is_refused() {
        for text in [
            "",
            "image:",
            "- x",
            "image: [a]",
            "imago: ghcr.io/acme/x",
            "{",
        ] {
            assert_eq!(
                parse_image_file(text, &repo(), &[]),
                Err(ImageFileError::InvalidFile),
                "{text:?}"
            );
        }
        for name in [
            "\"a b\"",
            "ghcr.io/acme/../x",
            "\"$(id)\"",
            "-x",
            "ghcr.io//x",
        ] {
            let told = parse_image_file(&format!("image: {name}"), &repo(), &[]);
            assert_eq!(told, Err(ImageFileError::InvalidName), "{name}");
        }
    }

    #[test]
    fn the_repositorys_word_comes_first_and_ci_may_have_none() {
        let resolve = |runner, asked: Option<&str>, configured| {
            resolve_image(runner, &repo(), asked.map(str::to_owned), configured)
        };
        let (ci, vm) = (RunnerKind::Ci, RunnerKind::Vm);
        assert_eq!(resolve(ci, Some("a"), Some("s")).as_deref(), Some("a"));
        assert_eq!(resolve(ci, None, Some("s")).as_deref(), Some("s"));
        assert_eq!(resolve(ci, None, None), None);
        assert_eq!(
            resolve(vm, None, None).as_deref(),
            Some("ghcr.io/acme/agent-implement-runner:latest")
        );
    }
}

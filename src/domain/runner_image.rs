//! Container image of a run. See docs/behaviour.md#image-of-a-run.
//!
//! A repository names its image in `.agent-implement/image.yml` on its default branch:
//!
//! ```yaml
//! image: ghcr.io/acme/shop-runner:3
//! ```
//!
//! The run has access to the model key and the secrets of the team. Therefore only images below
//! permitted prefixes are used: those that the operator configured, or else the packages of the
//! repository's owner.

use serde_json::Value;

use super::ids::Repo;
use super::job::RunnerKind;

/// Path of the file in which a repository names its image.
pub const IMAGE_FILE: &str = ".agent-implement/image.yml";

/// Maximum length of an image name, in characters.
const MAX_IMAGE: usize = 255;

/// Image that a repository requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RequestedImage {
    /// The repository requests no image.
    #[default]
    Unspecified,
    /// The repository requests this image.
    Image(String),
    /// The file could not be read. It is read again before the run starts.
    LookupFailed,
}

impl RequestedImage {
    /// Returns the image, if the repository requests one.
    pub fn into_image(self) -> Option<String> {
        match self {
            RequestedImage::Image(image) => Some(image),
            RequestedImage::Unspecified | RequestedImage::LookupFailed => None,
        }
    }
}

/// Reason why an image file is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageFileError {
    /// The file is not a YAML mapping with an `image`.
    #[error("{IMAGE_FILE} must be a YAML mapping with the string `image`")]
    InvalidFile,
    /// The image name is invalid.
    #[error("{IMAGE_FILE} must name an image such as ghcr.io/acme/runner:1")]
    InvalidName,
    /// The image is not below a permitted prefix.
    #[error("{IMAGE_FILE} names {image}, which does not begin with {allowed}")]
    NotAllowed {
        /// Requested image.
        image: String,
        /// Permitted prefixes, for people.
        allowed: String,
    },
}

/// Returns the image that a repository requests.
///
/// # Errors
/// The file is invalid, or names an image that is invalid or not permitted.
pub fn parse_image_file(
    text: &str,
    repo: &Repo,
    prefixes: &[String],
) -> Result<String, ImageFileError> {
    let file: Option<Value> = serde_saphyr::from_str(text).ok();
    let image = file.as_ref().and_then(|file| file["image"].as_str());
    let image = image.ok_or(ImageFileError::InvalidFile)?.trim();
    if !is_image_name(image) {
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

/// Returns the image of a run: the image that the repository requests, else the configured image,
/// else the default image of the owner for VMs and Kubernetes. `None` in CI lets the workflow choose its default.
/// Containers always use the configured image.
pub fn resolve_image(
    runner: RunnerKind,
    repo: &Repo,
    requested: Option<String>,
    configured: Option<&str>,
) -> Option<String> {
    let configured = || configured.map(str::to_owned);
    let built_in = || {
        let owner = repo.owner.to_ascii_lowercase();
        matches!(runner, RunnerKind::Vm | RunnerKind::Kubernetes)
            .then(|| format!("ghcr.io/{owner}/agent-implement-runner:latest"))
    };
    requested.or_else(configured).or_else(built_in)
}

/// Returns whether the prefix is the image, or ends at a separator in its name. For example,
/// `ghcr.io/acme` is not a prefix of `ghcr.io/acme-evil/x`.
fn is_below(image: &str, prefix: &str) -> bool {
    match image.strip_prefix(prefix) {
        Some("") => true,
        Some(rest) => prefix.ends_with('/') || rest.starts_with(['/', ':', '@']),
        None => false,
    }
}

/// Returns whether text is a valid image name, so that it can be written into a workflow.
pub fn is_image_name(text: &str) -> bool {
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
    fn accepts_images_below_permitted_prefixes_only() {
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
        for (image, prefixes, is_accepted) in rows {
            let result = parse_image_file(&format!("image: {image}\n"), &repo(), prefixes);
            assert_eq!(result.is_ok(), is_accepted, "{image}: {result:?}");
        }
    }

    #[test]
    fn rejects_invalid_image_names() {
        for good in ["runner", "ghcr.io/a/b:1.2", "h:5000/a@sha256:00"] {
            assert!(is_image_name(good), "{good}");
        }
        for bad in ["", "a b", "a'", "${{ x }}", "/a", "a\nb", &"a".repeat(300)] {
            assert!(!is_image_name(bad), "{bad}");
        }
    }

    #[test]
    fn rejects_invalid_image_files() {
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
            let result = parse_image_file(&format!("image: {name}"), &repo(), &[]);
            assert_eq!(result, Err(ImageFileError::InvalidName), "{name}");
        }
    }

    #[test]
    fn the_requested_image_has_precedence() {
        let resolve = |runner, requested: Option<&str>, configured| {
            resolve_image(runner, &repo(), requested.map(str::to_owned), configured)
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

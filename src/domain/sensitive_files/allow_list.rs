//! What a repository permits by name. (design: section 11)

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::file_names;

/// Most globs that a list may have.
const MAX_GLOBS: usize = 200;

/// The files of a repository that the guard lets pass, for all but private keys and the run's own
/// credentials.
#[derive(Debug, Clone)]
pub struct AllowList(GlobSet);

/// Why a list of globs cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowListError {
    #[error("{0:?} is no glob: {1}")]
    InvalidGlob(String, String),
    #[error("more than {MAX_GLOBS} globs")]
    TooManyGlobs,
}

impl Default for AllowList {
    /// Permits nothing.
    fn default() -> Self {
        Self(GlobSet::empty())
    }
}

impl AllowList {
    /// Compiles globs over paths from the top of the repository. `*` stops at a slash, `**` does not.
    pub fn compile(globs: &[String]) -> Result<Self, AllowListError> {
        if globs.len() > MAX_GLOBS {
            return Err(AllowListError::TooManyGlobs);
        }
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            set.add(compiled(glob)?);
        }
        let wrong = |error: globset::Error| {
            AllowListError::InvalidGlob(globs.join(", "), error.to_string())
        };
        set.build().map(Self).map_err(wrong)
    }

    /// Whether the list permits what stands at this path.
    pub fn permits(&self, path: &str) -> bool {
        !self.0.is_empty() && self.0.is_match(file_names::nfc_normalized(path).as_ref())
    }
}

fn compiled(glob: &str) -> Result<Glob, AllowListError> {
    let plain =
        file_names::nfc_normalized(glob.trim().trim_start_matches("./").trim_start_matches('/'));
    GlobBuilder::new(&plain)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| AllowListError::InvalidGlob(glob.to_owned(), error.kind().to_string()))
}

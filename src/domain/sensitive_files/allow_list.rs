//! Allow list: globs of files that a repository exempts from the guard.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::file_names;

/// Maximum number of globs in a list.
const MAX_GLOBS: usize = 200;

/// Globs of files that the guard permits. Private keys and the credentials of the run are never permitted.
#[derive(Debug, Clone)]
pub struct AllowList(GlobSet);

/// Error in a list of globs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowListError {
    /// Glob that cannot be parsed, and the cause.
    #[error("invalid glob {0:?}: {1}")]
    InvalidGlob(String, String),
    /// List with more globs than the limit.
    #[error("more than {MAX_GLOBS} globs")]
    TooManyGlobs,
}

impl Default for AllowList {
    /// Returns a list that permits nothing.
    fn default() -> Self {
        Self(GlobSet::empty())
    }
}

impl AllowList {
    /// Compiles globs for paths from the top of the repository. `*` does not match a slash, `**` does.
    ///
    /// # Errors
    /// Returns an error if a glob is invalid or if there are more than 200 globs.
    pub fn compile(globs: &[String]) -> Result<Self, AllowListError> {
        if globs.len() > MAX_GLOBS {
            return Err(AllowListError::TooManyGlobs);
        }
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            set.add(compile_glob(glob)?);
        }
        let to_error = |error: globset::Error| {
            AllowListError::InvalidGlob(globs.join(", "), error.to_string())
        };
        set.build().map(Self).map_err(to_error)
    }

    /// Returns whether the list permits the file at this path.
    pub fn permits(&self, path: &str) -> bool {
        !self.0.is_empty() && self.0.is_match(file_names::nfc_normalized(path).as_ref())
    }
}

fn compile_glob(glob: &str) -> Result<Glob, AllowListError> {
    let normalized =
        file_names::nfc_normalized(glob.trim().trim_start_matches("./").trim_start_matches('/'));
    GlobBuilder::new(&normalized)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| AllowListError::InvalidGlob(glob.to_owned(), error.kind().to_string()))
}

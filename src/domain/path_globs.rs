//! Globs of paths in a repository, as mappings name them.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Maximum number of globs in a list.
const MAX_GLOBS: usize = 50;

/// Maximum length of a glob, in bytes.
const MAX_GLOB: usize = 255;

/// Returns whether these are at most 50 valid globs.
pub fn are_valid(globs: &[String]) -> bool {
    let is_sized = |glob: &String| !glob.trim().is_empty() && glob.len() <= MAX_GLOB;
    globs.len() <= MAX_GLOBS && globs.iter().all(is_sized) && compile(globs).is_some()
}

/// Compiles globs that match in any case of letters. `None` if one is invalid.
pub fn compile(globs: &[String]) -> Option<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let glob = glob.trim().trim_start_matches("./").trim_start_matches('/');
        // A folder stands for everything below it. Case differs on some file systems only.
        let glob = glob
            .strip_suffix('/')
            .map_or_else(|| glob.to_owned(), |folder| format!("{folder}/**"));
        set.add(
            GlobBuilder::new(&glob)
                .case_insensitive(true)
                .build()
                .ok()?,
        );
    }
    set.build().ok()
}

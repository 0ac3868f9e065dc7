//! Files in the directory of customizations.
//!
//! Symbolic links to files are listed. Symbolic links to directories are not followed, so that
//! cycles are impossible. Hidden files are omitted. Depth and number of files are limited.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;

use crate::definition::{StepKind, built_in_source};
use domain::sanitize::is_visible;
use domain::time::Timestamp;

/// Maximum depth and number of the files listed.
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 2_000;

/// File of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customization {
    /// Path relative to the directory. Characters that cannot be displayed are replaced.
    pub path: String,
    /// Category, from the path.
    pub category: CustomizationCategory,
    /// Status. `None` for files that are not used.
    pub status: Option<CustomizationStatus>,
    /// Source path of the built-in file that this file replaces.
    pub upstream: Option<String>,
    /// Size, in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified_at: Timestamp,
}

/// Category of a customization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CustomizationCategory {
    /// Pipeline definition.
    Pipeline,
    /// Step executable.
    Step,
    /// Model provider.
    Provider,
    /// Any other file.
    Other,
}

/// Relation of a file, pipeline or step to the built-in ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "CustomStatus")]
pub enum CustomizationStatus {
    /// Built in.
    BuiltIn,
    /// Replaces a built-in one.
    Override,
    /// Added to the built-in ones.
    Additive,
}

/// Returns the path of a built-in pipeline in the source tree.
pub(crate) fn pipeline_source_path(id: &str) -> String {
    format!("src/pipeline/definitions/{id}.yml")
}

/// Returns the path of a built-in step in the source tree.
pub(crate) fn step_source_path(kind: &str) -> String {
    format!("src/run/steps/{}.rs", kind.replace('-', "_"))
}

/// Returns all files in the directory, sorted by path. Empty if the directory does not exist.
///
/// # Errors
/// A directory cannot be read.
pub fn list_customizations(root: &Path) -> io::Result<Vec<Customization>> {
    let mut found = Vec::new();
    match collect(root, "", 0, &mut found) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        result => result?,
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(found)
}

fn collect(
    folder: &Path,
    relative_path: &str,
    depth: usize,
    found: &mut Vec<Customization>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        if found.len() >= MAX_FILES {
            return Ok(());
        }
        let entry = entry?;
        let name = printable(&entry.file_name().to_string_lossy());
        if name.starts_with('.') {
            continue;
        }
        let path = match relative_path {
            "" => name,
            folder => format!("{folder}/{name}"),
        };
        if entry.file_type()?.is_dir() {
            if depth + 1 < MAX_DEPTH {
                collect(&entry.path(), &path, depth + 1, found)?;
            }
            continue;
        }
        // Skips broken links, and files that were deleted in the meantime.
        let Ok(file) = fs::metadata(entry.path()) else {
            continue;
        };
        if file.is_file() {
            found.push(customization(path, &file));
        }
    }
    Ok(())
}

/// Replaces invisible characters.
fn printable(name: &str) -> String {
    let replaced = |c: char| if is_visible(c) { c } else { '\u{FFFD}' };
    name.chars().map(replaced).collect()
}

fn customization(path: String, file: &fs::Metadata) -> Customization {
    let (category, status, upstream) = classify(&path);
    let modified = file.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Customization {
        path,
        category,
        status,
        upstream,
        size: file.len(),
        modified_at: Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or_default()),
    }
}

/// Returns category, status and built-in counterpart of a file, from its path.
fn classify(
    path: &str,
) -> (
    CustomizationCategory,
    Option<CustomizationStatus>,
    Option<String>,
) {
    let (folder, name) = path.split_once('/').unwrap_or(("", path));
    let (category, upstream) = match folder {
        "pipelines" => {
            let id = name.strip_suffix(".yml").unwrap_or_default();
            (
                CustomizationCategory::Pipeline,
                built_in_source(id).map(|_| pipeline_source_path(id)),
            )
        }
        "steps" => {
            let is_built_in = StepKind::names().any(|kind| kind == name);
            (
                CustomizationCategory::Step,
                is_built_in.then(|| step_source_path(name)),
            )
        }
        "providers" => (CustomizationCategory::Provider, None),
        _ => return (CustomizationCategory::Other, None, None),
    };
    let status = match upstream {
        Some(_) => CustomizationStatus::Override,
        None => CustomizationStatus::Additive,
    };
    (category, Some(status), upstream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn lists_links_and_unprintable_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("custom");
        assert_eq!(list_customizations(&root).unwrap(), []);
        fs::create_dir_all(root.join("steps/deep")).unwrap();
        fs::write(dir.path().join("outside"), "12345").unwrap();
        symlink(dir.path().join("outside"), root.join("steps/verify")).unwrap();
        symlink(&root, root.join("steps/deep/circle")).unwrap();
        symlink("nowhere", root.join("steps/broken")).unwrap();
        fs::write(root.join(".hidden"), "").unwrap();
        fs::write(root.join(OsStr::from_bytes(b"a\nb\xff")), "").unwrap();
        let deep = root.join("1/2/3/4/5/6/7/8/9");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("too-deep"), "").unwrap();
        let found = list_customizations(&root).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|file| (file.path.as_str(), file.category, file.status, file.size))
            .collect();
        assert_eq!(
            shown,
            [
                ("a\u{FFFD}b\u{FFFD}", CustomizationCategory::Other, None, 0),
                (
                    "steps/verify",
                    CustomizationCategory::Step,
                    Some(CustomizationStatus::Override),
                    5
                ),
            ]
        );
        fs::create_dir(root.join("many")).unwrap();
        for number in 0..MAX_FILES + 10 {
            fs::write(root.join(format!("many/{number}")), "").unwrap();
        }
        assert_eq!(list_customizations(&root).unwrap().len(), MAX_FILES);
    }

    #[test]
    fn classifies_files_by_path() {
        let source = |path: &str| Some(path.to_owned());
        let rows = [
            (
                "pipelines/gap-fill.yml",
                Some(CustomizationStatus::Override),
                source("src/pipeline/definitions/gap-fill.yml"),
            ),
            (
                "pipelines/own.yml",
                Some(CustomizationStatus::Additive),
                None,
            ),
            (
                "steps/post-push-review",
                Some(CustomizationStatus::Override),
                source("src/run/steps/post_push_review.rs"),
            ),
            ("steps/plan", Some(CustomizationStatus::Additive), None),
            (
                "steps/verify/lib.sh",
                Some(CustomizationStatus::Additive),
                None,
            ),
            (
                "providers/own.yml",
                Some(CustomizationStatus::Additive),
                None,
            ),
            ("README.md", None, None),
            ("docs/steps/verify", None, None),
        ];
        for (path, status, upstream) in rows {
            let (_, actual_status, actual_upstream) = classify(path);
            assert_eq!(
                (actual_status, actual_upstream),
                (status, upstream),
                "{path}"
            );
        }
        for kind in StepKind::names() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../..")
                .join(step_source_path(kind));
            assert!(source.is_file(), "{}", source.display());
        }
    }
}

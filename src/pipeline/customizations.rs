//! What stands in the folder.
//!
//! Links are shown as the files that they lead to and never followed into folders, so that no circle
//! is walked; hidden files are left out; depth and number are bounded.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{CustomizationStatus, pipeline_source_path, step_source_path};
use crate::definition::{StepKind, built_in_source};
use domain::time::Timestamp;

/// How deep is the folder looked into, and how many files are shown?
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 2_000;

/// A file of the operator's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Customization {
    /// Below the folder, with slashes; what cannot be shown in it is replaced.
    pub path: String,
    pub category: CustomizationCategory,
    /// None for what nothing reads.
    pub status: Option<CustomizationStatus>,
    /// The source of what it takes the place of.
    pub upstream: Option<String>,
    pub size: u64,
    pub modified_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CustomizationCategory {
    Pipeline,
    Step,
    Provider,
    Other,
}

/// Every file below the folder, by path; none when there is no such folder.
///
/// # Errors
/// What the system says to reading a folder.
pub fn list_customizations(root: &Path) -> io::Result<Vec<Customization>> {
    let mut found = Vec::new();
    match walk(root, "", 0, &mut found) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        walked => walked?,
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn walk(
    folder: &Path,
    shown: &str,
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
        let path = match shown {
            "" => name,
            folder => format!("{folder}/{name}"),
        };
        if entry.file_type()?.is_dir() {
            if depth + 1 < MAX_DEPTH {
                walk(&entry.path(), &path, depth + 1, found)?;
            }
            continue;
        }
        // A link that leads nowhere, and a file that has just gone, are nothing to show.
        let Ok(file) = fs::metadata(entry.path()) else {
            continue;
        };
        if file.is_file() {
            found.push(customization(path, &file));
        }
    }
    Ok(())
}

fn printable(name: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{FFFD}' } else { c };
    name.chars().map(shown).collect()
}

fn customization(path: String, file: &fs::Metadata) -> Customization {
    let (category, status, upstream) = place(&path);
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

/// What a file is, by where it stands.
fn place(
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
    fn links_and_odd_names_are_shown_and_lead_nowhere() {
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
            .map(|one| (one.path.as_str(), one.category, one.status, one.size))
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
    fn a_file_is_what_its_place_makes_it() {
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
            let (_, is, from) = place(path);
            assert_eq!((is, from), (status, upstream), "{path}");
        }
        for kind in StepKind::names() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../..")
                .join(step_source_path(kind));
            assert!(source.is_file(), "{}", source.display());
        }
    }
}

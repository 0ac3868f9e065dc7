//! The guard must not block third-party source code.

use std::path::{Path, PathBuf};

use domain::sensitive_files::{AllowList, GuardReason, GuardVerdict, SecretCategory, check_file};
use requires::requires;

use crate::requirements::require;

/// Maximum rate of false positives: one per this many files.
const FILES_PER_ALARM: usize = 10_000;

#[requires("crates")]
#[test]
fn third_party_source_is_not_blocked() {
    let sources = registry_sources().ok_or("this machine has no sources of crates");
    let root = require("crates", sources);
    let allow_list = AllowList::default();
    let (mut files, mut keys, mut false_positives) = (0, Vec::new(), Vec::new());
    visit_files(&root, &mut |path, content| {
        files += 1;
        let relative_path = path.strip_prefix(&root).unwrap().to_string_lossy();
        if let GuardVerdict::Block(reason) = check_file(&relative_path, b"", content, &allow_list) {
            let line = format!("{relative_path}: {reason}");
            // Cryptography crates contain keys for their tests; those are real keys.
            match reason {
                GuardReason::FileName(SecretCategory::KeysAndCertificates)
                | GuardReason::Content(SecretCategory::KeysAndCertificates, _) => keys.push(line),
                _ => false_positives.push(line),
            }
        }
    });
    println!("{files} files, {} with keys", keys.len());
    assert!(
        false_positives.len() * FILES_PER_ALARM <= files.max(FILES_PER_ALARM),
        "{} of {files}:\n{}",
        false_positives.len(),
        false_positives.join("\n")
    );
    println!("{}", keys.join("\n"));
}

fn registry_sources() -> Option<PathBuf> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home =
        cargo_home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    Some(cargo_home.join("registry/src")).filter(|root| root.is_dir())
}

fn visit_files(root: &Path, visit: &mut impl FnMut(&Path, &[u8])) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            // Test data of another secret scanner contains real secrets on purpose.
            let is_scanner = entry
                .file_name()
                .to_string_lossy()
                .starts_with("ripsecrets-");
            if kind.is_dir() && !is_scanner {
                folders.push(entry.path());
            } else if kind.is_file() {
                // A file may vanish during the scan.
                if let Ok(content) = std::fs::read(entry.path()) {
                    visit(&entry.path(), &content);
                }
            }
        }
    }
}

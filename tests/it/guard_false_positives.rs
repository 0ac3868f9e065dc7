//! The guard on source that other people wrote: what stops nobody's work there stops nobody's here.

use std::path::{Path, PathBuf};

use domain::sensitive_files::{AllowList, GuardReason, GuardVerdict, SecretCategory, check_file};

use crate::requirements::require;

/// One false alarm in so many files is one too many.
const FILES_PER_ALARM: usize = 10_000;

#[test]
fn third_party_source_is_not_blocked() {
    let sources = registry().ok_or("this machine has no sources of crates");
    let Some(root) = require("crates", "the guard on source of others", sources) else {
        return;
    };
    let none = AllowList::default();
    let (mut files, mut keys, mut alarms) = (0, Vec::new(), Vec::new());
    each_file(&root, &mut |path, content| {
        files += 1;
        let inside = path.strip_prefix(&root).unwrap().to_string_lossy();
        if let GuardVerdict::Block(reason) = check_file(&inside, b"", content, &none) {
            let line = format!("{inside}: {reason}");
            // Crates of cryptography test themselves with keys, and those are keys.
            match reason {
                GuardReason::FileName(SecretCategory::KeysAndCertificates)
                | GuardReason::Content(SecretCategory::KeysAndCertificates, _) => keys.push(line),
                _ => alarms.push(line),
            }
        }
    });
    println!("{files} files, {} with keys", keys.len());
    assert!(
        alarms.len() * FILES_PER_ALARM <= files.max(FILES_PER_ALARM),
        "{} of {files}:\n{}",
        alarms.len(),
        alarms.join("\n")
    );
    println!("{}", keys.join("\n"));
}

fn registry() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    Some(home.join("registry/src")).filter(|root| root.is_dir())
}

fn each_file(root: &Path, look: &mut impl FnMut(&Path, &[u8])) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            // The samples of another scanner are what they look like.
            let is_scanner = entry
                .file_name()
                .to_string_lossy()
                .starts_with("ripsecrets-");
            if kind.is_dir() && !is_scanner {
                folders.push(entry.path());
            } else if kind.is_file() {
                // One that vanishes while we look is nobody's loss.
                if let Ok(content) = std::fs::read(entry.path()) {
                    look(&entry.path(), &content);
                }
            }
        }
    }
}

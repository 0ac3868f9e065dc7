//! Rules of the architecture that the compiler cannot check. These tests read the source.
//!
//! Cargo enforces the dependencies between crates. See the `Cargo.toml` of each folder of `src/`.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Maximum number of lines in a file, without its tests.
const MAX_LINES: usize = 500;

struct Source {
    path: PathBuf,
    /// Path below `src/`, with slashes.
    name: String,
    text: String,
}

impl Source {
    /// Returns the folder of the crate. For the root package: `cli` or `main.rs`.
    fn krate(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    fn is_test(&self) -> bool {
        self.name.ends_with("tests.rs")
            || self.name.contains("/tests/")
            || self.krate() == "test_support"
    }

    /// Returns the text without the tests at its end.
    fn code(&self) -> &str {
        match self.text.find("#[cfg(test)]\nmod tests {") {
            Some(end) => &self.text[..end],
            None => &self.text,
        }
    }

    /// Returns the lines of code that contain a text, without comments.
    fn lines_with(&self, needle: &str) -> Vec<String> {
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let hits = self
            .code()
            .lines()
            .filter(is_code)
            .filter(|line| line.contains(needle));
        hits.map(|line| format!("{}: {}", self.name, line.trim()))
            .collect()
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(ROOT).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(&root)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                found.push(Source {
                    text: fs::read_to_string(&path).unwrap(),
                    name,
                    path,
                });
            }
        }
    }
    found
}

#[test]
fn domain_performs_no_io() {
    let io = ["std::fs", "std::net", "std::process", "async fn"];
    let sources = sources();
    let domain = sources.iter().filter(|source| source.krate() == "domain");
    let hits: Vec<String> = domain
        .flat_map(|source| io.iter().flat_map(|word| source.lines_with(word)))
        .collect();
    assert!(hits.is_empty(), "{hits:#?}");
}

/// Restricted code: the text, and the files or folders that may contain it.
const RESTRICTED: &[(&str, &[&str])] = &[
    (
        "std::env::var",
        &["engine/config/sources.rs", "run/environment.rs"],
    ),
    // The relay responds to git and does not use the error format of the API.
    ("::BAD_REQUEST", &["server/error", "vendors/http/relay.rs"]),
    ("::CONFLICT", &["server/error"]),
    ("::FORBIDDEN", &["server/error", "vendors/http/relay.rs"]),
    ("::INTERNAL_SERVER_ERROR", &["server/error"]),
    (".set_stage(", &["engine/effects", "vendors/ticketing/"]),
    (".cancel_workflow_run(", &["engine/effects"]),
    ("ci::start(", &["engine/effects"]),
    ("sessions.start(", &["engine/effects"]),
    ("sessions.stop(", &["engine/effects"]),
    ("sessions.destroy(", &["engine/effects"]),
    (".dispatch_workflow(", &["vendors/session_hosts/ci.rs"]),
    (".create_comment(", &["engine/effects", "vendors/", "run/"]),
    (
        ".upsert_comment(",
        &["engine/effects", "vendors/scm/", "run/"],
    ),
    (".commit_files(", &["engine/effects", "vendors/scm/"]),
    (".create_pull(", &["engine/effects", "vendors/scm/", "run/"]),
    (".update_pull(", &["engine/effects", "vendors/scm/", "run/"]),
    (".post(message)", &["engine/effects"]),
    // A run must read certificates once, before its agent could replace them.
    (
        "Client::with_proxies(",
        &["engine/app/", "run/lifecycle.rs"],
    ),
];

#[test]
fn restricted_code_occurs_only_in_allowed_files() {
    let sources = sources();
    let mut violations = Vec::new();
    for (text, allowed) in RESTRICTED {
        let mut is_used = false;
        for source in sources
            .iter()
            .filter(|source| source.krate() != "fake_vendors" && !source.is_test())
        {
            let hits = source.lines_with(text);
            is_used |= !hits.is_empty();
            if !allowed.iter().any(|path| source.name.starts_with(path)) {
                violations.extend(hits);
            }
        }
        if !is_used {
            violations.push(format!("{text}: no file contains it; remove the rule"));
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn files_are_at_most_500_lines_long() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| !source.is_test() && source.code().lines().count() > MAX_LINES)
        .map(|source| {
            format!(
                "{}: {} lines",
                source.path.display(),
                source.code().lines().count()
            )
        })
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// The program uses rustls with ring. Default features of a dependency could add a second TLS stack.
#[test]
fn there_is_one_tls_and_cryptography_stack() {
    let lock = fs::read_to_string(Path::new(ROOT).join("Cargo.lock")).unwrap();
    let packages: Vec<&str> = lock
        .lines()
        .filter_map(|line| line.strip_prefix("name = \""))
        .map(|name| name.trim_end_matches('"'))
        .collect();
    assert_eq!(packages.iter().filter(|name| **name == "ring").count(), 1);
    for second in [
        "aws-lc-rs",
        "aws-lc-sys",
        "native-tls",
        "openssl",
        "openssl-sys",
    ] {
        assert!(!packages.contains(&second), "{second}");
    }
}

/// The lint rejects unsafe code in the whole workspace. This test protects the lint.
#[test]
fn unsafe_code_is_forbidden() {
    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap();
    let lints = manifest.split_once("[workspace.lints.rust]").unwrap().1;
    assert!(lints.lines().any(|line| line == "unsafe_code = \"forbid\""));
}

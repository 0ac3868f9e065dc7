//! Rules of the architecture that the compiler cannot check. These tests read the source.
//!
//! Which crate may use which is enforced by Cargo: see the `Cargo.toml` of each folder of `src/`.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Most lines of code a file may have, tests not counted.
const MAX_LINES: usize = 500;

struct Source {
    path: PathBuf,
    /// Below `src/`, with slashes.
    name: String,
    text: String,
}

impl Source {
    /// The crate's folder; `cli` and `main.rs` for the root package.
    fn krate(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    fn is_test(&self) -> bool {
        self.name.ends_with("tests.rs")
            || self.name.contains("/tests/")
            || self.krate() == "test_support"
    }

    /// Without the tests at its end.
    fn code(&self) -> &str {
        match self.text.find("#[cfg(test)]\nmod tests {") {
            Some(end) => &self.text[..end],
            None => &self.text,
        }
    }

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
            } else if path.extension().is_some_and(|ending| ending == "rs") {
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
fn the_domain_is_pure() {
    let foreign = ["std::fs", "std::net", "std::process", "async fn"];
    let sources = sources();
    let domain = sources.iter().filter(|source| source.krate() == "domain");
    let hits: Vec<String> = domain
        .flat_map(|source| foreign.iter().flat_map(|word| source.lines_with(word)))
        .collect();
    assert!(hits.is_empty(), "{hits:#?}");
}

/// What may be said in one place only: a needle, and the files it may stand in.
const ONE_PLACE: &[(&str, &[&str])] = &[
    (
        "std::env::var",
        &["engine/config/sources.rs", "run/environment.rs"],
    ),
    ("begin_write", &["store/"]),
    // The relay answers git, and not those who use the API.
    (
        "StatusCode::BAD_REQUEST",
        &["server/error.rs", "vendors/http/relay.rs"],
    ),
    ("StatusCode::CONFLICT", &["server/error.rs"]),
    (
        "StatusCode::FORBIDDEN",
        &["server/error.rs", "vendors/http/relay.rs"],
    ),
    ("StatusCode::INTERNAL_SERVER_ERROR", &["server/error.rs"]),
    (".move_marker(", &["engine/act.rs", "vendors/ticketing/"]),
    (".cancel_run(", &["engine/act.rs"]),
    ("ci::start(", &["engine/act.rs"]),
    ("sessions.start(", &["engine/act/"]),
    ("sessions.stop(", &["engine/act/"]),
    ("sessions.destroy(", &["engine/act/"]),
    (".dispatch_workflow(", &["vendors/session_hosts/ci.rs"]),
    (
        ".create_comment(",
        &["engine/act.rs", "vendors/scm/", "run/"],
    ),
    (
        ".upsert_comment(",
        &["engine/act.rs", "vendors/scm/", "run/"],
    ),
    (".commit_files(", &["engine/act.rs", "vendors/scm/"]),
    (".create_pull(", &["engine/act.rs", "vendors/scm/", "run/"]),
    (".update_pull(", &["engine/act.rs", "vendors/scm/", "run/"]),
    ("chat.post(", &["engine/act.rs"]),
    // A run reads certificates before its agent could replace them, and never again.
    ("Client::through(", &["engine/app/", "run/start.rs"]),
];

#[test]
fn what_belongs_in_one_place_stands_nowhere_else() {
    let sources = sources();
    let outside = sources
        .iter()
        .filter(|source| source.krate() != "fake_vendors" && !source.is_test());
    let mut strays = Vec::new();
    for source in outside {
        for (needle, places) in ONE_PLACE {
            if !places.iter().any(|place| source.name.starts_with(place)) {
                strays.extend(source.lines_with(needle));
            }
        }
    }
    assert!(strays.is_empty(), "{strays:#?}");
}

#[test]
fn no_file_is_too_long_to_read() {
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

/// rustls on ring speaks for the whole program; a second stack would come in by some crate's defaults.
#[test]
fn there_is_one_stack_for_tls_and_cryptography() {
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

/// The compiler refuses unsafe code in all that is built of this package, unless somebody takes the
/// line out.
#[test]
fn unsafe_code_is_forbidden() {
    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap();
    let lints = manifest.split_once("[workspace.lints.rust]").unwrap().1;
    assert!(lints.lines().any(|line| line == "unsafe_code = \"forbid\""));
}

//! The walls of the house: who may use whom, and what stands in one place only.
//!
//! These tests read the source. A room that needs another one must be allowed to in the table.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A room of `src/`, and the rooms it may use besides itself.
const ROOMS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("clock", &["domain"]),
    ("crash", &[]),
    ("meter", &[]),
    ("keys", &["domain"]),
    ("store", &["domain", "meter", "crash"]),
    ("wire", &["domain"]),
    ("custom", &["domain"]),
    ("ticketing", &["wire", "domain", "keys"]),
    ("scm", &["wire", "domain", "keys"]),
    ("chat", &["wire", "domain", "keys"]),
    ("config", &["domain", "keys", "chat"]),
    ("runners", &["scm", "wire", "domain", "keys"]),
    ("pipeline", &["scm", "wire", "custom", "domain"]),
    ("app", ENGINE),
    ("flow", ENGINE),
    (
        "http",
        &[
            "flow",
            "app",
            "store",
            "custom",
            "ticketing",
            "scm",
            "keys",
            "config",
            "crash",
            "domain",
            "meter",
            "wire",
        ],
    ),
    ("sandbox", &[]),
];

/// What the engine is made of; its verbs use the same.
const ENGINE: &[&str] = &[
    "app",
    "config",
    "clock",
    "crash",
    "store",
    "ticketing",
    "scm",
    "chat",
    "runners",
    "keys",
    "domain",
    "meter",
    "wire",
];

/// Most lines of code a file may have, tests not counted.
const MAX_LINES: usize = 500;

struct Source {
    path: PathBuf,
    /// Below `src/`, with slashes.
    name: String,
    text: String,
}

impl Source {
    fn room(&self) -> &str {
        let first = self.name.split('/').next().unwrap_or_default();
        first.trim_end_matches(".rs")
    }

    fn is_test(&self) -> bool {
        self.name.ends_with("tests.rs")
            || self.name.contains("/tests/")
            || self.name.ends_with("test_server.rs")
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

/// The rooms that a file names: `use crate::room::…`, `crate::room::…` and `use crate::{room::…}`.
fn used_rooms(source: &Source) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in source.code().match_indices("crate::") {
        let rest = &source.code()[at + "crate::".len()..];
        let line_start = source.code()[..at].rfind('\n').map_or(0, |end| end + 1);
        if source.code()[line_start..].trim_start().starts_with("//") {
            continue;
        }
        let word = |text: &str| {
            text.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect::<String>()
        };
        match rest.strip_prefix('{') {
            None => used.push(word(rest)),
            Some(list) => {
                let list = &list[..list.find(';').unwrap_or(list.len())];
                used.extend(
                    list.split(',')
                        .map(|item| word(item.trim()))
                        .filter(|room| !room.is_empty()),
                );
            }
        }
    }
    used
}

#[test]
fn every_room_uses_only_the_rooms_below_it() {
    let allowed: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let mut trespasses = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| !["lib", "main", "cli", "fuzzing"].contains(&source.room()))
    {
        let Some(may_use) = allowed.get(source.room()) else {
            panic!("{} stands in no room of the table", source.name);
        };
        for room in used_rooms(source) {
            let known = allowed.contains_key(room.as_str()) || room == "cli";
            if known && room != source.room() && !may_use.contains(&room.as_str()) {
                trespasses.push(format!("{} uses {room}", source.name));
            }
        }
    }
    assert!(trespasses.is_empty(), "{trespasses:#?}");
}

#[test]
fn the_domain_is_pure() {
    let foreign = [
        "tokio",
        "reqwest",
        "redb",
        "warp",
        "hyper",
        "std::fs",
        "std::net",
        "std::process",
        "async fn",
    ];
    let sources = sources();
    let domain = sources.iter().filter(|source| source.room() == "domain");
    let hits: Vec<String> = domain
        .flat_map(|source| foreign.iter().flat_map(|word| source.lines_with(word)))
        .collect();
    assert!(hits.is_empty(), "{hits:#?}");
}

/// What may be said in one place only: a needle, and the files it may stand in.
const ONE_PLACE: &[(&str, &[&str])] = &[
    (
        "std::env::var",
        &["config/sources.rs", "pipeline/environment.rs"],
    ),
    ("begin_write", &["store/"]),
    // The relay answers git, and not those who use the API.
    (
        "StatusCode::BAD_REQUEST",
        &["http/error.rs", "wire/relay.rs"],
    ),
    ("StatusCode::CONFLICT", &["http/error.rs"]),
    ("StatusCode::FORBIDDEN", &["http/error.rs", "wire/relay.rs"]),
    ("StatusCode::INTERNAL_SERVER_ERROR", &["http/error.rs"]),
    (".move_marker(", &["flow/act.rs", "ticketing/"]),
    (".cancel_run(", &["flow/act.rs"]),
    ("ci::start(", &["flow/act.rs"]),
    ("sessions.start(", &["flow/act/"]),
    ("sessions.stop(", &["flow/act/"]),
    ("sessions.destroy(", &["flow/act/"]),
    (".dispatch_workflow(", &["runners/ci.rs"]),
    (".create_comment(", &["flow/act.rs", "scm/", "pipeline/"]),
    (".upsert_comment(", &["flow/act.rs", "scm/", "pipeline/"]),
    (".commit_files(", &["flow/act.rs", "scm/"]),
    (".create_pull(", &["flow/act.rs", "scm/", "pipeline/"]),
    (".update_pull(", &["flow/act.rs", "scm/", "pipeline/"]),
    ("chat.post(", &["flow/act.rs"]),
    // A run reads certificates before its agent could replace them, and never again.
    ("Client::through(", &["app/", "app.rs", "pipeline/start.rs"]),
];

#[test]
fn what_belongs_in_one_place_stands_nowhere_else() {
    let sources = sources();
    let outside = sources
        .iter()
        .filter(|source| source.room() != "sandbox" && !source.is_test());
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
    let lints = manifest.split_once("[lints.rust]").unwrap().1;
    assert!(lints.lines().any(|line| line == "unsafe_code = \"forbid\""));
}

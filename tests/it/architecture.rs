//! Rules of the architecture that the compiler cannot check. These tests read the source.
//!
//! Cargo enforces the dependencies between crates. See the `Cargo.toml` of each folder of `src/`.

use std::collections::{BTreeMap, BTreeSet};
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
        &[
            "engine/config/sources.rs",
            "run/environment.rs",
            // Cargo names the folder of the output in the environment.
            "server/build.rs",
        ],
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
    (".rerun_failed_jobs(", &["engine/effects"]),
    (".update_branch(", &["engine/effects"]),
    (".update_pull(", &["engine/effects", "vendors/scm/", "run/"]),
    (".post(message)", &["engine/effects"]),
    // A run must read certificates once, before its agent could replace them.
    (
        "Client::with_proxies(",
        &["engine/app/", "engine/standby/place.rs", "run/lifecycle.rs"],
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

/// Modules and items that one file names.
struct PathReader<'t> {
    tokens: Vec<&'t str>,
    at: usize,
    found: Vec<Vec<String>>,
}

impl<'t> PathReader<'t> {
    /// Returns every path of at least two segments in code. Groups in braces are expanded.
    fn paths(code: &'t str) -> Vec<Vec<String>> {
        let lines = code.lines().map(|line| line.split("//").next().unwrap());
        let tokens = lines.flat_map(Self::tokens).collect();
        let mut reader = Self {
            tokens,
            at: 0,
            found: Vec::new(),
        };
        while reader.at < reader.tokens.len() {
            match is_name(reader.tokens[reader.at]) {
                true => reader.path(&[]),
                false => reader.at += 1,
            }
        }
        reader.found.retain(|path| path.len() > 1);
        reader.found
    }

    /// Splits a line at every character that is not part of a name. `::` is one token.
    fn tokens(line: &str) -> Vec<&str> {
        let mut tokens = Vec::new();
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let end = match first {
                ':' if rest.starts_with("::") => 2,
                first if is_name_char(first) => {
                    rest.find(|c| !is_name_char(c)).unwrap_or(rest.len())
                }
                first => first.len_utf8(),
            };
            tokens.push(&rest[..end]);
            rest = rest[end..].trim_start();
        }
        tokens
    }

    fn path(&mut self, prefix: &[String]) {
        let mut path = prefix.to_vec();
        while self.at < self.tokens.len() && is_name(self.tokens[self.at]) {
            path.push(self.tokens[self.at].to_owned());
            self.at += 1;
            if self.tokens.get(self.at) != Some(&"::") {
                break;
            }
            self.at += 1;
            if self.tokens.get(self.at) == Some(&"{") {
                self.at += 1;
                self.group(&path);
                return;
            }
        }
        self.found.push(path);
    }

    fn group(&mut self, prefix: &[String]) {
        while let Some(token) = self.tokens.get(self.at) {
            match *token {
                "}" => {
                    self.at += 1;
                    return;
                }
                token if is_name(token) => self.path(prefix),
                _ => self.at += 1,
            }
        }
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name(token: &str) -> bool {
    token.starts_with(is_name_char)
}

impl Source {
    /// Returns the path of the file's module in its crate.
    fn module(&self) -> Vec<String> {
        let path = self.name.trim_end_matches(".rs");
        let path = path.trim_end_matches("/mod").trim_end_matches("/lib");
        path.split('/').skip(1).map(str::to_owned).collect()
    }

    /// Returns the other modules of the crate that this file names.
    fn named_modules(&self, modules: &BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
        let own = self.module();
        let resolve = |path: Vec<String>| {
            let above = path.iter().take_while(|name| *name == "super").count();
            let (base, rest) = match path[0].as_str() {
                "crate" => (&own[..0], &path[1..]),
                "self" => (&own[..], &path[1..]),
                "super" => (&own[..own.len().saturating_sub(above)], &path[above..]),
                _ => (&own[..], &path[..]),
            };
            let whole = [base, rest].concat();
            let is_relative = above == 0 && !["crate", "self"].contains(&path[0].as_str());
            let shortest = base.len() + usize::from(is_relative);
            let mut lengths = (shortest..=whole.len()).rev();
            let named = lengths.find(|length| modules.contains(&whole[..*length]));
            named.map(|length| whole[..length].to_vec())
        };
        let named = PathReader::paths(self.code()).into_iter();
        let named = named.filter_map(resolve).filter(|named| *named != own);
        named.collect()
    }
}

/// Returns the modules of a circle of imports, if there is one.
fn find_circle(imports: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> Option<Vec<String>> {
    for start in imports.keys() {
        // Each reached module with the module that named it.
        let mut reached: BTreeMap<&Vec<String>, &Vec<String>> = BTreeMap::new();
        let mut pending = vec![start];
        while let Some(module) = pending.pop() {
            for named in &imports[module] {
                if reached.insert(named, module).is_none() {
                    pending.push(named);
                }
            }
        }
        if reached.contains_key(start) {
            let mut circle = vec![start];
            while circle.len() == 1 || circle.last() != Some(&start) {
                circle.push(reached[circle.last().unwrap()]);
            }
            return Some(
                circle
                    .iter()
                    .rev()
                    .map(|module| module.join("::"))
                    .collect(),
            );
        }
    }
    None
}

/// A module in a circle cannot be read, tested or replaced without the others.
#[test]
fn modules_of_a_run_import_each_other_one_way() {
    let sources = sources();
    for krate in ["run", "pipeline"] {
        let files: Vec<&Source> = sources
            .iter()
            .filter(|source| source.krate() == krate && !source.is_test())
            .collect();
        let modules = files.iter().map(|file| file.module()).collect();
        let imports = files
            .iter()
            .map(|file| (file.module(), file.named_modules(&modules)))
            .collect();
        assert_eq!(find_circle(&imports), None, "crate {krate}");
    }
}

#[test]
fn a_circle_of_imports_is_found_and_named() {
    let source = |name: &str, text: &str| Source {
        path: PathBuf::new(),
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let circle = |files: &[Source]| {
        let modules = files.iter().map(Source::module).collect();
        let imports = files
            .iter()
            .map(|file| (file.module(), file.named_modules(&modules)));
        find_circle(&imports.collect())
    };
    let lib = || source("run/lib.rs", "mod a;\nmod b;\npub use a::A;");
    let below = || source("run/b/mod.rs", "mod c;\nuse c::C;");
    let one_way = "use std::fs;\n// use super::a;\nuse domain::a::A;";
    for (text, named) in [
        (one_way, None),
        ("use crate::a;", Some(&["a", "b", "b::c", "a"])),
        ("use super::super::a::A;", Some(&["a", "b", "b::c", "a"])),
        ("fn f() { crate::a::g() }", Some(&["a", "b", "b::c", "a"])),
    ] {
        let files = [
            lib(),
            source("run/a.rs", "use crate::{\n    b::{self, C},\n};"),
            below(),
            source("run/b/c.rs", text),
        ];
        let named = named.map(|names| names.map(str::to_owned).to_vec());
        assert_eq!(circle(&files), named, "{text}");
    }
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

/// Versions of each package in a lock file.
fn locked_versions(file: &str) -> BTreeMap<String, Vec<String>> {
    let lock = fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
    let mut versions = BTreeMap::<_, Vec<_>>::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key| package.lines().find_map(|line| line.strip_prefix(key));
        let [name, version] = [value("name = "), value("version = ")].map(|value| {
            let value = value.unwrap();
            value.trim_matches('"').to_owned()
        });
        versions.entry(name).or_default().push(version);
    }
    versions
}

/// The program uses rustls with ring. Default features of a dependency could add a second TLS stack.
#[test]
fn there_is_one_tls_and_cryptography_stack() {
    let packages = locked_versions("Cargo.lock");
    assert_eq!(packages["ring"].len(), 1);
    for second in [
        "aws-lc-rs",
        "aws-lc-sys",
        "native-tls",
        "openssl",
        "openssl-sys",
    ] {
        assert!(!packages.contains_key(second), "{second}");
    }
}

/// The fuzzer's lock file is its own. Cargo adds what it lacks in the newest version.
#[test]
fn the_fuzzer_tests_the_versions_that_the_program_has() {
    let program = locked_versions("Cargo.lock");
    let mut unknown = locked_versions("fuzz/Cargo.lock");
    unknown.retain(|name, versions| {
        let known = program.get(name);
        known.is_some_and(|known| !versions.iter().all(|version| known.contains(version)))
    });
    assert_eq!(unknown, BTreeMap::new());
}

/// The lint rejects unsafe code in the whole workspace. This test protects the lint.
#[test]
fn unsafe_code_is_forbidden() {
    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap();
    let lints = manifest.split_once("[workspace.lints.rust]").unwrap().1;
    assert!(lints.lines().any(|line| line == "unsafe_code = \"forbid\""));
}

//! Checks of the documents: links, anchors, named files and code blocks.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use regex::Regex;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Folders of the repository whose files documents name by path.
const NAMED_FOLDERS: [&str; 8] = [
    "src/",
    "tests/",
    "benches/",
    "packaging/",
    "templates/",
    "fuzz/",
    "docs/",
    "assets/",
];

static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").unwrap());
static CODE_SPAN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`([^`\n]+)`").unwrap());

struct Document {
    path: PathBuf,
    /// Text outside of code blocks.
    prose: String,
    blocks: Vec<CodeBlock>,
}

struct CodeBlock {
    language: String,
    text: String,
}

impl Document {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let (mut prose, mut blocks) = (String::new(), Vec::new());
        let mut open: Option<CodeBlock> = None;
        for line in text.lines() {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(language), None) => {
                    let (language, text) = (language.to_owned(), String::new());
                    open = Some(CodeBlock { language, text });
                }
                (None, Some(block)) => block.text += &format!("{line}\n"),
                (None, None) => prose += &format!("{line}\n"),
            }
        }
        assert!(
            open.is_none(),
            "{}: a code block is not closed",
            path.display()
        );
        Self {
            path,
            prose,
            blocks,
        }
    }

    /// Anchors of the headings, as GitHub makes them.
    fn anchors(&self) -> HashSet<String> {
        let mut anchors = HashSet::new();
        for line in self.prose.lines().filter(|line| line.starts_with('#')) {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            });
            let anchor: String = kept.collect();
            let repeats = (1..).map(|number| format!("{anchor}-{number}"));
            let free = std::iter::once(anchor.clone())
                .chain(repeats)
                .find(|anchor| !anchors.contains(anchor));
            anchors.extend(free);
        }
        anchors
    }
}

fn documents() -> Vec<Document> {
    let root = Path::new(ROOT);
    let folders = [
        root.to_owned(),
        root.join("docs"),
        root.join("tests"),
        root.join("benches"),
    ];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    let documents: Vec<Document> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .map(Document::read)
        .collect();
    assert!(documents.len() > 10);
    documents
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let documents = documents();
    let mut broken = Vec::new();
    for document in &documents {
        for link in LINK.captures_iter(&document.prose) {
            let target = &link[1];
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.path.clone(),
                file => document.path.parent().unwrap().join(file),
            };
            let Ok(path) = path.canonicalize() else {
                broken.push(format!("{}: {target}", document.path.display()));
                continue;
            };
            let linked = documents
                .iter()
                .find(|other| other.path.canonicalize().is_ok_and(|other| other == path));
            let has_heading = |linked: &Document| linked.anchors().contains(anchor);
            if !anchor.is_empty() && !linked.is_some_and(has_heading) {
                broken.push(format!("{}: {target}", document.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_named_file_exists() {
    let mut missing = Vec::new();
    // The settings are those of the repositories that runs work on, with files of their own.
    let of_this_repository =
        |document: &Document| !document.path.ends_with("repository-settings.md");
    for document in documents().into_iter().filter(of_this_repository) {
        for span in CODE_SPAN.captures_iter(&document.prose) {
            let name = &span[1];
            let is_path = NAMED_FOLDERS.iter().any(|folder| name.starts_with(folder))
                && !name.contains([' ', '*', '{', '<', '…', '$'])
                && !name.contains("NAME");
            if is_path && !Path::new(ROOT).join(name).exists() {
                missing.push(format!("{}: {name}", document.path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_code_block_can_be_parsed() {
    let mut invalid = Vec::new();
    for document in documents() {
        for block in &document.blocks {
            let error = match block.language.as_str() {
                "" => Some("it names no language".to_owned()),
                "json" => serde_json::from_str::<serde_json::Value>(&block.text)
                    .err()
                    .map(|error| error.to_string()),
                "yaml" => serde_saphyr::from_str::<serde_json::Value>(&block.text)
                    .err()
                    .map(|error| error.to_string()),
                "sh" | "bash" => shell_error(&block.text),
                _ => None,
            };
            if let Some(error) = error {
                let path = document.path.display();
                invalid.push(format!("{path}: {error}\n{}", block.text));
            }
        }
    }
    assert!(invalid.is_empty(), "{}", invalid.join("\n"));
}

/// Syntax error of a shell script.
fn shell_error(script: &str) -> Option<String> {
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let output = bash.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(error)
}

/// Codes of a line `RestartPreventExitStatus=` of a unit, the last of those that name any.
fn codes_without_restart(unit: &str) -> HashSet<String> {
    let text = fs::read_to_string(Path::new(ROOT).join("packaging/systemd").join(unit)).unwrap();
    let mut lines = text.lines().rev();
    let codes = lines.find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
    codes
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_units_restart_the_service_unless_the_manual_denies_that() {
    let manual = fs::read_to_string(Path::new(ROOT).join("docs/operate.md")).unwrap();
    let row = Regex::new(r"(?m)^\| (\d+) \| .* \| does not restart[^|]*\|$").unwrap();
    let rows = row.captures_iter(&manual);
    let mut codes: HashSet<String> = rows.map(|row| row[1].to_owned()).collect();
    assert_eq!(codes_without_restart("agent-implement.service"), codes);
    codes.remove("75");
    assert_eq!(codes_without_restart("standby.conf"), codes);
}

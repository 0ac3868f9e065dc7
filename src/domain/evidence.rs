//! Evidence: files that the `verify` script of a repository leaves for people. See
//! docs/repository-settings.md#evidence.
//!
//! Content and names are written by code of the repository, and the run's token may be in its hands, so the run and the
//! service apply the same rules: [`EvidenceFiles`]. The content alone decides its kind.

use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Variable that names the folder to the script.
pub const VARIABLE: &str = "AGENT_IMPLEMENT_EVIDENCE";

/// Maximum number of files of a run.
pub const MAX_FILES: usize = 10;

/// Maximum size of all files of a run together, in bytes.
pub const MAX_BYTES: usize = 5 << 20;

/// Maximum size of a report of evidence, in bytes of JSON.
pub const MAX_REPORT_BYTES: usize = MAX_BYTES / 3 * 4 + (64 << 10);

/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 80;

/// First bytes of a PNG image: signature, then the length and the type of its first chunk.
const PNG_START: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";

/// Endings of texts that no program opens as code or as a page.
const TEXT_ENDINGS: [&str; 11] = [
    "txt", "log", "md", "json", "jsonl", "csv", "tsv", "yml", "yaml", "diff", "patch",
];

/// Kind of the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EvidenceKind {
    /// PNG image.
    Png,
    /// UTF-8 text.
    Text,
}

impl EvidenceKind {
    /// Returns the kind of a content. `None` for all that is neither a PNG image nor UTF-8 text.
    pub fn of(content: &[u8]) -> Option<Self> {
        if content.starts_with(PNG_START) {
            return Some(Self::Png);
        }
        let text = std::str::from_utf8(content).ok()?;
        (!text.is_empty() && !text.contains('\0')).then_some(Self::Text)
    }

    /// Returns the media type with which the content is served.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Text => "text/plain; charset=utf-8",
        }
    }
}

/// Name, kind and size of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceEntry {
    /// Name, of letters, digits, dots, dashes and underscores.
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$"))]
    pub name: String,
    /// Kind of the content.
    pub kind: EvidenceKind,
    /// Size in bytes.
    #[schemars(range(min = 1, max = MAX_BYTES))]
    pub bytes: usize,
}

/// File of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceFile {
    /// Name, as people see it.
    pub name: String,
    /// Kind of the content.
    pub kind: EvidenceKind,
    /// Content. Secrets are redacted in a text.
    pub content: Vec<u8>,
}

impl EvidenceFile {
    /// Returns the file without its content.
    pub fn entry(&self) -> EvidenceEntry {
        EvidenceEntry {
            name: self.name.clone(),
            kind: self.kind,
            bytes: self.content.len(),
        }
    }
}

/// Reason why a file does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceRefusal {
    /// The run has [`MAX_FILES`] files.
    #[error("a run may leave {MAX_FILES} files")]
    TooMany,
    /// The files would be larger than [`MAX_BYTES`].
    #[error("the files of a run may have {} MiB together", MAX_BYTES >> 20)]
    TooLarge,
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// The content is of another kind.
    #[error("it is neither a PNG image nor UTF-8 text")]
    UnknownKind,
    /// An image contains a secret, which cannot be redacted.
    #[error("it contains a secret")]
    Secret,
}

/// Removes secrets from what leaves a run.
pub trait EvidenceRedactor {
    /// Returns a text without secrets and invisible characters.
    fn sanitize(&self, text: &str) -> String;

    /// Returns whether bytes contain a secret.
    fn contains_secret(&self, bytes: &[u8]) -> bool;
}

/// Files of a run, within the limits.
#[derive(Debug, Clone, Default)]
pub struct EvidenceFiles {
    files: Vec<EvidenceFile>,
    bytes: usize,
}

impl EvidenceFiles {
    /// Returns the number of bytes that another file may have, or why there may be none.
    ///
    /// # Errors
    /// If a limit is reached.
    pub fn room(&self) -> Result<usize, EvidenceRefusal> {
        match (self.files.len() < MAX_FILES, MAX_BYTES - self.bytes) {
            (false, _) => Err(EvidenceRefusal::TooMany),
            (true, 0) => Err(EvidenceRefusal::TooLarge),
            (true, left) => Ok(left),
        }
    }

    /// Adds a file.
    ///
    /// # Errors
    /// The reason why it does not count.
    pub fn add(
        &mut self,
        name: &str,
        content: Vec<u8>,
        redactor: &impl EvidenceRedactor,
    ) -> Result<(), EvidenceRefusal> {
        let room = self.room()?;
        if content.is_empty() {
            return Err(EvidenceRefusal::Empty);
        }
        if content.len() > room {
            return Err(EvidenceRefusal::TooLarge);
        }
        let kind = EvidenceKind::of(&content).ok_or(EvidenceRefusal::UnknownKind)?;
        let content = match kind {
            EvidenceKind::Png if redactor.contains_secret(&content) => {
                return Err(EvidenceRefusal::Secret);
            }
            EvidenceKind::Png => content,
            EvidenceKind::Text => redactor
                .sanitize(&String::from_utf8_lossy(&content))
                .into_bytes(),
        };
        if content.is_empty() {
            return Err(EvidenceRefusal::Empty);
        }
        // The mark of a redaction may be longer than the secret.
        if content.len() > room {
            return Err(EvidenceRefusal::TooLarge);
        }
        let name = self.free_name(&safe_name(&redactor.sanitize(name), kind));
        self.bytes += content.len();
        self.files.push(EvidenceFile {
            name,
            kind,
            content,
        });
        Ok(())
    }

    /// Returns the name, or one with a number if another file has it.
    fn free_name(&self, name: &str) -> String {
        let is_taken = |name: &str| {
            let mut files = self.files.iter();
            files.any(|file| file.name.eq_ignore_ascii_case(name))
        };
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, "txt"));
        let mut names = (2..).map(|number| format!("{stem}-{number}.{ending}"));
        match is_taken(name) {
            false => name.to_owned(),
            true => names.find(|name| !is_taken(name)).unwrap_or_default(),
        }
    }

    /// Returns the files.
    pub fn into_files(self) -> Vec<EvidenceFile> {
        self.files
    }
}

/// Returns a file name of ASCII letters, digits, dots, dashes and underscores, with an ending that suits the kind. A name
/// that is one already stays as it is.
fn safe_name(name: &str, kind: EvidenceKind) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name = name.replace(|c| !is_plain(c), "-");
    let name = name.trim_start_matches(['.', '-', '_']);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    let (suited, added): (&[&str], &str) = match kind {
        EvidenceKind::Png => (&["png"], ".png"),
        EvidenceKind::Text => (&TEXT_ENDINGS, ".txt"),
    };
    let is_suited = ending.is_some_and(|ending| {
        let mut suited = suited.iter();
        suited.any(|known| ending.eq_ignore_ascii_case(known))
    });
    let name = if name.is_empty() { "file" } else { name };
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if is_suited => (stem, format!(".{ending}")),
        _ => (name, added.to_owned()),
    };
    // Room for a number that makes it unique.
    let stem: String = stem.chars().take(MAX_NAME - 4 - ending.len()).collect();
    format!("{stem}{ending}")
}

/// Reads the files of a report, up to one more than a run may leave.
///
/// # Errors
/// If the report has another shape.
pub fn parse_report(body: &Value) -> Result<Vec<(String, Vec<u8>)>, EvidenceReportError> {
    let files = body["files"].as_array().ok_or(EvidenceReportError)?;
    let parse = |file: &Value| {
        let content = BASE64.decode(file["content"].as_str()?.as_bytes()).ok()?;
        Some((file["name"].as_str()?.to_owned(), content))
    };
    let files = files.iter().take(MAX_FILES + 1);
    files
        .map(|file| parse(file).ok_or(EvidenceReportError))
        .collect()
}

/// Error: a report of evidence has another shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("files must be a list of objects with name and content, in base64")]
pub struct EvidenceReportError;

/// Returns the report of files: the body of `POST /runner/evidence`.
pub fn report(files: &[EvidenceFile]) -> Value {
    let files = files.iter();
    let files =
        files.map(|file| json!({"name": file.name, "content": BASE64.encode(&file.content)}));
    json!({"files": files.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sanitize;

    struct Plain;

    impl EvidenceRedactor for Plain {
        fn sanitize(&self, text: &str) -> String {
            sanitize::strip_invisible(&text.replace("hunter2", "[redacted]")).into_owned()
        }

        fn contains_secret(&self, bytes: &[u8]) -> bool {
            bytes.windows(7).any(|part| part == b"hunter2")
        }
    }

    fn png(bytes: usize) -> Vec<u8> {
        let mut content = PNG_START.to_vec();
        content.resize(bytes.max(PNG_START.len()), 7);
        content
    }

    fn added(files: &[(&str, &[u8])]) -> Vec<Result<EvidenceEntry, EvidenceRefusal>> {
        let mut all = EvidenceFiles::default();
        let add = |(name, content): &(&str, &[u8])| {
            all.add(name, content.to_vec(), &Plain)?;
            Ok(all.files.last().unwrap().entry())
        };
        files.iter().map(add).collect()
    }

    #[test]
    fn the_content_decides_the_kind() {
        let rows: [(&[u8], Option<EvidenceKind>); 9] = [
            (PNG_START, Some(EvidenceKind::Png)),
            (b"\x89PNG\r\n\x1a\n<script>", None),
            (b"<html><script>alert(1)</script>", Some(EvidenceKind::Text)),
            (b"<svg onload='x'/>", Some(EvidenceKind::Text)),
            (
                "\u{1b}[31mred\u{1b}[0m\r\n".as_bytes(),
                Some(EvidenceKind::Text),
            ),
            (b"\xff\xfe\0t", None),
            (b"text\0", None),
            (b"GIF89a\x01\x80", None),
            (b"", None),
        ];
        for (content, kind) in rows {
            assert_eq!(EvidenceKind::of(content), kind, "{content:?}");
        }
    }

    #[test]
    fn names_are_plain_unique_and_stable() {
        let text: &[u8] = b"text";
        let names = [
            ("report.txt", "report.txt"),
            ("Report.TXT", "Report-2.TXT"),
            ("../../etc/passwd", "passwd.txt"),
            ("..\\..\\evil.md", "evil.md"),
            ("page.html", "page.html.txt"),
            (".env", "env.txt"),
            ("--help", "help.txt"),
            ("\u{202e}gnp.log", "gnp.log"),
        ];
        let files: Vec<(&str, &[u8])> = names.iter().map(|(name, _)| (*name, text)).collect();
        let found: Vec<String> = added(&files)
            .into_iter()
            .map(|one| one.unwrap().name)
            .collect();
        let expected: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
        assert_eq!(found, expected);
        let image = png(30);
        for (name, expected) in [
            ("a b.png", "a-b.png"),
            ("shot", "shot.png"),
            ("shot.html", "shot.html.png"),
            ("", "file.png"),
            ("Überblick.png", "berblick.png"),
            ("a`**<b>@x|\n.png", "a----b--x--.png"),
        ] {
            let name = added(&[(name, &image)]).remove(0).unwrap().name;
            assert_eq!(name, expected);
            assert_eq!(added(&[(&name, &image)]).remove(0).unwrap().name, expected);
        }
        let long = format!("{}.png", "x".repeat(500));
        let twice = added(&[(&long, &image), (&long, &image)]);
        assert!(
            twice
                .iter()
                .all(|one| one.as_ref().unwrap().name.len() <= MAX_NAME)
        );
    }

    #[test]
    fn limits_number_and_size() {
        let one: (&str, &[u8]) = ("a.txt", b"a");
        let eleven = added(&[one; 11]);
        assert!(eleven[..10].iter().all(Result::is_ok));
        assert_eq!(eleven[10], Err(EvidenceRefusal::TooMany));
        let (large, rest) = (png(MAX_BYTES - 10), png(11));
        let files = added(&[
            ("a", &png(MAX_BYTES + 1)),
            ("b", &large),
            ("c", &rest),
            ("d", b"0123456789"),
            ("e", b"1"),
        ]);
        assert_eq!(files[0], Err(EvidenceRefusal::TooLarge));
        assert_eq!(files[2], Err(EvidenceRefusal::TooLarge));
        assert!(files[1].is_ok() && files[3].is_ok(), "{files:?}");
        assert_eq!(files[4], Err(EvidenceRefusal::TooLarge));
        assert_eq!(added(&[("a", b"")]), [Err(EvidenceRefusal::Empty)]);
        assert_eq!(
            added(&[("a", b"\xff")]),
            [Err(EvidenceRefusal::UnknownKind)]
        );
    }

    #[test]
    fn removes_secrets() {
        let mut files = EvidenceFiles::default();
        files
            .add(
                "hunter2.txt",
                b"pass\x1b[1m hunt\xe2\x80\x8ber2 hunter2".to_vec(),
                &Plain,
            )
            .unwrap();
        let file = &files.files[0];
        assert_eq!(file.name, "redacted-.txt");
        assert!(!String::from_utf8_lossy(&file.content).contains("\u{1b}"));
        assert!(String::from_utf8_lossy(&file.content).ends_with("[redacted]"));
        let mut image = png(40);
        image.extend(b"tEXt hunter2");
        assert_eq!(
            files.add("a.png", image, &Plain),
            Err(EvidenceRefusal::Secret)
        );
    }

    #[test]
    fn a_report_has_all_files() {
        let mut files = EvidenceFiles::default();
        files.add("a.png", png(100), &Plain).unwrap();
        files.add("b.txt", b"b".to_vec(), &Plain).unwrap();
        let files = files.into_files();
        let parsed = parse_report(&report(&files)).unwrap();
        let expected = files
            .iter()
            .map(|file| (file.name.clone(), file.content.clone()));
        assert_eq!(parsed, expected.collect::<Vec<_>>());
        for body in [
            json!(null),
            json!({"files": {}}),
            json!({"files": [{"name": "a"}]}),
            json!({"files": [{"name": "a", "content": "not base64!"}]}),
        ] {
            assert_eq!(parse_report(&body), Err(EvidenceReportError), "{body}");
        }
        let full = vec![json!({"name": "a", "content": ""}); 50];
        assert_eq!(
            parse_report(&json!({"files": full})).unwrap().len(),
            MAX_FILES + 1
        );
        let encoded = MAX_BYTES.div_ceil(3) * 4 + MAX_FILES * (MAX_NAME + 40);
        assert!(encoded < MAX_REPORT_BYTES);
    }
}

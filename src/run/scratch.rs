//! Scratch folder: files that the run and the agent exchange outside the work tree.
//!
//! The run writes the attachments of the ticket there. The agent may leave questions to people there. Everything in
//! it is untrusted once the agent has run.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::folders::{self, Folders};
use domain::question::{self, Question};
use domain::ticket_context::ContentKind;

/// Variable that names the folder to the agent.
pub(crate) const VARIABLE: &str = "AGENT_IMPLEMENT_SCRATCH";

/// Name of the file with questions.
const QUESTIONS: &str = "question.json";

/// Folder of the attachments.
const ATTACHMENTS: &str = "attachments";

/// Maximum size of the file with questions, in bytes.
const MAX_QUESTION_BYTES: u64 = 64 << 10;

/// Maximum length of the title in the name of an attachment, in characters.
const MAX_NAME: usize = 40;

/// Scratch folder of a run.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Opens the folder, and creates it if needed.
    pub(crate) fn open(folders: &Folders) -> io::Result<Self> {
        let path = folders.make_scratch()?;
        Ok(Self { path })
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file with questions.
    pub(crate) fn question_file(&self) -> PathBuf {
        question_file(&self.path)
    }

    /// Removes questions of an earlier pass.
    pub(crate) fn remove_questions(&self) -> io::Result<()> {
        folders::remove(&self.question_file())
    }

    /// Writes an attachment and returns its path. `number` makes its name unique.
    pub(crate) fn write_attachment(
        &self,
        number: usize,
        title: &str,
        kind: ContentKind,
        content: &[u8],
    ) -> io::Result<PathBuf> {
        let folder = self.path.join(ATTACHMENTS);
        std::fs::create_dir_all(&folder)?;
        let name = format!("{number:02}-{}.{}", safe_name(title), kind.extension());
        let path = folder.join(name);
        std::fs::write(&path, content)?;
        Ok(path)
    }
}

/// Returns the path of the file with questions in a scratch folder.
pub(crate) fn question_file(scratch: &Path) -> PathBuf {
    scratch.join(QUESTIONS)
}

/// Reads the questions that the agent left in a scratch folder; `None` if there is no file. Only a regular file
/// counts. Processes of the agent must be killed before.
///
/// # Errors
/// If the file is not a file with questions.
pub(crate) fn read_questions(scratch: &Path) -> io::Result<Option<Vec<Question>>> {
    let Some(bytes) = read_question_file(scratch)? else {
        return Ok(None);
    };
    let questions = question::parse_questions(&serde_json::from_slice(&bytes)?);
    match questions.is_empty() {
        true => Err(io::Error::other("it contains no question")),
        false => Ok(Some(questions)),
    }
}

fn read_question_file(scratch: &Path) -> io::Result<Option<Vec<u8>>> {
    // A FIFO would otherwise be waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let folder = rustix::fs::open(scratch, flags | OFlags::DIRECTORY, Mode::empty());
    let opened = folder.and_then(|folder| {
        rustix::fs::openat(&folder, QUESTIONS, flags | OFlags::NOCTTY, Mode::empty())
    });
    let file = match opened {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_QUESTION_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_QUESTION_BYTES {
        true => Err(io::Error::other(format!(
            "it is larger than {MAX_QUESTION_BYTES} bytes"
        ))),
        false => Ok(Some(bytes)),
    }
}

/// Returns a file name of letters, digits and dashes, without extension.
fn safe_name(title: &str) -> String {
    let title = title.rsplit(['/', '\\']).next().unwrap_or_default();
    let stem = match title.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => title,
    };
    let words = stem.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-");
    name.truncate(MAX_NAME);
    match name.trim_end_matches('-') {
        "" => "attachment".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    fn scratch() -> (Folders, Scratch) {
        let folders = Folders::new(&tempfile::env::temp_dir()).unwrap();
        let scratch = Scratch::open(&folders).unwrap();
        (folders, scratch)
    }

    #[test]
    fn names_of_attachments_are_safe() {
        for (title, name) in [
            ("Mock of the page.png", "Mock-of-the-page"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Temp\\a b.txt", "a-b"),
            ("Übersicht.pdf", "bersicht"),
            ("日本.png", "attachment"),
            (".env", "env"),
            ("--help", "help"),
            ("", "attachment"),
        ] {
            assert_eq!(safe_name(title), name, "{title}");
        }
        assert_eq!(safe_name(&"x".repeat(1000)).len(), MAX_NAME);
        let (_folders, scratch) = scratch();
        let path = scratch
            .write_attachment(3, "a.exe", ContentKind::Png, b"x")
            .unwrap();
        assert_eq!(path, scratch.path().join("attachments/03-a.png"));
    }

    #[test]
    fn reads_questions_from_a_regular_file_only() {
        let valid = r#"{"questions":[{"text":"Which?"}]}"#;
        let (folders, scratch) = scratch();
        let file = scratch.question_file();
        let read = || read_questions(scratch.path());
        assert_eq!(read().unwrap(), None);
        std::fs::write(&file, valid).unwrap();
        assert_eq!(read().unwrap().unwrap()[0].text, "Which?");
        scratch.remove_questions().unwrap();
        assert_eq!(read().unwrap(), None);

        let elsewhere = folders.make("elsewhere").unwrap().join("valid.json");
        std::fs::write(&elsewhere, valid).unwrap();
        let mkfifo = || {
            assert!(
                Command::new("mkfifo")
                    .arg(&file)
                    .status()
                    .unwrap()
                    .success()
            )
        };
        let attacks: [&dyn Fn(); 6] = [
            &|| symlink(&elsewhere, &file).unwrap(),
            &|| std::fs::create_dir_all(file.join("deep")).unwrap(),
            &mkfifo,
            &|| std::fs::write(&file, format!("{valid}{}", " ".repeat(65 << 10))).unwrap(),
            &|| std::fs::write(&file, "not JSON").unwrap(),
            &|| std::fs::write(&file, r#"{"questions":[]}"#).unwrap(),
        ];
        for (at, attack) in attacks.iter().enumerate() {
            attack();
            assert!(read().is_err(), "attack {at}");
            scratch.remove_questions().unwrap();
            assert_eq!(read().unwrap(), None, "attack {at}");
        }
        assert!(elsewhere.exists(), "no link is followed");
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_replaced() {
        let (folders, scratch) = scratch();
        let elsewhere = folders.make("elsewhere").unwrap();
        std::fs::write(elsewhere.join(QUESTIONS), r#"["Which?"]"#).unwrap();
        std::fs::remove_dir(scratch.path()).unwrap();
        symlink(&elsewhere, scratch.path()).unwrap();
        assert!(read_questions(scratch.path()).is_err());
        let again = Scratch::open(&folders).unwrap();
        again.remove_questions().unwrap();
        assert!(!again.path().is_symlink() && elsewhere.join(QUESTIONS).exists());
    }
}

//! The programs that the run itself starts, found before any foreign code runs.
//!
//! The agent and the scripts of the repository work as the run's own user: whatever that user may
//! write, they may replace. So the program that makes and pushes the commit, and every file that
//! it loads, must lie where that user may not write ([`trust`]). The agent's program gets no more than
//! the model's key, and images may install it for the user alone; it is only started as long as it
//! is the file that was found at first ([`Program::check`]).

pub mod trust;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where our own programs are looked for, whatever the variable `PATH` says.
pub const SYSTEM_FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// How much of a file can name its interpreter? The kernel reads no more.
const FIRST_LINE: u64 = 256;

/// A file as it was when it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    /// Where its name leads, every link followed.
    real: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Set by the kernel at every change of the file; its owner cannot set it back.
    changed: (i64, i64),
}

impl Identity {
    fn of(path: &Path) -> std::io::Result<Self> {
        let real = path.canonicalize()?;
        let found = real.metadata()?;
        Ok(Self {
            real,
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// A file that programs load, as it was when it was found; or that it was not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFile {
    path: PathBuf,
    identity: Option<Identity>,
}

impl LoadedFile {
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let identity = Identity::of(&path).ok();
        Self { path, identity }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still what was found.
    pub fn verify_unchanged(&self) -> Result<(), ProgramError> {
        match Self::from_path(&self.path) == *self {
            true => Ok(()),
            false => Err(ProgramError::LoadedFileChanged(self.path.clone())),
        }
    }
}

/// A program, by its path and as it was when it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
    identity: Identity,
    /// What its first line names, if it is a script. It is started directly: `env` would look for it
    /// on a `PATH` that leads through folders which the agent may write.
    interpreter: Option<Box<Interpreter>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Interpreter {
    program: Program,
    args: Vec<OsString>,
}

/// Why a program is not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error("{0} is not installed: it is in none of the folders {1}")]
    Missing(String, String),
    #[error("{0} is named by a path that is not absolute")]
    Relative(String),
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, String),
    #[error("{0} was changed while the run was at work, and is not started")]
    Changed(PathBuf),
    #[error("{0} was changed while the run was at work, and git loads it: git is not started")]
    LoadedFileChanged(PathBuf),
}

impl Program {
    /// Finds a program by an absolute path, or by its name in the folders of a search path. Folders
    /// that are not named by an absolute path are passed over: they lie in the work tree.
    pub fn find(name: &OsStr, search_path: &OsStr) -> Result<Self, ProgramError> {
        let shown = || name.to_string_lossy().into_owned();
        if Path::new(name).is_absolute() {
            return Self::at(Path::new(name), search_path);
        }
        if name.as_bytes().contains(&b'/') {
            return Err(ProgramError::Relative(shown()));
        }
        let mut found = candidates(name, search_path);
        let missing = || ProgramError::Missing(shown(), search_path.to_string_lossy().into_owned());
        Self::at(&found.next().ok_or_else(missing)?, search_path)
    }

    /// The program of an absolute path, and its interpreter.
    fn at(path: &Path, search_path: &OsStr) -> Result<Self, ProgramError> {
        let unreadable =
            |error: std::io::Error| ProgramError::Unreadable(path.to_owned(), error.to_string());
        let identity = Identity::of(path).map_err(unreadable)?;
        let interpreter = match first_line(&identity.real).map_err(unreadable)? {
            Some(line) => interpreter(&line, search_path)?,
            None => None,
        };
        Ok(Self {
            path: path.to_owned(),
            identity,
            interpreter: interpreter.map(Box::new),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still what was found.
    pub fn verify_unchanged(&self) -> Result<(), ProgramError> {
        if Identity::of(&self.path).ok().as_ref() != Some(&self.identity) {
            return Err(ProgramError::Changed(self.path.clone()));
        }
        match &self.interpreter {
            Some(interpreter) => interpreter.program.verify_unchanged(),
            None => Ok(()),
        }
    }

    /// What is to be executed, and the arguments before its own.
    pub fn command(&self) -> (OsString, Vec<OsString>) {
        match &self.interpreter {
            Some(interpreter) => {
                let mut args = interpreter.args.clone();
                args.push(self.path.clone().into());
                (interpreter.program.path.clone().into(), args)
            }
            None => (self.path.clone().into(), Vec::new()),
        }
    }

    /// Every file that is executed when it is started.
    pub fn executed_files(&self) -> Vec<&Path> {
        let mut files = vec![self.path.as_path()];
        if let Some(interpreter) = &self.interpreter {
            files.extend(interpreter.program.executed_files());
        }
        files
    }
}

/// The executable files of this name in the folders of a search path, in their order.
pub fn candidates(name: &OsStr, search_path: &OsStr) -> impl Iterator<Item = PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(search_path).collect();
    let files = folders.into_iter().filter(|folder| folder.is_absolute());
    let name = name.to_owned();
    files
        .map(move |folder| folder.join(&name))
        .filter(|file| file.metadata().is_ok_and(|found| is_executable(&found)))
}

/// The system's program of this name; the bare name where the system has none.
pub fn system_program(name: &str) -> OsString {
    let folders = std::env::join_paths(SYSTEM_FOLDERS).unwrap_or_default();
    let found = candidates(name.as_ref(), &folders).next();
    found.map_or_else(|| name.into(), OsString::from)
}

fn is_executable(found: &Metadata) -> bool {
    found.is_file() && found.permissions().mode() & 0o111 != 0
}

/// What stands behind `#!`, if the file begins with that.
fn first_line(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let mut begin = Vec::new();
    File::open(path)?.take(FIRST_LINE).read_to_end(&mut begin)?;
    let line = begin.split(|byte| *byte == b'\n').next();
    Ok(line.and_then(|line| Some(line.strip_prefix(b"#!")?.to_vec())))
}

/// The interpreter that a first line names. None where only `env` can say how it is started.
fn interpreter(line: &[u8], search_path: &OsStr) -> Result<Option<Interpreter>, ProgramError> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes);
    let Some(mut name) = words.next() else {
        return Ok(None);
    };
    if Path::new(name).file_name() == Some(OsStr::new("env")) {
        let mut words_of_env = words.by_ref().skip_while(|word| *word == "-S");
        let Some(wanted) = words_of_env.next() else {
            return Ok(None);
        };
        if wanted.as_bytes().starts_with(b"-") || wanted.as_bytes().contains(&b'=') {
            return Ok(None);
        }
        name = wanted;
        let args = words_of_env.map(OsStr::to_owned).collect();
        let program = plain(name, search_path)?;
        return Ok(Some(Interpreter { program, args }));
    }
    let args = words.map(OsStr::to_owned).collect();
    let program = plain(name, search_path)?;
    Ok(Some(Interpreter { program, args }))
}

/// An interpreter; what would interpret it in turn is left to the kernel.
fn plain(name: &OsStr, search_path: &OsStr) -> Result<Program, ProgramError> {
    let path = match Path::new(name).is_absolute() {
        true => Some(PathBuf::from(name)),
        false => candidates(name, search_path).next(),
    };
    let missing = || {
        let folders = search_path.to_string_lossy().into_owned();
        ProgramError::Missing(name.to_string_lossy().into_owned(), folders)
    };
    let path = path.ok_or_else(missing)?;
    let unreadable =
        |error: std::io::Error| ProgramError::Unreadable(path.clone(), error.to_string());
    Ok(Program {
        identity: Identity::of(&path).map_err(unreadable)?,
        path,
        interpreter: None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Folders `one` and `two` of a search path, and files in them.
    fn stage(files: &[(&str, &str)]) -> (tempfile::TempDir, OsString) {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let folders = ["one", "two"].map(|name| dir.path().join(name));
        let search_path = std::env::join_paths(folders).unwrap();
        (dir, search_path)
    }

    fn found(name: &str, search_path: &OsStr) -> Program {
        Program::find(name.as_ref(), search_path).unwrap()
    }

    #[test]
    fn a_program_is_the_first_of_its_name_and_stays_so() {
        let (dir, search_path) = stage(&[("two/agent", "ELF")]);
        let agent = found("agent", &search_path);
        assert_eq!(agent.path(), dir.path().join("two/agent"));
        stage_more(dir.path(), "one/agent");
        assert_eq!(agent.verify_unchanged(), Ok(()));
        let (program, args) = agent.command();
        assert_eq!(program, dir.path().join("two/agent"));
        assert!(args.is_empty());
    }

    fn stage_more(dir: &Path, file: &str) {
        let path = dir.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "another").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    type Deed = fn(&Path);

    #[test]
    fn a_program_that_was_changed_in_any_way_is_known() {
        let deeds: [(&str, Deed); 5] = [
            ("written", |dir| {
                std::fs::write(dir.join("real"), "EVIL").unwrap()
            }),
            ("replaced", |dir| {
                std::fs::write(dir.join("new"), "EVIL").unwrap();
                std::fs::rename(dir.join("new"), dir.join("real")).unwrap();
            }),
            ("led elsewhere", |dir| {
                std::fs::write(dir.join("new"), "PROG").unwrap();
                std::fs::remove_file(dir.join("one/agent")).unwrap();
                symlink(dir.join("new"), dir.join("one/agent")).unwrap();
            }),
            ("removed", |dir| {
                std::fs::remove_file(dir.join("real")).unwrap()
            }),
            ("interpreter", |dir| {
                std::fs::write(dir.join("two/node"), "EVIL").unwrap()
            }),
        ];
        for (what, deed) in deeds {
            let script = "#!/usr/bin/env node\nPROG";
            let (dir, search_path) =
                stage(&[("real", script), ("two/node", "NODE"), ("one/x", "")]);
            symlink(dir.path().join("real"), dir.path().join("one/agent")).unwrap();
            let agent = found("agent", &search_path);
            assert_eq!(agent.verify_unchanged(), Ok(()), "{what}");
            deed(dir.path());
            assert!(
                matches!(agent.verify_unchanged(), Err(ProgramError::Changed(_))),
                "{what}"
            );
        }
    }

    #[test]
    fn a_script_is_started_by_the_interpreter_that_was_found_for_it() {
        let rows: [(&str, Option<&[&str]>); 6] = [
            ("#!/usr/bin/env node\n", Some(&["two/node"])),
            (
                "#!/usr/bin/env -S node --no-warnings x\n",
                Some(&["two/node", "--no-warnings", "x"]),
            ),
            ("#! /bin/sh -e\n", Some(&["/bin/sh", "-e"])),
            ("#!/usr/bin/env -i node\n", None),
            ("#!\n", None),
            ("\x7fELF", None),
        ];
        for (begin, expected) in rows {
            let (dir, search_path) = stage(&[("one/agent", begin), ("two/node", "NODE")]);
            let agent = found("agent", &search_path);
            let path = dir.path().join("one/agent");
            let (program, args) = agent.command();
            let mut all = vec![PathBuf::from(program)];
            all.extend(args.into_iter().map(PathBuf::from));
            let expected = expected.unwrap_or_default().iter().enumerate();
            let mut expected: Vec<PathBuf> = expected
                .map(|(at, word)| match at {
                    // An absolute path stays as it is.
                    0 => dir.path().join(word),
                    _ => PathBuf::from(word),
                })
                .collect();
            expected.push(path);
            assert_eq!(all, expected, "{begin:?}");
        }
    }

    #[test]
    fn what_cannot_be_found_is_named() {
        let (dir, search_path) = stage(&[("one/script", "#!/usr/bin/env nowhere\n")]);
        std::fs::write(dir.path().join("one/plain"), "").unwrap();
        let error = |name: &str| Program::find(name.as_ref(), &search_path).unwrap_err();
        for (name, begins) in [
            (
                "absent",
                "absent is not installed: it is in none of the folders /",
            ),
            ("plain", "plain is not installed"),
            ("script", "nowhere is not installed"),
            ("./agent", "./agent is named by a path that is not absolute"),
            ("/nowhere/agent", "/nowhere/agent cannot be read: "),
        ] {
            let said = error(name).to_string();
            assert!(said.starts_with(begins), "{said}");
        }
        let in_the_tree = Program::find("script".as_ref(), ".::one".as_ref());
        assert!(in_the_tree.is_err(), "{in_the_tree:?}");
    }
}

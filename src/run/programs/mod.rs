//! Programs that the run starts, located before repository code runs.
//!
//! The agent and repository scripts run as the same user as the run: they can replace any file that
//! this user can write. So git, which creates and pushes the commit, and every file that it loads must
//! be in a place that this user cannot write ([`trust`]). The agent program only receives the model key
//! and may be installed for the user alone; it is started only while its file is unchanged
//! ([`Program::verify_unchanged`]). If the run has installed it itself, every file of the installation is
//! compared ([`tree`]).

#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod trust;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Folders in which system programs are located, regardless of `PATH`.
pub(crate) const SYSTEM_FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Maximum length of a `#!` line. The kernel reads no more.
const MAX_SHEBANG: u64 = 256;

/// Identity of a file at one point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    /// Canonical path.
    real: PathBuf,
    /// Device number.
    device: u64,
    /// Inode number.
    inode: u64,
    /// Size in bytes.
    size: u64,
    /// Modification time: seconds and nanoseconds.
    modified: (i64, i64),
    /// Change time: seconds and nanoseconds. Set by the kernel; the owner cannot set it back.
    changed: (i64, i64),
}

impl Identity {
    fn from_path(path: &Path) -> std::io::Result<Self> {
        let real = path.canonicalize()?;
        let metadata = real.metadata()?;
        Ok(Self {
            real,
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// File that a program loads, with its identity; also records that a file was absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadedFile {
    path: PathBuf,
    identity: Option<Identity>,
}

impl LoadedFile {
    /// Records the current identity of a file.
    pub(crate) fn from_path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let identity = Identity::from_path(&path).ok();
        Self { path, identity }
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Verifies that the file is unchanged since it was recorded.
    ///
    /// # Errors
    /// [`ProgramError::LoadedFileChanged`] if it was changed, replaced, created or removed.
    pub(crate) fn verify_unchanged(&self) -> Result<(), ProgramError> {
        match Self::from_path(&self.path) == *self {
            true => Ok(()),
            false => Err(ProgramError::LoadedFileChanged(self.path.clone())),
        }
    }
}

/// Program with its path and identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
    identity: Identity,
    /// Interpreter of a script. Started directly, because `env` would search a `PATH` with folders
    /// that the agent can write.
    interpreter: Option<Box<Interpreter>>,
}

/// Interpreter of a script and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interpreter {
    program: Program,
    args: Vec<OsString>,
}

/// Error that prevents the start of a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The program is in none of the folders.
    #[error("{0} is not installed: it is in none of the folders {1}")]
    Missing(String, String),
    /// The program has a relative path.
    #[error("{0} is not an absolute path")]
    Relative(String),
    /// The file cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, String),
    /// The program file changed during the run.
    #[error("{0} changed during the run and is not started")]
    Changed(PathBuf),
    /// A file that git loads changed during the run.
    #[error("{0} changed during the run. Git loads this file, so git is not started")]
    LoadedFileChanged(PathBuf),
}

impl Program {
    /// Finds a program by absolute path, or by name in the folders of a search path. Relative
    /// folders are skipped, because they are inside the work tree.
    ///
    /// # Errors
    /// If the program or its interpreter is missing or unreadable, or the path is relative.
    pub fn find(name: &OsStr, search_path: &OsStr) -> Result<Self, ProgramError> {
        let display_name = || name.to_string_lossy().into_owned();
        if Path::new(name).is_absolute() {
            return Self::from_path(Path::new(name), search_path);
        }
        if name.as_bytes().contains(&b'/') {
            return Err(ProgramError::Relative(display_name()));
        }
        let mut found = candidates(name, search_path);
        let missing =
            || ProgramError::Missing(display_name(), search_path.to_string_lossy().into_owned());
        Self::from_path(&found.next().ok_or_else(missing)?, search_path)
    }

    /// Returns the program at an absolute path, with its interpreter.
    fn from_path(path: &Path, search_path: &OsStr) -> Result<Self, ProgramError> {
        let unreadable =
            |error: std::io::Error| ProgramError::Unreadable(path.to_owned(), error.to_string());
        let identity = Identity::from_path(path).map_err(unreadable)?;
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

    /// Returns the path under which the program was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Verifies that the program and its interpreter are unchanged since they were found.
    ///
    /// # Errors
    /// [`ProgramError::Changed`] if a file was changed, replaced or removed.
    pub fn verify_unchanged(&self) -> Result<(), ProgramError> {
        if Identity::from_path(&self.path).ok().as_ref() != Some(&self.identity) {
            return Err(ProgramError::Changed(self.path.clone()));
        }
        match &self.interpreter {
            Some(interpreter) => interpreter.program.verify_unchanged(),
            None => Ok(()),
        }
    }

    /// Returns the executable and the arguments that precede the program's own.
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

    /// Returns every file that is executed when the program starts.
    pub fn executed_files(&self) -> Vec<&Path> {
        let mut files = vec![self.path.as_path()];
        if let Some(interpreter) = &self.interpreter {
            files.extend(interpreter.program.executed_files());
        }
        files
    }
}

/// Returns the executable files of this name in the folders of a search path, in order.
pub(crate) fn candidates(name: &OsStr, search_path: &OsStr) -> impl Iterator<Item = PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(search_path).collect();
    let files = folders.into_iter().filter(|folder| folder.is_absolute());
    let name = name.to_owned();
    files
        .map(move |folder| folder.join(&name))
        .filter(|file| file.metadata().is_ok_and(|found| is_executable(&found)))
}

/// Returns the path of a system program, or the bare name if it is not installed.
pub(crate) fn system_program(name: &str) -> OsString {
    let folders = std::env::join_paths(SYSTEM_FOLDERS).unwrap_or_default();
    let found = candidates(name.as_ref(), &folders).next();
    found.map_or_else(|| name.into(), OsString::from)
}

fn is_executable(found: &Metadata) -> bool {
    found.is_file() && found.permissions().mode() & 0o111 != 0
}

/// Returns the text after `#!`, if the file starts with it.
fn first_line(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let mut start = Vec::new();
    File::open(path)?
        .take(MAX_SHEBANG)
        .read_to_end(&mut start)?;
    let line = start.split(|byte| *byte == b'\n').next();
    Ok(line.and_then(|line| Some(line.strip_prefix(b"#!")?.to_vec())))
}

/// Returns the interpreter that a `#!` line names, or `None` if only `env` can interpret the line.
fn interpreter(line: &[u8], search_path: &OsStr) -> Result<Option<Interpreter>, ProgramError> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes);
    let Some(mut name) = words.next() else {
        return Ok(None);
    };
    if Path::new(name).file_name() == Some(OsStr::new("env")) {
        let mut env_words = words.by_ref().skip_while(|word| *word == "-S");
        let Some(wanted) = env_words.next() else {
            return Ok(None);
        };
        if wanted.as_bytes().starts_with(b"-") || wanted.as_bytes().contains(&b'=') {
            return Ok(None);
        }
        name = wanted;
        let args = env_words.map(OsStr::to_owned).collect();
        let program = interpreter_program(name, search_path)?;
        return Ok(Some(Interpreter { program, args }));
    }
    let args = words.map(OsStr::to_owned).collect();
    let program = interpreter_program(name, search_path)?;
    Ok(Some(Interpreter { program, args }))
}

/// Finds an interpreter. An interpreter that is itself a script is left to the kernel.
fn interpreter_program(name: &OsStr, search_path: &OsStr) -> Result<Program, ProgramError> {
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
        identity: Identity::from_path(&path).map_err(unreadable)?,
        path,
        interpreter: None,
    })
}

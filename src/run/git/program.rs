//! Git program of the run, found before repository code runs, in files that such code cannot change.
//!
//! Git creates the commit that is pushed, so everything that decides what is executed is pinned:
//! the program, the folder of its commands, the libraries of its HTTP helper, the search path, the
//! locale and the home folder. An agent that runs as root could still replace system files, so they
//! are compared with their original identity before each command.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::version::{OldGitError, check_git_version};
use crate::child::ChildEnv;
use crate::programs::trust::{PathTrust, UntrustedPathError};
use crate::programs::{LoadedFile, Program, ProgramError, SYSTEM_FOLDERS, candidates};

/// Variables that name the certificates trusted by the run's own requests.
const CERTIFICATE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// System files that decide which libraries are loaded and which certificates are trusted, if they
/// exist.
const SYSTEM_FILES: [&str; 5] = [
    PRELOAD_FILE,
    LOADER_CACHE,
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/openssl.cnf",
];

/// File with libraries that the loader adds to every program.
const PRELOAD_FILE: &str = "/etc/ld.so.preload";

/// Cache in which the loader looks up libraries.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Home folder of git. Cannot contain files such as `.netrc`.
const NO_HOME: &str = "/dev/null";

/// Git's HTTP helper.
const HTTP_HELPER: &str = "git-remote-https";

/// Verified git program.
#[derive(Debug, Clone)]
pub(crate) struct GitProgram {
    program: Program,
    /// HTTP helper, if git was built with it.
    helper: Option<Program>,
    exec_path: PathBuf,
    search_path: OsString,
    /// Files loaded by the helper.
    loaded: Vec<LoadedFile>,
    /// Loader cache. Every package installation changes it.
    loader_cache: LoadedFile,
}

/// Reason why no git program can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitProgramError {
    /// Git is not installed.
    #[error("git is not installed: it is in none of the folders {0}")]
    Missing(String),
    /// The agent could replace a file that git uses.
    #[error(
        "cannot trust {what}: {cause}. The agent could replace it and change what is pushed. \
         Install it where only root can write, such as /usr/bin."
    )]
    Untrusted {
        /// File that is not trusted.
        what: String,
        /// Reason.
        cause: UntrustedPathError,
    },
    /// Git is too old.
    #[error(transparent)]
    TooOld(#[from] OldGitError),
    /// The program cannot be used.
    #[error("git: {0}")]
    Program(#[from] ProgramError),
    /// The files that git uses could not be determined.
    #[error("cannot determine the files that git uses: {0}")]
    Inspection(std::io::Error),
}

impl GitProgram {
    /// Finds git in the system folders, else on the `PATH` of the environment, and verifies
    /// everything that it executes and loads.
    pub(crate) fn find(env: &ChildEnv, trust: &PathTrust) -> Result<Self, GitProgramError> {
        let search_path = system_path(trust);
        let own_path = env.get("PATH").unwrap_or_default();
        let folders = std::env::join_paths(
            std::env::split_paths(&search_path).chain(std::env::split_paths(own_path)),
        );
        let folders = folders.unwrap_or_else(|_| search_path.clone());
        let mut first_error = None;
        for path in candidates(OsStr::new("git"), &folders) {
            match find_trusted(&path, &search_path, trust) {
                Ok(program) => {
                    let found = Self::with_parts(program, search_path, trust)?;
                    verify_certificates(env, trust)?;
                    return Ok(found);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let folders = folders.to_string_lossy().into_owned();
        Err(first_error.unwrap_or(GitProgramError::Missing(folders)))
    }

    /// Locates and verifies helper and libraries of a git program.
    fn with_parts(
        program: Program,
        search_path: OsString,
        trust: &PathTrust,
    ) -> Result<Self, GitProgramError> {
        let print = |option: &str| {
            let output = command(&program, &search_path).arg(option).output();
            output
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
                .map_err(GitProgramError::Inspection)
        };
        check_git_version(&print("--version")?)?;
        let exec_path = PathBuf::from(print("--exec-path")?.trim_end());
        verify("the folder of git's commands", &exec_path, trust)?;
        let helper = exec_path.join(HTTP_HELPER);
        let helper = match helper.exists() {
            true => Some(find_trusted(&helper, &search_path, trust)?),
            false => None,
        };
        let mut found = Self {
            program,
            helper,
            exec_path,
            search_path,
            loaded: Vec::new(),
            loader_cache: LoadedFile::from_path(LOADER_CACHE),
        };
        found.loaded = found
            .find_loaded_files()
            .map_err(GitProgramError::Inspection)?;
        for file in &found.loaded {
            if file.path() != Path::new(PRELOAD_FILE) {
                verify("a library that git loads", file.path(), trust)?;
            }
        }
        Ok(found)
    }

    /// Returns the path of git.
    pub(crate) fn path(&self) -> &Path {
        self.program.path()
    }

    /// Returns the option that precedes every command.
    pub(crate) fn exec_path_option(&self) -> OsString {
        let mut option = OsString::from("--exec-path=");
        option.push(&self.exec_path);
        option
    }

    /// Returns the environment of every command. It inherits nothing from the run's environment.
    pub(crate) fn environment(&self) -> ChildEnv {
        ChildEnv::default()
            .with("PATH", &self.search_path)
            .with("HOME", NO_HOME)
            // Error messages are matched in English.
            .with("LC_ALL", "C")
    }

    /// Verifies that git and the files that it loads are unchanged since it was found.
    pub(crate) fn verify_unchanged(&self) -> Result<(), ProgramError> {
        self.program.verify_unchanged()?;
        self.helper
            .as_ref()
            .map_or(Ok(()), Program::verify_unchanged)?;
        self.loaded
            .iter()
            .try_for_each(LoadedFile::verify_unchanged)?;
        if self.loader_cache.verify_unchanged().is_err() {
            let is_unchanged = self
                .find_loaded_files()
                .is_ok_and(|loaded| loaded == self.loaded);
            return match is_unchanged {
                true => Ok(()),
                false => Err(ProgramError::LoadedFileChanged(LOADER_CACHE.into())),
            };
        }
        Ok(())
    }

    /// Returns every file that is loaded into git's processes.
    fn find_loaded_files(&self) -> std::io::Result<Vec<LoadedFile>> {
        let helper = self.helper.iter();
        let mut files = vec![PathBuf::from(PRELOAD_FILE)];
        for helper in helper {
            files.extend(mapped_files(helper, &self.search_path)?);
        }
        Ok(files.into_iter().map(LoadedFile::from_path).collect())
    }
}

/// Returns the search path of the trusted system folders.
fn system_path(trust: &PathTrust) -> OsString {
    let folders = SYSTEM_FOLDERS.map(Path::new).into_iter();
    let trusted = folders.filter(|folder| trust.verify(folder).is_ok());
    std::env::join_paths(trusted).unwrap_or_default()
}

fn find_trusted(
    path: &Path,
    search_path: &OsStr,
    trust: &PathTrust,
) -> Result<Program, GitProgramError> {
    verify("git", path, trust)?;
    let program = Program::find(path.as_os_str(), search_path)?;
    for file in program.executed_files() {
        verify("git", file, trust)?;
    }
    Ok(program)
}

fn verify(what: &str, path: &Path, trust: &PathTrust) -> Result<(), GitProgramError> {
    trust
        .verify(path)
        .map(drop)
        .map_err(|cause| GitProgramError::Untrusted {
            what: what.to_owned(),
            cause,
        })
}

/// Verifies the certificates trusted by the run's own requests, and the system files.
fn verify_certificates(env: &ChildEnv, trust: &PathTrust) -> Result<(), GitProgramError> {
    for name in CERTIFICATE_VARIABLES {
        let Some(value) = env.get(name) else {
            continue;
        };
        let what = format!("the path in {name}");
        // The variable may list several folders.
        for path in std::env::split_paths(value) {
            verify(&what, &path, trust)?;
            for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                verify(&what, &entry.path(), trust)?;
            }
        }
    }
    let existing = SYSTEM_FILES.map(Path::new).into_iter();
    for path in existing.filter(|path| path.exists()) {
        verify("a system file", path, trust)?;
    }
    Ok(())
}

/// Returns every file mapped into a running helper: itself, the loader and its libraries.
fn mapped_files(helper: &Program, search_path: &OsStr) -> std::io::Result<Vec<PathBuf>> {
    let mut child = command(helper, search_path)
        .args(["origin", "https://nowhere.invalid/"])
        .stdin(Stdio::piped())
        .spawn()?;
    let read = (|| {
        if let Some(stdin) = &mut child.stdin {
            stdin.write_all(b"capabilities\n")?;
        }
        let mut line = String::new();
        if let Some(stdout) = &mut child.stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        std::fs::read_to_string(format!("/proc/{}/maps", child.id()))
    })();
    // The helper waits for further commands.
    let _ = child.kill();
    let _ = child.wait();
    let mut files: Vec<PathBuf> = read?
        .lines()
        .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])))
        .collect();
    files.sort_unstable();
    files.dedup();
    Ok(files)
}

fn command(program: &Program, search_path: &OsStr) -> Command {
    let (first, args) = program.command();
    let mut command = Command::new(first);
    command
        .args(args)
        .current_dir("/")
        .env_clear()
        .env("PATH", search_path)
        .env("HOME", NO_HOME)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::git::tests::path_env;

    fn env(pairs: &[(&str, &str)]) -> ChildEnv {
        let pairs = pairs.iter();
        ChildEnv::new(pairs.map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn finds_the_system_git_before_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let planted = dir.path().join("git");
        std::fs::write(&planted, "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(&planted, PermissionsExt::from_mode(0o755)).unwrap();
        let path = dir.path().display().to_string();
        let trust = PathTrust::for_current_user([]);
        let git = GitProgram::find(&env(&[("PATH", &path)]), &trust).unwrap();
        assert!(!git.path().starts_with(dir.path()), "{git:?}");
        assert_eq!(git.verify_unchanged().ok(), Some(()));
        assert!(git.exec_path.is_absolute(), "{git:?}");
        assert!(git.helper.is_some(), "{git:?}");
    }

    #[test]
    fn environment_of_git_is_independent_of_the_run() {
        let git = GitProgram::find(&path_env(), &PathTrust::for_current_user([])).unwrap();
        let environment = git.environment();
        let names: Vec<_> = environment.names().collect();
        assert_eq!(names, ["HOME", "LC_ALL", "PATH"]);
        assert_eq!(environment.get("HOME"), Some("/dev/null".as_ref()));
        assert_eq!(environment.get("PATH"), Some(git.search_path.as_os_str()));
    }

    #[test]
    fn rejects_a_git_that_the_agent_can_replace() {
        let excluded = SYSTEM_FOLDERS.map(PathBuf::from);
        let error =
            GitProgram::find(&path_env(), &PathTrust::for_current_user(excluded)).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("cannot trust git: /"), "{message}");
        assert!(
            message.contains("Install it where only root can write"),
            "{message}"
        );
        let nowhere = PathTrust::for_current_user(SYSTEM_FOLDERS.map(PathBuf::from));
        let error = GitProgram::find(&env(&[("PATH", "/nowhere")]), &nowhere).unwrap_err();
        assert!(
            error.to_string().starts_with("git is not installed"),
            "{error}"
        );
    }

    #[test]
    fn verifies_commands_libraries_and_certificates() {
        let git = GitProgram::find(&path_env(), &PathTrust::for_current_user([])).unwrap();
        let loaded = mapped_files(git.helper.as_ref().unwrap(), &git.search_path).unwrap();
        let library = loaded
            .iter()
            .find(|file| file.to_string_lossy().contains("curl"));
        let library = library.unwrap_or_else(|| panic!("{loaded:?}")).clone();
        let error_without = |path: &Path| {
            let trust = PathTrust::for_current_user([path.to_owned()]);
            GitProgram::find(&path_env(), &trust)
                .unwrap_err()
                .to_string()
        };
        let message = error_without(&git.exec_path);
        assert!(
            message.starts_with("cannot trust the folder of git's commands"),
            "{message}"
        );
        let message = error_without(&library);
        assert!(
            message.starts_with("cannot trust a library that git loads"),
            "{message}"
        );

        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("ca.pem");
        std::fs::write(&bundle, "").unwrap();
        let env = path_env().with("SSL_CERT_FILE", &bundle);
        let error = GitProgram::find(&env, &PathTrust::for_current_user([])).unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("cannot trust the path in SSL_CERT_FILE: /"),
            "{message}"
        );
    }
}

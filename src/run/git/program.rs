//! The git that the run calls: found before any foreign code runs, from files that it cannot change.
//!
//! Git makes the commit that is pushed, so everything that decides what is executed is pinned: the
//! program and the folder of its parts, the libraries that its helper for HTTP loads, the search
//! path, the language and the home folder. An agent that works as root could still replace files of the
//! system; they are compared with what was found before each command.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::child::ChildEnv;
use super::super::programs::trust::{PathTrust, UntrustedPathError};
use super::super::programs::{LoadedFile, Program, ProgramError, SYSTEM_FOLDERS, candidates};

/// Variables that name the certificates that our own requests believe.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Files that decide what is loaded and who is believed, where they exist.
const STEERING_FILES: [&str; 5] = [
    PRELOADED,
    LOADER_CACHE,
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/openssl.cnf",
];

/// Libraries that the loader adds to every program.
const PRELOADED: &str = "/etc/ld.so.preload";

/// Where the loader has noted which library is in which folder.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// In place of a home folder: nothing can lie below it, no `.netrc` and no settings.
const NO_HOME: &str = "/dev/null";

/// The part of git that talks HTTP.
const HELPER: &str = "git-remote-https";

/// Git, as it was found.
#[derive(Debug, Clone)]
pub struct GitProgram {
    program: Program,
    /// None where git was built without it.
    helper: Option<Program>,
    exec_path: PathBuf,
    search_path: OsString,
    /// What the helper loads.
    loaded: Vec<LoadedFile>,
    /// Installing any package changes it.
    loader_cache: LoadedFile,
}

/// Why no git can be relied on.
#[derive(Debug, thiserror::Error)]
pub enum GitProgramError {
    #[error("git is not installed: it is in none of the folders {0}")]
    Missing(String),
    #[error(
        "{what} cannot be relied on: {cause}. Whatever the agent may write could change what is pushed; \
         install it where only root may write, such as /usr/bin"
    )]
    Untrusted {
        what: String,
        cause: UntrustedPathError,
    },
    #[error("git: {0}")]
    Program(#[from] ProgramError),
    #[error("asking git for its parts: {0}")]
    Inspection(std::io::Error),
}

impl GitProgram {
    /// Finds git in the system's folders, else on the `PATH` of the environment, and verifies
    /// everything that is executed and loaded when it is called.
    pub fn find(env: &ChildEnv, trust: &PathTrust) -> Result<Self, GitProgramError> {
        let search_path = system_path(trust);
        let given = env.get("PATH").unwrap_or_default();
        let folders = std::env::join_paths(
            std::env::split_paths(&search_path).chain(std::env::split_paths(given)),
        );
        let folders = folders.unwrap_or_else(|_| search_path.clone());
        let mut refused = None;
        for path in candidates(OsStr::new("git"), &folders) {
            match trusted(&path, &search_path, trust) {
                Ok(program) => {
                    let found = Self::whole(program, search_path, trust)?;
                    certificates(env, trust)?;
                    return Ok(found);
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        let folders = folders.to_string_lossy().into_owned();
        Err(refused.unwrap_or(GitProgramError::Missing(folders)))
    }

    /// Asks git where its parts are.
    fn whole(
        program: Program,
        search_path: OsString,
        trust: &PathTrust,
    ) -> Result<Self, GitProgramError> {
        let asked = command(&program, &search_path)
            .arg("--exec-path")
            .output()
            .map_err(GitProgramError::Inspection)?;
        let exec_path = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim_end());
        verified("the folder of git's parts", &exec_path, trust)?;
        let helper = exec_path.join(HELPER);
        let helper = match helper.exists() {
            true => Some(trusted(&helper, &search_path, trust)?),
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
        found.loaded = found.loads().map_err(GitProgramError::Inspection)?;
        for file in &found.loaded {
            if file.path() != Path::new(PRELOADED) {
                verified("a library that git loads", file.path(), trust)?;
            }
        }
        Ok(found)
    }

    pub fn path(&self) -> &Path {
        self.program.path()
    }

    /// Begins every command line.
    pub fn exec_path_option(&self) -> OsString {
        let mut option = OsString::from("--exec-path=");
        option.push(&self.exec_path);
        option
    }

    /// The environment of every command. Nothing of the given one reaches git.
    pub fn environment(&self) -> ChildEnv {
        ChildEnv::default()
            .with("PATH", &self.search_path)
            .with("HOME", NO_HOME)
            // Its words are read.
            .with("LC_ALL", "C")
    }

    /// Whether git is still what was found, and loads what it loaded.
    pub fn verify_unchanged(&self) -> Result<(), ProgramError> {
        self.program.verify_unchanged()?;
        self.helper
            .as_ref()
            .map_or(Ok(()), Program::verify_unchanged)?;
        self.loaded
            .iter()
            .try_for_each(LoadedFile::verify_unchanged)?;
        if self.loader_cache.verify_unchanged().is_err() {
            let same = self.loads().is_ok_and(|loaded| loaded == self.loaded);
            return match same {
                true => Ok(()),
                false => Err(ProgramError::LoadedFileChanged(LOADER_CACHE.into())),
            };
        }
        Ok(())
    }

    /// Every file that is loaded into git's processes.
    fn loads(&self) -> std::io::Result<Vec<LoadedFile>> {
        let helper = self.helper.iter();
        let mut files = vec![PathBuf::from(PRELOADED)];
        for helper in helper {
            files.extend(loaded_by(helper, &self.search_path)?);
        }
        Ok(files.into_iter().map(LoadedFile::from_path).collect())
    }
}

/// Those of the system's folders that can be relied on.
fn system_path(trust: &PathTrust) -> OsString {
    let folders = SYSTEM_FOLDERS.map(Path::new).into_iter();
    let relied_on = folders.filter(|folder| trust.verify(folder).is_ok());
    std::env::join_paths(relied_on).unwrap_or_default()
}

fn trusted(
    path: &Path,
    search_path: &OsStr,
    trust: &PathTrust,
) -> Result<Program, GitProgramError> {
    verified("git", path, trust)?;
    let program = Program::find(path.as_os_str(), search_path)?;
    for file in program.executed_files() {
        verified("git", file, trust)?;
    }
    Ok(program)
}

fn verified(what: &str, path: &Path, trust: &PathTrust) -> Result<(), GitProgramError> {
    trust
        .verify(path)
        .map(drop)
        .map_err(|cause| GitProgramError::Untrusted {
            what: what.to_owned(),
            cause,
        })
}

/// Verifies the certificates that our own requests believe.
fn certificates(env: &ChildEnv, trust: &PathTrust) -> Result<(), GitProgramError> {
    for name in CERTIFICATES {
        let Some(value) = env.get(name) else {
            continue;
        };
        let what = format!("the variable {name}");
        // Several folders may be named.
        for path in std::env::split_paths(value) {
            verified(&what, &path, trust)?;
            for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                verified(&what, &entry.path(), trust)?;
            }
        }
    }
    let existing = STEERING_FILES.map(Path::new).into_iter();
    for path in existing.filter(|path| path.exists()) {
        verified("the system", path, trust)?;
    }
    Ok(())
}

/// Every file that a helper of git has mapped once it works: itself, the loader and its libraries.
fn loaded_by(helper: &Program, search_path: &OsStr) -> std::io::Result<Vec<PathBuf>> {
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
    // It waits for a command that never comes.
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
    fn the_systems_git_is_found_whatever_the_path_says() {
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
    fn nothing_of_the_environment_steers_it() {
        let git = GitProgram::find(&path_env(), &PathTrust::for_current_user([])).unwrap();
        let made = git.environment();
        let names: Vec<_> = made.names().collect();
        assert_eq!(names, ["HOME", "LC_ALL", "PATH"]);
        assert_eq!(made.get("HOME"), Some("/dev/null".as_ref()));
        assert_eq!(made.get("PATH"), Some(git.search_path.as_os_str()));
    }

    #[test]
    fn a_git_that_can_only_be_found_where_the_agent_works_ends_the_run_with_a_sentence() {
        let excluded = SYSTEM_FOLDERS.map(PathBuf::from);
        let error =
            GitProgram::find(&path_env(), &PathTrust::for_current_user(excluded)).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("git cannot be relied on: /"), "{said}");
        assert!(
            said.contains("install it where only root may write"),
            "{said}"
        );
        let nowhere = PathTrust::for_current_user(SYSTEM_FOLDERS.map(PathBuf::from));
        let error = GitProgram::find(&env(&[("PATH", "/nowhere")]), &nowhere).unwrap_err();
        assert!(
            error.to_string().starts_with("git is not installed"),
            "{error}"
        );
    }

    #[test]
    fn parts_and_libraries_and_certificates_are_verified_too() {
        let git = GitProgram::find(&path_env(), &PathTrust::for_current_user([])).unwrap();
        let loaded = loaded_by(git.helper.as_ref().unwrap(), &git.search_path).unwrap();
        let library = loaded
            .iter()
            .find(|file| file.to_string_lossy().contains("curl"));
        let library = library.unwrap_or_else(|| panic!("{loaded:?}")).clone();
        let refused = |path: &Path| {
            let trust = PathTrust::for_current_user([path.to_owned()]);
            GitProgram::find(&path_env(), &trust)
                .unwrap_err()
                .to_string()
        };
        let said = refused(&git.exec_path);
        assert!(
            said.starts_with("the folder of git's parts cannot be relied on"),
            "{said}"
        );
        let said = refused(&library);
        assert!(
            said.starts_with("a library that git loads cannot be relied on"),
            "{said}"
        );

        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("ca.pem");
        std::fs::write(&bundle, "").unwrap();
        let with = path_env().with("SSL_CERT_FILE", &bundle);
        let error = GitProgram::find(&with, &PathTrust::for_current_user([])).unwrap_err();
        let said = error.to_string();
        assert!(
            said.starts_with("the variable SSL_CERT_FILE cannot be relied on: /"),
            "{said}"
        );
    }
}

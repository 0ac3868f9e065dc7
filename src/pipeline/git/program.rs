//! The git that the run calls: found before any foreign code runs, from files that it cannot change.
//!
//! Git is handed the repository's token, so everything that decides what is executed then is pinned:
//! the program and the folder of its parts, the libraries that its helper for HTTP loads, the search
//! path, the language, the home folder and the certificates. An agent that works as root could still
//! replace files of the system; they are compared with what was found before each command.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::child::ChildEnv;
use super::super::programs::trust::{Distrust, Trust};
use super::super::programs::{Program, ProgramError, SYSTEM_FOLDERS, candidates};

/// What of the environment may reach git: the way out, and whom to trust there.
const PASSED_ON: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    CERTIFICATES[0],
    CERTIFICATES[1],
];

/// Variables that name certificates, for git and for our own requests.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Files that decide what is loaded and who is believed, where they exist.
const STEERING_FILES: [&str; 5] = [
    "/etc/ld.so.preload",
    "/etc/ld.so.cache",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/openssl.cnf",
];

/// In place of a home folder: nothing can lie below it, no `.netrc` and no settings.
const NO_HOME: &str = "/dev/null";

/// The part of git that talks HTTP. It is handed the token as well.
const HELPER: &str = "git-remote-https";

/// Git, as it was found.
#[derive(Debug, Clone)]
pub struct GitProgram {
    program: Program,
    /// None where git was built without it.
    helper: Option<Program>,
    exec_path: PathBuf,
    search_path: OsString,
}

/// Why no git can be relied on.
#[derive(Debug, thiserror::Error)]
pub enum GitProgramError {
    #[error("git is not installed: it is in none of the folders {0}")]
    Missing(String),
    #[error(
        "{what} cannot be relied on: {cause}. Whatever the agent may write could take the repository's token; \
         install it where only root may write, such as /usr/bin"
    )]
    Untrusted { what: String, cause: Distrust },
    #[error("git: {0}")]
    Program(#[from] ProgramError),
    #[error("asking git for its parts: {0}")]
    Asked(std::io::Error),
}

impl GitProgram {
    /// Finds git in the system's folders, else on the `PATH` of the environment, and verifies
    /// everything that is executed and loaded when it is called.
    pub fn find(env: &ChildEnv, trust: &Trust) -> Result<Self, GitProgramError> {
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
        trust: &Trust,
    ) -> Result<Self, GitProgramError> {
        let asked = command(&program, &search_path)
            .arg("--exec-path")
            .output()
            .map_err(GitProgramError::Asked)?;
        let exec_path = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim_end());
        verified("the folder of git's parts", &exec_path, trust)?;
        let helper = exec_path.join(HELPER);
        let helper = match helper.exists() {
            true => Some(trusted(&helper, &search_path, trust)?),
            false => None,
        };
        if let Some(helper) = &helper {
            let loaded = loaded_by(helper, &search_path).map_err(GitProgramError::Asked)?;
            for file in loaded {
                verified("a library that git loads", &file, trust)?;
            }
        }
        Ok(Self {
            program,
            helper,
            exec_path,
            search_path,
        })
    }

    pub fn path(&self) -> &Path {
        self.program.path()
    }

    /// Begins every command line.
    pub fn exec_path(&self) -> OsString {
        let mut option = OsString::from("--exec-path=");
        option.push(&self.exec_path);
        option
    }

    /// The environment of every command: what of the given one may reach git, and the pinned rest.
    pub fn environment(&self, env: &ChildEnv) -> ChildEnv {
        let passed = PASSED_ON.into_iter().filter_map(|name| {
            let value = env.get(name)?;
            Some((name.into(), value.to_owned()))
        });
        ChildEnv::new(passed)
            .with("PATH", &self.search_path)
            .with("HOME", NO_HOME)
            // Its words are read.
            .with("LC_ALL", "C")
    }

    /// Whether git is still what was found.
    pub fn check(&self) -> Result<(), ProgramError> {
        self.program.check()?;
        self.helper.as_ref().map_or(Ok(()), Program::check)
    }
}

/// Those of the system's folders that can be relied on.
fn system_path(trust: &Trust) -> OsString {
    let folders = SYSTEM_FOLDERS.map(Path::new).into_iter();
    let relied_on = folders.filter(|folder| trust.verify(folder).is_ok());
    std::env::join_paths(relied_on).unwrap_or_default()
}

fn trusted(path: &Path, search_path: &OsStr, trust: &Trust) -> Result<Program, GitProgramError> {
    verified("git", path, trust)?;
    let program = Program::find(path.as_os_str(), search_path)?;
    for file in program.files() {
        verified("git", file, trust)?;
    }
    Ok(program)
}

fn verified(what: &str, path: &Path, trust: &Trust) -> Result<(), GitProgramError> {
    trust
        .verify(path)
        .map(drop)
        .map_err(|cause| GitProgramError::Untrusted {
            what: what.to_owned(),
            cause,
        })
}

/// Verifies the certificates that git and our own requests believe.
fn certificates(env: &ChildEnv, trust: &Trust) -> Result<(), GitProgramError> {
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
    use crate::pipeline::git::tests::path_only;

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
        let trust = Trust::of_process([]);
        let git = GitProgram::find(&env(&[("PATH", &path)]), &trust).unwrap();
        assert!(!git.path().starts_with(dir.path()), "{git:?}");
        assert_eq!(git.check().ok(), Some(()));
        assert!(git.exec_path.is_absolute(), "{git:?}");
        assert!(git.helper.is_some(), "{git:?}");
    }

    #[test]
    fn nothing_of_the_environment_steers_it() {
        let git = GitProgram::find(&path_only(), &Trust::of_process([])).unwrap();
        let given = env(&[
            ("PATH", "/evil"),
            ("HOME", "/evil"),
            ("LANG", "de_DE.UTF-8"),
            ("LD_PRELOAD", "/evil.so"),
            ("LD_LIBRARY_PATH", "/evil"),
            ("GIT_EXEC_PATH", "/evil"),
            ("GIT_SSH_COMMAND", "evil"),
            ("XDG_CONFIG_HOME", "/evil"),
            ("NPM_TOKEN", "secret"),
            ("HTTPS_PROXY", "http://proxy"),
        ]);
        let made = git.environment(&given);
        let names: Vec<_> = made.names().collect();
        assert_eq!(names, ["HOME", "HTTPS_PROXY", "LC_ALL", "PATH"]);
        assert_eq!(made.get("HOME"), Some("/dev/null".as_ref()));
        assert_eq!(made.get("PATH"), Some(git.search_path.as_os_str()));
    }

    #[test]
    fn a_git_that_can_only_be_found_where_the_agent_works_ends_the_run_with_a_sentence() {
        let excluded = SYSTEM_FOLDERS.map(PathBuf::from);
        let error = GitProgram::find(&path_only(), &Trust::of_process(excluded)).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("git cannot be relied on: /"), "{said}");
        assert!(
            said.contains("install it where only root may write"),
            "{said}"
        );
        let nowhere = Trust::of_process(SYSTEM_FOLDERS.map(PathBuf::from));
        let error = GitProgram::find(&env(&[("PATH", "/nowhere")]), &nowhere).unwrap_err();
        assert!(
            error.to_string().starts_with("git is not installed"),
            "{error}"
        );
    }

    #[test]
    fn parts_and_libraries_and_certificates_are_verified_too() {
        let git = GitProgram::find(&path_only(), &Trust::of_process([])).unwrap();
        let loaded = loaded_by(git.helper.as_ref().unwrap(), &git.search_path).unwrap();
        let library = loaded
            .iter()
            .find(|file| file.to_string_lossy().contains("curl"));
        let library = library.unwrap_or_else(|| panic!("{loaded:?}")).clone();
        let refused = |path: &Path| {
            let trust = Trust::of_process([path.to_owned()]);
            GitProgram::find(&path_only(), &trust)
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
        let with = path_only().with("SSL_CERT_FILE", &bundle);
        let error = GitProgram::find(&with, &Trust::of_process([])).unwrap_err();
        let said = error.to_string();
        assert!(
            said.starts_with("the variable SSL_CERT_FILE cannot be relied on: /"),
            "{said}"
        );
    }
}

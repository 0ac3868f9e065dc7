//! Git repository of a run, protected from the agent.
//!
//! The run uses a git directory outside the work tree. A `.git` in the work tree, planted by an
//! agent or a repository, is never read. System and global configuration are disabled, so no hook,
//! filter, alias or URL rewrite has an effect. The agent may run as the same user and write to the
//! run's git directory too. So its configuration is rewritten, and everything that influences git
//! is removed, before each command ([`Git::harden_git_dir`]). Commits are addressed by ids kept in
//! memory, not by refs.
//!
//! - [`program`]: location and verification of git and the libraries it loads.
//! - [`remote`]: commands that access the remote. Git never gets a token: a relay in this process
//!   adds it to requests that [`request_policy`] allows.
//! - [`staging`]: import of the work tree.
//! - [`changes`]: changes between trees.
//! - `apply`: application of a patch to a tree.
//! - `index_time`: times by which git recognises changed files.
//! - `mirror`: copy of a mirror of the repository.
//! - [`merge`]: merge of two commits; `merge_without_ort`: the same with older git.
//! - [`version`]: oldest version of git.

mod apply;
pub(crate) mod changes;
mod commits;
mod index_time;
mod lfs;
pub(crate) mod local;
pub(crate) mod merge;
mod merge_without_ort;
mod mirror;
pub(crate) mod program;
pub(crate) mod remote;
pub(crate) mod request_policy;
pub(crate) mod staging;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod version;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::child::{self, ChildEnv, ChildError, ChildOutput, ChildSpec};
use super::programs::ProgramError;
use domain::sanitize;
use program::GitProgram;
use vendors::http::RelayClient;

/// Maximum time of one git command.
const GIT_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Maximum length of git's error output in a failure, in bytes.
const MAX_STDERR: usize = 2000;

/// Allowed transport of repositories. Local files are for tests only: a submodule or alternate
/// given as a file path must not reach the run's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// HTTP, through the relay.
    Web,
    /// Local files.
    LocalFiles,
}

/// Complete configuration of the run's repository.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfilemode = true\n";

/// Paths in a git directory that can change what git executes or reads.
const INFLUENCING_PATHS: [&str; 9] = [
    "hooks",
    "config.worktree",
    "commondir",
    "gitdir",
    "modules",
    "info/attributes",
    "info/grafts",
    "objects/info/alternates",
    "refs/replace",
];

/// Settings of every git command. They override every configuration file.
const GIT_SETTINGS: [&str; 25] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=false",
    "core.pager=cat",
    "commit.gpgSign=false",
    "push.gpgSign=false",
    "credential.helper=",
    "http.followRedirects=false",
    "http.proxy=",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.fsckObjects=true",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "fetch.fsck.badTimezone=ignore",
    "gc.auto=0",
    // Ignored by git older than 2.32.
    "checkout.workers=4",
    "advice.detachedHead=false",
];

/// Git directory of the run and the agent's work tree.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    /// Verified git program. `None` uses git from `PATH`, for commands of a user on an own repository.
    pub program: Option<GitProgram>,
    /// Client for connections to the remote. `None` if the remote is a local folder.
    pub relay_client: Option<RelayClient>,
    /// Git directory of the run.
    pub git_dir: PathBuf,
    /// Work tree of the agent.
    pub work_tree: PathBuf,
    /// URL of the remote, without credentials.
    pub url: String,
    /// Environment of every command.
    pub env: ChildEnv,
    /// Allowed transport.
    pub transport: Transport,
}

/// Failure of a git operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// Git exited with an error.
    #[error("{action} failed (exit {code}): {stderr}")]
    Failed {
        /// Command.
        action: &'static str,
        /// Exit code.
        code: i32,
        /// Sanitized error output.
        stderr: String,
    },
    /// Git could not be run to completion.
    #[error("{action}: {cause}")]
    Child {
        /// Command.
        action: &'static str,
        /// Cause.
        cause: ChildError,
    },
    /// Git printed unexpected output.
    #[error("{action}: git printed unexpected output")]
    UnexpectedOutput {
        /// Command.
        action: &'static str,
    },
    /// A file operation failed.
    #[error("{action}: {cause}")]
    Io {
        /// Operation.
        action: &'static str,
        /// Cause.
        cause: std::io::Error,
    },
}

impl Git {
    /// Creates the empty repository and its work tree.
    pub(crate) async fn init(&self) -> Result<(), GitError> {
        let action = "creating the work folder";
        for dir in [&self.git_dir, &self.work_tree] {
            std::fs::create_dir_all(dir).map_err(|cause| GitError::Io { action, cause })?;
        }
        self.run("git init", ["init", "--quiet", "--template="], &[])
            .await?;
        Ok(())
    }

    /// Checks out a commit on a branch of this name.
    pub(crate) async fn checkout(&self, branch: &str, commit: &str) -> Result<(), GitError> {
        let action = "git checkout";
        self.run(
            action,
            ["checkout", "--quiet", "--force", "-B", branch, commit],
            &[],
        )
        .await?;
        index_time::advance(&self.index()).map_err(|cause| GitError::Io { action, cause })
    }

    /// Prepares for changes of the work tree. Must be called before foreign code runs.
    pub(crate) fn expect_changes(&self) {
        // Without an index, nothing is checked out.
        let _ = index_time::restore(&self.index());
    }

    fn index(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    /// Copies the git directory into the work tree, without credentials, so that the agent can read
    /// the history. The copy is never read back. Packs are linked: git replaces them and never changes one, and an agent
    /// that wants to can reach the run's git directory anyway.
    pub(crate) async fn copy_for_agent(&self) -> Result<(), GitError> {
        let (from, to) = (self.git_dir.clone(), self.work_tree.join(".git"));
        tasks::spawn_blocking(move || {
            copy_folder(&from, &to)?;
            let config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\
                          [user]\n\tname = agent\n\temail = agent@noreply.invalid\n";
            std::fs::write(to.join("config"), config)
        })
        .await
        .map_err(std::io::Error::other)
        .and_then(|result| result)
        .map_err(|cause| GitError::Io {
            action: "copying the repository for the agent",
            cause,
        })
    }

    fn spec<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> ChildSpec {
        let options = [
            ("--git-dir=", &self.git_dir),
            ("--work-tree=", &self.work_tree),
        ];
        let options = options.map(|(flag, dir)| {
            let mut option = OsString::from(flag);
            option.push(dir);
            option
        });
        let protocols = match self.transport {
            // The relay listens on HTTP.
            Transport::Web => "http",
            Transport::LocalFiles => "file",
        };
        let args = options
            .into_iter()
            .chain(args.into_iter().map(OsString::from));
        let env = self.env.clone().with("GIT_ALLOW_PROTOCOL", protocols);
        let mut spec = hardened_spec(&self.work_tree, env, args);
        if let Some(program) = &self.program {
            spec.program = program.path().into();
            spec.args.insert(0, program.exec_path_option());
        }
        spec
    }

    async fn run<'a>(
        &self,
        action: &'static str,
        args: impl IntoIterator<Item = &'a str>,
        input: &[u8],
    ) -> Result<ChildOutput, GitError> {
        let mut spec = self.spec(args);
        spec.input = input.to_vec();
        self.run_spec(action, &spec).await
    }

    /// Verifies that git is unchanged since it was found.
    pub(crate) fn verify_program(&self) -> Result<(), ProgramError> {
        self.program
            .as_ref()
            .map_or(Ok(()), GitProgram::verify_unchanged)
    }

    /// Removes everything from the git directory that could influence git, and rewrites its
    /// configuration.
    fn harden_git_dir(&self) -> std::io::Result<()> {
        self.verify_program().map_err(std::io::Error::other)?;
        // A file or link in place of the folder would point git to another, unprotected directory.
        if !self.git_dir.symlink_metadata()?.is_dir() {
            let problem = "the run's git directory was replaced";
            return Err(std::io::Error::other(problem));
        }
        for name in INFLUENCING_PATHS {
            let path = self.git_dir.join(name);
            match path.symlink_metadata() {
                Ok(found) if found.is_dir() => std::fs::remove_dir_all(&path)?,
                Ok(_) => std::fs::remove_file(&path)?,
                Err(_) => {}
            }
        }
        // Written to a new file and renamed, so that no link is followed.
        let fresh = tempfile::NamedTempFile::new_in(&self.git_dir)?;
        std::fs::write(fresh.path(), CONFIG)?;
        fresh.persist(self.git_dir.join("config"))?;
        Ok(())
    }

    /// Runs a command and passes its output, of any size, to `on_chunk` as it arrives.
    async fn stream<'a>(
        &self,
        action: &'static str,
        args: impl IntoIterator<Item = &'a str>,
        on_chunk: impl FnMut(&[u8]),
    ) -> Result<(), GitError> {
        self.harden_git_dir()
            .map_err(|cause| GitError::Io { action, cause })?;
        let spec = self.spec(args);
        let exit = child::stream(&spec, Instant::now() + GIT_TIMEOUT, on_chunk)
            .await
            .map_err(|cause| GitError::Child { action, cause })?;
        if exit.success() {
            return Ok(());
        }
        Err(GitError::Failed {
            action,
            code: exit.code(),
            stderr: String::new(),
        })
    }

    async fn run_spec(
        &self,
        action: &'static str,
        spec: &ChildSpec,
    ) -> Result<ChildOutput, GitError> {
        self.harden_git_dir()
            .map_err(|cause| GitError::Io { action, cause })?;
        capture_output(action, spec).await
    }

    /// Runs a command whose exit codes up to `max_code` are results.
    async fn run_spec_up_to(
        &self,
        action: &'static str,
        spec: &ChildSpec,
        max_code: i32,
    ) -> Result<ChildOutput, GitError> {
        self.harden_git_dir()
            .map_err(|cause| GitError::Io { action, cause })?;
        let output = child::capture(spec, Instant::now() + GIT_TIMEOUT)
            .await
            .map_err(|cause| GitError::Child { action, cause })?;
        match (0..=max_code).contains(&output.exit.code()) {
            true => Ok(output),
            false => Err(failed(action, &output)),
        }
    }
}

/// Returns the spec of a git command that ignores system and user configuration.
fn hardened_spec(dir: &Path, env: ChildEnv, args: impl IntoIterator<Item = OsString>) -> ChildSpec {
    let mut all: Vec<OsString> = vec!["--no-pager".into()];
    for setting in GIT_SETTINGS {
        all.extend(["-c".into(), setting.into()]);
    }
    all.extend(args);
    ChildSpec {
        program: "git".into(),
        args: all,
        dir: dir.to_owned(),
        env: env
            .with("GIT_CONFIG_NOSYSTEM", "1")
            .with("GIT_ATTR_NOSYSTEM", "1")
            .with("GIT_CONFIG_GLOBAL", "/dev/null")
            .with("GIT_TERMINAL_PROMPT", "0")
            .with("GIT_LFS_SKIP_SMUDGE", "1")
            .with("GIT_NO_REPLACE_OBJECTS", "1")
            .with("GIT_OPTIONAL_LOCKS", "0")
            .with("GIT_LITERAL_PATHSPECS", "1"),
        input: Vec::new(),
    }
}

/// Runs a command to completion and returns its output.
async fn capture_output(action: &'static str, spec: &ChildSpec) -> Result<ChildOutput, GitError> {
    let output = child::capture(spec, Instant::now() + GIT_TIMEOUT)
        .await
        .map_err(|cause| GitError::Child { action, cause })?;
    match output.exit.success() {
        true => Ok(output),
        false => Err(failed(action, &output)),
    }
}

/// Returns the error of a command that failed.
fn failed(action: &'static str, output: &ChildOutput) -> GitError {
    let stderr: Vec<_> = output.stderr.lines().map(sanitize::log_line).collect();
    let stderr = stderr.join("\n");
    GitError::Failed {
        action,
        code: output.exit.code(),
        stderr: sanitize::truncate(stderr.trim(), MAX_STDERR, sanitize::ELLIPSIS).into_owned(),
    }
}

/// Parses the single object id that a command printed.
fn parse_object_id(action: &'static str, output: &ChildOutput) -> Result<String, GitError> {
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let is_id = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric());
    is_id
        .then_some(id)
        .ok_or(GitError::UnexpectedOutput { action })
}

/// Splits output at NUL bytes.
fn split_nul(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let path = entry.path();
        let is_pack = path
            .extension()
            .is_some_and(|end| end == "pack" || end == "idx");
        if entry.file_type()?.is_dir() {
            copy_folder(&path, &target)?;
        } else if !(is_pack && std::fs::hard_link(&path, &target).is_ok()) {
            std::fs::copy(path, target)?;
        }
    }
    Ok(())
}

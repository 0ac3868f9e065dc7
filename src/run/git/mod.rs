//! Git, kept out of the agent's reach.
//!
//! The run owns a git directory outside the work tree; what an agent or a repository plants in the
//! tree's own `.git` is never read. System and global configuration are off, so no hook, filter,
//! alias or rewritten address exists. Where agent and run are the same user, the agent can write to
//! the run's directory as well: before each command its configuration is written anew and whatever
//! could steer git is removed ([`Git::seal`]); commits are named by ids the run remembers, not refs.
//! Which program git is, what it loads and the rest of its environment is pinned in [`program`]. No
//! token ever reaches git: a relay in this process adds it to what a command may ask the host for
//! ([`allowed`]). Importing the work tree is in [`import`], talking to the host in [`remote`],
//! reading what changed in [`changes`].

pub mod changes;
pub mod local;
pub mod program;
pub mod remote;
pub mod request_policy;
pub mod staging;
#[cfg(test)]
pub(crate) mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::child::{self, ChildEnv, ChildError, ChildOutput, ChildSpec};
use super::programs::ProgramError;
use super::text;
use program::GitProgram;
use vendors::http::RelayClient;

/// How long may one git command take?
const GIT_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How much of git's own words do we keep of a failure?
const MAX_SAID: usize = 2000;

/// Where repositories may come from. Local files serve tests; a repository that names a file as a
/// submodule or alternate must never reach the run's own disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Web,
    LocalFiles,
}

/// The whole configuration of the run's repository.
const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfilemode = true\n";

/// What in a git directory can make git run, read or believe something else.
const STEERING: [&str; 9] = [
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

/// Settings of every git command. They beat whatever a file says.
const SETTINGS: [&str; 24] = [
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
    "advice.detachedHead=false",
];

/// The run's own repository and the tree that the agent works in.
#[derive(Debug, Clone)]
pub struct Git {
    /// The git that was verified. None where it is found by `PATH`: at a shell, for a repository of its
    /// user's own.
    pub program: Option<GitProgram>,
    /// The connections to the host. None where the repository is a folder.
    pub relay_client: Option<RelayClient>,
    pub git_dir: PathBuf,
    pub work_tree: PathBuf,
    /// Where the repository is fetched from and pushed to. Never holds a credential.
    pub url: String,
    /// The environment of every command.
    pub env: ChildEnv,
    pub transport: Transport,
}

/// A git command that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("{action} failed (exit {code}): {stderr}")]
    Failed {
        action: &'static str,
        code: i32,
        stderr: String,
    },
    #[error("{action}: {cause}")]
    Child {
        action: &'static str,
        cause: ChildError,
    },
    #[error("{action}: git's answer was not understood")]
    UnexpectedOutput { action: &'static str },
    #[error("{action}: {cause}")]
    Io {
        action: &'static str,
        cause: std::io::Error,
    },
}

impl Git {
    /// Makes the empty repository and its work tree.
    pub async fn init(&self) -> Result<(), GitError> {
        let action = "making the work folder";
        for dir in [&self.git_dir, &self.work_tree] {
            std::fs::create_dir_all(dir).map_err(|cause| GitError::Io { action, cause })?;
        }
        self.run("git init", ["init", "--quiet", "--template="], &[])
            .await?;
        Ok(())
    }

    /// Puts a commit into the work tree, on a branch of that name.
    pub async fn checkout(&self, branch: &str, commit: &str) -> Result<(), GitError> {
        self.run(
            "git checkout",
            ["checkout", "--quiet", "--force", "-B", branch, commit],
            &[],
        )
        .await?;
        Ok(())
    }

    /// A file of a commit, if the commit has it.
    pub async fn read_file(&self, commit: &str, path: &str) -> Result<Option<String>, GitError> {
        let listed = self
            .run("git ls-tree", ["ls-tree", "-z", commit, "--", path], &[])
            .await?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        // A symbolic link is not followed: it may lead anywhere.
        let Some(blob) = listed
            .strip_prefix("100")
            .and_then(|entry| entry.split(['\t', ' ']).nth(2))
        else {
            return Ok(None);
        };
        let content = self
            .run("git cat-file", ["cat-file", "blob", blob], &[])
            .await?;
        Ok(Some(String::from_utf8_lossy(&content.stdout).into_owned()))
    }

    /// Makes a commit of a tree and moves the branch to it. No hook, no signature.
    pub async fn commit(
        &self,
        tree: &str,
        parent: &str,
        message: &str,
    ) -> Result<String, GitError> {
        let action = "git commit";
        let mut spec = self.spec(["commit-tree", tree, "-p", parent, "-F", "-"]);
        spec.input = message.as_bytes().to_vec();
        let (name, email) = ("Agent Implement", "agent-implement@noreply.invalid");
        spec.env = spec
            .env
            .with("GIT_AUTHOR_NAME", name)
            .with("GIT_AUTHOR_EMAIL", email)
            .with("GIT_COMMITTER_NAME", name)
            .with("GIT_COMMITTER_EMAIL", email);
        let commit = parse_object_id(action, &self.run_spec(action, &spec).await?)?;
        self.run(
            action,
            ["update-ref", "--no-deref", "HEAD", commit.as_str()],
            &[],
        )
        .await?;
        Ok(commit)
    }

    /// The commit that a name stands for.
    pub async fn resolve(&self, name: &str) -> Result<String, GitError> {
        let action = "git rev-parse";
        let name = format!("{name}^{{commit}}");
        let answer = self
            .run(action, ["rev-parse", "--verify", "--quiet", &name], &[])
            .await?;
        parse_object_id(action, &answer)
    }

    /// The tree of a commit.
    pub async fn resolve_tree(&self, commit: &str) -> Result<String, GitError> {
        let action = "git rev-parse";
        let name = format!("{commit}^{{tree}}");
        let answer = self
            .run(action, ["rev-parse", "--verify", "--quiet", &name], &[])
            .await?;
        parse_object_id(action, &answer)
    }

    /// The commit where two histories part, if the fetched parts of them meet.
    pub async fn merge_base(&self, one: &str, other: &str) -> Result<Option<String>, GitError> {
        let action = "git merge-base";
        match self.run(action, ["merge-base", one, other], &[]).await {
            Ok(answer) => parse_object_id(action, &answer).map(Some),
            Err(GitError::Failed { code: 1, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the work tree a `.git` of its own, without credentials, so that the agent can look at
    /// history. It is never read back.
    pub async fn copy_for_agent(&self) -> Result<(), GitError> {
        let (from, to) = (self.git_dir.clone(), self.work_tree.join(".git"));
        tokio::task::spawn_blocking(move || {
            copy_folder(&from, &to)?;
            let config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\
                          [user]\n\tname = agent\n\temail = agent@noreply.invalid\n";
            std::fs::write(to.join("config"), config)
        })
        .await
        .map_err(std::io::Error::other)
        .and_then(|copied| copied)
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
            // The relay's own address.
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

    /// Whether git is still the one that was verified.
    pub fn verify_program(&self) -> Result<(), ProgramError> {
        self.program
            .as_ref()
            .map_or(Ok(()), GitProgram::verify_unchanged)
    }

    /// Takes out of the git directory whatever foreign code may have put there.
    fn harden_git_dir(&self) -> std::io::Result<()> {
        self.verify_program().map_err(std::io::Error::other)?;
        // In place of the folder, a file or a link would lead git to another one, which nobody seals.
        if !self.git_dir.symlink_metadata()?.is_dir() {
            let problem = "the run's git directory was replaced";
            return Err(std::io::Error::other(problem));
        }
        for name in STEERING {
            let path = self.git_dir.join(name);
            match path.symlink_metadata() {
                Ok(found) if found.is_dir() => std::fs::remove_dir_all(&path)?,
                Ok(_) => std::fs::remove_file(&path)?,
                Err(_) => {}
            }
        }
        // Written beside and moved, so that no link is followed.
        let fresh = tempfile::NamedTempFile::new_in(&self.git_dir)?;
        std::fs::write(fresh.path(), CONFIG)?;
        fresh.persist(self.git_dir.join("config"))?;
        Ok(())
    }

    /// Runs a command whose output may be of any size, and hands it on as it comes.
    async fn stream<'a>(
        &self,
        action: &'static str,
        args: impl IntoIterator<Item = &'a str>,
        take: impl FnMut(&[u8]),
    ) -> Result<(), GitError> {
        self.harden_git_dir()
            .map_err(|cause| GitError::Io { action, cause })?;
        let spec = self.spec(args);
        let exit = child::stream(&spec, Instant::now() + GIT_TIMEOUT, take)
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
}

/// A git command in a folder that obeys no configuration of the system or the user.
fn hardened_spec(dir: &Path, env: ChildEnv, args: impl IntoIterator<Item = OsString>) -> ChildSpec {
    let mut all: Vec<OsString> = vec!["--no-pager".into()];
    for setting in SETTINGS {
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

/// Runs a command to its end, and returns what it printed.
async fn capture_output(action: &'static str, spec: &ChildSpec) -> Result<ChildOutput, GitError> {
    let captured = child::capture(spec, Instant::now() + GIT_TIMEOUT)
        .await
        .map_err(|cause| GitError::Child { action, cause })?;
    if captured.exit.success() {
        return Ok(captured);
    }
    let said: Vec<String> = captured
        .stderr
        .lines()
        .map(text::sanitize_log_line)
        .collect();
    Err(GitError::Failed {
        action,
        code: captured.exit.code(),
        stderr: text::truncate(said.join("\n").trim(), MAX_SAID),
    })
}

/// The single word that a command answered.
fn parse_object_id(action: &'static str, captured: &ChildOutput) -> Result<String, GitError> {
    let answer = String::from_utf8_lossy(&captured.stdout).trim().to_owned();
    let plain = !answer.is_empty() && answer.chars().all(|c| c.is_ascii_alphanumeric());
    plain
        .then_some(answer)
        .ok_or(GitError::UnexpectedOutput { action })
}

/// Parts of an answer that are separated by zero bytes.
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
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

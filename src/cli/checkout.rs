//! Checkout of the work on an issue in a clone of its repository, for `agent-implement take --checkout`.
//!
//! The branch and the patch are written by an agent. Hooks are off, because a hook may be a file of the branch. Nothing
//! that is not committed, and no commit of the person, is changed: the clone must be clean, and its branch is only moved
//! forward.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use domain::take_over_guide::TakeOverGuide;

/// Settings of git that keep code of the branch from running.
const SAFE_SETTINGS: [&str; 6] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "submodule.recurse=false",
];

/// Reason why the work is not checked out.
#[derive(Debug)]
pub(super) enum CheckoutError {
    /// The folder cannot be used, with the sentence that says why. Nothing was changed.
    Refused(String),
    /// Git failed, with its message.
    Failed(String),
}

/// Clone that was checked, and what to put into it.
#[derive(Debug)]
pub(super) struct WorkTree {
    root: PathBuf,
    remote: String,
    branch: String,
    /// Branch to fetch: the branch itself, or the base of a branch that is not pushed yet.
    fetched: String,
    /// Whether the work is there already, with the patch.
    is_done: bool,
}

/// Returns the name that git signs commits with.
pub(super) fn user_name() -> Option<String> {
    let output = Command::new("git").args(["config", "user.name"]).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Checks that a folder is in a clean clone of the repository of a guide.
///
/// # Errors
/// If it is not, or if git cannot be run.
pub(super) fn open(
    folder: &Path,
    guide: &TakeOverGuide,
    patch: Option<&[u8]>,
) -> Result<WorkTree, CheckoutError> {
    let refused = |sentence: String| Err(CheckoutError::Refused(sentence));
    let (Some(repo), Some(branch)) = (&guide.repo, &guide.branch) else {
        return refused("No run has worked on the issue yet, so there is no branch.".to_owned());
    };
    let fetched = match (guide.branch_exists, &guide.base_branch) {
        (false, Some(base)) => base,
        _ => branch,
    };
    let top = run(git(folder).args(["rev-parse", "--show-toplevel"]))?;
    if !top.status.success() {
        let folder = folder.display();
        return refused(format!(
            "{folder} is not in a work tree of git. Change to a clone of {repo}, and repeat the command."
        ));
    }
    let root = PathBuf::from(text(&top.stdout).trim_end_matches('\n'));
    if is_of_another_user(&root) {
        return refused(format!(
            "{} belongs to another user. Run the command without --checkout, and the printed commands as that user.",
            root.display()
        ));
    }
    for name in [branch, fetched] {
        let full_name = format!("refs/heads/{name}");
        let is_valid = run(git(&root).args(["check-ref-format", &full_name]))?
            .status
            .success();
        if name.starts_with('-') || !is_valid {
            return refused(format!("\"{name}\" is no name for a branch of a clone."));
        }
    }
    let mut work_tree = WorkTree {
        remote: remote_of(&root, repo)?,
        root,
        branch: branch.clone(),
        fetched: fetched.clone(),
        is_done: false,
    };
    work_tree.is_done = work_tree.has_patch_applied(patch)?;
    if !work_tree.is_done && !work_tree.output(&["status", "--porcelain"])?.is_empty() {
        return refused(format!(
            "{} has changes that are not committed. Commit or stash them (git stash --include-untracked), and repeat \
             the command.",
            work_tree.root.display()
        ));
    }
    Ok(work_tree)
}

/// Whether root would write files for another user, as with sudo.
fn is_of_another_user(root: &Path) -> bool {
    let owner = root.metadata().map(|found| found.uid());
    rustix::process::geteuid().is_root() && owner.is_ok_and(|owner| owner != 0)
}

/// Returns the name of the remote that is the repository.
fn remote_of(root: &Path, repo: &str) -> Result<String, CheckoutError> {
    let names = succeeded(run(git(root).arg("remote"))?)?;
    let mut found = Vec::new();
    for name in names.lines() {
        let url = run(git(root).args(["remote", "get-url", "--", name]))?;
        let url = text(&url.stdout).trim().to_owned();
        match repo_in_url(&url) {
            Some(named) if named.eq_ignore_ascii_case(repo) => return Ok(name.to_owned()),
            Some(named) => found.push(named),
            None => {}
        }
    }
    let found = match &found[..] {
        [] => "It has no remote with a repository".to_owned(),
        found => format!("Its remotes are {}", found.join(", ")),
    };
    Err(CheckoutError::Refused(format!(
        "{} is not a clone of {repo}. {found}. Change to a clone, and repeat the command.",
        root.display()
    )))
}

/// Returns owner and name of the repository in the address of a remote: `https://host/owner/name.git`,
/// `ssh://git@host/owner/name`, `git@host:owner/name.git`, or a path.
fn repo_in_url(url: &str) -> Option<String> {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?.1,
        // The host of the short form ends with the first colon.
        None => url.split_once(':').map_or(url, |(_, path)| path),
    };
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let (rest, name) = path.rsplit_once('/')?;
    let owner = rest.rsplit('/').next()?;
    (!owner.is_empty() && !name.is_empty()).then(|| format!("{owner}/{name}"))
}

impl WorkTree {
    /// Fetches the branch, switches to it and applies the patch. Returns what was done, as lines.
    ///
    /// # Errors
    /// If local and remote branch have diverged, or if git fails.
    pub(super) fn check_out(&self, patch: Option<&[u8]>) -> Result<Vec<String>, CheckoutError> {
        let Self { branch, remote, .. } = self;
        if self.is_done {
            return Ok(vec![format!(
                "The work is here already, on branch {branch} with the patch."
            )]);
        }
        let tracked = format!("refs/remotes/{remote}/{}", self.fetched);
        let refspec = format!("+refs/heads/{}:{tracked}", self.fetched);
        self.output(&[
            "fetch",
            "--no-tags",
            "--no-recurse-submodules",
            "--",
            remote,
            &refspec,
        ])?;
        let mut done = vec![format!("Fetched {} from {remote}.", self.fetched)];
        self.switch(&tracked)?;
        done.push(format!("Switched to branch {branch}."));
        if let Some(patch) = patch.filter(|patch| has_changes(patch)) {
            done.push(self.apply(patch)?);
        }
        Ok(done)
    }

    /// Switches to the local branch, which is created or moved forward.
    fn switch(&self, tracked: &str) -> Result<(), CheckoutError> {
        let branch = self.branch.as_str();
        let local = format!("refs/heads/{branch}");
        let is_pushed = self.fetched == self.branch;
        if !self.succeeds(&["show-ref", "--verify", "--quiet", &local])? {
            let track = if is_pushed { "--track" } else { "--no-track" };
            let switch = ["switch", "--quiet", track, "--create", branch, tracked];
            return self.output(&switch).map(drop);
        }
        let is_behind = self.succeeds(&["merge-base", "--is-ancestor", &local, tracked])?;
        let is_ahead = self.succeeds(&["merge-base", "--is-ancestor", tracked, &local])?;
        if is_pushed && !is_behind && !is_ahead {
            return Err(CheckoutError::Refused(format!(
                "The local branch {branch} and the one on {} have diverged. Nothing was changed. Merge them, and repeat \
                 the command.",
                self.remote
            )));
        }
        self.output(&["switch", "--quiet", "--no-guess", branch])?;
        if is_pushed && is_behind {
            self.output(&["merge", "--quiet", "--ff-only", tracked])?;
        }
        Ok(())
    }

    /// Applies the patch, unless its changes are there. Returns what was done.
    fn apply(&self, patch: &[u8]) -> Result<String, CheckoutError> {
        if self.is_applied(patch)? {
            return Ok("The kept patch is applied already.".to_owned());
        }
        let applied = run_with(git(&self.root).args(["apply", "--3way"]), patch)?;
        match applied.status.success() {
            true => Ok("Applied the kept patch. Its changes are staged, not committed.".to_owned()),
            false => Err(CheckoutError::Failed(format!(
                "the kept patch does not apply cleanly. Resolve the conflicts that git status lists, or discard them with \
                 git reset --hard; the patch stays at the service.\n{}",
                text(&applied.stderr)
            ))),
        }
    }

    /// Whether the clone is on the branch and has the changes of the patch.
    fn has_patch_applied(&self, patch: Option<&[u8]>) -> Result<bool, CheckoutError> {
        let Some(patch) = patch.filter(|patch| has_changes(patch)) else {
            return Ok(false);
        };
        let current = run(git(&self.root).args(["symbolic-ref", "--quiet", "--short", "HEAD"]))?;
        let is_on_branch = text(&current.stdout).trim_end_matches('\n') == self.branch;
        Ok(is_on_branch && self.is_applied(patch)?)
    }

    fn is_applied(&self, patch: &[u8]) -> Result<bool, CheckoutError> {
        let check = ["apply", "--check", "--reverse"];
        Ok(run_with(git(&self.root).args(check), patch)?
            .status
            .success())
    }

    fn succeeds(&self, args: &[&str]) -> Result<bool, CheckoutError> {
        Ok(run(git(&self.root).args(args))?.status.success())
    }

    fn output(&self, args: &[&str]) -> Result<String, CheckoutError> {
        succeeded(run(git(&self.root).args(args))?)
    }
}

/// Whether a patch changes a file. A patch may have comments only.
fn has_changes(patch: &[u8]) -> bool {
    let mut lines = patch.split(|byte| *byte == b'\n');
    lines.any(|line| line.starts_with(b"diff --git "))
}

fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg::<&OsStr>(folder.as_ref());
    command.args(SAFE_SETTINGS);
    command
}

fn run(command: &mut Command) -> Result<Output, CheckoutError> {
    let output = command.stdin(Stdio::null()).output();
    output.map_err(|error| CheckoutError::Failed(format!("cannot be run: {error}")))
}

fn run_with(command: &mut Command, input: &[u8]) -> Result<Output, CheckoutError> {
    let failed = |error: std::io::Error| CheckoutError::Failed(format!("cannot be run: {error}"));
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // git reads the whole patch before it prints anything. If it ends early, its message counts.
        let _ = stdin.write_all(input);
    }
    child.wait_with_output().map_err(failed)
}

fn succeeded(output: Output) -> Result<String, CheckoutError> {
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(CheckoutError::Failed(text(&output.stderr))),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_repository_in_an_address() {
        for (url, repo) in [
            ("https://github.com/acme/shop.git", Some("acme/shop")),
            ("https://github.com/acme/shop", Some("acme/shop")),
            (
                "https://kim:token@github.com/acme/shop.git/",
                Some("acme/shop"),
            ),
            ("http://127.0.0.1:4000/acme/shop.git", Some("acme/shop")),
            ("git@github.com:acme/shop.git", Some("acme/shop")),
            ("github.com:acme/shop", Some("acme/shop")),
            ("ssh://git@github.com/acme/shop.git", Some("acme/shop")),
            (
                "ssh://git@ssh.github.com:443/acme/shop.git",
                Some("acme/shop"),
            ),
            ("/srv/git/acme/shop.git", Some("acme/shop")),
            ("file:///srv/git/acme/shop.git", Some("acme/shop")),
            ("https://github.com/acme/shop.js", Some("acme/shop.js")),
            ("https://github.com/shop", None),
            ("git@github.com:shop.git", None),
            ("", None),
            ("/", None),
        ] {
            assert_eq!(repo_in_url(url).as_deref(), repo, "{url}");
        }
    }
}

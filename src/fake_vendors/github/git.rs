//! Git operations on a bare repository, through the git program.
//!
//! Git configuration of the user and the system is never read, so that results do not depend on the
//! machine.

use std::collections::{BTreeMap, HashSet};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};

/// Bare repository.
#[derive(Clone, Debug)]
pub(crate) struct BareRepository {
    pub dir: PathBuf,
}

/// Entry of a tree listing.
pub(crate) struct TreeEntry {
    pub mode: String,
    pub kind: String,
    pub sha: String,
    pub size: u64,
    pub path: String,
}

/// Commit of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSnapshot {
    /// Commit SHA.
    pub sha: String,
    /// Name of the author.
    pub author: String,
    /// Email address of the author.
    pub email: String,
    /// Full message.
    pub message: String,
    /// SHAs of the parents.
    pub parents: Vec<String>,
}

/// Age from which an unchanged lock is stale. A running git writes to its lock more often.
const STALE_AFTER: Duration = Duration::from_millis(200);

/// Removes the lock files that killed git processes left in the repositories below a folder.
pub(crate) fn remove_stale_locks(root: &Path) -> anyhow::Result<()> {
    let before = find_locks(root);
    if before.is_empty() {
        return Ok(());
    }
    std::thread::sleep(STALE_AFTER);
    for (lock, _) in find_locks(root).intersection(&before) {
        match std::fs::remove_file(lock) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("Cannot remove {}", lock.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns all lock files with their modification times. Locks that vanish during the search are
/// omitted.
fn find_locks(root: &Path) -> HashSet<(PathBuf, SystemTime)> {
    let (mut found, mut folders) = (HashSet::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() && entry.file_name() != "objects" {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "lock")
            {
                found.extend(metadata.modified().map(|modified| (path, modified)));
            }
        }
    }
    found
}

/// Returns a git command that reads no configuration except the repository's.
pub(crate) fn git_command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PROTOCOL",
    ] {
        command.env_remove(name);
    }
    command
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl BareRepository {
    /// Opens a repository. A new one is created under a temporary name and renamed when it is complete, so
    /// that an interrupted creation leaves no repository with stale locks.
    pub(crate) fn init(dir: PathBuf, default_branch: &str) -> anyhow::Result<Self> {
        if !dir.exists() {
            let parent = dir
                .parent()
                .context("Repository path has no parent folder")?;
            std::fs::create_dir_all(parent)
                .with_context(|| format!("Cannot create {}", parent.display()))?;
            let temp_dir = tempfile::tempdir_in(parent)?;
            let git = Self {
                dir: temp_dir.path().join("new.git"),
            };
            git.initialize(default_branch)?;
            std::fs::rename(&git.dir, &dir).with_context(|| {
                format!("Cannot rename the new repository to {}", dir.display())
            })?;
        }
        Ok(Self { dir })
    }

    fn initialize(&self, default_branch: &str) -> anyhow::Result<()> {
        std::fs::create_dir(&self.dir)?;
        self.output_text(&["init", "--bare", "--quiet", "--template=", "."])?;
        for (key, value) in [
            ("gc.auto", "0"),
            ("receive.autogc", "false"),
            ("uploadpack.allowFilter", "true"),
            ("uploadpack.allowAnySHA1InWant", "true"),
            ("core.logAllRefUpdates", "false"),
        ] {
            self.output_text(&["config", key, value])?;
        }
        let head = format!("refs/heads/{default_branch}");
        self.output_text(&["symbolic-ref", "HEAD", &head])?;
        Ok(())
    }

    pub(crate) fn run(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        env: &[(&str, &str)],
    ) -> anyhow::Result<Output> {
        let mut command = git_command(&self.dir);
        command.args(args).envs(env.iter().copied());
        run_with_input(command, input).with_context(|| format!("git {}", args.join(" ")))
    }

    pub(crate) fn output_bytes(&self, args: &[&str]) -> anyhow::Result<Vec<u8>> {
        self.run_checked(args, None, &[])
    }

    pub(crate) fn output_text(&self, args: &[&str]) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&self.output_bytes(args)?)
            .trim_end()
            .to_owned())
    }

    fn run_checked(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        env: &[(&str, &str)],
    ) -> anyhow::Result<Vec<u8>> {
        let output = self.run(args, input, env)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("git {}: {}", args.join(" "), stderr.trim());
        }
        Ok(output.stdout)
    }

    fn run_checked_text(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        env: &[(&str, &str)],
    ) -> anyhow::Result<String> {
        Ok(
            String::from_utf8_lossy(&self.run_checked(args, input, env)?)
                .trim_end()
                .to_owned(),
        )
    }

    /// Returns the commit of a branch, tag or SHA.
    pub(crate) fn resolve_commit(&self, name: &str) -> Option<String> {
        if name.is_empty() || name.starts_with('-') {
            return None;
        }
        ["refs/heads/", "refs/tags/", ""].iter().find_map(|prefix| {
            let revision = format!("{prefix}{name}^{{commit}}");
            self.output_text(&["rev-parse", "--verify", "--quiet", &revision])
                .ok()
        })
    }

    /// Returns the head commit of a branch. Usually reads the file of the branch, because starting git takes
    /// milliseconds and almost every request asks for heads.
    pub(crate) fn branch_head(&self, name: &str) -> Option<String> {
        let file = self.dir.join("refs/heads").join(name);
        let sha = std::fs::read_to_string(file).unwrap_or_default();
        let sha = sha.trim_end();
        if sha.len() == 40 && sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(sha.to_owned());
        }
        if !self.dir.join("packed-refs").exists() {
            return None;
        }
        let revision = format!("refs/heads/{name}^{{commit}}");
        self.output_text(&["rev-parse", "--verify", "--quiet", &revision])
            .ok()
    }

    /// Returns the head commit of every branch.
    pub(crate) fn branch_heads(&self) -> BTreeMap<String, String> {
        let format = "--format=%(objectname) %(refname:lstrip=2)";
        let heads = self.output_text(&["for-each-ref", format, "refs/heads"]);
        let heads = heads.unwrap_or_default();
        let lines = heads.lines().filter_map(|line| line.split_once(' '));
        lines
            .map(|(sha, name)| (name.to_owned(), sha.to_owned()))
            .collect()
    }

    /// Returns a file's bytes at a commit.
    pub(crate) fn read_file(&self, at: &str, path: &str) -> Option<Vec<u8>> {
        let revision = format!("{at}:{path}");
        let kind = self.output_text(&["cat-file", "-t", &revision]).ok()?;
        (kind == "blob").then(|| self.output_bytes(&["cat-file", "blob", &revision]).ok())?
    }

    /// Returns the entry at a path, or the entries of the directory at it.
    pub(crate) fn list_tree(&self, at: &str, path: &str) -> anyhow::Result<Vec<TreeEntry>> {
        let tree = format!("{at}:{path}");
        let out = self.output_text(&["ls-tree", "-l", &tree])?;
        Ok(out.lines().filter_map(parse_tree_entry).collect())
    }

    pub(crate) fn tree_entry(&self, at: &str, path: &str) -> Option<TreeEntry> {
        let out = self.output_text(&["ls-tree", "-l", at, "--", path]).ok()?;
        out.lines().find_map(parse_tree_entry)
    }

    /// Returns commits, newest first; `range` is a revision or `a..b`.
    pub(crate) fn log(&self, range: &str) -> Vec<CommitSnapshot> {
        let out = self.output_text(&[
            "log",
            "--format=%H%x1f%an%x1f%ae%x1f%P%x1f%B%x1e",
            range,
            "--",
        ]);
        let out = out.unwrap_or_default();
        out.split('\u{1e}')
            .filter_map(|record| {
                let mut parts = record.trim_start().splitn(5, '\u{1f}');
                Some(CommitSnapshot {
                    sha: parts.next().filter(|sha| !sha.is_empty())?.to_owned(),
                    author: parts.next()?.to_owned(),
                    email: parts.next()?.to_owned(),
                    parents: parts.next()?.split(' ').map(str::to_owned).collect(),
                    message: parts.next()?.trim_end().to_owned(),
                })
            })
            .collect()
    }

    pub(crate) fn merge_base(&self, a: &str, b: &str) -> Option<String> {
        self.output_text(&["merge-base", a, b]).ok()
    }

    /// Returns whether two commits merge without conflicts. Commits without a common one count as mergeable.
    pub(crate) fn is_mergeable(&self, base: &str, head: &str) -> bool {
        let merged = self.run(&["merge-tree", "--write-tree", base, head], None, &[]);
        merged.map_or(true, |output| output.status.code() != Some(1))
    }

    pub(crate) fn write_blob(&self, content: &[u8]) -> anyhow::Result<String> {
        self.run_checked_text(&["hash-object", "-w", "--stdin"], Some(content), &[])
    }

    /// Writes a tree: `base` with these entries on top. An entry without SHA removes its path.
    pub(crate) fn write_tree(
        &self,
        base: Option<&str>,
        entries: &[(String, String, Option<String>)],
    ) -> anyhow::Result<String> {
        let index = tempfile::NamedTempFile::new_in(&self.dir)?;
        let path = index.path().with_extension("index");
        let path_text = path.to_string_lossy().into_owned();
        let env = [("GIT_INDEX_FILE", path_text.as_str())];
        if let Some(base) = base {
            self.run_checked(&["read-tree", base], None, &env)?;
        }
        let mut lines = String::new();
        for (path, mode, sha) in entries {
            let zero = "0".repeat(40);
            let (mode, sha) = match sha {
                Some(sha) => (mode.as_str(), sha),
                None => ("0", &zero),
            };
            lines.push_str(&format!("{mode} {sha}\t{path}\n"));
        }
        self.run_checked(
            &["update-index", "--add", "--index-info"],
            Some(lines.as_bytes()),
            &env,
        )?;
        let tree = self.run_checked_text(&["write-tree"], None, &env);
        // A leftover index file in the bare repository is harmless.
        let _ = std::fs::remove_file(&path);
        tree
    }

    pub(crate) fn commit_tree(
        &self,
        tree: &str,
        parents: &[String],
        message: &str,
        author: (&str, &str),
    ) -> anyhow::Result<String> {
        let mut args = vec!["commit-tree", tree];
        for parent in parents {
            args.extend(["-p", parent.as_str()]);
        }
        let env = [
            ("GIT_AUTHOR_NAME", author.0),
            ("GIT_AUTHOR_EMAIL", author.1),
            ("GIT_COMMITTER_NAME", author.0),
            ("GIT_COMMITTER_EMAIL", author.1),
        ];
        self.run_checked_text(&args, Some(message.as_bytes()), &env)
    }

    pub(crate) fn update_ref(&self, name: &str, sha: &str) -> anyhow::Result<()> {
        self.output_bytes(&["update-ref", name, sha]).map(drop)
    }

    /// Commits files to a branch (`None` deletes a file) and returns the commit's SHA.
    pub(crate) fn commit(
        &self,
        branch: &str,
        files: &[(&str, Option<&[u8]>)],
        message: &str,
        author: (&str, &str),
    ) -> anyhow::Result<String> {
        let parent = self.branch_head(branch);
        let entries = files
            .iter()
            .map(|(path, content)| {
                let executable = content.is_some_and(|content| content.starts_with(b"#!"));
                let mode = if executable { "100755" } else { "100644" };
                let sha = content
                    .map(|content| self.write_blob(content))
                    .transpose()?;
                Ok(((*path).to_owned(), mode.to_owned(), sha))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let tree = self.write_tree(parent.as_deref(), &entries)?;
        let parents: Vec<String> = parent.into_iter().collect();
        let sha = self.commit_tree(&tree, &parents, message, author)?;
        self.update_ref(&format!("refs/heads/{branch}"), &sha)?;
        Ok(sha)
    }
}

/// Runs a command. The input is written by another thread, so that neither pipe blocks.
pub(crate) fn run_with_input(mut command: Command, input: Option<&[u8]>) -> anyhow::Result<Output> {
    let Some(input) = input else {
        return Ok(command.output()?);
    };
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(mut stdin) = stdin {
                // Git may close the pipe early (rejected push); its exit code reports the reason.
                let _ = stdin.write_all(input);
            }
        });
        Ok(child.wait_with_output()?)
    })
}

pub(crate) fn parse_tree_entry(line: &str) -> Option<TreeEntry> {
    let (meta, path) = line.split_once('\t')?;
    let mut meta = meta.split_whitespace();
    Some(TreeEntry {
        mode: meta.next()?.to_owned(),
        kind: meta.next()?.to_owned(),
        sha: meta.next()?.to_owned(),
        size: meta.next()?.parse().unwrap_or(0),
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_repository_appears_complete_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("acme/shop.git");
        let creator = std::thread::spawn({
            let dir = dir.clone();
            move || BareRepository::init(dir, "trunk").unwrap()
        });
        while !dir.exists() && !creator.is_finished() {
            std::thread::yield_now();
        }
        let git = BareRepository { dir };
        assert_eq!(
            git.output_text(&["symbolic-ref", "HEAD"]).unwrap(),
            "refs/heads/trunk"
        );
        let log_all_ref_updates = git.output_text(&["config", "core.logAllRefUpdates"]);
        assert_eq!(log_all_ref_updates.unwrap(), "false");
        creator.join().unwrap();
        let entries = std::fs::read_dir(folder.path().join("acme")).unwrap();
        assert_eq!(entries.count(), 1);
    }

    #[test]
    fn removes_stale_locks_and_keeps_active_ones() {
        let folder = tempfile::tempdir().unwrap();
        let git = BareRepository::init(folder.path().join("acme/shop.git"), "main").unwrap();
        let lock = |name: &str| {
            let path = git.dir.join(name);
            std::fs::write(&path, "").unwrap();
            path
        };
        let stale = ["HEAD.lock", "refs/heads/main.lock"].map(lock);
        let active = lock("config.lock");
        let writer = std::thread::spawn({
            let path = active.clone();
            move || {
                std::thread::sleep(STALE_AFTER / 4);
                std::fs::write(path, "at work").unwrap();
            }
        });
        remove_stale_locks(folder.path()).unwrap();
        writer.join().unwrap();
        assert!(active.exists() && !stale.iter().any(|lock| lock.exists()));
        let files = [("a.txt", Some(&b"a"[..]))];
        git.commit("main", &files, "First", ("A", "a@example.com"))
            .unwrap();
    }

    #[test]
    fn heads_are_as_git_says() {
        let folder = tempfile::tempdir().unwrap();
        let git = BareRepository::init(folder.path().join("acme/shop.git"), "main").unwrap();
        let files = [("a.txt", Some(&b"a"[..]))];
        let main = git.commit("main", &files, "First", ("A", "a@example.com"));
        let main = main.unwrap();
        let files = [("b.txt", Some(&b"b"[..]))];
        let work = git.commit("work/x", &files, "Second", ("A", "a@example.com"));
        let work = work.unwrap();
        for is_packed in [false, true] {
            if is_packed {
                git.output_text(&["pack-refs", "--all"]).unwrap();
            }
            assert_eq!(git.branch_head("work/x"), Some(work.clone()), "{is_packed}");
            assert_eq!(git.branch_head("main"), Some(main.clone()), "{is_packed}");
            assert_eq!(git.branch_head("none"), None, "{is_packed}");
            assert_eq!(git.branch_head("../../HEAD"), None, "{is_packed}");
        }
    }
}

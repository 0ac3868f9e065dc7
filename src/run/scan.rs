//! The sensitive-file guard for people: files of a folder, what is staged, or what commits bring, judged
//! as if they were about to be pushed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::git::changes::{MAX_BLOB, WINDOW_SIZE, slide_window};
use super::git::local::LocalRepository;
use super::guard;
pub use super::guard::GuardFinding;
use super::repo_config::{RepoSettings, SETTINGS_FILE};
use domain::sensitive_files::{AllowList, GuardReason, GuardVerdict};

/// What a scan comes to.
#[derive(Debug, Default)]
pub struct ScanReport {
    pub findings: Vec<GuardFinding>,
    /// Files that were looked at.
    pub file_count: usize,
}

/// Reads which files a repository permits: from this file, else from the folder's own settings, where it
/// has any.
///
/// # Errors
/// Which file cannot be read, and why.
pub fn read_allow_list(folder: &Path, file: Option<&Path>) -> Result<AllowList, String> {
    let own = folder.join(SETTINGS_FILE);
    let path = file.unwrap_or(&own);
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("Cannot read {}: {error}", path.display())),
    };
    let settings = RepoSettings::parse(&text);
    let globs = settings.map(|settings| settings.guard.allow);
    let allow =
        globs.and_then(|globs| AllowList::compile(&globs).map_err(|error| error.to_string()));
    allow.map_err(|cause| format!("Cannot use {}: {cause}", path.display()))
}

/// Judges what is staged, beside the current commit.
///
/// # Errors
/// What git failed with.
pub async fn scan_staged(folder: &Path, allow: &AllowList) -> Result<ScanReport, String> {
    let judged = async {
        let repository = LocalRepository::open(folder).await?;
        let (head, staged) = (
            repository.head_tree().await?,
            repository.staged_tree().await?,
        );
        between(&repository, &head, &staged, allow).await
    };
    judged
        .await
        .map_err(|error: super::git::GitError| error.to_string())
}

/// Judges what the commits of `BASE..HEAD` bring beyond the commit where the two part.
///
/// # Errors
/// What git failed with, or that it is no range.
pub async fn scan_range(
    folder: &Path,
    range: &str,
    allow: &AllowList,
) -> Result<ScanReport, String> {
    let Some((base, head)) = range.split_once("..") else {
        return Err(format!("\"{range}\" is no range. Name it as BASE..HEAD."));
    };
    let head = head.trim_start_matches('.');
    let named = |name: &str| if name.is_empty() { "HEAD" } else { name }.to_owned();
    let judged = async {
        let repository = LocalRepository::open(folder).await?;
        let base = repository.resolve_commit(&named(base)).await?;
        let head = repository.resolve_commit(&named(head)).await?;
        let fork_point = repository.merge_base(&base, &head).await?;
        between(&repository, &fork_point, &head, allow).await
    };
    judged
        .await
        .map_err(|error: super::git::GitError| error.to_string())
}

async fn between(
    repository: &LocalRepository,
    from: &str,
    to: &str,
    allow: &AllowList,
) -> Result<ScanReport, super::git::GitError> {
    let changes = repository.git.changes(from, to).await?;
    let found = guard::check_changes(&repository.git, &changes, allow, |_| false).await?;
    let files = changes.len();
    Ok(ScanReport {
        findings: found,
        file_count: files,
    }
    .sorted())
}

/// Judges files, and all files below folders, as new. `.git` is left out, and no link is followed.
///
/// # Errors
/// Which of the paths cannot be looked at, and why.
pub fn scan_files(
    folder: &Path,
    paths: &[PathBuf],
    allow: &AllowList,
) -> Result<ScanReport, String> {
    let mut scanned = ScanReport::default();
    for path in paths {
        let start = folder.join(path);
        let unseen = |error| format!("Cannot read {}: {error}", path.display());
        let name = named(folder, &start).map_err(unseen)?;
        let mut waiting = vec![(start, name)];
        while let Some((path, name)) = waiting.pop() {
            match entries(&path, &name) {
                Ok(below) => waiting.extend(below),
                Err(_) => scanned.add(&name, &path, allow),
            }
        }
    }
    Ok(scanned.sorted())
}

/// A path as it is judged: from the folder, where it is below it.
fn named(folder: &Path, path: &Path) -> io::Result<String> {
    let whole = match (
        path.symlink_metadata()?.is_dir(),
        path.parent(),
        path.file_name(),
    ) {
        (false, Some(parent), Some(name)) => parent.canonicalize()?.join(name),
        _ => path.canonicalize()?,
    };
    let folder = folder.canonicalize()?;
    let below = whole.strip_prefix(&folder).unwrap_or(&whole);
    Ok(below.to_string_lossy().into_owned())
}

/// What stands in a folder. An error of what is none.
fn entries(path: &Path, name: &str) -> io::Result<Vec<(PathBuf, String)>> {
    if !path.symlink_metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let entries = std::fs::read_dir(path)?.flatten();
    let seen = entries.filter(|entry| entry.file_name() != ".git");
    let prefix = if name.is_empty() {
        String::new()
    } else {
        format!("{name}/")
    };
    Ok(seen
        .map(|entry| {
            let below = format!("{prefix}{}", entry.file_name().to_string_lossy());
            (entry.path(), below)
        })
        .collect())
}

impl ScanReport {
    /// In the order of paths, each once: what blocks before what warns.
    fn sorted(mut self) -> Self {
        let key = |found: &GuardFinding| (found.hit.path.clone(), !found.is_blocking);
        self.findings.sort_by_cached_key(key);
        self.findings
            .dedup_by(|one, other| one.hit.path == other.hit.path);
        self
    }

    /// Judges one file or link. Of what is neither there is nothing to be pushed.
    fn add(&mut self, name: &str, path: &Path, allow: &AllowList) {
        let judged = match path.symlink_metadata() {
            Ok(found) if found.is_symlink() => std::fs::read_link(path).map(|target| {
                let target = target.to_string_lossy();
                (
                    guard::check_symlink(name, &[], target.as_bytes(), allow),
                    None,
                )
            }),
            Ok(found) if found.is_file() => {
                File::open(path).and_then(|file| judge(name, file, allow))
            }
            Ok(found) if !found.is_dir() => return,
            Ok(_) => Err(io::ErrorKind::PermissionDenied.into()),
            Err(error) => Err(error),
        };
        let unread = |_| (GuardVerdict::Block(GuardReason::Unreadable), None);
        let (mut verdict, line) = judged.unwrap_or_else(unread);
        if !matches!(verdict, GuardVerdict::Block(_))
            && let Some(reason) = guard::check_name(name, name, allow)
        {
            verdict = GuardVerdict::Block(reason);
        }
        self.file_count += 1;
        self.findings
            .extend(GuardFinding::from_verdict(name, verdict, line));
    }
}

/// Judges a file, a large one in windows. The first window that blocks decides.
fn judge(
    name: &str,
    mut file: impl Read,
    allow: &AllowList,
) -> io::Result<(GuardVerdict, Option<usize>)> {
    let (mut held, mut lines) = (Vec::new(), 0);
    let mut worst = (GuardVerdict::Pass, None);
    let mut room = MAX_BLOB;
    loop {
        let read = file.by_ref().take(room).read_to_end(&mut held)? as u64;
        let (verdict, line) = guard::check_file(name, &[], &held, allow);
        let line = line.map(|line| line + lines);
        match verdict {
            GuardVerdict::Block(_) => return Ok((verdict, line)),
            GuardVerdict::Warn(_) if worst.0 == GuardVerdict::Pass => worst = (verdict, line),
            GuardVerdict::Warn(_) | GuardVerdict::Pass => {}
        }
        if read < room {
            return Ok(worst);
        }
        lines += slide_window(&mut held);
        room = WINDOW_SIZE as u64;
    }
}

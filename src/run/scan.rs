//! Sensitive-file guard for the command line: checks a folder, staged changes or a commit range as
//! if they were about to be pushed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::environment::inherited_env;
use super::git::GitError;
use super::git::changes::{MAX_BLOB, WINDOW_SIZE, slide_window};
use super::git::local::{INHERITED_VARIABLES, LocalRepository};
use super::guard;
pub use super::guard::GuardFinding;
use super::repo_config::{RepoSettings, SETTINGS_FILE};
use domain::sensitive_files::{AllowList, GuardReason, GuardVerdict};

/// Result of a scan.
#[derive(Debug, Default)]
pub struct ScanReport {
    /// Findings, sorted by path; at most one per path.
    pub findings: Vec<GuardFinding>,
    /// Number of files checked.
    pub file_count: usize,
}

/// Reads the allow list from `file`, or from the repository settings in `folder` if there are any.
///
/// # Errors
/// If a file cannot be read or parsed. The message names the file.
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

/// Checks staged changes against the current commit.
///
/// # Errors
/// The error of git.
pub async fn scan_staged(folder: &Path, allow: &AllowList) -> Result<ScanReport, String> {
    let scan = async {
        let repository = open(folder).await?;
        let (head, staged) = (
            repository.head_tree().await?,
            repository.staged_tree().await?,
        );
        scan_between(&repository, &head, &staged, allow).await
    };
    scan.await.map_err(|error: GitError| error.to_string())
}

/// Checks the changes of `BASE..HEAD` since the merge base.
///
/// # Errors
/// The error of git, or that the range is malformed.
pub async fn scan_range(
    folder: &Path,
    range: &str,
    allow: &AllowList,
) -> Result<ScanReport, String> {
    let Some((base, head)) = range.split_once("..") else {
        return Err(format!(
            "\"{range}\" is not a commit range. Use BASE..HEAD."
        ));
    };
    let head = head.trim_start_matches('.');
    let or_head = |name: &str| if name.is_empty() { "HEAD" } else { name }.to_owned();
    let scan = async {
        let repository = open(folder).await?;
        let base = repository.resolve_commit(&or_head(base)).await?;
        let head = repository.resolve_commit(&or_head(head)).await?;
        let fork_point = repository.merge_base(&base, &head).await?;
        scan_between(&repository, &fork_point, &head, allow).await
    };
    scan.await.map_err(|error: GitError| error.to_string())
}

async fn open(folder: &Path) -> Result<LocalRepository, GitError> {
    LocalRepository::open(folder, inherited_env(&INHERITED_VARIABLES)).await
}

async fn scan_between(
    repository: &LocalRepository,
    from: &str,
    to: &str,
    allow: &AllowList,
) -> Result<ScanReport, GitError> {
    let changes = repository.git.changes(from, to).await?;
    let findings = guard::check_changes(&repository.git, &changes, allow, |_, _| false).await?;
    Ok(ScanReport {
        findings,
        file_count: changes.len(),
    }
    .sorted())
}

/// Checks files, and all files in folders, as if they were new. Skips `.git` and follows no links.
///
/// # Errors
/// If a path cannot be read. The message names the path.
pub fn scan_files(
    folder: &Path,
    paths: &[PathBuf],
    allow: &AllowList,
) -> Result<ScanReport, String> {
    let mut report = ScanReport::default();
    for path in paths {
        let start = folder.join(path);
        let unreadable = |error| format!("Cannot read {}: {error}", path.display());
        let name = relative_name(folder, &start).map_err(unreadable)?;
        let mut pending = vec![(start, name)];
        while let Some((path, name)) = pending.pop() {
            match entries(&path, &name) {
                Ok(below) => pending.extend(below),
                Err(_) => report.add(&name, &path, allow),
            }
        }
    }
    Ok(report.sorted())
}

/// Returns the path relative to the folder, or the absolute path if it is outside.
fn relative_name(folder: &Path, path: &Path) -> io::Result<String> {
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

/// Returns the entries of a folder, without `.git`. Fails if the path is not a folder.
fn entries(path: &Path, name: &str) -> io::Result<Vec<(PathBuf, String)>> {
    if !path.symlink_metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let entries = std::fs::read_dir(path)?.flatten();
    let entries = entries.filter(|entry| entry.file_name() != ".git");
    let prefix = if name.is_empty() {
        String::new()
    } else {
        format!("{name}/")
    };
    Ok(entries
        .map(|entry| {
            let below = format!("{prefix}{}", entry.file_name().to_string_lossy());
            (entry.path(), below)
        })
        .collect())
}

impl ScanReport {
    /// Sorts findings by path and keeps one per path; blocking findings take precedence.
    fn sorted(mut self) -> Self {
        let key = |found: &GuardFinding| (found.hit.path.clone(), !found.is_blocking);
        self.findings.sort_by_cached_key(key);
        self.findings
            .dedup_by(|one, other| one.hit.path == other.hit.path);
        self
    }

    /// Checks one file or link. Other file types cannot be pushed and are skipped.
    fn add(&mut self, name: &str, path: &Path, allow: &AllowList) {
        let checked = match path.symlink_metadata() {
            Ok(found) if found.is_symlink() => std::fs::read_link(path).map(|target| {
                let target = target.to_string_lossy();
                (
                    guard::check_symlink(name, &[], target.as_bytes(), allow),
                    None,
                )
            }),
            Ok(found) if found.is_file() => {
                File::open(path).and_then(|file| check_windows(name, file, allow))
            }
            Ok(found) if !found.is_dir() => return,
            Ok(_) => Err(io::ErrorKind::PermissionDenied.into()),
            Err(error) => Err(error),
        };
        let unreadable = |_| (GuardVerdict::Block(GuardReason::Unreadable), None);
        let (mut verdict, line) = checked.unwrap_or_else(unreadable);
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

/// Checks a file, in windows if it is large. Returns the first blocking verdict, else the first
/// warning.
fn check_windows(
    name: &str,
    mut file: impl Read,
    allow: &AllowList,
) -> io::Result<(GuardVerdict, Option<usize>)> {
    let (mut window, mut lines) = (Vec::new(), 0);
    let mut worst = (GuardVerdict::Pass, None);
    let mut limit = MAX_BLOB;
    loop {
        let read = file.by_ref().take(limit).read_to_end(&mut window)? as u64;
        let is_window = read == limit || limit < MAX_BLOB;
        let (verdict, line) = guard::check_file(name, &[], &window, is_window, allow);
        let line = line.map(|line| line + lines);
        match verdict {
            GuardVerdict::Block(_) => return Ok((verdict, line)),
            GuardVerdict::Warn(_) if worst.0 == GuardVerdict::Pass => worst = (verdict, line),
            GuardVerdict::Warn(_) | GuardVerdict::Pass => {}
        }
        if read < limit {
            return Ok(worst);
        }
        lines += slide_window(&mut window);
        limit = WINDOW_SIZE as u64;
    }
}

//! Orphan descendant processes (child subreaper).
//!
//! A program started by the agent or a script can leave its process group and wait until a token is in
//! memory. The run becomes the subreaper of such processes ([`become_subreaper`]) and kills every
//! descendant before it fetches a token ([`kill_all`]).

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

/// Handling of orphan processes. Tests leave them, because test processes share descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanProcesses {
    /// Kills every descendant.
    Kill,
    /// Leaves descendants alone.
    Leave,
}

/// Maximum number of scans for new descendants.
const MAX_SCANS: u32 = 50;

/// Pause between scans.
const PAUSE: Duration = Duration::from_millis(20);

/// Makes this process the parent of its orphaned descendants.
pub(crate) fn become_subreaper() -> std::io::Result<()> {
    set_child_subreaper(Some(getpid())).map_err(Into::into)
}

/// Kills every descendant and scans again until none is left.
///
/// # Errors
/// The number of processes that are still alive after the last scan.
pub(crate) async fn kill_all(orphans: OrphanProcesses) -> Result<(), usize> {
    if orphans == OrphanProcesses::Leave {
        return Ok(());
    }
    let mut left = Vec::new();
    for _ in 0..MAX_SCANS {
        left = descendants();
        if left.is_empty() {
            return Ok(());
        }
        for pid in &left {
            // The process may have exited since the scan.
            let _ = kill_process(*pid, Signal::KILL);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(left.len())
}

/// Returns the live descendants of this process, from `/proc`.
fn descendants() -> Vec<Pid> {
    let parents: HashMap<i32, i32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent_of(pid)?)))
        .collect();
    let ours = getpid().as_raw_pid();
    let is_below = |pid: &i32| {
        let mut at = *pid;
        // Bounds the walk if the table changes while it is read.
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if *parent == ours => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    parents
        .keys()
        .filter(|pid| is_below(pid))
        .filter_map(|pid| Pid::from_raw(*pid))
        .collect()
}

/// Returns the parent of a live process. Zombies are skipped.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the fields follow the last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_descendants_at_any_depth() {
        let mut child = std::process::Command::new("bash")
            .args(["-c", "setsid sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let deep = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let found = descendants();
        assert!(found.contains(&deep), "{found:?}");
        kill_process(deep, Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!descendants().contains(&deep));
    }
}

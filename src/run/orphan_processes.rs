//! Ending what got away.
//!
//! A program that the agent or a script started can leave its process group and wait for the moment
//! when a token is near. The run adopts such orphans (`adopt`) and ends every descendant of its own
//! before it fetches a token (`end_all`).

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

/// May the run end all of its descendants? Inside a test it has siblings among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanProcesses {
    Kill,
    Leave,
}

/// How often do we look again for what was just started?
const ROUNDS: u32 = 50;

const PAUSE: Duration = Duration::from_millis(20);

/// Makes orphans of our descendants our own children, so that they can be found.
pub fn become_subreaper() -> std::io::Result<()> {
    set_child_subreaper(Some(getpid())).map_err(Into::into)
}

/// Kills every descendant until none is left.
///
/// # Errors
/// The number of processes that are still there in the end.
pub async fn kill_all(strays: OrphanProcesses) -> Result<(), usize> {
    if strays == OrphanProcesses::Leave {
        return Ok(());
    }
    let mut left = Vec::new();
    for _ in 0..ROUNDS {
        left = descendants();
        if left.is_empty() {
            return Ok(());
        }
        for pid in &left {
            // It may have ended in between.
            let _ = kill_process(*pid, Signal::KILL);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(left.len())
}

/// Living processes below this one, from `/proc`.
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
        // A process tree is never deeper than it has members.
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

/// The parent of a process that has not ended; a zombie holds nothing any more.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields follow the last one.
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
    fn descendants_are_found_however_deep() {
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

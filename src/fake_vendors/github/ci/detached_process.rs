//! Detached processes: starting them, recognising them after our own death, ending them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How often is a session killed that goes on starting processes, and after which pause?
const KILL_ROUNDS: u32 = 50;
const KILL_PAUSE: Duration = Duration::from_millis(10);

/// Starts `bash runner.sh DIR` in a session of its own with an empty environment.
pub(crate) fn spawn_session(script: &Path, dir: &Path, path: &str) -> anyhow::Result<Child> {
    let log = std::fs::File::create(dir.join("runner.out"))?;
    let mut command = Command::new("setsid");
    command.arg("bash").arg(script).arg(dir);
    command
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command.spawn()?)
}

/// The attempt's player, if it lives and really is ours: process ids are used again by others.
pub(crate) fn running_pid(dir: &Path) -> Option<i32> {
    let pid: i32 = std::fs::read_to_string(dir.join("pid"))
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let wanted = dir.to_string_lossy();
    let ours = line
        .split(|byte| *byte == 0)
        .any(|part| part == wanted.as_bytes());
    ours.then_some(pid)
}

/// Sends a signal to every process of a session.
pub(crate) fn signal_session(session: i32, signal: Signal) {
    for pid in members(session) {
        if let Some(pid) = Pid::from_raw(pid) {
            // A process that ended in between needs no signal.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Kills every process of a session, and those that it starts meanwhile.
pub(crate) fn kill_session(session: i32) {
    for _ in 0..KILL_ROUNDS {
        signal_session(session, Signal::KILL);
        if members(session).is_empty() {
            break;
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

/// The processes of a session that have not ended.
fn members(session: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| session_of(*pid) == Some(session))
        .collect()
}

/// The sixth field; the second may hold spaces, so counting starts behind its bracket. None of a
/// process that only waits to be reaped.
fn session_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace();
    let is_over = fields.next()? == "Z";
    fields.nth(2)?.parse().ok().filter(|_| !is_over)
}

//! Detached processes: start, lookup after a restart of this process, signals.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Maximum number of kills of a session whose processes keep starting others.
const MAX_KILL_ROUNDS: u32 = 50;
/// Pause between two kills of a session.
const KILL_PAUSE: Duration = Duration::from_millis(10);

/// Starts `bash SCRIPT DIR` in its own session with an empty environment except `PATH`.
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

/// Returns the process ID of the runner in a folder, if it is running. The command line is compared,
/// because process IDs are reused.
pub(crate) fn running_pid(dir: &Path) -> Option<i32> {
    let pid: i32 = std::fs::read_to_string(dir.join("pid"))
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let dir_text = dir.to_string_lossy();
    let is_match = line
        .split(|byte| *byte == 0)
        .any(|part| part == dir_text.as_bytes());
    is_match.then_some(pid)
}

/// Sends a signal to every process of a session.
pub(crate) fn signal_session(session: i32, signal: Signal) {
    for pid in session_processes(session) {
        self::signal(pid, signal);
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // Fails if the process has just exited.
        let _ = kill_process(pid, signal);
    }
}

/// Kills every process of a session, including those started meanwhile.
pub(crate) fn kill_session(session: i32) {
    for _ in 0..MAX_KILL_ROUNDS {
        signal_session(session, Signal::KILL);
        if session_processes(session).is_empty() {
            break;
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

/// Returns the running processes of a session.
fn session_processes(session: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| session_of(*pid) == Some(session))
        .collect()
}

/// Returns the session of a process, the sixth field of its stat file. The second field can contain
/// spaces, so parsing starts after its bracket. Returns `None` for a zombie.
fn session_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace();
    let is_zombie = fields.next()? == "Z";
    fields.nth(2)?.parse().ok().filter(|_| !is_zombie)
}

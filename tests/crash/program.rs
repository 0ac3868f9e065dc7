//! The real binary, and how it is killed.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// Command of the binary with a minimal environment.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null());
    command
}

/// Whether the process was ended by SIGKILL.
pub fn is_sigkilled(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

/// Process that is killed when dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // The process has usually exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills every process whose command line or working directory contains the folder. Repeats until there
/// is none, because a killed process may have started another one.
pub fn kill_processes_in(dir: &Path) {
    loop {
        let found = processes_of(dir);
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Living processes of the folder. Zombies have no command line and no working directory.
fn processes_of(dir: &Path) -> Vec<Pid> {
    let dir_name = dir.to_str().unwrap();
    let belongs_to_dir = |process: &Path| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let cwd = std::fs::read_link(process.join("cwd")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(dir_name) || cwd.starts_with(dir)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = all.filter(|entry| belongs_to_dir(&entry.path()));
    processes
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| *pid != rustix::process::getpid())
        .collect()
}

/// Verifies the audit log.
pub fn check_audit(data: &Path) -> Result<(), String> {
    let mut verify = command(&["audit", "verify", "--data-dir"]);
    let verified = verify.arg(data).output().unwrap();
    let stdout = String::from_utf8_lossy(&verified.stdout).into_owned();
    if verified.status.success() && stdout.starts_with("ok: ") {
        Ok(())
    } else {
        Err(format!("audit verification failed: {stdout} {verified:?}"))
    }
}

#[test]
fn crash_options_are_hidden() {
    let words = [
        "crash-at",
        "crash_at",
        "CRASH_AT",
        "commit-begun",
        "--quick",
    ];
    for arguments in [
        &["serve", "--help"][..],
        &["demo", "--help"],
        &["--help"],
        &["man"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
        &["serve", "--print-config"],
        &["openapi"],
    ] {
        let output = command(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let found = words.iter().find(|word| text.contains(**word));
        assert_eq!(found, None, "in {arguments:?}");
    }
    // No environment variable enables them either: each of these values would be invalid.
    let variables = ["CRASH_AT", "AGENT_IMPLEMENT_CRASH_AT", "QUICK"];
    let mut print_config = command(&["serve", "--print-config"]);
    print_config.envs(variables.map(|name| (name, "nowhere")));
    assert!(print_config.output().unwrap().status.success());
}

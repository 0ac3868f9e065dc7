//! The real binary, and how it is ended without a word.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// The binary with a command, in an environment that holds nothing but what processes need.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null());
    command
}

/// Whether it was ended as `kill -9` does.
pub fn is_sigkilled(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

/// A process that does not outlive the test that started it.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Mostly it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills every process whose command line or working directory names the folder, until there is none:
/// what is killed may have started another since the last look.
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

/// Those that are alive; what is dead and not yet buried names nothing.
fn processes_of(dir: &Path) -> Vec<Pid> {
    let needle = dir.to_str().unwrap();
    let is_ours = |process: &Path| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let cwd = std::fs::read_link(process.join("cwd")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(needle) || cwd.starts_with(dir)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let ours = all.filter(|entry| is_ours(&entry.path()));
    ours.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| *pid != rustix::process::getpid())
        .collect()
}

/// The record of who did what is whole.
pub fn check_audit(data: &Path) -> Result<(), String> {
    let mut verify = command(&["audit", "verify", "--data-dir"]);
    let verified = verify.arg(data).output().unwrap();
    let told = String::from_utf8_lossy(&verified.stdout).into_owned();
    if verified.status.success() && told.starts_with("ok: ") {
        Ok(())
    } else {
        Err(format!("the audit: {told} {verified:?}"))
    }
}

#[test]
fn what_kills_the_service_is_nowhere_to_be_found() {
    let words = [
        "crash-at",
        "crash_at",
        "CRASH_AT",
        "commit-begun",
        "--quick",
    ];
    for shown in [
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
        let said = command(shown).output().unwrap();
        let told = [said.stdout, said.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        let found = words.iter().find(|word| told.contains(**word));
        assert_eq!(found, None, "in {shown:?}");
    }
    // No variable sets it either: each of these would be a wrong value.
    let named = ["CRASH_AT", "AGENT_IMPLEMENT_CRASH_AT", "QUICK"];
    let mut shown = command(&["serve", "--print-config"]);
    shown.envs(named.map(|name| (name, "nowhere")));
    assert!(shown.output().unwrap().status.success());
}

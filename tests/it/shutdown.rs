//! Stopping the service, the demo and a run by signal: no process or file is left, and the exit code names the signal.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use domain::job::JobState;
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use redb::{Database, DatabaseError, RepairSession};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::process::{ServiceProcess, control_request};
use crate::test_env::{Gate, TestEnv};

/// Maximum time for a stopped process to exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum time for a run to start, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the live processes whose working directory is below a folder or whose command line names it.
fn processes_of(dir: &Path) -> Vec<(i32, String)> {
    let folder = dir.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.filter_map(|pid| {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let line = std::fs::read(proc.join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let works_in_folder = std::fs::read_link(proc.join("cwd"))
            .is_ok_and(|cwd| cwd.to_string_lossy().starts_with(&folder));
        // A zombie has no command line.
        let is_found = !line.is_empty() && (works_in_folder || line.contains(&folder));
        is_found.then_some((pid, line))
    });
    found.collect()
}

fn is_run((_, line): &(i32, String)) -> bool {
    line.contains("run --handed-over")
}

fn wait_for<T>(what: &str, limit: Duration, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < limit, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Demo {
    child: Child,
    temp: tempfile::TempDir,
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_agent-implement"))
            .arg("demo")
            .args(arguments)
            .env("TMPDIR", temp.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, temp }
    }

    /// Waits for the exit and checks that no process or file is left. Returns exit code and standard error.
    fn wait_for_exit(mut self) -> (Option<i32>, String) {
        let status = wait_for("the demo exits", STOP_TIMEOUT, || {
            self.child.try_wait().unwrap()
        });
        let mut stderr = String::new();
        let pipe = self.child.stderr.as_mut().unwrap();
        pipe.read_to_string(&mut stderr).unwrap();
        assert_eq!(processes_of(self.temp.path()), [], "{stderr}");
        let remaining: Vec<_> = std::fs::read_dir(self.temp.path()).unwrap().collect();
        assert!(remaining.is_empty(), "{remaining:?} {stderr}");
        (status.code(), stderr)
    }
}

#[test]
fn demo_stopped_during_a_run_leaves_nothing_behind() {
    for (signal, code, arguments) in [
        (Signal::TERM, 143, &["--exit-when-idle"][..]),
        (Signal::HUP, 129, &[]),
        (Signal::INT, 130, &["--exit-when-idle", "--runner", "vm"]),
    ] {
        let mut demo = Demo::start(arguments);
        let mut stdout = demo.child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut output = String::new();
            stdout.read_to_string(&mut output).map(|_| output)
        });
        wait_for("a run starts", START_TIMEOUT, || {
            processes_of(demo.temp.path())
                .iter()
                .any(is_run)
                .then_some(())
        });
        let pid = Pid::from_raw(i32::try_from(demo.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let exit = demo.wait_for_exit();
        let output = reader.join().unwrap().unwrap();
        assert_eq!(exit, (Some(code), String::new()), "{arguments:?} {output}");
    }
}

#[test]
fn demo_exits_quietly_if_its_output_is_closed() {
    let mut demo = Demo::start(&[]);
    let mut stdout = BufReader::new(demo.child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("reserved for") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0);
    }
    drop(stdout);
    assert_eq!(demo.wait_for_exit(), (Some(0), String::new()));
}

/// Waits until the only run below a folder has started its agent. Returns the process ID of the run.
fn wait_for_agent(dir: &Path) -> i32 {
    let (run, _) = wait_for("the run starts", START_TIMEOUT, || {
        processes_of(dir).into_iter().find(is_run)
    });
    // The run installs its signal handlers after its re-exec and before it starts the agent.
    wait_for("the agent starts", START_TIMEOUT, || {
        let found = processes_of(dir);
        let is_agent = |(_, line): &(i32, String)| line.contains("--output-format stream-json");
        found.iter().any(is_agent).then_some(())
    });
    run
}

/// Stops a run with SIGTERM and waits for its exit.
fn stop(run: i32) {
    kill_process(Pid::from_raw(run).unwrap(), Signal::TERM).unwrap();
    wait_for("the run exits", STOP_TIMEOUT, || is_gone(run));
}

fn is_gone(run: i32) -> Option<()> {
    let stat = std::fs::read_to_string(format!("/proc/{run}/stat")).unwrap_or_default();
    (stat.is_empty() || stat.contains(") Z ")).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_run_reports_its_cancellation_and_ends_its_children() {
    let env = TestEnv::start().await;
    let gate = Gate::new(&env);
    let background = ScriptStep::run("sleep 300 & setsid sleep 301 & sleep 0.1");
    env.set_agent_script("ENG-1", Script::new().pass([background, gate.wait_step()]));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let dir = env.dir().to_owned();
    let stopped = tokio::task::spawn_blocking(move || {
        stop(wait_for_agent(&dir));
        let remaining = processes_of(&dir);
        remaining
            .into_iter()
            .filter(|(_, line)| line.starts_with("sleep 30"))
            .collect()
    });
    let remaining: Vec<(i32, String)> = stopped.await.unwrap();
    assert_eq!(remaining, []);
    let job = env.wait_for_job_end("ENG-1").await;
    let JobState::Failed { code, .. } = &job.state else {
        panic!("{job:#?}");
    };
    assert_eq!(*code, Some(FailureCode::Cancelled));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_run_ends_while_the_service_is_unavailable() {
    let env = TestEnv::start().await;
    let gate = Gate::new(&env);
    env.set_agent_script("ENG-1", Script::new().pass([gate.wait_step()]));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let dir = env.dir().to_owned();
    let run = tokio::task::spawn_blocking(move || wait_for_agent(&dir));
    let run = run.await.unwrap();
    let stopped = env.stop_service().await;
    tokio::task::spawn_blocking(move || stop(run))
        .await
        .unwrap();
    stopped.vendors.stop_and_kill_runs().await;
}

/// Whether opening the store of a stopped service repairs it, which reads the whole file.
fn needs_repair(data: &Path) -> bool {
    let opened = Database::builder()
        .set_repair_callback(RepairSession::abort)
        .create(data.join("agent-implement.redb"));
    match opened {
        Ok(_) => false,
        Err(DatabaseError::RepairAborted) => true,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_service_that_is_stopped_after_a_change_starts_without_a_repair() {
    let data = tempfile::tempdir().unwrap();
    let service = ServiceProcess::start(data.path(), &[]);
    let mode = Some(json!({"mode": "local"}));
    let changed = control_request(data.path(), Method::POST, "/api/runner-mode", mode).await;
    assert_eq!(changed.0, 200, "{changed:?}");
    assert_eq!(service.stop(), 0);
    assert!(!needs_repair(data.path()));
}

//! Being stopped from outside: the demo and a run leave nothing behind, and say so by their exit code.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use domain::job::JobState;
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use rustix::process::{Pid, Signal, kill_process};

use crate::test_env::{Gate, TestEnv};

/// How soon must whatever was stopped be gone?
const SOON: Duration = Duration::from_secs(15);

/// How long may a demo take to have a run at work, on a machine that does other things?
const BEGINNING: Duration = Duration::from_secs(120);

/// The living processes that work below a folder, or name it on their command line.
fn processes_of(dir: &Path) -> Vec<(i32, String)> {
    let wanted = dir.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.filter_map(|pid| {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let line = std::fs::read(proc.join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let works_there = std::fs::read_link(proc.join("cwd"))
            .is_ok_and(|cwd| cwd.to_string_lossy().starts_with(&wanted));
        // A process that has ended has no command line.
        let is_found = !line.is_empty() && (works_there || line.contains(&wanted));
        is_found.then_some((pid, line))
    });
    found.collect()
}

fn is_run((_, line): &(i32, String)) -> bool {
    line.contains("run --handed-over")
}

fn until<T>(what: &str, limit: Duration, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < limit, "waited in vain until {what}");
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

    /// Waits for its end; everything it made must be gone then. Answers exit code and standard error.
    fn ended(mut self) -> (Option<i32>, String) {
        let status = until("the demo has ended", SOON, || {
            self.child.try_wait().unwrap()
        });
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(processes_of(self.temp.path()), [], "{said}");
        let left: Vec<_> = std::fs::read_dir(self.temp.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?} {said}");
        (status.code(), said)
    }
}

#[test]
fn a_demo_that_is_stopped_in_the_middle_of_a_run_leaves_nothing_behind() {
    for (signal, code, arguments) in [
        (Signal::TERM, 143, &["--exit-when-idle"][..]),
        (Signal::HUP, 129, &[]),
        (Signal::INT, 130, &["--exit-when-idle", "--runner", "vm"]),
    ] {
        let mut demo = Demo::start(arguments);
        let mut stdout = demo.child.stdout.take().unwrap();
        let reading = std::thread::spawn(move || {
            let mut said = String::new();
            stdout.read_to_string(&mut said).map(|_| said)
        });
        until("a run is at work", BEGINNING, || {
            processes_of(demo.temp.path())
                .iter()
                .any(is_run)
                .then_some(())
        });
        let pid = Pid::from_raw(i32::try_from(demo.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let ended = demo.ended();
        let said = reading.join().unwrap().unwrap();
        assert_eq!(ended, (Some(code), String::new()), "{arguments:?} {said}");
    }
}

#[test]
fn a_demo_that_nobody_reads_ends_quietly() {
    let mut demo = Demo::start(&[]);
    let mut stdout = BufReader::new(demo.child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("reserved for") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0);
    }
    drop(stdout);
    assert_eq!(demo.ended(), (Some(0), String::new()));
}

/// Waits for the one run of a world, until its agent is at work.
fn at_work(dir: &Path) -> i32 {
    let (run, _) = until("the run is at work", BEGINNING, || {
        processes_of(dir).into_iter().find(is_run)
    });
    // It leaves its environment behind before it listens; its agent is started after that.
    until("the agent is at work", BEGINNING, || {
        let found = processes_of(dir);
        let is_agent = |(_, line): &(i32, String)| line.contains("--output-format stream-json");
        found.iter().any(is_agent).then_some(())
    });
    run
}

/// Stops a run and waits for its end.
fn stop(run: i32) {
    kill_process(Pid::from_raw(run).unwrap(), Signal::TERM).unwrap();
    until("the run has ended", SOON, || is_gone(run));
}

fn is_gone(run: i32) -> Option<()> {
    let stat = std::fs::read_to_string(format!("/proc/{run}/stat")).unwrap_or_default();
    (stat.is_empty() || stat.contains(") Z ")).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_stopped_reports_so_and_ends_with_all_its_children() {
    let world = TestEnv::start().await;
    let gate = Gate::new(&world);
    let beside = ScriptStep::run("sleep 300 & setsid sleep 301 & sleep 0.1");
    world.set_agent_script("ENG-1", Script::new().pass([beside, gate.wait_step()]));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let dir = world.dir().to_owned();
    let stopped = tokio::task::spawn_blocking(move || {
        stop(at_work(&dir));
        let left = processes_of(&dir);
        left.into_iter()
            .filter(|(_, line)| line.starts_with("sleep 30"))
            .collect()
    });
    let left: Vec<(i32, String)> = stopped.await.unwrap();
    assert_eq!(left, []);
    let job = world.wait_for_job_end("ENG-1").await;
    let JobState::Failed { code, .. } = &job.state else {
        panic!("{job:#?}");
    };
    assert_eq!(*code, Some(FailureCode::Cancelled));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_stopped_while_nobody_takes_its_result_ends_all_the_same() {
    let world = TestEnv::start().await;
    let gate = Gate::new(&world);
    world.set_agent_script("ENG-1", Script::new().pass([gate.wait_step()]));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let dir = world.dir().to_owned();
    let run = tokio::task::spawn_blocking(move || at_work(&dir));
    let run = run.await.unwrap();
    let asleep = world.stop_service().await;
    tokio::task::spawn_blocking(move || stop(run))
        .await
        .unwrap();
    asleep.vendors.stop_and_kill_runs().await;
}

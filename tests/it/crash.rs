//! `kill -9` at any moment of the demo's work, on either ticketing system, and the same command again
//! on the same folder: one CI run a dispatch, one pull request a ticket, the plan in order, no comment
//! twice.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use agent_implement::crash::CrashPoint;
use agent_implement::sandbox::stories::{self, Tracker};
use agent_implement::sandbox::{Town, TownOptions};

use crate::ticket::Ticket;

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// How many random instants are tried?
const RANDOM_KILLS: usize = 24;

/// A demo that is not killed takes about this long.
const USUAL: Duration = Duration::from_millis(4_500);

/// How long may a demo take that picks up after a crash?
const PATIENCE: Duration = Duration::from_secs(120);

/// What dies.
#[derive(Debug, Clone, Copy)]
enum Kill {
    /// The service at a random instant; runs at the host go on.
    ServiceAfter(Duration),
    /// The whole machine at a random instant: service, vendors and runs.
    MachineAfter(Duration),
    /// The service at a named point.
    ServiceAt(CrashPoint),
}

const TRACKERS: [Tracker; 2] = [Tracker::Linear, Tracker::Jira];

fn demo(tracker: Tracker, dir: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    let system = tracker.name().to_lowercase();
    command
        .args(["demo", "--system", &system, "--exit-when-idle"])
        .args(["--log-level=info", "--data-dir"])
        .arg(dir);
    command.stdin(Stdio::null());
    command
}

/// Starts the demo, its words going to a file, and kills it as told.
fn start_and_kill(tracker: Tracker, dir: &Path, kill: Kill) {
    let said = std::fs::File::create(dir.join("first.txt")).unwrap();
    let mut command = demo(tracker, dir);
    command.stdout(said.try_clone().unwrap()).stderr(said);
    if let Kill::ServiceAt(point) = kill {
        command.args(["--crash-at", point.name()]);
    }
    let mut child = command.spawn().unwrap();
    match kill {
        Kill::ServiceAfter(span) | Kill::MachineAfter(span) => {
            std::thread::sleep(span);
            // It may have ended by itself already.
            let _ = child.kill();
            let _ = child.wait();
        }
        Kill::ServiceAt(point) => {
            wait_for_end(&mut child);
            let died_of = child.wait().unwrap().signal();
            assert_eq!(died_of, Some(9), "the point {point} was not reached");
        }
    }
    if let Kill::MachineAfter(_) = kill {
        kill_everything_of(dir);
    }
}

fn wait_for_end(child: &mut Child) {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the demo neither crashed nor ended");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills every process whose command line or working directory names the folder.
fn kill_everything_of(dir: &Path) {
    let needle = dir.to_str().unwrap();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let is_ours = String::from_utf8_lossy(&line).contains(needle) || cwd.starts_with(dir);
        if is_ours && pid != std::process::id() {
            let _ = Command::new("kill")
                .args(["-9", &pid.to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// One crash and one recovery. Answers what is wrong afterwards.
fn survive((tracker, kill): (Tracker, Kill)) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    start_and_kill(tracker, dir.path(), kill);
    let mut again = demo(tracker, dir.path());
    let said = std::fs::File::create(dir.path().join("second.txt")).unwrap();
    let mut child = again
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .spawn()
        .unwrap();
    wait_for_end(&mut child);
    let ended_well = child.wait().unwrap().success();
    let told = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap_or_default();
    let fault = if ended_well {
        look_at_the_town(tracker, dir.path()).and_then(|()| look_at_the_audit(dir.path()))
    } else {
        Err("it did not end well".to_owned())
    };
    kill_everything_of(dir.path());
    fault.map_err(|fault| {
        format!(
            "{tracker:?}, {kill:?}: {fault}\n{}\n-- again --\n{}",
            told("first.txt"),
            told("second.txt")
        )
    })
}

/// Whatever the crash interrupted: the record of who did what is whole.
pub fn look_at_the_audit(dir: &Path) -> Result<(), String> {
    let mut verify = Command::new(PROGRAM);
    verify.args(["audit", "verify", "--data-dir"]);
    let verified = verify.arg(dir.join("data")).output().unwrap();
    let told = String::from_utf8_lossy(&verified.stdout).into_owned();
    if verified.status.success() && told.starts_with("ok: ") {
        Ok(())
    } else {
        Err(format!("the audit: {told} {verified:?}"))
    }
}

pub fn look_at_the_town(tracker: Tracker, dir: &Path) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = TownOptions::new(dir.join("town"), PROGRAM);
    let town = runtime.block_on(Town::start(options)).unwrap();
    let repo = town.github().repo(stories::DEMO_OWNER, stories::DEMO_REPO);
    let (runs, pulls) = (repo.runs(), repo.pulls());
    let ticket = |key| match tracker {
        Tracker::Linear => Ticket::Linear(town.linear().issue(key)),
        Tracker::Jira => Ticket::Jira(town.jira().issue(key)),
    };
    let commits: Vec<usize> = pulls
        .iter()
        .map(|pull| {
            repo.commits(&pull.head)
                .iter()
                .filter(|commit| commit.message.contains("Agent-Implement-Dispatch"))
                .count()
        })
        .collect();
    let mut seen = format!("{} runs, commits {commits:?}", runs.len());
    let mut is_right = runs.len() == 4 && commits == [1, 1];
    let ends = ends(tracker);
    for (key, marker, begins) in &ends {
        let (shown, said) = (ticket(key).marker(), ticket(key).comments());
        let is_begun =
            |(said, begin): (&String, &&str)| said.trim_start_matches("## ").starts_with(begin);
        is_right &=
            shown == *marker && said.len() == begins.len() && said.iter().zip(begins).all(is_begun);
        seen.push_str(&format!("\n{key} {shown:?} {said:?}"));
    }
    runtime.block_on(town.stop());
    if is_right { Ok(()) } else { Err(seen) }
}

/// Each ticket's marker in the end, and how its comments begin.
fn ends(tracker: Tracker) -> [(&'static str, &'static [&'static str], Vec<&'static str>); 4] {
    const PULL: &str = "Pull request opened";
    let [waiting, opened, failed]: [&[&str]; 3] = match tracker {
        Tracker::Linear => [
            &["Agent-Implement"],
            &["Agent-Implement", "Ready for Review"],
            &[],
        ],
        Tracker::Jira => [&["Ready"], &["PR Ready"], &["Implementation Failed"]],
    };
    const GUARDED: &str = "🔒 Blocked by security guardrail";
    [
        (stories::DEMO_PLAIN, opened, vec![PULL]),
        (stories::DEMO_BLOCKED, waiting, vec![]),
        (stories::DEMO_LEAKY, failed, vec![GUARDED]),
        (
            stories::DEMO_PLANNED,
            opened,
            vec!["What is wanted", "Steps", PULL],
        ),
    ]
}

/// Crashes wait more than they compute, so a few go side by side.
fn survive_all(kills: Vec<(Tracker, Kill)>) {
    let waiting = Mutex::new(kills.into_iter());
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Some(kill) = waiting.lock().unwrap().next() else {
                        break;
                    };
                    if let Err(fault) = survive(kill) {
                        faults.lock().unwrap().push(fault);
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(
        faults.is_empty(),
        "{} crashes were not survived:\n{}",
        faults.len(),
        faults.join("\n=====\n")
    );
}

#[test]
fn a_crash_at_any_instant_is_survived() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let kills = (0..RANDOM_KILLS).map(|number| {
        let after = USUAL.mul_f64(rng.f64());
        let kill = if number % 3 == 0 {
            Kill::MachineAfter(after)
        } else {
            Kill::ServiceAfter(after)
        };
        (TRACKERS[number % 2], kill)
    });
    survive_all(kills.collect());
}

#[test]
fn a_crash_at_each_named_point_is_survived() {
    let kills = CrashPoint::ALL.into_iter().map(Kill::ServiceAt);
    let both = kills.flat_map(|kill| TRACKERS.map(|tracker| (tracker, kill)));
    survive_all(both.collect());
}

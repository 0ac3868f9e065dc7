//! `kill -9` at any moment of the demo's work, on either ticketing system and every kind of host, and
//! the same command again on the same folder: one run a dispatch, one pull request a ticket, the plan in
//! order, no comment twice, no machine left.

use std::fmt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use domain::limits;
use fake_vendors::demo::Tracker;
use store::crash_injection::CrashPoint;

use crate::demo_outcome::DemoOutcome;
use crate::program::{check_audit, command, is_sigkilled, kill_processes_in};

/// A demo that is not killed takes about this long.
const USUAL: Duration = Duration::from_millis(4_500);

/// How long may a demo take that picks up after a crash?
const PATIENCE: Duration = Duration::from_secs(120);

/// What every demo passes.
const PASSED: [CrashPoint; 12] = [
    CrashPoint::Reserved,
    CrashPoint::StartClaimed,
    CrashPoint::Started,
    CrashPoint::Adopted,
    CrashPoint::ResultReceived,
    CrashPoint::ResultStored,
    CrashPoint::ProgressStored,
    CrashPoint::EntryClaimed,
    CrashPoint::EntryPerformed,
    CrashPoint::EntryCompleted,
    CrashPoint::CommitBegun,
    CrashPoint::CommitDone,
];

/// What those pass beside whose runs have machines.
const DESTROYING: [CrashPoint; 3] = [
    CrashPoint::DestroyClaimed,
    CrashPoint::Destroyed,
    CrashPoint::DestroyRecorded,
];

/// What dies.
#[derive(Debug, Clone, Copy)]
enum Kill {
    /// The service at a random instant; runs at the host go on.
    ServiceAfter(Duration),
    /// The whole machine at a random instant: service, vendors and runs.
    MachineAfter(Duration),
    /// The service at the k-th visit of a named point.
    ServiceAt(CrashPoint, u64),
}

/// Where its runs execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemoRunner {
    Ci,
    Vm,
    Local,
}

const TRACKERS: [Tracker; 2] = [Tracker::Linear, Tracker::Jira];
const MACHINES: [DemoRunner; 2] = [DemoRunner::Vm, DemoRunner::Local];

/// A demo and its crash.
#[derive(Debug, Clone, Copy)]
struct Story {
    tracker: Tracker,
    runner: DemoRunner,
    kill: Kill,
}

impl Story {
    /// Starts the demo, its words going to a file.
    fn start(self, dir: &Path, words: &str, visit: Option<String>) -> Child {
        let said = std::fs::File::create(dir.join(words)).unwrap();
        let system = self.tracker.name().to_lowercase();
        let runner = format!("{:?}", self.runner).to_lowercase();
        let mut demo = command(&["demo", "--exit-when-idle", "--log-level=info"]);
        demo.args(["--system", &system, "--runner", &runner, "--data-dir"])
            .arg(dir);
        if let Some(visit) = visit {
            demo.args(["--crash-at", &visit]);
        }
        demo.stdout(said.try_clone().unwrap()).stderr(said);
        demo.stdin(Stdio::null()).spawn().unwrap()
    }

    /// Starts the demo and kills it as told.
    fn start_and_kill(self, dir: &Path) -> Result<(), String> {
        let visit = match self.kill {
            Kill::ServiceAt(point, times) => Some(format!("{point}:{times}")),
            _ => None,
        };
        let mut child = self.start(dir, "first.txt", visit);
        match self.kill {
            Kill::ServiceAfter(span) | Kill::MachineAfter(span) => {
                std::thread::sleep(span);
                // It may have ended by itself already.
                let _ = child.kill();
                let _ = child.wait();
            }
            Kill::ServiceAt(point, _) => {
                wait_for_end(&mut child, PATIENCE)?;
                if !is_sigkilled(child.wait().unwrap()) {
                    return Err(format!("the point {point} was not reached"));
                }
            }
        }
        if let Kill::MachineAfter(_) = self.kill {
            kill_processes_in(dir);
        }
        Ok(())
    }

    /// One crash and one recovery. Answers what is wrong afterwards.
    fn survive(self) -> Result<(), String> {
        let dir = tempfile::Builder::new().prefix("crash-").tempdir().unwrap();
        let outcome = self.start_and_kill(dir.path()).and_then(|()| {
            let mut child = self.start(dir.path(), "second.txt", None);
            wait_for_end(&mut child, self.patience())?;
            match child.wait().unwrap().code() {
                Some(0) => self.look_at_the_town(dir.path(), DemoOutcome::is_as_expected)?,
                Some(1) if self.may_lose_runs() => {
                    self.look_at_the_town(
                        dir.path(),
                        DemoOutcome::is_as_expected_after_machine_loss,
                    )?;
                }
                code => return Err(format!("it ended with {code:?}")),
            }
            check_audit(&dir.path().join("data"))
        });
        kill_processes_in(dir.path());
        outcome.map_err(|fault| {
            let kept = dir.keep();
            let told = |file: &str| std::fs::read_to_string(kept.join(file)).unwrap_or_default();
            let said = format!("{}\n-- again --\n{}", told("first.txt"), told("second.txt"));
            let place = kept.display();
            format!("{self}, everything is in {place}: {fault}\n{said}")
        })
    }

    /// A workflow's host begins a run again that died with it, a machine's does not.
    fn may_lose_runs(self) -> bool {
        matches!(self.kill, Kill::MachineAfter(_)) && self.runner != DemoRunner::Ci
    }

    /// The report of a run that died is waited for.
    fn patience(self) -> Duration {
        if self.may_lose_runs() {
            PATIENCE + limits::REPORT_GRACE
        } else {
            PATIENCE
        }
    }

    fn look_at_the_town(
        self,
        dir: &Path,
        are_right: fn(&DemoOutcome, Tracker, DemoRunner) -> bool,
    ) -> Result<(), String> {
        let remains = DemoOutcome::load(dir, self.tracker);
        if are_right(&remains, self.tracker, self.runner) {
            Ok(())
        } else {
            Err(format!("{remains:#?}"))
        }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} on {:?}, {:?}",
            self.kill, self.tracker, self.runner
        )
    }
}

fn wait_for_end(child: &mut Child, patience: Duration) -> Result<(), String> {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            return Err("the demo neither crashed nor ended".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Crashes wait more than they compute, so a few go side by side.
fn survive_all(stories: Vec<Story>) {
    let count = stories.len();
    let waiting = Mutex::new(stories.into_iter());
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Some(story) = waiting.lock().unwrap().next() else {
                        break;
                    };
                    if let Err(fault) = story.survive() {
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
    println!("demos killed and started again: {count}");
}

fn seeded() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

/// Kills at any instant, every third time of everything there is.
fn any_instant(rng: &mut fastrand::Rng, runner: DemoRunner, count: usize) -> Vec<Story> {
    let story = |number: usize| {
        let after = USUAL.mul_f64(rng.f64());
        Story {
            tracker: TRACKERS[number % 2],
            runner,
            kill: match number % 3 {
                0 => Kill::MachineAfter(after),
                _ => Kill::ServiceAfter(after),
            },
        }
    };
    (0..count).map(story).collect()
}

#[test]
fn a_crash_at_any_instant_is_survived() {
    let mut rng = seeded();
    survive_all(any_instant(&mut rng, DemoRunner::Ci, 6));
}

#[test]
fn a_crash_at_each_named_point_is_survived() {
    let mut rng = seeded();
    let stories = PASSED.map(|point| Story {
        tracker: TRACKERS[rng.usize(..2)],
        runner: DemoRunner::Ci,
        kill: Kill::ServiceAt(point, 1),
    });
    survive_all(stories.to_vec());
}

#[test]
fn a_crash_beside_machines_is_survived() {
    let mut rng = seeded();
    let mut points = [&PASSED[1..4], &DESTROYING].concat();
    rng.shuffle(&mut points);
    let stories = points.into_iter().take(4).enumerate();
    let stories = stories.map(|(number, point)| Story {
        tracker: TRACKERS[rng.usize(..2)],
        runner: MACHINES[number % 2],
        kill: Kill::ServiceAt(point, 1),
    });
    survive_all(stories.collect());
}

#[test]
#[ignore = "takes minutes"]
fn a_crash_at_each_named_point_is_survived_on_every_host_and_system() {
    let mut rng = seeded();
    let mut stories = any_instant(&mut rng, DemoRunner::Ci, 24);
    for tracker in TRACKERS {
        for runner in [DemoRunner::Ci, DemoRunner::Vm, DemoRunner::Local] {
            let beside = match runner {
                DemoRunner::Ci => &[][..],
                DemoRunner::Vm | DemoRunner::Local => &DESTROYING,
            };
            let points = PASSED.iter().chain(beside);
            stories.extend(points.map(|point| Story {
                tracker,
                runner,
                kill: Kill::ServiceAt(*point, rng.u64(1..=2)),
            }));
        }
    }
    for runner in MACHINES {
        stories.extend(any_instant(&mut rng, runner, 6));
    }
    survive_all(stories);
}

//! `kill -9` at any moment of a demo, on either ticketing system and every kind of host, followed by the
//! same command on the same folder. Afterwards there is one run per dispatch, one pull request per
//! ticket, a complete plan in order, no repeated comment and no remaining machine.

use std::fmt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use domain::limits;
use fake_vendors::demo::Tracker;
use store::crash_injection::CrashPoint;

use crate::checks::run_cases;
use crate::demo_outcome::DemoOutcome;
use crate::program::{check_audit, command, is_sigkilled, kill_processes_in};

/// Typical duration of a demo that is not killed.
const TYPICAL_DURATION: Duration = Duration::from_millis(4_500);

/// Maximum duration of a demo after a crash.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);

/// Crash points that every demo reaches.
const COMMON_POINTS: [CrashPoint; 14] = [
    CrashPoint::Reserved,
    CrashPoint::StartClaimed,
    CrashPoint::Started,
    CrashPoint::Adopted,
    CrashPoint::ResultReceived,
    CrashPoint::ResultStored,
    CrashPoint::ProgressStored,
    CrashPoint::AnswerStored,
    CrashPoint::ApprovalStored,
    CrashPoint::EntryClaimed,
    CrashPoint::EntryPerformed,
    CrashPoint::EntryCompleted,
    CrashPoint::CommitBegun,
    CrashPoint::CommitDone,
];

/// Crash points of the start of a run.
const START_POINTS: [CrashPoint; 4] = [
    CrashPoint::Reserved,
    CrashPoint::StartClaimed,
    CrashPoint::Started,
    CrashPoint::Adopted,
];

/// Additional crash points of demos whose runs have machines.
const MACHINE_POINTS: [CrashPoint; 3] = [
    CrashPoint::DestroyClaimed,
    CrashPoint::Destroyed,
    CrashPoint::DestroyRecorded,
];

/// Process that is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    /// The service at a random instant; runs at the host continue.
    ServiceAfter(Duration),
    /// The whole machine at a random instant: service, vendors and runs.
    MachineAfter(Duration),
    /// The service at the n-th visit of a crash point.
    ServiceAt(CrashPoint, u64),
}

/// Host of the demo's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemoRunner {
    Ci,
    Vm,
    Local,
    Kubernetes,
}

const TRACKERS: [Tracker; 2] = [Tracker::Linear, Tracker::Jira];
const MACHINE_RUNNERS: [DemoRunner; 3] =
    [DemoRunner::Vm, DemoRunner::Local, DemoRunner::Kubernetes];

/// A demo and its crash.
#[derive(Debug, Clone, Copy)]
struct CrashCase {
    tracker: Tracker,
    runner: DemoRunner,
    kill: Kill,
}

impl CrashCase {
    /// Starts the demo with its output in a file.
    fn start(self, dir: &Path, log_name: &str, visit: Option<String>) -> Child {
        let output = std::fs::File::create(dir.join(log_name)).unwrap();
        let system = self.tracker.name().to_lowercase();
        let runner = format!("{:?}", self.runner).to_lowercase();
        let mut demo = command(&["demo", "--exit-when-idle", "--log-level=info"]);
        demo.args(["--system", &system, "--runner", &runner, "--data-dir"])
            .arg(dir);
        if let Some(visit) = visit {
            demo.args(["--crash-at", &visit]);
        }
        demo.stdout(output.try_clone().unwrap()).stderr(output);
        demo.stdin(Stdio::null()).spawn().unwrap()
    }

    /// Starts the demo and kills it.
    fn start_and_kill(self, dir: &Path) -> Result<(), String> {
        let visit = match self.kill {
            Kill::ServiceAt(point, times) => Some(format!("{point}:{times}")),
            _ => None,
        };
        let mut child = self.start(dir, "first.txt", visit);
        match self.kill {
            Kill::ServiceAfter(span) | Kill::MachineAfter(span) => {
                std::thread::sleep(span);
                // It may have exited already.
                let _ = child.kill();
                let _ = child.wait();
            }
            Kill::ServiceAt(point, _) => {
                wait_for_end(&mut child, RECOVERY_TIMEOUT)?;
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

    /// One crash and one recovery. Returns what is wrong afterwards.
    fn run(self) -> Result<(), String> {
        let dir = tempfile::Builder::new().prefix("crash-").tempdir().unwrap();
        let outcome = self.start_and_kill(dir.path()).and_then(|()| {
            let mut child = self.start(dir.path(), "second.txt", None);
            wait_for_end(&mut child, self.timeout())?;
            match child.wait().unwrap().code() {
                Some(0) => self.check_outcome(dir.path(), DemoOutcome::is_as_expected)?,
                Some(1) if self.may_lose_runs() => {
                    self.check_outcome(dir.path(), DemoOutcome::is_as_expected_after_machine_loss)?;
                }
                code => return Err(format!("the demo exited with {code:?}")),
            }
            check_audit(&dir.path().join("data"))
        });
        kill_processes_in(dir.path());
        outcome.map_err(|fault| {
            let kept_dir = dir.keep();
            let log = |file: &str| std::fs::read_to_string(kept_dir.join(file)).unwrap_or_default();
            let logs = format!(
                "{}\n-- second start --\n{}",
                log("first.txt"),
                log("second.txt")
            );
            let path = kept_dir.display();
            format!("{self}, files kept in {path}: {fault}\n{logs}")
        })
    }

    /// The CI host restarts a lost workflow run; a lost machine is not restarted.
    fn may_lose_runs(self) -> bool {
        matches!(self.kill, Kill::MachineAfter(_)) && self.runner != DemoRunner::Ci
    }

    /// Includes the grace period for the report of a lost run.
    fn timeout(self) -> Duration {
        if self.may_lose_runs() {
            RECOVERY_TIMEOUT + limits::REPORT_GRACE
        } else {
            RECOVERY_TIMEOUT
        }
    }

    fn check_outcome(
        self,
        dir: &Path,
        is_expected: fn(&DemoOutcome, Tracker, DemoRunner) -> bool,
    ) -> Result<(), String> {
        let outcome = DemoOutcome::load(dir, self.tracker);
        if is_expected(&outcome, self.tracker, self.runner) {
            Ok(())
        } else {
            Err(format!("{outcome:#?}"))
        }
    }
}

impl fmt::Display for CrashCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} on {:?}, {:?}",
            self.kill, self.tracker, self.runner
        )
    }
}

fn wait_for_end(child: &mut Child, timeout: Duration) -> Result<(), String> {
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > timeout {
            let _ = child.kill();
            let _ = child.wait();
            return Err("the demo did not exit within the timeout".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn run_all(cases: Vec<CrashCase>) {
    let count = cases.len();
    run_cases(cases, CrashCase::run);
    println!("demos killed and restarted: {count}");
}

fn seeded_rng() -> fastrand::Rng {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::Rng::with_seed(seed)
}

/// Cases killed at a random instant: every third kills the whole machine.
fn random_cases(rng: &mut fastrand::Rng, runner: DemoRunner, count: usize) -> Vec<CrashCase> {
    let case = |number: usize| {
        let after = TYPICAL_DURATION.mul_f64(rng.f64());
        CrashCase {
            tracker: TRACKERS[number % 2],
            runner,
            kill: match number % 3 {
                0 => Kill::MachineAfter(after),
                _ => Kill::ServiceAfter(after),
            },
        }
    };
    (0..count).map(case).collect()
}

#[test]
fn recovers_from_a_crash_at_any_instant() {
    let mut rng = seeded_rng();
    run_all(random_cases(&mut rng, DemoRunner::Ci, 6));
}

#[test]
fn recovers_from_a_crash_at_each_point() {
    let mut rng = seeded_rng();
    let cases = COMMON_POINTS.map(|point| CrashCase {
        tracker: TRACKERS[rng.usize(..2)],
        runner: DemoRunner::Ci,
        kill: Kill::ServiceAt(point, 1),
    });
    run_all(cases.to_vec());
}

#[test]
fn recovers_from_a_crash_with_machines() {
    let mut rng = seeded_rng();
    let mut points = [&COMMON_POINTS[1..4], &MACHINE_POINTS].concat();
    rng.shuffle(&mut points);
    let cases = points.into_iter().take(4).enumerate();
    let cases = cases.map(|(number, point)| CrashCase {
        tracker: TRACKERS[rng.usize(..2)],
        runner: MACHINE_RUNNERS[number % 3],
        kill: Kill::ServiceAt(point, 1),
    });
    run_all(cases.collect());
}

#[test]
fn adopts_a_kubernetes_job_after_a_crash_at_each_point_of_its_start() {
    let mut rng = seeded_rng();
    let cases = START_POINTS.map(|point| CrashCase {
        tracker: TRACKERS[rng.usize(..2)],
        runner: DemoRunner::Kubernetes,
        kill: Kill::ServiceAt(point, 1),
    });
    run_all(cases.to_vec());
}

#[test]
#[ignore = "takes minutes"]
fn recovers_from_a_crash_at_each_point_on_every_host_and_system() {
    let mut rng = seeded_rng();
    let mut cases = random_cases(&mut rng, DemoRunner::Ci, 24);
    for tracker in TRACKERS {
        for runner in [&[DemoRunner::Ci][..], &MACHINE_RUNNERS].concat() {
            let machine_points = match runner {
                DemoRunner::Ci => &[][..],
                DemoRunner::Vm | DemoRunner::Local | DemoRunner::Kubernetes => &MACHINE_POINTS,
            };
            let points = COMMON_POINTS.iter().chain(machine_points);
            cases.extend(points.map(|point| {
                let visits = match point {
                    // The demo has one question.
                    CrashPoint::AnswerStored => 1,
                    _ => 2,
                };
                CrashCase {
                    tracker,
                    runner,
                    kill: Kill::ServiceAt(*point, rng.u64(1..=visits)),
                }
            }));
        }
    }
    for runner in MACHINE_RUNNERS {
        cases.extend(random_cases(&mut rng, runner, 6));
    }
    run_all(cases);
}

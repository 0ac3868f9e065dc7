//! A busy service, killed repeatedly while tickets arrive, vendors fail and redeliver webhooks, runs
//! report, an operator changes settings and backups are taken. Then it runs undisturbed until it is
//! idle, and everything is checked.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use store::crash_injection::CrashPoint;
use tokio::task::JoinSet;

use crate::checks::{self, VerifiedCounts};
use crate::crash_env::CrashEnv;
use crate::failover::{self, Place};
use crate::program::{KillOnDrop, is_sigkilled, kill_processes_in};
use crate::{clients, fake_runs, landing_people, people};

/// Number of seeds of the long form, and kills per seed in addition to the one during setup.
const SEEDS: u64 = 12;
const KILLS_PER_SEED: usize = 84;

/// What a seed does.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// Number of kills.
    kills: usize,
    /// Number of ticketing systems that have one ticket of each kind that lands at the beginning.
    landing_systems: usize,
    /// Place of the standby that takes over after each kill. `None`: the service is started again.
    place: Option<Place>,
    /// Maximum wait for a crash point. After it, the service is killed wherever it is.
    visit_timeout: Duration,
}

/// Maximum runtime of a service that is killed at a random instant.
const MAX_RUNTIME: Duration = Duration::from_millis(1_500);

/// Maximum wait for a crash point of the short forms, and of the long ones, which also reach rare points.
const SHORT_VISIT: Duration = Duration::from_secs(4);
const LONG_VISIT: Duration = Duration::from_secs(12);

/// Probability of each kind of vendor fault, per request.
const FAULT_RATE: f64 = 0.02;

/// Crash points of machines, which this environment does not use.
const MACHINE_POINTS: [CrashPoint; 3] = [
    CrashPoint::DestroyClaimed,
    CrashPoint::Destroyed,
    CrashPoint::DestroyRecorded,
];

/// Way in which the service is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    At(Duration),
    Visiting(CrashPoint, u64),
}

/// Kills of a seed: every crash point equally often, and four of ten at a random instant.
fn kills(seed: u64, count: usize) -> Vec<Kill> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let points = CrashPoint::ALL
        .iter()
        .filter(|point| !MACHINE_POINTS.contains(point));
    let mut remaining_points: Vec<CrashPoint> = Vec::new();
    (0..count)
        .map(|_| {
            if rng.u8(..10) < 4 {
                return Kill::At(MAX_RUNTIME.mul_f64(rng.f64()));
            }
            if remaining_points.is_empty() {
                remaining_points.extend(points.clone());
                rng.shuffle(&mut remaining_points);
            }
            let point = remaining_points.pop().unwrap();
            Kill::Visiting(point, rng.u64(1..=max_visits(point)))
        })
        .collect()
}

/// Number of visits that a crash point reaches within a second or two, at least.
fn max_visits(point: CrashPoint) -> u64 {
    match point {
        CrashPoint::CommitBegun | CrashPoint::CommitDone => 30,
        CrashPoint::ProgressStored => 8,
        CrashPoint::EntryClaimed | CrashPoint::EntryPerformed | CrashPoint::EntryCompleted => 4,
        CrashPoint::TicketEventReceived | CrashPoint::TicketEventStored => 4,
        CrashPoint::CheckEventReceived | CrashPoint::CheckEventStored => 2,
        CrashPoint::BackupHalfSent | CrashPoint::AdminChangeStored => 3,
        _ => 1,
    }
}

/// Kills of one or several seeds, and the checked items.
#[derive(Default)]
pub struct KillStats {
    pub seeds: Vec<u64>,
    pub kills: BTreeMap<String, usize>,
    pub starts: usize,
    /// Times from kills until the store was restored on the next machine.
    pub take_overs: Vec<Duration>,
    pub verified: VerifiedCounts,
}

impl KillStats {
    pub fn total_kills(&self) -> usize {
        self.kills.values().sum()
    }

    fn count_kill(&mut self, kill: &str) {
        *self.kills.entry(kill.to_owned()).or_default() += 1;
    }

    fn add(&mut self, other: KillStats) {
        self.seeds.extend(other.seeds);
        for (kill, count) in other.kills {
            *self.kills.entry(kill).or_default() += count;
        }
        self.starts += other.starts;
        self.take_overs.extend(other.take_overs);
        self.verified.add(other.verified);
    }
}

impl fmt::Display for KillStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds: {} {:?}", self.seeds.len(), self.seeds)?;
        writeln!(f, "kills: {}, starts: {}", self.total_kills(), self.starts)?;
        for (kill, count) in &self.kills {
            writeln!(f, "  {kill}: {count}")?;
        }
        let mut times = self.take_overs.clone();
        times.sort();
        if let (Some(median), Some(last)) = (times.get(times.len() / 2), times.last()) {
            writeln!(
                f,
                "take-overs: {}, median {median:.1?}, longest {last:.1?}",
                times.len()
            )?;
        }
        write!(f, "{}", self.verified)
    }
}

/// Failure of a seed.
struct FailedSeed {
    cause: String,
    /// Log of all its services, with the cause at the end.
    log: String,
}

/// Runs one seed from setup to the final checks.
async fn run_seed(seed: u64, form: Form) -> Result<KillStats, FailedSeed> {
    let dir = tempfile::Builder::new().prefix("crash-").tempdir().unwrap();
    let flags = |vendors: &_| {
        form.place
            .map_or_else(Vec::new, |place| place.flags(vendors))
    };
    let env = Arc::new(CrashEnv::create(dir.path(), seed, flags).await);
    let mut stats = KillStats {
        seeds: vec![seed],
        starts: 2,
        ..KillStats::default()
    };
    // Setup ends with a kill, right after the operator's last acknowledged change.
    stats.count_kill("right after a response");
    let outcome = kill_repeatedly(&env, form, &mut stats).await;
    let result = match outcome {
        Ok(service) => checks::check_all(&env, service).await,
        Err(fault) => Err(fault),
    };
    kill_processes_in(&env.dir);
    result
        .map(|counted| {
            stats.verified = counted;
            stats
        })
        .map_err(|cause| {
            let log = std::fs::read_to_string(env.log_file()).unwrap_or_default();
            let kept_dir = dir.keep();
            let path = kept_dir.display();
            let log = format!("seed {seed}, files kept in {path}:\n{log}\n== failure: {cause}");
            FailedSeed { cause, log }
        })
}

/// Kills the service as planned, and returns a running service without remaining work.
async fn kill_repeatedly(
    env: &Arc<CrashEnv>,
    form: Form,
    stats: &mut KillStats,
) -> Result<KillOnDrop, String> {
    let (stop, end) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let mut client_tasks = JoinSet::new();
    let filed = clients::file_tickets(Arc::clone(env), Arc::clone(&stop), form.landing_systems);
    client_tasks.spawn(filed);
    client_tasks.spawn(clients::change_mapping(Arc::clone(env), Arc::clone(&stop)));
    client_tasks.spawn(clients::take_backups(Arc::clone(env), Arc::clone(&stop)));
    client_tasks.spawn(clients::inject_faults(Arc::clone(env), Arc::clone(&stop)));
    let mut run_tasks = JoinSet::new();
    run_tasks.spawn(clients::control_runs(Arc::clone(env), Arc::clone(&end)));
    run_tasks.spawn(clients::post_comments(Arc::clone(env), Arc::clone(&end)));
    run_tasks.spawn(people::converse(Arc::clone(env), Arc::clone(&end)));
    run_tasks.spawn(landing_people::land(Arc::clone(env), Arc::clone(&end)));
    run_tasks.spawn(fake_runs::drive_all(Arc::clone(env), Arc::clone(&end)));
    env.set_fault_rate(FAULT_RATE);
    for kill in kills(env.seed, form.kills) {
        stats.starts += 1;
        stats.count_kill(&kill_once(env, kill, form.visit_timeout).await?);
        env.record().kills += 1;
        if let Some(place) = form.place {
            failover::take_over(env, place).await?;
        }
    }
    stats.take_overs.clone_from(&env.record().take_overs);
    stop.store(true, Ordering::Relaxed);
    env.record().is_undisturbed = true;
    env.set_fault_rate(0.0);
    stats.starts += 1;
    let service = env.start_service(None);
    client_tasks.join_all().await;
    let idle = checks::wait_until_idle(env).await;
    end.store(true, Ordering::Relaxed);
    run_tasks.join_all().await;
    idle.map(|()| service)
}

/// Starts the service, kills it, and returns how.
async fn kill_once(env: &CrashEnv, kill: Kill, visit: Duration) -> Result<String, String> {
    let (trigger, limit) = match kill {
        Kill::At(instant) => (None, instant),
        Kill::Visiting(point, times) => (Some(format!("{point}:{times}")), visit),
    };
    env.record().awaited = match kill {
        Kill::At(_) => None,
        Kill::Visiting(point, _) => Some(point),
    };
    let mut service = env.start_service(trigger.as_deref());
    let started = Instant::now();
    loop {
        if let Some(status) = service.0.try_wait().unwrap() {
            return match (kill, is_sigkilled(status)) {
                (Kill::Visiting(point, _), true) => Ok(point.to_string()),
                _ => Err(format!("the service exited by itself: {status}")),
            };
        }
        if started.elapsed() >= limit {
            service.0.kill().unwrap();
            service.0.wait().unwrap();
            return Ok(match kill {
                Kill::At(_) => "at any instant".to_owned(),
                Kill::Visiting(..) => "at any instant, crash point not reached".to_owned(),
            });
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Runs seeds four at a time, and prints the statistics and every failed seed.
fn run_all(seeds: Vec<u64>, form: Form) {
    let queue = Mutex::new(seeds.into_iter());
    let (stats, faults) = (Mutex::new(KillStats::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                loop {
                    let Some(seed) = queue.lock().unwrap().next() else {
                        break;
                    };
                    match runtime.block_on(run_seed(seed, form)) {
                        Ok(seed_stats) => {
                            println!("seed {seed}: {} kills survived", seed_stats.total_kills());
                            stats.lock().unwrap().add(seed_stats);
                        }
                        Err(failed) => {
                            println!("seed {seed} failed: {}", failed.cause);
                            faults.lock().unwrap().push(failed.log);
                        }
                    }
                }
            });
        }
    });
    println!("{}", stats.into_inner().unwrap());
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n=====\n"));
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// First seed of a long form.
fn seed_from_env() -> u64 {
    let first = env_number("CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("first seed {first}");
    first
}

#[test]
fn busy_service_survives_kills() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let form = Form {
        kills: 24,
        landing_systems: 1,
        place: None,
        visit_timeout: SHORT_VISIT,
    };
    run_all(vec![seed], form);
}

/// `CRASH_SEED` sets the first seed, `CRASH_WORLDS` the number of seeds, and `CRASH_KILLS` the kills per
/// seed.
#[test]
#[ignore = "the long form: minutes"]
fn busy_service_survives_a_thousand_kills() {
    let first = seed_from_env();
    let count = env_number("CRASH_WORLDS").unwrap_or(SEEDS);
    let kills =
        env_number("CRASH_KILLS").map_or(KILLS_PER_SEED, |kills| usize::try_from(kills).unwrap());
    let seeds = (0..count).map(|number| first.wrapping_add(number));
    let form = Form {
        kills,
        landing_systems: 3,
        place: None,
        visit_timeout: LONG_VISIT,
    };
    run_all(seeds.collect(), form);
}

#[test]
fn another_machine_takes_over_from_a_busy_service() {
    std::thread::scope(|scope| {
        for place in [Place::Folder, Place::Bucket] {
            let seed = fastrand::u64(..);
            println!("seed {seed}, {place:?}");
            scope.spawn(move || run_all(vec![seed], fail_over(6, place)));
        }
    });
}

/// `CRASH_SEED`, `CRASH_WORLDS` and `CRASH_KILLS` apply as above; `CRASH_PLACE` is `folder` or `bucket`, by default both.
#[test]
#[ignore = "the long form: minutes"]
fn another_machine_takes_over_a_hundred_times() {
    let (first, count, kills) = (
        seed_from_env(),
        env_number("CRASH_WORLDS"),
        env_number("CRASH_KILLS"),
    );
    let (count, kills) = (count.unwrap_or(2), kills.unwrap_or(25) as usize);
    let places = match std::env::var("CRASH_PLACE").as_deref() {
        Ok("folder") => vec![Place::Folder],
        Ok("bucket") => vec![Place::Bucket],
        Ok(other) => panic!("CRASH_PLACE is {other}, not folder or bucket"),
        Err(_) => vec![Place::Folder, Place::Bucket],
    };
    for place in places {
        let seeds = (0..count).map(|number| first.wrapping_add(number));
        run_all(seeds.collect(), fail_over(kills, place));
    }
}

fn fail_over(kills: usize, place: Place) -> Form {
    Form {
        kills,
        landing_systems: 1,
        place: Some(place),
        visit_timeout: SHORT_VISIT,
    }
}

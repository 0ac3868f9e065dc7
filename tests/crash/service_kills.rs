//! A service at work, killed again and again while everything around it goes on: tickets come, vendors
//! misbehave and repeat their webhooks until they are taken, runs report, an operator changes things,
//! backups are taken. Then it is left in peace, and everything is counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use store::crash_injection::CrashPoint;
use tokio::task::JoinSet;

use crate::checks::{self, VerifiedCounts};
use crate::crash_env::CrashEnv;
use crate::program::{KillOnDrop, is_sigkilled, kill_processes_in};
use crate::{clients, fake_runs};

/// How many worlds the long form has, and how often it kills in each beside the one at its founding.
const WORLDS: u64 = 12;
const KILLS: usize = 84;

/// How long after its start is a service killed, at most?
const LIFE: Duration = Duration::from_millis(1_500);

/// How long may it take until a place is reached? It is killed wherever it is then.
const VISIT: Duration = Duration::from_secs(4);

/// Chance of each way in which a vendor can fail a request.
const FAULTS: f64 = 0.02;

/// Of machines, which this world has none of.
const ELSEWHERE: [CrashPoint; 3] = [
    CrashPoint::DestroyClaimed,
    CrashPoint::Destroyed,
    CrashPoint::DestroyRecorded,
];

/// How the service dies.
#[derive(Debug, Clone, Copy)]
enum Kill {
    At(Duration),
    Visiting(CrashPoint, u64),
}

/// Kills of a seed: every place as often as the others, every second or third at any instant.
fn kills(seed: u64, count: usize) -> Vec<Kill> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let places = CrashPoint::ALL
        .iter()
        .filter(|place| !ELSEWHERE.contains(place));
    let mut bag: Vec<CrashPoint> = Vec::new();
    (0..count)
        .map(|_| {
            if rng.u8(..10) < 4 {
                return Kill::At(LIFE.mul_f64(rng.f64()));
            }
            if bag.is_empty() {
                bag.extend(places.clone());
                rng.shuffle(&mut bag);
            }
            let place = bag.pop().unwrap();
            Kill::Visiting(place, rng.u64(1..=often(place)))
        })
        .collect()
}

/// How often is a place reached within a second or two, at least?
fn often(place: CrashPoint) -> u64 {
    match place {
        CrashPoint::CommitBegun | CrashPoint::CommitDone => 30,
        CrashPoint::ProgressStored => 8,
        CrashPoint::EntryClaimed | CrashPoint::EntryPerformed | CrashPoint::EntryCompleted => 4,
        CrashPoint::TicketEventReceived | CrashPoint::TicketEventStored => 4,
        CrashPoint::BackupHalfSent | CrashPoint::AdminChangeStored => 3,
        _ => 1,
    }
}

/// What a world was put through, and what was found in it.
#[derive(Default)]
pub struct KillStats {
    pub seeds: Vec<u64>,
    pub kills: BTreeMap<String, usize>,
    pub starts: usize,
    pub verified: VerifiedCounts,
}

impl KillStats {
    pub fn total_kills(&self) -> usize {
        self.kills.values().sum()
    }

    fn note(&mut self, kill: &str) {
        *self.kills.entry(kill.to_owned()).or_default() += 1;
    }

    fn add(&mut self, other: KillStats) {
        self.seeds.extend(other.seeds);
        for (kill, count) in other.kills {
            *self.kills.entry(kill).or_default() += count;
        }
        self.starts += other.starts;
        self.verified.add(other.verified);
    }
}

impl fmt::Display for KillStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "worlds: {}, seeds {:?}", self.seeds.len(), self.seeds)?;
        writeln!(f, "kills: {}, starts: {}", self.total_kills(), self.starts)?;
        for (kill, count) in &self.kills {
            writeln!(f, "  {kill}: {count}")?;
        }
        write!(f, "{}", self.verified)
    }
}

/// One world from its founding to the verdict; the error says what was wrong, with the log.
async fn survive(seed: u64, count: usize) -> Result<KillStats, String> {
    let dir = tempfile::Builder::new().prefix("crash-").tempdir().unwrap();
    let world = Arc::new(CrashEnv::create(dir.path(), seed).await);
    let mut figures = KillStats {
        seeds: vec![seed],
        starts: 2,
        ..KillStats::default()
    };
    // The founding ends with one: what an operator was told just before must stay.
    figures.note("just after an answer");
    let outcome = burn(&world, count, &mut figures).await;
    let judged = match outcome {
        Ok(service) => checks::check_all(&world, service).await,
        Err(fault) => Err(fault),
    };
    kill_processes_in(&world.dir);
    judged
        .map(|counted| {
            figures.verified = counted;
            figures
        })
        .map_err(|fault| {
            let log = std::fs::read_to_string(world.log_file()).unwrap_or_default();
            let kept = dir.keep();
            let shown = kept.display();
            format!("seed {seed}, everything is in {shown}:\n{log}\n== wrong is: {fault}")
        })
}

/// Kills as planned, and answers a service that lives and has nothing left to do.
async fn burn(
    world: &Arc<CrashEnv>,
    count: usize,
    figures: &mut KillStats,
) -> Result<KillOnDrop, String> {
    let (stop, end) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let mut around = JoinSet::new();
    around.spawn(clients::file_tickets(Arc::clone(world), Arc::clone(&stop)));
    around.spawn(clients::change_mapping(
        Arc::clone(world),
        Arc::clone(&stop),
    ));
    around.spawn(clients::take_backups(Arc::clone(world), Arc::clone(&stop)));
    around.spawn(clients::inject_faults(Arc::clone(world), Arc::clone(&stop)));
    let mut beside = JoinSet::new();
    beside.spawn(clients::post_comments(Arc::clone(world), Arc::clone(&end)));
    beside.spawn(fake_runs::drive_all(Arc::clone(world), Arc::clone(&end)));
    world.set_fault_rate(FAULTS);
    for kill in kills(world.seed, count) {
        figures.starts += 1;
        figures.note(&die(world, kill).await?);
        world.record().kills += 1;
    }
    stop.store(true, Ordering::Relaxed);
    world.set_fault_rate(0.0);
    figures.starts += 1;
    let service = world.start_service(None);
    around.join_all().await;
    let calm = checks::wait_until_idle(world).await;
    end.store(true, Ordering::Relaxed);
    beside.join_all().await;
    calm.map(|()| service)
}

/// One life of the service. Answers how it ended.
async fn die(world: &CrashEnv, kill: Kill) -> Result<String, String> {
    let (visit, limit) = match kill {
        Kill::At(instant) => (None, instant),
        Kill::Visiting(place, times) => (Some(format!("{place}:{times}")), VISIT),
    };
    let mut service = world.start_service(visit.as_deref());
    let began = Instant::now();
    loop {
        if let Some(status) = service.0.try_wait().unwrap() {
            return match (kill, is_sigkilled(status)) {
                (Kill::Visiting(place, _), true) => Ok(place.to_string()),
                _ => Err(format!("the service ended by itself: {status}")),
            };
        }
        if began.elapsed() >= limit {
            service.0.kill().unwrap();
            service.0.wait().unwrap();
            return Ok(match kill {
                Kill::At(_) => "at any instant".to_owned(),
                Kill::Visiting(..) => "at any instant, its place not reached".to_owned(),
            });
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Worlds, four at a time; tells the figures of all, and every world that failed.
fn survive_all(worlds: Vec<(u64, usize)>) {
    let waiting = Mutex::new(worlds.into_iter());
    let (figures, faults) = (Mutex::new(KillStats::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                loop {
                    let Some((seed, count)) = waiting.lock().unwrap().next() else {
                        break;
                    };
                    match runtime.block_on(survive(seed, count)) {
                        Ok(of_one) => {
                            println!("seed {seed}: {} kills survived", of_one.total_kills());
                            figures.lock().unwrap().add(of_one);
                        }
                        Err(fault) => {
                            println!("seed {seed}: not survived");
                            faults.lock().unwrap().push(fault);
                        }
                    }
                }
            });
        }
    });
    println!("{}", figures.into_inner().unwrap());
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n=====\n"));
}

#[test]
fn a_service_at_work_survives_being_killed() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    survive_all(vec![(seed, 24)]);
}

/// `CRASH_SEED` names the first world, `CRASH_WORLDS` how many there are, and `CRASH_KILLS` how often the
/// service is killed in each.
#[test]
#[ignore = "the long form: minutes"]
fn a_service_at_work_survives_a_thousand_kills() {
    let given = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let first = given("CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("first seed {first}");
    let worlds = given("CRASH_WORLDS").unwrap_or(WORLDS);
    let kills = given("CRASH_KILLS").map_or(KILLS, |kills| usize::try_from(kills).unwrap());
    let seeds = (0..worlds).map(|number| first.wrapping_add(number));
    survive_all(seeds.map(|seed| (seed, kills)).collect());
}

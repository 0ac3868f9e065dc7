//! `kill -9` at each step of a cancellation and of a retry, for runs on every kind of host.
//!
//! Each case cancels one running agent, kills the service at a crash point and starts it again. The
//! operator, who got no answer, repeats the request. Afterwards the host was asked once, or again if the
//! kill came before the answer was recorded, the ticket has one comment, and another run exists only if
//! the operator requested it.

use std::fmt;
use std::time::{Duration, Instant};

use domain::effect::Effect;
use domain::issue::System;
use domain::job::JobState;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, MachineHost};
use reqwest::Method;
use serde_json::{Value, json};
use store::crash_injection::CrashPoint;
use store::{STORE_FILE, Store, jobs, outbox};

use crate::checks::{IDLE_DURATION, ensure, open_store, run_cases};
use crate::crash_env::{CrashEnv, TIMEOUT};
use crate::demo::DemoRunner;
use crate::program::{KillOnDrop, check_audit, is_sigkilled, kill_processes_in};
use crate::tickets::{self, TicketKind};

/// Crash points between the request of the operator and the end of the run at its host.
const CANCEL_POINTS: [CrashPoint; 4] = [
    CrashPoint::CancelStored,
    CrashPoint::StopClaimed,
    CrashPoint::Stopped,
    CrashPoint::StopRecorded,
];

/// Further crash points of runs with a machine.
const MACHINE_POINTS: [CrashPoint; 3] = [
    CrashPoint::DestroyClaimed,
    CrashPoint::Destroyed,
    CrashPoint::DestroyRecorded,
];

/// Requests of the operator.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Requests {
    Cancel,
    CancelWithRetry,
    CancelThenRetry,
}

/// Answer of the host to the request to stop the run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum StopAnswer {
    /// The host stops the run.
    Accepted,
    /// The host answers with this status, and the run has ended there by itself.
    Status(u16),
}

/// A cancellation and its crash.
#[derive(Debug, Clone, Copy)]
struct CancelCase {
    system: System,
    runner: DemoRunner,
    requests: Requests,
    answer: StopAnswer,
    point: CrashPoint,
}

impl fmt::Display for CancelCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            system,
            runner,
            requests,
            answer,
            point,
        } = self;
        write!(
            f,
            "{requests:?} on {runner:?} and {system:?}, stop {answer:?}, killed at {point}"
        )
    }
}

impl CancelCase {
    fn flags(self) -> Vec<(&'static str, String)> {
        match self.runner {
            DemoRunner::Ci => Vec::new(),
            DemoRunner::Vm => vec![("--runner-mode", "vm".to_owned())],
            DemoRunner::Local => vec![("--runner-mode", "local".to_owned())],
            DemoRunner::Kubernetes => vec![("--runner-mode", "kubernetes".to_owned())],
        }
    }

    fn key(self) -> &'static str {
        match self.system {
            System::Linear => "ENG-1",
            System::Jira => "OPS-1",
            System::GitHub => "issues#100",
        }
    }

    fn repo(self) -> &'static str {
        match self.system {
            System::Linear | System::Jira => "shop",
            System::GitHub => tickets::ISSUES,
        }
    }

    fn host(self) -> FakeService {
        match self.runner {
            DemoRunner::Ci => FakeService::GitHub,
            DemoRunner::Vm => FakeService::Fly,
            DemoRunner::Local => FakeService::Docker,
            DemoRunner::Kubernetes => FakeService::Kubernetes,
        }
    }

    /// End of the URL path of a request that stops a run.
    fn stop_path(self) -> &'static str {
        match self.runner {
            DemoRunner::Ci => "/cancel",
            DemoRunner::Vm | DemoRunner::Local => "/stop",
            // The end of the name of every pod.
            DemoRunner::Kubernetes => "-x7k2p",
        }
    }

    fn expected_jobs(self) -> usize {
        match self.requests {
            Requests::Cancel => 1,
            Requests::CancelWithRetry | Requests::CancelThenRetry => 2,
        }
    }

    fn machines(self, env: &CrashEnv) -> Option<&MachineHost> {
        match self.runner {
            DemoRunner::Ci => None,
            DemoRunner::Vm => Some(env.vendors.fly().host()),
            DemoRunner::Local => Some(env.vendors.docker().host()),
            DemoRunner::Kubernetes => Some(env.vendors.kubernetes().host()),
        }
    }

    /// One crash and one recovery. The error contains what is wrong afterwards, and the log.
    fn run(self) -> Result<(), String> {
        let dir = tempfile::Builder::new().prefix("crash-").tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (outcome, log) = runtime.block_on(async {
            let env = CrashEnv::create(dir.path(), 1, |_| self.flags()).await;
            let outcome = self.crash_and_recover(&env).await;
            (outcome, std::fs::read_to_string(env.log_file()))
        });
        kill_processes_in(&dir.path().canonicalize().unwrap());
        outcome.map_err(|fault| {
            format!(
                "{self}: {fault}\nfiles kept in {}\n{}",
                dir.keep().display(),
                log.unwrap_or_default()
            )
        })
    }

    async fn crash_and_recover(self, env: &CrashEnv) -> Result<(), String> {
        let hang = Script::new().pass([ScriptStep::Hang]);
        hang.save(&env.vendors.scripts_dir(), self.key()).unwrap();
        let mut service = env.start_service(Some(self.point.name()));
        tickets::create(env, TicketKind::Plain, self.system, 1);
        let job = self.wait_for_run(env, 1).await?;
        if let StopAnswer::Status(status) = self.answer {
            let faults = env.vendors.faults(self.host());
            for _ in 0..2 {
                faults.inject_on_match(self.stop_path(), InjectedFault::ErrorStatus(status));
            }
        }
        self.request_until_killed(env, &mut service, &job).await?;
        if self.point == CrashPoint::Stopped && self.answer == StopAnswer::Accepted {
            self.wait_until_stopped(env).await?;
        }
        let unfinished = unfinished_effects(env);
        let service = env.start_service(None);
        self.repeat_requests(env, &job).await?;
        self.wait_until_idle(env).await?;
        self.check_host(env, &unfinished)?;
        let ticket = env.record().tickets[0].clone();
        let comments = ticket.comments(env);
        let cancelled = comments
            .iter()
            .filter(|text| text.contains(" cancelled by an operator"))
            .count();
        let expected = usize::from(self.requests != Requests::CancelWithRetry);
        ensure(cancelled == expected, || {
            format!("{cancelled} comments about the cancellation: {comments:#?}")
        })?;
        drop(service);
        check_audit(&env.data_dir())?;
        self.check_store(env, &job).await
    }

    /// Waits until the agent of the n-th job runs. Returns the ID of the job.
    async fn wait_for_run(self, env: &CrashEnv, number: usize) -> Result<String, String> {
        let started = Instant::now();
        loop {
            let jobs = jobs_of(env).await;
            let newest = jobs.first().unwrap_or(&Value::Null);
            if jobs.len() == number && newest["status"] == "running" {
                return Ok(newest["id"].as_str().unwrap().to_owned());
            }
            ensure(started.elapsed() < TIMEOUT, || {
                format!("run {number} does not run: {jobs:#?}")
            })?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends the requests until the service is killed at the crash point.
    async fn request_until_killed(
        self,
        env: &CrashEnv,
        service: &mut KillOnDrop,
        job: &str,
    ) -> Result<(), String> {
        let started = Instant::now();
        let (mut is_cancelled, mut is_retried) = (false, false);
        loop {
            if let Some(status) = service.0.try_wait().unwrap() {
                return ensure(is_sigkilled(status), || {
                    format!("the service exited by itself: {status}")
                });
            }
            ensure(started.elapsed() < TIMEOUT, || {
                format!("the point {} was not reached", self.point)
            })?;
            if !is_cancelled {
                is_cancelled = self.cancel(env, job).await?.is_some();
            } else if self.requests == Requests::CancelThenRetry && !is_retried {
                is_retried = retry(env, job).await?.is_some();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends the cancellation. Returns its status, if it was answered.
    async fn cancel(self, env: &CrashEnv, job: &str) -> Result<Option<u16>, String> {
        let body = json!({"retry": self.requests == Requests::CancelWithRetry});
        let path = format!("/api/jobs/{job}/cancel");
        match env.try_request(Method::POST, &path, &body).await {
            Some((409, answer)) if answer["error"] == "Job already ended" => Ok(Some(409)),
            Some((200, _)) => Ok(Some(200)),
            Some(other) => Err(format!("the cancellation got {other:?}")),
            None => Ok(None),
        }
    }

    /// Waits until the run has ended at its host.
    async fn wait_until_stopped(self, env: &CrashEnv) -> Result<(), String> {
        let started = Instant::now();
        let runs = || env.repo(self.repo()).runs();
        while match self.machines(env) {
            Some(host) => host.snapshots().iter().any(|machine| machine.running),
            None => runs().iter().any(|run| run.status != "completed"),
        } {
            ensure(started.elapsed() < TIMEOUT, || {
                "the host does not stop the run".to_owned()
            })?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Repeats the requests of an operator who does not know whether they were accepted.
    async fn repeat_requests(self, env: &CrashEnv, job: &str) -> Result<(), String> {
        let started = Instant::now();
        loop {
            match self.cancel(env, job).await? {
                Some(409) => break,
                Some(status) => return Err(format!("the cancellation was lost: {status}")),
                None => ensure(started.elapsed() < TIMEOUT, || "no answer".to_owned())?,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while self.requests == Requests::CancelThenRetry && retry(env, job).await?.is_none() {
            ensure(started.elapsed() < TIMEOUT, || "no answer".to_owned())?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until the outbox is empty and the expected runs exist, and stays so for two polls.
    async fn wait_until_idle(self, env: &CrashEnv) -> Result<(), String> {
        if self.expected_jobs() == 2 {
            self.wait_for_run(env, 2).await?;
        }
        let started = Instant::now();
        let mut idle_since = None;
        loop {
            let (pending, dead) = env.outbox_state().await;
            let jobs = jobs_of(env).await;
            ensure(jobs.len() == self.expected_jobs(), || {
                format!("not the expected runs: {jobs:#?}")
            })?;
            if (pending, &dead) != (0, &json!([])) {
                ensure(started.elapsed() < TIMEOUT, || {
                    format!("{pending} outbox entries are pending; dead: {dead}")
                })?;
                idle_since = None;
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() > IDLE_DURATION {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The host was asked once to stop the run, or twice if the answer was not recorded. A repetition
    /// finds the run stopped. There is no further run. `unfinished`: effects that the killed service had
    /// not recorded as performed.
    fn check_host(self, env: &CrashEnv, unfinished: &[Effect]) -> Result<(), String> {
        let requests = env.vendors.requests().for_service(self.host());
        let count = |is_counted: &dyn Fn(&str, &str, u16) -> bool| {
            let counted = requests.iter().filter(|request| {
                let path = request.url.split('?').next().unwrap_or_default();
                is_counted(&request.method, path, request.status.unwrap_or_default())
            });
            counted.count()
        };
        let (stop, faulted) = (self.stop_path(), self.answer != StopAnswer::Accepted);
        let stops = count(&|_, path, _| path.ends_with(stop));
        let is_open = |is_kind: fn(&Effect) -> bool| unfinished.iter().any(is_kind);
        let is_stop_open = is_open(|effect| matches!(effect, Effect::StopRun { .. }));
        let is_destroy_open = is_open(|effect| matches!(effect, Effect::DestroyMachine { .. }));
        let expected = match self.point {
            // A Job that is gone by then is not stopped again.
            CrashPoint::Stopped
                if is_destroy_open && matches!(self.runner, DemoRunner::Kubernetes) =>
            {
                1..=2
            }
            CrashPoint::Stopped => 2..=2,
            CrashPoint::CancelStored | CrashPoint::StopClaimed => 1..=1,
            // The request may have been under way when the service was killed.
            _ if is_stop_open => 1..=2,
            _ => 1..=1,
        };
        ensure(expected.contains(&stops), || {
            format!("{stops} requests to stop the run, not {expected:?}")
        })?;
        let started = match self.machines(env) {
            None => {
                let accepted = count(&|_, path, status| path.ends_with(stop) && status == 202);
                ensure(accepted == usize::from(!faulted), || {
                    format!("the host accepted {accepted} cancellations")
                })?;
                env.repo(self.repo()).runs().len()
            }
            Some(host) => {
                let destroyed = count(&|method, _, status| method == "DELETE" && status < 300);
                // The fake records no answer to a request whose connection the kill has cut.
                let is_cut = is_destroy_open && destroyed == 0;
                ensure(destroyed == 1 || is_cut, || {
                    format!("the host destroyed {destroyed} machines: {requests:#?}")
                })?;
                let remaining = host.snapshots().len();
                ensure(remaining + 1 == self.expected_jobs(), || {
                    format!("{remaining} machines remain")
                })?;
                host.created_names().len()
            }
        };
        ensure(started == self.expected_jobs(), || {
            format!("{started} runs at the host")
        })
    }

    async fn check_store(self, env: &CrashEnv, job: &str) -> Result<(), String> {
        let store = open_store(&env.data_dir()).await;
        let all = store.read(|tx| jobs::latest(tx, 10)).unwrap();
        let (cancelled, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|one| one.id.as_str() == job);
        let is_cancelled = matches!(
            cancelled.as_slice(),
            [one] if matches!(one.state, JobState::Failed { .. }) && one.cancellation.is_some()
        );
        ensure(
            is_cancelled && others.iter().all(|one| one.is_active()),
            || format!("wrong jobs: {all:#?}"),
        )
    }
}

/// Jobs in the log, newest first.
async fn jobs_of(env: &CrashEnv) -> Vec<Value> {
    let (status, body) = env
        .request_until_answered(Method::GET, "/api/log", Value::Null)
        .await;
    assert_eq!(status, 200, "{body}");
    body.as_array().unwrap().clone()
}

/// Sends the retry. Returns its status, if it was answered.
async fn retry(env: &CrashEnv, job: &str) -> Result<Option<u16>, String> {
    let path = format!("/api/jobs/{job}/retry");
    match env.try_request(Method::POST, &path, &Value::Null).await {
        Some((status @ (202 | 409), _)) => Ok(Some(status)),
        Some(other) => Err(format!("the retry got {other:?}")),
        None => Ok(None),
    }
}

/// All cases of a kind of host on one ticketing system.
fn cases_of(runner: DemoRunner, system: System) -> Vec<CancelCase> {
    let case = |requests, answer, point| CancelCase {
        system,
        runner,
        requests,
        answer,
        point,
    };
    let machine_points = match runner {
        DemoRunner::Ci => &[][..],
        DemoRunner::Vm | DemoRunner::Local | DemoRunner::Kubernetes => &MACHINE_POINTS,
    };
    let mut cases = Vec::new();
    for requests in [Requests::Cancel, Requests::CancelWithRetry] {
        let points = CANCEL_POINTS.iter().chain(machine_points);
        cases.extend(points.map(|point| case(requests, StopAnswer::Accepted, *point)));
    }
    let retry_stored = CrashPoint::RetryStored;
    cases.push(case(
        Requests::CancelThenRetry,
        StopAnswer::Accepted,
        retry_stored,
    ));
    // The run has ended at its host, or is unknown there.
    let statuses: &[u16] = match runner {
        DemoRunner::Ci => &[404, 409],
        DemoRunner::Vm | DemoRunner::Local | DemoRunner::Kubernetes => &[404],
    };
    for status in statuses {
        let answer = StopAnswer::Status(*status);
        cases.push(case(Requests::Cancel, answer, CrashPoint::Stopped));
    }
    cases
}

/// Effects in the outbox of a killed service. Reads a copy, so that the service itself recovers the store.
fn unfinished_effects(env: &CrashEnv) -> Vec<Effect> {
    let copy = tempfile::tempdir().unwrap();
    let file = env.data_dir().join(STORE_FILE);
    std::fs::copy(file, copy.path().join(STORE_FILE)).unwrap();
    let store = Store::open(copy.path()).unwrap();
    let pending = store.read(outbox::pending).unwrap().into_iter();
    pending.map(|entry| entry.effect).collect()
}

fn run_all(cases: Vec<CancelCase>) {
    let (count, started) = (cases.len(), Instant::now());
    run_cases(cases, |case| {
        case.run()?;
        println!("recovered: {case}");
        Ok(())
    });
    println!("{count} cancellations in {:.0?}", started.elapsed());
}

const RUNNERS: [DemoRunner; 4] = [
    DemoRunner::Ci,
    DemoRunner::Vm,
    DemoRunner::Local,
    DemoRunner::Kubernetes,
];
const SYSTEMS: [System; 3] = [System::Linear, System::Jira, System::GitHub];

/// Two random cases of each kind of host.
#[test]
fn cancels_once_after_a_crash() {
    let mut rng = fastrand::Rng::new();
    let cases = RUNNERS.into_iter().flat_map(|runner| {
        let system = SYSTEMS[rng.usize(..SYSTEMS.len())];
        let mut cases = cases_of(runner, system);
        rng.shuffle(&mut cases);
        cases.truncate(2);
        cases
    });
    run_all(cases.collect());
}

#[test]
#[ignore = "takes minutes"]
fn cancels_once_after_a_crash_at_each_point_on_every_host_and_system() {
    let cases = RUNNERS.into_iter().flat_map(|runner| {
        SYSTEMS
            .into_iter()
            .flat_map(move |system| cases_of(runner, system))
    });
    run_all(cases.collect());
}

//! Two machines that share a place for backups: take-over, refusals, and a place that is away.

mod places;
mod restores;
mod series;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fake_vendors::FakeService;
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::process::{ServiceProcess, client_builder, command, control_request, exit_and_output};
use crate::test_env::{PortForward, StoppedEnv, TestEnv, TestEnvOptions, forward_port};

/// Key of the stored secrets, which both machines have.
const SECRETS_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Maximum wait for any expected event.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Two machines with a data folder each, and a bucket. The first reaches the bucket through a network that can be cut.
struct Machines {
    env: StoppedEnv,
    network: PortForward,
    /// Data folder of the second machine.
    second: tempfile::TempDir,
}

impl Machines {
    async fn new() -> Self {
        let key = ("--secrets-key", SECRETS_KEY.to_owned());
        let options = TestEnvOptions {
            extra_flags: vec![key],
            fake_runs: true,
            ..TestEnvOptions::default()
        };
        let env = TestEnv::with_options(options).await.stop_service().await;
        let bucket = env.vendors.bucket_endpoint();
        let bucket = bucket.strip_prefix("http://").unwrap().parse().unwrap();
        Self {
            network: forward_port(([127, 0, 0, 1], 0).into(), bucket).await,
            env,
            second: tempfile::tempdir().unwrap(),
        }
    }

    fn first_dir(&self) -> PathBuf {
        self.env.data_dir()
    }

    fn second_dir(&self) -> PathBuf {
        self.second.path().join("data")
    }

    /// Flags for the access to the bucket from the machine with this data folder.
    fn access(&self, dir: &Path) -> Vec<String> {
        let key = self.env.vendors.bucket().key();
        let endpoint = match dir == self.first_dir() {
            true => format!("http://{}", self.network.address),
            false => self.env.vendors.bucket_endpoint(),
        };
        let flags = [
            ("--aws-access-key-id", key.id),
            ("--aws-secret-access-key", key.secret),
            ("--aws-region", key.region),
            ("--aws-endpoint-url", &endpoint),
            ("--secrets-key", SECRETS_KEY),
        ];
        flags
            .into_iter()
            .flat_map(|(flag, value)| [flag, value].map(str::to_owned))
            .collect()
    }

    /// Flags of the service on a data folder, without the folder.
    fn serve_flags(&self, dir: &Path) -> Vec<String> {
        let options = TestEnvOptions::default();
        let mut flags = self.env.command_line("http://127.0.0.1:9", &options);
        // The last two name the folder.
        flags.truncate(flags.len() - 2);
        let place = self.env.vendors.bucket().address();
        flags.extend(["--quick", "--standby-place", &place].map(str::to_owned));
        flags.extend(self.access(dir));
        flags
    }

    fn start(&self, dir: &Path) -> ServiceProcess {
        let flags = self.serve_flags(dir);
        ServiceProcess::start(dir, &flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts the service, which must refuse because the state must be restored first. Returns its message.
    fn refused(&self, dir: &Path) -> String {
        let (code, stderr) = self.failed_start(dir, 0);
        assert_eq!(code, 75, "{stderr}");
        stderr
    }

    /// Starts the service on a port. Returns its exit code and message.
    fn failed_start(&self, dir: &Path, port: u16) -> (i32, String) {
        let mut serve = command(&["serve", "--port", &port.to_string(), "--data-dir"]);
        let output = serve.arg(dir).args(self.serve_flags(dir)).output().unwrap();
        let (code, _, stderr) = exit_and_output(&output);
        (code, stderr)
    }

    fn record(&self) -> Value {
        let record = self.env.vendors.bucket().object("standby.json").unwrap();
        serde_json::from_slice(&record).unwrap()
    }

    /// Runs `restore --latest` on a data folder. Returns exit code, standard output, and standard error.
    fn restore(&self, dir: &Path, flags: &[&str]) -> (i32, String, String) {
        let place = self.env.vendors.bucket().address();
        let mut restore = command(&["restore", "--latest", "--from", &place, "--data-dir"]);
        let restore = restore.arg(dir).args(self.access(dir)).args(flags);
        exit_and_output(&restore.output().unwrap())
    }

    fn file_ticket(&self, key: &str) {
        let issue = self.env.vendors.linear().issue(key);
        issue
            .title("A ticket")
            .describe("Please.")
            .add_label("Agent-Implement");
    }

    /// Keys of the tickets of all runs, sorted.
    fn tickets_of_runs(&self) -> Vec<String> {
        let runs = self.env.vendors.github().repo("acme", "shop").runs();
        let tickets = runs
            .iter()
            .filter_map(|run| Some(run.inputs.get("issue_identifier")?.as_str()?.to_owned()));
        let mut tickets: Vec<String> = tickets.collect();
        tickets.sort();
        tickets
    }

    async fn wait_for_runs<T: AsRef<str> + std::fmt::Debug>(&self, expected: &[T]) {
        let expected: Vec<&str> = expected.iter().map(AsRef::as_ref).collect();
        wait_until(&format!("runs of {expected:?}"), || {
            self.tickets_of_runs() == expected
        })
        .await;
    }
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "no {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn health(service: &ServiceProcess) -> Value {
    health_response(service).await.1
}

async fn health_response(service: &ServiceProcess) -> (u16, Value) {
    let client = client_builder().build().unwrap();
    let response = client.get(&service.address).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Changes a setting of the service and returns after it is acknowledged. A busy machine may not write it to the place
/// in time, and the change is then repeated.
async fn set_cap(dir: &Path, cap: u32) {
    let began = Instant::now();
    let change = json!({ "maxInProgressAiIssues": cap });
    loop {
        let body = Some(change.clone());
        let (status, body) = control_request(dir, Method::PATCH, "/api/mappings/ENG", body).await;
        if status == 200 {
            return;
        }
        let is_late = body["error"] == "The change is not in the place of the standby yet";
        assert!(is_late && began.elapsed() < TIMEOUT, "{status}: {body}");
    }
}

async fn cap(dir: &Path) -> Value {
    let (_, mapping) = control_request(dir, Method::GET, "/api/mappings/ENG", None).await;
    mapping["maxInProgressAiIssues"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_takes_over_what_a_killed_one_has_acknowledged() {
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    let service = machines.start(&first);
    machines.file_ticket("ENG-1");
    machines.wait_for_runs(&["ENG-1"]).await;

    let mut flags = machines.serve_flags(&first);
    flags.retain(|flag| flag != "--quick");
    let mut doctor = command(&["doctor", "--json", "--data-dir"]);
    let (_, stdout, stderr) = exit_and_output(&doctor.arg(&first).args(flags).output().unwrap());
    let report: Value = serde_json::from_str(&stdout).expect(&stderr);
    let findings = report["findings"].as_array().unwrap();
    let finding = findings.iter().find(|one| one["check"] == "standby");
    let text = finding.map_or(String::new(), |finding| finding["what"].to_string());
    assert!(
        text.contains("works with s3://fake-backups; its lease was renewed"),
        "{stdout}{stderr}"
    );

    // Nobody takes over from a service that works.
    let (code, _, stderr) = machines.restore(&second, &[]);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("is working with s3://fake-backups"),
        "{stderr}"
    );
    assert!(stderr.contains("use --when-free to wait"), "{stderr}");
    let message = machines.refused(&second);
    assert!(
        message.contains("this data folder has never been part of that"),
        "{message}"
    );

    set_cap(&first, 7).await;
    service.kill();
    let (code, stdout, stderr) = machines.restore(&second, &["--when-free"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("Took over s3://fake-backups from "),
        "{stdout}"
    );
    let service = machines.start(&second);
    assert_eq!(cap(&second).await, 7);
    machines.file_ticket("ENG-2");
    machines.wait_for_runs(&["ENG-1", "ENG-2"]).await;

    // The first machine comes back. Its store is out of date, and it can only take over again.
    let message = machines.refused(&first);
    assert!(
        message.contains("so this data folder is out of date"),
        "{message}"
    );
    set_cap(&second, 8).await;
    service.kill();
    let (code, stdout, stderr) = machines.restore(&first, &["--when-free", "--replace"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Moved the previous store to"), "{stdout}");
    // A service manager may run the command before each start: there is nothing to restore now.
    let (code, stdout, stderr) = machines.restore(&first, &["--when-free", "--replace"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("is the store in use. Nothing was restored."),
        "{stdout}"
    );
    let _service = machines.start(&first);
    assert_eq!(cap(&first).await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_never_start_runs_for_one_ticket() {
    work_beside_a_machine_that_is_cut_off(Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: minutes"]
async fn two_services_that_are_alive_for_a_minute_never_start_runs_for_one_ticket() {
    work_beside_a_machine_that_is_cut_off(Duration::from_secs(90)).await;
}

/// The first machine cannot reach the place, and works on. It must perform nothing once the second one may have begun,
/// which works beside it for this time.
async fn work_beside_a_machine_that_is_cut_off(time: Duration) {
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    let cut_off = machines.start(&first);
    set_cap(&first, 200).await;
    machines.file_ticket("ENG-1");
    machines.wait_for_runs(&["ENG-1"]).await;
    machines.network.set_connected(false);
    // Filed while only the first service runs, and taken up by it: it may perform no effect.
    machines.file_ticket("ENG-2");
    let (code, _, stderr) = machines.restore(&second, &["--when-free"]);
    assert_eq!(code, 0, "{stderr}");
    let service = machines.start(&second);
    machines.wait_for_runs(&["ENG-1", "ENG-2"]).await;
    let began = Instant::now();
    // It acknowledges nothing either: the second service would not know it.
    let (status, state) = health_response(&cut_off).await;
    assert_eq!(status, 503, "{state}");
    assert!(
        state["reasons"]
            .to_string()
            .contains("another machine may work"),
        "{state}"
    );
    let body = json!({ "maxInProgressAiIssues": 9 });
    let (status, body) =
        control_request(&first, Method::PATCH, "/api/mappings/ENG", Some(body)).await;
    assert_eq!(status, 503, "{body}");
    let mut expected = vec!["ENG-1".to_owned(), "ENG-2".to_owned()];
    while began.elapsed() < time {
        let key = format!("ENG-{}", expected.len() + 1);
        machines.file_ticket(&key);
        expected.push(key);
        expected.sort();
        machines.wait_for_runs(&expected).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(machines.tickets_of_runs(), expected);
    }
    println!("{} tickets in {:?}", expected.len(), began.elapsed());
    // With the network, the first service notices, and ends.
    machines.network.set_connected(true);
    assert_eq!(cut_off.wait_for_exit(), 1);
    assert_eq!(machines.tickets_of_runs(), expected);
    drop(service);
}

/// A machine that was suspended wakes up after another one has taken over.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_service_ends_when_it_wakes_up() {
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    let suspended = machines.start(&first);
    machines.file_ticket("ENG-1");
    machines.wait_for_runs(&["ENG-1"]).await;
    let pid = Pid::from_raw(suspended.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    machines.file_ticket("ENG-2");
    let (code, _, stderr) = machines.restore(&second, &["--when-free"]);
    assert_eq!(code, 0, "{stderr}");
    let _service = machines.start(&second);
    // Received only after the wake-up.
    let late = {
        let dir = first.clone();
        let body = json!({ "maxInProgressAiIssues": 9 });
        tokio::spawn(async move {
            control_request(&dir, Method::PATCH, "/api/mappings/ENG", Some(body)).await
        })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(suspended.wait_for_exit(), 1);
    machines.wait_for_runs(&["ENG-1", "ENG-2"]).await;
    // An error if the process has ended before its answer.
    if let Ok((status, body)) = late.await {
        assert_eq!(status, 503, "{body}");
    }
}

/// A service that cannot work must not keep another machine waiting with the renewals of its attempts to start.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_renews_no_lease() {
    let machines = Machines::new().await;
    let first = machines.first_dir();
    assert_eq!(machines.start(&first).stop(), 0);
    let record = machines.record();
    let used = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = used.local_addr().unwrap().port();
    let (code, stderr) = machines.failed_start(&first, port);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("is another service using the port"),
        "{stderr}"
    );
    assert_eq!(machines.record(), record);

    // An empty store must not become the latest state.
    let (store, moved) = (first.join("agent-implement.redb"), first.join("moved.redb"));
    std::fs::rename(&store, &moved).unwrap();
    let message = machines.refused(&first);
    assert!(
        message.contains("the store of this data folder is gone"),
        "{message}"
    );
    assert!(!store.exists());
    assert_eq!(machines.record(), record);
    let (code, _, stderr) = machines.restore(&first, &["--when-free"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(machines.start(&first).stop(), 0);
}

/// A copy of a whole machine starts while the original works.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_machine_waits_for_the_original() {
    let machines = Machines::new().await;
    let (first, copy) = (machines.first_dir(), machines.second_dir());
    let service = machines.start(&first);
    set_cap(&first, 6).await;
    std::fs::create_dir(&copy).unwrap();
    for name in ["agent-implement.redb", "standby.json"] {
        std::fs::copy(first.join(name), copy.join(name)).unwrap();
    }
    set_cap(&first, 7).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let message = machines.refused(&copy);
    assert!(
        message.contains("is a copy, or an older state"),
        "{message}"
    );
    let (code, _, stderr) = machines.restore(&copy, &["--replace"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("is working with s3://fake-backups"),
        "{stderr}"
    );
    service.kill();
    let (code, _, stderr) = machines.restore(&copy, &["--when-free", "--replace"]);
    assert_eq!(code, 0, "{stderr}");
    let _service = machines.start(&copy);
    assert_eq!(cap(&copy).await, 7);
}

/// A machine with data of its own gets the place of another one, or the new machine of a pair was started first.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_never_worked_with_a_place_is_not_replaced_without_asking() {
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    assert_eq!(ServiceProcess::start(&second, &[]).stop(), 0);
    let service = machines.start(&first);
    set_cap(&first, 7).await;
    assert_eq!(service.stop(), 0);
    let (code, _, stderr) = machines.restore(&second, &["--when-free", "--replace"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("has never worked with"), "{stderr}");
    assert!(second.join("agent-implement.redb").exists());
    assert_eq!(machines.record()["epoch"], 1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (code, _, stderr) = machines.restore(&second, &["--replace"]);
    assert_eq!(code, 0, "{stderr}");
    let _service = machines.start(&second);
    assert_eq!(cap(&second).await, 7);
}

/// A copy of a data folder, or a snapshot of its machine, has the same identity and an older store.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_a_store_is_not_used() {
    let machines = Machines::new().await;
    let first = machines.first_dir();
    let (store, copy) = (first.join("agent-implement.redb"), first.join("copy.redb"));
    assert_eq!(machines.start(&first).stop(), 0);
    std::fs::copy(&store, &copy).unwrap();
    let service = machines.start(&first);
    set_cap(&first, 7).await;
    assert_eq!(service.stop(), 0);
    std::fs::rename(&copy, &store).unwrap();
    let message = machines.refused(&first);
    assert!(
        message.contains("is a copy, or an older state"),
        "{message}"
    );
    // The command before each start restores what the place has.
    let (code, stdout, stderr) = machines.restore(&first, &["--when-free", "--replace"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Restored "), "{stdout}");
    let _service = machines.start(&first);
    assert_eq!(cap(&first).await, 7);
}

/// Runs wait for the place. Changes of operators do not, as long as the lease lasts.
#[tokio::test(flavor = "multi_thread")]
async fn effects_wait_for_a_place_that_is_away() {
    let machines = Machines::new().await;
    let first = machines.first_dir();
    let service = machines.start(&first);
    machines.file_ticket("ENG-1");
    machines.wait_for_runs(&["ENG-1"]).await;
    let bucket = machines.env.vendors.faults(FakeService::Bucket);
    bucket.set_outage(true);
    machines.file_ticket("ENG-2");
    set_cap(&first, 9).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let reasons = health(&service).await["reasons"].to_string();
    assert!(reasons.contains("another machine may work"), "{reasons}");
    assert_eq!(machines.tickets_of_runs(), ["ENG-1"]);
    bucket.set_outage(false);
    machines.wait_for_runs(&["ENG-1", "ENG-2"]).await;
    service.kill();
    let (code, _, stderr) = machines.restore(&machines.second_dir(), &["--when-free"]);
    assert_eq!(code, 0, "{stderr}");
    let _service = machines.start(&machines.second_dir());
    assert_eq!(cap(&machines.second_dir()).await, 9);
}

//! Complete test environment: fake vendors, the engine, the HTTP server, and real CI runs.
//!
//! A test ends with [`TestEnv::finish`]. It fails if an outbox entry is pending or dead, or if a job is
//! still active.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use domain::ids::{IssueId, IssueKey};
use domain::issue::System;
use domain::job::Job;
use domain::machine::HostKind;
use domain::mapping::{Mapping, MappingInput, PLAN_WORKFLOW};
use domain::retry::RetryPolicy;
use domain::time::Timestamp;
use engine::ShutdownSignal;
use engine::app::{App, AppOptions, Timings};
use engine::clock::Clock;
use engine::config::Config;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{
    FakeIssue, FakeRepo, FakeService, FakeVendors, FakeVendorsOptions, FaultInjector, FaultRates,
    MachineHost,
};
use reqwest::Method;
use serde_json::{Value, json};
use server::{EgressSocket, RunSocket};
use store::crash_injection::CrashPlan;
use store::{Store, jobs, mappings, outbox};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::api_server::{ACCESS_CODE, TOKEN_SECRET, config, send_checked};
use crate::contracts;
use crate::process::ServiceProcess;
use crate::test_ticket::split_comments;

/// Implementation workflow that is installed in target repositories.
pub const IMPLEMENTATION_WORKFLOW: &str =
    include_str!("../../templates/workflows/agent-implement.yml");
/// Planning workflow that is installed in target repositories.
pub const PLANNING_WORKFLOW: &str = include_str!("../../templates/workflows/agent-plan.yml");
/// Workflow that is installed in target repositories and reacts to pull-request comments.
pub const COMMENT_TRIGGER_WORKFLOW: &str =
    include_str!("../../templates/workflows/comment-trigger.yml");

/// Maximum duration of one wait in a test.
pub const TIMEOUT: Duration = Duration::from_secs(300);

pub use test_support::app_key;

/// Fake vendors and a running service.
pub struct TestEnv {
    /// Fake vendors on loopback.
    pub vendors: FakeVendors,
    /// State of the service.
    pub app: App,
    /// Store of the service, to set up and inspect what no route shows.
    pub store: Store,
    /// Base URL of the service.
    pub address: String,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// Forwards from the external address, if one is set.
    forwards: Vec<PortForward>,
    dir: tempfile::TempDir,
}

/// Deviations from the default environment.
pub struct TestEnvOptions {
    /// Mappings stored before the service starts.
    pub mappings: Vec<Mapping>,
    /// Flags of the default configuration to leave out.
    pub omitted_flags: &'static [&'static str],
    /// Flags added to the default configuration.
    pub extra_flags: Vec<(&'static str, String)>,
    /// Whether the fake session hosts (Fly, Docker and Kubernetes) are configured.
    pub session_hosts: bool,
    /// Non-loopback address of this machine under which containers reach the fake vendors and the service.
    pub external_ip: Option<IpAddr>,
    /// Mode of the engine.
    pub engine: EngineMode,
    /// Folder with real agents that replaces the scripted agent.
    pub agents_dir: Option<PathBuf>,
    /// Whether workflow runs execute in a public image, without this program and an agent.
    pub public_image: bool,
    /// Program that such runs fetch, in place of the real one.
    pub program: Option<PathBuf>,
    /// Whether workflow runs are only recorded and not executed.
    pub fake_runs: bool,
    /// Whether nothing can connect to the service over the network: it does not listen, and has neither a
    /// callback address nor a token secret.
    pub behind_nat: bool,
}

/// Trigger and clock of the engine.
#[derive(Debug, Clone)]
pub enum EngineMode {
    /// Runs in the background on the system clock.
    Running,
    /// Works only in [`TestEnv::tick`], on this clock. The clock moves only when a test advances it.
    /// Workflow runs of the fake vendors continue in the background.
    Manual(Clock),
}

impl Default for TestEnvOptions {
    fn default() -> Self {
        Self {
            mappings: vec![mapping()],
            omitted_flags: &[],
            extra_flags: Vec::new(),
            session_hosts: false,
            external_ip: None,
            engine: EngineMode::Running,
            agents_dir: None,
            public_image: false,
            program: None,
            fake_runs: false,
            behind_nat: false,
        }
    }
}

impl EngineMode {
    /// Returns the manual mode with a clock that is set to the current time.
    pub fn manual() -> Self {
        EngineMode::Manual(Clock::manual(Clock::System.now()))
    }

    fn clock(&self) -> Clock {
        match self {
            EngineMode::Running => Clock::System,
            EngineMode::Manual(clock) => clock.clone(),
        }
    }
}

impl TestEnv {
    /// Starts an environment with team `ENG` mapped to `acme/shop` and a running engine.
    pub async fn start() -> Self {
        Self::with_mappings([mapping()]).await
    }

    /// Starts an environment with one mapping.
    pub async fn with_mapping(mapping: Mapping) -> Self {
        Self::with_mappings([mapping]).await
    }

    /// Starts an environment with these mappings. The fake Jira has project `OPS`.
    pub async fn with_mappings(mappings: impl IntoIterator<Item = Mapping>) -> Self {
        Self::with_options(TestEnvOptions {
            mappings: mappings.into_iter().collect(),
            ..TestEnvOptions::default()
        })
        .await
    }

    /// Starts an environment with these mappings and a manual engine.
    pub async fn with_manual_engine(mappings: impl IntoIterator<Item = Mapping>) -> Self {
        Self::with_options(TestEnvOptions {
            mappings: mappings.into_iter().collect(),
            engine: EngineMode::manual(),
            ..TestEnvOptions::default()
        })
        .await
    }

    /// Starts an environment with these options.
    pub async fn with_options(options: TestEnvOptions) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let dir = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_agent-implement");
        let mut vendors_options = FakeVendorsOptions::new(dir.path().join("vendors"), program);
        vendors_options.app_key_pem = Some(app_key());
        vendors_options.agents_dir.clone_from(&options.agents_dir);
        vendors_options.fake_runs = options.fake_runs;
        vendors_options.public_image = options.public_image;
        let vendors = FakeVendors::start(vendors_options).await.unwrap();
        vendors.linear().ensure_team("ENG", "Engineering");
        vendors.jira().ensure_project("OPS", "Operations");
        seed_repo(&vendors, "shop");
        default_script()
            .save(&vendors.scripts_dir(), "default")
            .unwrap();
        Self::start_with_vendors(vendors, dir, options).await
    }

    /// Restarts the service with other options and keeps vendors and store. The mappings of the options
    /// are added to the stored mappings.
    pub async fn restart_service(self, options: TestEnvOptions) -> Self {
        self.stop_service().await.start_service(options).await
    }

    /// Stops the service and leaves the vendors running.
    pub async fn stop_service(self) -> StoppedEnv {
        let Self {
            vendors,
            app,
            store,
            stop,
            tasks,
            forwards,
            dir,
            ..
        } = self;
        stop_tasks(&stop, tasks).await;
        for forward in forwards {
            forward.close().await;
        }
        drop((app, store));
        // Another process can open the store only after this process has closed it.
        drop(open_store(&dir.path().join("data")).await);
        StoppedEnv { vendors, dir }
    }

    /// Starts the service for fake vendors that are already running.
    async fn start_with_vendors(
        vendors: FakeVendors,
        dir: tempfile::TempDir,
        options: TestEnvOptions,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let mut forwards = Vec::new();
        if let Some(ip) = options.external_ip {
            for port in [vendors.port(), listener.local_addr().unwrap().port()] {
                let to = ([127, 0, 0, 1], port).into();
                forwards.push(forward_port((ip, port).into(), to).await);
            }
        }
        let store = open_store(&dir.path().join("data")).await;
        let app_options = AppOptions {
            clock: options.engine.clock(),
            timings: match options.engine {
                EngineMode::Running => short_timings(),
                // Several ticks happen at the same time.
                EngineMode::Manual(_) => Timings {
                    run_monitor_interval: Duration::ZERO,
                    ..short_timings()
                },
            },
            program: Some(
                options
                    .program
                    .clone()
                    .unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-implement").into()),
            ),
            ..AppOptions::default()
        };
        let data_dir = dir.path().join("data");
        let config = Config {
            data_dir: data_dir.clone(),
            ..service_config(&vendors, &address, &options)
        };
        let app = App::new(config, store.clone(), app_options).unwrap();
        for mapping in options.mappings {
            let put = store.write(move |tx| mappings::put(tx, &mapping));
            put.await.unwrap();
        }
        let (stop, signal) = ShutdownSignal::new();
        let run_socket = RunSocket::open(&data_dir).unwrap();
        let served = server::serve_runs(app.clone(), run_socket, until_requested(&signal));
        let mut tasks = vec![tokio::spawn(async { served.await.unwrap() })];
        let proxy = EgressSocket::open(&data_dir).unwrap();
        let served = server::serve_egress(app.clone(), proxy, until_requested(&signal));
        tasks.push(tokio::spawn(served));
        if !options.behind_nat {
            let served = server::serve(app.clone(), listener, until_requested(&signal));
            tasks.push(tokio::spawn(async { served.await.unwrap() }));
        }
        if let EngineMode::Running = options.engine {
            tasks.push(tokio::spawn(engine::run(app.clone(), signal)));
        }
        Self {
            vendors,
            app,
            store,
            address,
            stop,
            tasks,
            forwards,
            dir,
        }
    }

    /// Runs one tick of a manual engine: poll, follow-ups, outbox, run monitor, outbox.
    pub async fn tick(&self) {
        let app = &self.app.latest();
        engine::poll::run_once(app).await.unwrap();
        engine::pull_requests::follow_up::run_once(app)
            .await
            .unwrap();
        engine::outbox_worker::drain(app).await.unwrap();
        engine::run_monitor::run_once(app).await.unwrap();
        engine::outbox_worker::drain(app).await.unwrap();
    }

    /// Runs ticks of a manual engine until the outbox is empty. Advances the clock by a minute before each
    /// tick, because an entry that failed is due again only later.
    pub async fn tick_until_drained(&self) {
        let began = Instant::now();
        while !self.store.read(outbox::queue_keys).unwrap().is_empty() {
            assert!(began.elapsed() < TIMEOUT, "{}", self.describe());
            self.advance_clock(Duration::from_secs(60));
            self.tick().await;
        }
    }

    /// Runs ticks of a manual engine until a condition holds.
    pub async fn tick_until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            let in_time = began.elapsed() < TIMEOUT;
            assert!(in_time, "timeout: {what}\n{}", self.describe());
            self.tick().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Advances the clock of a manual engine.
    pub fn advance_clock(&self, span: Duration) {
        self.app.core.clock.advance(span);
    }

    /// Creates a repository of `acme` like `acme/shop`.
    pub fn seed_repo(&self, name: &str) -> FakeRepo {
        seed_repo(&self.vendors, name)
    }

    /// Returns the target repository `acme/shop`.
    pub fn repo(&self) -> FakeRepo {
        self.vendors.github().repo("acme", "shop")
    }

    /// Creates a Linear ticket and adds the trigger label.
    pub fn create_labelled_issue(&self, key: &str, title: &str) {
        self.vendors
            .linear()
            .issue(key)
            .title(title)
            .describe("Please.")
            .add_label("Agent-Implement");
    }

    /// Sets the script of the agent for one ticket.
    pub fn set_agent_script(&self, ticket: &str, script: Script) {
        script.save(&self.vendors.scripts_dir(), ticket).unwrap();
    }

    /// Returns the machines of a fake host.
    pub fn fake_host(&self, host: HostKind) -> &MachineHost {
        match host {
            HostKind::Vm => self.vendors.fly().host(),
            HostKind::Local => self.vendors.docker().host(),
            HostKind::Kubernetes => self.vendors.kubernetes().host(),
        }
    }

    /// Returns the fault injector of a fake host.
    pub fn faults_of(&self, host: HostKind) -> &FaultInjector {
        self.vendors.faults(match host {
            HostKind::Vm => FakeService::Fly,
            HostKind::Local => FakeService::Docker,
            HostKind::Kubernetes => FakeService::Kubernetes,
        })
    }

    /// Returns the fault injector of a fake ticketing system.
    pub fn ticketing_faults(&self, system: System) -> &FaultInjector {
        self.vendors.faults(match system {
            System::Linear => FakeService::Linear,
            System::Jira => FakeService::Jira,
            System::GitHub => FakeService::GitHub,
        })
    }

    /// Sets the rates of random faults for Linear, Jira, and GitHub.
    pub fn set_fault_rates(&self, rates: &FaultRates) {
        for system in [System::Linear, System::Jira, System::GitHub] {
            self.ticketing_faults(system).set_rates(rates.clone());
        }
    }

    /// Returns the jobs of a ticket, oldest first.
    pub fn jobs(&self, key: &str) -> Vec<Job> {
        let linear = self.vendors.linear().issue(key).snapshot();
        let jira = || self.vendors.jira().issue(key).snapshot();
        let github = || self.github_issue(key)?.snapshot();
        let id = linear.map(|ticket| ticket.id);
        let id = id.or_else(|| Some(jira()?.id));
        let Some(id) = id.or_else(|| Some(github()?.id)) else {
            return Vec::new();
        };
        let issue = IssueId::new(id);
        self.store.read(|tx| jobs::of_issue(tx, &issue)).unwrap()
    }

    /// Returns the issue of GitHub with a key such as `shop#1`, of the owner `acme` unless the key names another.
    pub fn github_issue(&self, key: &str) -> Option<FakeIssue> {
        let key = IssueKey::from(key);
        let (owner, name, number) = key.repo_and_number()?;
        let repo = self.vendors.github().repo(owner.unwrap_or("acme"), name);
        Some(repo.issue(number))
    }

    /// Returns the comments of a Linear ticket, split by [`split_comments`].
    pub fn comments(&self, key: &str) -> Vec<String> {
        split_comments(self.vendors.linear().issue(key).comments())
    }

    /// Waits until the last job of a ticket has ended and the outbox is empty. Returns the job.
    pub async fn wait_for_job_end(&self, key: &str) -> Job {
        self.wait_until(&format!("{key} has ended"), || {
            self.jobs(key).last().is_some_and(|job| !job.is_active())
        })
        .await;
        self.wait_for_empty_outbox().await;
        self.jobs(key).pop().unwrap()
    }

    /// Waits until the outbox is empty.
    pub async fn wait_for_empty_outbox(&self) {
        self.wait_until("the outbox is empty", || {
            self.store.read(outbox::queue_keys).unwrap().is_empty()
        })
        .await;
    }

    /// Waits for two complete polls, so that the engine has acted on the current state.
    pub async fn wait_for_polls(&self) {
        let before = self.app.live.heartbeats.polls();
        self.app.live.notifiers.poll.notify_one();
        self.wait_until("two polls", || {
            self.app.live.heartbeats.polls() >= before + 2
        })
        .await;
    }

    /// Waits until a condition holds.
    ///
    /// # Panics
    /// After [`TIMEOUT`], with a description of the state.
    pub async fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(
                began.elapsed() < TIMEOUT,
                "timeout: {what}\n{}",
                self.describe()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the state that helps to debug a failed test.
    fn describe(&self) -> String {
        let jobs = self.store.read(|tx| jobs::latest(tx, 50)).unwrap();
        let pending = self.store.read(outbox::pending).unwrap();
        let runs = self.repo().runs();
        let logs: Vec<String> = runs.iter().map(|run| self.repo().run_log(run.id)).collect();
        format!(
            "jobs {jobs:#?}\npending outbox entries {pending:#?}\nruns {runs:#?}\nlogs {}",
            logs.join("\n---\n")
        )
    }

    /// Signs in and returns a token of the admin API.
    pub async fn sign_in(&self) -> String {
        let code = json!({ "code": ACCESS_CODE });
        let request = reqwest::Client::new().post(format!("{}/api/auth", self.address));
        let signed_in = send_checked(request.json(&code)).await;
        signed_in.body["token"].as_str().unwrap().to_owned()
    }

    /// Sends a GET request to the admin API and returns the body.
    pub async fn admin_get(&self, path: &str) -> Value {
        self.admin_request(Method::GET, path, None).await.1
    }

    /// Sends a POST request to the admin API and returns the body.
    pub async fn admin_post(&self, path: &str, body: Value) -> Value {
        self.admin_request(Method::POST, path, Some(body)).await.1
    }

    /// Signs in, sends a request to the admin API, and returns status and body.
    pub async fn admin_request(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let token = self.sign_in().await;
        let url = format!("{}{path}", self.address);
        let mut request = reqwest::Client::new()
            .request(method, url)
            .bearer_auth(token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = send_checked(request).await;
        (response.status, response.body)
    }

    /// Returns the folder that contains the vendors' state and the store.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Stops everything after checking that no work is left.
    ///
    /// # Panics
    /// If an outbox entry is dead or a job is active.
    pub async fn finish(self) {
        self.set_fault_rates(&FaultRates::default());
        self.wait_for_empty_outbox().await;
        let dead = self.store.read(outbox::dead).unwrap();
        assert!(dead.is_empty(), "dead outbox entries: {dead:#?}");
        let active = self.store.read(jobs::active).unwrap();
        assert!(active.is_empty(), "active jobs: {active:#?}");
        self.stop().await;
    }

    /// Stops everything without checking for work that is left. Checks the requests that the vendors received.
    pub async fn stop(self) {
        stop_tasks(&self.stop, self.tasks).await;
        let violations = contracts::check_requests(&self.vendors);
        self.vendors.stop_and_kill_runs().await;
        assert!(violations.is_empty(), "wrong requests: {violations:#?}");
    }
}

/// Fake vendors and a store without a running service.
pub struct StoppedEnv {
    /// Fake vendors on loopback.
    pub vendors: FakeVendors,
    dir: tempfile::TempDir,
}

impl StoppedEnv {
    /// Returns the service's command-line flags for a callback address.
    pub fn command_line(&self, address: &str, options: &TestEnvOptions) -> Vec<String> {
        let data = self.dir.path().join("data").display().to_string();
        let mut arguments = flags(&self.vendors, address, options);
        arguments.extend(["--data-dir".to_owned(), data]);
        arguments
    }

    /// Returns the folder of the store.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Starts the service in a separate process. Its callback address is unreachable for runs.
    pub fn start_process(&self, options: &TestEnvOptions) -> ServiceProcess {
        self.start_process_on(0, options)
    }

    /// Starts the service in a separate process on a port. 0 stands for any free one.
    pub fn start_process_on(&self, port: u16, options: &TestEnvOptions) -> ServiceProcess {
        let flags = flags(&self.vendors, "http://127.0.0.1:9", options);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        ServiceProcess::start_on(port, &self.dir.path().join("data"), &flags)
    }

    /// Starts the service in this process.
    pub async fn start_service(self, options: TestEnvOptions) -> TestEnv {
        TestEnv::start_with_vendors(self.vendors, self.dir, options).await
    }
}

/// File that blocks agents until it exists.
pub struct Gate(PathBuf);

impl Gate {
    /// Creates a closed gate.
    pub fn new(env: &TestEnv) -> Self {
        Self(env.dir().join("gate"))
    }

    /// Returns the script step that waits for the gate.
    pub fn wait_step(&self) -> ScriptStep {
        ScriptStep::wait_for_file(&self.0)
    }

    /// Lets agents continue.
    pub fn open(&self) {
        std::fs::write(&self.0, "").unwrap();
    }

    /// Blocks agents again.
    pub fn close(&self) {
        // The file is absent if the gate is closed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Task that forwards connections from one address to another.
pub struct PortForward {
    /// Address that is forwarded.
    pub address: SocketAddr,
    is_connected: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl PortForward {
    /// Stops forwarding, closes all connections and frees the address.
    pub async fn close(self) {
        self.task.abort();
        // The error is the abort.
        let _ = self.task.await;
    }

    /// Closes all connections, and new ones at once, or forwards them again.
    pub fn set_connected(&self, is_connected: bool) {
        self.is_connected.send_replace(is_connected);
    }
}

/// Forwards connections from one address to another.
pub async fn forward_port(from: SocketAddr, to: SocketAddr) -> PortForward {
    let listener = TcpListener::bind(from).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (is_connected, mut connected) = watch::channel(true);
    let task = tokio::spawn(async move {
        // Connections end with this task.
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((mut outside, _)) = accepted else { return };
                    if !*connected.borrow() {
                        continue;
                    }
                    connections.spawn(async move {
                        if let Ok(mut inside) = TcpStream::connect(to).await {
                            // Either side may close the connection at any time.
                            let _ = copy_bidirectional(&mut outside, &mut inside).await;
                        }
                    });
                }
                Ok(()) = connected.changed() => {
                    if !*connected.borrow() {
                        connections.abort_all();
                    }
                }
            }
        }
    });
    PortForward {
        address,
        is_connected,
        task,
    }
}

fn until_requested(signal: &ShutdownSignal) -> impl Future<Output = ()> + use<> {
    let signal = signal.clone();
    async move { signal.requested().await }
}

/// Creates a repository of `acme` with the workflows and a model key.
fn seed_repo(vendors: &FakeVendors, name: &str) -> FakeRepo {
    let repo = vendors.github().repo("acme", name);
    let files = [
        ("README.md", "# Shop\n"),
        (
            ".github/workflows/agent-implement.yml",
            IMPLEMENTATION_WORKFLOW,
        ),
        (".github/workflows/agent-plan.yml", PLANNING_WORKFLOW),
    ];
    repo.seed(&files, "Begin").unwrap();
    repo.set_secret("ANTHROPIC_API_KEY", "sk-ant-canary-of-the-model");
    repo
}

async fn stop_tasks(stop: &watch::Sender<bool>, tasks: Vec<JoinHandle<()>>) {
    let _ = stop.send(true);
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(20), task)
            .await
            .unwrap()
            .unwrap();
    }
}

/// Opens the store once its previous process has released it.
pub async fn open_store(dir: &Path) -> Store {
    let opened = Store::open_when_released(dir, CrashPlan::default()).await;
    opened.unwrap()
}

/// Flags by which runs on other machines can report.
const REPORT_FLAGS: [&str; 2] = ["--runner-callback-base-url", "--runner-token-secret"];

fn service_config(vendors: &FakeVendors, address: &str, options: &TestEnvOptions) -> Config {
    let flags = flags(vendors, address, options);
    config(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

fn flags(vendors: &FakeVendors, address: &str, options: &TestEnvOptions) -> Vec<String> {
    let external = |address: String| match options.external_ip {
        Some(ip) => address.replace("127.0.0.1", &ip.to_string()),
        None => address,
    };
    let defaults = [
        ("--admin-access-code", ACCESS_CODE.to_owned()),
        ("--runner-token-secret", TOKEN_SECRET.to_owned()),
        ("--runner-callback-base-url", external(address.to_owned())),
        ("--poll-interval-ms", "1000".to_owned()),
        ("--linear-api-key", vendors.linear().api_key()),
        ("--linear-api-url", vendors.linear_url()),
        ("--linear-uploads-url", vendors.linear_uploads_url()),
        ("--jira-site-url", vendors.jira_url()),
        ("--jira-email", vendors.jira().email().to_owned()),
        ("--jira-api-token", vendors.jira().api_token().to_owned()),
        ("--github-app-id", vendors.github().app_id().to_string()),
        ("--github-app-private-key", app_key()),
        ("--github-api-url", external(vendors.github_api_url())),
        ("--notify-webhook-url", vendors.slack_url()),
    ];
    let hosts = [
        ("--vm-sessions-token", vendors.fly().token().to_owned()),
        ("--vm-sessions-app", vendors.fly().app().to_owned()),
        ("--vm-api-url", vendors.fly_url()),
        ("--docker-host", vendors.docker_socket()),
        (
            "--kubeconfig",
            vendors.kubernetes().kubeconfig().display().to_string(),
        ),
        (
            "--kubernetes-namespace",
            vendors.kubernetes().namespace().to_owned(),
        ),
        (
            "--anthropic-api-key",
            "sk-ant-canary-of-the-model".to_owned(),
        ),
    ];
    let hosts = hosts.iter().filter(|_| options.session_hosts);
    // Plain HTTP is allowed on loopback without this flag, but not on the external address.
    let plain_http = [("--allow-plain-http", "true".to_owned())];
    let plain_http = plain_http.iter().filter(|_| options.external_ip.is_some());
    let flags = defaults
        .iter()
        .chain(hosts)
        .chain(plain_http)
        .filter(|(flag, _)| !options.omitted_flags.contains(flag))
        .filter(|(flag, _)| !(options.behind_nat && REPORT_FLAGS.contains(flag)));
    flags
        .chain(&options.extra_flags)
        .flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()])
        .collect()
}

/// Returns intervals and delays that suit fake vendors, which respond at once.
fn short_timings() -> Timings {
    Timings {
        run_monitor_interval: Duration::from_secs(1),
        reap_interval: Duration::from_secs(60),
        reconcile_interval: Duration::from_secs(600),
        max_visibility_delay: Duration::from_secs(2),
        effect_retry: RetryPolicy {
            first_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(2),
            ..Timings::default().effect_retry
        },
        ..Timings::default()
    }
}

/// Returns the mapping of team `ENG` to `acme/shop`, with defaults for all other fields.
pub fn mapping() -> Mapping {
    mapping_with(&json!({}))
}

/// Returns [`mapping`] with these fields replaced.
pub fn mapping_with(fields: &Value) -> Mapping {
    let mut body = json!({
        "teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main", "ticketingProvider": "A",
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    let input = MappingInput::read(body).unwrap();
    input.validate(None, Timestamp::EPOCH).unwrap()
}

/// Returns [`mapping`] with planning before implementation.
pub fn planning_mapping() -> Mapping {
    Mapping {
        planning_enabled: true,
        planning_workflow_file: Some(PLAN_WORKFLOW.to_owned()),
        ..mapping()
    }
}

/// Returns the script of the agent for tickets without their own script.
pub fn default_script() -> Script {
    Script::new().pass([
        ScriptStep::Write {
            path: "feature.txt".into(),
            content: "done\n".into(),
        },
        ScriptStep::Message {
            text: "I wrote the feature.".into(),
        },
    ])
}

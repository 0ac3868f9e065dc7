//! A whole world for a story: the town of stand-in vendors, the engine, HTTP, and real CI runs.
//!
//! A story ends with [`World::end`], which fails when anything is left undelivered, given up or
//! running: what nobody looked at is a fault, too.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use domain::ids::IssueId;
use domain::job::Job;
use domain::mapping::{Mapping, MappingInput, PLAN_WORKFLOW};
use domain::time::Timestamp;
use engine::ShutdownSignal;
use engine::app::{App, AppOptions, Timings};
use engine::clock::Clock;
use engine::config::Config;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeRepo, FakeService, FakeVendors, FakeVendorsOptions, FaultRates};
use reqwest::Method;
use serde_json::{Value, json};
use store::{Store, StoreError, jobs, mappings, outbox};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api_server::{ACCESS_CODE, TOKEN_SECRET, config, send_checked};
use crate::contracts;
use crate::process::ServiceProcess;
use crate::test_ticket::split_comments;

/// The workflows that target repositories get.
pub const IMPLEMENTATION_WORKFLOW: &str =
    include_str!("../../templates/workflows/agent-implement.yml");
pub const PLANNING_WORKFLOW: &str = include_str!("../../templates/workflows/agent-plan.yml");
pub const COMMENT_TRIGGER_WORKFLOW: &str =
    include_str!("../../templates/workflows/comment-trigger.yml");

/// How long may any one thing in a story take?
pub const TIMEOUT: Duration = Duration::from_secs(300);

pub use test_support::app_key;

pub struct TestEnv {
    pub vendors: FakeVendors,
    pub app: App,
    pub address: String,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// Ways in from elsewhere; gone with the world.
    doors: Vec<Door>,
    dir: tempfile::TempDir,
}

/// How a world differs from the usual one.
pub struct TestEnvOptions {
    pub mappings: Vec<Mapping>,
    /// Flags of the usual configuration that are left out.
    pub omitted_flags: &'static [&'static str],
    /// Flags beside it.
    pub extra_flags: Vec<(&'static str, String)>,
    /// Whether the town's hosts of session machines are configured.
    pub session_hosts: bool,
    /// Another address of this machine, from which the town and the service are seen by containers.
    pub external_ip: Option<IpAddr>,
    pub engine: EngineMode,
    /// A folder of real agents, instead of the one that plays scripts.
    pub agents_dir: Option<PathBuf>,
    /// Whether the town's workflow runs are only records.
    pub fake_runs: bool,
}

/// Who turns the engine.
#[derive(Debug, Clone)]
pub enum EngineMode {
    /// It turns by itself, on the machine's clock.
    Running,
    /// Nothing happens between two calls of [`World::turn`], and time stands still until this clock
    /// is advanced. Runs of the town go on by themselves.
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
            fake_runs: false,
        }
    }
}

impl EngineMode {
    /// By hand, and the clock is now.
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
    /// A town with team `ENG` mapped to `acme/shop`, and the engine alive.
    pub async fn start() -> Self {
        Self::with_mappings([mapping()]).await
    }

    /// The same, with this mapping.
    pub async fn with_mapping(mapping: Mapping) -> Self {
        Self::with_mappings([mapping]).await
    }

    /// The same with other mappings. Jira has project `OPS`.
    pub async fn with_mappings(given: impl IntoIterator<Item = Mapping>) -> Self {
        Self::with_options(TestEnvOptions {
            mappings: given.into_iter().collect(),
            ..TestEnvOptions::default()
        })
        .await
    }

    /// A world with these mappings whose engine is turned by hand.
    pub async fn with_manual_engine(given: impl IntoIterator<Item = Mapping>) -> Self {
        Self::with_options(TestEnvOptions {
            mappings: given.into_iter().collect(),
            engine: EngineMode::manual(),
            ..TestEnvOptions::default()
        })
        .await
    }

    /// A world as it is asked for.
    pub async fn with_options(making: TestEnvOptions) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let dir = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_agent-implement");
        let mut options = FakeVendorsOptions::new(dir.path().join("town"), program);
        options.app_key_pem = Some(app_key());
        options.agents_dir.clone_from(&making.agents_dir);
        options.fake_runs = making.fake_runs;
        let town = FakeVendors::start(options).await.unwrap();
        town.linear().ensure_team("ENG", "Engineering");
        town.jira().ensure_project("OPS", "Operations");
        let files = [
            ("README.md", "# Shop\n"),
            (
                ".github/workflows/agent-implement.yml",
                IMPLEMENTATION_WORKFLOW,
            ),
            (".github/workflows/agent-plan.yml", PLANNING_WORKFLOW),
        ];
        town.github()
            .repo("acme", "shop")
            .seed(&files, "Begin")
            .unwrap();
        town.github()
            .repo("acme", "shop")
            .set_secret("ANTHROPIC_API_KEY", "sk-ant-canary-of-the-model");
        default_script()
            .save(&town.scripts_dir(), "default")
            .unwrap();
        Self::inhabit(town, dir, making).await
    }

    /// The same town and store with the service started anew, as it is asked for now. Mappings that
    /// are named are added.
    pub async fn restart_service(self, making: TestEnvOptions) -> Self {
        self.stop_service().await.start_service(making).await
    }

    /// Stops the service alone, whatever it is doing.
    pub async fn stop_service(self) -> StoppedEnv {
        let Self {
            vendors: town,
            app,
            stop,
            tasks,
            doors,
            dir,
            ..
        } = self;
        finish(&stop, tasks).await;
        for door in doors {
            door.shut().await;
        }
        drop(app);
        // Another process may open the store only once this one has let go of it.
        drop(open_store(&dir.path().join("data")).await);
        StoppedEnv { vendors: town, dir }
    }

    async fn inhabit(town: FakeVendors, dir: tempfile::TempDir, making: TestEnvOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let mut doors = Vec::new();
        if let Some(ip) = making.external_ip {
            for port in [town.port(), listener.local_addr().unwrap().port()] {
                doors.push(door((ip, port).into(), ([127, 0, 0, 1], port).into()).await);
            }
        }
        let store = open_store(&dir.path().join("data")).await;
        let setting = AppOptions {
            clock: making.engine.clock(),
            timings: quick(),
            ..AppOptions::default()
        };
        let config = configured(&town, &address, &making);
        let app = App::new(config, store, setting).unwrap();
        for mapping in making.mappings {
            let put = app.store.write(move |tx| mappings::put(tx, &mapping));
            put.await.unwrap();
        }
        let (stop, signal) = ShutdownSignal::new();
        let told = signal.clone();
        let served = server::serve(app.clone(), listener, async move { told.requested().await });
        let mut tasks = vec![tokio::spawn(async { served.await.unwrap() })];
        if let EngineMode::Running = making.engine {
            tasks.push(tokio::spawn(engine::run(app.clone(), signal)));
        }
        Self {
            vendors: town,
            app,
            address,
            stop,
            tasks,
            doors,
            dir,
        }
    }

    /// One turn of an engine that is turned by hand: a poll, a look at what was said, what is owed, a
    /// look at the runs, and what is owed then.
    pub async fn tick(&self) {
        engine::poll::run_once(&self.app).await.unwrap();
        engine::follow_up::run_once(&self.app).await.unwrap();
        engine::outbox_worker::drain(&self.app).await.unwrap();
        engine::run_monitor::run_once(&self.app).await.unwrap();
        engine::outbox_worker::drain(&self.app).await.unwrap();
    }

    /// Turns the engine by hand until nothing is owed: what was tried too early is due again only
    /// when time passes.
    pub async fn tick_until_drained(&self) {
        let began = Instant::now();
        while !self.app.store.read(outbox::queue_keys).unwrap().is_empty() {
            assert!(began.elapsed() < TIMEOUT, "{}", self.describe());
            self.advance_clock(Duration::from_secs(60));
            self.tick().await;
        }
    }

    /// Turns an engine that is turned by hand until something holds.
    pub async fn tick_until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            let waits = began.elapsed() < TIMEOUT;
            assert!(waits, "turned in vain until {what}\n{}", self.describe());
            self.tick().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Lets time pass for an engine that is turned by hand.
    pub fn advance_clock(&self, span: Duration) {
        self.app.clock.advance(span);
    }

    pub fn repo(&self) -> FakeRepo {
        self.vendors.github().repo("acme", "shop")
    }

    /// Files a ticket of team `ENG` and flags it.
    pub fn create_labelled_issue(&self, key: &str, title: &str) {
        self.vendors
            .linear()
            .issue(key)
            .title(title)
            .describe("Please.")
            .add_label("Agent-Implement");
    }

    pub fn set_agent_script(&self, ticket: &str, script: Script) {
        script.save(&self.vendors.scripts_dir(), ticket).unwrap();
    }

    /// Lets both vendors misbehave by chance.
    pub fn set_fault_rates(&self, dial: &FaultRates) {
        self.vendors
            .faults(FakeService::Linear)
            .set_rates(dial.clone());
        self.vendors
            .faults(FakeService::Jira)
            .set_rates(dial.clone());
        self.vendors
            .faults(FakeService::GitHub)
            .set_rates(dial.clone());
    }

    /// The jobs of a ticket, oldest first.
    pub fn jobs(&self, key: &str) -> Vec<Job> {
        let linear = self.vendors.linear().issue(key).snapshot();
        let jira = || self.vendors.jira().issue(key).snapshot();
        let Some(id) = linear.map(|ticket| ticket.id).or_else(|| Some(jira()?.id)) else {
            return Vec::new();
        };
        let issue = IssueId::new(id);
        self.app
            .store
            .read(|tx| jobs::of_issue(tx, &issue))
            .unwrap()
    }

    /// The comments of a ticket of team `ENG`, in parts.
    pub fn comments(&self, key: &str) -> Vec<String> {
        split_comments(self.vendors.linear().issue(key).comments())
    }

    /// Waits until a ticket's last job has ended and everything owed for it is delivered.
    pub async fn wait_for_job_end(&self, key: &str) -> Job {
        self.wait_until(&format!("{key} has ended"), || {
            self.jobs(key).last().is_some_and(|job| !job.is_active())
        })
        .await;
        self.wait_for_empty_outbox().await;
        self.jobs(key).pop().unwrap()
    }

    /// Waits until nothing is owed any more.
    pub async fn wait_for_empty_outbox(&self) {
        self.wait_until("everything is delivered", || {
            self.app.store.read(outbox::queue_keys).unwrap().is_empty()
        })
        .await;
    }

    /// Waits for two whole polls, so that what the engine would do it has done.
    pub async fn wait_for_polls(&self) {
        let before = self.app.heartbeats.polls();
        self.app.notifiers.poll.notify_one();
        self.wait_until("two polls", || self.app.heartbeats.polls() >= before + 2)
            .await;
    }

    pub async fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(
                began.elapsed() < TIMEOUT,
                "waited in vain until {what}\n{}",
                self.describe()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What a failed story needs to tell.
    fn describe(&self) -> String {
        let jobs = self.app.store.read(|tx| jobs::latest(tx, 50)).unwrap();
        let owed = self.app.store.read(outbox::pending).unwrap();
        let runs = self.repo().runs();
        let logs: Vec<String> = runs.iter().map(|run| self.repo().run_log(run.id)).collect();
        format!(
            "jobs {jobs:#?}\nowed {owed:#?}\nruns {runs:#?}\nlogs {}",
            logs.join("\n---\n")
        )
    }

    /// A token of the admin API.
    pub async fn sign_in(&self) -> String {
        let code = json!({ "code": ACCESS_CODE });
        let request = reqwest::Client::new().post(format!("{}/api/auth", self.address));
        let signed_in = send_checked(request.json(&code)).await;
        signed_in.body["token"].as_str().unwrap().to_owned()
    }

    /// Asks the admin API, signed in.
    pub async fn admin_get(&self, path: &str) -> Value {
        self.admin_request(Method::GET, path, None).await.1
    }

    /// Asks the admin API to do something, signed in.
    pub async fn admin_post(&self, path: &str, body: Value) -> Value {
        self.admin_request(Method::POST, path, Some(body)).await.1
    }

    /// Asks the admin API, signed in, and answers status and body.
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
        let told = send_checked(request).await;
        (told.status, told.body)
    }

    /// The folder of everything: the town's state and the store.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends the story. Fails when anything was left undone.
    pub async fn finish(self) {
        self.set_fault_rates(&FaultRates::default());
        self.wait_for_empty_outbox().await;
        let dead = self.app.store.read(outbox::dead).unwrap();
        assert!(dead.is_empty(), "given up: {dead:#?}");
        let active = self.app.store.read(jobs::active).unwrap();
        assert!(active.is_empty(), "still running: {active:#?}");
        self.stop().await;
    }

    /// Stops everything, whatever it is doing.
    pub async fn stop(self) {
        finish(&self.stop, self.tasks).await;
        contracts::record_requests(&self.vendors);
        self.vendors.stop_and_kill_runs().await;
    }
}

/// A world whose service is stopped.
pub struct StoppedEnv {
    pub vendors: FakeVendors,
    dir: tempfile::TempDir,
}

impl StoppedEnv {
    /// What its service is told on its command line, when it is reached at an address.
    pub fn command_line(&self, address: &str, making: &TestEnvOptions) -> Vec<String> {
        let data = self.dir.path().join("data").display().to_string();
        let mut line = flags(&self.vendors, address, making);
        line.extend(["--data-dir".to_owned(), data]);
        line
    }

    /// The folder of its store.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Starts its service in a process of its own, which no run can reach.
    pub fn start_process(&self, making: &TestEnvOptions) -> ServiceProcess {
        let flags = flags(&self.vendors, "http://127.0.0.1:9", making);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        ServiceProcess::start(&self.dir.path().join("data"), &flags)
    }

    pub async fn start_service(self, making: TestEnvOptions) -> TestEnv {
        TestEnv::inhabit(self.vendors, self.dir, making).await
    }
}

/// Holds agents back, whatever they may do, until it is opened.
pub struct Gate(PathBuf);

impl Gate {
    /// A closed one.
    pub fn new(world: &TestEnv) -> Self {
        Self(world.dir().join("gate"))
    }

    /// What an agent does that is to be held back.
    pub fn wait_step(&self) -> ScriptStep {
        ScriptStep::wait_for_file(&self.0)
    }

    pub fn open(&self) {
        std::fs::write(&self.0, "").unwrap();
    }

    pub fn close(&self) {
        // Mostly it is closed.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A way in from elsewhere.
struct Door(JoinHandle<()>);

impl Door {
    /// Closes it; its address is free then.
    async fn shut(self) {
        self.0.abort();
        // Aborted is how it is meant to end.
        let _ = self.0.await;
    }
}

/// Passes on whatever comes to one address to another.
async fn door(from: SocketAddr, to: SocketAddr) -> Door {
    let listener = TcpListener::bind(from).await.unwrap();
    Door(tokio::spawn(async move {
        while let Ok((mut outside, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut inside) = TcpStream::connect(to).await {
                    // Either side may go away at any time.
                    let _ = copy_bidirectional(&mut outside, &mut inside).await;
                }
            });
        }
    }))
}

async fn finish(stop: &watch::Sender<bool>, tasks: Vec<JoinHandle<()>>) {
    let _ = stop.send(true);
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(20), task)
            .await
            .unwrap()
            .unwrap();
    }
}

/// Opens the store, once the service that had it before has let go of it.
pub async fn open_store(dir: &Path) -> Store {
    let began = Instant::now();
    loop {
        match Store::open(dir) {
            Err(StoreError::InUse { .. }) if began.elapsed() < TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

fn configured(town: &FakeVendors, address: &str, making: &TestEnvOptions) -> Config {
    let flags = flags(town, address, making);
    config(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

fn flags(town: &FakeVendors, address: &str, making: &TestEnvOptions) -> Vec<String> {
    let seen = |address: String| match making.external_ip {
        Some(ip) => address.replace("127.0.0.1", &ip.to_string()),
        None => address,
    };
    let usual = [
        ("--admin-access-code", ACCESS_CODE.to_owned()),
        ("--runner-token-secret", TOKEN_SECRET.to_owned()),
        ("--runner-callback-base-url", seen(address.to_owned())),
        ("--poll-interval-ms", "1000".to_owned()),
        ("--linear-api-key", town.linear().api_key()),
        ("--linear-api-url", town.linear_url()),
        ("--jira-site-url", town.jira_url()),
        ("--jira-email", town.jira().email().to_owned()),
        ("--jira-api-token", town.jira().api_token().to_owned()),
        ("--github-app-id", town.github().app_id().to_string()),
        ("--github-app-private-key", app_key()),
        ("--github-api-url", seen(town.github_api_url())),
        ("--notify-webhook-url", town.slack_url()),
    ];
    let hosts = [
        ("--vm-sessions-token", town.fly().token().to_owned()),
        ("--vm-sessions-app", town.fly().app().to_owned()),
        ("--vm-api-url", town.fly_url()),
        ("--docker-host", town.docker_socket()),
        (
            "--anthropic-api-key",
            "sk-ant-canary-of-the-model".to_owned(),
        ),
    ];
    let hosts = hosts.iter().filter(|_| making.session_hosts);
    // What containers see is beyond loopback.
    let far = [("--allow-plain-http", "true".to_owned())];
    let far = far.iter().filter(|_| making.external_ip.is_some());
    let kept = usual
        .iter()
        .chain(hosts)
        .chain(far)
        .filter(|(flag, _)| !making.omitted_flags.contains(flag));
    kept.chain(&making.extra_flags)
        .flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()])
        .collect()
}

/// The town answers at once, so stories need not wait as long as the real vendors would ask for.
fn quick() -> Timings {
    Timings {
        run_monitor_interval: Duration::from_secs(1),
        reap_interval: Duration::from_secs(60),
        reconcile_interval: Duration::from_secs(600),
        max_visibility_delay: Duration::from_secs(2),
        first_retry_delay: Duration::from_millis(100),
        max_retry_delay: Duration::from_secs(2),
        ..Timings::default()
    }
}

/// Team `ENG` and its repository, everything else as it comes.
pub fn mapping() -> Mapping {
    mapping_with(&json!({}))
}

/// The mapping, but for these fields.
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

/// The mapping, with planning before implementation.
pub fn planning_mapping() -> Mapping {
    Mapping {
        planning_enabled: true,
        planning_workflow_file: Some(PLAN_WORKFLOW.to_owned()),
        ..mapping()
    }
}

/// What the agent does on a ticket without a script of its own.
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

//! Lifecycle of the fake vendors: opens their models, binds the port, starts and stops the server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::bucket::FakeBucket;
use super::chat::FakeChat;
use super::faults::{FakeService, FaultInjector, FaultRates};
use super::github::{self, FakeGitHub, GitHubOptions};
use super::http_server;
use super::jira::FakeJira;
use super::linear::FakeLinear;
use super::machines::docker::FakeDockerEngine;
use super::machines::fly::FakeFlyMachines;
use super::machines::kubernetes::FakeKubernetes;
use super::persistence::{lock, write_atomic};
use super::request_log::RequestLog;

/// Maximum wait for a port that a dying predecessor still holds.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of requests handled concurrently.
const MAX_CONCURRENT_REQUESTS: u32 = 256;

/// Options of [`FakeVendors`]. `new` has defaults for everything but the folder and the program.
#[derive(Clone, Debug)]
pub struct FakeVendorsOptions {
    /// Folder of all state.
    pub dir: PathBuf,
    /// Program that jobs find as `agent-implement`, and that also runs the scripted agent.
    pub program: PathBuf,
    /// Folder of real agent programs to use instead of the scripted agent.
    pub agents_dir: Option<PathBuf>,
    /// Whether jobs run in a public image: it has neither this program nor an agent, but npm, whose registry has
    /// the scripted agent.
    pub public_image: bool,
    /// Port. `None` reuses the last port of this folder, or picks a free one.
    pub port: Option<u16>,
    /// Private key (PKCS#1 or PKCS#8 PEM) of the App whose JWTs are accepted.
    pub app_key_pem: Option<String>,
    /// App ID.
    pub app_id: u64,
    /// App slug, which is also the name of its bot account.
    pub app_slug: String,
    /// Personal GitHub token with every permission.
    pub github_personal_token: String,
    /// Linear API key.
    pub linear_api_key: String,
    /// Jira account of the API token.
    pub jira_email: String,
    /// Jira API token.
    pub jira_api_token: String,
    /// Seed of the fault injectors.
    pub fault_seed: u64,
    /// Whether workflow runs are fake: none is started, and a test changes their state with
    /// `FakeRepo::start_run` and `FakeRepo::complete_run`.
    pub fake_runs: bool,
    /// Initial fault rates; other services have none.
    pub fault_rates: Vec<(FakeService, FaultRates)>,
}

impl FakeVendorsOptions {
    /// Returns options with defaults: any port, no App key, no faults, real runs.
    pub fn new(dir: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            program: program.into(),
            agents_dir: None,
            public_image: false,
            port: None,
            app_key_pem: None,
            app_id: 1,
            app_slug: "agent-implement".into(),
            github_personal_token: "sandbox-token".into(),
            linear_api_key: "lin_api_sandbox".into(),
            jira_email: "agent@sandbox.test".into(),
            jira_api_token: "jira-api-token-sandbox".into(),
            fault_seed: 0x5eed,
            fake_runs: false,
            fault_rates: Vec::new(),
        }
    }
}

/// Running fake vendors. Clones share their state.
#[derive(Clone)]
pub struct FakeVendors {
    pub(crate) inner: Arc<FakeVendorsInner>,
}

pub(crate) struct FakeVendorsInner {
    pub dir: PathBuf,
    pub port: u16,
    pub linear: FakeLinear,
    pub jira: FakeJira,
    pub github: FakeGitHub,
    pub chat: FakeChat,
    pub fly: FakeFlyMachines,
    pub docker: FakeDockerEngine,
    pub kubernetes: FakeKubernetes,
    pub bucket: FakeBucket,
    pub faults: [FaultInjector; 9],
    pub requests: RequestLog,
    /// One permit per request at work. `stop` takes all of them, so that nothing is written after it.
    pub request_permits: Arc<Semaphore>,
    server: Mutex<Option<JoinHandle<()>>>,
}

impl FakeVendors {
    /// Starts the fake vendors of this folder, which is initialized if it is new. Runs that were active
    /// at the last stop or kill are monitored again.
    pub async fn start(options: FakeVendorsOptions) -> anyhow::Result<Self> {
        let dir = &options.dir;
        std::fs::create_dir_all(dir.join("scripts"))
            .with_context(|| format!("Cannot create {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        let listener = listen(&dir, options.port).await?;
        let port = listener.local_addr()?.port();
        write_atomic(&dir.join("port"), port.to_string().as_bytes())?;
        let agents = options.agents_dir.as_deref();
        let (bin, scripts) = (dir.join("bin"), dir.join("scripts"));
        match options.public_image {
            true => github::install_package_manager(&bin, &options.program, &scripts)?,
            false => github::install_tools(&bin, &options.program, &scripts, agents)?,
        }
        let base = format!("http://127.0.0.1:{port}");
        let inner = Arc::new(FakeVendorsInner {
            port,
            linear: FakeLinear::open(
                &dir,
                format!("{base}/linear"),
                format!("{base}/linear-uploads"),
                &options.linear_api_key,
            )?,
            jira: FakeJira::open(
                &dir,
                format!("{base}/jira"),
                &options.jira_email,
                &options.jira_api_token,
            )?,
            github: FakeGitHub::open(GitHubOptions {
                dir: dir.clone(),
                api_url: format!("{base}/github/api/v3"),
                server_url: format!("{base}/github"),
                personal_token: options.github_personal_token,
                app_id: options.app_id,
                app_slug: options.app_slug,
                app_key_pem: options.app_key_pem,
                fake_runs: options.fake_runs,
            })?,
            chat: FakeChat::open(&dir)?,
            fly: FakeFlyMachines::open(&dir)?,
            docker: FakeDockerEngine::open(&dir)?,
            kubernetes: FakeKubernetes::open(&dir, &format!("{base}/kubernetes"))?,
            bucket: FakeBucket::open(&dir)?,
            faults: std::array::from_fn(|at| {
                FaultInjector::with_seed(options.fault_seed ^ at as u64)
            }),
            requests: RequestLog::default(),
            request_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS as usize)),
            server: Mutex::new(None),
            dir,
        });
        for (vendor, rates) in options.fault_rates {
            inner.faults[vendor as usize].set_rates(rates);
        }
        let socket = http_server::bind_docker_socket(&inner.dir.join("docker.sock"));
        let server = tasks::spawn(http_server::accept_connections(
            listener,
            socket,
            Arc::downgrade(&inner),
        ));
        *lock(&inner.server) = Some(server);
        Ok(Self { inner })
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.inner.port)
    }

    /// Returns the base URL of Linear; the API is at `{linear_url}/graphql`.
    pub fn linear_url(&self) -> String {
        format!("{}/linear", self.base())
    }

    /// Returns the address below which uploads to Linear are.
    pub fn linear_uploads_url(&self) -> String {
        format!("{}/linear-uploads", self.base())
    }

    /// Returns the URL of the Jira site: pages at `{jira_url}/browse/{key}`, API at
    /// `{jira_url}/rest/api/3`.
    pub fn jira_url(&self) -> String {
        format!("{}/jira", self.base())
    }

    /// Returns the base URL of GitHub's REST API. GraphQL is at `{github_api_url}/graphql` and at
    /// `/github/api/graphql`.
    pub fn github_api_url(&self) -> String {
        format!("{}/github/api/v3", self.base())
    }

    /// Returns the base URL of GitHub's pages; git is at `{github_server_url}/{owner}/{repo}.git`.
    pub fn github_server_url(&self) -> String {
        format!("{}/github", self.base())
    }

    /// Returns the URL of a Slack incoming webhook.
    pub fn slack_url(&self) -> String {
        format!("{}/chat/slack/T000/B000/sandbox", self.base())
    }

    /// Returns the URL of a Teams incoming webhook.
    pub fn teams_url(&self) -> String {
        format!("{}/chat/teams/sandbox", self.base())
    }

    /// Returns the base URL of the Fly Machines API.
    pub fn fly_url(&self) -> String {
        format!("{}/fly", self.base())
    }

    /// Returns the TCP address of the Docker engine, in the format of `DOCKER_HOST`.
    pub fn docker_host(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.inner.port)
    }

    /// Returns the HTTP URL of the Docker engine.
    pub fn docker_url(&self) -> String {
        self.base()
    }

    /// Returns the address of the Docker engine's Unix socket.
    pub fn docker_socket(&self) -> String {
        format!("unix://{}", self.inner.dir.join("docker.sock").display())
    }

    /// Returns the fake Fly Machines API.
    pub fn fly(&self) -> &FakeFlyMachines {
        &self.inner.fly
    }

    /// Returns the arguments of every call of npm in jobs, one line each.
    pub fn npm_calls(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.inner.dir.join("bin/npm.log"));
        log.unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Returns the fake Docker engine.
    pub fn docker(&self) -> &FakeDockerEngine {
        &self.inner.docker
    }

    /// Returns the fake Linear.
    pub fn linear(&self) -> &FakeLinear {
        &self.inner.linear
    }

    /// Returns the fake Kubernetes cluster.
    pub fn kubernetes(&self) -> &FakeKubernetes {
        &self.inner.kubernetes
    }

    /// Returns the fake bucket.
    pub fn bucket(&self) -> &FakeBucket {
        &self.inner.bucket
    }

    /// Returns the address of the service of the fake bucket.
    pub fn bucket_endpoint(&self) -> String {
        self.base()
    }

    /// Returns the fake Jira.
    pub fn jira(&self) -> &FakeJira {
        &self.inner.jira
    }

    /// Returns the fake GitHub.
    pub fn github(&self) -> &FakeGitHub {
        &self.inner.github
    }

    /// Returns the fake chat vendors.
    pub fn chat(&self) -> &FakeChat {
        &self.inner.chat
    }

    /// Returns the fault injector of one service.
    pub fn faults(&self, vendor: FakeService) -> &FaultInjector {
        &self.inner.faults[vendor as usize]
    }

    /// Returns the log of API requests.
    pub fn requests(&self) -> &RequestLog {
        &self.inner.requests
    }

    /// Keeps later changes of tickets, messages, pull requests and runs in memory only, for load tests
    /// whose state need not survive the process.
    pub fn keep_in_memory(&self) {
        self.inner.linear.keep_in_memory();
        self.inner.jira.keep_in_memory();
        self.inner.github.keep_in_memory();
        self.inner.chat.keep_in_memory();
    }

    /// Returns the folder of the scripted agent's scripts, see
    /// [`Script::save`](super::scripted_agent::Script::save).
    pub fn scripts_dir(&self) -> std::path::PathBuf {
        self.inner.dir.join("scripts")
    }

    /// Returns the folder of all state.
    pub fn dir(&self) -> &std::path::Path {
        &self.inner.dir
    }

    /// Waits until no request is being handled.
    pub async fn wait_idle(&self) {
        // The semaphore is never closed, so this cannot fail.
        drop(
            self.inner
                .request_permits
                .acquire_many(MAX_CONCURRENT_REQUESTS)
                .await,
        );
    }

    /// Stops the server. Runs continue, and the next start in the same folder monitors them again.
    pub async fn stop(self) {
        let server = lock(&self.inner.server).take();
        if let Some(server) = server {
            server.abort();
            // The abort makes this an error.
            let _ = server.await;
        }
        // The semaphore is never closed, so this cannot fail.
        let _ = self
            .inner
            .request_permits
            .acquire_many(MAX_CONCURRENT_REQUESTS)
            .await;
        let github = self.inner.github.clone();
        // Waits for the run controller's current check. Its own thread has reported any panic.
        let _ = tasks::spawn_blocking(move || github.stop()).await;
    }

    /// Stops the server and kills all runs and machines, like a crash of the whole machine.
    pub async fn stop_and_kill_runs(self) {
        let github = self.inner.github.clone();
        let (machines, docker) = (self.inner.fly.clone(), self.inner.docker.clone());
        let kubernetes = self.inner.kubernetes.clone();
        self.stop().await;
        github.kill_runs();
        machines.host().kill_all();
        docker.host().kill_all();
        kubernetes.host().kill_all();
    }
}

/// Stops the server when the last clone is dropped.
impl Drop for FakeVendorsInner {
    fn drop(&mut self) {
        if let Some(server) = lock(&self.server).take() {
            server.abort();
        }
    }
}

async fn listen(dir: &std::path::Path, requested: Option<u16>) -> anyhow::Result<TcpListener> {
    let saved = std::fs::read_to_string(dir.join("port")).ok();
    let saved = saved.and_then(|text| text.trim().parse().ok());
    let port: u16 = requested.or(saved).unwrap_or(0);
    let deadline = Instant::now() + PORT_TIMEOUT;
    loop {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        let bound = socket
            .bind(([127, 0, 0, 1], port).into())
            .and_then(|()| socket.listen(1024));
        match bound {
            Ok(listener) => return Ok(listener),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| {
                    format!(
                        "Cannot listen on 127.0.0.1:{port}. Is another process using {}?",
                        dir.display()
                    )
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

//! The town itself: opens the vendors, keeps the port, starts and stops.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::chat::FakeChat;
use super::faults::{FakeService, FaultInjector, FaultRates};
use super::github::{self, FakeGitHub, GitHubOptions};
use super::http_server;
use super::jira::FakeJira;
use super::linear::FakeLinear;
use super::machines::docker::FakeDockerEngine;
use super::machines::fly::FakeFlyMachines;
use super::persistence::{lock, write_atomic};
use super::request_log::RequestLog;

/// How long a start waits for a port that a dying predecessor still holds.
const PORT_PATIENCE: Duration = Duration::from_secs(5);

/// How many requests are worked on at once.
const AT_WORK_MAX: u32 = 256;

/// How a town is set up. `TownOptions::new` fills in everything but the folder and the program.
#[derive(Clone, Debug)]
pub struct FakeVendorsOptions {
    /// All state lives here.
    pub dir: PathBuf,
    /// What jobs find as `agent-implement`, and what plays the agent.
    pub program: PathBuf,
    /// A folder of real agent programs, instead of the one that plays scripts.
    pub agents_dir: Option<PathBuf>,
    /// `None` takes the port of the last time in this folder, else a free one.
    pub port: Option<u16>,
    /// Private key (PKCS#1 or PKCS#8 PEM) of the App whose JWTs are accepted.
    pub app_key_pem: Option<String>,
    pub app_id: u64,
    /// Also the name of its bot account.
    pub app_slug: String,
    /// The personal token of the repository host that may do everything.
    pub github_personal_token: String,
    pub linear_api_key: String,
    pub jira_email: String,
    pub jira_api_token: String,
    /// Seed of the fault dials.
    pub fault_seed: u64,
    /// Workflow runs are only records: none is started, and `Repo::begin_run` and `Repo::end_run` tell
    /// what becomes of each.
    pub fake_runs: bool,
    /// How the dials stand at the start; nothing goes wrong otherwise.
    pub fault_rates: Vec<(FakeService, FaultRates)>,
}

impl FakeVendorsOptions {
    pub fn new(dir: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            program: program.into(),
            agents_dir: None,
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

/// A running town. Clones are the same town.
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
    pub faults: [FaultInjector; 7],
    pub requests: RequestLog,
    /// One permit a vendor at work; a stop takes them all, so that nothing is written after it.
    pub request_permits: Arc<Semaphore>,
    server: Mutex<Option<JoinHandle<()>>>,
}

impl FakeVendors {
    /// Opens the town of this folder, or founds one there, and lets it answer. Runs that were
    /// going on when it was last stopped or killed go on being watched.
    pub async fn start(options: FakeVendorsOptions) -> anyhow::Result<Self> {
        let dir = &options.dir;
        std::fs::create_dir_all(dir.join("scripts"))
            .with_context(|| format!("making {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        let listener = listen(&dir, options.port).await?;
        let port = listener.local_addr()?.port();
        write_atomic(&dir.join("port"), port.to_string().as_bytes())?;
        let agents = options.agents_dir.as_deref();
        let (bin, scripts) = (dir.join("bin"), dir.join("scripts"));
        github::install_tools(&bin, &options.program, &scripts, agents)?;
        let base = format!("http://127.0.0.1:{port}");
        let inner = Arc::new(FakeVendorsInner {
            port,
            linear: FakeLinear::open(&dir, format!("{base}/linear"), &options.linear_api_key)?,
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
            faults: std::array::from_fn(|at| {
                FaultInjector::with_seed(options.fault_seed ^ at as u64)
            }),
            requests: RequestLog::default(),
            request_permits: Arc::new(Semaphore::new(AT_WORK_MAX as usize)),
            server: Mutex::new(None),
            dir,
        });
        for (vendor, dial) in options.fault_rates {
            inner.faults[vendor as usize].set_rates(dial);
        }
        let socket = http_server::bind_docker_socket(&inner.dir.join("docker.sock"));
        let server = tokio::spawn(http_server::accept_connections(
            listener,
            socket,
            Arc::downgrade(&inner),
        ));
        *lock(&inner.server) = Some(server);
        Ok(Self { inner })
    }

    pub fn port(&self) -> u16 {
        self.inner.port
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.inner.port)
    }

    /// Clients post to `{linear_url}/graphql`.
    pub fn linear_url(&self) -> String {
        format!("{}/linear", self.base())
    }

    /// The site: people read at `{jira_url}/browse/{key}`, clients call `{jira_url}/rest/api/3`.
    pub fn jira_url(&self) -> String {
        format!("{}/jira", self.base())
    }

    /// The gateway for bearer tokens: clients call `{jira_gateway_url}/rest/api/3`.
    pub fn jira_gateway_url(&self) -> String {
        format!("{}/jira/ex/jira/sandbox-cloud", self.base())
    }

    /// Base of the REST API; GraphQL answers at `{github_api_url}/graphql` and `/github/api/graphql`.
    pub fn github_api_url(&self) -> String {
        format!("{}/github/api/v3", self.base())
    }

    /// Git is at `{github_server_url}/{owner}/{repo}.git`.
    pub fn github_server_url(&self) -> String {
        format!("{}/github", self.base())
    }

    /// An incoming webhook of the first chat vendor.
    pub fn slack_url(&self) -> String {
        format!("{}/chat/slack/T000/B000/sandbox", self.base())
    }

    /// An incoming webhook of the second chat vendor.
    pub fn teams_url(&self) -> String {
        format!("{}/chat/teams/sandbox", self.base())
    }

    /// Base of the Machines API.
    pub fn fly_url(&self) -> String {
        format!("{}/fly", self.base())
    }

    /// The container engine, as `DOCKER_HOST` names it.
    pub fn docker_host(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.inner.port)
    }

    /// The same, as an address.
    pub fn docker_url(&self) -> String {
        self.base()
    }

    /// The same engine behind a Unix socket.
    pub fn docker_socket(&self) -> String {
        format!("unix://{}", self.inner.dir.join("docker.sock").display())
    }

    pub fn fly(&self) -> &FakeFlyMachines {
        &self.inner.fly
    }

    pub fn docker(&self) -> &FakeDockerEngine {
        &self.inner.docker
    }

    pub fn linear(&self) -> &FakeLinear {
        &self.inner.linear
    }

    pub fn jira(&self) -> &FakeJira {
        &self.inner.jira
    }

    pub fn github(&self) -> &FakeGitHub {
        &self.inner.github
    }

    pub fn chat(&self) -> &FakeChat {
        &self.inner.chat
    }

    /// The fault dial of one vendor.
    pub fn faults(&self, vendor: FakeService) -> &FaultInjector {
        &self.inner.faults[vendor as usize]
    }

    /// Every API request so far.
    pub fn requests(&self) -> &RequestLog {
        &self.inner.requests
    }

    /// From now on tickets, messages, pull requests and runs are in memory alone: for thousands of
    /// them, of which nothing needs to outlive the process.
    pub fn keep_in_memory(&self) {
        self.inner.linear.keep_in_memory();
        self.inner.jira.keep_in_memory();
        self.inner.github.keep_in_memory();
        self.inner.chat.keep_in_memory();
    }

    /// Where the scripted agent finds its scripts: `Script::save(town.scripts(), "ENG-1")`.
    pub fn scripts_dir(&self) -> std::path::PathBuf {
        self.inner.dir.join("scripts")
    }

    /// The folder of the town's state.
    pub fn dir(&self) -> &std::path::Path {
        &self.inner.dir
    }

    /// Waits until no vendor is at work on a request.
    pub async fn wait_idle(&self) {
        // Nobody closes the semaphore, so the permits come.
        drop(self.inner.request_permits.acquire_many(AT_WORK_MAX).await);
    }

    /// Stops answering. Runs go on, and are found again by the next start in the same folder.
    pub async fn stop(self) {
        let server = lock(&self.inner.server).take();
        if let Some(server) = server {
            server.abort();
            // Aborted is how it is meant to end.
            let _ = server.await;
        }
        // Nobody closes the semaphore, so the permits come.
        let _ = self.inner.request_permits.acquire_many(AT_WORK_MAX).await;
        let github = self.inner.github.clone();
        // The foreman finishes its look; a panic there has been reported by its own thread.
        let _ = tokio::task::spawn_blocking(move || github.stop()).await;
    }

    /// Stops answering and kills what runs, as a machine's crash would.
    pub async fn stop_and_kill_runs(self) {
        let github = self.inner.github.clone();
        let (machines, docker) = (self.inner.fly.clone(), self.inner.docker.clone());
        self.stop().await;
        github.kill_runs();
        machines.kill_all();
        docker.kill_all();
    }
}

/// A town that is let go stops answering like one that is stopped.
impl Drop for FakeVendorsInner {
    fn drop(&mut self) {
        if let Some(server) = lock(&self.server).take() {
            server.abort();
        }
    }
}

async fn listen(dir: &std::path::Path, wanted: Option<u16>) -> anyhow::Result<TcpListener> {
    let kept = std::fs::read_to_string(dir.join("port")).ok();
    let kept = kept.and_then(|text| text.trim().parse().ok());
    let port: u16 = wanted.or(kept).unwrap_or(0);
    let give_up = Instant::now() + PORT_PATIENCE;
    loop {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        let bound = socket
            .bind(([127, 0, 0, 1], port).into())
            .and_then(|()| socket.listen(1024));
        match bound {
            Ok(listener) => return Ok(listener),
            Err(error) if Instant::now() > give_up => {
                return Err(error).with_context(|| {
                    format!(
                        "listening on 127.0.0.1:{port} (is another sandbox using {}?)",
                        dir.display()
                    )
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

//! Service to set up: the running one, or its API and outbox worker in this process while it is stopped.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinHandle;

use engine::app::{App, AppOptions};
use engine::config::Config;
use engine::{ShutdownSignal, outbox_worker};
use server::{ControlSocket, control_socket};
use store::Store;
use tokio::sync::watch;

use crate::cli::local_service::ControlClient;

use super::candidate::Candidate;
use super::questions::Questions;
use super::setup_files::modified;

/// Maximum time for requests and effects in progress to finish at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time in which a restarted service answers.
const RESTART_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between two attempts to connect to it.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// Restarts the running service of the package if its settings are newer than its socket, which each start creates: an
/// earlier setup may have stored them. A service that was started otherwise must be stopped by hand.
pub(super) async fn restart_if_outdated(
    candidate: &Candidate,
    questions: &Questions,
) -> anyhow::Result<()> {
    let dir = candidate.config()?.data_dir;
    if ControlClient::connect(&dir).await?.is_none() {
        return Ok(());
    }
    let (socket, _folder) = control_socket(&dir)?;
    if modified(&socket).is_some_and(|started| !candidate.files.changed_since(started)) {
        return Ok(());
    }
    if !candidate.files.is_installed()
        || !questions.confirm("Restart the service with the new settings?")?
    {
        bail!(
            "the service runs with its previous settings. Stop it and run this command again: it continues with what \
             is stored"
        );
    }
    let restarted = Command::new("systemctl")
        .args(["restart", "agent-implement"])
        .status()
        .await
        .context("running systemctl")?;
    if !restarted.success() {
        bail!("the service does not start; see journalctl -u agent-implement");
    }
    let started = Instant::now();
    while ControlClient::connect(&dir).await?.is_none() {
        if started.elapsed() > RESTART_TIMEOUT {
            bail!("the restarted service does not answer; see journalctl -u agent-implement");
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
    Ok(())
}

/// API of the service to set up.
pub(super) struct TemporaryService {
    client: ControlClient,
    /// Tasks of this process. `None` if the service runs.
    own: Option<OwnTasks>,
}

struct OwnTasks {
    app: App,
    shutdown: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

impl TemporaryService {
    /// Connects to the running service of the data folder. If none runs, serves its API in this process, without
    /// polling tickets.
    pub(super) async fn start(config: Config) -> anyhow::Result<Self> {
        let dir = config.data_dir.clone();
        if let Some(client) = ControlClient::connect(&dir).await? {
            return Ok(Self { client, own: None });
        }
        let options = AppOptions::default();
        let store = Store::open_when_released(&dir, options.crash_plan.clone()).await?;
        let app = App::new(config, store, options)?;
        let socket = ControlSocket::open(&dir)
            .with_context(|| format!("opening the control socket in {}", dir.display()))?;
        let (shutdown, signal) = ShutdownSignal::new();
        let worker = tasks::spawn(outbox_worker::run(app.clone(), signal.clone()));
        let served = app.clone();
        let api = tasks::spawn(async move {
            // A request that the end interrupts is reported by its client.
            let _ = server::serve_control(served, socket, async move { signal.requested().await })
                .await;
        });
        let own = OwnTasks {
            app,
            shutdown,
            tasks: [worker, api],
        };
        match ControlClient::connect(&dir).await? {
            Some(client) => Ok(Self {
                client,
                own: Some(own),
            }),
            None => bail!("the control socket in {} does not answer", dir.display()),
        }
    }

    /// Engine of this process; `None` if the service runs in another.
    pub(super) fn app(&self) -> Option<&App> {
        self.own.as_ref().map(|own| &own.app)
    }

    /// Gets a path of the API.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let body = self.client.get(path).await?;
        body.with_context(|| format!("the service has no {path}; restart it after an upgrade"))
    }

    /// Posts to a path of the API. The error is the sentence of the response.
    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, answer) = self.client.post(path, body).await?;
        match (status, answer["error"].as_str()) {
            (200..300, _) => Ok(answer),
            (_, Some(error)) => bail!("{}", domain::sanitize::single_line(error)),
            (status, None) => bail!("the service answered {status}"),
        }
    }

    /// Ends the tasks of this process, after the effects in progress.
    pub(super) async fn stop(self) {
        let Some(own) = self.own else {
            return;
        };
        let _ = own.shutdown.send(true);
        let finished = async {
            for task in own.tasks {
                let _ = task.await;
            }
        };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, finished).await;
    }
}

//! The service on this machine, for the commands that ask it: over its control socket while it runs,
//! in its store while it does not.
//!
//! A command that reads calls [`reach`] with the data directory and gets one of the two. Which it is
//! must make no difference to what it prints: both ways end in the same function over the store.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use tokio::net::UnixStream;

use server::control_socket;
use store::{STORE_FILE, Store, StoreError};
use vendors::http::{Client, Redactor, Request, Timeouts};

/// How long may a service that is just starting or stopping hold its store without answering?
const PATIENCE: Duration = Duration::from_secs(5);

/// How long is the rest before another look at it?
const REST: Duration = Duration::from_millis(100);

/// How the control socket is called in an address; nobody looks it up.
const BASE: &str = "http://control";

/// The data folder where nothing names one.
const USUAL: &str = "./data";

/// Where a service keeps its data.
#[derive(Debug, Clone, clap::Args)]
pub struct ServiceLocation {
    /// Data folder of the service. Unless something names it, that of the installed service, whose variables
    /// are in /etc/agent-implement/agent-implement.env, else ./data.
    #[arg(long, env = "DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// File with the service's variables, as systemd's EnvironmentFile= has them; DATA_DIR is taken from
    /// there.
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
}

impl ServiceLocation {
    /// The data folder.
    pub fn data_dir(&self) -> &Path {
        self.data_dir.as_deref().unwrap_or(Path::new(USUAL))
    }

    /// Whether anybody said which folder it is.
    pub fn is_explicit(&self) -> bool {
        self.data_dir.is_some()
    }
}

/// The service, one way or the other.
pub enum ServiceOrStore {
    Running(ControlClient),
    Stopped(Store),
}

/// The service of this data directory: the one that runs, else its store, opened by this process.
///
/// # Errors
/// When there is no store, this user may not open it, or whoever holds it does not answer.
pub async fn connect_or_open(dir: &Path) -> anyhow::Result<ServiceOrStore> {
    let began = Instant::now();
    loop {
        if let Some(service) = ControlClient::connect(dir).await? {
            return Ok(ServiceOrStore::Running(service));
        }
        if !dir.join(STORE_FILE).exists() {
            bail!(
                "there is no store in {}; name the service's data folder with --data-dir, DATA_DIR or --env-file",
                dir.display()
            );
        }
        match Store::open(dir) {
            Ok(store) => return Ok(ServiceOrStore::Stopped(store)),
            Err(StoreError::InUse { .. }) if began.elapsed() < PATIENCE => {
                tokio::time::sleep(REST).await;
            }
            Err(StoreError::InUse { .. }) => bail!(
                "a process holds the store in {} and does not answer at its control socket; see the service's log",
                dir.display()
            ),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A service that runs.
pub struct ControlClient {
    client: Client,
    /// What the socket's path leads through.
    _folder: Option<File>,
}

impl ControlClient {
    /// The one that runs on this data directory; none when none does.
    ///
    /// # Errors
    /// When this user may not ask it.
    pub async fn connect(dir: &Path) -> anyhow::Result<Option<Self>> {
        let (path, folder) = match control_socket(dir) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("opening {}", dir.display())),
        };
        match UnixStream::connect(&path).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => bail!(
                "{} may be asked by the service's own user and by root only; try sudo",
                dir.display()
            ),
            // Nobody listens: none was there, or it was killed.
            Err(_) => return Ok(None),
        }
        let (quiet, timeouts) = (Redactor::new([""; 0]), Timeouts::default());
        let client = Client::with_unix_socket("the service", quiet, timeouts, &path);
        Ok(Some(Self {
            client: client.map_err(anyhow::Error::msg)?,
            _folder: folder,
        }))
    }

    /// Asks for what stands at a path of the API; none when it answers 404.
    ///
    /// # Errors
    /// Any other refusal, and what happens on the way.
    pub async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let request =
            Request::get("asking the service", format!("{BASE}{path}")).accept_status(404);
        let answer = self.client.send(&request).await?;
        match answer.status() {
            404 => Ok(None),
            _ => Ok(Some(answer.json()?)),
        }
    }

    /// Takes a long answer piece by piece.
    ///
    /// # Errors
    /// When it is refused or breaks off, and what `take` failed with.
    pub async fn download(
        &self,
        path: &str,
        take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let request = Request::get("asking the service", format!("{BASE}{path}"));
        let taken = self.client.download(&request, take).await;
        taken.map_err(|error| anyhow!(error))
    }
}

//! Access of commands to the service on this machine: over its control socket while it runs, else directly to
//! its store.
//!
//! A command calls [`connect_or_open`] with the data directory and gets one of the two. Its output must not
//! depend on which: both paths end in the same function over the store.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;
use tokio::net::UnixStream;

use server::control_socket;
use store::{STORE_FILE, Store, StoreError};
use vendors::http::{Client, Method, Redactor, Request, Timeouts};

/// Maximum wait for a service that holds its store but does not respond yet or any more.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two connection attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Base URL of requests over the control socket. Its host name is never resolved.
const BASE_URL: &str = "http://control";

/// Error statuses with which the service refuses a request for a reason.
const MEANINGFUL_STATUSES: [u16; 5] = [400, 403, 404, 409, 503];

/// Default data folder.
const DEFAULT_DATA_DIR: &str = "./data";

/// Options that select a service by its data folder.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ServiceLocation {
    /// Data folder of the service. Default: DATA_DIR of /etc/agent-implement/agent-implement.env if that file
    /// exists, else ./data.
    #[arg(long, env = "DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// File with the service's variables, in the format of systemd's EnvironmentFile=. DATA_DIR is read from
    /// it.
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,
}

impl ServiceLocation {
    /// Path of the data folder.
    pub(super) fn data_dir(&self) -> &Path {
        self.data_dir
            .as_deref()
            .unwrap_or(Path::new(DEFAULT_DATA_DIR))
    }

    /// Whether a flag or variable sets the data folder.
    pub(super) fn is_explicit(&self) -> bool {
        self.data_dir.is_some()
    }
}

/// Running service, or the store of a stopped one.
pub(super) enum ServiceOrStore {
    /// Client of the running service.
    Running(ControlClient),
    /// Store of the stopped service, opened by this process.
    Stopped(Store),
}

/// Connects to the running service of this data directory, or opens its store.
///
/// # Errors
/// If there is no store, if this user may not open it, or if the process that holds it does not respond.
pub(super) async fn connect_or_open(dir: &Path) -> anyhow::Result<ServiceOrStore> {
    let started = Instant::now();
    loop {
        if let Some(service) = ControlClient::connect(dir).await? {
            return Ok(ServiceOrStore::Running(service));
        }
        require_store(dir)?;
        match Store::open(dir) {
            Ok(store) => return Ok(ServiceOrStore::Stopped(store)),
            Err(StoreError::InUse { .. }) if started.elapsed() < CONNECT_TIMEOUT => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(StoreError::InUse { .. }) => bail!(
                "a process holds the store in {} but does not respond at its control socket; see the log of the service",
                dir.display()
            ),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Checks that a data folder has a store.
///
/// # Errors
/// If it has none.
pub(super) fn require_store(dir: &Path) -> anyhow::Result<()> {
    ensure!(
        dir.join(STORE_FILE).exists(),
        "there is no store in {}; set the data folder of the service with --data-dir, DATA_DIR or --env-file",
        dir.display()
    );
    Ok(())
}

/// Client of the control socket of a running service.
pub(super) struct ControlClient {
    client: Client,
    /// Open folder that the path of the socket goes through.
    _folder: Option<File>,
}

impl ControlClient {
    /// Connects to the service of this data directory. Returns `None` if no service runs.
    ///
    /// # Errors
    /// If this user may not connect.
    pub(super) async fn connect(dir: &Path) -> anyhow::Result<Option<Self>> {
        let (path, folder) = match control_socket(dir) {
            Ok(path_and_folder) => path_and_folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("opening {}", dir.display())),
        };
        match UnixStream::connect(&path).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => bail!(
                "only the user of the service and root may connect to the service in {}; try sudo",
                dir.display()
            ),
            // No listener: there is no socket, or its service was killed.
            Err(_) => return Ok(None),
        }
        let (redactor, timeouts) = (Redactor::new([""; 0]), Timeouts::default());
        let client = Client::with_unix_socket("the service", redactor, timeouts, &path);
        Ok(Some(Self {
            client: client.map_err(anyhow::Error::msg)?,
            _folder: folder,
        }))
    }

    /// Gets a path of the API as JSON. Returns `None` for status 404.
    ///
    /// # Errors
    /// If the request fails or has another error status.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let request = Request::get(
            "requesting data of the service",
            format!("{BASE_URL}{path}"),
        )
        .accept_status(404);
        let response = self.client.send(&request).await?;
        match response.status() {
            404 => Ok(None),
            _ => Ok(Some(response.json()?)),
        }
    }

    /// Posts JSON to a path of the API. Returns the status and the response.
    ///
    /// # Errors
    /// If the request fails, or has an error status without a meaning for a command.
    pub(super) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let request = Request::new(
            "sending a request to the service",
            Method::POST,
            format!("{BASE_URL}{path}"),
        )
        .json(body);
        let request = MEANINGFUL_STATUSES
            .into_iter()
            .fold(request, Request::accept_status);
        let response = self.client.send(&request).await?;
        Ok((response.status(), response.json()?))
    }

    /// Downloads a large response in chunks.
    ///
    /// # Errors
    /// If the request is refused or interrupted, or if `write_chunk` fails.
    pub(super) async fn download(
        &self,
        path: &str,
        write_chunk: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let request = Request::get(
            "requesting data of the service",
            format!("{BASE_URL}{path}"),
        );
        let downloaded = self.client.download(&request, write_chunk).await;
        downloaded.map_err(|error| anyhow!(error))
    }
}

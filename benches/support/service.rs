//! Starts the service for benchmarks, in this process or in a child process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use domain::crypto::run_token::{RunTokenIssuer, TokenAudience};
use domain::report::RunPhase;
use domain::secret::Secret;
use engine::app::{App, AppOptions};
use engine::config::{Config, Options};
use store::{Store, jobs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::fixtures;

/// Signing secret of run tokens.
pub const TOKEN_SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Secret of repository webhooks.
pub const WEBHOOK_SECRET: &str = "benchmark webhook secret";
/// Access code of the panel.
pub const ACCESS_CODE: &str = "benchmark access code";

/// Flags of every benchmark.
const FLAGS: [&str; 9] = [
    "bench",
    "--runner-token-secret",
    TOKEN_SECRET,
    "--scm-webhook-secret",
    WEBHOOK_SECRET,
    "--admin-access-code",
    ACCESS_CODE,
    "--runner-callback-base-url",
    "http://127.0.0.1:1",
];

#[derive(Parser)]
struct Service {
    #[command(flatten)]
    options: Options,
}

/// Creates the engine on a store, with additional flags.
pub fn build_app(store: Store, more: &[String]) -> Result<App> {
    // The HTTP clients that the engine creates need a TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let flags = FLAGS.iter().map(|flag| (*flag).to_owned());
    let line = Service::parse_from(flags.chain(more.iter().cloned()));
    let config = Config::from_options(line.options, None)?;
    App::new(config, store, AppOptions::default()).map_err(|error| anyhow!(error))
}

/// Issues a progress token for the job [`fixtures::RUNNING_JOB_ID`].
pub fn progress_token() -> String {
    let (job, now) = (
        fixtures::RUNNING_JOB_ID.into(),
        engine::clock::Clock::System.now(),
    );
    let expires = now + Duration::from_secs(3600);
    let tokens = RunTokenIssuer::new(&Secret::new(TOKEN_SECRET));
    let phase = RunPhase::Implementation;
    let token = tokens.issue(&job, TokenAudience::Progress, phase, now, expires);
    token.expose().to_owned()
}

/// Mode of a server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ServeMode {
    /// Reads requests and responds with 200.
    Socket,
    /// Service with a store in memory.
    Memory,
    /// Service with a store on disk.
    Disk,
}

/// Serves until standard input is closed, then prints the number of commits.
pub fn serve(mode: ServeMode, dir: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        let app = match mode {
            ServeMode::Socket => {
                tokio::spawn(respond_to_all(listener));
                None
            }
            ServeMode::Memory => Some(start_service(listener, Store::in_memory()?).await?),
            ServeMode::Disk => Some(start_service(listener, Store::open(dir)?).await?),
        };
        let wait_for_eof = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(wait_for_eof).await??;
        println!("{}", app.map_or(0, |app| app.core.store().stats().commits));
        Ok(())
    })
}

/// Starts the service with the running job.
async fn start_service(listener: TcpListener, store: Store) -> Result<App> {
    let job = fixtures::running_job();
    store.write(move |tx| jobs::put(tx, &job)).await?;
    let app = build_app(store, &[])?;
    tokio::spawn(server::serve(app.clone(), listener, std::future::pending()));
    Ok(app)
}

/// Responds with 200 to every request.
async fn respond_to_all(listener: TcpListener) -> std::io::Result<()> {
    const OK: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut buffer = vec![0; 32 << 10];
            let mut filled = 0;
            loop {
                match stream.read(&mut buffer[filled..]).await {
                    Ok(0) | Err(_) => return,
                    Ok(read) => filled += read,
                }
                if !is_complete(&buffer[..filled]) {
                    continue;
                }
                filled = 0;
                if stream.write_all(OK).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Returns whether the request is complete.
fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().unwrap_or(usize::MAX));
    body.len() >= length
}

/// Child process of this program that serves with the memory settings of the service. Killed on drop.
pub struct BenchServer {
    child: Child,
    /// Address on which it listens.
    pub address: SocketAddr,
}

impl BenchServer {
    /// Starts the server and waits until it listens.
    pub fn start(mode: ServeMode, dir: &Path) -> Result<Self> {
        use clap::ValueEnum;
        let name = mode.to_possible_value().context("unknown serve mode")?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .arg(name.get_name())
            .arg("--dir")
            .arg(dir)
            .envs(test_support::allocator_settings())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.as_mut().context("no standard output")?;
        // A buffer of one byte, so that no later output is consumed.
        BufReader::with_capacity(1, stdout).read_line(&mut line)?;
        let address = line.trim().parse().context("the server did not start")?;
        Ok(Self { child, address })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server. Returns the number of commits of its store.
    pub fn stop(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let mut output = String::new();
        if let Some(stdout) = self.child.stdout.as_mut() {
            stdout.read_to_string(&mut output)?;
        }
        self.child.wait()?;
        Ok(output.trim().parse()?)
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        // The process has usually exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

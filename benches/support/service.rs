//! The service as the benchmarks start it, in this process or in one of its own.

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

pub const TOKEN_SECRET: &str = "0123456789abcdef0123456789abcdef";
pub const WEBHOOK_SECRET: &str = "what the host signs with";
pub const ACCESS_CODE: &str = "open sesame, please";

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

/// Allocator settings of the systemd unit and the container image (packaging/systemd, packaging/docker).
const ALLOCATOR: [(&str, &str); 2] = [
    ("MALLOC_ARENA_MAX", "4"),
    ("MALLOC_MMAP_THRESHOLD_", "32768"),
];

/// The engine's handles on this store, with these flags beside the usual ones.
pub fn build_app(store: Store, more: &[String]) -> Result<App> {
    // The engine makes its HTTP clients at the start, and they ask for a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let usual = FLAGS.iter().map(|flag| (*flag).to_owned());
    let line = Service::parse_from(usual.chain(more.iter().cloned()));
    let config = Config::from_options(line.options)?;
    App::new(config, store, AppOptions::default()).map_err(|error| anyhow!(error))
}

/// What the run of [`fixtures::RUNNING`] reports its progress with.
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

/// What a process serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ServeMode {
    /// Reads a request and answers 200: what a connection costs.
    Socket,
    /// The service on a store in memory.
    Memory,
    /// The service on a store on disk.
    Disk,
}

/// Serves until its standard input ends, and then says how often the store committed.
pub fn serve(what: ServeMode, dir: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        let app = match what {
            ServeMode::Socket => {
                tokio::spawn(answer_all(listener));
                None
            }
            ServeMode::Memory => Some(served(listener, Store::in_memory()?).await?),
            ServeMode::Disk => Some(served(listener, Store::open(dir)?).await?),
        };
        let end = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(end).await??;
        println!("{}", app.map_or(0, |app| app.store.stats().commits));
        Ok(())
    })
}

async fn served(listener: TcpListener, store: Store) -> Result<App> {
    let app = build_app(store, &[])?;
    let job = fixtures::running_job();
    app.store.write(move |tx| jobs::put(tx, &job)).await?;
    tokio::spawn(server::serve(app.clone(), listener, std::future::pending()));
    Ok(app)
}

async fn answer_all(listener: TcpListener) -> std::io::Result<()> {
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
                if !is_whole(&buffer[..filled]) {
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

fn is_whole(request: &[u8]) -> bool {
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

/// This program once more, serving with the memory settings of the service.
pub struct BenchServer {
    child: Child,
    pub address: SocketAddr,
}

impl BenchServer {
    pub fn start(what: ServeMode, dir: &Path) -> Result<Self> {
        use clap::ValueEnum;
        let name = what.to_possible_value().context("no such server")?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .arg(name.get_name())
            .arg("--dir")
            .arg(dir)
            .envs(ALLOCATOR)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.as_mut().context("no standard output")?;
        // Byte by byte, so that nothing of what comes later is taken away.
        BufReader::with_capacity(1, stdout).read_line(&mut line)?;
        let address = line.trim().parse().context("the server did not start")?;
        Ok(Self { child, address })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, and says how often its store committed.
    pub fn stop(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        if let Some(stdout) = self.child.stdout.as_mut() {
            stdout.read_to_string(&mut said)?;
        }
        self.child.wait()?;
        Ok(said.trim().parse()?)
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        // Mostly it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

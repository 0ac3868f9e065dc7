//! The real binary, as an operator starts it.

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long may the service take to begin or to end?
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary with a command, in an environment that holds nothing but what processes need.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-implement"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Runs a command to its end.
pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

pub fn exit_and_output(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap();
    (code, text(&output.stdout), text(&output.stderr))
}

/// `agent-implement serve` in a process of its own, on a port of its own.
pub struct ServiceProcess {
    child: Child,
    /// Where the network finds it.
    pub address: String,
}

impl ServiceProcess {
    pub fn start(dir: &Path, flags: &[&str]) -> Self {
        let began = Instant::now();
        loop {
            match Self::try_start(dir, flags) {
                Ok(service) => return service,
                // The test that made the store may hold it for a moment yet.
                Err(log) if log.contains("is in use") && began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(log) => panic!("it ended: {log}"),
            }
        }
    }

    fn try_start(dir: &Path, flags: &[&str]) -> Result<Self, String> {
        let mut child = command(&["serve", "--port", "0", "--data-dir"])
            .arg(dir)
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        let address = loop {
            let Some(line) = log.next() else {
                child.wait().unwrap();
                return Err(seen);
            };
            let line = line.unwrap();
            if let Some((_, rest)) = line.split_once("is running. address=\"") {
                break rest.split('"').next().unwrap().to_owned();
            }
            seen.push_str(&line);
        };
        // Somebody must read on, or it could write no more.
        std::thread::spawn(move || log.for_each(drop));
        let address = format!("http://{address}");
        let service = Self { child, address };
        service.wait_for(&dir.join("control.sock"));
        Ok(service)
    }

    /// Waits until somebody answers there: a file alone may be what a killed one left.
    fn wait_for(&self, path: &Path) {
        let began = Instant::now();
        while !is_answered(path) {
            assert!(began.elapsed() < PATIENCE, "no {}", path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it ends by itself, and answers its exit code.
    pub fn wait_for_exit(mut self) -> i32 {
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.wait().unwrap().code().unwrap()
    }

    /// Ends it as systemd would, and answers its exit code.
    pub fn stop(mut self) -> i32 {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap()
    }
}

fn is_answered(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => true,
        // Too long for an address.
        Err(error) if error.kind() == ErrorKind::InvalidInput => path.exists(),
        Err(_) => false,
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // Mostly it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of HTTP, for tests that have no server of their own.
pub fn client_builder() -> reqwest::ClientBuilder {
    // Fails only when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}

/// Asks the control socket of a data directory, without any token.
pub async fn control_request(
    dir: &Path,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let socket = dir.join("control.sock");
    let client = client_builder().unix_socket(socket);
    let mut request = client
        .build()
        .unwrap()
        .request(method, format!("http://control{path}"));
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

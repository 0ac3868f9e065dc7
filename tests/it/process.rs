//! Helpers that start the real binary as an operator does.

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Maximum time for the service to start or to exit.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a command that runs the binary with only `PATH` in its environment.
pub fn command(arguments: &[&str]) -> Command {
    command_of(env!("CARGO_BIN_EXE_agent-implement").as_ref(), arguments)
}

/// Returns a command that runs a binary with only `PATH` in its environment.
pub fn command_of(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// Runs the binary until it exits.
pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Returns exit code, standard output, and standard error.
pub fn exit_and_output(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap();
    (code, text(&output.stdout), text(&output.stderr))
}

/// `agent-implement serve` as a child process on a free port.
pub struct ServiceProcess {
    child: Child,
    /// Base URL of the service.
    pub address: String,
}

impl ServiceProcess {
    /// Starts the service on a data directory with more flags.
    ///
    /// # Panics
    /// If the service exits before it is ready.
    pub fn start(dir: &Path, flags: &[&str]) -> Self {
        Self::start_on(0, dir, flags)
    }

    /// Starts the service on a port. 0 stands for any free one.
    ///
    /// # Panics
    /// If the service exits before it is ready.
    pub fn start_on(port: u16, dir: &Path, flags: &[&str]) -> Self {
        let mut command = command(&["serve", "--port", &port.to_string(), "--data-dir"]);
        Self::spawn(command.arg(dir).args(flags), dir)
    }

    /// Starts a command that serves a data directory.
    ///
    /// # Panics
    /// If the service exits before it is ready.
    pub fn spawn(command: &mut Command, dir: &Path) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut output = String::new();
        let address = loop {
            let Some(line) = log.next() else {
                child.wait().unwrap();
                panic!("the service exited: {output}");
            };
            let line = line.unwrap();
            if let Some((_, rest)) = line.split_once("is running. address=\"") {
                break rest.split('"').next().unwrap().to_owned();
            }
            output.push_str(&line);
        };
        // A full pipe would block the service.
        std::thread::spawn(move || log.for_each(drop));
        let address = format!("http://{address}");
        let service = Self { child, address };
        service.wait_for_socket(&dir.join("control.sock"));
        service
    }

    /// Waits until the socket accepts connections. The file alone proves nothing: a killed service leaves
    /// it behind.
    fn wait_for_socket(&self, path: &Path) {
        let began = Instant::now();
        while !accepts_connections(path) {
            assert!(began.elapsed() < TIMEOUT, "no {}", path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the service with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the service exits by itself and returns its exit code.
    pub fn wait_for_exit(mut self) -> i32 {
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < TIMEOUT, "the service did not exit");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.wait().unwrap().code().unwrap()
    }

    /// Stops the service with SIGTERM, as systemd does, and returns its exit code.
    pub fn stop(mut self) -> i32 {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap()
    }
}

fn accepts_connections(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => true,
        // The path is too long for a socket address.
        Err(error) if error.kind() == ErrorKind::InvalidInput => path.exists(),
        Err(_) => false,
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a builder of HTTP clients for tests without an `ApiServer`.
pub fn client_builder() -> reqwest::ClientBuilder {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}

/// Sends a request to the control socket of a data directory, without a token. Returns status and body.
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
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

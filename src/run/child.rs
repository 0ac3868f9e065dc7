//! Child processes: start, capture, stream, terminate.
//!
//! Every child gets an environment built from scratch, its own process group and a deadline. When the
//! child ends, every process left in its group is killed. Child output is data and is never interpreted
//! here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Time a child has to exit after SIGTERM before it is killed.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// Time to keep reading after a child exited while another process holds its output open.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// Maximum captured output per stream, in bytes.
const MAX_CAPTURE: u64 = 64 << 20;

/// Complete environment of a child. Values may be credentials, so `Debug` shows names only.
#[derive(Clone, Default)]
pub struct ChildEnv(BTreeMap<OsString, OsString>);

impl fmt::Debug for ChildEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl ChildEnv {
    /// Creates an environment of exactly these variables.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self(variables.into_iter().collect())
    }

    /// Returns the environment with one variable added.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.insert(name.into(), value.as_ref().to_owned());
        self
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Returns the names of all variables, sorted.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.0.keys().map(OsString::as_os_str)
    }
}

/// Program, arguments, directory, environment and input of a child.
#[derive(Debug, Clone)]
pub(crate) struct ChildSpec {
    /// Program name or path.
    pub program: OsString,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Working directory.
    pub dir: PathBuf,
    /// Complete environment.
    pub env: ChildEnv,
    /// Bytes written to the child's standard input.
    pub input: Vec<u8>,
}

impl ChildSpec {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .current_dir(&self.dir)
            .env_clear()
            .envs(&self.env.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    fn start(&self) -> Result<(Child, Group), ChildError> {
        let mut child = self.command().spawn().map_err(|cause| ChildError::Start {
            program: self.program.to_string_lossy().into_owned(),
            cause,
        })?;
        let group = Group::of(&child);
        if let Some(mut stdin) = child.stdin.take() {
            let input = self.input.clone();
            // A child may exit without reading its input; that is not an error.
            tokio::spawn(async move { stdin.write_all(&input).await });
        }
        Ok((child, group))
    }
}

/// Error of a child that produced no exit code in time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    /// The program could not be started.
    #[error("cannot start {program}: {cause}")]
    Start {
        program: String,
        cause: std::io::Error,
    },
    /// The deadline passed.
    #[error("did not finish in time and was stopped")]
    TimedOut,
    /// The output could not be read.
    #[error("cannot read its output: {0}")]
    Output(#[from] std::io::Error),
}

/// Exit code of a child, in shell convention: 128 plus the signal number after a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildExit(i32);

impl ChildExit {
    /// Whether the exit code is 0.
    pub(crate) fn success(self) -> bool {
        self.0 == 0
    }

    /// Returns the exit code.
    pub(crate) fn code(self) -> i32 {
        self.0
    }
}

impl From<ExitStatus> for ChildExit {
    fn from(status: ExitStatus) -> Self {
        let by_signal = status.signal().map_or(1, |signal| 128 + signal);
        Self(status.code().unwrap_or(by_signal))
    }
}

impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

/// Exit code and captured output of a child.
#[derive(Debug)]
pub(crate) struct ChildOutput {
    /// Exit code.
    pub exit: ChildExit,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error, with invalid UTF-8 replaced.
    pub stderr: String,
}

/// Runs a child to completion and captures its output.
///
/// # Errors
/// If the child cannot be started, prints more than the capture limit, or misses the deadline. After
/// the deadline its whole process group is killed.
pub(crate) async fn capture(
    spec: &ChildSpec,
    deadline: Instant,
) -> Result<ChildOutput, ChildError> {
    let (mut child, _group) = spec.start()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let whole = async { tokio::try_join!(child.wait(), read_whole(stdout), read_capped(stderr)) };
    let (status, stdout, stderr) = timeout_at(deadline, whole)
        .await
        .map_err(|_| ChildError::TimedOut)??;
    Ok(ChildOutput {
        exit: status.into(),
        stdout,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    })
}

/// Runs a child to completion and passes its standard output to `on_chunk` as it arrives. Nothing
/// is stored.
///
/// # Errors
/// See [`capture`].
pub(crate) async fn stream(
    spec: &ChildSpec,
    deadline: Instant,
    on_chunk: impl FnMut(&[u8]),
) -> Result<ChildExit, ChildError> {
    let (mut child, _group) = spec.start()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let whole =
        async { tokio::try_join!(child.wait(), forward(stdout, on_chunk), read_capped(stderr)) };
    let (status, (), _) = timeout_at(deadline, whole)
        .await
        .map_err(|_| ChildError::TimedOut)??;
    Ok(status.into())
}

async fn forward(
    pipe: Option<impl AsyncRead + Unpin>,
    mut on_chunk: impl FnMut(&[u8]),
) -> std::io::Result<()> {
    let Some(pipe) = pipe else { return Ok(()) };
    let mut pipe = BufReader::with_capacity(64 << 10, pipe);
    loop {
        let part = pipe.fill_buf().await?;
        if part.is_empty() {
            return Ok(());
        }
        on_chunk(part);
        let used = part.len();
        pipe.consume(used);
    }
}

/// Reads a stream to its end. Fails at the limit, because truncated output would be parsed as complete.
async fn read_whole(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let bytes = read_capped(pipe).await?;
    if bytes.len() as u64 >= MAX_CAPTURE {
        let problem = format!("it printed more than {} MiB", MAX_CAPTURE >> 20);
        return Err(std::io::Error::other(problem));
    }
    Ok(bytes)
}

async fn read_capped(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe)
            .take(MAX_CAPTURE)
            .read_to_end(&mut bytes)
            .await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

/// Output stream of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Line of a running child, cut at the maximum line length.
#[derive(Debug)]
pub(crate) struct OutputLine {
    /// Stream that the line was read from.
    pub stream: OutputStream,
    /// Text without its line ending.
    pub text: String,
}

/// Running child whose lines are read as they arrive.
#[derive(Debug)]
pub(crate) struct RunningChild {
    child: Child,
    group: Group,
    lines: mpsc::Receiver<OutputLine>,
    drained: bool,
    exited: Option<(ChildExit, Instant)>,
}

impl RunningChild {
    /// Starts a child whose lines are cut at `max_line` bytes.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn start(spec: &ChildSpec, max_line: usize) -> Result<Self, ChildError> {
        let (mut child, group) = spec.start()?;
        let (sender, lines) = mpsc::channel(256);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read_lines(
                stdout,
                OutputStream::Stdout,
                max_line,
                sender.clone(),
            ));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(read_lines(stderr, OutputStream::Stderr, max_line, sender));
        }
        Ok(Self {
            child,
            group,
            lines,
            drained: false,
            exited: None,
        })
    }

    /// Returns the next line, or `None` after the child exited and its output was read. Cancel-safe.
    pub(crate) async fn next_line(&mut self) -> Option<OutputLine> {
        loop {
            let give_up = self.exited.map(|(_, at)| at + DRAIN_GRACE);
            if self.drained && give_up.is_some() {
                return None;
            }
            let give_up = async move {
                match give_up {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = self.lines.recv(), if !self.drained => match line {
                    Some(line) => return Some(line),
                    None => self.drained = true,
                },
                status = self.child.wait(), if self.exited.is_none() => {
                    let exit = status.map_or(ChildExit(1), ChildExit::from);
                    self.exited = Some((exit, Instant::now()));
                    self.group.signal(Signal::KILL);
                }
                () = give_up => return None,
            }
        }
    }

    /// Waits up to `grace` for the child to exit, then sends SIGTERM and SIGKILL to its group.
    /// Returns the exit code if the child exited within `grace`.
    pub(crate) async fn wait_or_kill(mut self, grace: Duration) -> Option<ChildExit> {
        if let Some((exit, _)) = self.exited {
            return Some(exit);
        }
        let exited = timeout(grace, self.child.wait()).await;
        if exited.is_err() {
            self.group.signal(Signal::TERM);
            // The group is killed in either case.
            let _ = timeout(TERM_GRACE, self.child.wait()).await;
        }
        self.group.signal(Signal::KILL);
        exited
            .ok()
            .map(|status| status.map_or(ChildExit(1), ChildExit::from))
    }
}

/// Splits output into lines of at most `max_line` bytes; the rest of a longer line is discarded.
async fn read_lines(
    pipe: impl AsyncRead + Unpin,
    stream: OutputStream,
    max_line: usize,
    sender: mpsc::Sender<OutputLine>,
) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while let Ok(chunk) = pipe.fill_buf().await {
        let is_eof = chunk.is_empty();
        let (part, used, complete) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&chunk[..at], at + 1, true),
            None => (chunk, chunk.len(), is_eof),
        };
        let remaining = max_line.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(remaining)]);
        pipe.consume(used);
        if complete && !(is_eof && line.is_empty()) {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if sender.send(OutputLine { stream, text }).await.is_err() {
                break;
            }
        }
        if is_eof {
            break;
        }
    }
}

/// Process group that is killed on drop, so that a cancelled step leaves no process behind.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Self(pid.and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            // The group may have exited already.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

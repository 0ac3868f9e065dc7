//! Starting other programs, and ending them.
//!
//! Every child gets an environment built from nothing, a process group of its own and a deadline;
//! whatever it leaves behind in its group is killed when it ends. What a child prints is data:
//! nothing here takes it for anything else.

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

/// How long may a child tidy up after it was asked to end?
const TERM_GRACE: Duration = Duration::from_secs(5);

/// How long do we read on after a child ended, when something else still holds its output open?
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// How much output of a captured child is kept?
const MAX_CAPTURE: u64 = 64 << 20;

/// The environment of a child, all of it. Its values may be credentials: only names are shown.
#[derive(Clone, Default)]
pub struct ChildEnv(BTreeMap<OsString, OsString>);

impl fmt::Debug for ChildEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl ChildEnv {
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self(variables.into_iter().collect())
    }

    /// The same with one more variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.insert(name.into(), value.as_ref().to_owned());
        self
    }

    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.0.keys().map(OsString::as_os_str)
    }
}

/// What to start.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub dir: PathBuf,
    pub env: ChildEnv,
    /// What the child reads on its standard input.
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
            // A child that does not read its input is no error of ours.
            tokio::spawn(async move { stdin.write_all(&input).await });
        }
        Ok((child, group))
    }
}

/// Why a child gave no result of its own.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    #[error("starting {program}: {cause}")]
    Start {
        program: String,
        cause: std::io::Error,
    },
    #[error("it did not end in time and was stopped")]
    TimedOut,
    #[error("reading its output: {0}")]
    Output(#[from] std::io::Error),
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildExit(i32);

impl ChildExit {
    pub fn success(self) -> bool {
        self.0 == 0
    }

    /// The exit code, as a shell would tell it: 128 and the number for a signal.
    pub fn code(self) -> i32 {
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

/// All that a short-lived child said.
#[derive(Debug)]
pub struct ChildOutput {
    pub exit: ChildExit,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// Runs a child to its end and keeps its output.
///
/// # Errors
/// When it cannot be started, says more than can be kept, or is not done by the deadline; then its whole
/// group is killed.
pub async fn capture(spec: &ChildSpec, deadline: Instant) -> Result<ChildOutput, ChildError> {
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

/// Runs a child to its end and hands on what it says as it comes; none of it is kept.
///
/// # Errors
/// As [`capture`].
pub async fn stream(
    spec: &ChildSpec,
    deadline: Instant,
    take: impl FnMut(&[u8]),
) -> Result<ChildExit, ChildError> {
    let (mut child, _group) = spec.start()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let whole =
        async { tokio::try_join!(child.wait(), hand_on(stdout, take), read_capped(stderr)) };
    let (status, (), _) = timeout_at(deadline, whole)
        .await
        .map_err(|_| ChildError::TimedOut)??;
    Ok(status.into())
}

async fn hand_on(
    pipe: Option<impl AsyncRead + Unpin>,
    mut take: impl FnMut(&[u8]),
) -> std::io::Result<()> {
    let Some(pipe) = pipe else { return Ok(()) };
    let mut pipe = BufReader::with_capacity(64 << 10, pipe);
    loop {
        let part = pipe.fill_buf().await?;
        if part.is_empty() {
            return Ok(());
        }
        take(part);
        let used = part.len();
        pipe.consume(used);
    }
}

/// All of it: half an answer would be taken for the whole.
async fn read_whole(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let bytes = read_capped(pipe).await?;
    if bytes.len() as u64 >= MAX_CAPTURE {
        let problem = format!("it said more than {} MiB", MAX_CAPTURE >> 20);
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

/// Which of its two voices a child used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// A line of a running child. What is longer than the limit is cut.
#[derive(Debug)]
pub struct OutputLine {
    pub stream: OutputStream,
    pub text: String,
}

/// A child whose lines are read while it works.
#[derive(Debug)]
pub struct RunningChild {
    child: Child,
    group: Group,
    lines: mpsc::Receiver<OutputLine>,
    drained: bool,
    ended: Option<(ChildExit, Instant)>,
}

impl RunningChild {
    /// Starts a child; its lines are cut at `max_line` bytes.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(spec: &ChildSpec, max_line: usize) -> Result<Self, ChildError> {
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
            ended: None,
        })
    }

    /// The next line; `None` once the child has ended and all it said is read. Safe to drop and
    /// call again.
    pub async fn next_line(&mut self) -> Option<OutputLine> {
        loop {
            let give_up = self.ended.map(|(_, at)| at + DRAIN_GRACE);
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
                status = self.child.wait(), if self.ended.is_none() => {
                    let exit = status.map_or(ChildExit(1), ChildExit::from);
                    self.ended = Some((exit, Instant::now()));
                    self.group.signal(Signal::KILL);
                }
                () = give_up => return None,
            }
        }
    }

    /// Waits up to `grace` for the child to end by itself, then ends it: the group is asked, then
    /// killed. Answers how it ended if it did so by itself.
    pub async fn wait_or_kill(mut self, grace: Duration) -> Option<ChildExit> {
        if let Some((exit, _)) = self.ended {
            return Some(exit);
        }
        let alone = timeout(grace, self.child.wait()).await;
        if alone.is_err() {
            self.group.signal(Signal::TERM);
            // Whether it obeyed does not matter: the group is killed either way.
            let _ = timeout(TERM_GRACE, self.child.wait()).await;
        }
        self.group.signal(Signal::KILL);
        alone
            .ok()
            .map(|status| status.map_or(ChildExit(1), ChildExit::from))
    }
}

/// Splits a child's output into lines, each at most `max_line` bytes; the rest of a longer one is
/// read and forgotten.
async fn read_lines(
    pipe: impl AsyncRead + Unpin,
    voice: OutputStream,
    max_line: usize,
    sender: mpsc::Sender<OutputLine>,
) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while let Ok(chunk) = pipe.fill_buf().await {
        let ended = chunk.is_empty();
        let (part, used, complete) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&chunk[..at], at + 1, true),
            None => (chunk, chunk.len(), ended),
        };
        let room = max_line.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        pipe.consume(used);
        if complete && !(ended && line.is_empty()) {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if sender
                .send(OutputLine {
                    stream: voice,
                    text,
                })
                .await
                .is_err()
            {
                break;
            }
        }
        if ended {
            break;
        }
    }
}

/// A process group that ends with its owner: a cancelled step leaves nothing running.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Self(pid.and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            // The group may be gone already.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

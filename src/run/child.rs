//! Child processes: start, capture, stream. [`running`]: children whose lines are read as they arrive.
//!
//! Every child gets an environment built from scratch, its own process group and a deadline. When the
//! child ends, every process left in its group is killed. Child output is data and is never interpreted
//! here.

pub(crate) mod running;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use tasks::ProcessGroup;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

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

    /// Returns the environment with at most one of its variables.
    #[must_use]
    pub(crate) fn only(&self, name: &str) -> Self {
        let kept = self.0.get_key_value(OsStr::new(name));
        Self(
            kept.map(|(name, value)| (name.clone(), value.clone()))
                .into_iter()
                .collect(),
        )
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

    /// Starts the child in a process group of its own.
    fn start(&self) -> Result<(Child, ProcessGroup), ChildError> {
        let mut child = self.command().spawn().map_err(|cause| ChildError::Start {
            program: self.program.to_string_lossy().into_owned(),
            cause,
        })?;
        let group = ProcessGroup::of(&child);
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

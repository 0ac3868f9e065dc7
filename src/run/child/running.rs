//! Running children: lines as they arrive, and termination.

use std::time::Duration;

use tasks::ProcessGroup;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::{ChildError, ChildExit, ChildSpec};

/// Time a child has to exit after SIGTERM before it is killed.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// Time to keep reading after a child exited while another process holds its output open.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

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
    group: ProcessGroup,
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
            tasks::spawn(read_lines(
                stdout,
                OutputStream::Stdout,
                max_line,
                sender.clone(),
            ));
        }
        if let Some(stderr) = child.stderr.take() {
            tasks::spawn(read_lines(stderr, OutputStream::Stderr, max_line, sender));
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
                    self.group.kill();
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
            self.group.terminate();
            // The group is killed in either case.
            let _ = timeout(TERM_GRACE, self.child.wait()).await;
        }
        self.group.kill();
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

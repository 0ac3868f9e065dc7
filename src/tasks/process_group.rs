//! Process groups of children.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// Process group of a child. It is killed on drop, so that nothing that the child started outlives its use.
#[derive(Debug)]
pub struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// Group of a child that was started with `process_group(0)`.
    pub fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Self(pid.and_then(Pid::from_raw))
    }

    /// Asks the processes to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends the processes.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            // The group may have exited already.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

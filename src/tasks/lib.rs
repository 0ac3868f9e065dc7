//! Tasks of the async runtime, and the process groups of its children.
//!
//! The runtime compiles about three kilobytes of code for each type of task, and does so for both of its schedulers. The
//! futures and closures of these tasks are boxed, so that all are of one type.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod process_group;

use std::any::Any;
use std::panic::resume_unwind;
use std::pin::Pin;

use tokio::task::{JoinError, JoinHandle};

pub use process_group::ProcessGroup;

/// Boxed future of a task.
pub type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Output of a boxed closure.
type BoxedOutput = Box<dyn Any + Send>;

/// Boxes the future of a task.
pub fn boxed(future: impl Future<Output = ()> + Send + 'static) -> BoxedTask {
    Box::pin(future)
}

/// Starts a task. Requires a Tokio runtime.
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(boxed(future))
}

/// Task that is aborted on drop.
#[derive(Debug)]
pub struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    /// Starts a task. Requires a Tokio runtime.
    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(spawn(future))
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts work on a thread that may block. Returns a future of its output. Requires a Tokio runtime.
///
/// # Errors
/// The future fails if the work panics, or if the runtime shuts down before the work begins.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, JoinError>> + Send + Unpin {
    let work: Box<dyn FnOnce() -> BoxedOutput + Send> = Box::new(move || Box::new(work()));
    let mut task = tokio::task::spawn_blocking(work);
    std::future::poll_fn(move |context| {
        let output = std::task::ready!(Pin::new(&mut task).poll(context));
        std::task::Poll::Ready(output.map(|output| match output.downcast() {
            Ok(output) => *output,
            Err(other) => resume_unwind(other),
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_even_if_nobody_waits_and_panics_are_errors() {
        assert_eq!(spawn_blocking(|| "done".to_owned()).await.unwrap(), "done");
        let (sender, receiver) = std::sync::mpsc::channel();
        drop(spawn_blocking(move || sender.send(1)));
        assert_eq!(receiver.recv().unwrap(), 1);
        let failed = spawn_blocking(|| -> u8 { panic!("as expected") }).await;
        assert!(failed.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn an_aborted_task_drops_its_future() {
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let task = AbortOnDrop::spawn(async move {
            let _sender = sender;
            std::future::pending().await
        });
        tokio::task::yield_now().await;
        drop(task);
        assert!(receiver.await.is_err());
    }

    #[tokio::test]
    async fn a_task_ends_with_its_future() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let task = spawn(async move { sender.send(7).unwrap() });
        task.await.unwrap();
        assert_eq!(receiver.await.unwrap(), 7);
    }
}

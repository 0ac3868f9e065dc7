//! Work that stops in the middle, as when the process that does it is killed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Something that is looked at so many times and then let go.
pub struct PollLimited<'f> {
    work: Pin<Box<dyn Future<Output = ()> + Send + 'f>>,
    looks: usize,
}

impl<'f> PollLimited<'f> {
    /// Ends when the work is done or has been looked at so often.
    pub fn new(looks: usize, work: impl Future<Output = ()> + Send + 'f) -> Self {
        Self {
            work: Box::pin(work),
            looks,
        }
    }
}

impl Future for PollLimited<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.looks == 0 {
            return Poll::Ready(());
        }
        self.looks -= 1;
        self.work.as_mut().poll(context)
    }
}

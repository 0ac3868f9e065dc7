//! Futures that stop in the middle, as if their process were killed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Future that is polled a limited number of times and then completes.
pub struct PollLimited<'f> {
    future: Pin<Box<dyn Future<Output = ()> + Send + 'f>>,
    polls: usize,
}

impl<'f> PollLimited<'f> {
    /// Completes when the future completes or after this many polls.
    pub fn new(polls: usize, future: impl Future<Output = ()> + Send + 'f) -> Self {
        Self {
            future: Box::pin(future),
            polls,
        }
    }
}

impl Future for PollLimited<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.polls == 0 {
            return Poll::Ready(());
        }
        self.polls -= 1;
        self.future.as_mut().poll(context)
    }
}

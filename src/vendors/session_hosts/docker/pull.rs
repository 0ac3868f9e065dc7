//! Pull of an image that the engine does not have.
//!
//! An engine stops pulling when its client goes away, and may begin anew the next time. So a pull is a task of its own,
//! and goes on when the attempt to start a run is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::build_progress::BuildProgress;
use super::{Docker, image_parts};
use crate::http::{DownloadError, Method, Request, VendorError, VendorErrorKind, percent_encode};

/// Maximum pause in the engine's output. Unpacking a large layer prints nothing for minutes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

const ACTION: &str = "pulling the image";

/// Outcome of a pull. The inner result holds the message of the engine.
type Pulled = Result<Result<(), String>, VendorError>;

/// Pulls by image, until an attempt to start a run has read their outcome.
pub(super) type Pulls = Arc<Mutex<HashMap<String, watch::Receiver<Option<Pulled>>>>>;

impl Docker {
    /// Pulls an image, and waits for it as long as an attempt to start a run may.
    ///
    /// # Errors
    /// Fails with a transient error while the pull goes on, or if the engine does not respond.
    pub(super) async fn pull(&self, image: &str) -> Pulled {
        let mut pull = self.begin_or_join_pull(image);
        let outcome =
            match tokio::time::timeout(self.pull_wait, pull.wait_for(Option::is_some)).await {
                Ok(outcome) => outcome.ok().and_then(|outcome| outcome.clone()),
                Err(_) => return Err(self.pull_later("the engine is still pulling the image")),
            };
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        pulls.remove(image);
        outcome.unwrap_or_else(|| Err(self.pull_later("the pull was aborted")))
    }

    fn begin_or_join_pull(&self, image: &str) -> watch::Receiver<Option<Pulled>> {
        let mut pulls = self.pulls.lock().unwrap_or_else(PoisonError::into_inner);
        let pull = pulls.entry(image.to_owned()).or_insert_with(|| {
            let (sender, receiver) = watch::channel(None);
            let (docker, image) = (self.clone(), image.to_owned());
            tasks::spawn(async move {
                let outcome = docker.pull_to_end(&image).await;
                sender.send_replace(Some(outcome));
            });
            receiver
        });
        pull.clone()
    }

    async fn pull_to_end(&self, image: &str) -> Pulled {
        let (name, tag) = image_parts(image);
        let url = self.url(&format!(
            "/images/create?fromImage={}&tag={}",
            percent_encode(name),
            percent_encode(tag)
        ));
        let request = Request::new(ACTION, Method::POST, url);
        // The engine reports most failures in the progress of a response with status 200.
        let mut progress = BuildProgress::default();
        let read = |chunk: &[u8]| {
            progress.read(chunk, &mut |_| {});
            Ok(())
        };
        let sent = self
            .client
            .upload(&request, reqwest::Body::default(), IDLE_TIMEOUT, read);
        match sent.await {
            Ok(()) => Ok(progress.finish(&mut |_| {})),
            Err(DownloadError::Write(error)) => Ok(Err(error.to_string())),
            Err(DownloadError::Vendor(error)) => match error.kind {
                VendorErrorKind::Status {
                    status: 400 | 403 | 404,
                    message,
                    ..
                } => Ok(Err(message)),
                _ => Err(error),
            },
        }
    }

    fn pull_later(&self, cause: &str) -> VendorError {
        let kind = VendorErrorKind::Precondition(cause.to_owned());
        VendorError::new(self.client.vendor(), ACTION, kind)
    }
}

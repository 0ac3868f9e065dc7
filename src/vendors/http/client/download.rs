//! An answer that is too long to be held: taken piece by piece as it comes.

use std::io;
use std::time::Duration;

use reqwest::Url;

use super::{Client, root_cause};
use crate::http::{Request, VendorError, VendorErrorKind};

/// How long may the other side say nothing?
const SILENCE: Duration = Duration::from_secs(60);

/// Why an answer was not taken to its end.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error(transparent)]
    Vendor(#[from] VendorError),
    #[error("{0}")]
    Write(#[from] io::Error),
}

impl Client {
    /// Sends a request once and hands every piece of the answer on as it comes. However long it is, it
    /// may take as long as it goes on.
    ///
    /// # Errors
    /// As [`Client::send`], of redirects too; and what `take` failed with.
    pub async fn download(
        &self,
        request: &Request,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), DownloadError> {
        let url = Url::parse(&request.url).map_err(|_| {
            self.error(
                request,
                VendorErrorKind::Connect("the address is no URL".into()),
            )
        })?;
        let call = self.inner.http.request(request.method.clone(), url);
        let sent = call.headers(request.headers.clone()).send();
        let late = |_| self.error(request, VendorErrorKind::Timeout);
        let sent = tokio::time::timeout(SILENCE, sent).await.map_err(late)?;
        let mut response = sent.map_err(|error| self.transport_error(request, &error))?;
        if !response.status().is_success() {
            let refused = self.read_body(request, response).await?;
            return Err(match self.check_response(request, refused) {
                Err(error) => error.into(),
                Ok(_) => self
                    .error(request, VendorErrorKind::Decode("it is no answer".into()))
                    .into(),
            });
        }
        loop {
            let next = tokio::time::timeout(SILENCE, response.chunk()).await;
            let piece = next.map_err(late)?.map_err(|error| {
                self.error(request, VendorErrorKind::Transport(root_cause(&error)))
            })?;
            match piece {
                Some(piece) => take(&piece)?,
                None => return Ok(()),
            }
        }
    }
}

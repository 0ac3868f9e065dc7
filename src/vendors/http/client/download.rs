//! Streaming of bodies that are too large to hold in memory.

use std::io;
use std::time::Duration;

use reqwest::Url;

use super::{Client, redirect_target, root_cause};
use crate::http::{Request, VendorError, VendorErrorKind};

/// Maximum time without data from the server.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Error of a download.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// Request or transfer failed.
    #[error(transparent)]
    Vendor(#[from] VendorError),
    /// Writing a chunk failed.
    #[error("{0}")]
    Write(#[from] io::Error),
}

impl Client {
    /// Sends a request once and passes every chunk of the response to `write`. The total duration is not
    /// limited; a pause of 60 seconds is an error.
    ///
    /// # Errors
    /// Same as [`Client::send`]. Redirects are errors. Also returns the errors of `write`.
    pub async fn download(
        &self,
        request: &Request,
        write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), DownloadError> {
        self.stream(request, None, IDLE_TIMEOUT, write).await
    }

    /// Same as [`Client::download`], but returns the target of a redirect instead of an error. It is not followed.
    ///
    /// # Errors
    /// Same as [`Client::download`].
    pub(crate) async fn download_or_redirect(
        &self,
        request: &Request,
        write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Option<Url>, DownloadError> {
        let response = self.open(request, None, IDLE_TIMEOUT).await?;
        if let Some(target) = redirect_target(request, &response.url().clone(), &response) {
            return Ok(Some(target));
        }
        self.receive(request, response, IDLE_TIMEOUT, write).await?;
        Ok(None)
    }

    /// Sends a request with a streamed body once, and passes every chunk of the response to `write`.
    /// Sending the body, and every pause of the response, may take `idle_timeout`.
    ///
    /// # Errors
    /// Same as [`Client::download`].
    pub(crate) async fn upload(
        &self,
        request: &Request,
        body: reqwest::Body,
        idle_timeout: Duration,
        write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), DownloadError> {
        self.stream(request, Some(body), idle_timeout, write).await
    }

    async fn stream(
        &self,
        request: &Request,
        body: Option<reqwest::Body>,
        idle_timeout: Duration,
        write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), DownloadError> {
        let response = self.open(request, body, idle_timeout).await?;
        self.receive(request, response, idle_timeout, write).await
    }

    /// Sends a request once. Returns the response before its body is read.
    async fn open(
        &self,
        request: &Request,
        body: Option<reqwest::Body>,
        idle_timeout: Duration,
    ) -> Result<reqwest::Response, VendorError> {
        if let Some(cause) = &request.build_error {
            return Err(self.error(request, VendorErrorKind::Connect(cause.clone())));
        }
        let url = Url::parse(&request.url)
            .map_err(|_| self.error(request, VendorErrorKind::Connect("invalid URL".into())))?;
        let call = self.inner.http.request(request.method.clone(), url);
        let call = call.headers(request.headers.clone());
        let sent = match body {
            Some(body) => call.body(body).send(),
            None => call.send(),
        };
        let sent = tokio::time::timeout(idle_timeout, sent)
            .await
            .map_err(|_| self.error(request, VendorErrorKind::Timeout))?;
        sent.map_err(|error| self.transport_error(request, &error))
    }

    /// Passes every chunk of a response to `write`.
    async fn receive(
        &self,
        request: &Request,
        mut response: reqwest::Response,
        idle_timeout: Duration,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), DownloadError> {
        let timeout_error = |_| self.error(request, VendorErrorKind::Timeout);
        if !response.status().is_success() {
            let rejected = self.read_body(request, response).await?;
            return Err(match self.check_response(request, rejected) {
                Err(error) => error.into(),
                Ok(_) => self
                    .error(request, VendorErrorKind::Decode("unexpected status".into()))
                    .into(),
            });
        }
        loop {
            let next = tokio::time::timeout(idle_timeout, response.chunk()).await;
            let chunk = next.map_err(timeout_error)?.map_err(|error| {
                self.error(request, VendorErrorKind::Transport(root_cause(&error)))
            })?;
            match chunk {
                Some(chunk) => write(&chunk)?,
                None => return Ok(()),
            }
        }
    }
}

//! Attachments of tickets: links to the upload host of the ticketing system, and the download of their contents.
//!
//! Texts of tickets are untrusted, so they decide neither which host is asked nor how much is read: an address counts
//! only below the upload host, and a download ends at its limit, whatever the server declares.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use reqwest::Url;

use crate::http::{Client, DownloadError, Request, VendorError, VendorErrorKind};
use domain::issue::Attachment;

/// Maximum number of links that are read from the texts of a ticket.
const MAX_LINKS: usize = 50;

/// Maximum length of an address, in bytes.
const MAX_URL: usize = 2_000;

/// Maximum length of the text of a link that becomes the title, in bytes.
const MAX_LINK_TEXT: usize = 200;

/// Maximum duration of a download.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Error of downloading an attachment.
#[derive(Debug, thiserror::Error)]
pub enum AttachmentError {
    /// Request or transfer failed.
    #[error(transparent)]
    Vendor(#[from] VendorError),
    /// The content is larger than allowed.
    #[error("The attachment is larger than {max_bytes} bytes.")]
    TooLarge {
        /// Maximum size, in bytes.
        max_bytes: usize,
    },
    /// The address, or the address that it redirects to, is not one of the ticketing system's own upload hosts.
    #[error("The address of the attachment is not on the upload host of the ticketing system.")]
    ForeignAddress,
}

/// Addresses below which uploads are.
#[derive(Debug, Clone)]
pub(super) struct UploadHost {
    /// Address without a slash at its end.
    base: String,
}

impl UploadHost {
    pub(super) fn new(base: &str) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
        }
    }

    /// Returns the path of an address below this one, without a slash at its beginning. `None` for other addresses.
    pub(super) fn path_of(&self, address: &Url) -> Option<String> {
        let base = Url::parse(&self.base).ok()?;
        let has_user = !address.username().is_empty() || address.password().is_some();
        if base.origin() != address.origin() || has_user {
            return None;
        }
        let below = address
            .path()
            .strip_prefix(base.path().trim_end_matches('/'))?;
        below.strip_prefix('/').map(str::to_owned)
    }

    /// Returns the address of a path below this host.
    pub(super) fn address_of(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    /// Checks the address of an attachment before it is asked.
    ///
    /// # Errors
    /// [`AttachmentError::ForeignAddress`] if it is not an upload on this host.
    pub(super) fn address(
        &self,
        address: &str,
        is_upload: impl Fn(&str) -> bool,
    ) -> Result<Url, AttachmentError> {
        let url = Url::parse(address).map_err(|_| AttachmentError::ForeignAddress)?;
        match self.path_of(&url).is_some_and(|path| is_upload(&path)) {
            true => Ok(url),
            false => Err(AttachmentError::ForeignAddress),
        }
    }

    /// Returns the links of Markdown texts to uploads, each address once. `is_upload` decides by the path below this
    /// host.
    pub(super) fn links<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t str>,
        is_upload: impl Fn(&str) -> bool,
    ) -> Vec<Attachment> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let prefix = format!("{}/", self.base);
        for text in texts {
            let mut end = 0;
            while let Some(next) = text[end..].find(&prefix) {
                let at = end + next;
                let address = address_at(&text[at..]);
                end = at + address.len().max(prefix.len());
                if address.len() > MAX_URL {
                    continue;
                }
                let Ok(url) = self.address(address, &is_upload) else {
                    continue;
                };
                if !seen.insert(address.to_owned()) {
                    continue;
                }
                found.push(Attachment {
                    url: address.to_owned(),
                    title: link_text(&text[..at]).unwrap_or_else(|| file_name(&url)),
                    bytes: None,
                });
                if found.len() == MAX_LINKS {
                    return found;
                }
            }
        }
        found
    }
}

/// Returns the address at the beginning of a text. It ends where Markdown or HTML would end it.
fn address_at(text: &str) -> &str {
    let is_end = |c: char| c.is_whitespace() || "()<>[]\"'`\\|".contains(c);
    let end = text.find(is_end).unwrap_or(text.len());
    text[..end].trim_end_matches(['.', ',', ';', ':', '!', '?', '*', '_'])
}

/// Returns the text of the link or image whose address follows `before`.
fn link_text(before: &str) -> Option<String> {
    let before = before.strip_suffix('<').unwrap_or(before);
    let before = before.strip_suffix("](")?;
    let start = before.floor_char_boundary(before.len().saturating_sub(MAX_LINK_TEXT));
    let text = &before[start..];
    let text = text[text.rfind('[')? + 1..].trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the last part of the path of an address.
fn file_name(address: &Url) -> String {
    let mut parts = address.path_segments().into_iter().flatten();
    parts.next_back().unwrap_or_default().to_owned()
}

/// Downloaded content, or the address that a server redirects to.
pub(super) enum Download {
    Content(Vec<u8>),
    Redirect(Url),
}

/// Downloads the content of an address without following redirects.
///
/// # Errors
/// Fails if the content is larger than `max_bytes` or takes longer than a minute.
pub(super) async fn download(
    client: &Client,
    request: &Request,
    max_bytes: usize,
) -> Result<Download, AttachmentError> {
    let mut content = Vec::new();
    let write = |chunk: &[u8]| match content.len() + chunk.len() > max_bytes {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => {
            content.extend_from_slice(chunk);
            Ok(())
        }
    };
    let read = client.download_or_redirect(request, write);
    let read = tokio::time::timeout(DOWNLOAD_TIMEOUT, read).await;
    let timeout = |_| VendorError::new(client.vendor(), request.action(), VendorErrorKind::Timeout);
    match read.map_err(timeout)? {
        Ok(Some(target)) => Ok(Download::Redirect(target)),
        Ok(None) => Ok(Download::Content(content)),
        Err(DownloadError::Write(_)) => Err(AttachmentError::TooLarge { max_bytes }),
        Err(DownloadError::Vendor(error)) => Err(error.into()),
    }
}

/// Downloads content, and follows one redirect without credentials if `is_allowed` accepts its target.
///
/// # Errors
/// As [`download`]. [`AttachmentError::ForeignAddress`] if the target is not accepted or redirects again.
pub(super) async fn download_redirected(
    client: &Client,
    request: &Request,
    max_bytes: usize,
    is_allowed: impl Fn(&Url) -> bool,
) -> Result<Vec<u8>, AttachmentError> {
    let target = match download(client, request, max_bytes).await? {
        Download::Content(content) => return Ok(content),
        Download::Redirect(target) => target,
    };
    let has_user = !target.username().is_empty() || target.password().is_some();
    if has_user || !is_allowed(&target) {
        return Err(AttachmentError::ForeignAddress);
    }
    let second = Request::get(request.action(), target.as_str());
    // Limits of the media host say nothing about those of the API.
    match download(client, &second.account("media"), max_bytes).await? {
        Download::Content(content) => Ok(content),
        Download::Redirect(_) => Err(AttachmentError::ForeignAddress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(text: &str) -> Vec<(String, String)> {
        let host = UploadHost::new("https://uploads.acme.example/");
        let links = host.links([text], |path| !path.is_empty());
        links
            .into_iter()
            .map(|link| (link.title, link.url))
            .collect()
    }

    #[test]
    fn finds_links_images_and_bare_addresses() {
        for (text, title, path) in [
            (
                "see ![shot.png](https://uploads.acme.example/a/1)",
                "shot.png",
                "a/1",
            ),
            ("[spec](<https://uploads.acme.example/a/2>)", "spec", "a/2"),
            (
                "[](https://uploads.acme.example/a/3.pdf?x=1)",
                "3.pdf",
                "a/3.pdf?x=1",
            ),
            (
                "<img alt=\"x\" src=\"https://uploads.acme.example/a/4\" />",
                "4",
                "a/4",
            ),
            (
                "see https://uploads.acme.example/a/notes.md.",
                "notes.md",
                "a/notes.md",
            ),
            ("[a[b](https://uploads.acme.example/5)", "b", "5"),
        ] {
            let url = format!("https://uploads.acme.example/{path}");
            assert_eq!(titles(text), [(title.to_owned(), url)], "{text}");
        }
    }

    #[test]
    fn no_other_address_counts() {
        for text in [
            "![a](https://uploads.acme.example.evil.example/a)",
            "![a](https://evil.example/?https://uploads.acme.example)",
            "![a](http://uploads.acme.example/a)",
            "![a](https://uploads.acme.example@evil.example/a)",
            "![a](https://uploads.acme.example/)",
            "https://uploads.acme.example",
        ] {
            assert_eq!(titles(text), [], "{text}");
        }
        let based = UploadHost::new("http://127.0.0.1:7/up");
        let path = |text: &str| based.path_of(&Url::parse(text).unwrap());
        assert_eq!(path("http://127.0.0.1:7/up/a/b"), Some("a/b".to_owned()));
        for other in [
            "http://127.0.0.1:7/other",
            "http://127.0.0.1:7/up/../other",
            "http://127.0.0.1:7/upper/a",
            "http://127.0.0.1:8/up/a",
            "http://me@127.0.0.1:7/up/a",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
    }

    #[test]
    fn hostile_texts_are_read_once_and_yield_a_bounded_list() {
        let many: String = (0..10_000)
            .map(|at| format!("[{at}](https://uploads.acme.example/{at}) "))
            .collect();
        assert_eq!(titles(&many).len(), MAX_LINKS);
        let brackets = "](https://uploads.acme.example/x".repeat(100_000);
        assert!(titles(&brackets).len() <= MAX_LINKS);
        let repeated = "![ä](https://uploads.acme.example/x)".repeat(1_000);
        assert_eq!(titles(&repeated).len(), 1);
        let long = format!("https://uploads.acme.example/{}", "x".repeat(1 << 20));
        assert_eq!(titles(&long), []);
    }
}

//! Files that people attach to issues, and the storage to which GitHub redirects for them.

use super::{FakeGitHub, GitHubInner};
use crate::http::{HttpRequest, HttpResponse};
use crate::uploads::FakeUpload;

impl FakeGitHub {
    /// Adds an upload of a person. Returns its address, which ends with the name.
    pub fn upload(&self, name: &str, upload: FakeUpload) -> String {
        let path = self.inner.uploads.add(name, upload);
        format!("{}/user-attachments/files/{path}", self.inner.server_url)
    }

    /// Adds a file to the storage. Returns its address, to which an upload may redirect.
    pub fn add_to_storage(&self, name: &str, upload: FakeUpload) -> String {
        let path = self.inner.uploads.add(name, upload);
        format!("{}/_storage/{path}", self.inner.server_url)
    }

    /// Returns the requests of the uploads with this name, oldest first: whether each had credentials.
    pub fn upload_requests(&self, name: &str) -> Vec<bool> {
        self.inner.uploads.requests_of_name(name)
    }
}

impl GitHubInner {
    /// Serves uploads, to those who have a token, and the storage, which refuses tokens. `None` for other paths.
    pub(super) fn serve_upload(
        &self,
        request: &HttpRequest,
        path: &[&str],
    ) -> Option<HttpResponse> {
        let header = request.header("authorization");
        let (path, is_authorized) = match path {
            ["user-attachments", "files" | "assets", path @ ..] => {
                let token = header.and_then(|header| header.strip_prefix("Bearer "));
                (
                    path,
                    token.is_some_and(|token| self.find_token(token).is_some()),
                )
            }
            ["_storage", path @ ..] => (path, header.is_none()),
            _ => return None,
        };
        Some(
            self.uploads
                .respond(&path.join("/"), request, is_authorized),
        )
    }
}

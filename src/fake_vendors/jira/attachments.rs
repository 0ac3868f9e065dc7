//! Files on issues: the attachment field, their contents, and the media host that serves them.

use serde_json::{Value, json};

use super::model::{Attachment, Model};
use super::{FakeJira, JiraTicket, error_response};
use crate::http::{HttpRequest, HttpResponse};
use crate::uploads::FakeUpload;

impl FakeJira {
    /// Returns the content of an attachment: without `redirect=false` only where it is.
    pub(super) fn attachment_content(&self, request: &HttpRequest, id: &str) -> HttpResponse {
        let find = |model: &Model| {
            let mut rows = model.attachments.iter();
            let row = rows.find(|row| row.id.to_string() == id)?;
            Some(row.path.clone())
        };
        let Some(path) = self.0.model.read(find) else {
            return error_response(404, "The attachment was not found.");
        };
        match request.query_param("redirect").as_deref() {
            Some("false") => self.0.uploads.respond(&path, request, true),
            _ => {
                let target = format!("{}/media/{path}", self.0.base_url);
                HttpResponse::empty(303).header("location", target)
            }
        }
    }

    /// Serves the media host, which refuses credentials of the site.
    pub(super) fn media(&self, request: &HttpRequest, path: &str) -> HttpResponse {
        let is_anonymous = request.header("authorization").is_none();
        self.0.uploads.respond(path, request, is_anonymous)
    }

    /// Adds a file to the media host. Returns its address, to which an attachment may redirect.
    pub fn add_media(&self, name: &str, upload: FakeUpload) -> String {
        format!(
            "{}/media/{}",
            self.0.base_url,
            self.0.uploads.add(name, upload)
        )
    }

    /// Returns the requests of the attachments and media files with this name, oldest first: whether each had
    /// credentials.
    pub fn upload_requests(&self, name: &str) -> Vec<bool> {
        self.0.uploads.requests_of_name(name)
    }
}

impl JiraTicket {
    /// Attaches a file, with the size that Jira shows.
    pub fn attach(self, name: &str, size: u64, upload: FakeUpload) -> Self {
        let path = self.jira.0.uploads.add(name, upload);
        self.edit(|model, at| {
            let id = model.next_id();
            model.attachments.push(Attachment {
                id,
                issue: at,
                filename: name.to_owned(),
                size,
                path,
            });
        })
    }
}

/// Returns the attachment field of an issue.
pub(super) fn attachments_json(model: &Model, issue: usize, base_url: &str) -> Value {
    let rows = model.attachments.iter().filter(|row| row.issue == issue);
    rows.map(|row| {
        json!({
            "id": row.id.to_string(), "filename": row.filename, "size": row.size,
            "content": format!("{base_url}/rest/api/3/attachment/content/{}", row.id),
        })
    })
    .collect()
}

//! Fake Jira Cloud: REST API v3 over a small model of projects, issues, select fields, links and
//! comments.
//!
//! Searches read an index that a test can make stale, like Jira's own index. The methods of
//! [`JiraTicket`] are what people do in Jira.

pub(crate) mod adf;
mod attachments;
mod comments_and_links;
mod jql;
mod jql_lexer;
mod metadata;
mod model;
mod people;
mod rest;
mod ticket;
mod webhooks;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};

pub use self::model::{FieldHistoryEntry, SelectFieldSnapshot};
pub use self::ticket::{JiraCommentSnapshot, JiraTicket, JiraTicketSnapshot};

use self::model::{ChangeSource, Model};
use crate::author::FakeAuthor;
use crate::clock;
use crate::html_page::receive_comment;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::{PersistedModel, lock};
use crate::uploads::Uploads;
use crate::webhook_sender::{WebhookSender, WebhookTarget};

/// Requests allowed per minute, as reported in the rate-limit headers.
const REQUESTS_PER_MINUTE: u64 = 6_000;

/// Fake Jira. Clones share their state.
#[derive(Clone)]
pub struct FakeJira(Arc<Inner>);

struct Inner {
    model: PersistedModel<Model>,
    email: String,
    token: String,
    behavior: Mutex<Behavior>,
    base_url: String,
    webhook_target: Mutex<Option<WebhookTarget>>,
    webhook_sender: WebhookSender,
    uploads: Uploads,
}

/// Behavior that tests can change.
#[derive(Clone, Copy)]
struct Behavior {
    index_lags: bool,
    is_admin: bool,
    page_max: usize,
}

impl FakeJira {
    pub(crate) fn open(dir: &Path, base: String, email: &str, token: &str) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Inner {
            model: PersistedModel::open(dir.join("jira.json"))?,
            email: email.to_owned(),
            token: token.to_owned(),
            behavior: Mutex::new(Behavior {
                index_lags: false,
                is_admin: false,
                page_max: 100,
            }),
            base_url: base,
            webhook_target: Mutex::default(),
            webhook_sender: WebhookSender::start(),
            uploads: Uploads::default(),
        })))
    }

    /// Returns the email address of the API token's owner.
    pub fn email(&self) -> &str {
        &self.0.email
    }

    /// Returns the accepted API token, for basic authentication and as a bearer token.
    pub fn api_token(&self) -> &str {
        &self.0.token
    }

    /// Makes the search index stale: searches no longer see changes made through the API, except for
    /// issues listed in `reconcileIssues`.
    pub fn enable_index_lag(&self) {
        lock(&self.0.behavior).index_lags = true;
    }

    /// Removes all custom fields with their values, as on a site that was never set up.
    pub fn remove_custom_fields(&self) {
        self.0.model.update(|model| {
            model.fields.clear();
            for issue in &mut model.issues {
                issue.fields.clear();
                issue.indexed_fields.clear();
            }
        });
    }

    /// Takes the permission to edit issues from a member.
    pub fn make_reader(&self, name: &str) {
        let account = people::account_id(&FakeAuthor::person(name));
        self.0
            .model
            .update_and_flush(|model| model.readers.insert(account));
    }

    /// Returns all select fields.
    pub fn select_fields(&self) -> Vec<SelectFieldSnapshot> {
        self.0.model.read(|model| {
            let fields = model.fields.iter().map(|field| SelectFieldSnapshot {
                name: field.name.clone(),
                options: field.options.iter().map(|one| one.value.clone()).collect(),
                is_on_default_screen: field.is_on_default_screen,
            });
            fields.collect()
        })
    }

    /// Gives the API token's owner administrator permissions.
    pub fn grant_admin(&self) {
        lock(&self.0.behavior).is_admin = true;
    }

    pub(crate) fn keep_in_memory(&self) {
        self.0.model.keep_in_memory();
    }

    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        self.0.model.flush()
    }

    fn behavior(&self) -> Behavior {
        *lock(&self.0.behavior)
    }

    fn api_change_source(&self) -> ChangeSource {
        if self.behavior().index_lags {
            ChangeSource::ApiWithIndexLag
        } else {
            ChangeSource::Api
        }
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> HttpResponse {
        let segments = request.segments();
        let mut path: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (request.method.as_str(), &path[..]) {
            ("GET", ["browse", key]) => return self.ticket_page(key),
            ("POST", ["browse", key]) => {
                let ticket = self.issue(key);
                let ticket = ticket.snapshot().map(|_| ticket);
                return receive_comment(
                    request,
                    ticket.map(|ticket| move |text: &str| drop(ticket.comment(text))),
                );
            }
            _ => {}
        }
        if let ("GET", ["media", rest @ ..]) = (request.method.as_str(), &path[..]) {
            return self.media(request, &rest.join("/"));
        }
        // Gateway for bearer tokens.
        if let ["ex", "jira", _, rest @ ..] = &path[..] {
            path = rest.to_vec();
        }
        let ["rest", "api", "3", path @ ..] = &path[..] else {
            return HttpResponse::text(404, "Not Found");
        };
        if !self.is_authenticated(request) {
            return HttpResponse::text(
                401,
                "Client must be authenticated to access this resource.",
            );
        }
        let reply = self.rest(request, path);
        self.send_webhooks();
        reply
            .header("x-ratelimit-limit", REQUESTS_PER_MINUTE)
            .header("x-ratelimit-remaining", REQUESTS_PER_MINUTE - 1)
            .header(
                "x-ratelimit-reset",
                clock::iso_seconds(clock::now_ms() + 60_000),
            )
    }

    fn is_authenticated(&self, request: &HttpRequest) -> bool {
        let credential = request.header("authorization").unwrap_or_default();
        let pair = format!("{}:{}", self.0.email, self.0.token);
        credential == format!("Basic {}", BASE64.encode(pair.as_bytes()))
            || credential == format!("Bearer {}", self.0.token)
    }

    /// Returns the response to a request beyond the rate limit.
    pub(crate) fn rate_limited_response(&self, left: Duration) -> HttpResponse {
        let millis = i64::try_from(left.as_millis()).unwrap_or(60_000);
        HttpResponse::json(
            429,
            &json!({"errorMessages": ["Rate limit exceeded."], "errors": {}}),
        )
        .header("retry-after", left.as_secs_f64().ceil())
        .header("x-ratelimit-limit", REQUESTS_PER_MINUTE)
        .header("x-ratelimit-remaining", 0)
        .header(
            "x-ratelimit-reset",
            clock::iso_seconds(clock::now_ms() + millis),
        )
        .header("ratelimit-reason", "jira-burst-based")
    }

    fn rest(&self, request: &HttpRequest, path: &[&str]) -> HttpResponse {
        let Some(body) = request.json() else {
            return error_response(
                400,
                "There was an error parsing JSON. Check that your request body is valid.",
            );
        };
        let store = &self.0.model;
        match (request.method.as_str(), path) {
            ("GET", ["myself"]) => self.myself(),
            ("GET", ["serverInfo"]) => HttpResponse::json(
                200,
                &json!({"baseUrl": self.0.base_url, "version": "1001.0.0-SNAPSHOT", "deploymentType": "Cloud"}),
            ),
            ("POST", ["search", "jql"]) => self.search(&body),
            ("POST", ["issue", "bulkfetch"]) => self.bulk_fetch(&body),
            ("POST", ["jql", "parse"]) => self.parse_queries(request, &body),
            ("GET", ["field"]) => store.read(metadata::list_fields),
            ("POST", ["field"]) => {
                self.update_as_admin(|model| metadata::create_field(model, &body))
            }
            ("POST", ["screens", "addToDefault", id]) => {
                self.update_as_admin(|model| metadata::add_to_default_screen(model, id))
            }
            ("POST", ["field", id, "context", _, "option"]) => {
                self.update_as_admin(|model| metadata::create_options(model, id, &body))
            }
            ("GET", ["field", id, "context"]) => {
                self.read_as_admin(|model| metadata::list_field_contexts(model, id))
            }
            ("GET", ["field", id, "context", _, "option"]) => {
                self.read_as_admin(|model| metadata::list_field_options(model, id))
            }
            ("GET", ["project", "search"]) => store.read(metadata::list_projects),
            ("GET", ["issue", "createmeta", project, "issuetypes"]) => {
                store.read(|model| metadata::list_issue_types(model, project))
            }
            ("GET", ["issue", "createmeta", project, "issuetypes", _]) => {
                store.read(|model| metadata::create_metadata(model, project))
            }
            ("GET", ["user", "permission", "search"]) => {
                store.read(|model| people::search_by_permission(model, request))
            }
            ("GET", ["attachment", "content", id]) => self.attachment_content(request, id),
            ("POST", ["issueLink"]) => {
                store.update(|model| comments_and_links::create_issue_link(model, &body))
            }
            (_, ["issue", key, rest @ ..]) => self.handle_issue_request(request, key, rest, &body),
            _ => HttpResponse::text(404, "Not Found"),
        }
    }

    fn read_as_admin(&self, read: impl FnOnce(&Model) -> HttpResponse) -> HttpResponse {
        match self.behavior().is_admin {
            true => self.0.model.read(read),
            false => not_admin_response(),
        }
    }

    fn update_as_admin(&self, update: impl FnOnce(&mut Model) -> HttpResponse) -> HttpResponse {
        match self.behavior().is_admin {
            true => self.0.model.update(update),
            false => not_admin_response(),
        }
    }

    fn myself(&self) -> HttpResponse {
        HttpResponse::json(
            200,
            &json!({"accountId": "sandbox", "displayName": "Agent Implement", "emailAddress": self.0.email, "active": true}),
        )
    }
}

fn not_admin_response() -> HttpResponse {
    error_response(403, "Only Jira administrators can access this resource.")
}

/// Returns an error response in Jira's format.
fn error_response(status: u16, message: &str) -> HttpResponse {
    HttpResponse::json(status, &json!({"errorMessages": [message], "errors": {}}))
}

/// Returns an error response about one field.
fn field_error_response(field: &str, message: &str) -> HttpResponse {
    HttpResponse::json(
        400,
        &json!({"errorMessages": [], "errors": {field: message}}),
    )
}

/// Formats a timestamp as Jira does: the offset has no colon.
fn jira_timestamp(ms: i64) -> Value {
    Value::String(clock::iso(ms).replace('Z', "+0000"))
}

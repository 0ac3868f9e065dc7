//! The second ticketing vendor: REST v3 over a small model of projects, issues, select fields,
//! links and comments.
//!
//! Search answers from an index that can be made to lag behind, as the vendor's does. In-process
//! verbs (`JiraTicket`) are what people do in the vendor's app.

mod adf;
mod comments_and_links;
mod jql;
mod jql_lexer;
mod metadata;
mod model;
mod rest;
mod ticket;
mod webhooks;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};

pub use self::model::FieldHistoryEntry;
pub use self::ticket::{JiraCommentSnapshot, JiraTicket, JiraTicketSnapshot};

use self::model::{ChangeSource, Model};
use crate::clock;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::{PersistedModel, lock};
use crate::webhook_sender::TicketWebhookSender;

/// How many requests a minute are allowed, as the headers tell.
const BURST: u64 = 6_000;

/// The stand-in vendor. Clones are the same vendor.
#[derive(Clone)]
pub struct FakeJira(Arc<Inner>);

struct Inner {
    model: PersistedModel<Model>,
    email: String,
    token: String,
    ways: Mutex<Behavior>,
    base_url: String,
    webhook_sender: TicketWebhookSender,
}

/// How the vendor behaves at the moment.
#[derive(Clone, Copy)]
struct Behavior {
    index_lags: bool,
    we_are_admin: bool,
    page_max: usize,
}

impl FakeJira {
    pub(crate) fn open(dir: &Path, base: String, email: &str, token: &str) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Inner {
            model: PersistedModel::open(dir.join("jira.json"))?,
            email: email.to_owned(),
            token: token.to_owned(),
            ways: Mutex::new(Behavior {
                index_lags: false,
                we_are_admin: false,
                page_max: 100,
            }),
            base_url: base,
            webhook_sender: TicketWebhookSender::start(),
        })))
    }

    /// Whose token it is.
    pub fn email(&self) -> &str {
        &self.0.email
    }

    /// The one API token that is accepted, for its owner and as a bearer.
    pub fn api_token(&self) -> &str {
        &self.0.token
    }

    /// From now on searches do not see what the API writes, unless they ask for the issue.
    pub fn enable_index_lag(&self) {
        lock(&self.0.ways).index_lags = true;
    }

    /// Gives the API's user the right to administer.
    pub fn grant_admin(&self) {
        lock(&self.0.ways).we_are_admin = true;
    }

    /// How many issues a page of a search holds at most.
    pub fn set_page_max(&self, issues: usize) {
        lock(&self.0.ways).page_max = issues.max(1);
    }

    pub(crate) fn keep_in_memory(&self) {
        self.0.model.keep_in_memory();
    }

    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        self.0.model.flush()
    }

    fn behavior(&self) -> Behavior {
        *lock(&self.0.ways)
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
        if let ("GET", ["browse", key]) = (request.method.as_str(), &path[..]) {
            return self.ticket_page(key);
        }
        // The gateway for bearer tokens.
        if let ["ex", "jira", _, rest @ ..] = &path[..] {
            path = rest.to_vec();
        }
        let ["rest", "api", "3", path @ ..] = &path[..] else {
            return HttpResponse::text(404, "Not Found");
        };
        if !self.knows(request) {
            return HttpResponse::text(
                401,
                "Client must be authenticated to access this resource.",
            );
        }
        let reply = self.rest(request, path);
        self.send_webhooks();
        reply
            .header("x-ratelimit-limit", BURST)
            .header("x-ratelimit-remaining", BURST - 1)
            .header(
                "x-ratelimit-reset",
                clock::iso_seconds(clock::now_ms() + 60_000),
            )
    }

    fn knows(&self, request: &HttpRequest) -> bool {
        let given = request.header("authorization").unwrap_or_default();
        let pair = format!("{}:{}", self.0.email, self.0.token);
        given == format!("Basic {}", BASE64.encode(pair.as_bytes()))
            || given == format!("Bearer {}", self.0.token)
    }

    /// The refusal of a request beyond the quota.
    pub(crate) fn rate_limited_response(&self, left: Duration) -> HttpResponse {
        let millis = i64::try_from(left.as_millis()).unwrap_or(60_000);
        HttpResponse::json(
            429,
            &json!({"errorMessages": ["Rate limit exceeded."], "errors": {}}),
        )
        .header("retry-after", left.as_secs_f64().ceil())
        .header("x-ratelimit-limit", BURST)
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
        let shelf = &self.0.model;
        match (request.method.as_str(), path) {
            ("GET", ["myself"]) => self.myself(),
            ("GET", ["serverInfo"]) => HttpResponse::json(
                200,
                &json!({"baseUrl": self.0.base_url, "version": "1001.0.0-SNAPSHOT", "deploymentType": "Cloud"}),
            ),
            ("POST", ["search", "jql"]) => self.search(&body),
            ("POST", ["issue", "bulkfetch"]) => self.bulk_fetch(&body),
            ("POST", ["jql", "parse"]) => self.parse_queries(request, &body),
            ("GET", ["field"]) => shelf.read(metadata::list_fields),
            ("GET", ["field", id, "context"]) => {
                self.as_admin(|model| metadata::list_field_contexts(model, id))
            }
            ("GET", ["field", id, "context", _, "option"]) => {
                self.as_admin(|model| metadata::list_field_options(model, id))
            }
            ("GET", ["project", "search"]) => shelf.read(metadata::list_projects),
            ("GET", ["issue", "createmeta", project, "issuetypes"]) => {
                shelf.read(|model| metadata::list_issue_types(model, project))
            }
            ("GET", ["issue", "createmeta", project, "issuetypes", _]) => {
                shelf.read(|model| metadata::create_metadata(model, project))
            }
            ("POST", ["issueLink"]) => {
                shelf.update(|model| comments_and_links::create_issue_link(model, &body))
            }
            (_, ["issue", key, rest @ ..]) => self.handle_issue_request(request, key, rest, &body),
            _ => HttpResponse::text(404, "Not Found"),
        }
    }

    fn as_admin(&self, look: impl FnOnce(&Model) -> HttpResponse) -> HttpResponse {
        if self.behavior().we_are_admin {
            self.0.model.read(look)
        } else {
            error_response(403, "Only Jira administrators can access this resource.")
        }
    }

    fn myself(&self) -> HttpResponse {
        HttpResponse::json(
            200,
            &json!({"accountId": "sandbox", "displayName": "Agent Implement", "emailAddress": self.0.email, "active": true}),
        )
    }
}

/// An error as the vendor words it.
fn error_response(status: u16, message: &str) -> HttpResponse {
    HttpResponse::json(status, &json!({"errorMessages": [message], "errors": {}}))
}

/// An error about one field.
fn field_error_response(field: &str, message: &str) -> HttpResponse {
    HttpResponse::json(
        400,
        &json!({"errorMessages": [], "errors": {field: message}}),
    )
}

/// A moment as this vendor writes it: an offset without a colon.
fn jira_timestamp(ms: i64) -> Value {
    Value::String(clock::iso(ms).replace('Z', "+0000"))
}

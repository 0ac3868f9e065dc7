//! The second ticketing vendor: REST v3 over a small model of projects, issues, select fields,
//! links and comments.
//!
//! Search answers from an index that can be made to lag behind, as the vendor's does. In-process
//! verbs (`JiraTicket`) are what people do in the vendor's app.

mod document;
mod hooks;
mod jql;
mod meta;
mod model;
mod rest;
mod talk;
mod ticket;
mod tokens;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};

pub use self::model::FieldChange;
pub use self::ticket::{JiraCommentSnapshot, JiraTicket, JiraTicketSnapshot};

use self::model::{Model, Writer};
use crate::clock;
use crate::http::{Reply, Request};
use crate::post::TicketHook;
use crate::state::{Shelf, lock};

/// How many requests a minute are allowed, as the headers tell.
const BURST: u64 = 6_000;

/// The stand-in vendor. Clones are the same vendor.
#[derive(Clone)]
pub struct Jira(Arc<Inner>);

struct Inner {
    shelf: Shelf<Model>,
    email: String,
    token: String,
    ways: Mutex<Ways>,
    base: String,
    hook: TicketHook,
}

/// How the vendor behaves at the moment.
#[derive(Clone, Copy)]
struct Ways {
    index_lags: bool,
    we_are_admin: bool,
    page_max: usize,
}

impl Jira {
    pub(crate) fn open(dir: &Path, base: String, email: &str, token: &str) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Inner {
            shelf: Shelf::open(dir.join("jira.json"))?,
            email: email.to_owned(),
            token: token.to_owned(),
            ways: Mutex::new(Ways {
                index_lags: false,
                we_are_admin: false,
                page_max: 100,
            }),
            base,
            hook: TicketHook::start(),
        })))
    }

    /// Whose token it is.
    pub fn email(&self) -> &str {
        &self.0.email
    }

    /// The one API token that is accepted, for its owner and as a bearer.
    pub fn token(&self) -> &str {
        &self.0.token
    }

    /// From now on searches do not see what the API writes, unless they ask for the issue.
    pub fn let_index_lag(&self) {
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
        self.0.shelf.keep_in_memory();
    }

    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        self.0.shelf.settle()
    }

    fn ways(&self) -> Ways {
        *lock(&self.0.ways)
    }

    fn api_writer(&self) -> Writer {
        if self.ways().index_lags {
            Writer::LaggingApi
        } else {
            Writer::Api
        }
    }

    pub(crate) fn answer(&self, request: &Request) -> Reply {
        let segments = request.segments();
        let mut path: Vec<&str> = segments.iter().map(String::as_str).collect();
        if let ("GET", ["browse", key]) = (request.method.as_str(), &path[..]) {
            return self.page(key);
        }
        // The gateway for bearer tokens.
        if let ["ex", "jira", _, rest @ ..] = &path[..] {
            path = rest.to_vec();
        }
        let ["rest", "api", "3", path @ ..] = &path[..] else {
            return Reply::text(404, "Not Found");
        };
        if !self.knows(request) {
            return Reply::text(401, "Client must be authenticated to access this resource.");
        }
        let reply = self.rest(request, path);
        self.tell();
        reply
            .header("x-ratelimit-limit", BURST)
            .header("x-ratelimit-remaining", BURST - 1)
            .header(
                "x-ratelimit-reset",
                clock::iso_seconds(clock::now_ms() + 60_000),
            )
    }

    fn knows(&self, request: &Request) -> bool {
        let given = request.header("authorization").unwrap_or_default();
        let pair = format!("{}:{}", self.0.email, self.0.token);
        given == format!("Basic {}", BASE64.encode(pair.as_bytes()))
            || given == format!("Bearer {}", self.0.token)
    }

    /// The refusal of a request beyond the quota.
    pub(crate) fn rate_limited(&self, left: Duration) -> Reply {
        let millis = i64::try_from(left.as_millis()).unwrap_or(60_000);
        Reply::json(
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

    fn rest(&self, request: &Request, path: &[&str]) -> Reply {
        let Some(body) = request.json() else {
            return refusal(
                400,
                "There was an error parsing JSON. Check that your request body is valid.",
            );
        };
        let shelf = &self.0.shelf;
        match (request.method.as_str(), path) {
            ("GET", ["myself"]) => self.myself(),
            ("GET", ["serverInfo"]) => Reply::json(
                200,
                &json!({"baseUrl": self.0.base, "version": "1001.0.0-SNAPSHOT", "deploymentType": "Cloud"}),
            ),
            ("POST", ["search", "jql"]) => self.search(&body),
            ("POST", ["issue", "bulkfetch"]) => self.bulk_fetch(&body),
            ("POST", ["jql", "parse"]) => self.parse(request, &body),
            ("GET", ["field"]) => shelf.read(meta::fields),
            ("GET", ["field", id, "context"]) => self.as_admin(|model| meta::contexts(model, id)),
            ("GET", ["field", id, "context", _, "option"]) => {
                self.as_admin(|model| meta::options(model, id))
            }
            ("GET", ["project", "search"]) => shelf.read(meta::projects),
            ("GET", ["issue", "createmeta", project, "issuetypes"]) => {
                shelf.read(|model| meta::issue_types(model, project))
            }
            ("GET", ["issue", "createmeta", project, "issuetypes", _]) => {
                shelf.read(|model| meta::form(model, project))
            }
            ("POST", ["issueLink"]) => shelf.change(|model| talk::link(model, &body)),
            (_, ["issue", key, rest @ ..]) => self.issue_request(request, key, rest, &body),
            _ => Reply::text(404, "Not Found"),
        }
    }

    fn as_admin(&self, look: impl FnOnce(&Model) -> Reply) -> Reply {
        if self.ways().we_are_admin {
            self.0.shelf.read(look)
        } else {
            refusal(403, "Only Jira administrators can access this resource.")
        }
    }

    fn myself(&self) -> Reply {
        Reply::json(
            200,
            &json!({"accountId": "sandbox", "displayName": "Agent Implement", "emailAddress": self.0.email, "active": true}),
        )
    }
}

/// An error as the vendor words it.
fn refusal(status: u16, message: &str) -> Reply {
    Reply::json(status, &json!({"errorMessages": [message], "errors": {}}))
}

/// An error about one field.
fn field_refusal(field: &str, message: &str) -> Reply {
    Reply::json(
        400,
        &json!({"errorMessages": [], "errors": {field: message}}),
    )
}

/// A moment as this vendor writes it: an offset without a colon.
fn moment(ms: i64) -> Value {
    Value::String(clock::iso(ms).replace('Z', "+0000"))
}

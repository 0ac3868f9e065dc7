//! Fake Linear: GraphQL API over a small model of teams, issues, labels and comments.
//!
//! Queries are validated against a subset of Linear's published schema (`schema.graphql`). Complexity
//! points and rate limits follow Linear's rules. The methods of [`LinearTicket`] are what people do
//! in Linear.

mod accounts;
mod filter;
mod model;
mod mutations;
mod resolvers;
mod ticket;
mod webhooks;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};

pub use self::model::LabelHistoryEntry;
pub use self::ticket::{
    LinearCommentSnapshot, LinearLinkSnapshot, LinearTicket, LinearTicketSnapshot,
};

use self::model::Model;
use self::resolvers::{ModelView, Node};
use crate::author::FakeAuthor;
use crate::clock;
use crate::graphql::{FieldError, Operation, QueryPlan, Resolved, Resolver, Schema, execute};
use crate::html_page::receive_comment;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::{PersistedModel, lock};
use crate::uploads::{FakeUpload, Uploads};
use crate::webhook_sender::{WebhookSender, WebhookTarget};

const HOUR_MS: i64 = 3_600_000;

/// Maximum complexity of one query, in points.
const MAX_COMPLEXITY: u64 = 10_000;

/// Access token that an OAuth client gets.
const OAUTH_TOKEN: &str = "lin_oauth_sandbox";

/// Fake Linear. Clones share their state.
#[derive(Clone)]
pub struct FakeLinear(Arc<Inner>);

struct Inner {
    model: PersistedModel<Model>,
    schema: Schema,
    key: Mutex<String>,
    quota: Mutex<Quota>,
    base_url: String,
    webhook_target: Mutex<Option<WebhookTarget>>,
    webhook_sender: WebhookSender,
    uploads: Uploads,
    uploads_url: String,
}

/// Complexity points per hour. Ten times Linear's, because demos and tests poll every second.
const POINTS_PER_HOUR: u64 = 30_000_000;

/// Hourly quotas of requests and of complexity points, shared by all keys of one user.
struct Quota {
    limit: u64,
    used: u64,
    points_limit: u64,
    points_used: u64,
    reset: i64,
}

impl Quota {
    fn new(limit: u64, points_limit: u64) -> Self {
        Self {
            limit,
            used: 0,
            points_limit,
            points_used: 0,
            reset: 0,
        }
    }
}

impl FakeLinear {
    pub(crate) fn open(
        dir: &Path,
        base: String,
        uploads_url: String,
        key: &str,
    ) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Inner {
            model: PersistedModel::open(dir.join("linear.json"))?,
            schema: Schema::parse(include_str!("schema.graphql"))?,
            key: Mutex::new(key.to_owned()),
            quota: Mutex::new(Quota::new(5_000, POINTS_PER_HOUR)),
            base_url: base,
            webhook_target: Mutex::default(),
            webhook_sender: WebhookSender::start(),
            uploads: Uploads::default(),
            uploads_url,
        })))
    }

    /// Returns the accepted API key.
    pub fn api_key(&self) -> String {
        lock(&self.0.key).clone()
    }

    /// Replaces the accepted API key.
    pub fn set_api_key(&self, key: &str) {
        *lock(&self.0.key) = key.to_owned();
    }

    /// Sets the number of requests allowed per hour, lifts the limit of complexity points, and restarts the hour.
    pub fn set_quota(&self, requests_per_hour: u64) {
        *lock(&self.0.quota) = Quota::new(requests_per_hour, u64::MAX);
    }

    /// Sets the number of complexity points allowed per hour and of those that are left, and restarts the hour.
    pub fn set_points(&self, points_per_hour: u64, left: u64) {
        let mut quota = lock(&self.0.quota);
        *quota = Quota::new(quota.limit, points_per_hour);
        quota.points_used = points_per_hour - left;
        quota.reset = clock::now_ms() + HOUR_MS;
    }

    pub(crate) fn keep_in_memory(&self) {
        self.0.model.keep_in_memory();
    }

    pub(crate) fn flush(&self) -> anyhow::Result<()> {
        self.0.model.flush()
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> HttpResponse {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/graphql") => {
                let reply = self.graphql(request);
                self.send_webhooks();
                reply
            }
            ("POST", "/oauth/token") => HttpResponse::json(
                200,
                &json!({"access_token": OAUTH_TOKEN, "token_type": "Bearer", "expires_in": 2_592_000, "scope": "read write"}),
            ),
            (method, path) => match (method, path.strip_prefix("/issue/")) {
                ("GET", Some(rest)) => self.ticket_page(identifier_in(rest)),
                ("POST", Some(rest)) => {
                    let ticket = self.issue(identifier_in(rest));
                    let ticket = ticket.snapshot().map(|_| ticket);
                    receive_comment(
                        request,
                        ticket.map(|ticket| move |text: &str| drop(ticket.comment(text))),
                    )
                }
                _ => HttpResponse::text(404, "Not Found"),
            },
        }
    }

    /// Adds an upload of a person. Returns its address, which ends with the name.
    pub fn upload(&self, name: &str, upload: FakeUpload) -> String {
        format!(
            "{}/{}",
            self.0.uploads_url,
            self.0.uploads.add(name, upload)
        )
    }

    /// Returns the requests of an upload, oldest first: whether each had credentials.
    pub fn upload_requests(&self, url: &str) -> Vec<bool> {
        let path = url.strip_prefix(&self.0.uploads_url).unwrap_or(url);
        self.0.uploads.requests(path.trim_start_matches('/'))
    }

    /// Serves the upload host.
    pub(crate) fn handle_upload(&self, request: &HttpRequest) -> HttpResponse {
        let path = request.path.trim_start_matches('/');
        let is_authorized = self.authentication_error(request).is_none();
        self.0.uploads.respond(path, request, is_authorized)
    }

    /// Returns the response to a request beyond the quota.
    pub(crate) fn rate_limited_response(&self, left: Duration) -> HttpResponse {
        let reset = clock::now_ms() + i64::try_from(left.as_millis()).unwrap_or(HOUR_MS);
        let limit = lock(&self.0.quota).limit;
        let error = json!({
            "message": "Rate limit exceeded",
            "extensions": {
                "type": "ratelimited", "code": "RATELIMITED", "statusCode": 429, "userError": true,
                "userPresentableMessage": "Rate limit exceeded. Only so many requests are allowed per hour.",
            },
        });
        quota_headers(
            HttpResponse::json(400, &json!({"errors": [error]})),
            limit,
            0,
            reset,
        )
    }

    fn graphql(&self, request: &HttpRequest) -> HttpResponse {
        if let Some(response) = self.authentication_error(request) {
            return response;
        }
        let (limit, remaining, reset) = match self.take_quota() {
            Ok(quota) => quota,
            Err(left) => return self.rate_limited_response(left),
        };
        let (reply, complexity) = self.evaluate(request);
        let (points_limit, points_left) = {
            let quota = lock(&self.0.quota);
            let left = quota.points_limit - quota.points_used;
            (quota.points_limit, left)
        };
        quota_headers(reply, limit, remaining, reset)
            .header("x-complexity", complexity)
            .header("x-ratelimit-complexity-limit", points_limit)
            .header("x-ratelimit-complexity-remaining", points_left)
            .header("x-ratelimit-complexity-reset", reset)
    }

    fn authentication_error(&self, request: &HttpRequest) -> Option<HttpResponse> {
        let credential = request.header("authorization").unwrap_or_default();
        let key = self.api_key();
        if credential == key || credential == format!("Bearer {OAUTH_TOKEN}") {
            return None;
        }
        let (status, message) = if credential == format!("Bearer {key}") {
            (
                400,
                "It looks like you're trying to use an API key as a Bearer token. Remove the Bearer prefix from the Authorization header.",
            )
        } else {
            (401, "Authentication required, not authenticated")
        };
        let error = json!({
            "message": message,
            "extensions": {
                "type": "authentication error", "code": "AUTHENTICATION_ERROR", "statusCode": status,
                "userError": true, "userPresentableMessage": "You need to authenticate to access this operation.",
            },
        });
        Some(HttpResponse::json(status, &json!({"errors": [error]})))
    }

    /// Takes one request from the quota. Returns limit, remaining requests and reset time (milliseconds
    /// since the epoch), or the time to wait.
    fn take_quota(&self) -> Result<(u64, u64, i64), Duration> {
        let now = clock::now_ms();
        let mut quota = lock(&self.0.quota);
        if quota.reset <= now {
            quota.reset = now + HOUR_MS;
            (quota.used, quota.points_used) = (0, 0);
        }
        if quota.used >= quota.limit {
            let left = u64::try_from(quota.reset - now).unwrap_or(0);
            return Err(Duration::from_millis(left));
        }
        quota.used += 1;
        Ok((quota.limit, quota.limit - quota.used, quota.reset))
    }

    fn evaluate(&self, request: &HttpRequest) -> (HttpResponse, u64) {
        let error_reply = |message: String, code: &str| {
            let error = json!({
                "message": message,
                "extensions": {"code": code, "type": "graphql error", "userError": true},
            });
            (HttpResponse::json(400, &json!({"errors": [error]})), 0)
        };
        let Some(body) = request.json().filter(Value::is_object) else {
            return error_reply("POST body is not valid JSON.".into(), "BAD_REQUEST");
        };
        let Some(query) = body["query"].as_str() else {
            return error_reply(
                "GraphQL operations must contain a non-empty `query`.".into(),
                "BAD_REQUEST",
            );
        };
        let empty = Map::new();
        let variables = body["variables"].as_object().unwrap_or(&empty);
        let name = body["operationName"].as_str();
        let plan = match QueryPlan::parse(&self.0.schema, query, variables, name) {
            Ok(plan) => plan,
            Err(message) => return error_reply(message, "GRAPHQL_VALIDATION_FAILED"),
        };
        let complexity = plan.complexity(&self.0.schema);
        if complexity > MAX_COMPLEXITY {
            let message = format!(
                "Query too complex: {complexity} points, at most {MAX_COMPLEXITY} allowed."
            );
            return error_reply(message, "INPUT_ERROR");
        }
        if !self.take_points(complexity) {
            return error_reply("Rate limit exceeded".into(), "RATELIMITED");
        }
        (self.execute_plan(&plan), complexity)
    }

    /// Takes complexity points from the quota. Returns whether there were as many.
    fn take_points(&self, complexity: u64) -> bool {
        let mut quota = lock(&self.0.quota);
        let used = quota.points_used.saturating_add(complexity);
        if used > quota.points_limit {
            quota.points_used = quota.points_limit;
            return false;
        }
        quota.points_used = used;
        true
    }

    fn execute_plan(&self, plan: &QueryPlan) -> HttpResponse {
        let base = self.0.base_url.as_str();
        let outcome = match plan.operation {
            Operation::Query => self.0.model.read(|model| {
                execute(
                    &mut Session {
                        rows: Rows::Shared(model),
                        base,
                    },
                    plan,
                )
            }),
            Operation::Mutation => self.0.model.update(|model| {
                execute(
                    &mut Session {
                        rows: Rows::Exclusive(model),
                        base,
                    },
                    plan,
                )
            }),
        };
        // Linear returns no partial data.
        match outcome.errors.first() {
            None => HttpResponse::json(200, &json!({"data": outcome.data})),
            Some((path, failure)) => HttpResponse::json(
                200,
                &json!({"errors": [{"message": failure.message, "path": path[..1], "extensions": failure.extensions}], "data": null}),
            ),
        }
    }
}

fn quota_headers(reply: HttpResponse, limit: u64, remaining: u64, reset: i64) -> HttpResponse {
    reply
        .header("x-ratelimit-requests-limit", limit)
        .header("x-ratelimit-requests-remaining", remaining)
        .header("x-ratelimit-requests-reset", reset)
}

/// Access of one request to the model: queries share it, mutations have it exclusively.
enum Rows<'a> {
    Shared(&'a Model),
    Exclusive(&'a mut Model),
}

struct Session<'a> {
    rows: Rows<'a>,
    base: &'a str,
}

impl Session<'_> {
    fn view(&self) -> ModelView<'_> {
        let model = match &self.rows {
            Rows::Shared(model) => model,
            Rows::Exclusive(model) => &**model,
        };
        ModelView {
            model,
            base_url: self.base,
        }
    }

    fn root_field(
        &self,
        name: &str,
        args: &Map<String, Value>,
    ) -> Result<Resolved<Node>, FieldError> {
        let view = self.view();
        let model = view.model;
        let id = args.get("id").and_then(Value::as_str).unwrap_or_default();
        let node_or_error = |what: &str, node: Option<Node>| {
            node.map(Resolved::Node)
                .ok_or_else(|| mutations::not_found(what))
        };
        match name {
            "viewer" => Ok(Resolved::Node(Node::User(FakeAuthor::Service))),
            "organization" => Ok(Resolved::Node(Node::Organization)),
            "rateLimitStatus" => Ok(Resolved::Node(Node::RateLimit)),
            "issue" => node_or_error("Issue", model.find_issue(id).map(Node::Issue)),
            "team" => node_or_error("Team", mutations::find_team(model, id).map(Node::Team)),
            "issueLabel" => {
                let at = model.labels.iter().position(|label| label.id == id);
                node_or_error("IssueLabel", at.map(Node::Label))
            }
            "comment" => {
                let at = model
                    .comments
                    .iter()
                    .position(|row| row.id == id && !row.deleted);
                node_or_error("Comment", at.map(Node::Comment))
            }
            _ => Ok(view.get(&Node::Query, name)),
        }
    }
}

impl Resolver for Session<'_> {
    type Node = Node;

    fn root(&self) -> Node {
        match self.rows {
            Rows::Shared(_) => Node::Query,
            Rows::Exclusive(_) => Node::Mutation,
        }
    }

    fn type_name(&self, node: &Node) -> &'static str {
        node.type_name()
    }

    fn resolve_field(
        &mut self,
        node: &Node,
        name: &str,
        args: &Map<String, Value>,
    ) -> Result<Resolved<Node>, FieldError> {
        let resolved = match (node, &mut self.rows) {
            (Node::Mutation, Rows::Exclusive(model)) => mutations::mutate(model, name, args)?,
            (Node::Query, _) => self.root_field(name, args)?,
            _ => self.view().get(node, name),
        };
        Ok(
            match (resolved, args.get("filter").and_then(Value::as_object)) {
                (Resolved::Connection(mut nodes), Some(filter)) => {
                    let view = self.view();
                    nodes.retain(|node| view.matches(node, filter));
                    Resolved::Connection(nodes)
                }
                (resolved, _) => resolved,
            },
        )
    }

    fn sort_key(&self, node: &Node, by: &str) -> (i64, i64) {
        node.sort_key(self.view().model, by)
    }

    fn page_size_error(&self, max: i64) -> FieldError {
        mutations::invalid_input(
            "Argument Validation Error",
            &format!("first must not be greater than {max}."),
        )
    }
}

/// Identifier in the path of a ticket's page, before its slug.
fn identifier_in(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

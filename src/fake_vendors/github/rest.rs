//! REST API: authentication, routes, quota, ETags and errors.

use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use super::GitHubInner;
use super::auth::Caller;
use super::model::{IssuedToken, Model, RepoRecord};
use crate::clock;
use crate::http::{HttpRequest, HttpResponse, percent_encode};
use crate::persistence::lock;

const HOUR_MS: i64 = 3_600_000;

/// Error response.
#[derive(Debug)]
pub(crate) struct RestError {
    pub status: u16,
    pub message: String,
    pub errors: Option<Value>,
}

pub(crate) type RestResult = Result<HttpResponse, RestError>;

pub(crate) fn rest_error(status: u16, message: impl Into<String>) -> RestError {
    RestError {
        status,
        message: message.into(),
        errors: None,
    }
}

/// Returns a 422 error about one field.
pub(crate) fn validation_error(resource: &str, field: &str, message: &str) -> RestError {
    RestError {
        status: 422,
        message: "Validation Failed".into(),
        errors: Some(
            json!([{"resource": resource, "code": "custom", "field": field, "message": message}]),
        ),
    }
}

pub(crate) fn not_found() -> RestError {
    rest_error(404, "Not Found")
}

pub(crate) fn ok_json(value: Value) -> RestResult {
    Ok(HttpResponse::json(200, &value))
}

impl From<anyhow::Error> for RestError {
    fn from(error: anyhow::Error) -> Self {
        rest_error(500, format!("fake vendor: {error:#}"))
    }
}

impl From<RestError> for HttpResponse {
    fn from(error: RestError) -> Self {
        let RestError {
            status,
            message,
            errors,
        } = error;
        let mut body = json!({
            "message": message,
            "documentation_url": "https://docs.github.com/rest",
            "status": status.to_string(),
        });
        if let Some(errors) = errors {
            body["errors"] = errors;
        }
        HttpResponse::json(status, &body)
    }
}

/// Authenticated request.
pub(crate) struct ApiCall<'a> {
    pub host: &'a GitHubInner,
    pub request: &'a HttpRequest,
    pub body: Value,
    pub caller: Caller,
}

impl GitHubInner {
    pub(crate) fn handle_rest(&self, request: &HttpRequest) -> HttpResponse {
        if request.header("user-agent").is_none_or(str::is_empty) {
            return rest_error(403, "Request forbidden by administrative rules. Please make sure your request has a User-Agent header.").into();
        }
        let credential = request.header("authorization").unwrap_or_default();
        let (limit, used, reset) = self.quota_of(credential);
        let reply = if used >= limit {
            rest_error(403, "API rate limit exceeded for installation ID 5000.").into()
        } else {
            let response = self
                .dispatch_call(request)
                .unwrap_or_else(HttpResponse::from);
            with_etag(request, response)
        };
        // A 304 response does not count against the quota.
        let used = used + u64::from(reply.status != 304 && used < limit);
        lock(&self.quota).used.insert(credential.to_owned(), used);
        let id: String = (0..4)
            .map(|_| format!("{:04X}:", fastrand::u16(..)))
            .collect();
        quota_headers(reply, limit, used, reset / 1_000)
            .header(
                "x-github-request-id",
                format!("{id}{:08X}", fastrand::u32(..)),
            )
            .header("x-github-media-type", "github.v3; format=json")
            .header("x-github-api-version-selected", "2022-11-28")
    }

    /// Returns limit, used requests and reset time (milliseconds since the epoch) of a credential.
    fn quota_of(&self, credential: &str) -> (u64, u64, i64) {
        let now = clock::now_ms();
        let mut quota = lock(&self.quota);
        if quota.reset <= now {
            quota.reset = now + HOUR_MS;
            quota.used.clear();
        }
        let used = quota.used.get(credential).copied().unwrap_or(0);
        (quota.limit, used, quota.reset)
    }

    fn dispatch_call(&self, request: &HttpRequest) -> RestResult {
        let segments = request.segments();
        let path: Vec<&str> = segments.iter().map(String::as_str).collect();
        // This call alone needs no credential.
        if let ("POST", ["app-manifests", code, "conversions"]) =
            (request.method.as_str(), path.as_slice())
        {
            return self.convert_manifest(code);
        }
        let body = request
            .json()
            .ok_or_else(|| rest_error(400, "Problems parsing JSON"))?;
        let call = ApiCall {
            host: self,
            request,
            body,
            caller: self.authenticate(request)?,
        };
        call.route()
    }
}

/// Adds an ETag to a GET response. Returns 304 if the caller already has this content.
fn with_etag(request: &HttpRequest, reply: HttpResponse) -> HttpResponse {
    if request.method != "GET" || reply.status != 200 {
        return reply;
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, &reply.body);
    let etag = format!("W/\"{}\"", HEXLOWER.encode(digest.as_ref()));
    if request.header("if-none-match") != Some(etag.as_str()) {
        return reply.header("etag", etag);
    }
    let headers = reply.headers.into_iter();
    let headers = headers.filter(|(name, _)| name != "content-type").collect();
    HttpResponse {
        headers,
        ..HttpResponse::empty(304)
    }
    .header("etag", etag)
}

pub(crate) fn quota_headers(
    reply: HttpResponse,
    limit: u64,
    used: u64,
    reset: i64,
) -> HttpResponse {
    reply
        .header("x-ratelimit-limit", limit)
        .header("x-ratelimit-remaining", limit.saturating_sub(used))
        .header("x-ratelimit-used", used)
        .header("x-ratelimit-reset", reset)
        .header("x-ratelimit-resource", "core")
}

impl ApiCall<'_> {
    fn route(&self) -> RestResult {
        let segments = self.request.segments();
        let path: Vec<&str> = segments.iter().map(String::as_str).collect();
        let method = self.request.method.as_str();
        match (method, path.as_slice()) {
            ("GET", ["rate_limit"]) => ok_json(json!({"resources": {}})),
            ("GET", ["app"]) => self.app(),
            ("GET", ["user"]) => self.user(),
            ("GET", ["user", "repos"]) => self.user_repositories(),
            ("GET", ["app", "installations"]) => self.installations(),
            ("POST", ["app", "installations", id, "access_tokens"]) => {
                self.create_installation_token(id)
            }
            ("GET", ["installation", "repositories"]) => self.installation_repositories(),
            ("GET", ["repos", owner, name, "installation"]) => self.installation(owner, name),
            ("GET", ["orgs" | "users", owner, "installation"]) => self.installation(owner, ""),
            ("POST", ["graphql"]) => self.graphql(),
            (_, ["repos", owner, name, rest @ ..]) => self.repo_route(method, owner, name, rest),
            _ => Err(not_found()),
        }
    }

    fn repo_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> RestResult {
        let repo_path = &RepoPath { owner, name };
        match (method, rest) {
            ("GET", []) => self.repository(repo_path),
            ("GET", ["contents", path @ ..]) => self.contents(repo_path, &path.join("/")),
            ("PUT", ["contents", path @ ..]) => self.put_contents(repo_path, &path.join("/")),
            ("GET", ["branches"]) => self.list_branches(repo_path),
            ("GET", ["branches", branch @ ..]) if !branch.is_empty() => {
                self.branch(repo_path, &branch.join("/"))
            }
            ("GET", ["git", "ref", name @ ..]) => self.git_ref(repo_path, &name.join("/")),
            ("POST", ["git", "refs"]) => self.create_ref(repo_path),
            ("PATCH", ["git", "refs", name @ ..]) => self.update_ref(repo_path, &name.join("/")),
            ("DELETE", ["git", "refs", name @ ..]) => self.delete_ref(repo_path, &name.join("/")),
            ("POST", ["git", "blobs"]) => self.create_blob(repo_path),
            ("POST", ["git", "trees"]) => self.create_tree(repo_path),
            ("GET", ["git", "trees", sha]) => self.read_tree(repo_path, sha),
            ("POST", ["git", "commits"]) => self.create_commit(repo_path),
            ("GET", ["git", "commits", sha]) => self.read_commit(repo_path, sha),
            ("GET", ["compare", range]) => self.compare(repo_path, range),
            ("GET", ["commits", sha, "check-runs"]) => self.check_runs(repo_path, sha),
            ("GET", ["commits", sha, "statuses"]) => self.commit_statuses(repo_path, sha),
            ("GET", ["collaborators", login, "permission"]) => self.permission(repo_path, login),
            ("GET", ["pulls"]) => self.list_pulls(repo_path),
            ("POST", ["pulls"]) => self.create_pull(repo_path),
            ("GET", ["pulls", number]) => self.get_pull(repo_path, number),
            ("PATCH", ["pulls", number]) => self.patch_pull(repo_path, number),
            ("GET", ["pulls", number, "merge"]) => self.is_merged(repo_path, number),
            ("PUT", ["pulls", number, "update-branch"]) => self.update_branch(repo_path, number),
            ("PUT", ["pulls", number, "merge"]) => self.merge(repo_path, number),
            ("GET", ["rules", "branches", branch @ ..]) if !branch.is_empty() => {
                self.branch_rules(repo_path, &branch.join("/"))
            }
            ("GET", ["pulls", number, "reviews"]) => self.reviews(repo_path, number),
            ("POST", ["pulls", number, "reviews"]) => self.create_review(repo_path, number),
            ("GET", ["pulls", _, "comments"]) => ok_json(json!([])),
            ("GET", ["pulls", number, "files"]) => self.pull_files(repo_path, number),
            ("GET", ["pulls", number, "commits"]) => self.pull_commits(repo_path, number),
            ("GET", ["issues"]) => self.list_issues(repo_path),
            ("GET", ["issues", number]) => self.get_issue(repo_path, number),
            ("POST", ["labels"]) => self.create_label(repo_path),
            ("GET", ["labels", label]) => self.get_label(repo_path, label),
            ("GET", ["issues", number, "labels"]) => self.list_labels(repo_path, number),
            ("POST", ["issues", number, "labels"]) => self.add_labels(repo_path, number),
            ("DELETE", ["issues", number, "labels", label]) => {
                self.remove_label(repo_path, number, label)
            }
            ("GET", ["issues", number, "comments"]) => self.list_comments(repo_path, number),
            ("POST", ["issues", number, "comments"]) => self.create_comment(repo_path, number),
            ("GET", ["issues", "comments", id]) => self.get_comment(repo_path, id),
            ("PATCH", ["issues", "comments", id]) => self.patch_comment(repo_path, id),
            ("DELETE", ["issues", "comments", id]) => self.delete_comment(repo_path, id),
            (_, ["actions", rest @ ..]) => self.actions_route(method, repo_path, rest),
            _ => Err(not_found()),
        }
    }

    fn actions_route(&self, method: &str, repo_path: &RepoPath<'_>, rest: &[&str]) -> RestResult {
        match (method, rest) {
            ("GET", ["workflows"]) => self.list_workflows(repo_path),
            ("GET", ["workflows", file]) => self.get_workflow(repo_path, file),
            ("POST", ["workflows", file, "dispatches"]) => self.dispatch(repo_path, file),
            ("GET", ["workflows", file, "runs"]) => self.list_runs(repo_path, Some(file)),
            ("GET", ["runs"]) => self.list_runs(repo_path, None),
            ("GET", ["runs", id]) => self.get_run(repo_path, id),
            ("GET", ["runs", id, "jobs"]) => self.list_jobs(repo_path, id),
            ("POST", ["runs", id, "cancel" | "force-cancel"]) => self.cancel_run(repo_path, id),
            ("POST", ["runs", id, "rerun-failed-jobs"]) => self.rerun_failed_jobs(repo_path, id),
            ("GET", ["runs", id, "logs"]) => self.run_logs(repo_path, id),
            ("GET", ["runs", id, "artifacts"]) => self.list_artifacts(repo_path, id),
            ("GET", ["artifacts", id, "zip"]) => self.download_artifact(repo_path, id),
            ("GET", ["jobs", id]) => self.get_job(repo_path, id),
            ("GET", ["jobs", id, "logs"]) => self.job_logs(repo_path, id),
            ("GET", ["secrets"]) => self.list_secrets(repo_path),
            _ => Err(not_found()),
        }
    }

    /// Returns the caller's token. An App's JWT is only valid for App routes.
    pub(super) fn require_token(&self) -> Result<&IssuedToken, RestError> {
        match &self.caller {
            Caller::Token(token) => Ok(token),
            Caller::App => Err(rest_error(401, "Bad credentials")),
        }
    }

    /// Checks the caller's permission. As on GitHub, a repository that the caller cannot see is a 404.
    pub(super) fn require_permission(
        &self,
        repo_path: &RepoPath<'_>,
        permission: &str,
        level: &str,
    ) -> Result<(), RestError> {
        let token = self.require_token()?;
        let known = self
            .host
            .model
            .read(|model| model.find_repo(repo_path.owner, repo_path.name).is_some());
        if !known || !token.can_access_repo(repo_path.owner, repo_path.name) {
            return Err(not_found());
        }
        if token.has_permission(permission, level) {
            Ok(())
        } else {
            let kind = match token.is_personal() {
                true => "personal access token",
                false => "integration",
            };
            Err(rest_error(
                403,
                format!("Resource not accessible by {kind}"),
            ))
        }
    }

    /// Reads the repository's record.
    pub(super) fn read_repo<R>(
        &self,
        repo_path: &RepoPath<'_>,
        read: impl FnOnce(&RepoRecord) -> R,
    ) -> Result<R, RestError> {
        let found = |model: &Model| {
            model
                .find_repo(repo_path.owner, repo_path.name)
                .map(|row| read(&model.repos[row]))
        };
        self.host.model.read(found).ok_or_else(not_found)
    }

    pub(super) fn query_param(&self, name: &str) -> Option<String> {
        self.request
            .query_param(name)
            .filter(|value| !value.is_empty())
    }

    pub(super) fn body_str(&self, field: &str) -> Option<&str> {
        self.body[field].as_str()
    }

    /// Returns the requested page of a list, with a `Link` header.
    pub(super) fn paginate(
        &self,
        items: Vec<Value>,
        wrap: impl FnOnce(usize, Vec<Value>) -> Value,
    ) -> RestResult {
        let number = |name: &str| self.query_param(name).and_then(|n| n.parse::<usize>().ok());
        let size = number("per_page").unwrap_or(30).clamp(1, 100);
        let page = number("page").unwrap_or(1).max(1);
        let total = items.len();
        let last = total.div_ceil(size).max(1);
        let page_items: Vec<Value> = items
            .into_iter()
            .skip((page - 1) * size)
            .take(size)
            .collect();
        let mut links = Vec::new();
        if page > 1 {
            links.push(self.link(page - 1, "prev"));
            links.push(self.link(1, "first"));
        }
        if page < last {
            links.push(self.link(page + 1, "next"));
            links.push(self.link(last, "last"));
        }
        let reply = HttpResponse::json(200, &wrap(total, page_items));
        Ok(if links.is_empty() {
            reply
        } else {
            reply.header("link", links.join(", "))
        })
    }

    fn link(&self, page: usize, rel: &str) -> String {
        let others = self.request.query.split('&');
        let others = others.filter(|pair| !pair.is_empty() && !pair.starts_with("page="));
        let query: String = others.map(|pair| format!("{pair}&")).collect();
        format!(
            "<{}{}?{query}page={page}>; rel=\"{rel}\"",
            self.host.api_url,
            percent_encode(&self.request.path)
        )
    }
}

/// Owner and name of a repository.
pub(crate) struct RepoPath<'a> {
    pub owner: &'a str,
    pub name: &'a str,
}

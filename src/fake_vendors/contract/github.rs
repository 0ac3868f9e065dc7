//! GitHub: REST API of version 2022-11-28, and GraphQL.

use std::sync::LazyLock;

use super::graphql::{self, check_page_sizes, node_count, request_count};
use super::rule::{CallRule, Field, Kind, OPTIONAL, REQUIRED, UNLIMITED};
use crate::graphql::Schema;
use crate::request_log::LoggedRequest;
use Kind::{Bool, GitHash, List, Map, MaybeEmpty, Number, OneOf, Record, StartsWith, Text};

/// Longest body of a comment or pull request, in characters.
const MAX_BODY: usize = 65_536;
/// Longest title of a pull request, in characters.
const MAX_TITLE: usize = 256;
/// Largest number of inputs of a workflow.
const MAX_INPUTS: usize = 25;
/// Longest inputs of a dispatch together, in characters.
const MAX_INPUT_TEXT: usize = 65_535;
/// Largest page of a list, in REST and in GraphQL.
const MAX_PAGE: i64 = 100;
/// Largest number of nodes that one GraphQL query may ask for.
const MAX_NODES: i64 = 500_000;

/// Largest cost of one query, in points. A query per minute of this cost stays within 5,000 points per hour.
const MAX_POINTS: i64 = 80;

const PER_PAGE: Field = ("per_page", OPTIONAL, Number(1, MAX_PAGE));
const PAGE: Field = ("page", OPTIONAL, Number(1, i64::MAX));
const REF: Field = ("ref", REQUIRED, Text(UNLIMITED));
const LATEST: Field = ("filter", OPTIONAL, OneOf(&["latest", "all"]));
const NO_QUERY: &[Field] = &[];
const PAGED: &[Field] = &[PER_PAGE, PAGE];
const PULL_LIST: &[Field] = &[
    ("state", OPTIONAL, OneOf(&["open", "closed", "all"])),
    // `owner:branch`.
    ("head", OPTIONAL, Text(UNLIMITED)),
    ("base", OPTIONAL, Text(UNLIMITED)),
    (
        "sort",
        OPTIONAL,
        OneOf(&["created", "updated", "popularity", "long-running"]),
    ),
    ("direction", OPTIONAL, OneOf(&["asc", "desc"])),
    PER_PAGE,
    PAGE,
];
const RUN_LIST: &[Field] = &[
    ("event", OPTIONAL, OneOf(&["workflow_dispatch"])),
    ("created", OPTIONAL, StartsWith(">=")),
    ("check_suite_id", OPTIONAL, Text(20)),
    PER_PAGE,
    PAGE,
];
const LEVEL: Kind = OneOf(&["read", "write"]);
/// Without a scope, the token is for all repositories and permissions of the installation.
const TOKEN_SCOPE: Kind = Record(&[
    ("repositories", OPTIONAL, List(500, &Text(100))),
    (
        "permissions",
        OPTIONAL,
        Record(&[
            ("metadata", OPTIONAL, OneOf(&["read"])),
            ("actions", OPTIONAL, LEVEL),
            ("checks", OPTIONAL, LEVEL),
            ("contents", OPTIONAL, LEVEL),
            ("issues", OPTIONAL, LEVEL),
            ("pull_requests", OPTIONAL, LEVEL),
            ("secrets", OPTIONAL, LEVEL),
            ("statuses", OPTIONAL, LEVEL),
            ("workflows", OPTIONAL, OneOf(&["write"])),
        ]),
    ),
]);
const DISPATCH: Kind = Record(&[
    ("ref", REQUIRED, Text(UNLIMITED)),
    (
        "inputs",
        OPTIONAL,
        Map(MAX_INPUTS, &MaybeEmpty(MAX_INPUT_TEXT)),
    ),
    ("return_run_details", OPTIONAL, Bool),
]);
const NEW_PULL: Kind = Record(&[
    ("title", REQUIRED, Text(MAX_TITLE)),
    ("head", REQUIRED, Text(UNLIMITED)),
    ("base", REQUIRED, Text(UNLIMITED)),
    ("body", OPTIONAL, MaybeEmpty(MAX_BODY)),
    ("draft", OPTIONAL, Bool),
]);
/// Whether a pull request is a draft changes only through GraphQL.
const PULL_UPDATE: Kind = Record(&[
    ("title", OPTIONAL, Text(MAX_TITLE)),
    ("body", OPTIONAL, MaybeEmpty(MAX_BODY)),
    ("state", OPTIONAL, OneOf(&["open", "closed"])),
    ("base", OPTIONAL, Text(UNLIMITED)),
]);
const BRANCH_UPDATE: Kind = Record(&[("expected_head_sha", OPTIONAL, Text(40))]);
const MERGE: Kind = Record(&[
    ("sha", REQUIRED, GitHash),
    (
        "merge_method",
        REQUIRED,
        OneOf(&["merge", "squash", "rebase"]),
    ),
]);
const COMMENT: Kind = Record(&[("body", REQUIRED, Text(MAX_BODY))]);
const NEW_LABEL: Kind = Record(&[
    ("name", REQUIRED, Text(50)),
    ("color", OPTIONAL, Text(6)),
    ("description", OPTIONAL, MaybeEmpty(100)),
]);
const ADDED_LABELS: Kind = Record(&[("labels", REQUIRED, List(100, &Text(50)))]);
const TREE: Kind = Record(&[
    ("base_tree", OPTIONAL, GitHash),
    ("tree", REQUIRED, List(100_000, &TREE_ENTRY)),
]);
const TREE_ENTRY: Kind = Record(&[
    ("path", REQUIRED, Text(UNLIMITED)),
    (
        "mode",
        REQUIRED,
        OneOf(&["100644", "100755", "040000", "160000", "120000"]),
    ),
    ("type", REQUIRED, OneOf(&["blob", "tree", "commit"])),
    // A null removes the file.
    ("sha", OPTIONAL, Kind::OrNull(&GitHash)),
    ("content", OPTIONAL, MaybeEmpty(UNLIMITED)),
]);
const COMMIT: Kind = Record(&[
    ("message", REQUIRED, Text(UNLIMITED)),
    ("tree", REQUIRED, GitHash),
    ("parents", OPTIONAL, List(UNLIMITED, &GitHash)),
]);
const NEW_REF: Kind = Record(&[
    ("ref", REQUIRED, StartsWith("refs/heads/")),
    ("sha", REQUIRED, GitHash),
]);
const REF_UPDATE: Kind = Record(&[("sha", REQUIRED, GitHash), ("force", OPTIONAL, Bool)]);

pub(super) const CALLS: &[CallRule] = &[
    CallRule::send("POST", "/graphql", graphql::BODY),
    CallRule::get("/app", NO_QUERY),
    CallRule {
        method: "POST",
        path: "/app-manifests/*/conversions",
        query: NO_QUERY,
        body: None,
    },
    CallRule::send("POST", "/app/installations/*/access_tokens", TOKEN_SCOPE),
    CallRule::get("/app/installations", PAGED),
    CallRule::get("/installation/repositories", PAGED),
    CallRule::get("/user", NO_QUERY),
    CallRule::get(
        "/user/repos",
        &[
            (
                "sort",
                OPTIONAL,
                OneOf(&["created", "updated", "pushed", "full_name"]),
            ),
            PER_PAGE,
            PAGE,
        ],
    ),
    CallRule::get("/repos/*/*", NO_QUERY),
    CallRule::get("/repos/*/*/installation", NO_QUERY),
    CallRule::get("/repos/*/*/branches", PAGED),
    CallRule::get("/repos/*/*/branches/**", NO_QUERY),
    CallRule::get("/repos/*/*/rules/branches/**", PAGED),
    CallRule {
        method: "DELETE",
        path: "/repos/*/*/git/refs/heads/**",
        query: NO_QUERY,
        body: None,
    },
    CallRule::get("/repos/*/*/contents/**", &[REF]),
    CallRule::get("/repos/*/*/git/ref/heads/**", NO_QUERY),
    CallRule::get("/repos/*/*/git/commits/*", NO_QUERY),
    CallRule::get("/repos/*/*/git/trees/*", NO_QUERY),
    CallRule::get("/repos/*/*/compare/**", PAGED),
    CallRule::send("POST", "/repos/*/*/git/trees", TREE),
    CallRule::send("POST", "/repos/*/*/git/commits", COMMIT),
    CallRule::send("POST", "/repos/*/*/git/refs", NEW_REF),
    CallRule::send("PATCH", "/repos/*/*/git/refs/heads/**", REF_UPDATE),
    CallRule::send(
        "POST",
        "/repos/*/*/actions/workflows/*/dispatches",
        DISPATCH,
    ),
    CallRule::get("/repos/*/*/actions/workflows", PAGED),
    CallRule::get("/repos/*/*/actions/runs", RUN_LIST),
    CallRule::get("/repos/*/*/actions/runs/*", NO_QUERY),
    CallRule {
        method: "POST",
        path: "/repos/*/*/actions/runs/*/rerun-failed-jobs",
        query: NO_QUERY,
        body: None,
    },
    CallRule::get("/repos/*/*/actions/runs/*/jobs", &[LATEST, PER_PAGE, PAGE]),
    CallRule::get("/repos/*/*/actions/jobs/*/logs", NO_QUERY),
    CallRule::get(
        "/repos/*/*/actions/runs/*/artifacts",
        &[("name", OPTIONAL, Text(UNLIMITED)), PER_PAGE, PAGE],
    ),
    CallRule::get("/repos/*/*/actions/artifacts/*/zip", NO_QUERY),
    CallRule {
        method: "POST",
        path: "/repos/*/*/actions/runs/*/cancel",
        query: NO_QUERY,
        body: None,
    },
    CallRule::get("/repos/*/*/actions/secrets", PAGED),
    CallRule::get("/repos/*/*/pulls", PULL_LIST),
    CallRule::send("POST", "/repos/*/*/pulls", NEW_PULL),
    CallRule::get("/repos/*/*/pulls/*", NO_QUERY),
    CallRule::send("PATCH", "/repos/*/*/pulls/*", PULL_UPDATE),
    CallRule::send("PUT", "/repos/*/*/pulls/*/update-branch", BRANCH_UPDATE),
    CallRule::get("/repos/*/*/pulls/*/reviews", PAGED),
    CallRule::get("/repos/*/*/pulls/*/files", PAGED),
    CallRule::send("PUT", "/repos/*/*/pulls/*/merge", MERGE),
    CallRule::get("/repos/*/*/issues", PAGED),
    CallRule::get("/repos/*/*/issues/*/comments", PAGED),
    CallRule::send("POST", "/repos/*/*/issues/*/comments", COMMENT),
    CallRule::send("PATCH", "/repos/*/*/issues/comments/*", COMMENT),
    CallRule {
        method: "DELETE",
        path: "/repos/*/*/issues/comments/*",
        query: NO_QUERY,
        body: None,
    },
    CallRule::send("POST", "/repos/*/*/labels", NEW_LABEL),
    CallRule::send("POST", "/repos/*/*/issues/*/labels", ADDED_LABELS),
    CallRule {
        method: "DELETE",
        path: "/repos/*/*/issues/*/labels/*",
        query: NO_QUERY,
        body: None,
    },
    CallRule::get("/repos/*/*/collaborators/*/permission", NO_QUERY),
    CallRule::get("/repos/*/*/commits/*/check-runs", &[LATEST, PER_PAGE, PAGE]),
    CallRule::get("/repos/*/*/commits/*/statuses", PAGED),
];

/// GraphQL operations that we use.
pub(super) const OPERATIONS: &[&str] = &[
    "github query node",
    "github query repository",
    "github query viewer",
    "github mutation markPullRequestReadyForReview",
    "github mutation convertPullRequestToDraft",
    "github mutation enablePullRequestAutoMerge",
    "github mutation disablePullRequestAutoMerge",
    "github mutation enqueuePullRequest",
    "github mutation dequeuePullRequest",
];

static SCHEMA: LazyLock<Option<Schema>> =
    LazyLock::new(|| Schema::parse(include_str!("../github/graphql.schema.graphql")).ok());

pub(super) fn root_fields(request: &LoggedRequest) -> Vec<String> {
    if request.path() != "/graphql" {
        return Vec::new();
    }
    let schema = SCHEMA.as_ref();
    schema.map_or_else(Vec::new, |schema| graphql::root_fields(schema, request))
}

pub(super) fn check(request: &LoggedRequest) -> Vec<String> {
    let mut violations = request.content_type_violations();
    if request.header("user-agent").is_empty() {
        violations.push("headers: User-Agent is missing".to_owned());
    }
    if request.path().starts_with("/app-manifests/") {
        if !request.header("authorization").is_empty() {
            violations.push("headers: this call takes no credential".to_owned());
        }
        return violations;
    }
    let Some(token) = request.header("authorization").strip_prefix("Bearer ") else {
        violations.push("headers: Authorization must be a bearer token".to_owned());
        return violations;
    };
    if request.path() == "/graphql" {
        violations.extend(check_graphql(request));
        return violations;
    }
    // The workflow of a repository calls with curl, which states neither; the defaults are the same.
    if request.header("user-agent").starts_with("agent-implement/") {
        if request.header("accept") != "application/vnd.github+json" {
            violations.push("headers: Accept must be application/vnd.github+json".to_owned());
        }
        if request.header("x-github-api-version") != "2022-11-28" {
            violations.push("headers: X-GitHub-Api-Version must be 2022-11-28".to_owned());
        }
    }
    let path = request.path();
    let is_app_call =
        path == "/app" || path.starts_with("/app/") || path.ends_with("/installation");
    if is_app_call != token.starts_with("eyJ") {
        violations.push(
            "headers: only calls of the App itself take its JWT, and they need it".to_owned(),
        );
    }
    let inputs = request.body["inputs"].as_object().into_iter().flatten();
    let length: usize = inputs
        .map(|(_, value)| value.as_str().unwrap_or_default().chars().count())
        .sum();
    if length > MAX_INPUT_TEXT {
        violations.push(format!(
            "body.inputs: {length} characters; the limit is {MAX_INPUT_TEXT}"
        ));
    }
    violations
}

fn check_graphql(request: &LoggedRequest) -> Vec<String> {
    let mut violations = Vec::new();
    let Some(schema) = SCHEMA.as_ref() else {
        return vec!["the schema of GitHub is not valid".to_owned()];
    };
    match graphql::plan(schema, request) {
        Err(error) => violations.push(format!("body.query: {error}")),
        Ok(plan) => {
            check_page_sizes(&plan.fields, MAX_PAGE, &mut violations);
            let points = request_count(&plan.fields) / 100;
            if points > MAX_POINTS {
                violations.push(format!(
                    "body.query: {points} points; the limit is {MAX_POINTS}"
                ));
            }
            let nodes = node_count(&plan.fields);
            if nodes > MAX_NODES {
                violations.push(format!(
                    "body.query: {nodes} nodes; the limit is {MAX_NODES}"
                ));
            }
        }
    }
    violations
}

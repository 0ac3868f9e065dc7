//! Jira Cloud: REST API of version 3, with an account's token or through the gateway.

use serde_json::Value;

use super::rule::{CallRule, Field, Kind, OPTIONAL, REQUIRED, UNLIMITED};
use crate::jira::adf;
use crate::request_log::LoggedRequest;
use Kind::{Any, List, Map, Number, OneOf, Record, Text};

/// Largest page of a search with few fields.
const MAX_PAGE: i64 = 5_000;
/// Largest number of issues that a search may be asked to reconcile, and of a bulk fetch.
const MAX_RECONCILED: usize = 50;
const MAX_FETCHED: usize = 100;

const NO_QUERY: &[Field] = &[];
const PAGED: &[Field] = &[
    ("startAt", OPTIONAL, Number(0, i64::MAX)),
    ("maxResults", OPTIONAL, Number(1, MAX_PAGE)),
    (
        "orderBy",
        OPTIONAL,
        OneOf(&["created", "-created", "+created"]),
    ),
];
const SEARCH: Kind = Record(&[
    ("jql", REQUIRED, Text(UNLIMITED)),
    ("maxResults", OPTIONAL, Number(1, MAX_PAGE)),
    ("fields", OPTIONAL, List(UNLIMITED, &Text(255))),
    ("nextPageToken", OPTIONAL, Text(UNLIMITED)),
    (
        "reconcileIssues",
        OPTIONAL,
        List(MAX_RECONCILED, &Number(1, i64::MAX)),
    ),
]);
const BULK_FETCH: Kind = Record(&[
    ("issueIdsOrKeys", REQUIRED, List(MAX_FETCHED, &Text(255))),
    ("fields", OPTIONAL, List(UNLIMITED, &Text(255))),
]);
const COMMENT: Kind = Record(&[
    // A document; see `check`.
    ("body", REQUIRED, Any),
    (
        "properties",
        OPTIONAL,
        List(
            UNLIMITED,
            &Record(&[("key", REQUIRED, Text(255)), ("value", REQUIRED, Any)]),
        ),
    ),
]);
/// Only select fields are set: by the name of an option, or null for none.
const EDIT: Kind = Record(&[(
    "fields",
    REQUIRED,
    Map(
        UNLIMITED,
        &Kind::OrNull(&Record(&[("value", REQUIRED, Text(255))])),
    ),
)]);
const NEW_FIELD: Kind = Record(&[
    ("name", REQUIRED, Text(255)),
    ("description", OPTIONAL, Text(UNLIMITED)),
    (
        "type",
        REQUIRED,
        OneOf(&["com.atlassian.jira.plugin.system.customfieldtypes:select"]),
    ),
    (
        "searcherKey",
        OPTIONAL,
        OneOf(&["com.atlassian.jira.plugin.system.customfieldtypes:multiselectsearcher"]),
    ),
]);
const NEW_OPTIONS: Kind = Record(&[(
    "options",
    REQUIRED,
    List(1_000, &Record(&[("value", REQUIRED, Text(255))])),
)]);
const REMOTE_LINK: Kind = Record(&[
    ("globalId", OPTIONAL, Text(255)),
    (
        "object",
        REQUIRED,
        Record(&[
            ("url", REQUIRED, Text(UNLIMITED)),
            ("title", REQUIRED, Text(255)),
        ]),
    ),
]);
const PARSED_QUERIES: Kind = Record(&[("queries", REQUIRED, List(UNLIMITED, &Text(UNLIMITED)))]);

pub(super) const CALLS: &[CallRule] = &[
    CallRule::get("/myself", NO_QUERY),
    CallRule::get("/serverInfo", NO_QUERY),
    CallRule::get("/field", NO_QUERY),
    CallRule::send("POST", "/field", NEW_FIELD),
    CallRule::send("POST", "/screens/addToDefault/*", Record(&[])),
    CallRule::get("/field/*/context", PAGED),
    CallRule::send("POST", "/field/*/context/*/option", NEW_OPTIONS),
    CallRule::get("/field/*/context/*/option", PAGED),
    CallRule {
        method: "POST",
        path: "/jql/parse",
        query: &[("validation", REQUIRED, OneOf(&["strict", "warn", "none"]))],
        body: Some(PARSED_QUERIES),
    },
    CallRule::send("POST", "/search/jql", SEARCH),
    CallRule::send("POST", "/issue/bulkfetch", BULK_FETCH),
    CallRule::get("/issue/*", &[("fields", OPTIONAL, Text(UNLIMITED))]),
    CallRule::send("PUT", "/issue/*", EDIT),
    CallRule::get("/issue/*/editmeta", NO_QUERY),
    CallRule::get("/issue/*/changelog", PAGED),
    CallRule::get(
        "/attachment/content/*",
        &[("redirect", OPTIONAL, OneOf(&["true", "false"]))],
    ),
    CallRule::get(
        "/user/permission/search",
        &[
            ("permissions", REQUIRED, OneOf(&["EDIT_ISSUES"])),
            ("maxResults", OPTIONAL, Number(1, 1_000)),
            ("issueKey", OPTIONAL, Text(255)),
            ("accountId", OPTIONAL, Text(128)),
        ],
    ),
    CallRule::get("/issue/*/comment", PAGED_COMMENTS),
    CallRule::send("POST", "/issue/*/comment", COMMENT),
    CallRule::send("PUT", "/issue/*/comment/*", COMMENT),
    CallRule::delete("/issue/*/comment/*", NO_QUERY),
    CallRule::send("POST", "/issue/*/remotelink", REMOTE_LINK),
    CallRule::get("/issue/createmeta/*/issuetypes", PAGED),
    CallRule::get("/issue/createmeta/*/issuetypes/*", PAGED),
    CallRule::get(
        "/project/search",
        &[
            (
                "action",
                OPTIONAL,
                OneOf(&["view", "browse", "edit", "create"]),
            ),
            ("startAt", OPTIONAL, Number(0, i64::MAX)),
            ("maxResults", OPTIONAL, Number(1, 100)),
        ],
    ),
];
const PAGED_COMMENTS: &[Field] = &[
    PAGED[0],
    PAGED[1],
    PAGED[2],
    ("expand", OPTIONAL, OneOf(&["properties"])),
];

/// Returns the path below the API: of a site, or of the gateway for scoped tokens.
pub(super) fn api_path(path: &str) -> Option<&str> {
    let gateway = path.strip_prefix("/ex/jira/");
    let path = gateway.map_or(Some(path), |rest| rest.find('/').map(|at| &rest[at..]));
    path?.strip_prefix("/rest/api/3")
}

pub(super) fn check(request: &LoggedRequest) -> Vec<String> {
    let mut violations = request.content_type_violations();
    let is_file = request.path().contains("/attachment/content/");
    if !is_file && request.header("accept") != "application/json" {
        violations.push("headers: Accept must be application/json".to_owned());
    }
    let authorization = request.header("authorization");
    if !["Basic ", "Bearer "]
        .iter()
        .any(|scheme| authorization.starts_with(scheme))
    {
        violations.push("headers: Authorization must be Basic or Bearer".to_owned());
    }
    if request.path().contains("/comment") && !request.body.is_null() {
        violations.extend(
            adf::validation_error(&request.body["body"]).map(|error| format!("body.body: {error}")),
        );
    }
    if request.path().ends_with("/search/jql") && !is_bounded(&request.body["jql"]) {
        violations.push("body.jql: a query without a condition is refused".to_owned());
    }
    violations
}

fn is_bounded(jql: &Value) -> bool {
    let condition = jql.as_str().unwrap_or_default().trim_start();
    !condition.to_uppercase().starts_with("ORDER BY")
}

//! Kubernetes API: the calls that manage Jobs, and the fields of the objects that they send. The API server refuses
//! fields that it does not know if the request asks for a strict validation.

use serde_json::Value;

use super::rule::{CallRule, Field, Kind, OPTIONAL, REQUIRED, UNLIMITED, matching_rule};
use crate::request_log::LoggedRequest;
use Kind::{Bool, List, Map, MaybeEmpty, Number, OneOf, Record, Text};

const ANY_TEXT: Kind = MaybeEmpty(UNLIMITED);
const LABELS: Kind = Map(UNLIMITED, &MaybeEmpty(63));
const STRICT: &[Field] = &[("fieldValidation", REQUIRED, OneOf(&["Strict"]))];
const SELECTOR: &[Field] = &[("labelSelector", REQUIRED, Text(UNLIMITED))];
const NO_QUERY: &[Field] = &[];

const OWNER: Kind = Record(&[
    ("apiVersion", REQUIRED, Text(UNLIMITED)),
    ("kind", REQUIRED, Text(63)),
    ("name", REQUIRED, Text(253)),
    ("uid", REQUIRED, Text(UNLIMITED)),
]);
const METADATA: Kind = Record(&[
    ("name", REQUIRED, Text(63)),
    ("labels", OPTIONAL, LABELS),
    ("annotations", OPTIONAL, Map(UNLIMITED, &ANY_TEXT)),
    ("ownerReferences", OPTIONAL, List(1, &OWNER)),
]);

const JOB: Kind = Record(&[
    ("apiVersion", REQUIRED, OneOf(&["batch/v1"])),
    ("kind", REQUIRED, OneOf(&["Job"])),
    ("metadata", REQUIRED, METADATA),
    (
        "spec",
        REQUIRED,
        Record(&[
            ("suspend", REQUIRED, Bool),
            ("backoffLimit", REQUIRED, Number(0, 0)),
            ("activeDeadlineSeconds", REQUIRED, Number(1, i64::MAX)),
            ("ttlSecondsAfterFinished", REQUIRED, Number(0, i64::MAX)),
            (
                "template",
                REQUIRED,
                Record(&[
                    (
                        "metadata",
                        REQUIRED,
                        Record(&[
                            ("labels", REQUIRED, LABELS),
                            ("annotations", OPTIONAL, Map(UNLIMITED, &ANY_TEXT)),
                        ]),
                    ),
                    ("spec", REQUIRED, POD),
                ]),
            ),
        ]),
    ),
]);
const POD: Kind = Record(&[
    ("restartPolicy", REQUIRED, OneOf(&["Never"])),
    ("automountServiceAccountToken", REQUIRED, Bool),
    ("enableServiceLinks", OPTIONAL, Bool),
    (
        "terminationGracePeriodSeconds",
        OPTIONAL,
        Number(0, i64::MAX),
    ),
    (
        "securityContext",
        REQUIRED,
        Record(&[
            ("runAsNonRoot", REQUIRED, Bool),
            ("runAsUser", REQUIRED, Number(1, i64::MAX)),
            ("runAsGroup", OPTIONAL, Number(1, i64::MAX)),
            ("fsGroup", OPTIONAL, Number(1, i64::MAX)),
            (
                "seccompProfile",
                REQUIRED,
                Record(&[("type", REQUIRED, OneOf(&["RuntimeDefault"]))]),
            ),
        ]),
    ),
    ("containers", REQUIRED, List(1, &CONTAINER)),
    ("volumes", REQUIRED, List(UNLIMITED, &VOLUME)),
    ("nodeSelector", OPTIONAL, LABELS),
    ("runtimeClassName", OPTIONAL, Text(253)),
    ("imagePullSecrets", OPTIONAL, List(1, &NAMED)),
]);
const NAMED: Kind = Record(&[("name", REQUIRED, Text(253))]);
const VOLUME: Kind = Record(&[
    ("name", REQUIRED, Text(63)),
    (
        "emptyDir",
        REQUIRED,
        Record(&[("sizeLimit", REQUIRED, Text(UNLIMITED))]),
    ),
]);
const SIZE: Kind = Record(&[
    ("cpu", REQUIRED, Text(UNLIMITED)),
    ("memory", REQUIRED, Text(UNLIMITED)),
    // Without it, one run can use up the disk of its node, and the kubelet evicts others.
    ("ephemeral-storage", REQUIRED, Text(UNLIMITED)),
]);
const CONTAINER: Kind = Record(&[
    ("name", REQUIRED, Text(63)),
    ("image", REQUIRED, Text(UNLIMITED)),
    ("command", REQUIRED, List(UNLIMITED, &Text(UNLIMITED))),
    ("workingDir", OPTIONAL, Text(UNLIMITED)),
    (
        "env",
        OPTIONAL,
        List(
            UNLIMITED,
            &Record(&[
                ("name", REQUIRED, Text(UNLIMITED)),
                ("value", REQUIRED, ANY_TEXT),
            ]),
        ),
    ),
    (
        "envFrom",
        REQUIRED,
        List(1, &Record(&[("secretRef", REQUIRED, NAMED)])),
    ),
    (
        "resources",
        REQUIRED,
        Record(&[("requests", REQUIRED, SIZE), ("limits", REQUIRED, SIZE)]),
    ),
    (
        "securityContext",
        REQUIRED,
        Record(&[
            ("allowPrivilegeEscalation", REQUIRED, Bool),
            ("readOnlyRootFilesystem", REQUIRED, Bool),
            (
                "capabilities",
                REQUIRED,
                Record(&[("drop", REQUIRED, List(1, &OneOf(&["ALL"])))]),
            ),
        ]),
    ),
    (
        "volumeMounts",
        REQUIRED,
        List(
            UNLIMITED,
            &Record(&[
                ("name", REQUIRED, Text(63)),
                ("mountPath", REQUIRED, Text(UNLIMITED)),
            ]),
        ),
    ),
]);

const SECRET: Kind = Record(&[
    ("apiVersion", REQUIRED, OneOf(&["v1"])),
    ("kind", REQUIRED, OneOf(&["Secret"])),
    ("metadata", REQUIRED, METADATA),
    ("immutable", OPTIONAL, Bool),
    ("type", REQUIRED, OneOf(&["Opaque"])),
    ("stringData", REQUIRED, Map(UNLIMITED, &ANY_TEXT)),
]);

const DELETION: Kind = Record(&[
    ("apiVersion", REQUIRED, OneOf(&["v1"])),
    ("kind", REQUIRED, OneOf(&["DeleteOptions"])),
    ("propagationPolicy", REQUIRED, OneOf(&["Background"])),
    (
        "preconditions",
        REQUIRED,
        Record(&[("uid", REQUIRED, Text(UNLIMITED))]),
    ),
]);

const REVIEW: Kind = Record(&[
    ("apiVersion", REQUIRED, OneOf(&["authorization.k8s.io/v1"])),
    ("kind", REQUIRED, OneOf(&["SelfSubjectAccessReview"])),
    (
        "spec",
        REQUIRED,
        Record(&[(
            "resourceAttributes",
            REQUIRED,
            Record(&[
                ("namespace", REQUIRED, Text(63)),
                ("group", REQUIRED, ANY_TEXT),
                ("resource", REQUIRED, Text(UNLIMITED)),
                ("subresource", REQUIRED, ANY_TEXT),
                ("name", REQUIRED, ANY_TEXT),
                ("verb", REQUIRED, Text(UNLIMITED)),
            ]),
        )]),
    ),
]);

const SUSPENSION: Kind = Record(&[("spec", REQUIRED, Record(&[("suspend", REQUIRED, Bool)]))]);
const DEADLINE: Kind = Record(&[(
    "spec",
    REQUIRED,
    Record(&[("activeDeadlineSeconds", REQUIRED, Number(1, i64::MAX))]),
)]);

pub(super) const CALLS: &[CallRule] = &[
    CallRule::get("/version", NO_QUERY),
    CallRule::send(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        REVIEW,
    ),
    CallRule::get("/api/v1/namespaces/*", NO_QUERY),
    CallRule::get(
        "/apis/networking.k8s.io/v1/namespaces/*/networkpolicies",
        NO_QUERY,
    ),
    CallRule {
        method: "POST",
        path: "/apis/batch/v1/namespaces/*/jobs",
        query: STRICT,
        body: Some(JOB),
    },
    CallRule::get("/apis/batch/v1/namespaces/*/jobs", SELECTOR),
    CallRule::get("/apis/batch/v1/namespaces/*/jobs/*", NO_QUERY),
    CallRule::send("PATCH", "/apis/batch/v1/namespaces/*/jobs/*", SUSPENSION),
    CallRule::send("DELETE", "/apis/batch/v1/namespaces/*/jobs/*", DELETION),
    CallRule {
        method: "POST",
        path: "/api/v1/namespaces/*/secrets",
        query: STRICT,
        body: Some(SECRET),
    },
    CallRule::get("/api/v1/namespaces/*/pods", SELECTOR),
    CallRule::send("PATCH", "/api/v1/namespaces/*/pods/*", DEADLINE),
    CallRule::get(
        "/api/v1/namespaces/*/pods/*/log",
        &[
            // A pod may have containers of a service mesh.
            ("container", REQUIRED, OneOf(&["run"])),
            ("tailLines", OPTIONAL, Number(0, i64::MAX)),
            ("limitBytes", OPTIONAL, Number(1, i64::MAX)),
        ],
    ),
    CallRule::get(
        "/api/v1/namespaces/*/events",
        &[
            ("fieldSelector", REQUIRED, Text(UNLIMITED)),
            ("limit", REQUIRED, Number(1, 500)),
        ],
    ),
];

/// Returns how an object violates the rule of the call that creates it, as a strict validation does.
pub(crate) fn object_violations(path: &str, object: &Value) -> Vec<String> {
    let kind = matching_rule(CALLS, "POST", path).and_then(|rule| rule.body.as_ref());
    let mut violations = Vec::new();
    if let Some(kind) = kind {
        kind.check("body", object, &mut violations);
    }
    violations
}

pub(super) fn check(request: &LoggedRequest) -> Vec<String> {
    let mut violations = Vec::new();
    if !request.header("authorization").starts_with("Bearer ") {
        violations.push("headers: Authorization must be Bearer".to_owned());
    }
    // The API server decides by the media type how it applies a change.
    let wanted = match (request.method.as_str(), request.body.is_null()) {
        (_, true) => return violations,
        ("PATCH", _) => "application/merge-patch+json",
        _ => "application/json",
    };
    if request.header("content-type") != wanted {
        violations.push(format!("headers: Content-Type must be {wanted}"));
    }
    violations
}

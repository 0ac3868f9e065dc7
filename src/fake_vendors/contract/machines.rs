//! Fly Machines and the Docker Engine.

use super::rule::{CallRule, Field, Kind, OPTIONAL, REQUIRED, UNLIMITED};
use crate::request_log::LoggedRequest;
use Kind::{Bool, List, Map, MaybeEmpty, Number, OneOf, Record, StartsWith, Text};

const NO_QUERY: &[Field] = &[];

const FLY_MACHINE: Kind = Record(&[
    ("name", OPTIONAL, Text(63)),
    ("region", OPTIONAL, Text(UNLIMITED)),
    (
        "config",
        REQUIRED,
        Record(&[
            ("image", REQUIRED, Text(UNLIMITED)),
            (
                "init",
                OPTIONAL,
                Record(&[
                    (
                        "entrypoint",
                        OPTIONAL,
                        List(UNLIMITED, &MaybeEmpty(UNLIMITED)),
                    ),
                    ("cmd", OPTIONAL, List(UNLIMITED, &MaybeEmpty(UNLIMITED))),
                ]),
            ),
            ("env", OPTIONAL, Map(UNLIMITED, &MaybeEmpty(UNLIMITED))),
            ("guest", OPTIONAL, FLY_GUEST),
            (
                "restart",
                OPTIONAL,
                Record(&[(
                    "policy",
                    REQUIRED,
                    OneOf(&["no", "always", "on-failure", "spot-price"]),
                )]),
            ),
            ("auto_destroy", OPTIONAL, Bool),
            ("metadata", OPTIONAL, Map(UNLIMITED, &MaybeEmpty(UNLIMITED))),
        ]),
    ),
]);
const FLY_GUEST: Kind = Record(&[
    ("cpu_kind", REQUIRED, OneOf(&["shared"])),
    ("cpus", REQUIRED, Number(1, 8)),
    ("memory_mb", REQUIRED, Number(256, 16_384)),
]);
const FLY_STOP: Kind = Record(&[
    ("signal", OPTIONAL, StartsWith("SIG")),
    ("timeout", OPTIONAL, Text(UNLIMITED)),
]);

pub(super) const FLY_CALLS: &[CallRule] = &[
    CallRule::get("/v1/apps/*/machines", NO_QUERY),
    CallRule::send("POST", "/v1/apps/*/machines", FLY_MACHINE),
    CallRule::get("/v1/apps/*/machines/*", NO_QUERY),
    CallRule::send("POST", "/v1/apps/*/machines/*/stop", FLY_STOP),
    CallRule::delete("/v1/apps/*/machines/*", &[("force", OPTIONAL, Bool)]),
];

pub(super) fn check_fly(request: &LoggedRequest) -> Vec<String> {
    let mut violations = request.content_type_violations();
    let authorization = request.header("authorization");
    if !["Bearer ", "FlyV1 "]
        .iter()
        .any(|scheme| authorization.starts_with(scheme))
    {
        violations.push("headers: Authorization must be Bearer or FlyV1".to_owned());
    }
    let guest = &request.body["config"]["guest"];
    if let (Some(cpus), Some(memory)) = (guest["cpus"].as_u64(), guest["memory_mb"].as_u64()) {
        // Shared machines: certain numbers of processors, and memory in steps and by processor.
        let is_offered = matches!(cpus, 1 | 2 | 4 | 6 | 8)
            && memory.is_multiple_of(256)
            && (256 * cpus..=2_048 * cpus).contains(&memory);
        if !is_offered {
            violations.push(format!(
                "body.config.guest: {cpus} processors with {memory} MB are not offered"
            ));
        }
    }
    violations
}

const CONTAINER: Kind = Record(&[
    ("Image", REQUIRED, Text(UNLIMITED)),
    (
        "Entrypoint",
        OPTIONAL,
        List(UNLIMITED, &MaybeEmpty(UNLIMITED)),
    ),
    ("Cmd", OPTIONAL, List(UNLIMITED, &MaybeEmpty(UNLIMITED))),
    // `NAME=value`.
    ("Env", OPTIONAL, List(UNLIMITED, &Text(UNLIMITED))),
    ("User", OPTIONAL, Text(UNLIMITED)),
    ("WorkingDir", OPTIONAL, StartsWith("/")),
    ("Labels", OPTIONAL, Map(UNLIMITED, &MaybeEmpty(UNLIMITED))),
    ("HostConfig", OPTIONAL, HOST_CONFIG),
]);
const HOST_CONFIG: Kind = Record(&[
    ("NetworkMode", OPTIONAL, Text(UNLIMITED)),
    ("Init", OPTIONAL, Bool),
    ("ReadonlyRootfs", OPTIONAL, Bool),
    ("Tmpfs", OPTIONAL, Map(UNLIMITED, &MaybeEmpty(UNLIMITED))),
    ("Mounts", OPTIONAL, List(UNLIMITED, &MOUNT)),
    ("CapDrop", OPTIONAL, List(UNLIMITED, &Text(UNLIMITED))),
    ("SecurityOpt", OPTIONAL, List(UNLIMITED, &Text(UNLIMITED))),
    ("Privileged", OPTIONAL, Bool),
    ("PidsLimit", OPTIONAL, Number(1, i64::MAX)),
    // Bytes. The engine refuses less than 6 MB.
    ("Memory", OPTIONAL, Number(6 << 20, i64::MAX)),
    ("MemorySwap", OPTIONAL, Number(-1, i64::MAX)),
    ("NanoCpus", OPTIONAL, Number(1, i64::MAX)),
    // `host:address`.
    ("ExtraHosts", OPTIONAL, List(UNLIMITED, &Text(UNLIMITED))),
    (
        "RestartPolicy",
        OPTIONAL,
        Record(&[(
            "Name",
            REQUIRED,
            OneOf(&["", "no", "always", "unless-stopped", "on-failure"]),
        )]),
    ),
    ("AutoRemove", OPTIONAL, Bool),
]);

/// The engine refuses a bind of a path that does not exist, or that is not absolute.
const MOUNT: Kind = Record(&[
    ("Type", REQUIRED, OneOf(&["bind", "volume", "tmpfs"])),
    ("Source", REQUIRED, StartsWith("/")),
    ("Target", REQUIRED, StartsWith("/")),
    ("ReadOnly", OPTIONAL, Bool),
]);

pub(super) const DOCKER_CALLS: &[CallRule] = &[
    CallRule::get(
        "/containers/json",
        // A JSON text, such as {"label":["a=b"]}; see `check_docker`.
        &[
            ("all", OPTIONAL, Bool),
            ("filters", OPTIONAL, StartsWith("{")),
        ],
    ),
    CallRule {
        method: "POST",
        path: "/containers/create",
        query: &[("name", REQUIRED, Text(UNLIMITED))],
        body: Some(CONTAINER),
    },
    CallRule {
        method: "POST",
        path: "/images/create",
        query: &[
            ("fromImage", REQUIRED, Text(UNLIMITED)),
            ("tag", REQUIRED, MaybeEmpty(128)),
        ],
        body: None,
    },
    CallRule::get("/images/**/json", NO_QUERY),
    CallRule {
        method: "POST",
        path: "/build",
        query: &[
            ("t", REQUIRED, Text(UNLIMITED)),
            ("rm", OPTIONAL, Bool),
            ("forcerm", OPTIONAL, Bool),
            // A JSON text, such as {"NAME":"value"}; see `check_docker`.
            ("buildargs", OPTIONAL, StartsWith("{")),
        ],
        body: Some(StartsWith("tar archive of ")),
    },
    CallRule {
        method: "POST",
        path: "/containers/*/start",
        query: NO_QUERY,
        body: None,
    },
    CallRule::get("/containers/*/json", NO_QUERY),
    CallRule::get(
        "/containers/*/logs",
        &[
            ("stdout", OPTIONAL, Bool),
            ("stderr", OPTIONAL, Bool),
            ("tail", OPTIONAL, Number(0, i64::MAX)),
        ],
    ),
    CallRule {
        method: "POST",
        path: "/containers/*/stop",
        query: &[("t", OPTIONAL, Number(-1, i64::MAX))],
        body: None,
    },
    CallRule::delete(
        "/containers/*",
        &[("force", OPTIONAL, Bool), ("v", OPTIONAL, Bool)],
    ),
];

pub(super) fn check_docker(request: &LoggedRequest) -> Vec<String> {
    let mut violations = match request.path() {
        "/build" if request.header("content-type") == "application/x-tar" => Vec::new(),
        "/build" => {
            vec!["headers: Content-Type of a build context must be application/x-tar".to_owned()]
        }
        _ => request.content_type_violations(),
    };
    for (name, value) in request.query_pairs() {
        if name == "name" && !is_container_name(&value) {
            violations.push(format!("query.name: {value} is not a name of a container"));
        }
        if name == "buildargs" {
            let arguments = serde_json::from_slice(value.as_bytes()).unwrap_or_default();
            Map(UNLIMITED, &MaybeEmpty(UNLIMITED)).check(
                "query.buildargs",
                &arguments,
                &mut violations,
            );
        }
        if name == "filters" {
            let filters = serde_json::from_slice(value.as_bytes()).unwrap_or_default();
            Map(UNLIMITED, &List(UNLIMITED, &Text(UNLIMITED))).check(
                "query.filters",
                &filters,
                &mut violations,
            );
        }
    }
    let environment = request.body["Env"].as_array().into_iter().flatten();
    let pairs = environment.map(|pair| pair.as_str().unwrap_or_default());
    let invalid = pairs.filter(|pair| pair.find('=').is_none_or(|at| at == 0));
    violations.extend(invalid.map(|pair| format!("body.Env: {pair:.80} is not NAME=value")));
    violations
}

fn is_container_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    name.len() > 1
        && name.starts_with(is_word)
        && name
            .chars()
            .all(|c| is_word(c) || matches!(c, '_' | '.' | '-'))
}

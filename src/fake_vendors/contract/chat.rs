//! Incoming webhooks of Slack, and workflows of Microsoft Teams.

use super::rule::{CallRule, Field, Kind, OPTIONAL, REQUIRED, UNLIMITED};
use crate::request_log::LoggedRequest;
use Kind::{Bool, List, OneOf, OrNull, Record, StartsWith, Text};

/// Largest message of Teams, in bytes.
const MAX_TEAMS_BYTES: usize = 28 * 1_024;

const SLACK_MESSAGE: Kind = Record(&[
    // Shown in notifications.
    ("text", REQUIRED, Text(40_000)),
    ("blocks", OPTIONAL, List(50, &SLACK_SECTION)),
]);
const SLACK_SECTION: Kind = Record(&[
    ("type", REQUIRED, OneOf(&["section"])),
    (
        "text",
        OPTIONAL,
        Record(&[
            ("type", REQUIRED, SLACK_TEXT_TYPE),
            ("text", REQUIRED, Text(3_000)),
        ]),
    ),
    (
        "fields",
        OPTIONAL,
        List(
            10,
            &Record(&[
                ("type", REQUIRED, SLACK_TEXT_TYPE),
                ("text", REQUIRED, Text(2_000)),
            ]),
        ),
    ),
]);
const SLACK_TEXT_TYPE: Kind = OneOf(&["mrkdwn", "plain_text"]);

const TEAMS_MESSAGE: Kind = Record(&[
    ("type", REQUIRED, OneOf(&["message"])),
    ("attachments", REQUIRED, List(UNLIMITED, &TEAMS_ATTACHMENT)),
]);
const TEAMS_ATTACHMENT: Kind = Record(&[
    (
        "contentType",
        REQUIRED,
        OneOf(&["application/vnd.microsoft.card.adaptive"]),
    ),
    ("contentUrl", OPTIONAL, OrNull(&StartsWith("https://"))),
    ("content", REQUIRED, TEAMS_CARD),
]);
const TEAMS_CARD: Kind = Record(&[
    ("$schema", OPTIONAL, Text(UNLIMITED)),
    ("type", REQUIRED, OneOf(&["AdaptiveCard"])),
    (
        "version",
        REQUIRED,
        OneOf(&["1.0", "1.1", "1.2", "1.3", "1.4"]),
    ),
    (
        "msteams",
        OPTIONAL,
        Record(&[("width", OPTIONAL, OneOf(&["Full"]))]),
    ),
    ("body", REQUIRED, List(UNLIMITED, &TEAMS_ELEMENT)),
    ("actions", OPTIONAL, List(UNLIMITED, &TEAMS_ACTION)),
]);
const TEAMS_ELEMENT: Kind = Record(&[
    ("type", REQUIRED, OneOf(&["TextBlock", "FactSet"])),
    ("text", OPTIONAL, Kind::MaybeEmpty(UNLIMITED)),
    ("weight", OPTIONAL, OneOf(&["Default", "Lighter", "Bolder"])),
    (
        "size",
        OPTIONAL,
        OneOf(&["Default", "Small", "Medium", "Large", "ExtraLarge"]),
    ),
    ("wrap", OPTIONAL, Bool),
    (
        "facts",
        OPTIONAL,
        List(
            UNLIMITED,
            &Record(&[
                ("title", REQUIRED, Kind::MaybeEmpty(UNLIMITED)),
                ("value", REQUIRED, Kind::MaybeEmpty(UNLIMITED)),
            ]),
        ),
    ),
]);
/// A webhook cannot receive the answer of `Action.Submit`.
const TEAMS_ACTION: Kind = Record(&[
    ("type", REQUIRED, OneOf(&["Action.OpenUrl"])),
    ("title", OPTIONAL, Text(UNLIMITED)),
    ("url", REQUIRED, StartsWith("http")),
]);

/// The address of a workflow is issued as a whole, its parameters included.
const TEAMS_QUERY: &[Field] = &[
    ("api-version", OPTIONAL, Text(UNLIMITED)),
    ("sp", OPTIONAL, Text(UNLIMITED)),
    ("sv", OPTIONAL, Text(UNLIMITED)),
    ("sig", OPTIONAL, Text(UNLIMITED)),
];

pub(super) const CALLS: &[CallRule] = &[
    CallRule::send("POST", "/services/**", SLACK_MESSAGE),
    CallRule {
        method: "POST",
        path: "/workflows/**",
        query: TEAMS_QUERY,
        body: Some(TEAMS_MESSAGE),
    },
];

pub(super) fn check(request: &LoggedRequest) -> Vec<String> {
    let mut violations = request.content_type_violations();
    let bytes = request.body.to_string().len();
    if request.path().starts_with("/workflows/") && bytes > MAX_TEAMS_BYTES {
        violations.push(format!(
            "body: {bytes} bytes; the limit of Teams is {MAX_TEAMS_BYTES}"
        ));
    }
    violations
}

//! Fields of pull requests that land: capacity, dispatch hours, collisions and merging.

use std::path::Path;

use serde_json::{Value, json};

use super::{MAPPINGS_PATH, MappingsClient, mapping_body, minimal};

/// Window of office hours in a time zone.
fn window(time_zone: &str) -> Value {
    json!({"days": ["mon", "tue", "wed", "thu", "fri"], "from": "08:00", "to": "18:00", "timeZone": time_zone})
}

/// The same with another value of one field.
fn window_with(field: &str, value: Value) -> Value {
    let mut window = window("UTC");
    window[field] = value;
    json!({"dispatchWindow": window})
}

#[tokio::test]
async fn given_fields_are_stored_and_returned() {
    let admin = MappingsClient::start().await;
    let given = json!({
        "maxOpenPulls": 5, "maxAwaitingReview": 3, "collisions": "allow",
        "collisionIgnore": ["docs/", "**/*.snap"], "deleteBranch": true,
        "dispatchWindow": {"days": ["sun", "fri"], "from": "22:00", "to": "06:30", "timeZone": "UTC"},
        "merge": {"mode": "auto", "method": "rebase", "requireApprovals": 2, "maxFiles": 20, "maxLines": 500,
            "forbidPaths": ["infra/**"]},
    });
    let mapping = admin.saved(&mapping_body(given.clone())).await;
    for (name, value) in given.as_object().unwrap() {
        match name.as_str() {
            // In the order of the week.
            "dispatchWindow" => assert_eq!(mapping[name]["days"], json!(["fri", "sun"])),
            _ => assert_eq!(mapping[name], *value, "{name}"),
        }
    }
    let merge = json!({"merge": {"mode": "queue"}});
    let mapping = admin.saved(&mapping_body(merge)).await;
    let defaults = json!({
        "mode": "queue", "method": "squash", "requireApprovals": 1, "maxFiles": null, "maxLines": null,
        "forbidPaths": [],
    });
    assert_eq!(mapping["merge"], defaults);
    let mapping = admin.saved(&minimal()).await;
    for name in ["maxOpenPulls", "maxAwaitingReview", "dispatchWindow"] {
        assert_eq!(mapping[name], Value::Null, "{name}");
    }
    assert_eq!(mapping["merge"], json!({"mode": "never"}));
    let change = json!({"merge": null}).to_string();
    let changed = admin.request("PATCH", "/api/mappings/ENG", &change).await;
    assert_eq!(changed.0, 200, "{}", changed.1);
    let (_, stored) = admin.request("GET", "/api/mappings/ENG", "").await;
    assert_eq!(stored["merge"], json!({"mode": "never"}));
}

#[tokio::test]
async fn each_validation_rule_names_its_field() {
    let admin = MappingsClient::start().await;
    let open = "maxOpenPulls must be a whole number of at least 1";
    let awaiting = "maxAwaitingReview must be a whole number of at least 1";
    let collisions = "collisions must be wait or allow";
    let ignore = "collisionIgnore must be a list of at most 50 globs, each at most 255 bytes";
    let object = "dispatchWindow must be an object with the fields days, from, to, timeZone";
    let days =
        "dispatchWindow.days must be a list of different days: mon, tue, wed, thu, fri, sat, sun";
    let from = "dispatchWindow.from must be a time from 00:00 to 23:59, such as 08:00";
    let to = "dispatchWindow.to must be a time from 00:00 to 23:59, such as 08:00";
    let empty = "dispatchWindow.to must be another time than dispatchWindow.from";
    let zone = "dispatchWindow.timeZone must be the name of a time zone, such as Europe/Berlin";
    let merge = "merge must be an object with the fields mode, method, requireApprovals, maxFiles, maxLines, forbidPaths";
    let mode = "merge.mode must be never, auto or queue";
    let method = "merge.method must be squash, merge or rebase";
    let approvals = "merge.requireApprovals must be a whole number of at least 1";
    let auto = |field: &str, value: Value| json!({"merge": {"mode": "auto", field: value}});
    let rows = [
        (json!({"maxOpenPulls": 0}), open),
        (json!({"maxOpenPulls": 1.5}), open),
        (json!({"maxOpenPulls": "5"}), open),
        (json!({"maxAwaitingReview": -1}), awaiting),
        (json!({"collisions": "no"}), collisions),
        (json!({"collisions": true}), collisions),
        (json!({"collisionIgnore": "docs"}), ignore),
        (json!({"collisionIgnore": ["["]}), ignore),
        (json!({"collisionIgnore": vec!["x"; 51]}), ignore),
        (
            json!({"deleteBranch": "yes"}),
            "deleteBranch must be a boolean",
        ),
        (json!({"dispatchWindow": "always"}), object),
        (window_with("until", json!("18:00")), object),
        (window_with("days", json!([])), days),
        (window_with("days", json!(["mon", "mon"])), days),
        (window_with("days", json!(["Monday"])), days),
        (window_with("days", Value::Null), days),
        (window_with("from", json!("8:00")), from),
        (window_with("from", json!("24:00")), from),
        (window_with("from", json!(8)), from),
        (window_with("to", json!("18:60")), to),
        (window_with("to", json!("+1:00")), to),
        (window_with("to", json!("08:00")), empty),
        (window_with("timeZone", json!("+02:00")), zone),
        (window_with("timeZone", json!("../../etc/passwd")), zone),
        (window_with("timeZone", Value::Null), zone),
        (json!({"merge": "auto"}), merge),
        (auto("forbidpaths", json!([])), merge),
        (json!({"merge": {}}), mode),
        (json!({"merge": {"mode": "always"}}), mode),
        (auto("method", json!("fast-forward")), method),
        (auto("requireApprovals", json!(0)), approvals),
        (auto("requireApprovals", json!("1")), approvals),
        (
            auto("maxFiles", json!(0)),
            "merge.maxFiles must be a whole number of at least 1",
        ),
        (
            auto("maxLines", json!(-5)),
            "merge.maxLines must be a whole number of at least 1",
        ),
        (
            auto("forbidPaths", json!([7])),
            "merge.forbidPaths must be a list of at most 50 globs, each at most 255 bytes",
        ),
    ];
    for (fields, text) in rows {
        admin.assert_rejected(mapping_body(fields), text).await;
    }
    assert_eq!(
        admin.request("GET", MAPPINGS_PATH, "").await,
        (200, json!({}))
    );
}

/// UTC is part of the program. Every other time zone is one of the machine, or refused with what to do.
#[tokio::test]
async fn a_time_zone_is_one_that_the_machine_knows() {
    let admin = MappingsClient::start().await;
    let text = |name: &str| {
        format!(
            "dispatchWindow.timeZone: this machine has no time zone {name}. Check the name, as in Europe/Berlin, and that the time zone data is installed (Debian: apt install tzdata). UTC needs none"
        )
    };
    let body = |name: &str| mapping_body(json!({"dispatchWindow": window(name)}));
    let unknown = "Europe/Atlantis";
    admin.assert_rejected(body(unknown), &text(unknown)).await;
    let change = body(unknown).to_string();
    admin.saved(&minimal()).await;
    let patch = json!({"dispatchWindow": window(unknown)}).to_string();
    let (status, response) = admin.request("PATCH", "/api/mappings/ENG", &patch).await;
    assert_eq!(
        (status, response["error"].as_str()),
        (400, Some(&*text(unknown)))
    );
    let (_, checked) = admin.request("POST", "/api/mappings/check", &change).await;
    let problems = checked["problems"].as_array().unwrap();
    let problem = problems.iter().find(|one| one["field"] == "dispatchWindow");
    assert_eq!(
        problem.unwrap()["message"],
        "Dispatch hours cannot be in Europe/Atlantis: this machine has no such time zone. Check the name, and that its package tzdata is installed"
    );
    let file = json!({"file": {"mappings": {"ENG": body(unknown)}}}).to_string();
    let (status, refused) = admin.request("POST", "/api/projects-file", &file).await;
    assert_eq!(status, 400, "{refused}");
    assert!(
        refused.to_string().contains("mappings.ENG.dispatchWindow"),
        "{refused}"
    );
    assert_eq!(
        admin.saved(&body("UTC")).await["dispatchWindow"],
        window("UTC")
    );
    let berlin = "Europe/Berlin";
    match Path::new("/usr/share/zoneinfo").join(berlin).exists() {
        true => assert_eq!(
            admin.saved(&body(berlin)).await["dispatchWindow"],
            window(berlin)
        ),
        false => admin.assert_rejected(body(berlin), &text(berlin)).await,
    }
}

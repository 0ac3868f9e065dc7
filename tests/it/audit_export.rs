//! `GET /api/audit` with filters, and its export.

use domain::audit::{Action, Actor};
use serde_json::Value;
use std::time::Duration;
use store::audit;

use crate::api_server::{ApiServer, CLOCK_START};

/// Server whose audit has more entries than an export reads at once.
async fn server() -> ApiServer {
    let server = ApiServer::start().await;
    let write = server.store.write(|tx| {
        for number in 0..2_500_u32 {
            let (actor, action) = match number % 3 {
                0 => (Actor::service(), Action::RunDispatched),
                1 => (Actor::admin("192.0.2.7"), Action::SecretSet),
                _ => (Actor::owner(), Action::MappingUpdated),
            };
            let event = actor.audit_event(action, format!("ENG-{number}"));
            let event = event.with_detail("=HYPERLINK(\"http://evil.example\",\"x\")");
            audit::append(tx, &event, CLOCK_START + Duration::from_secs(number.into()))?;
        }
        Ok(())
    });
    write.await.unwrap();
    server
}

async fn targets(server: &ApiServer, token: &str, query: &str) -> Vec<String> {
    let path = format!("/api/audit?{query}");
    let response = server.send("GET", &path, token, None).await;
    assert_eq!(response.status, 200, "{response:?}");
    let entries = response.body.as_array().unwrap().iter();
    entries
        .map(|entry| entry["target"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn the_list_is_filtered_by_each_field() {
    let server = server().await;
    let token = server.sign_in().await;
    for (query, expected) in [
        ("target=eng-2498", vec!["ENG-2498"]),
        ("q=ENG-2497&limit=9", vec!["ENG-2497"]),
        ("action=secret-set&limit=2", vec!["ENG-2497", "ENG-2494"]),
        (
            "action=secret-set,mapping-updated&actor=OWNER&limit=2",
            vec!["ENG-2498", "ENG-2495"],
        ),
        ("actor=192.0.2.7&limit=1&before=2000", vec!["ENG-1996"]),
        (
            "from=2027-01-15T08:00:01Z&to=2027-01-15T08:00:03Z",
            vec!["ENG-2", "ENG-1"],
        ),
        ("from=2027-02-01T00:00:00Z", vec![]),
        ("target=nothing", vec![]),
    ] {
        assert_eq!(targets(&server, &token, query).await, expected, "{query}");
    }
    for (query, error) in [
        ("from=yesterday", "from must be an RFC 3339 time"),
        ("to=1", "to must be an RFC 3339 time"),
        ("limit=0", "limit must be a whole number from 1 to 500"),
        ("before=x", "before must be the seq of an entry"),
    ] {
        let path = format!("/api/audit?{query}");
        let response = server.send("GET", &path, &token, None).await;
        assert_eq!(response.error(), (400, error), "{query}");
    }
    let long = format!("/api/audit?q={}", "x".repeat(201));
    let response = server.send("GET", &long, &token, None).await;
    assert_eq!(
        response.error(),
        (400, "q must have at most 200 characters")
    );
}

#[tokio::test]
async fn an_export_is_complete_recorded_and_no_formula() {
    let server = server().await;
    let token = server.sign_in().await;
    let export = async |query: &str| {
        let path = format!("/api/audit/export{query}");
        let response = server.send("GET", &path, &token, None).await;
        assert_eq!(response.status, 200, "{response:?}");
        response
    };
    let csv = export("").await;
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(
        csv.header("content-disposition"),
        "attachment; filename=\"audit.csv\""
    );
    let lines: Vec<&str> = csv.text.lines().collect();
    assert_eq!(lines[0], "seq,at,actor,action,target,detail,hash");
    assert_eq!(
        lines.len(),
        1 + 2_500 + 2,
        "the sign-in and the export follow"
    );
    let start = "\"1\",\"2027-01-15T08:00:00.000Z\",\"service\",\"run-dispatched\",\"ENG-0\",\
                 \"'=HYPERLINK(\"\"http://evil.example\"\",\"\"x\"\")\",\"";
    assert!(lines[1].starts_with(start), "{}", lines[1]);
    assert!(lines[2_502].contains("\"audit-exported\",\"audit\",\"csv\""));

    let json = export("?format=jsonl&action=secret-set&from=2027-01-15T08:30:00Z").await;
    assert_eq!(json.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = json
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // From ENG-1800 on, every third entry.
    assert_eq!(lines.len(), 233);
    assert_eq!(lines[0]["target"], "ENG-1801");
    let last = server.send("GET", "/api/audit?limit=1", &token, None).await;
    assert_eq!(
        last.body[0]["detail"],
        "jsonl action=secret-set from=2027-01-15T08:30:00Z"
    );
    let wrong = server
        .send("GET", "/api/audit/export?format=pdf", &token, None)
        .await;
    assert_eq!(wrong.error(), (400, "format must be csv or jsonl"));
    let strange = server.send("GET", "/api/audit/export", "", None).await;
    assert_eq!(strange.error(), (401, "Unauthorized"));
}

//! Tests of reading comments, texts and attachments, and of optional status values, against a stub server.

use super::tests::{client, fields, issue_ref, mapping, searches, wire_issue};
use super::*;
use crate::ticketing::AttachmentError;
use domain::issue::Attachment;
use domain::ticket_comment::{CommentWatch, TicketComment};
use domain::time::Timestamp;
use serde_json::Value;
use test_support::{StubReply, TestServer};

fn comment(id: &str, account_type: &str, properties: Value) -> Value {
    json!({
        "id": id, "body": adf::from_markdown("Use *blue*."), "properties": properties,
        "created": "2026-11-21T01:00:00.000+0000", "updated": "2026-11-21T01:05:00.000+0000",
        "author": {"accountId": format!("a-{id}"), "displayName": "Ada", "accountType": account_type},
    })
}

fn issue(id: &str) -> IssueRef {
    IssueRef {
        id: IssueId::from(id),
        ..issue_ref(None)
    }
}

fn numbered(range: std::ops::Range<u64>) -> Vec<Value> {
    let issues = range.map(|number| {
        let mut issue = wire_issue(number, "Ready", "shop", json!([]));
        issue["fields"]["updated"] = json!("2026-11-21T01:00:00.000+0000");
        issue
    });
    issues.collect()
}

#[tokio::test]
async fn a_field_without_an_optional_value_is_learned_once() {
    let server = TestServer::start(|request, _| match request.path.as_str() {
        path if path.ends_with("/field") => fields(),
        _ if request.body.contains("Needs Input") => {
            let message = "The option 'Needs Input' for field 'cf[50]' does not exist.";
            StubReply::json(400, &json!({"errorMessages": [message]}))
        }
        _ => {
            let issues = [wire_issue(2, "Plan Ready", "shop", json!([]))];
            StubReply::json(200, &json!({"issues": issues, "isLast": true}))
        }
    })
    .await;
    let (jira, mapping) = (
        client(&server),
        mapping("SHOP", "project = A", "shop", None),
    );
    let waiting = CommentWatch {
        waiting: vec![(issue("10002"), Timestamp::EPOCH)],
        ..CommentWatch::default()
    };
    // Without an issue that waits, the optional values are not listed at all.
    for (watch, expected) in [
        (&CommentWatch::default(), 1),
        (&waiting, 3),
        (&waiting, 4),
        (&CommentWatch::default(), 5),
        (&waiting, 6),
    ] {
        let poll = jira.snapshot(&[&mapping], watch).await.unwrap();
        assert_eq!(poll.issues[0].stage, Stage::PlanReady);
        assert_eq!(searches(&server).len(), expected);
    }
}

#[tokio::test]
async fn an_optional_stage_leaves_a_field_without_its_value_as_it_is() {
    for (option, is_error) in [("Needs Input", true), ("Other", false)] {
        let server = TestServer::start(move |request, _| match request.path.as_str() {
            path if path.ends_with("/field") => fields(),
            path if path.ends_with("/10007") => StubReply::json(
                400,
                &json!({"errorMessages": ["Option value is not valid"]}),
            ),
            path if path.contains("/option") => {
                let options = [json!({"id": "1", "value": option})];
                StubReply::json(200, &json!({"values": options, "isLast": true}))
            }
            _ => StubReply::json(200, &json!({"values": [{"id": "7"}], "isLast": true})),
        })
        .await;
        let jira = client(&server);
        let set = jira.set_stage(&issue_ref(None), Stage::NeedsInput).await;
        assert_eq!(set.is_err(), is_error, "{option}");
        assert!(
            jira.set_stage(&issue_ref(None), Stage::Planning)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_poll_reads_comments_of_announced_waiting_and_changed_issues() {
    let server = TestServer::start(|request, _| match request.path.as_str() {
        path if path.ends_with("/field") => fields(),
        path if path.ends_with("/myself") => StubReply::json(200, &json!({"accountId": "a-2"})),
        path if path.contains("/comment?orderBy=-created&maxResults=50&expand=properties") => {
            StubReply::json(
                200,
                &json!({"comments": [comment("1", "atlassian", json!([]))]}),
            )
        }
        path if path.ends_with("/issue/bulkfetch") => {
            // The poll lists the other one. One was deleted.
            assert_eq!(request.json()["issueIdsOrKeys"], json!(["88", "89"]));
            let changed =
                json!({"id": "88", "fields": {"updated": "2026-11-21T03:00:00.000+0000"}});
            StubReply::json(200, &json!({"issues": [changed]}))
        }
        _ => StubReply::json(200, &json!({"issues": numbered(0..13), "isLast": true})),
    })
    .await;
    let (jira, mapping) = (
        client(&server),
        mapping("SHOP", "project = A", "shop", None),
    );
    let since = Timestamp::parse("2026-11-21T00:00:00Z").unwrap();
    let mut watch = CommentWatch {
        waiting: vec![(issue("10002"), since), (issue("77"), since)],
        announced: vec![issue("10002")],
        earlier: vec![issue("10003"), issue("88"), issue("89")],
        // The time of the last change: a system may count whole seconds.
        commands_since: Timestamp::parse("2026-11-21T01:00:00Z"),
        reads_each_issue: false,
    };
    // The announced issue; then two that wait and ten that changed; then the rest that changed, among them one of an
    // earlier run; then only those that wait.
    for (reads_each_issue, reads, is_complete) in [
        (false, 1, false),
        (true, 11, false),
        (true, 6, true),
        (true, 2, true),
    ] {
        watch.reads_each_issue = reads_each_issue;
        let before = server.requests().len();
        let poll = jira.snapshot(&[&mapping], &watch).await.unwrap();
        let requests = server.requests()[before..].to_vec();
        let found = requests
            .iter()
            .filter(|one| one.path.contains("/comment"))
            .count();
        assert_eq!(
            (found, poll.comments_read),
            (reads, is_complete),
            "{reads_each_issue}"
        );
        assert_eq!(poll.comments.len(), reads);
        assert_eq!(
            poll.issues[0].updated_at,
            Timestamp::parse("2026-11-21T01:00:00Z")
        );
    }
}

#[tokio::test]
async fn a_poll_survives_comments_that_cannot_be_read() {
    let server = TestServer::start(|request, _| match request.path.contains("/issue/77/") {
        true => StubReply::json(404, &json!({"errorMessages": ["gone"]})),
        false => StubReply::json(403, &json!({"errorMessages": ["no"]})),
    })
    .await;
    let since = Timestamp::EPOCH;
    for (id, is_read) in [("77", true), ("78", false)] {
        let watch = CommentWatch {
            waiting: vec![(issue(id), since)],
            reads_each_issue: true,
            ..CommentWatch::default()
        };
        let poll = client(&server).snapshot(&[], &watch).await.unwrap();
        assert_eq!(
            (poll.comments_read, poll.comments.len()),
            (is_read, 0),
            "{id}"
        );
    }
}

#[tokio::test]
async fn reads_a_ticket_with_its_comments_and_attachments() {
    let server = TestServer::start(|request, _| match request.path.contains("/comment") {
        _ if request.path.ends_with("/myself") => {
            StubReply::json(200, &json!({"accountId": "a-2"}))
        }
        true => {
            let own = json!([{"key": "agent-implement", "value": {"effect": "e1"}}]);
            let comments = [
                comment("5", "atlassian", own.clone()),
                comment("4", "app", json!([])),
                comment("3", "customer", json!([])),
                comment("2", "atlassian", own),
                comment("1", "atlassian", json!([])),
                comment("0", "atlassian", Value::Null),
            ];
            StubReply::json(200, &json!({"comments": comments}))
        }
        false => {
            let mut ticket = wire_issue(7, "Ready", "shop", json!([]));
            ticket["fields"]["attachment"] = json!([
                {"id": 31, "filename": "a.png", "size": 7},
                {"id": "../31", "filename": "b.png", "size": 7},
            ]);
            StubReply::json(200, &ticket)
        }
    })
    .await;
    let ticket = client(&server).read_ticket(&issue_ref(None)).await.unwrap();
    assert_eq!(
        (ticket.title.as_str(), ticket.description.as_str()),
        ("t", "Please.")
    );
    let kind = |one: &TicketComment| (one.id.clone(), one.author.kind, one.effect_id.clone());
    use AuthorKind::{Other, Person, Service};
    let expected = [
        ("0", Other, None),
        ("1", Person, None),
        ("2", Service, Some("e1")),
        ("3", Other, None),
        ("4", Other, None),
        ("5", Other, None),
    ];
    let expected =
        expected.map(|(id, kind, effect)| (id.to_owned(), kind, effect.map(str::to_owned)));
    assert_eq!(
        ticket.comments.iter().map(kind).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(ticket.comments[1].body, "Use *blue*.");
    let [attachment] = &ticket.attachments[..] else {
        panic!("{:?}", ticket.attachments);
    };
    assert_eq!(
        attachment.url,
        format!("{}/rest/api/3/attachment/content/31", server.url)
    );
    assert_eq!(
        (attachment.title.as_str(), attachment.bytes),
        ("a.png", Some(7))
    );
}

#[tokio::test]
async fn a_download_goes_to_the_media_host_without_the_credential() {
    let server = TestServer::start(|request, _| {
        let content = |id: &str| format!("/rest/api/3/attachment/content/{id}?redirect=false");
        let to = |target: &str| StubReply::json(303, &Value::Null).header("location", target);
        match request.path.as_str() {
            path if path == content("1") => StubReply::json(200, &json!("direct")),
            path if path == content("2") => to("/media/file"),
            path if path == content("3") => to("http://localhost:1/file"),
            path if path == content("4") => to("/media/loop"),
            "/media/loop" => to("/media/file"),
            "/media/file" => {
                assert_eq!(request.header("authorization"), None);
                StubReply::json(200, &json!("media"))
            }
            path => panic!("{path}"),
        }
    })
    .await;
    let jira = client(&server);
    let download = async |url: String, max| {
        let attachment = Attachment {
            url,
            title: "t".into(),
            bytes: None,
        };
        jira.download_attachment(&attachment, max).await
    };
    let url = |id: &str| format!("{}/rest/api/3/attachment/content/{id}", server.url);
    assert_eq!(download(url("1"), 100).await.unwrap(), b"\"direct\"");
    assert_eq!(download(url("2"), 100).await.unwrap(), b"\"media\"");
    let too_large = download(url("2"), 3).await.unwrap_err();
    assert!(matches!(
        too_large,
        AttachmentError::TooLarge { max_bytes: 3 }
    ));
    for foreign in [
        url("3"),
        url("4"),
        url("../../myself"),
        url("1/2"),
        "http://evil.example/1".into(),
    ] {
        let error = download(foreign.clone(), 100).await.unwrap_err();
        assert!(
            matches!(error, AttachmentError::ForeignAddress),
            "{foreign}"
        );
    }
}

#[tokio::test]
async fn permission_decides_who_may_edit_where_it_can_be_read() {
    let server = TestServer::start(|request, _| {
        assert!(
            request
                .path
                .contains("permissions=EDIT_ISSUES&maxResults=1000&issueKey=OPS-7&accountId=")
        );
        match request.path.rsplit('=').next() {
            Some("allowed") => StubReply::json(200, &json!([{"accountId": "allowed"}])),
            Some("unknown") => StubReply::json(403, &Value::Null),
            _ => StubReply::json(200, &json!([])),
        }
    })
    .await;
    let jira = client(&server);
    for (id, kind, expected) in [
        ("allowed", AuthorKind::Person, true),
        ("reader", AuthorKind::Person, false),
        ("unknown", AuthorKind::Person, true),
        ("allowed", AuthorKind::Other, false),
    ] {
        let author = CommentAuthor {
            id: id.into(),
            name: String::new(),
            email: None,
            kind,
        };
        assert_eq!(
            jira.may_edit(&issue_ref(None), &author).await.unwrap(),
            expected,
            "{id} {kind:?}"
        );
    }
}

#[tokio::test]
async fn the_end_of_the_history_tells_who_set_the_status() {
    let server = TestServer::start(|request, _| {
        if request.path.ends_with("/field") {
            return fields();
        }
        let entry = |by: &str, field: &str, value: &str, hour: u64| {
            json!({
                "author": {"accountId": by, "accountType": "atlassian"},
                "created": format!("2026-11-21T0{hour}:00:00.000+0000"),
                "items": [{"field": "x", "fieldId": field, "toString": value}],
            })
        };
        let values = match request.path.contains("startAt=150") {
            true => json!([
                entry("ada", "customfield_50", "Plan Approved", 2),
                entry("bob", "customfield_50", "Plan Approved", 1),
                entry("eve", "customfield_51", "Plan Approved", 4),
                entry("eve", "customfield_50", "Ready", 3),
            ]),
            false => json!([entry("old", "customfield_50", "Plan Approved", 9)]),
        };
        StubReply::json(200, &json!({"total": 250, "values": values}))
    })
    .await;
    let author = client(&server)
        .marker_author(&issue_ref(None), Stage::PlanApproved)
        .await;
    assert_eq!(author.unwrap().unwrap().id, "ada");
}

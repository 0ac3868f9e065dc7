//! Tests of reading comments, texts and uploads against a stub server.

use super::*;
use crate::http::test_client;
use crate::scm::ScmCredentials;
use crate::ticketing::AttachmentError;
use domain::issue::{Attachment, System};
use domain::secret::Secret;
use domain::stage::Stage;
use domain::ticket_comment::{AuthorKind, CommentAuthor, CommentWatch};
use domain::time::Timestamp;
use serde_json::{Value, json};
use test_support::{StubReply, TestServer};

fn client(server: &TestServer) -> GitHubIssues {
    let token = ScmCredentials::Token(Secret::new("tok"));
    let api = format!("{}/api/v3", server.url);
    GitHubIssues::new(GitHub::new(test_client("GitHub"), &api, token))
}

fn issue(server: &TestServer, number: u64) -> IssueRef {
    IssueRef {
        system: System::GitHub,
        id: IssueId::new(format!("I_{number}")),
        key: format!("shop#{number}").as_str().into(),
        title: "t".into(),
        url: format!("{}/acme/shop/issues/{number}", server.url),
        marker_field: None,
    }
}

fn comment(body: &str) -> Value {
    json!({
        "id": "IC_1", "body": body, "createdAt": "2026-11-21T01:00:00Z", "lastEditedAt": null,
        "viewerDidAuthor": false, "author": {"__typename": "User", "login": "mona", "name": null},
    })
}

fn data(data: Value) -> StubReply {
    StubReply::json(200, &json!({ "data": data }))
}

#[tokio::test]
async fn a_poll_reads_watched_comments_with_one_request() {
    let server = TestServer::start(|request, _| {
        let query = request.json()["query"].as_str().unwrap().to_owned();
        let comments = json!({"comments": {"nodes": [comment("blue"), null]}});
        if query.contains("{ ... on Issue { updatedAt } }") {
            return data(json!({"n0": {"updatedAt": "2026-11-21T02:30:00Z"}}));
        }
        if !query.contains("comments(last: 50)") {
            let node = json!({
                "id": "I_3", "number": 3, "title": "t", "url": "https://github.com/acme/shop/issues/3", "parent": null,
                "createdAt": "2026-11-21T01:00:00Z", "updatedAt": "2026-11-21T02:00:00Z",
                "issueDependenciesSummary": {"totalBlockedBy": 0},
            });
            let page = json!({"hasNextPage": false, "endCursor": null});
            return data(json!({"r0": {
                "visibility": "PRIVATE", "l4": {"nodes": [node], "pageInfo": page},
            }}));
        }
        let count = request.json()["variables"].as_object().unwrap().len();
        let nodes = (0..count).map(|at| (format!("n{at}"), comments.clone()));
        data(Value::Object(nodes.collect()))
    })
    .await;
    let github = client(&server);
    let mapping =
        json!({"teamKey": "A", "owner": "acme", "repo": "shop", "ticketingProvider": "C"});
    let mapping = test_support::mapping(&mapping);
    let since = Timestamp::parse("2026-11-21T01:30:00Z").unwrap();
    let watch = CommentWatch {
        waiting: vec![(issue(&server, 1), since)],
        announced: vec![issue(&server, 2), issue(&server, 1)],
        ..CommentWatch::default()
    };
    let with_commands = CommentWatch {
        commands_since: Some(since),
        ..watch.clone()
    };
    let with_earlier = CommentWatch {
        earlier: vec![issue(&server, 3), issue(&server, 4)],
        reads_each_issue: true,
        ..with_commands.clone()
    };
    // The flagged issue changed since the commands were read; in the second poll it did not change again. Then the same
    // for an issue of an earlier run.
    for (watch, requests, comments) in [
        (CommentWatch::default(), 1, 0),
        (watch, 2, 2),
        (with_commands.clone(), 2, 3),
        (with_commands, 2, 2),
        (with_earlier.clone(), 3, 3),
        (with_earlier, 3, 2),
    ] {
        let before = server.requests().len();
        let poll = github.snapshot(&[&mapping], &watch).await.unwrap();
        assert_eq!(server.requests().len() - before, requests);
        let expected = (comments, watch.reads_each_issue);
        assert_eq!((poll.comments.len(), poll.comments_read), expected);
    }
}

#[tokio::test]
async fn large_comments_of_one_issue_do_not_hide_those_of_others() {
    let server = TestServer::start(|request, _| {
        let variables = request.json()["variables"].as_object().unwrap().clone();
        let nodes = variables.iter().map(|(name, id)| {
            let is_flooded = id == "I_2";
            let body = if is_flooded {
                "x".repeat(65 << 20)
            } else {
                "blue".to_owned()
            };
            let comments = json!({"comments": {"nodes": [comment(&body)]}});
            (name.replace('i', "n"), comments)
        });
        data(Value::Object(nodes.collect()))
    })
    .await;
    let mut poll = domain::issue::PollResult::default();
    let watch = CommentWatch {
        waiting: (1..=5)
            .map(|number| (issue(&server, number), Timestamp::EPOCH))
            .collect(),
        ..CommentWatch::default()
    };
    client(&server).read_watched(&watch, &mut poll).await;
    assert!(!poll.comments_read);
    let mut read: Vec<&str> = poll.comments.iter().map(|one| one.issue.as_str()).collect();
    read.sort_unstable();
    assert_eq!(read, ["I_1", "I_3", "I_4", "I_5"]);
}

#[tokio::test]
async fn a_poll_survives_comments_that_cannot_be_read() {
    let server = TestServer::start(|_, _| StubReply::json(403, &json!({"message": "no"}))).await;
    let mut poll = domain::issue::PollResult::default();
    let watch = CommentWatch {
        waiting: vec![(issue(&server, 1), Timestamp::EPOCH)],
        ..CommentWatch::default()
    };
    client(&server).read_watched(&watch, &mut poll).await;
    assert!(!poll.comments_read);
}

#[tokio::test]
async fn reads_a_ticket_with_its_comments_and_uploads() {
    let server = TestServer::start(|request, _| {
        if request.json()["variables"]["i0"] != "I_7" {
            let error = json!({"type": "NOT_FOUND", "message": "no node", "path": ["n0"]});
            return StubReply::json(200, &json!({"data": {"n0": null}, "errors": [error]}));
        }
        let host = format!("http://{}", request.header("host").unwrap());
        let body =
            format!("<img src=\"{host}/user-attachments/assets/1\"> {host}/acme/shop/issues/1");
        let nodes = [comment(&format!(
            "[log]({host}/user-attachments/files/2/log.txt)"
        ))];
        data(json!({"n0": {"title": "Add x", "body": body, "comments": {"nodes": nodes}}}))
    })
    .await;
    let github = client(&server);
    let ticket = github.read_ticket(&issue(&server, 7)).await.unwrap();
    assert!(
        ticket.description.starts_with("<img"),
        "{}",
        ticket.description
    );
    let titles: Vec<&str> = ticket
        .attachments
        .iter()
        .map(|one| one.title.as_str())
        .collect();
    assert_eq!(titles, ["1", "log"]);
    assert_eq!(ticket.comments[0].author.id, "mona");
    let missing = github.read_ticket(&issue(&server, 8)).await.unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
}

#[tokio::test]
async fn a_download_is_redirected_once_without_the_token() {
    let server = TestServer::start(|request, _| {
        let to = |target: &str| StubReply::json(302, &Value::Null).header("location", target);
        let has_token = request.header("authorization").is_some();
        match (request.path.as_str(), has_token) {
            ("/user-attachments/assets/1", true) => to("/storage/1"),
            ("/user-attachments/assets/2", true) => to("https://evil.example/1"),
            ("/user-attachments/assets/3", true) => to("/storage/loop"),
            ("/storage/loop", false) => to("/storage/1"),
            ("/storage/1", false) => StubReply::json(200, &json!("file")),
            other => panic!("{other:?}"),
        }
    })
    .await;
    let github = client(&server);
    let issue = issue(&server, 7);
    let download = async |path: &str| {
        let url = format!("{}{path}", server.url);
        let attachment = Attachment {
            url,
            title: "t".into(),
            bytes: None,
        };
        github.download_attachment(&issue, &attachment, 10).await
    };
    assert_eq!(
        download("/user-attachments/assets/1").await.unwrap(),
        b"\"file\""
    );
    for foreign in [
        "/user-attachments/assets/2",
        "/user-attachments/assets/3",
        "/storage/1",
    ] {
        let error = download(foreign).await.unwrap_err();
        assert!(
            matches!(error, AttachmentError::ForeignAddress),
            "{foreign}"
        );
    }
}

#[tokio::test]
async fn people_with_write_permission_may_edit() {
    let server = TestServer::start(|request, _| match request.path.contains("/mona/") {
        true => StubReply::json(
            200,
            &json!({"permission": "write", "role_name": "maintain"}),
        ),
        false => StubReply::json(200, &json!({"permission": "read", "role_name": "triage"})),
    })
    .await;
    for (login, kind, expected) in [
        ("mona", AuthorKind::Person, true),
        ("mallory", AuthorKind::Person, false),
        ("mona", AuthorKind::Other, false),
    ] {
        let author = CommentAuthor {
            id: login.into(),
            name: login.into(),
            email: None,
            kind,
        };
        let may_edit = client(&server)
            .may_edit(&issue(&server, 1), &author)
            .await
            .unwrap();
        assert_eq!(may_edit, expected, "{login} {kind:?}");
    }
}

#[tokio::test]
async fn the_timeline_tells_who_set_a_label() {
    let server = TestServer::start(|_, _| {
        let event = |kind: &str, login: &str, label: &str| {
            json!({"actor": {"__typename": kind, "login": login}, "label": {"name": label}})
        };
        data(json!({"n0": {"timelineItems": {"nodes": [
            event("User", "mona", "Plan-Approved"),
            event("Bot", "robot", "plan-approved"),
            event("User", "mona", "bug"),
        ]}}}))
    })
    .await;
    let github = client(&server);
    let author = github
        .marker_author(&issue(&server, 1), Stage::PlanApproved)
        .await;
    let author = author.unwrap().unwrap();
    assert_eq!(
        (author.id.as_str(), author.kind),
        ("robot", AuthorKind::Other)
    );
    let unset = github
        .marker_author(&issue(&server, 1), Stage::NeedsInput)
        .await;
    assert_eq!(unset.unwrap(), None);
}

//! Tests of reading comments, texts and uploads against a stub server.

use super::*;
use crate::http::test_client;
use crate::ticketing::AttachmentError;
use domain::ids::IssueId;
use domain::issue::{Attachment, System};
use domain::secret::Secret;
use domain::stage::Stage;
use domain::ticket_comment::{AuthorKind, CommentWatch};
use domain::time::Timestamp;
use std::time::Duration;
use test_support::{RecordedRequest, StubReply, TestServer};

fn client(server: &TestServer) -> Linear {
    let key = LinearCredentials::ApiKey(Secret::new("lin_api_key"));
    let linear = Linear::new(test_client("Linear"), &server.url, key);
    linear.with_uploads_url(&format!("{}/up", server.url))
}

fn issue(id: &str) -> IssueRef {
    IssueRef {
        system: System::Linear,
        id: IssueId::from(id),
        key: "ENG-7".into(),
        title: "t".into(),
        url: "u".into(),
        marker_field: None,
    }
}

fn data(data: Value) -> StubReply {
    StubReply::json(200, &json!({ "data": data }))
}

fn comment(id: &str, body: &str, author: Value) -> Value {
    let mut comment = json!({
        "id": id, "body": body, "issueId": "uuid-7", "user": null, "botActor": null, "externalUser": null,
        "createdAt": "2026-11-21T01:00:00.000Z", "updatedAt": "2026-11-21T01:05:00.000Z",
    });
    for (field, value) in author.as_object().unwrap() {
        comment[field] = value.clone();
    }
    comment
}

fn person() -> Value {
    json!({"user": {"id": "u1", "name": "Ada", "email": "ada@acme.example", "app": false}})
}

fn issues() -> Value {
    json!({"nodes": [], "pageInfo": {"hasNextPage": false, "endCursor": null}})
}

fn watch(waiting: &[(&str, u64)], commands_since: Option<u64>) -> CommentWatch {
    let at = |seconds| Timestamp::EPOCH + Duration::from_secs(seconds);
    let waiting = waiting
        .iter()
        .map(|(id, seconds)| (issue(id), at(*seconds)));
    CommentWatch {
        waiting: waiting.collect(),
        commands_since: commands_since.map(at),
        ..CommentWatch::default()
    }
}

fn query(request: &RecordedRequest) -> String {
    request.json()["query"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_poll_asks_for_comments_in_its_one_request() {
    let server = TestServer::start(|request, _| {
        let filter = &request.json()["variables"]["comments"];
        assert_eq!(
            filter["or"],
            json!([
                {"issue": {"id": {"in": ["uuid-7", "uuid-8"]}}, "createdAt": {"gte": "1970-01-01T00:00:50.000Z"}},
                {"body": {"startsWith": "/agent-implement"}, "createdAt": {"gte": "1970-01-01T00:00:09.000Z"}},
            ])
        );
        let first = comment("c1", "blue", person());
        let elsewhere = comment("c2", "/agent-implement", json!({"issueId": null}));
        data(json!({"issues": issues(), "comments": {"nodes": [first, elsewhere]}}))
    })
    .await;
    let watch = watch(&[("uuid-7", 60), ("uuid-8", 50)], Some(9));
    let poll = client(&server).snapshot(&[], &watch).await.unwrap();
    assert_eq!((server.requests().len(), poll.comments_read), (1, true));
    let [found] = &poll.comments[..] else {
        panic!("{:?}", poll.comments);
    };
    assert_eq!((found.id.as_str(), found.body.as_str()), ("c1", "blue"));
    assert_eq!(found.issue, IssueId::from("uuid-7"));
    assert_eq!(found.author.email.as_deref(), Some("ada@acme.example"));
    assert!(found.updated_at > found.created_at && found.is_by_person());
}

#[tokio::test]
async fn a_poll_without_a_watch_asks_for_no_comments() {
    let server = TestServer::start(|request, _| {
        assert!(!query(request).contains("comments"));
        data(json!({"issues": issues()}))
    })
    .await;
    let poll = client(&server).snapshot(&[], &watch(&[], None)).await;
    assert!(poll.unwrap().comments_read);
}

#[tokio::test]
async fn more_comments_than_a_page_take_more_requests() {
    let server = TestServer::start(|request, before| {
        assert_eq!(query(request).contains("issues("), before == 0);
        let page = |more: bool| json!({"hasNextPage": more, "endCursor": "n"});
        let rows = [comment(&format!("c{before}"), "x", person())];
        data(json!({"issues": issues(), "comments": {"nodes": rows, "pageInfo": page(before < 2)}}))
    })
    .await;
    let poll = client(&server)
        .snapshot(&[], &watch(&[("uuid-7", 1)], None))
        .await;
    let ids: Vec<String> = poll
        .unwrap()
        .comments
        .into_iter()
        .map(|one| one.id)
        .collect();
    assert_eq!(ids, ["c0", "c1", "c2"]);
}

#[tokio::test]
async fn a_poll_survives_comments_that_cannot_be_read() {
    for refused_at in [0, 1] {
        let server = TestServer::start(move |request, before| {
            if query(request).contains("comments(") && before == refused_at {
                let error = json!({"message": "no", "extensions": {"code": "INPUT_ERROR", "userError": true}});
                return StubReply::json(200, &json!({"data": null, "errors": [error]}));
            }
            let more = json!({"hasNextPage": true, "endCursor": "n"});
            data(json!({"issues": issues(), "comments": {"nodes": [], "pageInfo": more}}))
        })
        .await;
        let poll = client(&server)
            .snapshot(&[], &watch(&[("uuid-7", 1)], None))
            .await;
        assert!(!poll.unwrap().comments_read, "{refused_at}");
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn reads_a_ticket_with_its_comments_and_uploads() {
    let server = TestServer::start(|_, _| {
        let ours = deterministic_uuid("e1");
        let app = json!({"user": {"id": "a1", "name": "Bot", "email": null, "app": true}});
        let bot = json!({"user": {"id": "u1", "name": "Ada", "email": null}, "botActor": {"id": null}});
        let mut late = comment("late", "see [log](https://uploads.acme.example/2) [b](http://elsewhere/up/3)", person());
        late["createdAt"] = json!("2026-11-21T02:00:00.000Z");
        let rows = [
            late,
            comment(&ours, "plan", person()),
            comment("app", "x", app),
            comment("bot", "x", bot),
            comment("outside", "x", json!({"externalUser": {"id": "x1"}})),
            comment("ghost", "x", json!({})),
        ];
        let description = "![shot](https://uploads.acme.example/1/a.png)".to_owned();
        data(json!({"issue": {"title": "Add\u{200b} x", "description": description, "comments": {"nodes": rows}}}))
    })
    .await;
    let linear = client(&server).with_uploads_url("https://uploads.acme.example");
    let ticket = linear.read_ticket(&issue("uuid-7")).await.unwrap();
    assert_eq!(ticket.title, "Add x");
    let titles = ticket.attachments.iter().map(|one| one.title.as_str());
    assert_eq!(titles.collect::<Vec<_>>(), ["shot", "log"]);
    let kinds: Vec<AuthorKind> = ticket.comments.iter().map(|one| one.author.kind).collect();
    use AuthorKind::{Other, Person, Service};
    assert_eq!(kinds, [Other, Other, Other, Other, Service, Person]);
    assert_eq!(ticket.comments[5].id, "late");
}

#[tokio::test]
async fn downloads_uploads_with_the_credential_and_within_the_limit() {
    let server = TestServer::start(|request, _| {
        assert_eq!(request.header("authorization"), Some("lin_api_key"));
        match request.path.as_str() {
            "/up/file" => StubReply::json(200, &json!("content")),
            "/up/moved" => StubReply::json(302, &Value::Null).header("location", "/up/file"),
            path => panic!("{path}"),
        }
    })
    .await;
    let linear = client(&server);
    let download = async |url: String, max| {
        let attachment = Attachment {
            url,
            title: "t".into(),
            bytes: Some(1),
        };
        linear.download_attachment(&attachment, max).await
    };
    let url = |path: &str| format!("{}{path}", server.url);
    assert_eq!(download(url("/up/file"), 9).await.unwrap(), b"\"content\"");
    let too_large = download(url("/up/file"), 6).await.unwrap_err();
    assert!(matches!(
        too_large,
        AttachmentError::TooLarge { max_bytes: 6 }
    ));
    for foreign in [
        url("/up/moved"),
        url("/graphql"),
        url("/up/../graphql"),
        server.url.replace("127.0.0.1", "localhost") + "/up/file",
        "not a url".to_owned(),
    ] {
        let error = download(foreign.clone(), 100).await.unwrap_err();
        assert!(
            matches!(error, AttachmentError::ForeignAddress),
            "{foreign}"
        );
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn the_latest_entry_of_the_history_tells_who_set_a_label() {
    let server = TestServer::start(|_, _| {
        let entry = |label: &str, actor: Value, bot: Value| {
            json!({"addedLabels": [{"name": label}], "actor": actor, "botActor": bot})
        };
        let ada = json!({"id": "u1", "name": "Ada", "email": null, "app": false});
        data(json!({"issue": {"history": {"nodes": [
            {"addedLabels": null, "actor": null, "botActor": null},
            entry("bug", Value::Null, json!({"id": "b1"})),
            entry("Plan-Approved", ada, Value::Null),
            entry("Plan-Approved", Value::Null, json!({"id": "b1"})),
        ]}}}))
    })
    .await;
    let linear = client(&server);
    let author = linear
        .marker_author(&issue("uuid-7"), Stage::PlanApproved)
        .await;
    let author = author.unwrap().unwrap();
    assert_eq!(
        (author.id.as_str(), author.kind),
        ("u1", AuthorKind::Person)
    );
    let nobody = linear
        .marker_author(&issue("uuid-7"), Stage::PlanReady)
        .await;
    assert_eq!(nobody.unwrap(), None);
}

//! Requests that read comments, texts and attachments of tickets.

use domain::issue::System;
use domain::stage::Stage;
use domain::ticket_comment::{AuthorKind, CommentAuthor, CommentWatch};
use domain::time::Timestamp;
use fake_vendors::FakeUpload;

use crate::test_env::TestEnv;

/// Reads one ticket of Linear and one of Jira in every way that questions and approvals need.
pub async fn read_tickets(env: &TestEnv) {
    let (linear, jira) = (env.vendors.linear(), env.vendors.jira());
    let upload = linear.upload("a.txt", FakeUpload::Content(b"text".to_vec()));
    let text = format!("See [a.txt]({upload}).");
    linear
        .issue("OPS-290")
        .title("Talk")
        .describe(&text)
        .comment("/agent-implement status");
    linear.issue("OPS-290").add_label("Plan-Approved");
    let ticket = jira
        .issue("TALK-1")
        .title("Talk")
        .repo("shop")
        .comment("Hello");
    ticket
        .attach("a.txt", 4, FakeUpload::Content(b"text".to_vec()))
        .status("Plan Approved");
    let fields = serde_json::json!({
        "teamKey": "TALK", "ticketingProvider": "B",
        "ticketingConfig": {"jql": "project = TALK", "repoFieldValue": "shop"},
    });
    let mapping = test_support::mapping(&fields);
    for (system, key) in [(System::Linear, "OPS-290"), (System::Jira, "TALK-1")] {
        let account = env.app.vendors.account(system).unwrap();
        let mut watch = CommentWatch {
            commands_since: Some(Timestamp::EPOCH),
            earlier: Vec::new(),
            reads_each_issue: true,
            ..CommentWatch::default()
        };
        let poll = account.snapshot(&[&mapping], &watch).await.unwrap();
        let mut issues = poll.issues.iter();
        let issue = issues
            .find(|flagged| flagged.issue.key.as_str() == key)
            .unwrap();
        let issue = issue.issue.clone();
        watch.waiting = vec![(issue.clone(), Timestamp::EPOCH)];
        let poll = account.snapshot(&[&mapping], &watch).await.unwrap();
        assert!(
            poll.comments
                .iter()
                .any(|comment| comment.issue == issue.id)
        );
        let text = account.read_ticket(&issue).await.unwrap();
        let [attachment] = &text.attachments[..] else {
            panic!("{:?}", text.attachments);
        };
        let content = account.download_attachment(&issue, attachment, 100).await;
        assert_eq!(content.unwrap(), b"text");
        let author = account
            .marker_author(&issue, Stage::PlanApproved)
            .await
            .unwrap();
        let author: CommentAuthor = author.unwrap();
        assert_eq!(author.kind, AuthorKind::Person);
        assert!(account.may_edit(&issue, &author).await.unwrap());
    }
}

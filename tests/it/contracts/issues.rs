//! Exercises every method of the client of GitHub Issues.

use domain::issue::{System, TriggerAuthor};
use domain::mapping::Mapping;
use domain::stage::Stage;
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;
use vendors::ticketing::{CommentLookup, IssueTracker, TicketingClient};

use crate::test_env::TestEnv;
use crate::test_ticket::github_mapping;

pub async fn exercise_github_issues(env: &TestEnv) {
    let lib = env.vendors.github().repo("acme", "lib");
    lib.seed(&[("README.md", "# Lib\n")], "Begin").unwrap();
    lib.set_visibility("public");
    let parent = lib.issue(1).title("Parent");
    let other = lib.issue(2).title("Other").child_of(1);
    let ticket = lib.issue(3).title("Do it").child_of(1).blocked_by(2);
    ticket
        .clone()
        .describe("Please.")
        .add_label("Agent-Implement");
    lib.create_labelled_issues(120, "Agent-Implement");
    let account = env.app.vendors.account(System::GitHub).unwrap();
    let TicketingClient::GitHub(github) = &account else {
        panic!("GitHub is not configured")
    };
    account.probe().await.unwrap();
    let mapping = github_mapping("LIB", "acme", "lib");
    let repo = mapping.target_repo();
    assert_eq!(
        github.issue_tracker(&repo).await.unwrap(),
        IssueTracker::Enabled
    );
    assert!(github.has_label(&repo, "agent-implement").await.unwrap());
    assert!(!github.has_label(&repo, "repo:web").await.unwrap());
    let mappings = [&mapping];
    let polled = account
        .snapshot(&mappings, &CommentWatch::default())
        .await
        .unwrap()
        .issues;
    assert_eq!(polled.len(), 121, "two pages");
    let flagged = polled
        .iter()
        .find(|issue| issue.issue.key.as_str() == "lib#3");
    let flagged = flagged.unwrap();
    assert_eq!(flagged.open_blockers.len(), 1);
    assert_eq!(
        flagged.trigger_author,
        TriggerAuthor::Person("robin".into())
    );
    assert_eq!(
        flagged.related.parent.as_deref(),
        Some("lib#1: Parent (open)")
    );
    let issue = flagged.issue.clone();

    for stage in [
        Stage::Planning,
        Stage::PlanComplete,
        Stage::Implementing,
        Stage::PrOpened,
        Stage::ImplementationFailed,
        Stage::Retriggered,
    ] {
        account.set_stage(&issue, stage).await.unwrap();
    }
    assert_eq!(ticket.labels(), ["Agent-Implement"]);
    for expected in [CommentLookup::NotFound, CommentLookup::Found] {
        let found = account.look_up_comment(&issue, "effect-1", "Once.", Timestamp::EPOCH);
        assert_eq!(found.await.unwrap(), expected);
        if expected == CommentLookup::NotFound {
            account
                .create_comment(&issue, "effect-1", "Once.")
                .await
                .unwrap();
        }
    }
    let effects = ["effect-1".to_owned(), "effect-2".to_owned()];
    for body in ["Twice.", "Once."] {
        account
            .edit_comment(&issue, "effect-1", body)
            .await
            .unwrap();
        let ours = account.comments(&issue, &effects).await.unwrap();
        assert_eq!(ours, [body]);
    }
    let never = account.edit_comment(&issue, "effect-2", "Never.").await;
    assert!(never.unwrap_err().is_not_found());
    let comment = account.create_comment(&issue, "effect-3", "Soon gone.");
    comment.await.unwrap();
    account.delete_comment(&issue, "effect-3").await.unwrap();
    let again = account.delete_comment(&issue, "effect-3").await;
    assert!(again.unwrap_err().is_not_found());
    account
        .link_pull_request(&issue, "PR #7", "https://github.test/acme/lib/pull/7")
        .await
        .unwrap();

    for (key, found) in [
        ("lib#3", 1),
        ("acme/lib#3", 1),
        ("lib#999", 0),
        ("umbrella/lib#3", 0),
    ] {
        let lookups = account.find_issue(&mappings, &key.into()).await.unwrap();
        assert_eq!(lookups.len(), found, "{key}");
    }
    let unmapped: [&Mapping; 0] = [];
    assert!(
        account
            .find_issue(&unmapped, &issue.key)
            .await
            .unwrap()
            .is_empty()
    );
    let issues = [issue.clone()];
    let contexts = account.run_contexts(&issues).await.unwrap();
    let context = &contexts[&issue.id];
    assert_eq!(context.siblings, ["lib#2: Other (open)"]);
    assert_eq!(context.description.as_deref(), Some("Please."));
    assert!(account.closed_issues(&issues).await.unwrap().is_empty());
    ticket.complete();
    assert!(
        account
            .closed_issues(&issues)
            .await
            .unwrap()
            .contains(&issue.id)
    );
    drop((parent, other));
}

//! Waits that end without an approval: another plan, a rejection, and the end of the ticket. Reminders.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::{NOT_WAITING, Story, error, kim};
use crate::test_ticket::{SYSTEMS, poll_comments, settle};

#[tokio::test(flavor = "multi_thread")]
async fn another_plan_follows_the_words_of_people() {
    for system in SYSTEMS {
        let story = Story::planned(system, |_| ()).await;
        let words = "use sqlite instead\nand keep `cart.rs`";
        let command = format!("/agent-implement replan {words}");
        story.ticket.comment_as(&kim(), &command);
        story.env.advance_clock(Duration::from_secs(1));
        story.waits(2).await;
        let prompt = story.prompt();
        assert!(prompt.contains("use sqlite instead"), "{prompt}");
        let reply = "The plan is made again, as Kim asked.";
        assert_eq!(story.ticket.count(reply), 1);

        let body = Some(json!({"instruction": "Without a cache"}));
        story.env.advance_clock(Duration::from_secs(1));
        let planning = story.post("replan", body).await;
        assert_eq!(planning, (202, json!({"planning": true})));
        let again = story.post("replan", None).await;
        assert_eq!(error(&again), NOT_WAITING);
        story.waits(3).await;
        let prompt = story.prompt();
        assert!(prompt.contains("Without a cache"), "{prompt}");
        assert_eq!(story.ticket.count("The plan is made again, as "), 2);

        assert_eq!(story.post("approve", None).await.0, 200);
        story.implemented().await;
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_ticket_is_planned_again_when_its_trigger_is_set_anew() {
    for system in SYSTEMS {
        let story = Story::planned(system, |_| ()).await;
        for (round, by_comment) in [(1, true), (2, false)] {
            match by_comment {
                true => story.ticket.comment_as(&kim(), "/agent-implement reject"),
                false => {
                    let rejected = story.post("reject", None).await;
                    assert_eq!(rejected, (200, json!({"rejected": true})));
                }
            }
            let rejected = || story.ticket.count("Plan rejected by ") == round;
            story.env.tick_until("the plan is rejected", rejected).await;
            settle(&story.env).await;
            assert_eq!(story.ticket.markers(), [""; 0]);
            let retries = story.env.store.read(store::operator_retries::all);
            assert_eq!(retries.unwrap(), BTreeSet::new());
            let late = story.post("approve", None).await;
            assert_eq!(error(&late), NOT_WAITING);
            story.nothing_happens().await;
            if by_comment {
                story.ticket.comment_as(&kim(), "/agent-implement status");
                story.commented("No run of this ticket is active.").await;
            }
            story.env.advance_clock(Duration::from_secs(1));
            story.ticket.trigger();
            story.waits(round + 1).await;
            let gate = story.env.store.read(store::plan_gates::all).unwrap();
            let (issue, now) = (gate[0].issue.id.clone(), story.env.app.core.now());
            let record =
                move |tx: &store::WriteTx<'_>| store::operator_retries::record(tx, &issue, now);
            story.env.store.write(record).await.unwrap();
        }
        let comment = "Plan rejected by Kim. Nothing more happens until the trigger is set again.";
        assert_eq!(story.ticket.count(comment), 1);
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_reminds_once_and_never_expires() {
    for system in SYSTEMS {
        let story = Story::planned(system, |_| ()).await;
        story.env.advance_clock(Duration::from_secs(71 * 3600));
        poll_comments(&story.env).await;
        assert_eq!(story.ticket.count("Reminder: "), 0);
        for _ in 0..3 {
            story.env.advance_clock(Duration::from_secs(3 * 24 * 3600));
            poll_comments(&story.env).await;
            settle(&story.env).await;
        }
        assert_eq!(story.ticket.count("Reminder: the plan above"), 1);
        let plans = story.plans().await;
        assert!(plans[0]["remindedAt"].is_string(), "{plans}");
        assert_eq!(story.post("approve", None).await.0, 200);
        story.implemented().await;
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_end_a_wait_by_closing_the_ticket_or_removing_its_trigger() {
    for system in SYSTEMS {
        for is_closed in [true, false] {
            let story = Story::planned(system, |_| ()).await;
            story.ticket.end_wait(&story.env, is_closed).await;
            assert_eq!(story.plans().await, json!([]), "{system:?}");
            story.nothing_happens().await;
            story.env.finish().await;
        }
    }
}

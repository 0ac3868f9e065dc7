//! Answers during outages, and questions of a service without an address.

use std::time::Duration;

use serde_json::json;

use super::Story;
use crate::test_env::TestEnvOptions;
use crate::test_ticket::SYSTEMS;

#[tokio::test(flavor = "multi_thread")]
async fn answers_during_an_outage_of_the_ticketing_system_count_after_it() {
    for system in SYSTEMS {
        for by_comment in [true, false] {
            let story = Story::start(system, |_| ()).await;
            story.ask().await;
            let faults = story.env.vendors.faults(story.ticket.vendor());
            faults.set_outage(true);
            match by_comment {
                true => story.ticket.comment("EUR in the dark"),
                false => {
                    let answered = story.answer(json!({"answer": "EUR in the dark"})).await;
                    assert_eq!(answered.0, 202, "{}", answered.1);
                }
            }
            for _ in 0..3 {
                story.env.advance_clock(Duration::from_secs(1));
                story.env.tick().await;
            }
            assert_eq!(story.jobs().len(), 1);
            faults.set_outage(false);
            story.env.advance_clock(Duration::from_secs(5));
            story.complete_after_comment().await;
            assert_eq!(story.jobs().len(), 2);
            story.assert_continued("begun\ndone\n");
            assert!(story.prompt().contains("EUR in the dark"));
            story.env.finish().await;
        }
    }
}
#[tokio::test(flavor = "multi_thread")]
async fn questions_need_no_address_of_the_service() {
    for system in SYSTEMS {
        let options = TestEnvOptions {
            extra_flags: vec![("--runner-mode", "ci".to_owned())],
            behind_nat: true,
            ..TestEnvOptions::default()
        };
        let story = Story::with_options(system, |_| (), options).await;
        story.env.repo().allow_actions_to_open_pulls();
        story.ask().await;
        story.ticket.comment("EUR from afar");
        story.complete_after_comment().await;
        assert_eq!(story.jobs().len(), 2);
        story.assert_continued("begun\ndone\n");
        let prompt = story.prompt();
        assert!(prompt.contains("EUR from afar"), "{prompt}");
        story.env.finish().await;
    }
}

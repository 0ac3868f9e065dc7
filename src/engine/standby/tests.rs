use std::time::Duration;

use futures_util::FutureExt;

use super::*;

/// Standby without tasks. Nothing is in the place.
fn standby(leased: Duration) -> Standby {
    let status = watch::Sender::new(StandbyStatus::default());
    status.send_modify(|status| status.leased_until = BootTime::now() + leased);
    Standby {
        store: Store::in_memory().unwrap(),
        status,
        demand: Arc::new(Notify::new()),
    }
}

impl Standby {
    fn set(&self, change: impl FnOnce(&mut StandbyStatus)) {
        self.status.send_modify(change);
    }
}

async fn covered(standby: &Standby) -> bool {
    standby.covered_within(Duration::from_millis(100)).await
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_end_of_a_lease_is_seen_before_the_next_step_of_an_effect() {
    let standby = standby(Duration::ZERO);
    // As after a suspend, the effect can go on at once.
    tokio::select! {
        biased;
        () = standby.lapsed() => {}
        () = std::future::ready(()) => panic!("the effect went on"),
    }
}

#[tokio::test]
async fn a_lease_that_is_lost_ends_effects_under_way() {
    let standby = standby(MINUTE);
    let lapsed = tokio::time::timeout(Duration::from_millis(100), standby.lapsed());
    assert!(lapsed.await.is_err());
    standby.set(|status| status.report_lost("another machine works".to_owned()));
    let lapsed = tokio::time::timeout(3 * LAPSE_CHECK_INTERVAL, standby.lapsed());
    lapsed.await.unwrap();
    assert!(
        standby.permit().now_or_never().is_none(),
        "nothing is in the place"
    );
}

#[tokio::test]
async fn only_what_is_in_the_place_is_acknowledged() {
    let standby = standby(MINUTE);
    assert!(!covered(&standby).await, "the place does not answer");
    standby.set(|status| status.report_shipped(0, Timestamp::EPOCH));
    assert!(covered(&standby).await);
    standby.set(StandbyStatus::report_incomplete);
    assert!(!covered(&standby).await, "only a new backup has the change");
    assert!(!standby.is_open());
    standby.set(|status| status.report_lease_problem(&away(), Timestamp::EPOCH));
    assert!(
        !covered(&standby).await,
        "one failed renewal says nothing about changes"
    );
    // A place that is away is a problem that is reported, and nobody is kept waiting by it while the lease lasts.
    let until = BootTime::now() + MINUTE;
    standby.set(|status| status.report_ship_problem(&away(), Timestamp::EPOCH, until));
    assert!(covered(&standby).await);
    standby.set(|status| status.acknowledged_until = BootTime::default());
    assert!(!covered(&standby).await, "nothing reaches the place");
    standby.set(|status| status.report_ship_problem(&away(), Timestamp::EPOCH, until));
    assert!(!covered(&standby).await, "it is the same problem");
    standby.set(|status| status.report_shipped(0, Timestamp::EPOCH));
    standby.set(|status| status.leased_until = BootTime::default());
    assert!(!covered(&standby).await, "another machine may work");
}

fn away() -> PlaceError {
    PlaceError::Slow {
        place: "s3://backups".to_owned(),
        limit: Duration::from_secs(9),
    }
}

use domain::time::Timestamp;
use vendors::http::Redactor;

use super::*;
use crate::config::{PlaceConfig, ProxyConfig};

const TIMINGS: StandbyTimings = StandbyTimings {
    lease: Duration::from_millis(400),
    renewal: Duration::from_millis(50),
    margin: Duration::from_millis(100),
    interval: Duration::from_secs(1),
};

/// Place in a folder, whose first holder `a` was followed by `b`.
struct Place {
    dir: tempfile::TempDir,
    place: StandbyPlace,
    of_a: PlaceRecord,
    of_b: PlaceRecord,
    tag: ObjectTag,
}

fn identity(id: &str) -> StandbyIdentity {
    StandbyIdentity {
        id: id.to_owned(),
        epoch: None,
        renewal: None,
    }
}

impl Place {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = PlaceConfig::Folder(dir.path().to_owned());
        let place = StandbyPlace::open(&config, &ProxyConfig::default(), &Redactor::default());
        let place = place.unwrap();
        let of_a = PlaceRecord::first(&identity("a"), 400, Timestamp::EPOCH);
        let of_b = PlaceRecord {
            holder: "b".to_owned(),
            epoch: 2,
            ..of_a.clone()
        };
        let Replaced::Done(tag) = place.replace_record(&of_b, None).await.unwrap() else {
            panic!("the place is not empty");
        };
        Self {
            dir,
            place,
            of_a,
            of_b,
            tag,
        }
    }

    fn lease_of_b(&self, until: BootTime) -> Lease {
        Lease {
            place: self.place.clone(),
            folder: IdentifiedFolder {
                identity: identity("b"),
                path: self.dir.path().join("data"),
            },
            clock: Clock::System,
            timings: TIMINGS,
            record: self.of_b.clone(),
            tag: self.tag.clone(),
            until,
            resumed: None,
        }
    }

    /// Writes the record of `a`, as a write that has hung on the way does.
    async fn write_late(&self) {
        let late = self.place.replace_record(&self.of_a, Some(&self.tag)).await;
        assert!(matches!(late.unwrap(), Replaced::Done(_)));
    }

    async fn holder(&self) -> String {
        self.place.read_record().await.unwrap().unwrap().0.holder
    }
}

async fn renew(lease: &mut Lease) -> Result<(), RenewalError> {
    lease.renew(&BackupList::default()).await
}

#[tokio::test]
async fn a_late_write_of_the_predecessor_is_overwritten() {
    let place = Place::new().await;
    let mut lease = place.lease_of_b(BootTime::now() + Duration::from_secs(9));
    place.write_late().await;
    assert!(renew(&mut lease).await.is_ok());
    assert_eq!(place.holder().await, "b");
}

#[tokio::test]
async fn a_lease_that_has_ended_is_lost_to_any_other_holder() {
    let place = Place::new().await;
    let mut lease = place.lease_of_b(BootTime::default());
    place.write_late().await;
    let lost = renew(&mut lease).await;
    assert!(matches!(lost, Err(RenewalError::Lost(_))));
    assert_eq!(place.holder().await, "a");
}

#[tokio::test]
async fn a_lease_that_has_ended_goes_on_when_no_other_holder_can_have_it() {
    let place = Place::new().await;
    let mut lease = place.lease_of_b(BootTime::default());
    assert!(renew(&mut lease).await.is_ok());
    assert!(
        !lease.is_held(),
        "another holder may write its record again"
    );
    tokio::time::sleep(TIMINGS.lease / 2).await;
    assert!(renew(&mut lease).await.is_ok());
    assert!(!lease.is_held());
    tokio::time::sleep(TIMINGS.lease).await;
    assert!(renew(&mut lease).await.is_ok());
    assert!(lease.is_held());
}

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
            unanswered: None,
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

#[tokio::test]
async fn a_live_copy_of_a_service_loses_the_lease() {
    let place = Place::new().await;
    let lease = || place.lease_of_b(BootTime::now() + Duration::from_secs(9));
    let (mut original, mut copy) = (lease(), lease());
    assert!(renew(&mut original).await.is_ok());
    // Else both renew in the same millisecond.
    let pause = || tokio::time::sleep(Duration::from_millis(5));
    pause().await;
    assert!(matches!(renew(&mut copy).await, Err(RenewalError::Lost(_))));
    assert!(renew(&mut original).await.is_ok());
    pause().await;
    let mut reverted = lease();
    let lost = renew(&mut reverted).await;
    assert!(matches!(lost, Err(RenewalError::Lost(_))));
    assert!(renew(&mut original).await.is_ok());
}

#[tokio::test]
async fn a_renewal_without_an_answer_ends_no_lease() {
    let place = Place::new().await;
    let mut lease = place.lease_of_b(BootTime::now() + Duration::from_secs(9));
    // The folder is away, then it has the renewal although nobody has received that.
    let (root, away) = (
        place.dir.path().join("standby.json"),
        place.dir.path().join("away"),
    );
    std::fs::rename(&root, &away).unwrap();
    std::fs::create_dir(&root).unwrap();
    assert!(matches!(
        renew(&mut lease).await,
        Err(RenewalError::Failed(_))
    ));
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    let unanswered = PlaceRecord {
        renewal: lease.record.renewal + 1,
        renewed_at: lease.unanswered.unwrap(),
        ..lease.record.clone()
    };
    let replaced = place
        .place
        .replace_record(&unanswered, Some(&place.tag))
        .await;
    assert!(matches!(replaced.unwrap(), Replaced::Done(_)));
    assert!(renew(&mut lease).await.is_ok());
    assert!(renew(&mut lease).await.is_ok());

    // A write that hung long ago is performed now.
    let (_, tag) = place.place.read_record().await.unwrap().unwrap();
    let late = place.place.replace_record(&unanswered, Some(&tag)).await;
    assert!(matches!(late.unwrap(), Replaced::Done(_)));
    let renewal = lease.record.renewal;
    assert!(renew(&mut lease).await.is_ok());
    assert_eq!(lease.record.renewal, renewal + 1);
}

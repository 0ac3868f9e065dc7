use domain::time::Timestamp;
use vendors::http::Redactor;

use super::*;
use crate::config::{PlaceConfig, ProxyConfig};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

struct Place {
    dir: tempfile::TempDir,
    place: StandbyPlace,
}

impl Place {
    /// A place in which machine `a` has a backup and a lease, by a clock that is far behind.
    async fn of_a(lease: Duration, adjust: impl FnOnce(&mut StoredBackup)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = PlaceConfig::Folder(dir.path().to_owned());
        let place = StandbyPlace::open(&config, &ProxyConfig::default(), &Redactor::default());
        let place = place.unwrap();
        let mut backup = StoredBackup::begun("1".to_owned(), NOW);
        backup.parts = Some(1);
        adjust(&mut backup);
        let lease_ms = lease.as_millis() as u64;
        let record = PlaceRecord {
            backups: vec![backup],
            ..PlaceRecord::first(&identity("a"), lease_ms, Timestamp::EPOCH)
        };
        place.replace_record(&record, None).await.unwrap();
        Self { dir, place }
    }

    async fn claim(&self, id: &str, has_key: bool) -> Result<ClaimedLease, TakeOverError> {
        let take_over = TakeOver {
            place: &self.place,
            identity: &identity(id),
            held: HeldLease::Await,
            has_key,
            clock: &Clock::System,
            notify: &|_| {},
        };
        take_over.claim().await
    }

    async fn record(&self) -> PlaceRecord {
        self.place.read_record().await.unwrap().unwrap().0
    }
}

impl ClaimedLease {
    /// The same claim on a machine that was copied while it was running.
    fn copy(&self) -> Self {
        Self {
            place: self.place.clone(),
            clock: self.clock.clone(),
            record: self.record.clone(),
            tag: self.tag.clone(),
            unanswered: self.unanswered,
            previous_host: self.previous_host.clone(),
        }
    }
}

fn identity(id: &str) -> StandbyIdentity {
    StandbyIdentity {
        id: id.to_owned(),
        epoch: None,
        renewal: None,
    }
}

#[tokio::test]
async fn a_restore_that_fails_gives_the_lease_back() {
    let place = Place::of_a(Duration::from_millis(100), |_| {}).await;
    let claimed = place.claim("b", true).await.unwrap();
    let failed = async { Err::<(), _>(TakeOverError::NoBackup("x".to_owned())) };
    claimed.hold_during(failed).await.unwrap_err();
    let record = place.record().await;
    assert_eq!((record.holder.as_str(), record.epoch), ("b", 2));
    assert!(record.released);
    let claimed = place.claim("a", true).await.unwrap();
    assert!(!place.record().await.released);
    assert_eq!(claimed.record().epoch, 3);
}

#[tokio::test]
async fn a_claim_is_renewed_during_the_restore() {
    let lease = Duration::from_millis(400);
    let place = Place::of_a(lease, |_| {}).await;
    let claimed = place.claim("b", true).await.unwrap();
    let restore = async {
        tokio::time::sleep(3 * lease).await;
        Ok::<_, TakeOverError>(())
    };
    let other = async {
        let claim = tokio::time::timeout(2 * lease, place.claim("c", true));
        assert!(claim.await.is_err(), "claimed beside a restore");
    };
    let (restored, ()) = tokio::join!(claimed.hold_during(restore), other);
    restored.unwrap();
    assert_eq!(place.record().await.holder, "b");
}

#[tokio::test]
async fn a_live_copy_of_a_claim_loses_it() {
    let place = Place::of_a(Duration::from_millis(100), |_| {}).await;
    let mut claimed = place.claim("b", true).await.unwrap();
    let mut copy = claimed.copy();
    claimed.renew(false).await.unwrap();
    // Else both renew in step.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let error = copy.renew(false).await.unwrap_err();
    assert!(matches!(error, TakeOverError::Overtaken(_)), "{error}");
    claimed.renew(false).await.unwrap();
}

#[tokio::test]
async fn a_renewal_of_a_claim_without_an_answer_ends_nothing() {
    let place = Place::of_a(Duration::from_millis(100), |_| {}).await;
    let mut claimed = place.claim("b", true).await.unwrap();
    let mut unanswered = claimed.copy();
    let sent = *claimed.unanswered.insert(NOW);
    unanswered.unanswered = Some(sent);
    unanswered.renew(false).await.unwrap();
    claimed.renew(false).await.unwrap();
    claimed.renew(true).await.unwrap();
    assert!(place.record().await.released);
}

#[tokio::test]
async fn a_machine_that_cannot_restore_claims_nothing() {
    let lease = Duration::from_millis(100);
    let with_secrets = Place::of_a(lease, |backup| backup.sealed_secrets = 2).await;
    let error = with_secrets.claim("b", false).await.err().unwrap();
    assert!(matches!(error, TakeOverError::KeyMissing(2)), "{error}");
    let newer = Place::of_a(lease, |backup| backup.schema = Some(99)).await;
    let error = newer.claim("b", true).await.err().unwrap();
    assert!(matches!(error, TakeOverError::NewerSchema(_)), "{error}");
    let incomplete = Place::of_a(lease, |backup| backup.parts = None).await;
    let error = incomplete.claim("b", true).await.err().unwrap();
    assert!(matches!(error, TakeOverError::NoBackup(_)), "{error}");
    for place in [with_secrets, newer, incomplete] {
        assert_eq!(place.record().await.holder, "a");
    }
}

#[tokio::test]
async fn clocks_are_not_compared() {
    let place = Place::of_a(Duration::from_secs(60), |_| {}).await;
    let claim = place.claim("b", true);
    let claim = tokio::time::timeout(Duration::from_millis(300), claim);
    assert!(claim.await.is_err());
}

#[tokio::test]
async fn only_a_first_start_that_was_interrupted_restores_nothing() {
    let place = Place::of_a(Duration::from_secs(60), |_| {}).await;
    let relation_of = async |id: &str, epoch| {
        let identity = StandbyIdentity {
            epoch,
            ..identity(id)
        };
        relation(&place.place, &identity, |_| true).await.unwrap()
    };
    assert_eq!(relation_of("a", Some(1)).await, StoreRelation::Current);
    assert_eq!(relation_of("a", None).await, StoreRelation::Earlier);
    assert_eq!(relation_of("b", None).await, StoreRelation::Unknown);
    assert_eq!(relation_of("b", Some(1)).await, StoreRelation::Earlier);
    let replace = async |record: PlaceRecord| {
        let tag = place.place.read_record().await.unwrap().unwrap().1;
        let replaced = place.place.replace_record(&record, Some(&tag)).await;
        assert!(matches!(replaced.unwrap(), Replaced::Done(_)));
    };
    // The backups of a series are no reason to replace the store that they are of.
    let record = place.record().await;
    replace(PlaceRecord {
        epoch: 0,
        series: true,
        ..record.clone()
    })
    .await;
    assert_eq!(relation_of("a", None).await, StoreRelation::Unknown);
    replace(PlaceRecord {
        backups: Vec::new(),
        ..record
    })
    .await;
    assert_eq!(relation_of("a", None).await, StoreRelation::Current);
    assert_eq!(relation_of("b", None).await, StoreRelation::Unknown);
}

/// A holder whose lease has ended may still write.
#[tokio::test]
async fn files_that_are_written_while_others_are_read_are_not_damaged() {
    let place = Place::of_a(Duration::from_secs(60), |_| {}).await;
    let folder = place.dir.path().join("1");
    let path = |number: u64| folder.join(format!("changes-{number:06}"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(path(1), "1").unwrap();
    // Keeps the reader of this one waiting until the one before it is there.
    let made = std::process::Command::new("mkfifo").arg(path(3)).status();
    assert!(made.unwrap().success());
    let (second, third, kept) = (path(2), path(3), folder.join("kept"));
    let write = tasks::spawn_blocking(move || {
        let mut waiting = std::fs::File::create(&third).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(second, "2").unwrap();
        std::fs::write(&kept, "3").unwrap();
        std::fs::rename(&kept, &third).unwrap();
        std::io::Write::write_all(&mut waiting, b"3").unwrap();
    });
    let backup = place.record().await.backups.remove(0);
    let target = tempfile::tempdir().unwrap();
    let fetched = fetch_changes(&place.place, &backup, target.path()).await;
    write.await.unwrap();
    let content = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let fetched: Vec<String> = fetched.unwrap().iter().map(content).collect();
    assert_eq!(fetched, ["1", "2", "3"]);
}

use domain::time::Timestamp;
use store::settings::{self, OperatorSetting};
use store::{RestoredSecrets, StagedRestore};
use vendors::http::Redactor;

use super::*;
use crate::config::{PlaceConfig, ProxyConfig};
use crate::standby::PlaceRecord;
use crate::standby::take_over::fetch;

const SETTING: OperatorSetting = OperatorSetting::VmSessionsRegion;

/// Shipper to a folder, with a record that accepts every list.
fn shipper(dir: &std::path::Path) -> Shipper {
    let config = PlaceConfig::Folder(dir.to_owned());
    let place = StandbyPlace::open(&config, &ProxyConfig::default(), &Redactor::default());
    let status = watch::Sender::new(StandbyStatus::default());
    status.send_modify(|status| status.listed = u64::MAX);
    Shipper {
        place: place.unwrap(),
        store: Store::in_memory().unwrap(),
        clock: Clock::System,
        timings: StandbyTimings::default(),
        status,
        lists: watch::Sender::new(BackupList::default()),
        demand: Arc::new(Notify::new()),
        epoch: 1,
        backups: Vec::new(),
        progress: Progress::default(),
    }
}

impl Shipper {
    async fn set(&self, value: &'static str) {
        let put = |tx: &store::WriteTx<'_>| settings::put(tx, SETTING, value);
        self.store.write(put).await.unwrap();
    }

    async fn finish_background(&mut self) {
        match self.progress.background.finished().await {
            Finished::Upload(result) => self.finish_upload(result).await,
            Finished::Removal(removed) => self.finish_removal(&removed).await,
        }
    }

    /// Setting in the store that another machine would restore now.
    async fn restored(&self) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let record = PlaceRecord {
            holder: "a".to_owned(),
            host: String::new(),
            epoch: 1,
            renewal: 1,
            renewed_at: Timestamp::EPOCH,
            lease_ms: 0,
            series: false,
            released: false,
            start: None,
            backups: self.backups.clone(),
        };
        let backup = fetch(&self.place, &record, dir.path()).await.unwrap();
        let (data, now) = (dir.path().join("data"), Timestamp::EPOCH);
        let staged = StagedRestore::prepare(backup, &data, RestoredSecrets::Included, now);
        staged.unwrap().install(None, now).unwrap();
        let store = Store::open(&data).unwrap();
        store.read(|tx| settings::get(tx, SETTING)).unwrap()
    }
}

#[tokio::test]
async fn changes_are_in_the_place_while_the_next_backup_is_uploaded() {
    let dir = tempfile::tempdir().unwrap();
    let mut shipper = shipper(dir.path());
    shipper.begin_upload().await.unwrap();
    shipper.set("a").await;
    shipper.ship().await;
    assert_eq!(
        shipper.status.borrow().shipped,
        None,
        "no backup is complete"
    );
    shipper.finish_background().await;
    shipper.ship().await;
    assert_eq!(shipper.restored().await.as_deref(), Some("a"));

    shipper.set("b").await;
    shipper.begin_upload().await.unwrap();
    shipper.set("c").await;
    let commit = shipper.store.last_commit();
    shipper.ship().await;
    assert_eq!(shipper.status.borrow().shipped, Some(commit));
    assert_eq!(shipper.backups.last().unwrap().parts, None);
    assert_eq!(shipper.restored().await.as_deref(), Some("c"));
    shipper.finish_background().await;
    assert!(shipper.backups.last().unwrap().parts.is_some());
    assert_eq!(shipper.restored().await.as_deref(), Some("c"));
    shipper.set("d").await;
    shipper.ship().await;
    assert_eq!(shipper.restored().await.as_deref(), Some("d"));
}

#[tokio::test]
async fn failed_uploads_are_removed_and_keep_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let mut shipper = shipper(dir.path());
    shipper.begin_upload().await.unwrap();
    shipper.finish_background().await;
    for value in ["a", "b", "c"] {
        shipper.begin_upload().await.unwrap();
        let failed = vendors::object_store::ObjectStoreError::Folder {
            action: "writing",
            path: String::new(),
            cause: std::io::ErrorKind::TimedOut.into(),
        };
        shipper.finish_upload(Err(failed.into())).await;
        shipper.finish_background().await;
        assert_eq!(shipper.backups.len(), 2, "the last failed one is kept");
        shipper.set(value).await;
        shipper.ship().await;
        assert_eq!(shipper.status.borrow().problem(), None);
        assert_eq!(shipper.restored().await.as_deref(), Some(value));
    }
}

/// A write that hangs may be performed after the removal of its backup.
#[tokio::test]
async fn a_late_part_of_an_abandoned_upload_is_removed_with_the_next_backup() {
    let dir = tempfile::tempdir().unwrap();
    let mut shipper = shipper(dir.path());
    shipper.begin_upload().await.unwrap();
    let abandoned = dir.path().join(&shipper.backups[0].name);
    shipper.abandon_upload();
    shipper.finish_background().await;
    std::fs::create_dir(&abandoned).unwrap();
    std::fs::write(abandoned.join("backup-000001"), "late").unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    shipper.begin_upload().await.unwrap();
    shipper.finish_background().await;
    let background = &shipper.progress.background;
    assert!(matches!(background, Background::Removal(_)));
    shipper.finish_background().await;
    assert!(!abandoned.exists());
    assert_eq!(shipper.backups.len(), 1);
    assert!(shipper.backups[0].parts.is_some());
}

#[tokio::test]
async fn removed_files_of_changes_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let mut shipper = shipper(dir.path());
    shipper.begin_upload().await.unwrap();
    shipper.finish_background().await;
    for value in ["a", "b", "c"] {
        shipper.set(value).await;
        shipper.ship().await;
    }
    let name = shipper.backups[0].name.clone();
    assert_eq!(shipper.lists.borrow().backups[0].changes, 3);
    for number in [3, 2] {
        let file = dir.path().join(&name).join(format!("changes-{number:06}"));
        let content = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        // An older record does not have the number of the last files.
        for changes in [3, 0] {
            let mut record = PlaceRecord::first(
                &store::StandbyIdentity {
                    id: String::new(),
                    epoch: None,
                    renewal: None,
                },
                0,
                Timestamp::EPOCH,
            );
            record.backups = shipper.backups.clone();
            record.backups[0].changes = changes;
            let target = tempfile::tempdir().unwrap();
            let fetched = fetch(&shipper.place, &record, target.path()).await;
            assert_eq!(
                fetched.is_err(),
                number == 2 || changes == 3,
                "{number} {changes}"
            );
        }
        std::fs::write(&file, content).unwrap();
    }
}

/// A renewal may be the first to find no space, so nothing must wait for it before old backups are removed.
#[tokio::test]
async fn a_record_in_a_full_place_keeps_no_backup_from_being_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut shipper = shipper(dir.path());
    for _ in 0..3 {
        shipper.begin_upload().await.unwrap();
        shipper.finish_background().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let full = vendors::object_store::ObjectStoreError::Folder {
        action: "writing",
        path: String::new(),
        cause: std::io::ErrorKind::StorageFull.into(),
    };
    let full = PlaceError::from(full);
    shipper.status.send_modify(|status| {
        status.listed = 0;
        status.report_lease_problem(&full, Timestamp::EPOCH);
    });
    let begun = shipper.begin_upload();
    let begun = tokio::time::timeout(Duration::from_secs(5), begun).await;
    begun.unwrap().unwrap();
    assert!(matches!(shipper.progress.background, Background::Idle));
    assert!(shipper.progress.retry_at.is_some());
    shipper.make_space().await;
    let complete = |backup: &StoredBackup| backup.parts.is_some();
    let kept: Vec<bool> = shipper.backups.iter().map(complete).collect();
    assert_eq!(kept, [true, false]);

    // A backup that is complete is kept with the one before it, which is the last in the record, until it is there, too.
    shipper.status.send_modify(|status| {
        status.listed = u64::MAX;
        status.end_lease_problem();
    });
    shipper.begin_upload().await.unwrap();
    shipper.status.send_modify(|status| {
        status.listed = 0;
        status.report_lease_problem(&full, Timestamp::EPOCH);
    });
    let status = shipper.status.clone();
    let listed = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        status.send_modify(|status| status.listed = u64::MAX);
    };
    tokio::join!(shipper.finish_background(), listed);
    assert_eq!(shipper.backups.len(), 2);
    assert!(shipper.progress.current.is_some());
}

//! Tests of group commit.

use super::*;
use crate::Store;
use crate::tables::META;
use serde_json::json;

#[tokio::test]
async fn groups_concurrent_writes_into_commits() {
    let store = Store::in_memory().unwrap();
    let before = store.stats().commits;
    let writers: Vec<_> = (0..500)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                store
                    .write(move |tx| META.put(tx, format!("k{n}").as_str(), &json!(n)))
                    .await
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    for n in 0..500 {
        assert_eq!(
            store
                .read(|tx| META.get(tx, format!("k{n}").as_str()))
                .unwrap(),
            Some(json!(n))
        );
    }
    let stats = store.stats();
    assert_eq!(stats.writes, 500);
    assert!(stats.commits - before < 500, "{} commits", stats.commits);
}

#[tokio::test]
async fn a_failed_closure_changes_nothing_and_does_not_affect_others() {
    let store = Store::in_memory().unwrap();
    let slow = store.write(|tx| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        META.put(tx, "first", &json!(1))
    });
    let good = store.write(|tx| META.put(tx, "good", &json!(2)));
    let bad = store.write(|tx| -> StoreResult<()> {
        META.put(tx, "bad", &json!(3))?;
        Err(StoreError::Panicked)
    });
    let panics = store.write(|tx| -> StoreResult<()> {
        META.put(tx, "worse", &json!(4))?;
        panic!("on purpose")
    });
    let (slow, good, bad, panics) = tokio::join!(slow, good, bad, panics);
    assert!(slow.is_ok() && good.is_ok());
    assert!(bad.is_err() && panics.is_err());
    let keys = ["first", "good", "bad", "worse"];
    let is_kept = |key: &&str| store.read(|tx| META.get(tx, *key)).unwrap().is_some();
    let kept: Vec<&str> = keys.into_iter().filter(is_kept).collect();
    assert_eq!(kept, ["first", "good"]);
}

#[tokio::test]
async fn no_result_depends_on_rejected_writes() {
    let probe = DiskSpaceProbe::new(|| Some(5 << 20));
    let store = Store::with_backend(redb::backends::InMemoryBackend::new(), probe).unwrap();
    let slow = store.write(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        Ok(())
    });
    let put_once = || {
        store.write(|tx| {
            let is_new = META.get(tx, "once")?.is_none();
            if is_new {
                META.put(tx, "once", &json!(1))?;
            }
            Ok(is_new)
        })
    };
    let read = store.write(|tx| Ok(META.get(tx, "once")?.is_some()));
    let (slow, first, second, seen) = tokio::join!(slow, put_once(), put_once(), read);
    slow.unwrap();
    for result in [first, second] {
        assert!(matches!(result, Err(StoreError::DiskFull(_))), "{result:?}");
    }
    assert!(!seen.unwrap(), "nothing was written");
    assert!(store.is_healthy());
}

#[tokio::test]
async fn rejects_writes_but_not_reads_while_the_disk_is_full() {
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let probed = Arc::clone(&free);
    let probe = DiskSpaceProbe::new(move || Some(probed.load(Ordering::Relaxed)));
    let store = Store::with_backend(redb::backends::InMemoryBackend::new(), probe).unwrap();
    let put = |key: &'static str| store.write(move |tx| META.put(tx, key, &json!(1)));
    put("before").await.unwrap();
    free.store(5 << 20, Ordering::Relaxed);
    let refused = put("refused").await;
    assert!(matches!(refused, Err(StoreError::DiskFull(free)) if free == 5 << 20));
    // A closure that writes nothing is not rejected. The watchdog relies on this.
    store.write(|_| Ok(())).await.unwrap();
    let bypassing = store.write(|tx| {
        tx.bypass_space_check();
        META.put(tx, "happened", &json!(1))
    });
    bypassing.await.unwrap();
    assert!(store.is_healthy());
    free.store(u64::MAX, Ordering::Relaxed);
    put("after").await.unwrap();
    let keys = ["before", "refused", "happened", "after"];
    let is_kept = |key: &&str| store.read(|tx| META.get(tx, *key)).unwrap().is_some();
    let kept: Vec<&str> = keys.into_iter().filter(is_kept).collect();
    assert_eq!(kept, ["before", "happened", "after"]);
}

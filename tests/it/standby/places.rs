//! Places of a standby: damaged, not mounted, without rights or conditions, with a limit, and with a series of backups.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use fake_vendors::{BucketRefusal, FakeService, InjectedFault};
use reqwest::Method;
use serde_json::json;

use super::{Machines, health, set_cap, wait_until};
use crate::process::{ServiceProcess, command, control_request, exit_and_output, run};

/// AWS answers so if the key has no right to list the bucket. It must not look like an empty place, or one that is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_not_list_the_bucket_is_refused() {
    let machines = Machines::new().await;
    machines.env.vendors.bucket().hide_missing();
    let (code, stderr) = machines.failed_start(&machines.first_dir(), 0);
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("s3:ListBucket for the bucket"), "{stderr}");
}

/// A bucket that does not exist is not an empty place.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_does_not_exist_is_refused() {
    let machines = Machines::new().await;
    let bucket = machines.env.vendors.bucket();
    bucket.refuse(BucketRefusal::NoSuchBucket);
    let (code, stderr) = machines.failed_start(&machines.first_dir(), 0);
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("NoSuchBucket"), "{stderr}");
    let (code, _, stderr) = machines.restore(&machines.second_dir(), &["--when-free"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("NoSuchBucket"), "{stderr}");
}

/// A machine that has just started may not have the time yet, so the service manager tries again.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_is_not_a_missing_right() {
    let machines = Machines::new().await;
    let bucket = machines.env.vendors.bucket();
    bucket.refuse(BucketRefusal::TimeTooSkewed);
    let (code, stderr) = machines.failed_start(&machines.first_dir(), 0);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("RequestTimeTooSkewed") && !stderr.contains("s3:ListBucket"),
        "{stderr}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_ignores_conditions_is_refused() {
    let machines = Machines::new().await;
    machines.env.vendors.bucket().ignore_conditions();
    let (code, stderr) = machines.failed_start(&machines.first_dir(), 0);
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("ignores If-Match"), "{stderr}");
}

/// Some services permit one write of an object a second, and do not say how long to wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_of_the_bucket_ends_no_lease() {
    let machines = Machines::new().await;
    let first = machines.first_dir();
    let service = machines.start(&first);
    set_cap(&first, 5).await;
    let bucket = machines.env.vendors.faults(FakeService::Bucket);
    let limited = InjectedFault::ErrorStatus(429);
    bucket.inject_on_match("standby.json", limited);
    bucket.inject_on_match("/changes-", limited);
    set_cap(&first, 6).await;
    wait_until("requests with a rate limit", || {
        bucket.injected().len() == 2
    })
    .await;
    let renewal = machines.record()["renewal"].as_u64().unwrap();
    wait_until("renewals", || {
        machines.record()["renewal"].as_u64().unwrap() > renewal + 1
    })
    .await;
    set_cap(&first, 7).await;
    wait_until_healthy(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_objects_are_not_restored() {
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    let service = machines.start(&first);
    set_cap(&first, 3).await;
    service.kill();
    let names = machines.env.vendors.bucket().object_names();
    let part = |kind: &str| {
        names
            .iter()
            .find(|name| name.contains(kind))
            .unwrap()
            .clone()
    };
    for name in [part("/backup-"), part("/changes-")] {
        let original = machines.env.vendors.bucket().object(&name).unwrap();
        let mut damaged = original.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        machines.env.vendors.bucket().put(&name, &damaged).unwrap();
        let (code, _, stderr) = machines.restore(&second, &["--when-free"]);
        assert_eq!(code, 1, "{name}: {stderr}");
        assert!(
            stderr.contains("reading the latest backup in s3://fake-backups"),
            "{stderr}"
        );
        assert!(stderr.contains("cut off or damaged"), "{stderr}");
        assert!(!second.join("agent-implement.redb").exists());
        // The lease was taken and given back. A service must not start before a restore has ended well.
        assert_eq!(machines.record()["released"], true);
        let message = machines.refused(&second);
        assert!(message.contains("was not finished"), "{message}");
        machines.env.vendors.bucket().put(&name, &original).unwrap();
    }
    let (code, _, stderr) = machines.restore(&second, &["--when-free"]);
    assert_eq!(code, 0, "{stderr}");
}

/// A folder that is not mounted is missing or empty, while another machine works in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_not_mounted_is_not_a_fresh_start() {
    let dir = tempfile::tempdir().unwrap();
    let (data, place) = (dir.path().join("data"), dir.path().join("place"));
    let flags = ["--quick", "--standby-place", place.to_str().unwrap()];
    let refused = || {
        let mut serve = command(&["serve", "--port", "0", "--data-dir"]);
        let output = serve.arg(&data).args(flags).output().unwrap();
        let (code, _, stderr) = exit_and_output(&output);
        // The service manager tries again.
        assert_eq!(code, 1, "{stderr}");
        stderr
    };
    let message = refused();
    assert!(message.contains("mount it, or create it"), "{message}");
    assert!(!place.exists());

    std::fs::create_dir(&place).unwrap();
    assert_eq!(ServiceProcess::start(&data, &flags).stop(), 0);
    let mounted = dir.path().join("mounted");
    std::fs::rename(&place, &mounted).unwrap();
    std::fs::create_dir(&place).unwrap();
    let message = refused();
    assert!(
        message.contains("is empty, but this data folder has worked with a place"),
        "{message}"
    );
    assert!(!place.join("standby.json").exists());

    // The command that runs before each start waits for the folder, too.
    std::fs::rename(&data, dir.path().join("lost")).unwrap();
    std::fs::create_dir(&data).unwrap();
    let identity = dir.path().join("lost/standby.json");
    std::fs::copy(identity, data.join("standby.json")).unwrap();
    let mut restore = command(&["restore", "--latest", "--when-free", "--from"]);
    let restore = restore.arg(&place).arg("--data-dir").arg(&data);
    let mut restore = restore.spawn().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(restore.try_wait().unwrap(), None);
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::rename(&mounted, &place).unwrap();
    assert!(restore.wait().unwrap().success());
    assert!(data.join("agent-implement.redb").exists());
}

/// Whole backups at an interval, without a lease, from outside of the service.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_of_backups_keeps_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let (data, place) = (dir.path().join("data"), dir.path().join("place"));
    std::fs::create_dir(&place).unwrap();
    let service = ServiceProcess::start(&data, &[]);
    let mut backup = command(&["backup", "--every", "1s", "--keep", "2", "--to"]);
    let backup = backup.arg(&place).arg("--data-dir").arg(&data);
    let mut backup = backup.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(backup.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().starts_with("Writing backups of "));
    for _ in 0..4 {
        assert!(next().starts_with("Backed up to "));
    }
    backup.kill().unwrap();
    backup.wait().unwrap();
    let folders = std::fs::read_dir(&place).unwrap().flatten();
    let folders = folders.filter(|entry| entry.path().is_dir()).count();
    assert!((2..=3).contains(&folders), "{folders}");
    service.kill();

    let restored = dir.path().join("restored");
    let mut restore = command(&["restore", "--latest", "--from"]);
    let restore = restore.arg(&place).arg("--data-dir").arg(&restored);
    let (code, stdout, stderr) = exit_and_output(&restore.output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Restored "), "{stdout}");
    // The restored folder has taken the place, so the first one may not write there any more.
    let mut backup = command(&["backup", "--every", "1s", "--to"]);
    let backup = backup.arg(&place).arg("--data-dir").arg(&data);
    let (code, _, stderr) = exit_and_output(&backup.output().unwrap());
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("use another place"), "{stderr}");

    // A service does not replace its store by the series of backups that it wrote.
    let series = dir.path().join("series");
    std::fs::create_dir(&series).unwrap();
    let mut backup = command(&["backup", "--every", "1s", "--to"]);
    let backup = backup.arg(&series).arg("--data-dir").arg(&data);
    let mut backup = backup.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(backup.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("Backed up to ")));
    backup.kill().unwrap();
    backup.wait().unwrap();
    let mut serve = command(&["serve", "--port", "0", "--data-dir"]);
    let serve = serve.arg(&data).arg("--standby-place").arg(&series);
    let (code, _, stderr) = exit_and_output(&serve.output().unwrap());
    assert_eq!(code, 78, "{stderr}");
    assert!(
        stderr.contains("set STANDBY_PLACE to another place"),
        "{stderr}"
    );
    for (arguments, message) in [
        (&["backup", "--to", "/tmp/x"][..], "--every"),
        (
            &["backup", "--to", "/tmp/x", "--every", "5"],
            "such as 30s, 15m or 6h",
        ),
        (&["restore"], "<FILE>"),
    ] {
        let (code, _, stderr) = exit_and_output(&run(arguments));
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }
}

/// A backup that is interrupted leaves no copy of the store in the data folder.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_backup_of_a_series_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (data, place) = (dir.path().join("data"), dir.path().join("place"));
    let backup_to_place = || {
        let mut backup = command(&["backup", "--every", "1s", "--to"]);
        backup.arg(&place).arg("--data-dir").arg(&data);
        backup
    };
    std::fs::create_dir(&place).unwrap();
    // A wrong folder is not created, and a backup of it does not begin later.
    let (code, _, stderr) = exit_and_output(&backup_to_place().output().unwrap());
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("there is no store in"), "{stderr}");
    assert!(!data.exists());

    assert_eq!(ServiceProcess::start(&data, &[]).stop(), 0);
    // The backup waits for the lock of the place with the whole file at hand.
    let lock = std::fs::File::create(place.join(".lock")).unwrap();
    lock.lock().unwrap();
    let files = || {
        let entries = std::fs::read_dir(&data).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let before = files();
    let mut backup = backup_to_place().spawn().unwrap();
    wait_until("an identity of the folder", || files() != before).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    backup.kill().unwrap();
    backup.wait().unwrap();
    let mut after = files();
    after.retain(|name| !before.contains(name));
    assert_eq!(after, ["standby.json"]);
}

/// Only small objects reach the place, so the lease lasts: a limit on the size of requests, or on the rights of a key.
#[tokio::test(flavor = "multi_thread")]
async fn changes_that_never_reach_the_place_are_not_acknowledged_for_long() {
    let machines = Machines::new().await;
    let first = machines.first_dir();
    let service = machines.start(&first);
    set_cap(&first, 5).await;
    let bucket = machines.env.vendors.faults(FakeService::Bucket);
    for _ in 0..100 {
        bucket.inject_on_match("/changes-", InjectedFault::ErrorStatus(413));
    }
    set_cap(&first, 6).await;
    // Longer than the lease.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let change = async || {
        let body = json!({ "maxInProgressAiIssues": 7 });
        control_request(&first, Method::PATCH, "/api/mappings/ENG", Some(body)).await
    };
    let (status, body) = change().await;
    assert_eq!(status, 503, "{body}");
    assert!(body.to_string().contains("not in the place"), "{body}");
    let reasons = health(&service).await["reasons"].to_string();
    assert!(reasons.contains("cannot be written"), "{reasons}");
    bucket.clear();
    wait_until_healthy(&service).await;
    assert_eq!(change().await.0, 200);
}

async fn wait_until_healthy(service: &ServiceProcess) {
    let began = Instant::now();
    while !health(service).await["reasons"].is_null() {
        // Less than the default pause after a rate limit.
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

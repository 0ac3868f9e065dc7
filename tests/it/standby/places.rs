//! Places of a standby: damaged, not mounted, without rights or conditions, and with a limit.

use std::time::{Duration, Instant};

use fake_vendors::{BucketRefusal, FakeService, InjectedFault};
use reqwest::Method;
use serde_json::json;

use super::{Machines, health, set_cap, wait_until};
use crate::process::{ServiceProcess, command, control_request, exit_and_output};

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

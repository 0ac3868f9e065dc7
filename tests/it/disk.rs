//! Full, read-only, and small disks, and damaged stores: the service prints one sentence for the operator,
//! loses no acknowledged data, and resumes when it can.

mod damage;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use domain::crypto::run_token::{RunTokenIssuer, TokenAudience};
use domain::ids::JobId;
use domain::job::{Job, JobKind};
use domain::secret::Secret;
use engine::clock::Clock;
use fake_vendors::demo;
use fake_vendors::{FakeVendors, FakeVendorsOptions};
use requires::requires;
use reqwest::Method;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use store::{STORE_FILE, jobs, steps};

use crate::api_server::{TOKEN_SECRET, dispatched_job};
use crate::process::{
    ServiceProcess, client_builder, command, control_request, exit_and_output, run,
};
use crate::requirements::require;
use crate::test_env::open_store;

/// Maximum duration of one wait.
const TIMEOUT: Duration = Duration::from_secs(60);

const MIB: u64 = 1 << 20;

/// Exit codes of the service.
const DAMAGED: i32 = 65;
const DISK_FAILED: i32 = 74;
const MISCONFIGURED: i32 = 78;

/// Small tmpfs mount for a test.
struct Disk(PathBuf);

impl Disk {
    /// Mounts a disk.
    fn mount(path: &Path, mib: u64) -> Self {
        fs::create_dir_all(path).unwrap();
        let size = format!("size={mib}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(path)
            .output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        let mounted = is_mounted.then(|| Self(path.to_owned()));
        require("mount", mounted.ok_or("this user may not mount a disk"))
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let mounted = Command::new("mount")
            .args(["-o", &options])
            .arg(&self.0)
            .status();
        assert!(mounted.unwrap().success());
    }

    /// Fills the disk except for this number of bytes.
    fn fill_except(&self, bytes: u64) {
        let filler = File::create(self.0.join("filler")).unwrap();
        let disk = rustix::fs::statvfs(&self.0).unwrap();
        let free = disk.f_bavail * disk.f_frsize;
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&filler, flags, 0, free - bytes).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Flags that enable reports of runs.
fn report_flags() -> [&'static str; 4] {
    let address = "http://127.0.0.1:1";
    [
        "--runner-token-secret",
        TOKEN_SECRET,
        "--runner-callback-base-url",
        address,
    ]
}

/// Creates a store with one job.
async fn create_store_with_job(dir: &Path) -> Job {
    let job = dispatched_job("01JOB", JobKind::Implementation);
    let stored = job.clone();
    let put = open_store(dir)
        .await
        .write(move |tx| jobs::put(tx, &stored))
        .await;
    put.unwrap();
    job
}

/// Client that reports steps of a job.
struct Reporter {
    client: reqwest::Client,
    url: String,
    token: String,
}

impl Reporter {
    fn new(job: &Job, service: &ServiceProcess) -> Self {
        let now = Clock::System.now();
        let until = now + Duration::from_secs(3600);
        let tokens = RunTokenIssuer::new(&Secret::new(TOKEN_SECRET));
        let token = tokens.issue(
            &job.id,
            TokenAudience::Progress,
            job.kind.run_phase(),
            now,
            until,
        );
        Self {
            client: client_builder().build().unwrap(),
            url: service.address.clone(),
            token: token.expose().to_owned(),
        }
    }

    /// Reports a step with an output of this many bytes. Returns status and error, or `None` if there was no
    /// response.
    async fn report(&self, id: &str, bytes: usize) -> Option<(u16, String)> {
        let body = json!({"step": {"id": id, "type": "clone", "status": "passed",
            "started_at": "2027-01-15T08:00:00Z", "outputs": {"text": "x".repeat(bytes)}}});
        let request = self.client.post(format!("{}/runner/progress", self.url));
        let response = request
            .bearer_auth(&self.token)
            .json(&body)
            .send()
            .await
            .ok()?;
        let status = response.status().as_u16();
        let body: Value = response.json().await.unwrap_or_default();
        Some((
            status,
            body["error"].as_str().unwrap_or_default().to_owned(),
        ))
    }

    /// Sends a line of the log. Returns the answer.
    async fn send_log(&self, offset: usize, text: &str) -> Value {
        let request = self.client.post(format!("{}/runner/log", self.url));
        let request = request.bearer_auth(&self.token);
        let body = json!({"offset": offset, "text": text});
        let response = request.json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.json().await.unwrap()
    }

    /// Returns status and body of the health check.
    async fn health(&self) -> (u16, String) {
        let response = self.client.get(&self.url).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

/// Returns the IDs of the stored steps, sorted.
async fn stored_steps(dir: &Path) -> Vec<String> {
    let store = open_store(dir).await;
    let all = store
        .read(|tx| steps::of_job(tx, &JobId::from("01JOB")))
        .unwrap();
    let mut ids: Vec<String> = all.into_iter().map(|step| step.id).collect();
    ids.sort();
    ids
}

/// Starts a service that must exit at once. Returns exit code and standard error.
fn failed_start(dir: &Path) -> (i32, String) {
    let mut service = command(&["serve", "--port", "0", "--data-dir"]);
    let child = service.arg(dir).stderr(Stdio::piped()).spawn().unwrap();
    let output = wait_for_exit(child);
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Waits until a process exits and returns its output.
fn wait_for_exit(mut child: Child) -> std::process::Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > TIMEOUT {
            let _ = child.kill();
            panic!("the process did not exit");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Returns the names of the files in a folder, sorted.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[requires("mount")]
#[tokio::test]
async fn full_disk_rejects_writes_allows_reads_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::mount(&dir.path().join("data"), 120);
    let data = disk.0.as_path();
    let job = create_store_with_job(data).await;
    let service = ServiceProcess::start(data, &report_flags());
    let reporter = Reporter::new(&job, &service);
    let ok = Some((200, String::new()));
    assert_eq!(reporter.report("ample", 10).await, ok);
    assert_eq!(reporter.health().await.0, 200);

    disk.fill_except(40 * MIB);
    assert_eq!(reporter.report("low", 10).await, ok);
    let (status, body) = reporter.health().await;
    assert_eq!(status, 503);
    assert!(body.contains("nothing new is started"), "{body}");
    let path = data.to_str().unwrap();
    let (_, stdout, _) = exit_and_output(&run_on(&["doctor"], path));
    assert!(stdout.contains("MiB are free"), "{stdout}");

    disk.fill_except(8 * MIB);
    let full = "The disk of the service is full".to_owned();
    assert_eq!(reporter.report("full", 10).await, Some((503, full)));
    let (status, body) = reporter.health().await;
    assert_eq!(status, 503);
    assert!(body.contains("nothing can be stored"), "{body}");
    let (status, _) = control_request(data, Method::GET, "/api/mappings", None).await;
    assert_eq!(status, 200);
    let mode = Some(json!({"mode": "ci"}));
    let (status, _) = control_request(data, Method::POST, "/api/runner-mode", mode).await;
    assert_eq!(status, 503);

    // A restart on a full disk must not lose data.
    assert_eq!(service.stop(), 0);
    disk.fill_except(0);
    let service = ServiceProcess::start(data, &report_flags());
    let reporter = Reporter::new(&job, &service);
    assert_eq!(reporter.report("none", 10).await.unwrap().0, 503);
    fs::remove_file(data.join("filler")).unwrap();
    assert_eq!(reporter.report("again", 10).await, ok);
    assert_eq!(reporter.health().await.0, 200);
    assert_eq!(service.stop(), 0);
    assert_eq!(stored_steps(data).await, ["again", "ample", "low"]);
}

/// Logs of runs are refused long before anything else, and the runs continue.
#[requires("mount")]
#[tokio::test]
async fn short_disk_drops_logs_and_runs_continue() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::mount(&dir.path().join("data"), 300);
    let data = disk.0.as_path();
    let job = create_store_with_job(data).await;
    let service = ServiceProcess::start(data, &report_flags());
    let reporter = Reporter::new(&job, &service);
    let answer = |offset: usize, stored: bool| json!({"acknowledged": true, "offset": offset, "stored": stored, "retryAfterMs": 0});
    assert_eq!(reporter.send_log(0, "first\n").await, answer(6, true));
    disk.fill_except(100 * MIB);
    let dropped = reporter.send_log(6, "dropped\n").await;
    assert_eq!(dropped, answer(14, false), "the run continues behind it");
    let ok = Some((200, String::new()));
    assert_eq!(reporter.report("while short", 10).await, ok);
    let (status, body) = reporter.health().await;
    assert_eq!(status, 200, "new runs start: {body}");
    fs::remove_file(data.join("filler")).unwrap();
    assert_eq!(reporter.send_log(14, "last\n").await, answer(19, true));
    assert_eq!(service.stop(), 0);
    let store = open_store(data).await;
    let log = store.read(|tx| store::run_logs::read(tx, &job.id, 0));
    let text = log.unwrap().unwrap().text;
    let lines = text.lines().map(|line| domain::run_log::parse_line(line).1);
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines, ["first", "##[cut] 8 bytes", "last"]);
}

fn run_on(arguments: &[&str], dir: &str) -> std::process::Output {
    run(&[arguments, &["--data-dir", dir]].concat())
}

/// A limit on the file size passes the check of the free space and makes the commit itself fail.
#[tokio::test]
async fn failed_commit_stops_the_service_without_losing_acknowledged_steps() {
    let dir = tempfile::tempdir().unwrap();
    let job = create_store_with_job(dir.path()).await;
    let service = ServiceProcess::start(dir.path(), &report_flags());
    let reporter = Reporter::new(&job, &service);
    let length = fs::metadata(dir.path().join(STORE_FILE)).unwrap().len();
    let limit = Rlimit {
        current: Some(length),
        maximum: Some(length),
    };
    let pid = Pid::from_raw(i32::try_from(service.pid()).unwrap());
    prlimit(pid, Resource::Fsize, limit).unwrap();
    let mut acknowledged = Vec::new();
    let unacknowledged = loop {
        let id = format!("step-{:04}", acknowledged.len());
        match reporter.report(&id, 20_000).await {
            Some((200, _)) => acknowledged.push(id),
            Some((status, error)) => {
                assert_eq!(
                    (status, error.as_str()),
                    (503, "The store is not available")
                );
                break id;
            }
            None => break id,
        }
        assert!(acknowledged.len() < 1000, "no commit failed");
    };
    assert_eq!(service.wait_for_exit(), DISK_FAILED);
    let mut found = stored_steps(dir.path()).await;
    found.retain(|id| *id != unacknowledged);
    assert_eq!(found, acknowledged);
    let log = names_in(&dir.path().join("logs"));
    let log = fs::read_to_string(dir.path().join("logs").join(&log[0])).unwrap();
    assert!(log.contains("Failed to commit to the store"), "{log}");

    let service = ServiceProcess::start(dir.path(), &report_flags());
    let reporter = Reporter::new(&job, &service);
    assert_eq!(reporter.report("zz", 20_000).await.unwrap().0, 200);
    assert_eq!(service.stop(), 0);
    assert_eq!(stored_steps(dir.path()).await.last().unwrap(), "zz");
}

/// Number of backups in the place of a standby.
fn backups_in(place: &Disk) -> usize {
    let entries = fs::read_dir(&place.0).unwrap().flatten();
    entries.filter(|entry| entry.path().is_dir()).count()
}

/// The place of a standby has only the newest backup when it is full, rather than no further change.
#[requires("mount")]
#[tokio::test]
async fn a_full_place_of_a_standby_loses_its_old_backups() {
    let dir = tempfile::tempdir().unwrap();
    let place = Disk::mount(&dir.path().join("place"), 8);
    let data = &dir.path().join("data");
    let flags = ["--quick", "--standby-place", place.0.to_str().unwrap()];
    let backups = || backups_in(&place);
    let change = async |mode: &str| {
        let mode = Some(json!({ "mode": mode }));
        control_request(data, Method::POST, "/api/runner-mode", mode).await
    };
    for _ in 0..3 {
        let service = ServiceProcess::start(data, &flags);
        assert_eq!(change("ci").await.0, 200);
        assert_eq!(service.stop(), 0);
    }
    let service = ServiceProcess::start(data, &flags);
    assert_eq!(change("ci").await.0, 200);
    assert!(backups() >= 4);
    place.fill_except(0);
    let began = Instant::now();
    while change("vm").await.0 != 200 || backups() > 1 {
        assert!(began.elapsed() < TIMEOUT, "{} backups", backups());
    }
    service.kill();
    fs::remove_file(place.0.join("filler")).unwrap();
    let restored = dir.path().join("restored");
    let mut restore = command(&["restore", "--latest", "--when-free", "--from"]);
    let restore = restore.arg(&place.0).arg("--data-dir").arg(&restored);
    let (code, _, stderr) = exit_and_output(&restore.output().unwrap());
    assert_eq!(code, 0, "{stderr}");
}

/// The record is all that an idle service and a start write.
#[requires("mount")]
#[tokio::test]
async fn the_lease_in_a_full_place_is_kept_at_the_cost_of_old_backups() {
    let dir = tempfile::tempdir().unwrap();
    let place = Disk::mount(&dir.path().join("place"), 8);
    let data = &dir.path().join("data");
    let flags = ["--quick", "--standby-place", place.0.to_str().unwrap()];
    let backups = || backups_in(&place);
    let start_and_write_backups = || {
        let began = Instant::now();
        while backups() < 4 {
            assert!(began.elapsed() < TIMEOUT, "{} backups", backups());
            assert_eq!(ServiceProcess::start(data, &flags).stop(), 0);
        }
    };
    start_and_write_backups();
    place.fill_except(0);
    let service = ServiceProcess::start(data, &flags);
    let change = async || {
        let mode = Some(json!({ "mode": "ci" }));
        control_request(data, Method::POST, "/api/runner-mode", mode).await
    };
    assert_eq!(change().await.0, 200);
    assert_eq!(service.stop(), 0);
    fs::remove_file(place.0.join("filler")).unwrap();

    start_and_write_backups();
    let service = ServiceProcess::start(data, &flags);
    assert_eq!(change().await.0, 200);
    place.fill_except(0);
    // Longer than the lease.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let client = client_builder().build().unwrap();
    let health = client.get(&service.address).send().await.unwrap();
    assert_eq!(health.status().as_u16(), 200);
    assert_eq!(backups(), 1);
}

/// The record is also the first that a machine writes when it takes over.
#[requires("mount")]
#[tokio::test]
async fn a_take_over_in_a_full_place_removes_old_backups() {
    let dir = tempfile::tempdir().unwrap();
    let place = Disk::mount(&dir.path().join("place"), 8);
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let flags = ["--quick", "--standby-place", place.0.to_str().unwrap()];
    for _ in 0..3 {
        assert_eq!(ServiceProcess::start(&first, &flags).stop(), 0);
    }
    place.fill_except(0);
    let mut restore = command(&["restore", "--latest", "--from"]);
    let restore = restore.arg(&place.0).arg("--data-dir").arg(&second);
    let (code, stdout, stderr) = exit_and_output(&restore.output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Restored "), "{stdout}");
    assert!(stdout.contains("Removed old backups ("), "{stdout}");
}

/// Four tickets get pull requests, although the disk is full for some seconds.
#[requires("mount")]
#[test]
fn effects_pending_on_a_full_disk_are_performed_once() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::mount(&dir.path().join("data"), 40);
    let log = dir.path().join("output.txt");
    let log_file = File::create(&log).unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_agent-implement"));
    demo.args(["demo", "--exit-when-idle", "--log-level=info", "--data-dir"])
        .arg(dir.path());
    demo.stdin(Stdio::null())
        .stdout(log_file.try_clone().unwrap())
        .stderr(log_file);
    let child = demo.spawn().unwrap();
    let output = || fs::read_to_string(&log).unwrap();
    let wait_for = |text: &str| {
        let began = Instant::now();
        while !output().contains(text) {
            assert!(began.elapsed() < TIMEOUT, "no {text:?} in {}", output());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("nothing new is started");
    assert!(!output().contains("Reserved a run."), "{}", output());
    disk.remount("size=200m");
    wait_for("Reserved a run.");
    disk.fill_except(8 * MIB);
    wait_for("the disk is full");
    fs::remove_file(disk.0.join("filler")).unwrap();
    let exit = wait_for_exit(child);
    assert!(exit.status.success(), "{}", output());
    assert_eq!(
        demo_results(dir.path()),
        (8, 4, [1, 0, 1, 4]),
        "{}",
        output()
    );
    let data = dir.path().join("data");
    let verified = run(&["audit", "verify", "--data-dir", data.to_str().unwrap()]);
    assert!(verified.status.success(), "{verified:?}");
}

/// Returns the numbers of runs and pull requests of a demo, and the number of comments of each ticket.
fn demo_results(dir: &Path) -> (usize, usize, [usize; 4]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options =
        FakeVendorsOptions::new(dir.join("vendors"), env!("CARGO_BIN_EXE_agent-implement"));
    let vendors = runtime.block_on(FakeVendors::start(options)).unwrap();
    let repo = vendors.github().repo(demo::DEMO_OWNER, demo::DEMO_REPO);
    let keys = [
        demo::DEMO_PLAIN,
        demo::DEMO_BLOCKED,
        demo::DEMO_SECRET_LEAK,
        demo::DEMO_PLANNED,
    ];
    let comments = keys.map(|key| vendors.linear().issue(key).comments().len());
    let results = (repo.runs().len(), repo.pulls().len(), comments);
    runtime.block_on(vendors.stop());
    results
}

#[requires("mount")]
#[tokio::test]
async fn read_only_or_full_disk_is_reported_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::mount(&dir.path().join("data"), 20);
    drop(create_store_with_job(&disk.0).await);
    drop(open_store(&disk.0).await);
    stored_steps(&disk.0).await;
    let began = Instant::now();
    // The thread that closes the store may still write.
    while !Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&disk.0)
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
    {
        assert!(began.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, stderr) = failed_start(&disk.0);
    assert_eq!(code, DISK_FAILED, "{stderr}");
    assert!(stderr.contains("mount the disk writable"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    disk.remount("rw");
    assert_eq!(ServiceProcess::start(&disk.0, &[]).stop(), 0);

    // A first start on a full disk must leave no partial files.
    let full = Disk::mount(&dir.path().join("full"), 1);
    full.fill_except(0);
    let (code, stderr) = failed_start(&full.0);
    assert_eq!(code, DISK_FAILED, "{stderr}");
    assert!(stderr.contains("free some space"), "{stderr}");
    assert_eq!(names_in(&full.0), ["filler"]);
}

#[requires("mount")]
#[tokio::test]
async fn a_key_that_does_not_fit_on_the_disk_is_a_failure_of_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::mount(&dir.path().join("disk"), 4);
    assert_eq!(ServiceProcess::start(&disk.0, &[]).stop(), 0);
    fs::remove_file(disk.0.join("secrets.key")).unwrap();
    disk.fill_except(0);
    let (code, stderr) = failed_start(&disk.0);
    assert_eq!(code, DISK_FAILED, "{stderr}");
    assert!(stderr.contains("secrets.key"), "{stderr}");
}

#[requires("immutable")]
#[tokio::test]
async fn folder_without_write_permission_is_a_configuration_error() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let set_attribute = |flag| {
        let changed = Command::new("chattr").arg(flag).arg(&data).output();
        changed.is_ok_and(|output| output.status.success())
    };
    let immutable = set_attribute("+i")
        .then_some(())
        .ok_or("this user may not create an immutable folder");
    require("immutable", immutable);
    let (code, stderr) = failed_start(&data);
    set_attribute("-i");
    assert_eq!(code, MISCONFIGURED, "{stderr}");
    assert!(
        stderr.contains("set DATA_DIR to another folder"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(ServiceProcess::start(&data, &[]).stop(), 0);
}

#[tokio::test]
async fn damaged_store_is_rejected_kept_and_replaced_by_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backup) = (dir.path().join("data"), dir.path().join("backup"));
    let (path, backup) = (data.to_str().unwrap(), backup.to_str().unwrap());
    create_store_with_job(&data).await;
    assert_eq!(stored_steps(&data).await, [""; 0]);
    assert_eq!(exit_and_output(&run_on(&["backup", backup], path)).0, 0);
    let file = data.join(STORE_FILE);
    let whole = fs::read(&file).unwrap();
    let at = whole
        .windows(5)
        .rposition(|bytes| bytes == b"01JOB")
        .unwrap();
    let mut flipped = whole.clone();
    flipped[at + 1] ^= 4;
    let damages: [(&str, &[u8]); 5] = [
        ("a bit in a row", &flipped),
        ("the second half is missing", &whole[..whole.len() / 2]),
        ("an empty file", b""),
        (
            "another kind of file",
            &b"SQLite format 3\0 and so on".repeat(500),
        ),
        ("zeros", &vec![0; whole.len()]),
    ];
    for (what, bytes) in damages {
        fs::write(&file, bytes).unwrap();
        let (code, stderr) = failed_start(&data);
        assert_eq!(code, DAMAGED, "{what}: {stderr}");
        assert!(
            stderr.contains("agent-implement restore FILE --replace"),
            "{what}: {stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{what}: {stderr}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "{what}");
    }
    let (_, stdout, _) = exit_and_output(&run_on(&["doctor"], path));
    assert!(stdout.contains("is damaged"), "{stdout}");
    assert_eq!(exit_and_output(&run_on(&["why", "ENG-1"], path)).0, DAMAGED);

    let foreign = redb_of_another_program();
    fs::write(&file, &foreign).unwrap();
    let (code, stderr) = failed_start(&data);
    assert_eq!(code, DAMAGED, "{stderr}");
    assert!(stderr.contains("a database of another program"), "{stderr}");
    assert_eq!(fs::read(&file).unwrap(), foreign);

    fs::write(&file, &flipped).unwrap();
    let (code, _, stderr) = exit_and_output(&run_on(&["restore", backup, "--replace"], path));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(ServiceProcess::start(&data, &[]).stop(), 0);
    let previous = names_in(&data)
        .into_iter()
        .find(|name| name.starts_with("agent-implement.redb."));
    assert_eq!(fs::read(data.join(previous.unwrap())).unwrap(), flipped);
    let job = open_store(&data)
        .await
        .read(|tx| jobs::get(tx, &JobId::from("01JOB")));
    assert!(job.unwrap().is_some());
}

fn redb_of_another_program() -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let db = redb::Database::create(file.path()).unwrap();
    let table = redb::TableDefinition::<&str, u64>::new("theirs");
    let tx = db.begin_write().unwrap();
    tx.open_table(table).unwrap().insert("answer", 42).unwrap();
    tx.commit().unwrap();
    drop(db);
    fs::read(file.path()).unwrap()
}

/// A partial file could be mistaken for a complete one.
#[tokio::test]
async fn backup_and_restore_without_space_report_it_and_leave_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let (data, restored) = (dir.path().join("data"), dir.path().join("restored"));
    let store = open_store(&data).await;
    let written = store.write(|tx| {
        (0..500).try_for_each(|number| {
            jobs::put(
                tx,
                &dispatched_job(&format!("01JOB{number:08}"), JobKind::Implementation),
            )
        })
    });
    written.await.unwrap();
    drop(store);
    drop(open_store(&data).await);
    let backups = dir.path().join("backups");
    fs::create_dir(&backups).unwrap();
    let backup = backups.join("backup");
    // `ulimit -f` counts blocks of 512 bytes: 50 KiB.
    let run_limited = |arguments: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "ulimit -f 100; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_agent-implement"),
        ]);
        exit_and_output(&shell.args(arguments).output().unwrap())
    };
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (from, to) = (path(&data), path(&backup));
    let began = Instant::now();
    let (code, _, stderr) = loop {
        let output = run_limited(&["backup", &to, "--data-dir", &from]);
        if !output.2.contains("holds the store") || began.elapsed() > TIMEOUT {
            break output;
        }
    };
    assert_ne!(code, 0);
    assert!(stderr.contains("File too large"), "{stderr}");
    assert_eq!(names_in(&backups), [""; 0]);

    assert_eq!(
        exit_and_output(&run(&["backup", &to, "--data-dir", &from])).0,
        0
    );
    let (code, _, stderr) = run_limited(&["restore", &to, "--data-dir", &path(&restored)]);
    assert_ne!(code, 0);
    assert!(stderr.contains("File too large"), "{stderr}");
    assert_eq!(names_in(&restored), [""; 0]);
    assert_eq!(
        exit_and_output(&run(&["restore", &to, "--data-dir", &path(&restored)])).0,
        0
    );
}

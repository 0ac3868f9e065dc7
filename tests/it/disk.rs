//! A disk that is full, read-only or too small, and a store that is damaged: the operator is told in a
//! sentence, what was acknowledged stays, and work goes on when it can.

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

/// How long may anything take that must happen?
const PATIENCE: Duration = Duration::from_secs(60);

const MIB: u64 = 1 << 20;

/// Exit codes, as systemd sees them.
const DAMAGED: i32 = 65;
const DISK_FAILED: i32 = 74;
const MISCONFIGURED: i32 = 78;

/// A small disk of its own. None where mounting is not allowed and the skip is named.
struct Disk(PathBuf);

impl Disk {
    fn mounted_at(path: &Path, mib: u64) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let size = format!("size={mib}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(path)
            .output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        let mounted = is_mounted.then(|| Self(path.to_owned()));
        require(
            "mount",
            "a disk of its own",
            mounted.ok_or("this user may not mount one"),
        )
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let mounted = Command::new("mount")
            .args(["-o", &options])
            .arg(&self.0)
            .status();
        assert!(mounted.unwrap().success());
    }

    /// Takes all room but so much.
    fn leave(&self, bytes: u64) {
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

fn reports() -> [&'static str; 4] {
    let address = "http://127.0.0.1:1";
    [
        "--runner-token-secret",
        TOKEN_SECRET,
        "--runner-callback-base-url",
        address,
    ]
}

/// A store with one run in it.
async fn with_a_run(dir: &Path) -> Job {
    let run = dispatched_job("01JOB", JobKind::Implementation);
    let kept = run.clone();
    let put = open_store(dir)
        .await
        .write(move |tx| jobs::put(tx, &kept))
        .await;
    put.unwrap();
    run
}

/// A run that reports its steps.
struct Reporter {
    client: reqwest::Client,
    url: String,
    token: String,
}

impl Reporter {
    fn of(run: &Job, service: &ServiceProcess) -> Self {
        let now = Clock::System.now();
        let until = now + Duration::from_secs(3600);
        let tokens = RunTokenIssuer::new(&Secret::new(TOKEN_SECRET));
        let token = tokens.issue(
            &run.id,
            TokenAudience::Progress,
            run.kind.run_phase(),
            now,
            until,
        );
        Self {
            client: client_builder().build().unwrap(),
            url: service.address.clone(),
            token: token.expose().to_owned(),
        }
    }

    /// Reports a step of so many bytes; the status, and the error that was answered. None when nobody
    /// answered any more.
    async fn report(&self, id: &str, bytes: usize) -> Option<(u16, String)> {
        let body = json!({"step": {"id": id, "type": "clone", "status": "passed",
            "started_at": "2027-01-15T08:00:00Z", "outputs": {"text": "x".repeat(bytes)}}});
        let request = self.client.post(format!("{}/runner/progress", self.url));
        let told = request
            .bearer_auth(&self.token)
            .json(&body)
            .send()
            .await
            .ok()?;
        let status = told.status().as_u16();
        let told: Value = told.json().await.unwrap_or_default();
        Some((
            status,
            told["error"].as_str().unwrap_or_default().to_owned(),
        ))
    }

    async fn health(&self) -> (u16, String) {
        let told = self.client.get(&self.url).send().await.unwrap();
        (told.status().as_u16(), told.text().await.unwrap())
    }
}

/// The steps of the run, by name.
async fn stored(dir: &Path) -> Vec<String> {
    let store = open_store(dir).await;
    let all = store
        .read(|tx| steps::of_job(tx, &JobId::from("01JOB")))
        .unwrap();
    let mut names: Vec<String> = all.into_iter().map(|step| step.id).collect();
    names.sort();
    names
}

/// Starts a service that must not start: its exit code and what it said.
fn refused(dir: &Path) -> (i32, String) {
    let mut service = command(&["serve", "--port", "0", "--data-dir"]);
    let child = service.arg(dir).stderr(Stdio::piped()).spawn().unwrap();
    let ended = ended(child);
    (
        ended.status.code().unwrap(),
        String::from_utf8_lossy(&ended.stderr).into_owned(),
    )
}

fn ended(mut child: Child) -> std::process::Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("it goes on");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_disk_that_fills_up_refuses_writes_goes_on_reading_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mounted_at(&dir.path().join("data"), 120) else {
        return;
    };
    let data = disk.0.as_path();
    let run = with_a_run(data).await;
    let service = ServiceProcess::start(data, &reports());
    let reporter = Reporter::of(&run, &service);
    let ok = Some((200, String::new()));
    assert_eq!(reporter.report("ample", 10).await, ok);
    assert_eq!(reporter.health().await.0, 200);

    disk.leave(40 * MIB);
    assert_eq!(reporter.report("low", 10).await, ok);
    let (status, told) = reporter.health().await;
    assert_eq!(status, 503);
    assert!(told.contains("nothing new is started"), "{told}");
    let path = data.to_str().unwrap();
    let (_, told, _) = exit_and_output(&run_on(&["doctor"], path));
    assert!(told.contains("MiB are free"), "{told}");

    disk.leave(8 * MIB);
    let full = "The disk of the service is full".to_owned();
    assert_eq!(reporter.report("full", 10).await, Some((503, full)));
    let (status, told) = reporter.health().await;
    assert_eq!(status, 503);
    assert!(told.contains("nothing can be stored"), "{told}");
    let (status, _) = control_request(data, Method::GET, "/api/mappings", None).await;
    assert_eq!(status, 200);
    let mode = Some(json!({"mode": "ci"}));
    let (status, _) = control_request(data, Method::POST, "/api/runner-mode", mode).await;
    assert_eq!(status, 503);

    // A restart in the middle of it is none the worse.
    assert_eq!(service.stop(), 0);
    disk.leave(0);
    let service = ServiceProcess::start(data, &reports());
    let reporter = Reporter::of(&run, &service);
    assert_eq!(reporter.report("none", 10).await.unwrap().0, 503);
    fs::remove_file(data.join("filler")).unwrap();
    assert_eq!(reporter.report("again", 10).await, ok);
    assert_eq!(reporter.health().await.0, 200);
    assert_eq!(service.stop(), 0);
    assert_eq!(stored(data).await, ["again", "ample", "low"]);
}

fn run_on(arguments: &[&str], dir: &str) -> std::process::Output {
    run(&[arguments, &["--data-dir", dir]].concat())
}

/// The limit of a file's size comes when nobody looked at the free space: the commit itself fails.
#[tokio::test]
async fn a_commit_that_fails_ends_the_service_and_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let run = with_a_run(dir.path()).await;
    let service = ServiceProcess::start(dir.path(), &reports());
    let reporter = Reporter::of(&run, &service);
    let length = fs::metadata(dir.path().join(STORE_FILE)).unwrap().len();
    let limit = Rlimit {
        current: Some(length),
        maximum: Some(length),
    };
    let pid = Pid::from_raw(i32::try_from(service.pid()).unwrap());
    prlimit(pid, Resource::Fsize, limit).unwrap();
    let mut acknowledged = Vec::new();
    let unsure = loop {
        let id = format!("step-{:04}", acknowledged.len());
        match reporter.report(&id, 20_000).await {
            Some((200, _)) => acknowledged.push(id),
            Some((status, told)) => {
                assert_eq!((status, told.as_str()), (503, "The store is not available"));
                break id;
            }
            None => break id,
        }
        assert!(acknowledged.len() < 1000, "it never failed");
    };
    assert_eq!(service.wait_for_exit(), DISK_FAILED);
    let mut found = stored(dir.path()).await;
    found.retain(|id| *id != unsure);
    assert_eq!(found, acknowledged);
    let log = names_in(&dir.path().join("logs"));
    let log = fs::read_to_string(dir.path().join("logs").join(&log[0])).unwrap();
    assert!(log.contains("The store could not commit"), "{log}");

    let service = ServiceProcess::start(dir.path(), &reports());
    let reporter = Reporter::of(&run, &service);
    assert_eq!(reporter.report("zz", 20_000).await.unwrap().0, 200);
    assert_eq!(service.stop(), 0);
    assert_eq!(stored(dir.path()).await.last().unwrap(), "zz");
}

/// Two tickets to two pull requests, while the disk has no room for seconds in the middle of it.
#[test]
fn what_is_owed_when_the_disk_is_full_is_delivered_once_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mounted_at(&dir.path().join("data"), 40) else {
        return;
    };
    let told = dir.path().join("told.txt");
    let words = File::create(&told).unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_agent-implement"));
    demo.args(["demo", "--exit-when-idle", "--log-level=info", "--data-dir"])
        .arg(dir.path());
    demo.stdin(Stdio::null())
        .stdout(words.try_clone().unwrap())
        .stderr(words);
    let child = demo.spawn().unwrap();
    let said = || fs::read_to_string(&told).unwrap();
    let seen = |what: &str| {
        let began = Instant::now();
        while !said().contains(what) {
            assert!(began.elapsed() < PATIENCE, "no {what:?} in {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    seen("nothing new is started");
    assert!(!said().contains("Reserved a run."), "{}", said());
    disk.remount("size=200m");
    seen("Reserved a run.");
    disk.leave(8 * MIB);
    seen("the disk is full");
    fs::remove_file(disk.0.join("filler")).unwrap();
    let ended = ended(child);
    assert!(ended.status.success(), "{}", said());
    assert_eq!(
        left_by_a_demo(dir.path()),
        (4, 2, [1, 0, 1, 3]),
        "{}",
        said()
    );
    let data = dir.path().join("data");
    let verified = run(&["audit", "verify", "--data-dir", data.to_str().unwrap()]);
    assert!(verified.status.success(), "{verified:?}");
}

/// The runs and pull requests of a demo's town, and how many comments each of its tickets has.
fn left_by_a_demo(dir: &Path) -> (usize, usize, [usize; 4]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options = FakeVendorsOptions::new(dir.join("town"), env!("CARGO_BIN_EXE_agent-implement"));
    let town = runtime.block_on(FakeVendors::start(options)).unwrap();
    let repo = town.github().repo(demo::DEMO_OWNER, demo::DEMO_REPO);
    let keys = [
        demo::DEMO_PLAIN,
        demo::DEMO_BLOCKED,
        demo::DEMO_SECRET_LEAK,
        demo::DEMO_PLANNED,
    ];
    let comments = keys.map(|key| town.linear().issue(key).comments().len());
    let left = (repo.runs().len(), repo.pulls().len(), comments);
    runtime.block_on(town.stop());
    left
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_is_said_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mounted_at(&dir.path().join("data"), 20) else {
        return;
    };
    drop(with_a_run(&disk.0).await);
    drop(open_store(&disk.0).await);
    stored(&disk.0).await;
    let began = Instant::now();
    // The thread that closes the store writes to the end.
    while !Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&disk.0)
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
    {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    let (code, told) = refused(&disk.0);
    assert_eq!(code, DISK_FAILED, "{told}");
    assert!(told.contains("mount the disk for writing"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    disk.remount("rw");
    assert_eq!(ServiceProcess::start(&disk.0, &[]).stop(), 0);

    // A first start without any room leaves nothing half made behind.
    let Some(full) = Disk::mounted_at(&dir.path().join("full"), 1) else {
        return;
    };
    full.leave(0);
    let (code, told) = refused(&full.0);
    assert_eq!(code, DISK_FAILED, "{told}");
    assert!(told.contains("free some space"), "{told}");
    assert_eq!(names_in(&full.0), ["filler"]);
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_is_a_matter_of_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let immutable = |flag| {
        let changed = Command::new("chattr").arg(flag).arg(&data).output();
        changed.is_ok_and(|output| output.status.success())
    };
    let made = immutable("+i")
        .then_some(())
        .ok_or("this user may not make one");
    if require("immutable", "an immutable folder", made).is_none() {
        return;
    }
    let (code, told) = refused(&data);
    immutable("-i");
    assert_eq!(code, MISCONFIGURED, "{told}");
    assert!(told.contains("set DATA_DIR to a folder that is"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert_eq!(ServiceProcess::start(&data, &[]).stop(), 0);
}

#[tokio::test]
async fn a_damaged_store_is_refused_kept_and_replaced_by_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backup) = (dir.path().join("data"), dir.path().join("backup"));
    let (path, backup) = (data.to_str().unwrap(), backup.to_str().unwrap());
    with_a_run(&data).await;
    assert_eq!(stored(&data).await, [""; 0]);
    assert_eq!(exit_and_output(&run_on(&["backup", backup], path)).0, 0);
    let file = data.join(STORE_FILE);
    let whole = fs::read(&file).unwrap();
    let at = whole
        .windows(5)
        .rposition(|bytes| bytes == b"01JOB")
        .unwrap();
    let mut flipped = whole.clone();
    flipped[at + 1] ^= 4;
    let damaged: [(&str, &[u8]); 5] = [
        ("a bit in a row", &flipped),
        ("the second half is gone", &whole[..whole.len() / 2]),
        ("nothing in it", b""),
        (
            "another kind of file",
            &b"SQLite format 3\0 and so on".repeat(500),
        ),
        ("zeros", &vec![0; whole.len()]),
    ];
    for (what, bytes) in damaged {
        fs::write(&file, bytes).unwrap();
        let (code, told) = refused(&data);
        assert_eq!(code, DAMAGED, "{what}: {told}");
        assert!(
            told.contains("agent-implement restore FILE --replace"),
            "{what}: {told}"
        );
        assert_eq!(told.lines().count(), 1, "{what}: {told}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "{what}");
    }
    let (_, told, _) = exit_and_output(&run_on(&["doctor"], path));
    assert!(told.contains("is damaged"), "{told}");
    assert_eq!(exit_and_output(&run_on(&["why", "ENG-1"], path)).0, DAMAGED);

    let foreign = redb_of_somebody_else();
    fs::write(&file, &foreign).unwrap();
    let (code, told) = refused(&data);
    assert_eq!(code, DAMAGED, "{told}");
    assert!(told.contains("a database of another program"), "{told}");
    assert_eq!(fs::read(&file).unwrap(), foreign);

    fs::write(&file, &flipped).unwrap();
    let (code, _, told) = exit_and_output(&run_on(&["restore", backup, "--replace"], path));
    assert_eq!(code, 0, "{told}");
    assert_eq!(ServiceProcess::start(&data, &[]).stop(), 0);
    let aside = names_in(&data)
        .into_iter()
        .find(|name| name.starts_with("agent-implement.redb."));
    assert_eq!(fs::read(data.join(aside.unwrap())).unwrap(), flipped);
    let run = open_store(&data)
        .await
        .read(|tx| jobs::get(tx, &JobId::from("01JOB")));
    assert!(run.unwrap().is_some());
}

fn redb_of_somebody_else() -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let db = redb::Database::create(file.path()).unwrap();
    let table = redb::TableDefinition::<&str, u64>::new("theirs");
    let tx = db.begin_write().unwrap();
    tx.open_table(table).unwrap().insert("answer", 42).unwrap();
    tx.commit().unwrap();
    drop(db);
    fs::read(file.path()).unwrap()
}

/// Neither leaves anything that could pass for whole.
#[tokio::test]
async fn a_backup_and_a_restore_without_room_say_so_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (data, there) = (dir.path().join("data"), dir.path().join("there"));
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
    let kept = dir.path().join("kept");
    fs::create_dir(&kept).unwrap();
    let backup = kept.join("backup");
    // In blocks of 512 bytes: 50 KiB.
    let short = |arguments: &[&str]| {
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
    let (code, _, told) = loop {
        let ended = short(&["backup", &to, "--data-dir", &from]);
        if !ended.2.contains("holds the store") || began.elapsed() > PATIENCE {
            break ended;
        }
    };
    assert_ne!(code, 0);
    assert!(told.contains("File too large"), "{told}");
    assert_eq!(names_in(&kept), [""; 0]);

    assert_eq!(
        exit_and_output(&run(&["backup", &to, "--data-dir", &from])).0,
        0
    );
    let (code, _, told) = short(&["restore", &to, "--data-dir", &path(&there)]);
    assert_ne!(code, 0);
    assert!(told.contains("File too large"), "{told}");
    assert_eq!(names_in(&there), [""; 0]);
    assert_eq!(
        exit_and_output(&run(&["restore", &to, "--data-dir", &path(&there)])).0,
        0
    );
}

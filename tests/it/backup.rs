//! Backup of a running service, and restore.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain::crypto::run_token::{RunTokenIssuer, TokenAudience};
use domain::job::{Job, JobKind};
use domain::secret::Secret;
use domain::session_secrets::{SecretName, SecretScope};
use engine::app::Vault;
use engine::clock::Clock;
use reqwest::Method;
use serde_json::json;
use store::{STORE_FILE, Store, jobs, secrets};

use crate::api_server::{TOKEN_SECRET, dispatched_job};
use crate::process::{
    ServiceProcess, client_builder, command, control_request, exit_and_output, run,
};
use crate::test_env::open_store;

/// Runs a command on a data directory. Returns exit code, standard output, and standard error.
fn run_on(dir: &Path, arguments: &[&str]) -> (i32, String, String) {
    let dir = dir.to_str().unwrap();
    exit_and_output(&run(&[arguments, &["--data-dir", dir]].concat()))
}

/// Flags that enable reports of runs.
fn report_flags() -> [&'static str; 4] {
    [
        "--runner-token-secret",
        TOKEN_SECRET,
        "--runner-callback-base-url",
        "http://127.0.0.1:1",
    ]
}

/// Closes a store and waits until its writer thread has ended.
fn close_store(store: Store, dir: &Path) {
    drop(store);
    let file = fs::File::open(dir.join(STORE_FILE)).unwrap();
    file.lock().unwrap();
}

/// Creates a store with jobs and returns the first job.
async fn create_store_with_jobs(dir: &Path, count: usize) -> Job {
    let store = open_store(dir).await;
    for first in (0..count).step_by(5000) {
        let last = count.min(first + 5000);
        let written = store.write(move |tx| {
            (first..last).try_for_each(|number| {
                jobs::put(
                    tx,
                    &dispatched_job(&format!("01JOB{number:08}"), JobKind::Implementation),
                )
            })
        });
        written.await.unwrap();
    }
    close_store(store, dir);
    dispatched_job("01JOB00000000", JobKind::Implementation)
}

/// Clients that report steps of one job without a pause. Records the steps that the service acknowledged.
struct Reporters {
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Reporters {
    fn start(service: &ServiceProcess, job: &Job) -> Self {
        let now = Clock::System.now();
        let tokens = RunTokenIssuer::new(&Secret::new(TOKEN_SECRET));
        let until = now + Duration::from_secs(3600);
        let token = tokens.issue(
            &job.id,
            TokenAudience::Progress,
            job.kind.run_phase(),
            now,
            until,
        );
        let url = format!("{}/runner/progress", service.address);
        let acknowledged = Arc::<Mutex<BTreeSet<String>>>::default();
        let reporter = |number: usize| {
            let (url, token) = (url.clone(), token.expose().to_owned());
            let acknowledged = Arc::clone(&acknowledged);
            tokio::spawn(async move {
                let client = client_builder().build().unwrap();
                for count in 0.. {
                    let id = format!("step-{number}-{count}");
                    let body = json!({"step": {"id": id, "type": "clone", "status": "passed",
                        "started_at": "2027-01-15T08:00:00Z"}});
                    let response = client
                        .post(&url)
                        .bearer_auth(&token)
                        .json(&body)
                        .send()
                        .await;
                    let Ok(response) = response else { return };
                    assert_eq!(response.status().as_u16(), 200);
                    acknowledged.lock().unwrap().insert(id);
                }
            })
        };
        let tasks = (0..16).map(reporter).collect();
        Self {
            acknowledged,
            tasks,
        }
    }

    /// Returns the IDs of the steps acknowledged so far.
    fn acknowledged(&self) -> BTreeSet<String> {
        self.acknowledged.lock().unwrap().clone()
    }

    /// Waits until this many steps are acknowledged.
    async fn wait_for(&self, count: usize) {
        let began = Instant::now();
        while self.acknowledged.lock().unwrap().len() < count {
            assert!(began.elapsed() < Duration::from_secs(120));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn stop(self) {
        for task in self.tasks {
            task.abort();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_contains_all_steps_acknowledged_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, restored) = (dir.path().join("data"), dir.path().join("restored"));
    let file = dir.path().join("backup");
    let path = file.to_str().unwrap();
    let job = create_store_with_jobs(&data, 200).await;
    let service = ServiceProcess::start(&data, &report_flags());
    let reporters = Reporters::start(&service, &job);
    reporters.wait_for(300).await;
    let before = reporters.acknowledged();
    let (source, target) = (data.clone(), path.to_owned());
    let backup = tokio::task::spawn_blocking(move || run_on(&source, &["backup", &target]));
    let (code, stdout, stderr) = backup.await.unwrap();
    assert_eq!(code, 0, "{stdout}{stderr}");
    reporters.stop();
    // A kill stands for the loss of the machine.
    service.kill();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let (code, stdout, stderr) = run_on(&restored, &["restore", path]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let service = ServiceProcess::start(&restored, &report_flags());
    let steps = format!("/api/jobs/{}/steps", job.id);
    let (_, body) = control_request(&restored, Method::GET, &steps, None).await;
    let steps = body["steps"].as_array().unwrap().iter();
    let restored_ids: BTreeSet<String> = steps
        .map(|step| step["id"].as_str().unwrap().to_owned())
        .collect();
    let lost: Vec<&String> = before.difference(&restored_ids).collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost: {lost:?}",
        lost.len(),
        before.len()
    );
    assert_eq!(service.stop(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_leaves_out_logs_and_a_run_continues_its_log_after_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let (data, restored) = (dir.path().join("data"), dir.path().join("restored"));
    let file = dir.path().join("backup");
    let path = file.to_str().unwrap();
    let job = create_store_with_jobs(&data, 1).await;
    let tokens = RunTokenIssuer::new(&Secret::new(TOKEN_SECRET));
    let now = Clock::System.now();
    let until = now + Duration::from_secs(3600);
    let phase = job.kind.run_phase();
    let token = tokens.issue(&job.id, TokenAudience::Progress, phase, now, until);
    let send = async |service: &ServiceProcess, offset: usize, text: &str| {
        let client = client_builder().build().unwrap();
        let request = client.post(format!("{}/runner/log", service.address));
        let request = request.bearer_auth(token.expose());
        let body = json!({"offset": offset, "text": text});
        let response = request.json(&body).send().await.unwrap();
        response.json::<serde_json::Value>().await.unwrap()
    };
    let service = ServiceProcess::start(&data, &report_flags());
    let receipt = send(&service, 0, "canary-of-the-log\n").await;
    assert_eq!(
        (&receipt["offset"], &receipt["stored"]),
        (&json!(18), &json!(true))
    );
    assert_eq!(run_on(&data, &["backup", path]).0, 0);
    service.kill();
    assert_eq!(run_on(&restored, &["restore", path]).0, 0);

    let service = ServiceProcess::start(&restored, &report_flags());
    let log = format!("/api/jobs/{}/log", job.id);
    let (status, _) = control_request(&restored, Method::GET, &log, None).await;
    assert_eq!(status, 404, "no log is restored");
    let receipt = send(&service, 18, "after\n").await;
    assert_eq!(
        (&receipt["offset"], &receipt["stored"]),
        (&json!(24), &json!(true))
    );
    assert_eq!(service.stop(), 0);
    let store = open_store(&restored).await;
    let log = store.read(|tx| store::run_logs::read(tx, &job.id, 0));
    let text = log.unwrap().unwrap().text;
    let lines = text.lines().map(|line| domain::run_log::parse_line(line).1);
    assert_eq!(lines.collect::<Vec<_>>(), ["##[cut] 18 bytes", "after"]);
}

#[tokio::test]
async fn overwrites_files_and_stores_only_with_a_flag() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("backup"));
    let path = file.to_str().unwrap();
    create_store_with_jobs(&data, 3).await;
    assert_eq!(run_on(&data, &["backup", path]).0, 0);
    let first = fs::read(&file).unwrap();
    let (code, _, stderr) = run_on(&data, &["backup", path]);
    assert_eq!(code, 1);
    assert!(stderr.contains("use --force to overwrite it"), "{stderr}");
    assert_eq!(fs::read(&file).unwrap(), first);
    assert_eq!(run_on(&data, &["backup", path, "--force"]).0, 0);

    let (code, _, stderr) = run_on(&data, &["restore", path]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("already has a store; use --replace"),
        "{stderr}"
    );

    let service = ServiceProcess::start(&data, &[]);
    for arguments in [&["restore", path][..], &["restore", path, "--replace"]] {
        let (code, _, stderr) = run_on(&data, arguments);
        assert_eq!(code, 1);
        assert!(
            stderr.contains("a service is running on this folder"),
            "{stderr}"
        );
    }
    service.stop();

    let (code, stdout, _) = run_on(&data, &["restore", path, "--replace"]);
    assert_eq!(code, 0);
    let previous = stdout.split("Moved the previous store to ").nth(1).unwrap();
    assert!(
        Path::new(previous.trim().trim_end_matches('.')).exists(),
        "{stdout}"
    );
    let restored = open_store(&data).await;
    assert_eq!(restored.read(|tx| jobs::latest(tx, 10)).unwrap().len(), 3);
}

#[tokio::test]
async fn restore_creates_only_a_folder_that_was_named() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("old"), dir.path().join("backup"));
    let path = file.to_str().unwrap();
    create_store_with_jobs(&data, 3).await;
    assert_eq!(run_on(&data, &["backup", path]).0, 0);
    let restore_with = |more: &[&str]| {
        let mut restore = command(&[&["restore", path][..], more].concat());
        exit_and_output(&restore.current_dir(dir.path()).output().unwrap())
    };
    let default_folder = dir.path().join("data");
    let (code, _, stderr) = restore_with(&[]);
    assert_eq!(code, 1);
    let missing = format!("there is no data folder {};", default_folder.display());
    assert!(stderr.contains(&missing), "{stderr}");
    assert!(
        stderr.contains("--data-dir") && stderr.contains("--env-file"),
        "{stderr}"
    );
    assert!(!default_folder.exists(), "the folder must not exist");

    let (settings, named) = (dir.path().join("service.env"), dir.path().join("named"));
    fs::write(&settings, "DATA_DIR=named\n").unwrap();
    for (more, folder) in [
        (&["--env-file", settings.to_str().unwrap()][..], &named),
        (&["--data-dir", "./data"][..], &default_folder),
        (&["--replace"][..], &default_folder),
    ] {
        let (code, stdout, stderr) = restore_with(more);
        assert_eq!(code, 0, "{more:?}: {stderr}");
        let written = format!("Restored {} from the backup", folder.display());
        assert!(stdout.contains(&written), "{stdout}");
        assert!(folder.join(STORE_FILE).exists(), "{more:?}");
    }
}

#[tokio::test]
async fn rejects_a_truncated_or_altered_backup_without_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file, empty) = (
        dir.path().join("data"),
        dir.path().join("b"),
        dir.path().join("new"),
    );
    create_store_with_jobs(&data, 50).await;
    let piped = run(&["backup", "-", "--data-dir", data.to_str().unwrap()]);
    let whole = piped.stdout;
    assert!(piped.status.success());
    let restore = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        run_on(&empty, &["restore", file.to_str().unwrap()])
    };
    for length in [
        0,
        10,
        30,
        100,
        whole.len() / 2,
        whole.len() - 40,
        whole.len() - 1,
    ] {
        let (code, _, stderr) = restore(&whole[..length]);
        assert_eq!(code, 1, "{length}: {stderr}");
        assert!(
            stderr.contains("cut off or damaged") || stderr.contains("not a backup"),
            "{stderr}"
        );
    }
    for at in [3, 40, whole.len() / 3, whole.len() - 45, whole.len() - 5] {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        let (code, _, stderr) = restore(&altered);
        assert_eq!(code, 1, "{at}: {stderr}");
    }
    let longer = [&whole[..], b"more"].concat();
    assert_eq!(restore(&longer).0, 1);
    assert!(!empty.exists(), "the folder must not exist");
    assert_eq!(restore(&whole).0, 0);
}

/// Creates a store that contains a secret.
pub async fn create_store_with_secret(dir: &Path) {
    let store = open_store(dir).await;
    let vault = Vault::open(None, &store).unwrap();
    let name = SecretName::parse(SecretScope::Global, "NPM_TOKEN").unwrap();
    let sealed = vault.seal(
        &name,
        &Secret::new("canary-of-a-secret"),
        Clock::System.now(),
    );
    let sealed = sealed.unwrap();
    let put = store.write(move |tx| secrets::put(tx, &name, &sealed));
    put.await.unwrap();
    close_store(store, dir);
}

#[tokio::test]
async fn backup_excludes_the_secrets_key_and_restore_requires_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("backup"));
    let (path, key) = (file.to_str().unwrap(), dir.path().join("backup.key"));
    create_store_with_secret(&data).await;
    let (code, stdout, _) = run_on(&data, &["backup", path]);
    assert_eq!(code, 0);
    assert!(
        stdout.contains("does not include the key of its 1 secrets"),
        "{stdout}"
    );
    let backup = fs::read(&file).unwrap();
    let secret_key = fs::read(data.join("secrets.key")).unwrap();
    let contains = |needle: &[u8]| backup.windows(needle.len()).any(|part| part == needle);
    assert!(!contains(b"canary-of-a-secret") && !contains(&secret_key));

    let restored = dir.path().join("restored");
    let (code, _, stderr) = run_on(&restored, &["restore", path]);
    assert_eq!(code, 1);
    assert!(stderr.contains("no key decrypts the"), "{stderr}");
    assert!(!restored.join("agent-implement.redb").exists());

    assert_eq!(
        run_on(&data, &["backup", path, "--force", "--with-key"]).0,
        0
    );
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let (code, stdout, stderr) = run_on(&restored, &["restore", path]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(fs::read(restored.join("secrets.key")).unwrap(), secret_key);
    assert_eq!(ServiceProcess::start(&restored, &[]).stop(), 0);

    // The key beside the backup replaces the key of the folder. The previous key is kept.
    let other = dir.path().join("other");
    create_store_with_secret(&other).await;
    let (code, stdout, stderr) = run_on(&other, &["restore", path, "--replace"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("Moved the previous key to"), "{stdout}");
    assert_eq!(ServiceProcess::start(&other, &[]).stop(), 0);

    fs::remove_file(&key).unwrap();
    let lost = dir.path().join("lost");
    let (code, stdout, _) = run_on(&lost, &["restore", path, "--without-secrets"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("Left out 1 secrets"), "{stdout}");
    let store = open_store(&lost).await;
    assert!(store.read(secrets::all).unwrap().is_empty());
}

/// Backs up and restores this many jobs. Returns the durations of both.
async fn measure_backup_and_restore(count: usize) -> (Duration, Duration) {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("backup"));
    let path = file.to_str().unwrap();
    create_store_with_jobs(&data, count).await;
    let began = Instant::now();
    assert_eq!(run_on(&data, &["backup", path]).0, 0);
    let backed_up = began.elapsed();
    let began = Instant::now();
    let target = dir.path().join("restored");
    assert_eq!(run_on(&target, &["restore", path]).0, 0);
    let restored = began.elapsed();
    let size = fs::metadata(&file).unwrap().len() >> 10;
    println!("{count} jobs: {size} KiB, backup {backed_up:?}, restore {restored:?}");
    let store = open_store(&target).await;
    assert_eq!(
        store.read(|tx| jobs::latest(tx, count + 1)).unwrap().len(),
        count
    );
    (backed_up, restored)
}

#[tokio::test]
async fn restores_many_jobs() {
    measure_backup_and_restore(3000).await;
}

/// Run with `cargo test --release --test it -- --ignored a_hundred_thousand`.
#[tokio::test]
#[ignore = "a measurement, for a quiet machine and a release build"]
async fn a_hundred_thousand_jobs_are_restored_within_five_seconds() {
    let (_, restored) = measure_backup_and_restore(100_000).await;
    assert!(restored < Duration::from_secs(5), "{restored:?}");
}

/// Run with `cargo test --release --test it -- --ignored writers`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, for a quiet machine and a release build"]
async fn writers_are_not_blocked_by_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let job = create_store_with_jobs(&data, 100_000).await;
    let service = ServiceProcess::start(&data, &report_flags());
    let reporters = Reporters::start(&service, &job);
    reporters.wait_for(1000).await;
    let rate = |from: usize, span: Duration| {
        (reporters.acknowledged().len() - from) as f64 / span.as_secs_f64()
    };
    let (from, began) = (reporters.acknowledged().len(), Instant::now());
    // The time of the measurement.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let baseline = rate(from, began.elapsed());
    let file = dir.path().join("backup");
    let (from, began) = (reporters.acknowledged().len(), Instant::now());
    let backup =
        tokio::task::spawn_blocking(move || run_on(&data, &["backup", file.to_str().unwrap()]));
    assert_eq!(backup.await.unwrap().0, 0);
    let (span, during) = (began.elapsed(), rate(from, began.elapsed()));
    println!(
        "durable reports a second: {baseline:.0} alone, {during:.0} during a backup of {span:?}"
    );
    reporters.stop();
    service.kill();
    assert!(during > baseline / 3.0);
}

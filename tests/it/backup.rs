//! Backups of a service at work, and what is refused to be restored.

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
use store::{STORE_FILE, Store, StoreError, jobs, secrets};

use crate::api_server::{TOKEN_SECRET, dispatched_job};
use crate::process::{
    ServiceProcess, client_builder, command, control_request, exit_and_output, run,
};

/// Runs a command on a data directory and answers what it said, exit code first.
fn on(dir: &Path, arguments: &[&str]) -> (i32, String, String) {
    let dir = dir.to_str().unwrap();
    exit_and_output(&run(&[arguments, &["--data-dir", dir]].concat()))
}

fn reports() -> [&'static str; 4] {
    [
        "--runner-token-secret",
        TOKEN_SECRET,
        "--runner-callback-base-url",
        "http://127.0.0.1:1",
    ]
}

async fn opened(dir: &Path) -> Store {
    loop {
        match Store::open(dir) {
            Err(StoreError::InUse { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
            opened => return opened.unwrap(),
        }
    }
}

/// Lets go of a store for good: its writer is a thread of its own, and ends a moment later.
fn let_go(store: Store, dir: &Path) {
    drop(store);
    let file = fs::File::open(dir.join(STORE_FILE)).unwrap();
    file.lock().unwrap();
}

async fn with_jobs(dir: &Path, count: usize) -> Job {
    let store = opened(dir).await;
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
    let_go(store, dir);
    dispatched_job("01JOB00000000", JobKind::Implementation)
}

/// Many runs that report without a pause; each report that was acknowledged is noted.
struct Reporters {
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Reporters {
    fn start(service: &ServiceProcess, of: &Job) -> Self {
        let now = Clock::System.now();
        let tokens = RunTokenIssuer::new(&Secret::new(TOKEN_SECRET));
        let until = now + Duration::from_secs(3600);
        let token = tokens.issue(
            &of.id,
            TokenAudience::Progress,
            of.kind.run_phase(),
            now,
            until,
        );
        let url = format!("{}/runner/progress", service.address);
        let acknowledged = Arc::<Mutex<BTreeSet<String>>>::default();
        let reporter = |number: usize| {
            let (url, token) = (url.clone(), token.expose().to_owned());
            let noted = Arc::clone(&acknowledged);
            tokio::spawn(async move {
                let client = client_builder().build().unwrap();
                for count in 0.. {
                    let id = format!("step-{number}-{count}");
                    let body = json!({"step": {"id": id, "type": "clone", "status": "passed",
                        "started_at": "2027-01-15T08:00:00Z"}});
                    let told = client
                        .post(&url)
                        .bearer_auth(&token)
                        .json(&body)
                        .send()
                        .await;
                    let Ok(told) = told else { return };
                    assert_eq!(told.status().as_u16(), 200);
                    noted.lock().unwrap().insert(id);
                }
            })
        };
        let tasks = (0..16).map(reporter).collect();
        Self {
            acknowledged,
            tasks,
        }
    }

    fn so_far(&self) -> BTreeSet<String> {
        self.acknowledged.lock().unwrap().clone()
    }

    async fn at_least(&self, count: usize) {
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
async fn all_that_was_acknowledged_before_a_backup_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    let file = dir.path().join("backup");
    let path = file.to_str().unwrap();
    let run_of = with_jobs(&here, 200).await;
    let service = ServiceProcess::start(&here, &reports());
    let reporters = Reporters::start(&service, &run_of);
    reporters.at_least(300).await;
    let before = reporters.so_far();
    let place = here.clone();
    let command = path.to_owned();
    let taken = tokio::task::spawn_blocking(move || on(&place, &["backup", &command]));
    let (code, told, wrong) = taken.await.unwrap();
    assert_eq!(code, 0, "{told}{wrong}");
    reporters.stop();
    // The machine is lost.
    service.kill();
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let (code, told, wrong) = on(&there, &["restore", path]);
    assert_eq!(code, 0, "{told}{wrong}");
    let service = ServiceProcess::start(&there, &reports());
    let steps = format!("/api/jobs/{}/steps", run_of.id);
    let (_, body) = control_request(&there, Method::GET, &steps, None).await;
    let kept = body["steps"].as_array().unwrap().iter();
    let kept: BTreeSet<String> = kept
        .map(|step| step["id"].as_str().unwrap().to_owned())
        .collect();
    let lost: Vec<&String> = before.difference(&kept).collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost: {lost:?}",
        lost.len(),
        before.len()
    );
    assert_eq!(service.stop(), 0);
}

#[tokio::test]
async fn nothing_is_written_over_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("backup"));
    let path = file.to_str().unwrap();
    with_jobs(&data, 3).await;
    assert_eq!(on(&data, &["backup", path]).0, 0);
    let first = fs::read(&file).unwrap();
    let (code, _, told) = on(&data, &["backup", path]);
    assert_eq!(code, 1);
    assert!(told.contains("--force writes over it"), "{told}");
    assert_eq!(fs::read(&file).unwrap(), first);
    assert_eq!(on(&data, &["backup", path, "--force"]).0, 0);

    let (code, _, told) = on(&data, &["restore", path]);
    assert_eq!(code, 1);
    assert!(
        told.contains("there is a store already; --replace"),
        "{told}"
    );

    let service = ServiceProcess::start(&data, &[]);
    for line in [&["restore", path][..], &["restore", path, "--replace"]] {
        let (code, _, told) = on(&data, line);
        assert_eq!(code, 1);
        assert!(
            told.contains("a service is running on this folder"),
            "{told}"
        );
    }
    service.stop();

    let (code, told, _) = on(&data, &["restore", path, "--replace"]);
    assert_eq!(code, 0);
    let aside = told.split("that was there is now ").nth(1).unwrap();
    assert!(
        Path::new(aside.trim().trim_end_matches('.')).exists(),
        "{told}"
    );
    let restored = opened(&data).await;
    assert_eq!(restored.read(|tx| jobs::latest(tx, 10)).unwrap().len(), 3);
}

#[tokio::test]
async fn only_a_folder_that_somebody_named_is_made_for_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("old"), dir.path().join("backup"));
    let path = file.to_str().unwrap();
    with_jobs(&data, 3).await;
    assert_eq!(on(&data, &["backup", path]).0, 0);
    let here = |more: &[&str]| {
        let mut restore = command(&[&["restore", path][..], more].concat());
        exit_and_output(&restore.current_dir(dir.path()).output().unwrap())
    };
    let usual = dir.path().join("data");
    let (code, _, told) = here(&[]);
    assert_eq!(code, 1);
    let missing = format!("there is no data folder {};", usual.display());
    assert!(told.contains(&missing), "{told}");
    assert!(
        told.contains("--data-dir") && told.contains("--env-file"),
        "{told}"
    );
    assert!(!usual.exists(), "nothing was made");

    let (settings, named) = (dir.path().join("service.env"), dir.path().join("named"));
    fs::write(&settings, "DATA_DIR=named\n").unwrap();
    for (more, place) in [
        (&["--env-file", settings.to_str().unwrap()][..], &named),
        (&["--data-dir", "./data"][..], &usual),
        (&["--replace"][..], &usual),
    ] {
        let (code, told, wrong) = here(more);
        assert_eq!(code, 0, "{more:?}: {wrong}");
        let written = format!("{} is again as it was", place.display());
        assert!(told.contains(&written), "{told}");
        assert!(place.join(STORE_FILE).exists(), "{more:?}");
    }
}

#[tokio::test]
async fn a_backup_that_is_cut_off_or_altered_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file, empty) = (
        dir.path().join("data"),
        dir.path().join("b"),
        dir.path().join("new"),
    );
    with_jobs(&data, 50).await;
    let piped = run(&["backup", "-", "--data-dir", data.to_str().unwrap()]);
    let whole = piped.stdout;
    assert!(piped.status.success());
    let restored = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        on(&empty, &["restore", file.to_str().unwrap()])
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
        let (code, _, told) = restored(&whole[..length]);
        assert_eq!(code, 1, "{length}: {told}");
        assert!(
            told.contains("cut off or damaged") || told.contains("not a backup"),
            "{told}"
        );
    }
    for at in [3, 40, whole.len() / 3, whole.len() - 45, whole.len() - 5] {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        let (code, _, told) = restored(&altered);
        assert_eq!(code, 1, "{at}: {told}");
    }
    let longer = [&whole[..], b"more"].concat();
    assert_eq!(restored(&longer).0, 1);
    assert!(!empty.exists(), "nothing was made");
    assert_eq!(restored(&whole).0, 0);
}

/// A store with a secret in it.
pub async fn create_store_with_secret(dir: &Path) {
    let store = opened(dir).await;
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
    let_go(store, dir);
}

#[tokio::test]
async fn the_key_of_the_secrets_goes_its_own_way_and_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("backup"));
    let (path, key) = (file.to_str().unwrap(), dir.path().join("backup.key"));
    create_store_with_secret(&data).await;
    let (code, told, _) = on(&data, &["backup", path]);
    assert_eq!(code, 0);
    assert!(
        told.contains("secrets (1) open only with their key"),
        "{told}"
    );
    let taken = fs::read(&file).unwrap();
    let secret_key = fs::read(data.join("secrets.key")).unwrap();
    let holds = |needle: &[u8]| taken.windows(needle.len()).any(|part| part == needle);
    assert!(!holds(b"canary-of-a-secret") && !holds(&secret_key));

    let there = dir.path().join("there");
    let (code, _, told) = on(&there, &["restore", path]);
    assert_eq!(code, 1);
    assert!(told.contains("no key that opens them"), "{told}");
    assert!(!there.join("agent-implement.redb").exists());

    assert_eq!(on(&data, &["backup", path, "--force", "--with-key"]).0, 0);
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let (code, told, wrong) = on(&there, &["restore", path]);
    assert_eq!(code, 0, "{told}{wrong}");
    assert_eq!(fs::read(there.join("secrets.key")).unwrap(), secret_key);
    assert_eq!(ServiceProcess::start(&there, &[]).stop(), 0);

    // A folder with another's key: the one beside the backup takes its place, and it is kept.
    let other = dir.path().join("other");
    create_store_with_secret(&other).await;
    let (code, told, wrong) = on(&other, &["restore", path, "--replace"]);
    assert_eq!(code, 0, "{told}{wrong}");
    assert!(told.contains("The key that was there is now"), "{told}");
    assert_eq!(ServiceProcess::start(&other, &[]).stop(), 0);

    fs::remove_file(&key).unwrap();
    let lost = dir.path().join("lost");
    let (code, told, _) = on(&lost, &["restore", path, "--without-secrets"]);
    assert_eq!(code, 0);
    assert!(told.contains("1 secrets were left out"), "{told}");
    let store = opened(&lost).await;
    assert!(store.read(secrets::all).unwrap().is_empty());
}

/// Backs up and restores so many jobs and says how long it took.
async fn carry(count: usize) -> (Duration, Duration) {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("backup"));
    let path = file.to_str().unwrap();
    with_jobs(&data, count).await;
    let began = Instant::now();
    assert_eq!(on(&data, &["backup", path]).0, 0);
    let backed_up = began.elapsed();
    let began = Instant::now();
    let there = dir.path().join("there");
    assert_eq!(on(&there, &["restore", path]).0, 0);
    let restored = began.elapsed();
    let size = fs::metadata(&file).unwrap().len() >> 10;
    println!("{count} jobs: {size} KiB, backup {backed_up:?}, restore {restored:?}");
    let store = opened(&there).await;
    assert_eq!(
        store.read(|tx| jobs::latest(tx, count + 1)).unwrap().len(),
        count
    );
    (backed_up, restored)
}

#[tokio::test]
async fn many_jobs_are_carried_over() {
    carry(3000).await;
}

/// Measured with `cargo test --release -- --ignored a_hundred_thousand`.
#[tokio::test]
#[ignore = "a measurement, for a quiet machine and a release build"]
async fn a_hundred_thousand_jobs_are_restored_within_five_seconds() {
    let (_, restored) = carry(100_000).await;
    assert!(restored < Duration::from_secs(5), "{restored:?}");
}

/// Measured with `cargo test --release -- --ignored writers`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, for a quiet machine and a release build"]
async fn writers_are_not_held_up_by_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let run_of = with_jobs(&data, 100_000).await;
    let service = ServiceProcess::start(&data, &reports());
    let reporters = Reporters::start(&service, &run_of);
    reporters.at_least(1000).await;
    let rate =
        |from: usize, span: Duration| (reporters.so_far().len() - from) as f64 / span.as_secs_f64();
    let (from, began) = (reporters.so_far().len(), Instant::now());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let alone = rate(from, began.elapsed());
    let file = dir.path().join("backup");
    let (from, began) = (reporters.so_far().len(), Instant::now());
    let taken = tokio::task::spawn_blocking(move || on(&data, &["backup", file.to_str().unwrap()]));
    assert_eq!(taken.await.unwrap().0, 0);
    let (span, during) = (began.elapsed(), rate(from, began.elapsed()));
    println!("durable reports a second: {alone:.0} alone, {during:.0} during a backup of {span:?}");
    reporters.stop();
    service.kill();
    assert!(during > alone / 3.0);
}

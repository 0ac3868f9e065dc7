//! Restores beside a standby: the commands of the documentation, an interrupted take-over, and a backup from a file.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::time::Duration;

use fake_vendors::{FakeService, FaultRates};
use requires::requires;
use reqwest::{Method, redirect};
use serde_json::{Value, json};

use super::{Machines, cap, set_cap, wait_until};
use crate::github_app::confirm_app;
use crate::process::{ServiceProcess, client_builder, command, control_request, exit_and_output};

/// Runs `restore --latest` as the documentation names it. Everything else is in the file of the service.
fn restore_with_file(env_file: &Path, flags: &[&str]) -> (i32, String, String) {
    let mut restore = command(&["restore", "--latest", "--env-file"]);
    exit_and_output(&restore.arg(env_file).args(flags).output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_by_hand_finds_the_place_in_the_file_of_the_service() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second, place) = (
        dir.path().join("first"),
        dir.path().join("second"),
        dir.path().join("place"),
    );
    std::fs::create_dir(&place).unwrap();
    let flags = ["--quick", "--standby-place", place.to_str().unwrap()];
    assert_eq!(ServiceProcess::start(&first, &flags).stop(), 0);
    let file = dir.path().join("agent-implement.env");
    let variables = format!(
        "DATA_DIR={}\nSTANDBY_PLACE={}\n",
        second.display(),
        place.display()
    );
    std::fs::write(&file, variables).unwrap();
    let (code, stdout, stderr) = restore_with_file(&file, &["--replace"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Restored "), "{stdout}");

    // A place that is set but empty is no place.
    for variables in ["", "STANDBY_PLACE=\n"] {
        let data = format!("DATA_DIR={}\n{variables}", second.display());
        std::fs::write(&file, data).unwrap();
        let (code, _, stderr) = restore_with_file(&file, &["--replace"]);
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("use --from PLACE"), "{stderr}");
        // The unit of a standby runs this before each start, also after STANDBY_PLACE was removed.
        let (code, stdout, stderr) = restore_with_file(&file, &["--when-free", "--replace"]);
        assert_eq!(code, 0, "{stderr}");
        assert!(
            stdout.contains("STANDBY_PLACE is not set. Nothing was restored."),
            "{stdout}"
        );
    }
}

/// A machine that is killed between the restore of the store and the note that it belongs to the place.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_first_take_over_is_repeated() {
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    let service = machines.start(&first);
    set_cap(&first, 7).await;
    service.kill();
    let (code, _, stderr) = machines.restore(&second, &["--when-free", "--replace"]);
    assert_eq!(code, 0, "{stderr}");
    let path = second.join("standby.json");
    let mut identity: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    identity["epoch"] = Value::Null;
    std::fs::write(&path, identity.to_string()).unwrap();
    let message = machines.refused(&second);
    assert!(message.contains("was not finished"), "{message}");
    let (code, stdout, stderr) = machines.restore(&second, &["--when-free", "--replace"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Restored "), "{stdout}");
    let _service = machines.start(&second);
    assert_eq!(cap(&second).await, json!(7));
}

/// The state in the place would replace what is restored from a file, so the command names the way around it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_not_restored_beside_the_state_in_a_place() {
    let machines = Machines::new().await;
    let first = machines.first_dir();
    let file = first.with_file_name("backup");
    let run_on_first = |arguments: &[&str]| {
        let mut with_file = command(arguments);
        let with_file = with_file.arg(&file).arg("--data-dir").arg(&first);
        exit_and_output(&with_file.output().unwrap())
    };
    let service = machines.start(&first);
    let (code, _, stderr) = run_on_first(&["backup", "--force"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(service.stop(), 0);
    let (code, _, stderr) = run_on_first(&["restore", "--replace"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("remove standby.json from their data folders"),
        "{stderr}"
    );
    std::fs::remove_file(first.join("standby.json")).unwrap();
    let (code, stdout, stderr) = run_on_first(&["restore", "--replace"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Restored "), "{stdout}");
}

/// Root restores for the user of the service, whose own restores must be able to remove what an aborted one leaves.
#[requires("mount")]
#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_aborted_restore_belong_to_the_user_of_the_service() {
    const USER: u32 = 65_534;
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    let service = machines.start(&first);
    // When a backup is complete.
    set_cap(&first, 7).await;
    service.kill();
    std::fs::create_dir(&second).unwrap();
    chown(&second, Some(USER), Some(USER)).unwrap();
    let latency = Duration::from_secs(1);
    let bucket = machines.env.vendors.faults(FakeService::Bucket);
    bucket.set_rates(FaultRates {
        latency,
        ..FaultRates::default()
    });
    let place = machines.env.vendors.bucket().address();
    let mut restore = command(&["restore", "--latest", "--when-free", "--from", &place]);
    let restore = restore.args(machines.access(&second)).arg("--data-dir");
    let mut restore = restore.arg(&second).spawn().unwrap();
    let fetched = second.join(".restore.fetched");
    wait_until("a folder for what is fetched", || fetched.exists()).await;
    restore.kill().unwrap();
    restore.wait().unwrap();
    let left = std::fs::metadata(&fetched).unwrap();
    assert_eq!((left.uid(), left.mode() & 0o777), (USER, 0o700));
}

/// GitHub gives the key of an App once. The change is made by the way back from GitHub, which is a `GET`.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_was_just_created_is_on_the_next_machine() {
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    let without_app = |dir: &Path| {
        let mut flags = machines.serve_flags(dir);
        for name in ["--github-app-id", "--github-app-private-key"] {
            let at = flags.iter().position(|flag| flag == name).unwrap();
            flags.drain(at..at + 2);
        }
        flags
    };
    let start = |dir: &Path| {
        let flags = without_app(dir);
        ServiceProcess::start(dir, &flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let source = async |dir: &Path| {
        let (_, all) = control_request(dir, Method::GET, "/api/connections", None).await;
        let mut all = all.as_array().unwrap().iter();
        let github = all.find(|one| one["name"] == "github").unwrap();
        github["source"].clone()
    };
    let service = start(&first);
    let (status, begun) =
        control_request(&first, Method::GET, "/api/github-app/manifest", None).await;
    assert_eq!(status, 200, "{begun}");
    let client = client_builder().redirect(redirect::Policy::none());
    let client = client.build().unwrap();
    let (action, manifest) = (
        begun["action"].as_str().unwrap(),
        begun["manifest"].to_string(),
    );
    let back = confirm_app(&client, action, &manifest).await;
    let (_, path) = back.split_once("/admin/").unwrap();
    let back = client
        .get(format!("{}/admin/{path}", service.address))
        .send();
    assert_eq!(back.await.unwrap().status(), 303);
    service.kill();

    let (code, _, stderr) = machines.restore(&second, &[]);
    assert_eq!(code, 0, "{stderr}");
    let service = start(&second);
    assert_eq!(source(&second).await, "stored");
    assert_eq!(service.stop(), 0);
}

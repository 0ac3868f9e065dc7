//! Series of whole backups, which `backup --to` writes from outside of the service.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Machines, wait_until};
use crate::process::{ServiceProcess, command, exit_and_output, run};

fn backup_command(data: &Path, place: &str) -> Command {
    let mut backup = command(&["backup", "--every", "1s", "--to", place]);
    backup.arg("--data-dir").arg(data);
    backup
}

/// `backup --to` as a child process.
struct SeriesProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl SeriesProcess {
    fn start(mut backup: Command) -> Self {
        let mut child = backup.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.starts_with("Writing backups of "), "{first}");
        Self { child, lines }
    }

    fn wait_for_backups(&mut self, count: usize) {
        for _ in 0..count {
            let line = self.lines.next().unwrap().unwrap();
            assert!(line.starts_with("Backed up to "), "{line}");
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it as a service manager does. It gives the lease back.
    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// Writes backups of a data folder to a series.
fn add_to_series(series: &Path, data: &Path) {
    let backup = backup_command(data, &series.display().to_string());
    let mut backup = SeriesProcess::start(backup);
    backup.wait_for_backups(1);
    backup.stop();
}

fn restore_series(series: &Path, data: &Path, flags: &[&str]) -> (i32, String, String) {
    let mut restore = command(&["restore", "--latest", "--from"]);
    let restore = restore.arg(series).arg("--data-dir").arg(data);
    exit_and_output(&restore.args(flags).output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_of_backups_keeps_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let (data, place) = (dir.path().join("data"), dir.path().join("place"));
    std::fs::create_dir(&place).unwrap();
    let service = ServiceProcess::start(&data, &[]);
    let mut backup = backup_command(&data, &place.display().to_string());
    backup.args(["--keep", "2"]);
    let mut backup = SeriesProcess::start(backup);
    backup.wait_for_backups(4);
    backup.stop();
    let folders = std::fs::read_dir(&place).unwrap().flatten();
    let folders = folders.filter(|entry| entry.path().is_dir()).count();
    assert!((2..=3).contains(&folders), "{folders}");
    service.kill();

    let restored = dir.path().join("restored");
    let (code, stdout, stderr) = restore_series(&place, &restored, &[]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Restored "), "{stdout}");
    // The restored folder has taken the place, so the first one may not write there any more.
    let mut backup = backup_command(&data, &place.display().to_string());
    let (code, _, stderr) = exit_and_output(&backup.output().unwrap());
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("use another place"), "{stderr}");

    // A service does not replace its store by the series of backups that it wrote.
    let series = dir.path().join("series");
    std::fs::create_dir(&series).unwrap();
    add_to_series(&series, &data);
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

/// While backups are written, the service of their machine may be working. The lease of a killed command ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_is_not_restored_while_it_is_written() {
    let machines = Machines::new().await;
    let (first, second) = (machines.first_dir(), machines.second_dir());
    let service = ServiceProcess::start(&first, &[]);
    let place = machines.env.vendors.bucket().address();
    let mut backup = backup_command(&first, &place);
    // Secrets in a backup stay encrypted, so the last flag, their key, is not needed.
    let access = machines.access(&first);
    backup.args(&access[..access.len() - 2]);
    let mut backup = SeriesProcess::start(backup);
    backup.wait_for_backups(2);

    let (code, stdout, stderr) = machines.restore(&second, &[]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(
        stderr.contains(&format!(
            "is writing to {place}, so its service may be working"
        )),
        "{stderr}"
    );
    assert!(!second.join("agent-implement.redb").exists());
    backup.wait_for_backups(1);
    backup.kill();
    service.kill();

    let (code, stdout, stderr) = machines.restore(&second, &[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("Waiting until "), "{stdout}");
    assert!(stdout.contains("Restored "), "{stdout}");
}

/// The next backup, which would report it, may be hours away, and the lease ends meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_a_series_that_cannot_be_renewed_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (data, place) = (dir.path().join("data"), dir.path().join("place"));
    std::fs::create_dir(&place).unwrap();
    assert_eq!(ServiceProcess::start(&data, &[]).stop(), 0);
    let mut backup = command(&["backup", "--every", "1h", "--to"]);
    backup.arg(&place).arg("--data-dir").arg(&data);
    backup.stderr(Stdio::piped());
    let mut backup = SeriesProcess::start(backup);
    backup.wait_for_backups(1);
    std::fs::rename(&place, dir.path().join("unmounted")).unwrap();
    let errors = BufReader::new(backup.child.stderr.take().unwrap());
    let first = errors.lines().next().unwrap().unwrap();
    assert!(
        first.contains("renewing the lease of the place failed: "),
        "{first}"
    );
    backup.kill();
}

/// A backup that is interrupted leaves no copy of the store in the data folder.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_backup_of_a_series_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (data, place) = (dir.path().join("data"), dir.path().join("place"));
    let backup_to_place = || backup_command(&data, &place.display().to_string());
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

/// The state that the service shares with its standby would replace what is restored from a series, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_is_not_restored_beside_the_state_in_a_place() {
    let machines = Machines::new().await;
    let first = machines.first_dir();
    let series = first.with_file_name("series");
    std::fs::create_dir(&series).unwrap();
    let service = machines.start(&first);
    add_to_series(&series, &first);
    assert_eq!(service.stop(), 0);
    for flags in [&["--replace"][..], &["--replace", "--when-free"]] {
        let (code, stdout, stderr) = restore_series(&series, &first, flags);
        assert_eq!(code, 1, "{stdout}{stderr}");
        assert!(
            stderr.contains("remove standby.json from their data folders"),
            "{stderr}"
        );
    }
    let service = machines.start(&first);
    assert_eq!(service.stop(), 0);

    std::fs::remove_file(first.join("standby.json")).unwrap();
    for _ in 0..2 {
        let (code, stdout, stderr) = restore_series(&series, &first, &["--replace"]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains("Restored "), "{stdout}");
    }
    // A service manager repeats nothing that an operator has restored.
    let (code, stdout, stderr) = restore_series(&series, &first, &["--replace", "--when-free"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Nothing was restored"), "{stdout}");
}

//! `agent-implement take` and `give-back` by the real program, and the checkout in a real clone.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use domain::job::JobState;
use domain::report::FailureCode;
use serde_json::{Value, json};
use store::{jobs, patches};

use crate::follow_up::{open_pull, options};
use crate::process::{ServiceProcess, command, control_request, exit_and_output};
use crate::test_env::{StoppedEnv, TestEnv};

const BRANCH: &str = "agent-implement/eng-1";

/// Change of the file of the branch, and a new file.
const PATCH: &str = "\
# Change that could not be pushed to agent-implement/eng-1. Apply it on 0123 with git apply.
diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1 +1 @@
-a
+A
diff --git a/new.txt b/new.txt
new file mode 100644
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+new
";

/// Service in a process of its own, with ticket `ENG-1`, its open pull request and a kept patch.
struct Story {
    env: StoppedEnv,
    service: Option<ServiceProcess>,
    number: u64,
    dir: tempfile::TempDir,
}

impl Story {
    async fn start() -> Self {
        let env = TestEnv::with_options(options()).await;
        let number = open_pull(&env, "ENG-1").await;
        let mut failed = env.jobs("ENG-1").remove(0);
        failed.id = "01ZFAILED".into();
        failed.state = JobState::Failed {
            code: Some(FailureCode::PushRejected),
            reason: "push was rejected: somebody pushed".into(),
        };
        let put = env.store.write(move |tx| {
            jobs::put(tx, &failed)?;
            patches::put(tx, &failed.id, PATCH)
        });
        put.await.unwrap();
        let env = env.stop_service().await;
        let service = Some(env.start_process(&options()));
        let dir = tempfile::tempdir().unwrap();
        Self {
            env,
            service,
            number,
            dir,
        }
    }

    async fn end(self) {
        drop(self.service);
        self.env.vendors.stop_and_kill_runs().await;
    }

    /// Runs the program in a folder, with a home folder of its own.
    fn run_in(&self, folder: &Path, arguments: &[&str]) -> Output {
        let home = self.dir.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        let config = "[user]\n\tname = Kim Doe\n\temail = kim@acme.test\n";
        std::fs::write(home.join(".gitconfig"), config).unwrap();
        let mut command = command(arguments);
        command
            .current_dir(folder)
            .env("HOME", home)
            .arg("--data-dir");
        command.arg(self.env.data_dir()).output().unwrap()
    }

    fn take_in(&self, folder: &Path) -> (i32, String, String) {
        exit_and_output(&self.run_in(folder, &["take", "ENG-1", "--checkout"]))
    }

    async fn shown(&self) -> Value {
        let path = "/api/issues/ENG-1/take";
        let data = self.env.data_dir();
        let shown = control_request(&data, reqwest::Method::GET, path, None);
        shown.await.1
    }

    /// Clones the repository under this name, with its credentials in the address.
    fn clone(&self, name: &str) -> PathBuf {
        let github = self.env.vendors.github();
        let url = github.repo("acme", "shop").clone_url();
        let with_token = format!("http://kim:{}@", github.personal_token());
        let url = url.replace("http://", &with_token);
        let folder = self.dir.path().join(name);
        git(self.dir.path(), &["clone", "--quiet", &url, name]);
        git(&folder, &["config", "user.name", "Kim Doe"]);
        git(&folder, &["config", "user.email", "kim@acme.test"]);
        folder
    }
}

/// Runs git and returns its output.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn prints_how_to_continue_and_gives_back() {
    let mut story = Story::start().await;
    let here = story.dir.path();
    let run = |arguments: &[&str]| exit_and_output(&story.run_in(here, arguments));
    let (code, shown, error) = run(&["take", "eng-1"]);
    assert_eq!(code, 0, "{error}");
    for line in [
        "ENG-1  Make it work".to_owned(),
        format!("  git fetch origin {BRANCH}"),
        format!("  git switch {BRANCH}"),
        "  agent-implement take ENG-1 --print-patch > ENG-1.patch".to_owned(),
        "  git apply --3way ENG-1.patch".to_owned(),
        "  Checks: none reported".to_owned(),
        "Last run: Implementation, failed  (run 01ZFAILED)".to_owned(),
        "  push was rejected: somebody pushed".to_owned(),
    ] {
        assert!(
            shown.lines().any(|printed| printed == line),
            "{line}\n{shown}"
        );
    }
    assert!(shown.contains("Taken over by Kim Doe since "), "{shown}");
    assert!(
        shown.contains(&format!("Pull request #{} (open)  http", story.number)),
        "{shown}"
    );
    assert_eq!(story.shown().await["takenBy"], "Kim Doe");

    let patch = story.run_in(here, &["take", "ENG-1", "--print-patch"]);
    assert_eq!(
        exit_and_output(&patch),
        (0, PATCH.to_owned(), String::new())
    );
    let (code, shown, _) = run(&["take", "ENG-1", "--json", "--name", "Mia"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &shown["takenBy"]), (0, &json!("Mia")));

    let (code, shown, _) = run(&["why", "ENG-1"]);
    assert!(
        code == 5 && shown.contains("Taken over by Mia since "),
        "{shown}"
    );
    let given = "Nobody has ENG-1 any more. Automatic work goes on.\n".to_owned();
    for _ in 0..2 {
        assert_eq!(
            run(&["give-back", "ENG-1"]),
            (0, given.clone(), String::new())
        );
    }
    assert_eq!(story.shown().await["taken"], false);
    for command in ["take", "give-back"] {
        let unknown = "agent-implement: neither a poll nor a run knows ENG-9.\n".to_owned();
        assert_eq!(run(&[command, "ENG-9"]), (4, String::new(), unknown));
    }
    assert_eq!(story.service.take().unwrap().stop(), 0);
    let output = story.run_in(story.dir.path(), &["take", "ENG-1"]);
    let (code, _, error) = exit_and_output(&output);
    assert!(
        code == 1 && error.contains("is stopped. Start it"),
        "{error}"
    );
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_the_work_out_and_loses_nothing() {
    let story = Story::start().await;
    let shop = story.clone("shop");
    let (code, shown, error) = story.take_in(&shop);
    assert_eq!(code, 0, "{shown}{error}");
    assert_eq!(git(&shop, &["branch", "--show-current"]).trim(), BRANCH);
    let upstream = git(&shop, &["rev-parse", "--abbrev-ref", "@{upstream}"]);
    assert_eq!(upstream.trim(), format!("origin/{BRANCH}"));
    assert_eq!(
        (read(&shop, "a.txt"), read(&shop, "new.txt")),
        ("A\n".into(), "new\n".into())
    );
    let mode = shop
        .join("new.txt")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_ne!(
        mode & 0o044,
        0,
        "{mode:o}: the umask of the service must not count"
    );
    assert!(shown.contains("Applied the kept patch."), "{shown}");
    assert_eq!(story.shown().await["takenBy"], "Kim Doe");

    // Again, with the changes staged, and with the changes committed.
    let again = story.take_in(&shop.join(".git/.."));
    assert!(
        again.0 == 0 && again.1.contains("The work is here already"),
        "{again:?}"
    );
    git(&shop, &["commit", "--quiet", "--message", "By hand"]);
    let head = git(&shop, &["rev-parse", "HEAD"]);
    assert_eq!(story.take_in(&shop).0, 0);
    git(&shop, &["switch", "--quiet", "main"]);
    assert_eq!(story.take_in(&shop).0, 0);
    assert_eq!(
        git(&shop, &["rev-parse", "HEAD"]),
        head,
        "the commit of the person is kept"
    );

    // Somebody pushes meanwhile: diverged.
    let repo = story.env.vendors.github().repo("acme", "shop");
    repo.commit(BRANCH, &[("b.txt", "b\n")], "B").unwrap();
    git(&shop, &["switch", "--quiet", "main"]);
    let (code, _, error) = story.take_in(&shop);
    assert!(
        code == 3 && error.contains("have diverged. Nothing was changed."),
        "{error}"
    );
    assert_eq!(git(&shop, &["rev-parse", BRANCH]), head);

    // A branch that is behind moves forward.
    let behind = story.clone("behind");
    git(&behind, &["switch", "--quiet", BRANCH]);
    git(&behind, &["reset", "--quiet", "--hard", "HEAD~1"]);
    git(&behind, &["switch", "--quiet", "main"]);
    assert_eq!(story.take_in(&behind).0, 0);
    assert_eq!(read(&behind, "b.txt"), "b\n");

    // The branch now has other content where the patch applies.
    repo.commit(BRANCH, &[("a.txt", "other\n")], "C").unwrap();
    let conflict = story.clone("conflict");
    let (code, shown, error) = story.take_in(&conflict);
    assert!(
        code == 1 && error.contains("does not apply cleanly"),
        "{shown}{error}"
    );
    assert!(shown.contains("Taken over by Kim Doe"), "{shown}");
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_other_folders_and_uncommitted_changes() {
    let story = Story::start().await;
    let (plain, other) = (
        story.dir.path().join("plain"),
        story.dir.path().join("other"),
    );
    std::fs::create_dir_all(&plain).unwrap();
    git(story.dir.path(), &["init", "--quiet", "other"]);
    let no_remote = story.take_in(&other);
    git(
        &other,
        &[
            "remote",
            "add",
            "up",
            "https://kim:secret@github.com/acme/shopping.git",
        ],
    );
    git(
        &other,
        &["remote", "add", "fork", "git@github.com:kim/shop.git"],
    );
    let changed = story.clone("changed");
    std::fs::write(changed.join("README.md"), "mine\n").unwrap();
    let untracked = story.clone("untracked");
    std::fs::write(untracked.join("new.txt"), "mine\n").unwrap();
    let wrong = story.take_in(&other);
    assert!(!wrong.2.contains("secret"), "{wrong:?}");
    for (refused, expected) in [
        (
            story.take_in(&plain),
            "is not in a work tree of git. Change to a clone of acme/shop",
        ),
        (
            no_remote,
            "is not a clone of acme/shop. It has no remote with a repository.",
        ),
        (
            wrong,
            "is not a clone of acme/shop. Its remotes are kim/shop, acme/shopping.",
        ),
        (
            story.take_in(&changed),
            "has changes that are not committed",
        ),
        (
            story.take_in(&untracked),
            "has changes that are not committed",
        ),
    ] {
        assert!(
            refused.0 == 3 && refused.2.contains(expected),
            "{refused:?}"
        );
        assert_eq!(refused.1, "");
    }
    assert_eq!(read(&changed, "README.md"), "mine\n");
    assert_eq!(read(&untracked, "new.txt"), "mine\n");
    assert_eq!(
        story.shown().await["taken"],
        false,
        "a refusal takes nothing over"
    );

    // Another form of the address counts, too; only the names are compared.
    let ssh = story.clone("ssh");
    let url = git(&ssh, &["remote", "get-url", "origin"]);
    git(
        &ssh,
        &[
            "remote",
            "set-url",
            "origin",
            "git@github.com:ACME/Shop.git",
        ],
    );
    let (code, _, error) = story.take_in(&ssh);
    assert!(code != 3, "{error}");
    git(&ssh, &["remote", "set-url", "origin", url.trim()]);
    git(&ssh, &["remote", "rename", "origin", "upstream"]);
    let (code, _, error) = story.take_in(&ssh);
    assert_eq!(code, 0, "{error}");
    story.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_of_the_branch_is_run() {
    let story = Story::start().await;
    let repo = story.env.vendors.github().repo("acme", "shop");
    let mark = story.dir.path().join("hook-ran");
    let hook = format!("#!/bin/sh\ntouch '{}'\n", mark.display());
    let files = ["post-checkout", "post-merge", "pre-applypatch"];
    let files = files.map(|name| format!(".husky/{name}"));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|name| (name.as_str(), hook.as_str()))
        .collect();
    repo.commit(BRANCH, &files, "Hooks").unwrap();
    let shop = story.clone("shop");
    git(&shop, &["config", "core.hooksPath", ".husky"]);
    git(&shop, &["config", "core.fileMode", "false"]);
    git(
        &shop,
        &[
            "config",
            "alias.switch",
            &format!("!touch {}", mark.display()),
        ],
    );
    let (code, _, error) = story.take_in(&shop);
    assert_eq!(code, 0, "{error}");
    for (name, _) in files {
        let path = shop.join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    git(&shop, &["stash", "--quiet", "--include-untracked"]);
    let (code, _, error) = story.take_in(&shop);
    assert_eq!(code, 0, "{error}");
    assert!(!mark.exists());
    story.end().await;
}

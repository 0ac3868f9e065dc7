//! Staged trees, their changes and their guard findings.

use std::os::unix::fs::symlink;

use tokio::time::Instant;

use super::{create_fixture, shell};
use crate::child;
use crate::git::GIT_TIMEOUT;
use crate::git::remote::PushOutcome;
use crate::guard;
use crate::repo_config::RepoConfig;
use domain::report::RunPhase;
use domain::sensitive_files::{AllowList, GuardReason};

#[tokio::test]
async fn blocks_paths_that_cannot_be_staged_and_stages_the_rest() {
    let fixture = create_fixture("echo a > a.txt; mkdir d; echo f > d/f").await;
    let tree = fixture.tree();
    shell(
        tree,
        "mkdir -p .GIT/hooks; echo x > .GIT/config; mkdir sub; echo y > 'sub/git~1'
         git init -q nested; cd nested; git config user.email a@b; git config user.name n; echo z > z; git add -A; git commit -qm z; cd ..
         printf good > $'line\\nbreak \\\\ \"quoted\" *.txt'; echo ok > :colon; echo ok > ./-dash
         rm -r d; ln -s /etc d; mkfifo pipe",
    );
    symlink("/etc/passwd", tree.join("passwd")).unwrap();
    let staged = fixture.git.stage_work_tree().await.unwrap();
    let mut blocked: Vec<(&str, GuardReason)> = staged
        .blocked
        .iter()
        .map(|hit| (hit.path.as_str(), hit.reason))
        .collect();
    blocked.sort_by_key(|(path, _)| *path);
    assert_eq!(
        blocked,
        [
            (".GIT/config", GuardReason::UnsafePath),
            ("nested/", GuardReason::NestedRepository),
            ("sub/git~1", GuardReason::UnsafePath),
        ]
    );
    let changes = fixture
        .git
        .changes(&fixture.base, &staged.tree)
        .await
        .unwrap();
    let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "-dash",
            ":colon",
            "d",
            "d/f",
            "line\nbreak \\ \"quoted\" *.txt",
            "passwd"
        ]
    );
    let hits = fixture.blocked(&staged).await;
    let links: Vec<&str> = hits
        .iter()
        .filter(|hit| hit.reason == GuardReason::ExternalSymlink)
        .map(|hit| hit.path.as_str())
        .collect();
    assert_eq!(links, ["d", "passwd"]);
}

#[tokio::test]
async fn guard_checks_objects_and_earlier_commits() {
    let fixture = create_fixture("echo a > a.txt").await;
    let token = format!("ghp_{}", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW");
    std::fs::write(fixture.tree().join("config.ts"), format!("t = '{token}'\n")).unwrap();
    let first = fixture.git.stage_work_tree().await.unwrap();
    fixture
        .git
        .commit(&first.tree, &fixture.base, "earlier\n")
        .await
        .unwrap();
    std::fs::write(fixture.tree().join(".env"), "A=1\n").unwrap();
    std::fs::write(fixture.tree().join(".env.example"), "A=\n").unwrap();
    let staged = fixture.git.stage_work_tree().await.unwrap();
    let hits = fixture.blocked(&staged).await;
    let paths: Vec<&str> = hits.iter().map(|hit| hit.path.as_str()).collect();
    assert_eq!(paths, [".env", "config.ts"]);
    let message = domain::sensitive_files::guard_message(&hits);
    assert!(!message.contains(&token), "{message}");
}

#[tokio::test]
async fn excludes_files_created_before_the_agent() {
    let fixture = create_fixture("echo a > a.txt").await;
    shell(
        fixture.tree(),
        "mkdir -p node_modules/x 'odd [dir]'; echo 1 > node_modules/x/i.js; echo 2 > 'odd [dir]/f'; echo '#' > '#hash'",
    );
    fixture.git.exclude_untracked().await.unwrap();
    std::fs::write(fixture.tree().join("new.txt"), "agent").unwrap();
    let staged = fixture.git.stage_work_tree().await.unwrap();
    let changes = fixture
        .git
        .changes(&fixture.base, &staged.tree)
        .await
        .unwrap();
    let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["new.txt"]);
}

#[tokio::test]
async fn reports_a_stale_lease_and_recovers_from_a_lost_answer() {
    let fixture = create_fixture("echo a > a.txt").await;
    std::fs::write(fixture.tree().join("b.txt"), "b").unwrap();
    let (_, commit) = fixture.stage_commit_push().await;
    let again = fixture.git.push(None, "work", None, &commit).await.unwrap();
    assert_eq!(again, PushOutcome::Done, "the branch is at the commit");
    let other = fixture
        .git
        .commit("HEAD^{tree}", &fixture.base, "x\n")
        .await;
    let other = match other {
        Ok(other) => other,
        Err(error) => panic!("{error}"),
    };
    let rejected = fixture.git.push(None, "work", None, &other).await.unwrap();
    assert!(matches!(rejected, PushOutcome::Rejected(_)), "{rejected:?}");
}

#[tokio::test]
async fn rejects_truncated_output() {
    let fixture = create_fixture("echo a > a.txt").await;
    let mut spec = fixture.git.spec([]);
    spec.program = "head".into();
    spec.args = ["-c", "64M", "/dev/zero"].map(Into::into).to_vec();
    let result = child::capture(&spec, Instant::now() + GIT_TIMEOUT).await;
    let message = result.unwrap_err().to_string();
    assert_eq!(
        message,
        "cannot read its output: it printed more than 64 MiB"
    );
}

#[tokio::test]
async fn restores_a_staged_tree() {
    let fixture = create_fixture("mkdir d; echo a > a.txt; echo f > d/f").await;
    shell(fixture.tree(), "echo b > b.txt; echo more >> a.txt");
    let staged = fixture.git.stage_work_tree().await.unwrap();
    shell(
        fixture.tree(),
        "echo c > c.txt; rm -rf b.txt d; ln -s /etc d; echo most > a.txt",
    );
    fixture.git.restore(&staged.tree).await.unwrap();
    let found = shell(fixture.tree(), "ls; cat a.txt b.txt d/f");
    assert_eq!(found, "a.txt\nb.txt\nd\na\nmore\nb\nf");
    assert_eq!(fixture.git.stage_work_tree().await.unwrap(), staged);
}

#[tokio::test]
async fn reads_a_large_file_completely_in_windows() {
    let fixture = create_fixture("echo a > a.txt").await;
    let token = format!("ghp_{}", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW");
    // Across the end of the first window, and at the end of the file.
    for (name, before) in [("first.log", (8 << 20) - 20), ("last.log", 30 << 20)] {
        let filler = "all is well\n".repeat(before / 12);
        let rest = if name == "first.log" {
            filler.as_str()
        } else {
            ""
        };
        let text = format!("{filler}{token}\n{rest}{rest}{rest}");
        std::fs::write(fixture.tree().join(name), text).unwrap();
    }
    let harmless = "all is well\n".repeat((26 << 20) / 12);
    std::fs::write(fixture.tree().join("harmless.log"), &harmless).unwrap();
    let staged = fixture.git.stage_work_tree().await.unwrap();
    let hits = fixture.blocked(&staged).await;
    let paths: Vec<&str> = hits.iter().map(|hit| hit.path.as_str()).collect();
    assert_eq!(paths, ["first.log", "last.log"]);
    // The size of the previous content does not matter for a change that makes the file small.
    let base = fixture.git.commit(&staged.tree, &fixture.base, "x\n").await;
    std::fs::write(fixture.tree().join("harmless.log"), "small\n").unwrap();
    let smaller = fixture.git.stage_work_tree().await.unwrap();
    let none = AllowList::default();
    let report = guard::inspect(&fixture.git, &base.unwrap(), &smaller, &none, |_, _| false).await;
    assert_eq!(report.unwrap().blocked, []);
}

#[tokio::test]
async fn reads_the_allow_list_from_the_given_commit() {
    for (settings, permitted) in [
        (
            "guard:\n  allow: ['a/**']\nreviewProviders: [x]\n",
            Ok(true),
        ),
        ("reviewProviders: [x]\n", Ok(false)),
        ("", Ok(false)),
        ("guard:\n  allow: a\n", Err(())),
        ("guard:\n  allow: ['a[']\n", Err(())),
    ] {
        let seed = format!(
            "mkdir .agent-implement; printf '{}' > .agent-implement/config.yml; echo a > a",
            settings.replace('\'', "\"")
        );
        let fixture = create_fixture(&seed).await;
        std::fs::write(
            fixture.tree().join(".agent-implement/config.yml"),
            "guard: {allow: ['**']}\n",
        )
        .unwrap();
        let read = RepoConfig::read(&fixture.git, &fixture.base, RunPhase::Implementation).await;
        match (read, permitted) {
            (Ok(config), Ok(permitted)) => {
                let list = AllowList::compile(&config.settings.guard.allow).unwrap();
                assert_eq!(list.permits("a/b/.env"), permitted, "{settings:?}");
                assert!(!list.permits("b/.env"), "{settings:?}");
            }
            (Err(error), Err(())) => {
                let error = error.to_string();
                assert!(
                    error.starts_with("cannot read .agent-implement/config.yml: "),
                    "{error}"
                );
            }
            (read, _) => panic!("{read:?} of {settings:?}"),
        }
    }
}

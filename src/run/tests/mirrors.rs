//! Runs with a mirror of their repository.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{APPROVE, BRANCH, RunFixture};
use crate::git::tests::shell;

/// Agent that changes a file and counts the commits that it sees.
const IMPLEMENT: &str = "git log --format=%s > history.txt";

/// Creates a mirror of the first 60 commits of a repository.
fn mirror(fixture: &RunFixture) -> PathBuf {
    let path = fixture.dir.path().join("mirror.git");
    fixture.git(
        "for number in $(seq 60); do
            commit=$(git -c user.name=a -c user.email=a@b.invalid commit-tree main^{tree} -p main -m \"Commit $number\") && git update-ref refs/heads/main $commit
        done",
    );
    std::fs::create_dir(&path).unwrap();
    shell(
        &path,
        "git init --quiet --bare --template= && git -c fetch.unpackLimit=1 fetch --quiet --depth=50 \
         ../host/o/r.git +refs/heads/main:refs/heads/main",
    );
    path
}

/// Returns the outputs of the clone step.
fn clone_outputs(fixture: &RunFixture) -> Value {
    let reports = fixture.bodies("/runner/progress").into_iter();
    let mut ends = reports.filter(|report| report["step"]["id"] == "clone");
    ends.next_back().unwrap()["step"]["outputs"].clone()
}

async fn run(fixture: &RunFixture) {
    let agent = fixture.agent(IMPLEMENT, APPROVE);
    let succeeded = fixture.run(&agent, fixture.inputs()).await;
    assert!(succeeded, "{}", fixture.result());
}

fn history(fixture: &RunFixture) -> Vec<String> {
    let text = fixture.git(&format!("git show {BRANCH}:history.txt"));
    text.lines().map(str::to_owned).collect()
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn copies_the_mirror_and_fetches_only_what_is_newer() {
    let mut fixture = RunFixture::new("echo a > a.txt").await;
    fixture.mirror = Some(mirror(&fixture));
    run(&fixture).await;
    let outputs = clone_outputs(&fixture);
    assert_eq!(outputs["mirror"], "used", "{outputs}");
    assert_eq!(outputs["base"], fixture.git("git rev-parse main"));
    let log = history(&fixture);
    assert_eq!((log.len(), log[0].as_str()), (50, "Commit 60"));

    // The base has moved, and the branch of the ticket exists.
    let mut fixture = RunFixture::new("echo a > a.txt").await;
    let path = mirror(&fixture);
    fixture.git(
        "commit=$(git -c user.name=a -c user.email=a@b.invalid commit-tree main^{tree} -p main -m 'Later') && git update-ref refs/heads/main $commit",
    );
    fixture.mirror = Some(path);
    run(&fixture).await;
    let outputs = clone_outputs(&fixture);
    assert_eq!(outputs["mirror"], "used", "{outputs}");
    assert_eq!(outputs["base"], fixture.git("git rev-parse main"));
    assert_eq!(history(&fixture)[..2], ["Later", "Commit 60"]);
    fixture.git(&format!("git fsck --strict {BRANCH}"));
}

#[tokio::test]
async fn clones_without_a_mirror_that_cannot_be_used() {
    for (damage, mirror_use) in [
        // Removed while the run copies it.
        ("rm HEAD", json!("unusable")),
        ("rm objects/pack/*.pack", json!("unusable")),
        (
            "chmod u+w objects/pack/* && truncate -s 100 objects/pack/*.pack",
            json!("unusable"),
        ),
        // Content that git reads at the checkout only.
        (
            "pack=$(ls objects/pack/*.pack); chmod u+w $pack; size=$(stat -c %s $pack); \
             head -c $((size - 120)) /dev/zero | dd of=$pack bs=1 seek=100 conv=notrunc status=none",
            json!("unusable"),
        ),
        ("echo 1234 > refs/heads/main", json!("unusable")),
        // A mirror of another branch.
        ("mv refs/heads/main refs/heads/other", Value::Null),
    ] {
        let mut fixture = RunFixture::new("echo a > a.txt; seq 1000 > b.txt").await;
        let path = mirror(&fixture);
        shell(&path, damage);
        fixture.mirror = Some(path);
        run(&fixture).await;
        let outputs = clone_outputs(&fixture);
        assert_eq!(outputs["mirror"], mirror_use, "{damage}: {outputs}");
        assert_eq!(history(&fixture).len(), 50, "{damage}");
    }
}

#[tokio::test]
async fn leaves_the_mirror_as_it_is() {
    let mut fixture = RunFixture::new("echo a > a.txt").await;
    let path = mirror(&fixture);
    let before = files_in(&path.join("objects/pack"));
    fixture.mirror = Some(path.clone());
    // The agent changes the packs of its copy.
    let agent = fixture.agent(
        "chmod -R u+w .git/objects; for file in .git/objects/pack/*; do echo x >> $file; done; echo b > b.txt",
        APPROVE,
    );
    fixture.run(&agent, fixture.inputs()).await;
    assert_eq!(files_in(&path.join("objects/pack")), before);
    shell(&path, "git fsck --full --strict");
}

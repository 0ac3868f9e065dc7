//! Merges of two commits, with the current git and in the way of older versions.

use super::{GitFixture, create_fixture, shell};
use crate::git::merge::{ConflictKind, TreeMerge};

/// Commits the changes of two scripts to branches of the remote, and fetches both. Returns their commits.
async fn two_sides(fixture: &GitFixture, ours: &str, theirs: &str) -> [String; 2] {
    let dir = fixture.dir.path();
    shell(
        dir,
        &format!(
            "cd seed && for side in ours theirs; do git checkout -q -b $side main
             case $side in ours) {ours} ;; theirs) {theirs} ;; esac
             git add -A && git commit -qm \"$side\" && git push -q ../host.git $side; done"
        ),
    );
    fixture.git.fetch(None, &["ours", "theirs"]).await.unwrap();
    let resolve = async |name: &str| {
        let name = format!("refs/remotes/origin/{name}");
        fixture.git.resolve(&name).await.unwrap()
    };
    [resolve("ours").await, resolve("theirs").await]
}

/// Merges in both ways, and requires the same conflicts and the same tree.
async fn merge(fixture: &GitFixture, [ours, theirs]: &[String; 2]) -> TreeMerge {
    let merged = fixture.git.merge(ours, theirs).await.unwrap();
    let with_old_git = fixture.git.merge_with_old_git(ours, theirs).await.unwrap();
    assert_eq!(merged.conflicts, with_old_git.conflicts);
    let differences = fixture.git.changes(&merged.tree, &with_old_git.tree).await;
    for change in differences.unwrap() {
        let conflict = merged.conflicts.iter().find(|one| one.path == change.path);
        // Only the label of the common ancestor differs.
        assert_eq!(
            conflict.map(|one| one.kind),
            Some(ConflictKind::Content),
            "{change:?}"
        );
    }
    merged
}

async fn read(fixture: &GitFixture, tree: &str, path: &str) -> String {
    let name = format!("{tree}:{path}");
    let args = ["cat-file", "blob", name.as_str()];
    let output = fixture.git.run("git cat-file", args, &[]).await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn merges_changes_that_fit_together() {
    let fixture = create_fixture(
        "printf '1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n' > a.txt; echo x > gone.txt; echo s > run.sh",
    )
    .await;
    let sides = two_sides(
        &fixture,
        "sed -i 's/^1$/one/' a.txt; rm gone.txt; mkdir new; echo n > new/n.txt",
        "sed -i 's/^8$/eight/' a.txt; chmod +x run.sh; echo b > 'odd \"name\".txt'",
    )
    .await;
    let merged = merge(&fixture, &sides).await;
    assert_eq!(merged.conflicts, []);
    let text = read(&fixture, &merged.tree, "a.txt").await;
    assert_eq!(text, "one\n2\n3\n4\n5\n6\n7\neight\n");
    let args = ["ls-tree", "-r", merged.tree.as_str()];
    let listed = fixture.git.run("git ls-tree", args, &[]).await.unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("100755") && !listed.contains("gone"),
        "{listed}"
    );
    assert!(
        listed.contains("new/n.txt") && listed.contains("odd"),
        "{listed}"
    );
}

#[tokio::test]
async fn names_the_kind_of_each_conflict() {
    let fixture = create_fixture(
        "echo a > text.txt; echo a > ours-gone.txt; echo a > theirs-gone.txt; printf '\\0a' > image.png; ln -s a link",
    )
    .await;
    let sides = two_sides(
        &fixture,
        "echo ours > text.txt; git rm -q ours-gone.txt; echo ours > theirs-gone.txt; printf '\\0ours' > image.png
         echo ours > both.txt; ln -sf ours link",
        "echo theirs > text.txt; echo theirs > ours-gone.txt; git rm -q theirs-gone.txt; printf '\\0theirs' > image.png
         echo theirs > both.txt; ln -sf theirs link",
    )
    .await;
    let merged = merge(&fixture, &sides).await;
    let found: Vec<(&str, ConflictKind)> = { merged.conflicts.iter() }
        .map(|conflict| (conflict.path.as_str(), conflict.kind))
        .collect();
    assert_eq!(
        found,
        [
            ("both.txt", ConflictKind::Content),
            ("image.png", ConflictKind::Binary),
            ("link", ConflictKind::Other),
            ("ours-gone.txt", ConflictKind::DeletedOnBranch),
            ("text.txt", ConflictKind::Content),
            ("theirs-gone.txt", ConflictKind::DeletedOnBase),
        ]
    );
    let [ours, theirs] = &sides;
    let text = read(&fixture, &merged.tree, "text.txt").await;
    assert!(
        text.starts_with(&format!("<<<<<<< {ours}\nours\n|||||||")),
        "{text}"
    );
    assert!(
        text.ends_with(&format!("a\n=======\ntheirs\n>>>>>>> {theirs}\n")),
        "{text}"
    );
    assert_eq!(read(&fixture, &merged.tree, "image.png").await, "\0ours");
    assert_eq!(
        read(&fixture, &merged.tree, "ours-gone.txt").await,
        "theirs\n"
    );
}

#[tokio::test]
async fn finds_the_markers_that_are_left() {
    let doc = "Title\\n=======\\n<<<<<<< is a marker\\n";
    let fixture = create_fixture(&format!(
        "echo a > a.txt; echo b > b.txt; printf '{doc}z\\n' > doc.md"
    ))
    .await;
    let sides = two_sides(
        &fixture,
        &format!("echo ours | tee a.txt > b.txt; printf '{doc}ours\\n' > doc.md"),
        &format!("echo theirs | tee a.txt > b.txt; printf '{doc}theirs\\n' > doc.md"),
    )
    .await;
    let merged = merge(&fixture, &sides).await;
    fixture.git.checkout("work", &sides[0]).await.unwrap();
    fixture.git.restore(&merged.tree).await.unwrap();
    let left = async |script: &str| {
        shell(fixture.tree(), script);
        let staged = fixture.git.stage_work_tree().await.unwrap();
        let sides = [sides[0].as_str(), sides[1].as_str()];
        let left = fixture.git.marked_files(&merged, sides, &staged.tree).await;
        left.unwrap()
    };
    assert_eq!(left("true").await, ["a.txt", "b.txt", "doc.md"]);
    assert_eq!(
        left("echo both > a.txt; sed -i '/^|||||||/d' b.txt").await,
        ["b.txt", "doc.md"]
    );
    let moved = left("mv b.txt c.txt; sed -i '/^>>>>>>> /d' doc.md").await;
    assert_eq!(moved, ["c.txt", "doc.md"]);
    for separator in ["=======", "======="] {
        let text = format!("printf '{doc}both\\n{separator}\\n' > doc.md; rm c.txt -f");
        assert_eq!(left(&text).await, ["doc.md"], "one separator too many");
    }
    assert_eq!(
        left(&format!("printf '{doc}both\\n' > doc.md")).await,
        [""; 0]
    );
}

#[tokio::test]
async fn runs_no_driver_or_filter_of_the_repository() {
    let fixture = create_fixture(
        "printf '* merge=evil filter=evil diff=evil\\n' > .gitattributes; echo a > a.txt",
    )
    .await;
    let trap = fixture.trap();
    let sides = two_sides(&fixture, "echo ours > a.txt", "echo theirs > a.txt").await;
    let config = format!(
        "[merge \"evil\"]\n driver = {trap} %A\n[filter \"evil\"]\n smudge = {trap}\n clean = {trap}\n[diff \"evil\"]\n command = {trap}\n"
    );
    let plant = || {
        for file in [
            fixture.git.git_dir.join("config"),
            fixture.tree().join(".git/config"),
        ] {
            std::fs::write(file, &config).unwrap();
        }
        std::fs::write(
            fixture.tree().join(".gitattributes"),
            "* merge=evil filter=evil\n",
        )
        .unwrap();
    };
    plant();
    let merged = merge(&fixture, &sides).await;
    assert_eq!(merged.conflicts.len(), 1);
    assert_eq!(merged.conflicts[0].kind, ConflictKind::Content);
    plant();
    fixture.git.checkout("work", &sides[0]).await.unwrap();
    plant();
    fixture.git.restore(&merged.tree).await.unwrap();
    fixture.assert_nothing_executed();
    let written = std::fs::read_to_string(fixture.tree().join("a.txt")).unwrap();
    assert!(written.starts_with("<<<<<<< "), "{written}");
}

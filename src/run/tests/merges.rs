//! Runs that merge the base branch into the branch of a pull request.

use serde_json::{Value, json};

use super::{A_RACE, APPROVE, BRANCH, RunFixture};
use domain::run_config::RunInputs;

/// Agent that keeps the lines of both sides.
const KEEP_BOTH: &str = "sed -i '/^|||||||/,/^=======/d; /^<<<<<<< /d; /^>>>>>>> /d' cart.txt";

/// Creates a fixture with an open pull request that changes the second line of `cart.txt`.
async fn fixture_with_pull() -> RunFixture {
    let fixture =
        RunFixture::new("printf '1\\n2\\n3\\n' > cart.txt; echo a > gone.txt; echo a > a.txt")
            .await;
    let agent = fixture.agent("sed -i 's/^2$/branch/' cart.txt", APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    fixture
}

impl RunFixture {
    /// Commits a change of a script to a branch of the host as a person.
    fn push(&self, branch: &str, script: &str) -> String {
        let dir = self.dir.path();
        crate::git::tests::shell(
            dir,
            &format!(
                "rm -rf person && git clone -q -b {branch} host/o/r.git person && cd person
                 git config user.email mia@example.com && git config user.name Mia
                 {script}
                 git add -A && git commit -qm 'Change by Mia' && git push -q && git rev-parse HEAD"
            ),
        )
    }

    fn merge_inputs(&self) -> RunInputs {
        let mut inputs = self.follow_up_inputs();
        inputs.remove("instruction");
        inputs.insert("options".into(), r#"{"task":"conflict"}"#.into());
        inputs
    }

    /// Returns parents, author and subject of the head of the branch.
    fn head(&self) -> (Vec<String>, String, String) {
        let shown = self.git(&format!("git log -1 --format='%P%n%ae%n%s' {BRANCH}"));
        let lines: Vec<&str> = shown.lines().collect();
        let parents = lines[0].split(' ').map(str::to_owned).collect();
        (parents, lines[1].to_owned(), lines[2].to_owned())
    }

    fn read(&self, path: &str) -> String {
        self.git(&format!("git show {BRANCH}:{path}"))
    }

    fn passes(&self) -> usize {
        let passes = std::fs::read_to_string(self.dir.path().join("passes")).unwrap();
        passes.lines().count()
    }

    fn failure(&self) -> String {
        let result = self.result();
        let reason = result["failureReason"].as_str();
        reason.unwrap_or_else(|| panic!("{result}")).to_owned()
    }
}

#[tokio::test]
async fn commits_the_resolution_of_the_agent_with_both_parents() {
    let fixture = fixture_with_pull().await;
    let before = fixture.git(&format!("git rev-parse {BRANCH}"));
    let token = format!("ghp_{}", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW");
    let base = fixture.push(
        "main",
        &format!(
            "sed -i 's/^2$/base/' cart.txt; mkdir -p .github/workflows; echo 'on: push' > .github/workflows/ci.yml
             echo \"t = '{token}'\" > config.ts"
        ),
    );
    let agent = fixture.agent(KEEP_BOTH, APPROVE);
    assert!(fixture.run(&agent, fixture.merge_inputs()).await);
    let result = fixture.result();
    assert_eq!(
        (&result["outcome"], &result["merge"]["conflicts"]),
        (&json!("success"), &json!(["cart.txt"])),
        "what came from the base is not the run's doing: {result}"
    );
    let (parents, author, subject) = fixture.head();
    assert_eq!(parents, [before, base.clone()]);
    assert_eq!(author, "agent-implement@noreply.invalid");
    assert_eq!(subject, format!("ENG-1: Merge main into {BRANCH}"));
    assert_eq!(fixture.read("cart.txt"), "1\nbranch\nbase\n3");
    assert_eq!(fixture.read(".github/workflows/ci.yml"), "on: push");

    let prompt = fixture.prompt(3);
    for part in [
        "the merge stopped at the conflicts",
        "- cart.txt: holds conflict markers",
        "Change by Mia",
        "ENG-1: Say hello",
        &base,
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    let review = fixture.prompt(4);
    assert!(review.contains("Judge the resolution"), "{review}");
    assert!(
        review.contains("-<<<<<<< ") && !review.contains("ci.yml"),
        "{review}"
    );
    assert_eq!(fixture.passes(), 4);
    let comments = fixture.bodies("/repos/o/r/issues/1/comments");
    assert_eq!(
        comments.len(),
        1,
        "the review of the first run: {comments:?}"
    );

    // A later attempt of the same dispatch finds the merge.
    assert!(fixture.run(&agent, fixture.merge_inputs()).await);
    assert_eq!(fixture.passes(), 4);
    assert_eq!(fixture.head().0.len(), 2);
}

#[tokio::test]
async fn pushes_a_merge_without_conflicts_at_once() {
    let fixture = fixture_with_pull().await;
    fixture.pulls.lock().unwrap()[0]["draft"] = true.into();
    let base = fixture.push("main", "echo b >> a.txt; git rm -q gone.txt");
    let agent = fixture.agent("exit 1", APPROVE);
    assert!(fixture.run(&agent, fixture.merge_inputs()).await);
    let (parents, _, subject) = fixture.head();
    assert_eq!(
        (&parents[1], subject.starts_with("ENG-1: Merge main")),
        (&base, true)
    );
    assert_eq!(fixture.read("cart.txt"), "1\nbranch\n3");
    assert_eq!(fixture.read("a.txt"), "a\nb");
    assert_eq!(fixture.passes(), 2, "no pass of the agent");
    assert_eq!(fixture.result()["merge"]["conflicts"], json!([]));
    let skipped = fixture.steps();
    let skipped: Vec<&str> = { skipped.iter().rev().take(8) }
        .filter(|(_, status)| status == "skipped")
        .map(|(id, _)| id.as_str())
        .collect();
    assert!(skipped.contains(&"feedback-loop"), "{skipped:?}");
    let is_ready = |request: &Value| request.to_string().contains("ReadyForReview");
    assert!(
        !fixture.bodies("/graphql").iter().any(is_ready),
        "a draft stays one"
    );

    let head = fixture.git(&format!("git rev-parse {BRANCH}"));
    let mut again = fixture.merge_inputs();
    again.insert("dispatch_id".into(), "03JD".into());
    assert!(fixture.run(&agent, again).await, "{}", fixture.result());
    assert_eq!(
        fixture.git(&format!("git rev-parse {BRANCH}")),
        head,
        "nothing to merge"
    );
}

#[tokio::test]
async fn a_merge_whose_tree_is_that_of_the_branch_is_pushed_too() {
    let fixture = fixture_with_pull().await;
    let base = fixture.push("main", "sed -i 's/^2$/branch/' cart.txt");
    let agent = fixture.agent("exit 1", APPROVE);
    assert!(fixture.run(&agent, fixture.merge_inputs()).await);
    assert_eq!(fixture.head().0[1], base);
}

#[tokio::test]
async fn names_the_files_that_the_agent_leaves_in_conflict() {
    let fixture = fixture_with_pull().await;
    let before = fixture.git(&format!("git rev-parse {BRANCH}"));
    fixture.push("main", "sed -i 's/^2$/base/' cart.txt");
    let agent = fixture.agent("echo hello > hello.txt", APPROVE);
    assert!(!fixture.run(&agent, fixture.merge_inputs()).await);
    assert_eq!(
        fixture.failure(),
        "the conflicts with main are not resolved: conflict markers are left in cart.txt"
    );
    assert_eq!(fixture.result()["merge"]["conflicts"], json!(["cart.txt"]));
    assert_eq!(fixture.git(&format!("git rev-parse {BRANCH}")), before);
    assert_eq!(fixture.passes(), 5, "three attempts, none reviewed");
    assert!(
        fixture
            .prompt(4)
            .contains("conflict markers are left in cart.txt")
    );
}

#[tokio::test]
async fn the_agent_decides_about_deleted_and_binary_files() {
    for (decision, expected) in [("true", "kept"), ("rm gone.txt", "")] {
        let fixture = RunFixture::new("echo a > gone.txt; printf '\\0a' > image.png").await;
        let agent = fixture.agent(
            "git rm -q gone.txt; printf '\\0branch' > image.png",
            APPROVE,
        );
        assert!(fixture.run(&agent, fixture.inputs()).await);
        fixture.push("main", "echo kept > gone.txt; printf '\\0base' > image.png");
        let agent = fixture.agent(decision, APPROVE);
        assert!(
            fixture.run(&agent, fixture.merge_inputs()).await,
            "{}",
            fixture.result()
        );
        let prompt = fixture.prompt(3);
        assert!(prompt.contains("- gone.txt: deleted on the branch, changed on the base branch"));
        assert!(prompt.contains("- image.png: not text; holds the version of the branch"));
        let found = fixture.git(&format!("git show {BRANCH}:gone.txt || true"));
        assert_eq!(found, expected);
        assert_eq!(fixture.read("image.png"), "\0branch");
        assert_eq!(fixture.head().0.len(), 2);
    }
}

#[tokio::test]
async fn never_replaces_a_commit_pushed_during_the_run() {
    let fixture = fixture_with_pull().await;
    fixture.push("main", "sed -i 's/^2$/base/' cart.txt");
    let theirs = format!(
        "cd {}/host/o/r.git && C=$(git -c user.name=Mia -c user.email=mia@example.com commit-tree -p {BRANCH} -m theirs {BRANCH}^{{tree}}) && git update-ref refs/heads/{BRANCH} $C; cd -; {KEEP_BOTH}",
        fixture.dir.path().display()
    );
    let agent = fixture.agent(&theirs, APPROVE);
    assert!(!fixture.run(&agent, fixture.merge_inputs()).await);
    assert_eq!(fixture.result()["failureCode"], "PUSH_REJECTED");
    assert_eq!(fixture.head().2, "theirs");
}

#[tokio::test]
async fn refuses_a_pull_request_to_another_branch() {
    let fixture = fixture_with_pull().await;
    fixture.push("main", "sed -i 's/^2$/base/' cart.txt");
    fixture.pulls.lock().unwrap()[0]["base"]["ref"] = "release".into();
    let agent = fixture.agent(KEEP_BOTH, APPROVE);
    assert!(!fixture.run(&agent, fixture.merge_inputs()).await);
    let reason = fixture.failure();
    assert!(reason.contains("goes to release, not to main"), "{reason}");
    assert_eq!(fixture.passes(), 2);
}

#[tokio::test]
async fn a_bad_resolution_makes_the_pull_request_a_draft() {
    let fixture = fixture_with_pull().await;
    fixture.push("main", "sed -i 's/^2$/base/' cart.txt");
    let agent = fixture.agent(KEEP_BOTH, A_RACE);
    fixture.run(&agent, fixture.merge_inputs()).await;
    let result = fixture.result();
    assert_eq!(result["failureCode"], "REVIEW_UNAPPROVED", "{result}");
    assert_eq!(fixture.head().0.len(), 2, "the merge is there all the same");
}

#[tokio::test]
async fn merges_over_a_long_history() {
    let fixture = fixture_with_pull().await;
    let many = "for i in $(seq 120); do git commit -q --allow-empty -m \"commit $i\"; done; sed -i 's/^2$/base/' cart.txt";
    fixture.push("main", many);
    let agent = fixture.agent(KEEP_BOTH, APPROVE);
    assert!(
        fixture.run(&agent, fixture.merge_inputs()).await,
        "{}",
        fixture.result()
    );
    assert_eq!(fixture.read("cart.txt"), "1\nbranch\nbase\n3");
    let merged = fixture.git(&format!("git rev-list --count main..{BRANCH}"));
    assert_eq!(merged, "2");
}

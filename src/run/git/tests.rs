//! Attacks by an agent or a repository against real git: nothing planted is executed, ends the run
//! or reaches the remote.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use data_encoding::BASE64;
use tempfile::TempDir;

use super::remote::PushOutcome;
use super::*;
use crate::guard;
use crate::programs::trust::PathTrust;
use crate::repo_config::RepoConfig;
use domain::report::RunPhase;
use domain::secret::Secret;
use domain::sensitive_files::{AllowList, GuardReason, SensitiveFile};
use test_support::{StubReply, TestServer};
use vendors::http::Proxies;

/// Remote repository, and a run's git directory that has cloned it.
pub(crate) struct GitFixture {
    pub dir: TempDir,
    pub git: Git,
    pub base: String,
}

pub(crate) fn shell(dir: &Path, script: &str) -> String {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(dir)
        .env("HOME", dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Creates a bare repository `<dir>/<name>` with one commit of the files that `script` creates.
pub(crate) fn create_bare_repository(dir: &Path, name: &str, script: &str) {
    shell(
        dir,
        &format!(
            "mkdir seed && cd seed && git init -q -b main && git config user.email a@b && git config user.name n\n\
             {script}\ngit add -A && git commit -qm first && cd .. && mkdir -p $(dirname {name}) && git clone -q --bare seed {name}"
        ),
    );
}

pub(crate) fn path_env() -> ChildEnv {
    let path = shell(Path::new("/"), "printf %s \"$PATH\"");
    ChildEnv::new([("PATH".into(), path.into())])
}

/// Returns `PATH` with a folder that is searched first.
pub(crate) fn path_env_with(first: &Path) -> ChildEnv {
    let path = shell(Path::new("/"), "printf %s \"$PATH\"");
    ChildEnv::new([("PATH".into(), format!("{}:{path}", first.display()).into())])
}

async fn create_fixture(script: &str) -> GitFixture {
    let dir = tempfile::tempdir().unwrap();
    create_bare_repository(dir.path(), "host.git", script);
    let program = GitProgram::find(&path_env(), &PathTrust::for_current_user([])).unwrap();
    let git = Git {
        relay_client: None,
        env: program.environment(),
        program: Some(program),
        git_dir: dir.path().join("own"),
        work_tree: dir.path().join("tree"),
        url: dir.path().join("host.git").to_string_lossy().into_owned(),
        transport: Transport::LocalFiles,
    };
    git.init().await.unwrap();
    git.fetch(None, &["main"]).await.unwrap();
    let base = git.resolve("refs/remotes/origin/main").await.unwrap();
    git.checkout("work", &base).await.unwrap();
    git.copy_for_agent().await.unwrap();
    GitFixture { dir, git, base }
}

impl GitFixture {
    fn tree(&self) -> &Path {
        &self.git.work_tree
    }

    /// Creates a program that leaves a trace if it is executed.
    fn trap(&self) -> String {
        let trap = self.dir.path().join("trap.sh");
        let trace = self.dir.path().join("executed");
        let script = format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", trace.display());
        std::fs::write(&trap, script).unwrap();
        std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o755)).unwrap();
        trap.to_string_lossy().into_owned()
    }

    fn assert_nothing_executed(&self) {
        let trace = std::fs::read_to_string(self.dir.path().join("executed"));
        assert!(trace.is_err(), "executed: {trace:?}");
    }

    /// Returns the findings that block a push.
    async fn blocked(&self, staged: &staging::StagedTree) -> Vec<SensitiveFile> {
        let none = AllowList::default();
        let report = guard::inspect(&self.git, &self.base, staged, &none, |_| false).await;
        report.unwrap().blocked
    }

    /// Performs everything that the run does after the agent: stage, compare, commit and push.
    async fn stage_commit_push(&self) -> (staging::StagedTree, String) {
        let staged = self.git.stage_work_tree().await.unwrap();
        self.git.changes(&self.base, &staged.tree).await.unwrap();
        self.git
            .diff(&self.base, &staged.tree, 10_000)
            .await
            .unwrap();
        let commit = self
            .git
            .commit(&staged.tree, &self.base, "message\n")
            .await
            .unwrap();
        let pushed = self.git.push(None, "work", None, &commit).await.unwrap();
        assert_eq!(pushed, PushOutcome::Done);
        (staged, commit)
    }
}

#[tokio::test]
async fn executes_nothing_planted_in_dot_git() {
    let fixture = create_fixture("echo a > a.txt").await;
    let trap = fixture.trap();
    shell(
        fixture.tree(),
        &format!(
            "git config core.fsmonitor {trap}; git config diff.external {trap}; git config filter.x.clean {trap}
             git config filter.x.smudge {trap}; git config filter.x.process {trap}; git config gpg.program {trap}
             git config commit.gpgsign true; git config core.sshCommand {trap}; git config credential.helper {trap}
             git config core.hooksPath {dir}/hooks; git config core.pager {trap}; git config alias.add '!{trap}'
             git config diff.x.textconv {trap}; git config remote.origin.receivepack {trap}
             git config url.{dir}/evil.git.insteadOf {dir}/host.git
             mkdir -p {dir}/hooks .git/hooks .git/info
             for hook in pre-commit commit-msg post-commit pre-push reference-transaction post-index-change post-checkout; do
               cp {trap} {dir}/hooks/$hook; cp {trap} .git/hooks/$hook; done
             echo '* filter=x diff=x' > .git/info/attributes
             echo '* filter=x diff=x merge=x' > .gitattributes
             echo b >> a.txt; echo new > new.txt; git init -q --bare {dir}/evil.git",
            dir = fixture.dir.path().display()
        ),
    );
    let (staged, commit) = fixture.stage_commit_push().await;
    fixture.assert_nothing_executed();
    assert_eq!(staged.blocked, []);
    let host = fixture.dir.path().join("host.git");
    assert_eq!(shell(&host, "git rev-parse work"), commit);
    assert_eq!(
        shell(
            &fixture.dir.path().join("evil.git"),
            "git branch --list work"
        ),
        "",
        "the rewritten URL was not used"
    );
    let names = shell(&host, "git ls-tree --name-only work");
    assert_eq!(names, ".gitattributes\na.txt\nnew.txt");
}

#[tokio::test]
async fn executes_and_reads_nothing_planted_in_the_runs_git_directory() {
    let fixture = create_fixture("echo a > a.txt").await;
    let trap = fixture.trap();
    let clean = shell(fixture.tree(), "echo clean | git hash-object --stdin");
    shell(
        fixture.tree(),
        &format!(
            "echo secret > s.txt; export GIT_DIR={dir}/own; git hash-object -w s.txt >/dev/null
             echo clean | git hash-object -w --stdin >/dev/null
             git replace $(git hash-object s.txt) {clean}
             git config filter.x.clean {trap}; git config filter.x.required true; git config core.fsmonitor {trap}
             git config include.path {dir}/more; git config url.{dir}/evil.git.insteadOf {dir}/host.git
             git config extensions.worktreeConfig true; git config diff.external {trap}
             mkdir -p $GIT_DIR/hooks $GIT_DIR/info; echo '* filter=x' > $GIT_DIR/info/attributes
             cp {trap} $GIT_DIR/hooks/reference-transaction; cp {trap} $GIT_DIR/hooks/pre-push
             printf '[filter \"x\"]\\n\\tclean = {trap}\\n' > $GIT_DIR/config.worktree
             git init -q --bare {dir}/evil.git",
            dir = fixture.dir.path().display()
        ),
    );
    let (staged, _) = fixture.stage_commit_push().await;
    fixture.assert_nothing_executed();
    let changes = fixture
        .git
        .changes(&fixture.base, &staged.tree)
        .await
        .unwrap();
    let mut read = Vec::new();
    fixture
        .git
        .for_each_content(&changes, |contents| {
            read = contents.after.unwrap_or_default().to_vec()
        })
        .await
        .unwrap();
    assert_eq!(read, b"secret\n", "the guard reads what is pushed");
    let host = fixture.dir.path().join("host.git");
    assert_eq!(shell(&host, "git show work:s.txt"), "secret");
}

#[tokio::test]
async fn ignores_attributes_of_the_repository() {
    let fixture = create_fixture(
        "echo a > a.txt; echo '* filter=lfs diff=lfs merge=lfs ident' > .gitattributes
         printf '[filter \"lfs\"]\\n\\tclean = touch /tmp/never\\n' > .gitconfig; mkdir .githooks",
    )
    .await;
    std::fs::write(fixture.tree().join("a.txt"), "changed").unwrap();
    let (staged, _) = fixture.stage_commit_push().await;
    assert_eq!(staged.blocked, []);
    fixture.assert_nothing_executed();
}

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

/// The server echoes the token to git, which prints server messages.
#[tokio::test]
async fn token_is_in_no_argument_file_or_message() {
    test_support::install_tls();
    let fixture = create_fixture("echo a > a.txt").await;
    let token = Secret::new("ghs_verysecretvalue0123456789");
    let server = TestServer::start(|request, _| {
        let header = request.header("authorization").unwrap_or_default();
        let decoded = BASE64.decode(header.trim_start_matches("Basic ").as_bytes());
        let decoded = String::from_utf8(decoded.unwrap_or_default()).unwrap_or_default();
        let body = format!("no access with {header} or {decoded}");
        StubReply::Response(403, vec![("content-type", "text/plain".into())], body)
    })
    .await;
    let git = Git {
        relay_client: Some(RelayClient::new(&Proxies::default()).unwrap()),
        url: format!("{}/o/r.git", server.url),
        transport: Transport::Web,
        ..fixture.git.clone()
    };
    let error = git.remote_head(Some(&token), "main").await.unwrap_err();
    let GitError::Failed {
        code: 128, stderr, ..
    } = &error
    else {
        panic!("{error}")
    };
    let credentials = BASE64.encode(format!("x-access-token:{}", token.expose()).as_bytes());
    let requests = server.requests();
    assert_eq!(
        requests[0].header("authorization"),
        Some(format!("Basic {credentials}").as_str())
    );
    assert!(
        stderr.contains("no access with Basic [redacted] or x-access-token:[redacted]"),
        "{stderr}"
    );
    assert!(
        stderr.contains(&format!("unable to access '{}/", git.url)),
        "{stderr}"
    );
    for form in [token.expose(), &credentials] {
        assert!(!error.to_string().contains(form), "{error}");
        let found = shell(fixture.dir.path(), &format!("grep -rlF {form} . || true"));
        assert_eq!(found, "");
    }
}

#[tokio::test]
async fn passes_listed_variables_only_to_git() {
    let fixture = create_fixture("echo a > a.txt").await;
    let mut spec = fixture.git.spec([]);
    spec.program = "env".into();
    spec.args = vec!["-0".into()];
    let output = child::capture(&spec, Instant::now() + GIT_TIMEOUT)
        .await
        .unwrap();
    let mut names: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .split('\0')
        .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "GIT_ALLOW_PROTOCOL",
            "GIT_ATTR_NOSYSTEM",
            "GIT_CONFIG_GLOBAL",
            "GIT_CONFIG_NOSYSTEM",
            "GIT_LFS_SKIP_SMUDGE",
            "GIT_LITERAL_PATHSPECS",
            "GIT_NO_REPLACE_OBJECTS",
            "GIT_OPTIONAL_LOCKS",
            "GIT_TERMINAL_PROMPT",
            "HOME",
            "LC_ALL",
            "PATH",
        ]
    );
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
    let report = guard::inspect(&fixture.git, &base.unwrap(), &smaller, &none, |_| false).await;
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

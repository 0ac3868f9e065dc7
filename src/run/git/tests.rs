//! What an agent or a repository may plant, against real git: nothing of it executes, nothing of
//! it ends the run, nothing of it leaves.

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

/// A host with one repository, and a run's git that has cloned it.
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

/// Makes `<dir>/<name>` a bare repository with a first commit of what `script` leaves.
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

/// The same, with a folder that is searched first.
pub(crate) fn path_env_with(first: &Path) -> ChildEnv {
    let path = shell(Path::new("/"), "printf %s \"$PATH\"");
    ChildEnv::new([("PATH".into(), format!("{}:{path}", first.display()).into())])
}

async fn world(script: &str) -> GitFixture {
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

    /// A program that leaves a trace when anything runs it.
    fn trap(&self) -> String {
        let trap = self.dir.path().join("trap.sh");
        let trace = self.dir.path().join("sprung");
        let script = format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", trace.display());
        std::fs::write(&trap, script).unwrap();
        std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o755)).unwrap();
        trap.to_string_lossy().into_owned()
    }

    fn assert_nothing_sprang(&self) {
        let trace = std::fs::read_to_string(self.dir.path().join("sprung"));
        assert!(trace.is_err(), "executed: {trace:?}");
    }

    /// What the guard says of a push.
    async fn blocked(&self, staged: &staging::StagedTree) -> Vec<SensitiveFile> {
        let none = AllowList::default();
        let found = guard::inspect(&self.git, &self.base, staged, &none, |_| false).await;
        found.unwrap().blocked
    }

    /// Everything the run does after the agent had the tree.
    async fn import_commit_push(&self) -> (staging::StagedTree, String) {
        let import = self.git.stage_work_tree().await.unwrap();
        self.git.changes(&self.base, &import.tree).await.unwrap();
        self.git
            .diff(&self.base, &import.tree, 10_000)
            .await
            .unwrap();
        let commit = self
            .git
            .commit(&import.tree, &self.base, "message\n")
            .await
            .unwrap();
        let pushed = self.git.push(None, "work", None, &commit).await.unwrap();
        assert_eq!(pushed, PushOutcome::Done);
        (import, commit)
    }
}

#[tokio::test]
async fn nothing_planted_in_dot_git_executes() {
    let world = world("echo a > a.txt").await;
    let trap = world.trap();
    shell(
        world.tree(),
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
            dir = world.dir.path().display()
        ),
    );
    let (import, commit) = world.import_commit_push().await;
    world.assert_nothing_sprang();
    assert_eq!(import.blocked, []);
    let host = world.dir.path().join("host.git");
    assert_eq!(shell(&host, "git rev-parse work"), commit);
    assert_eq!(
        shell(&world.dir.path().join("evil.git"), "git branch --list work"),
        "",
        "the rewritten address was not used"
    );
    let names = shell(&host, "git ls-tree --name-only work");
    assert_eq!(names, ".gitattributes\na.txt\nnew.txt");
}

#[tokio::test]
async fn nothing_planted_in_the_runs_own_directory_executes_or_deceives() {
    let world = world("echo a > a.txt").await;
    let trap = world.trap();
    let clean = shell(world.tree(), "echo clean | git hash-object --stdin");
    shell(
        world.tree(),
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
            dir = world.dir.path().display()
        ),
    );
    let (import, _) = world.import_commit_push().await;
    world.assert_nothing_sprang();
    let changes = world.git.changes(&world.base, &import.tree).await.unwrap();
    let mut read = Vec::new();
    world
        .git
        .for_each_content(&changes, |contents| {
            read = contents.after.unwrap_or_default().to_vec()
        })
        .await
        .unwrap();
    assert_eq!(read, b"secret\n", "the guard reads what is pushed");
    let host = world.dir.path().join("host.git");
    assert_eq!(shell(&host, "git show work:s.txt"), "secret");
}

#[tokio::test]
async fn attributes_of_the_repository_itself_are_inert() {
    let world = world(
        "echo a > a.txt; echo '* filter=lfs diff=lfs merge=lfs ident' > .gitattributes
         printf '[filter \"lfs\"]\\n\\tclean = touch /tmp/never\\n' > .gitconfig; mkdir .githooks",
    )
    .await;
    std::fs::write(world.tree().join("a.txt"), "changed").unwrap();
    let (import, _) = world.import_commit_push().await;
    assert_eq!(import.blocked, []);
    world.assert_nothing_sprang();
}

#[tokio::test]
async fn what_cannot_be_taken_gets_a_reason_and_the_rest_is_taken() {
    let world = world("echo a > a.txt; mkdir d; echo f > d/f").await;
    let tree = world.tree();
    shell(
        tree,
        "mkdir -p .GIT/hooks; echo x > .GIT/config; mkdir sub; echo y > 'sub/git~1'
         git init -q nested; cd nested; git config user.email a@b; git config user.name n; echo z > z; git add -A; git commit -qm z; cd ..
         printf good > $'line\\nbreak \\\\ \"quoted\" *.txt'; echo ok > :colon; echo ok > ./-dash
         rm -r d; ln -s /etc d; mkfifo pipe",
    );
    symlink("/etc/passwd", tree.join("passwd")).unwrap();
    let import = world.git.stage_work_tree().await.unwrap();
    let mut blocked: Vec<(&str, GuardReason)> = import
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
    let changes = world.git.changes(&world.base, &import.tree).await.unwrap();
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
    let hits = world.blocked(&import).await;
    let links: Vec<&str> = hits
        .iter()
        .filter(|hit| hit.reason == GuardReason::ExternalSymlink)
        .map(|hit| hit.path.as_str())
        .collect();
    assert_eq!(links, ["d", "passwd"]);
}

#[tokio::test]
async fn the_guard_reads_objects_and_sees_earlier_commits_too() {
    let world = world("echo a > a.txt").await;
    let token = format!("ghp_{}", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW");
    std::fs::write(world.tree().join("config.ts"), format!("t = '{token}'\n")).unwrap();
    let first = world.git.stage_work_tree().await.unwrap();
    world
        .git
        .commit(&first.tree, &world.base, "earlier\n")
        .await
        .unwrap();
    std::fs::write(world.tree().join(".env"), "A=1\n").unwrap();
    std::fs::write(world.tree().join(".env.example"), "A=\n").unwrap();
    let staged = world.git.stage_work_tree().await.unwrap();
    let hits = world.blocked(&staged).await;
    let paths: Vec<&str> = hits.iter().map(|hit| hit.path.as_str()).collect();
    assert_eq!(paths, [".env", "config.ts"]);
    let message = domain::sensitive_files::guard_message(&hits);
    assert!(!message.contains(&token), "{message}");
}

#[tokio::test]
async fn what_scripts_made_before_the_agent_is_not_taken() {
    let world = world("echo a > a.txt").await;
    shell(
        world.tree(),
        "mkdir -p node_modules/x 'odd [dir]'; echo 1 > node_modules/x/i.js; echo 2 > 'odd [dir]/f'; echo '#' > '#hash'",
    );
    world.git.exclude_untracked().await.unwrap();
    std::fs::write(world.tree().join("new.txt"), "agent").unwrap();
    let import = world.git.stage_work_tree().await.unwrap();
    let changes = world.git.changes(&world.base, &import.tree).await.unwrap();
    let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["new.txt"]);
}

#[tokio::test]
async fn a_lease_that_does_not_hold_is_a_rejection_and_a_lost_answer_is_found_again() {
    let world = world("echo a > a.txt").await;
    std::fs::write(world.tree().join("b.txt"), "b").unwrap();
    let (_, commit) = world.import_commit_push().await;
    let again = world.git.push(None, "work", None, &commit).await.unwrap();
    assert_eq!(again, PushOutcome::Done, "the branch is where we wanted it");
    let other = world.git.commit("HEAD^{tree}", &world.base, "x\n").await;
    let other = match other {
        Ok(other) => other,
        Err(error) => panic!("{error}"),
    };
    let refused = world.git.push(None, "work", None, &other).await.unwrap();
    assert!(matches!(refused, PushOutcome::Rejected(_)), "{refused:?}");
}

/// The host that gets the token repeats it to git, which repeats what hosts say.
#[tokio::test]
async fn a_token_is_in_no_argument_no_file_and_no_message() {
    test_support::install_tls();
    let world = world("echo a > a.txt").await;
    let token = Secret::new("ghs_verysecretvalue0123456789");
    let server = TestServer::start(|asked, _| {
        let header = asked.header("authorization").unwrap_or_default();
        let decoded = BASE64.decode(header.trim_start_matches("Basic ").as_bytes());
        let decoded = String::from_utf8(decoded.unwrap_or_default()).unwrap_or_default();
        let said = format!("no access with {header} or {decoded}");
        StubReply::Response(403, vec![("content-type", "text/plain".into())], said)
    })
    .await;
    let git = Git {
        relay_client: Some(RelayClient::new(&Proxies::default()).unwrap()),
        url: format!("{}/o/r.git", server.url),
        transport: Transport::Web,
        ..world.git.clone()
    };
    let error = git.remote_head(Some(&token), "main").await.unwrap_err();
    let GitError::Failed {
        code: 128, stderr, ..
    } = &error
    else {
        panic!("{error}")
    };
    let pair = BASE64.encode(format!("x-access-token:{}", token.expose()).as_bytes());
    let asked = server.requests();
    assert_eq!(
        asked[0].header("authorization"),
        Some(format!("Basic {pair}").as_str())
    );
    assert!(
        stderr.contains("no access with Basic [redacted] or x-access-token:[redacted]"),
        "{stderr}"
    );
    assert!(
        stderr.contains(&format!("unable to access '{}/", git.url)),
        "{stderr}"
    );
    for form in [token.expose(), &pair] {
        assert!(!error.to_string().contains(form), "{error}");
        let found = shell(world.dir.path(), &format!("grep -rlF {form} . || true"));
        assert_eq!(found, "");
    }
}

#[tokio::test]
async fn a_child_of_git_sees_the_listed_variables_only() {
    let world = world("echo a > a.txt").await;
    let mut spec = world.git.spec([]);
    spec.program = "env".into();
    spec.args = vec!["-0".into()];
    let seen = child::capture(&spec, Instant::now() + GIT_TIMEOUT)
        .await
        .unwrap();
    let mut names: Vec<String> = String::from_utf8_lossy(&seen.stdout)
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
async fn half_an_answer_is_none() {
    let world = world("echo a > a.txt").await;
    let mut spec = world.git.spec([]);
    spec.program = "head".into();
    spec.args = ["-c", "64M", "/dev/zero"].map(Into::into).to_vec();
    let said = child::capture(&spec, Instant::now() + GIT_TIMEOUT).await;
    let said = said.unwrap_err().to_string();
    assert_eq!(said, "reading its output: it said more than 64 MiB");
}

#[tokio::test]
async fn what_was_made_since_a_tree_was_taken_can_be_undone() {
    let world = world("mkdir d; echo a > a.txt; echo f > d/f").await;
    shell(world.tree(), "echo b > b.txt; echo more >> a.txt");
    let taken = world.git.stage_work_tree().await.unwrap();
    shell(
        world.tree(),
        "echo c > c.txt; rm -rf b.txt d; ln -s /etc d; echo most > a.txt",
    );
    world.git.restore(&taken.tree).await.unwrap();
    let found = shell(world.tree(), "ls; cat a.txt b.txt d/f");
    assert_eq!(found, "a.txt\nb.txt\nd\na\nmore\nb\nf");
    assert_eq!(world.git.stage_work_tree().await.unwrap(), taken);
}

#[tokio::test]
async fn a_large_file_is_read_in_windows_and_nothing_of_it_is_missed() {
    let world = world("echo a > a.txt").await;
    let token = format!("ghp_{}", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW");
    // Across the end of the first window, at the very end, and on both sides of a change.
    for (name, before) in [("first.log", (8 << 20) - 20), ("last.log", 30 << 20)] {
        let filler = "all is well\n".repeat(before / 12);
        let rest = if name == "first.log" {
            filler.as_str()
        } else {
            ""
        };
        let text = format!("{filler}{token}\n{rest}{rest}{rest}");
        std::fs::write(world.tree().join(name), text).unwrap();
    }
    let harmless = "all is well\n".repeat((26 << 20) / 12);
    std::fs::write(world.tree().join("harmless.log"), &harmless).unwrap();
    let staged = world.git.stage_work_tree().await.unwrap();
    let hits = world.blocked(&staged).await;
    let paths: Vec<&str> = hits.iter().map(|hit| hit.path.as_str()).collect();
    assert_eq!(paths, ["first.log", "last.log"]);
    // What was large before does not hold up a change that makes it small.
    let base = world.git.commit(&staged.tree, &world.base, "x\n").await;
    std::fs::write(world.tree().join("harmless.log"), "small\n").unwrap();
    let smaller = world.git.stage_work_tree().await.unwrap();
    let none = AllowList::default();
    let found = guard::inspect(&world.git, &base.unwrap(), &smaller, &none, |_| false).await;
    assert_eq!(found.unwrap().blocked, []);
}

#[tokio::test]
async fn what_a_repository_permits_is_read_from_the_given_commit() {
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
        let world = world(&seed).await;
        std::fs::write(
            world.tree().join(".agent-implement/config.yml"),
            "guard: {allow: ['**']}\n",
        )
        .unwrap();
        let read = RepoConfig::read(&world.git, &world.base, RunPhase::Implementation).await;
        match (read, permitted) {
            (Ok(config), Ok(permitted)) => {
                let list = AllowList::compile(&config.settings.guard.allow).unwrap();
                assert_eq!(list.permits("a/b/.env"), permitted, "{settings:?}");
                assert!(!list.permits("b/.env"), "{settings:?}");
            }
            (Err(wrong), Err(())) => {
                let wrong = wrong.to_string();
                assert!(
                    wrong.starts_with("reading .agent-implement/config.yml: "),
                    "{wrong}"
                );
            }
            (read, _) => panic!("{read:?} of {settings:?}"),
        }
    }
}

//! Real git against what an agent or a repository may do.

mod attacks;
mod merges;
mod trees;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::program::GitProgram;
use super::remote::PushOutcome;
use super::staging::StagedTree;
use super::{Git, Transport};
use crate::child::ChildEnv;
use crate::guard;
use crate::programs::trust::PathTrust;
use domain::sensitive_files::{AllowList, SensitiveFile};

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
    async fn blocked(&self, staged: &StagedTree) -> Vec<SensitiveFile> {
        let none = AllowList::default();
        let report = guard::inspect(&self.git, &self.base, staged, &none, |_, _| false).await;
        report.unwrap().blocked
    }

    /// Performs everything that the run does after the agent: stage, compare, commit and push.
    async fn stage_commit_push(&self) -> (StagedTree, String) {
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

//! One pass of a real agent program, without a run around it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::report::{FailureCode, Usage};
use domain::secret::Secret;
use domain::time::Timestamp;
use run::agent::{Agent, AgentAnswer, AgentCli, AgentPass, AgentRole};
use run::{ChildEnv, Console, Folders, RunFailure, RunLog};
use tokio::time::Instant;
use vendors::http::Redactor;

use crate::fake_model::{FakeModel, ModelTurn};
use crate::requirements::require;

/// Folder of the installed agent programs.
pub fn agents_dir() -> PathBuf {
    let folder = std::env::var_os("AGENT_IMPLEMENT_AGENTS").filter(|folder| !folder.is_empty());
    let bin = folder.map(|folder| Path::new(&folder).join("node_modules/.bin"));
    let found = bin.filter(|bin| bin.is_dir());
    require(
        "agents",
        found.ok_or("AGENT_IMPLEMENT_AGENTS names no folder of them"),
    )
}

/// Work tree, fake model and agent.
pub struct AgentHarness {
    pub folders: Folders,
    pub console: Console,
    pub model: FakeModel,
    pub agent: Agent,
    /// First folder of the search path.
    bin: PathBuf,
}

/// Result of a pass.
#[derive(Debug)]
pub struct PassOutcome {
    pub usage: Usage,
    pub result: Result<AgentAnswer, RunFailure>,
    pub log: String,
}

impl PassOutcome {
    /// Failure code, and the reason without its common prefix.
    pub fn failure(&self) -> (Option<FailureCode>, &str) {
        let failure = self.result.as_ref().expect_err(&self.log);
        let reason = failure.reason.as_str();
        let detail = reason.strip_prefix("model invocation failed");
        (failure.code, detail.expect(reason))
    }

    /// Time of the next attempt.
    pub fn retry_at(&self) -> Option<Timestamp> {
        let failure = self.result.as_ref().expect_err(&self.log);
        failure.retry_at
    }

    pub fn text(&self) -> &str {
        let answer = self.result.as_ref();
        &answer
            .unwrap_or_else(|failure| panic!("{failure:?}\n{}", self.log))
            .text
    }
}

impl AgentHarness {
    pub async fn new(
        agents: &Path,
        cli: AgentCli,
        turns: impl IntoIterator<Item = ModelTurn>,
    ) -> Self {
        let folders = Folders::new(&std::env::temp_dir()).unwrap();
        let tree = folders.work_tree();
        std::fs::create_dir_all(&tree).unwrap();
        let status = std::process::Command::new("git")
            .args(["init", "-q"])
            .current_dir(&tree)
            .status();
        assert!(status.unwrap().success());
        let bin = folders.make("bin").unwrap();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{}:{path}", bin.display(), agents.display());
        let model = FakeModel::start(turns).await;
        let keys = [
            ("ANTHROPIC_API_KEY", "the-anthropic-key".to_owned()),
            ("ANTHROPIC_BASE_URL", model.url.clone()),
            ("OPENAI_API_KEY", "the-openai-key".to_owned()),
            ("OPENAI_BASE_URL", format!("{}/v1", model.url)),
            ("GEMINI_API_KEY", "the-gemini-key".to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", model.url.clone()),
        ];
        Self {
            console: Console::plain(Redactor::default(), RunLog::default()),
            agent: Agent {
                cli,
                command: Vec::new(),
                env: ChildEnv::new([("PATH".into(), path.into())]),
                keys: keys
                    .map(|(name, key)| (name.to_owned(), Secret::new(key)))
                    .to_vec(),
                program: None,
                may_install: false,
                installation: None,
                cloud_region: None,
                model: (cli == AgentCli::Gemini).then(|| "gemini-2.5-pro".to_owned()),
                retries: 1,
            },
            folders,
            model,
            bin,
        }
    }

    /// Replaces the program by a script, which may call the real one by its path.
    pub fn replace_program(&self, name: &str, script: &str) {
        let path = self.bin.join(name);
        std::fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folders.work_tree().join(path)
    }

    /// Writes a file into the work tree, or elsewhere in the run's folder through `../`.
    pub fn write_file(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub async fn run_pass(&self, role: AgentRole, max_turns: u32) -> PassOutcome {
        let pass = AgentPass {
            role,
            max_turns,
            system: "These are the rules.".to_owned(),
            prompt: "Do it.".to_owned(),
        };
        let deadline = Instant::now() + Duration::from_secs(120);
        self.console.clear_tail();
        let pass_run = self
            .agent
            .run_pass(&pass, &self.folders, &self.console, deadline);
        let (usage, result) = Box::pin(pass_run).await;
        PassOutcome {
            usage,
            result,
            log: self.console.tail(),
        }
    }
}

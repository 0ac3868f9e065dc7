//! What a scripted agent does on a ticket: data written by tests and stories, read by the player.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The script of one ticket, kept as `<identifier>.json` in the scripts folder.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// The n-th call plays the n-th pass whose `when` fits, the last one again when they run out.
    pub passes: Vec<ScriptedPass>,
    /// The n-th call with a JSON schema gives the n-th of these, and approves when they run out.
    pub reviews: Vec<ScriptedReview>,
}

/// One call of the agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScriptedPass {
    /// Only for prompts that contain this text.
    #[serde(rename = "when")]
    pub prompt_contains: Option<String>,
    pub steps: Vec<ScriptStep>,
}

/// One thing the agent does. Paths are taken from its working directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ScriptStep {
    /// Text; the last one is the final answer.
    #[serde(rename = "say")]
    Message {
        text: String,
    },
    Read {
        path: String,
    },
    Write {
        path: String,
        content: String,
    },
    Append {
        path: String,
        content: String,
    },
    Delete {
        path: String,
    },
    /// A shell command with the agent's whole environment.
    Run {
        command: String,
    },
    /// Writes where a well-behaved agent would not, `.git` included.
    #[serde(rename = "plant")]
    WriteAnywhere {
        path: String,
        content: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    /// Uses up its turns.
    #[serde(rename = "loop")]
    ExhaustTurns,
    /// The model's API refuses with this status.
    #[serde(rename = "fail_api")]
    ApiError {
        status: u16,
        message: String,
    },
    /// The provider's usage limit is reached until then, in seconds of the epoch.
    UsageLimit {
        resets_at: u64,
    },
    /// Asks for a tool that permissions refuse, and ends as if all were well.
    #[serde(rename = "deny")]
    DeniedTool {
        tool: String,
    },
    /// Ends at once, without a result.
    #[serde(rename = "die")]
    Exit {
        code: u8,
    },
    /// Never ends. As the first step of a pass it hangs before the first event.
    Hang,
    /// Writes its environment, one `NAME=value` a line, into a file.
    PrintEnv {
        file: PathBuf,
    },
    Sleep {
        ms: u64,
    },
    /// Goes on once this file is there.
    #[serde(rename = "wait_for")]
    WaitForFile {
        file: PathBuf,
    },
}

/// One verdict of the agent as reviewer; `None` is a reviewer that gives no readable one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScriptedReview(pub Option<Value>);

impl ScriptedReview {
    pub fn approve() -> Self {
        Self(Some(json!({"approved": true, "blocking": []})))
    }

    /// One blocking finding.
    pub fn block(title: &str, location: &str, problem: &str, fix: &str) -> Self {
        Self(Some(json!({
            "approved": false,
            "blocking": [{"title": title, "location": location, "problem": problem, "required_fix": fix}],
        })))
    }

    /// Exactly this, whatever the schema says.
    pub fn raw(output: Value) -> Self {
        Self(Some(output))
    }

    pub fn unparseable() -> Self {
        Self(None)
    }
}

impl Script {
    pub fn new() -> Self {
        Self::default()
    }

    /// One pass with these steps.
    pub fn pass(mut self, steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        self.passes.push(ScriptedPass {
            prompt_contains: None,
            steps: steps.into_iter().collect(),
        });
        self
    }

    /// A pass for prompts that contain this text.
    pub fn pass_if_prompt_contains(
        mut self,
        text: &str,
        steps: impl IntoIterator<Item = ScriptStep>,
    ) -> Self {
        self.passes.push(ScriptedPass {
            prompt_contains: Some(text.to_owned()),
            steps: steps.into_iter().collect(),
        });
        self
    }

    pub fn review(mut self, review: ScriptedReview) -> Self {
        self.reviews.push(review);
        self
    }

    /// Stores the script for a ticket (`default` is for all without one) and starts it afresh.
    pub fn save(&self, scripts: &Path, ticket: &str) -> anyhow::Result<()> {
        std::fs::create_dir_all(scripts.join("counts"))?;
        for kind in ["pass", "review"] {
            // Mostly there is no count yet.
            let _ = std::fs::remove_file(scripts.join("counts").join(format!("{ticket}.{kind}")));
        }
        let path = scripts.join(format!("{ticket}.json"));
        crate::persistence::write_atomic(&path, &serde_json::to_vec_pretty(self)?)
    }

    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display()))
    }
}

impl ScriptStep {
    pub fn message(text: &str) -> Self {
        Self::Message { text: text.into() }
    }

    pub fn read(path: &str) -> Self {
        Self::Read { path: path.into() }
    }

    pub fn write(path: &str, content: &str) -> Self {
        Self::Write {
            path: path.into(),
            content: content.into(),
        }
    }

    pub fn append(path: &str, content: &str) -> Self {
        Self::Append {
            path: path.into(),
            content: content.into(),
        }
    }

    pub fn delete(path: &str) -> Self {
        Self::Delete { path: path.into() }
    }

    pub fn run(command: &str) -> Self {
        Self::Run {
            command: command.into(),
        }
    }

    pub fn write_anywhere(path: &str, content: &str) -> Self {
        Self::WriteAnywhere {
            path: path.into(),
            content: content.into(),
        }
    }

    pub fn symlink(path: &str, target: &str) -> Self {
        Self::Symlink {
            path: path.into(),
            target: target.into(),
        }
    }

    pub fn api_error(status: u16, message: &str) -> Self {
        Self::ApiError {
            status,
            message: message.into(),
        }
    }

    pub fn wait_for_file(file: impl Into<PathBuf>) -> Self {
        Self::WaitForFile { file: file.into() }
    }

    pub fn print_env(file: impl Into<PathBuf>) -> Self {
        Self::PrintEnv { file: file.into() }
    }
}

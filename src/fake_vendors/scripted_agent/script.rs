//! Script format of the scripted agent. Scripts are written by tests and demos.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Script of one ticket, stored as `<identifier>.json` in the scripts folder.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    /// Passes. The n-th call runs the n-th pass whose `prompt_contains` matches; the last one repeats.
    pub passes: Vec<ScriptedPass>,
    /// Steps of a call whose prompt lists files in conflict. If empty, such a call is a pass like others.
    pub conflicts: Vec<ScriptStep>,
    /// Reviews. The n-th call with a JSON schema returns the n-th review; later calls approve.
    pub reviews: Vec<ScriptedReview>,
}

/// Steps of one call of the agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScriptedPass {
    /// Text that the prompt must contain; `None` matches every prompt.
    #[serde(rename = "when")]
    pub prompt_contains: Option<String>,
    /// Steps, in order.
    pub steps: Vec<ScriptStep>,
}

/// Step of the agent. Paths are relative to its working directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ScriptStep {
    /// Assistant message. The last message is the final answer.
    #[serde(rename = "say")]
    Message {
        /// Text of the message.
        text: String,
    },
    /// Reads a file.
    Read {
        /// File to read.
        path: String,
    },
    /// Writes a file. A file that begins with `#!` becomes executable.
    Write {
        /// File to write.
        path: String,
        /// Content of the file.
        content: String,
    },
    /// Appends to a file.
    Append {
        /// File to append to.
        path: String,
        /// Text to append.
        content: String,
    },
    /// Deletes a file.
    Delete {
        /// File to delete.
        path: String,
    },
    /// Resolves the conflicts in a file: keeps the lines of both sides, the branch's first.
    KeepBothSides {
        /// File with conflict markers.
        path: String,
    },
    /// Runs a shell command with the agent's whole environment.
    Run {
        /// Command for `sh -c`.
        command: String,
    },
    /// Writes a file through the shell, also where an agent must not write, e.g. into `.git`.
    #[serde(rename = "plant")]
    WriteAnywhere {
        /// File to write.
        path: String,
        /// Content of the file.
        content: String,
    },
    /// Creates a symbolic link.
    Symlink {
        /// Path of the link.
        path: String,
        /// Target of the link.
        target: String,
    },
    /// Repeats a command until the turn limit is reached.
    #[serde(rename = "loop")]
    ExhaustTurns,
    /// Ends with an error of the model API.
    #[serde(rename = "fail_api")]
    ApiError {
        /// HTTP status of the model API.
        status: u16,
        /// Error message of the model API.
        message: String,
    },
    /// Ends because the provider's usage limit is reached.
    UsageLimit {
        /// Reset of the limit, in seconds since the epoch.
        resets_at: u64,
    },
    /// Uses a tool that permissions deny, then continues and ends with success.
    #[serde(rename = "deny")]
    DeniedTool {
        /// Tool name.
        tool: String,
    },
    /// Exits at once, without a result event.
    #[serde(rename = "die")]
    Exit {
        /// Exit code.
        code: u8,
    },
    /// Never ends. As the first step of a pass it hangs before the first event.
    Hang,
    /// Asks people questions: writes the question file into the scratch folder.
    Ask {
        /// Questions, as the file has them.
        questions: Value,
    },
    /// Opens every attachment that the prompt names in the scratch folder, and writes one line per attachment: name,
    /// size, media type by content, and the first bytes in hexadecimal.
    OpenAttachments {
        /// File to write.
        path: String,
    },
    /// Writes the prompt to a file.
    SavePrompt {
        /// File to write.
        file: PathBuf,
    },
    /// Writes the environment to a file, one `NAME=value` per line.
    PrintEnv {
        /// File to write.
        file: PathBuf,
    },
    /// Sleeps.
    Sleep {
        /// Duration in milliseconds.
        ms: u64,
    },
    /// Waits until a file exists.
    #[serde(rename = "wait_for")]
    WaitForFile {
        /// File to wait for.
        file: PathBuf,
    },
}

/// Scripted review; `None` is a review without structured output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScriptedReview(pub Option<Value>);

impl ScriptedReview {
    /// Returns an approval.
    pub fn approve() -> Self {
        Self(Some(json!({"approved": true, "blocking": []})))
    }

    /// Returns a review with one blocking finding.
    pub fn block(title: &str, location: &str, problem: &str, fix: &str) -> Self {
        Self(Some(json!({
            "approved": false,
            "blocking": [{"title": title, "location": location, "problem": problem, "required_fix": fix}],
        })))
    }

    /// Returns a review with exactly this output, even if it violates the schema.
    pub fn raw(output: Value) -> Self {
        Self(Some(output))
    }

    /// Returns a review without structured output.
    pub fn unparseable() -> Self {
        Self(None)
    }
}

impl Script {
    /// Returns a script without passes and reviews.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pass for every prompt.
    pub fn pass(mut self, steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        self.passes.push(ScriptedPass {
            prompt_contains: None,
            steps: steps.into_iter().collect(),
        });
        self
    }

    /// Adds a pass for prompts that contain this text.
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

    /// Sets the steps for prompts that list files in conflict.
    pub fn on_conflict(mut self, steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        self.conflicts = steps.into_iter().collect();
        self
    }

    /// Adds a review.
    pub fn review(mut self, review: ScriptedReview) -> Self {
        self.reviews.push(review);
        self
    }

    /// Stores the script for a ticket and resets its call counts. The ticket `default` applies to
    /// tickets without a script.
    pub fn save(&self, scripts: &Path, ticket: &str) -> anyhow::Result<()> {
        std::fs::create_dir_all(scripts.join("counts"))?;
        for kind in ["pass", "review"] {
            // Usually there is no count yet.
            let _ = std::fs::remove_file(scripts.join("counts").join(format!("{ticket}.{kind}")));
        }
        let path = scripts.join(format!("{ticket}.json"));
        crate::persistence::write_atomic(&path, &serde_json::to_vec_pretty(self)?)
    }

    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let bytes =
            std::fs::read(path).with_context(|| format!("Cannot read {}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("Cannot read {}", path.display()))
    }
}

impl ScriptStep {
    /// Returns a [`Message`](Self::Message) step.
    pub fn message(text: &str) -> Self {
        Self::Message { text: text.into() }
    }

    /// Returns a [`Read`](Self::Read) step.
    pub fn read(path: &str) -> Self {
        Self::Read { path: path.into() }
    }

    /// Returns a [`Write`](Self::Write) step.
    pub fn write(path: &str, content: &str) -> Self {
        Self::Write {
            path: path.into(),
            content: content.into(),
        }
    }

    /// Returns an [`Append`](Self::Append) step.
    pub fn append(path: &str, content: &str) -> Self {
        Self::Append {
            path: path.into(),
            content: content.into(),
        }
    }

    /// Returns a [`Delete`](Self::Delete) step.
    pub fn delete(path: &str) -> Self {
        Self::Delete { path: path.into() }
    }

    /// Returns a [`KeepBothSides`](Self::KeepBothSides) step.
    pub fn keep_both_sides(path: &str) -> Self {
        Self::KeepBothSides { path: path.into() }
    }

    /// Returns a [`Run`](Self::Run) step.
    pub fn run(command: &str) -> Self {
        Self::Run {
            command: command.into(),
        }
    }

    /// Returns a [`WriteAnywhere`](Self::WriteAnywhere) step.
    pub fn write_anywhere(path: &str, content: &str) -> Self {
        Self::WriteAnywhere {
            path: path.into(),
            content: content.into(),
        }
    }

    /// Returns a [`Symlink`](Self::Symlink) step.
    pub fn symlink(path: &str, target: &str) -> Self {
        Self::Symlink {
            path: path.into(),
            target: target.into(),
        }
    }

    /// Returns an [`ApiError`](Self::ApiError) step.
    pub fn api_error(status: u16, message: &str) -> Self {
        Self::ApiError {
            status,
            message: message.into(),
        }
    }

    /// Returns a [`WaitForFile`](Self::WaitForFile) step.
    pub fn wait_for_file(file: impl Into<PathBuf>) -> Self {
        Self::WaitForFile { file: file.into() }
    }

    /// Returns an [`Ask`](Self::Ask) step with an array of questions.
    pub fn ask(questions: Value) -> Self {
        Self::Ask { questions }
    }

    /// Returns an [`OpenAttachments`](Self::OpenAttachments) step.
    pub fn open_attachments(path: &str) -> Self {
        Self::OpenAttachments { path: path.into() }
    }

    /// Returns a [`SavePrompt`](Self::SavePrompt) step.
    pub fn save_prompt(file: impl Into<PathBuf>) -> Self {
        Self::SavePrompt { file: file.into() }
    }

    /// Returns a [`PrintEnv`](Self::PrintEnv) step.
    pub fn print_env(file: impl Into<PathBuf>) -> Self {
        Self::PrintEnv { file: file.into() }
    }
}

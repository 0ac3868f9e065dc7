//! One pass of an agent: task, answer, folders and program call.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;

use crate::child::ChildEnv;
use crate::folders::{self, Folders};
use crate::scratch::Scratch;

/// JSON schema of a review result.
pub(super) const REVIEW_SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"required":["approved","blocking"],"properties":{"approved":{"type":"boolean"},"blocking":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["title","location","problem","requiredFix"],"properties":{"title":{"type":"string"},"location":{"type":"string"},"problem":{"type":"string"},"requiredFix":{"type":"string"}}}}}}"#;

/// Task of an agent pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentRole {
    /// Changes the work tree.
    Implement,
    /// Reads the work tree and returns a verdict.
    Review,
    /// Reads the work tree and writes to one folder.
    Plan {
        /// Folder, relative to the work tree.
        folder: &'static str,
    },
}

/// One call of the agent.
#[derive(Debug, Clone)]
pub struct AgentPass {
    /// Task of the pass.
    pub role: AgentRole,
    /// Maximum number of model turns.
    pub max_turns: u32,
    /// System prompt.
    pub system: String,
    /// User prompt.
    pub prompt: String,
}

/// Answer of a successful pass.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentAnswer {
    /// Last message.
    pub text: String,
    /// Result in the requested schema, if the program supports one.
    pub structured: Option<Value>,
}

impl AgentAnswer {
    /// Creates the answer of a program without structured results.
    pub(super) fn from_text(text: &str) -> Self {
        Self {
            text: text.trim().to_owned(),
            structured: None,
        }
    }
}

/// Folders of one call. All but the work tree, the home and the scratch folder are recreated, because the program would
/// obey settings left by a script or an earlier pass.
#[derive(Debug)]
pub(super) struct PassFolders {
    /// Work tree.
    pub work_tree: PathBuf,
    /// Home folder, shared with the repository's scripts for their caches.
    pub home: PathBuf,
    /// Settings folder of the program.
    pub settings: PathBuf,
    /// Input files for the program.
    pub input_files: PathBuf,
    /// Folder for temporary files.
    pub temp_dir: PathBuf,
    /// Folder with the attachments of the ticket. The agent may leave questions there.
    pub scratch: Scratch,
}

/// Folders of the home in which Node.js looks for modules that a program does not find elsewhere.
const HOME_MODULES: [&str; 2] = [".node_modules", ".node_libraries"];

impl PassFolders {
    /// Creates the folders.
    pub(super) fn create(folders: &Folders) -> std::io::Result<Self> {
        let home = folders.make(folders::HOME)?;
        for name in HOME_MODULES {
            folders::remove(&home.join(name))?;
        }
        let scratch = Scratch::open(folders)?;
        scratch.remove_questions()?;
        Ok(Self {
            work_tree: folders.work_tree(),
            home,
            settings: folders.make_empty("agent-settings")?,
            input_files: folders.make_empty("agent-input")?,
            temp_dir: folders.make("agent-tmp")?,
            scratch,
        })
    }

    /// Writes an input file and returns its path.
    pub(super) fn write_input_file(&self, name: &str, text: &str) -> std::io::Result<OsString> {
        let path = self.input_files.join(name);
        std::fs::write(&path, text)?;
        Ok(path.into())
    }
}

/// Arguments, environment and input of a program call.
pub(super) struct AgentInvocation {
    /// Arguments.
    pub args: Vec<OsString>,
    /// Complete environment.
    pub env: ChildEnv,
    /// Standard input.
    pub input: String,
}

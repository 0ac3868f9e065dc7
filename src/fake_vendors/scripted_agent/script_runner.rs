//! Execution of the steps of one pass.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::cli_flags::CliFlags;
use super::event_stream::{CallOutcome, EventStream};
use super::project_settings::{ScriptEnv, run_shell};
use super::scratch;
use super::script::ScriptStep;

/// Maximum iterations of `ExhaustTurns`. Without a turn limit a test then fails instead of hanging.
const MAX_LOOP_TURNS: usize = 300;

pub(super) struct ScriptRunner<'a, 'b> {
    pub flags: &'a CliFlags,
    pub cwd: &'a Path,
    pub env: &'a ScriptEnv,
    pub prompt: &'a str,
    pub stream: &'a mut EventStream<'b>,
    /// Text that is not yet part of a message.
    pub pending_text: Option<String>,
}

/// Reason why a pass stopped before its last step.
pub(super) enum EarlyStop {
    End(CallOutcome),
    /// Exit without a result.
    Exit(u8),
    Io(io::Error),
}

impl From<io::Error> for EarlyStop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl ScriptRunner<'_, '_> {
    pub(super) fn run(&mut self, steps: &[ScriptStep]) -> Result<CallOutcome, EarlyStop> {
        for step in steps {
            self.step(step)?;
        }
        self.check_turn_limit()?;
        let text = self.pending_text.take().unwrap_or_else(|| "Done.".into());
        self.stream.message(Some(&text), None)?;
        Ok(CallOutcome::Success {
            text,
            structured: None,
        })
    }

    fn step(&mut self, step: &ScriptStep) -> Result<(), EarlyStop> {
        match step {
            ScriptStep::Message { text } => {
                if let Some(earlier) = self.pending_text.replace(text.clone()) {
                    self.check_turn_limit()?;
                    self.stream.message(Some(&earlier), None)?;
                }
            }
            ScriptStep::ExhaustTurns => {
                for turn in 1..=MAX_LOOP_TURNS {
                    self.step(&ScriptStep::run(&format!("echo turn{turn}")))?;
                }
            }
            ScriptStep::ApiError { status, message } => {
                self.stream.api_retry(*status)?;
                let text = format!("API Error: {status} {message}");
                return Err(EarlyStop::End(CallOutcome::ApiError {
                    status: Some(*status),
                    text,
                }));
            }
            ScriptStep::UsageLimit { resets_at } => {
                self.stream.rate_limit(*resets_at)?;
                let text = "You've hit your session limit".to_owned();
                return Err(EarlyStop::End(CallOutcome::ApiError {
                    status: Some(429),
                    text,
                }));
            }
            ScriptStep::DeniedTool { tool } => {
                let input = json!({"command": "true", "file_path": "x"});
                let id = self.open_tool(tool, &input)?;
                self.deny(&id, tool, &input)?;
            }
            ScriptStep::Exit { code } => return Err(EarlyStop::Exit(*code)),
            ScriptStep::Hang => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            ScriptStep::Sleep { ms } => std::thread::sleep(Duration::from_millis(*ms)),
            ScriptStep::WaitForFile { file } => {
                while !file.exists() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            ScriptStep::PrintEnv { file } => {
                let lines = self
                    .env
                    .iter()
                    .map(|(name, value)| format!("{name}={value}\n"));
                std::fs::write(file, lines.collect::<String>())?;
            }
            ScriptStep::SavePrompt { file } => std::fs::write(file, self.prompt)?,
            ScriptStep::KeepBothSides { path } => {
                let text = std::fs::read_to_string(self.cwd.join(path))?;
                self.step(&ScriptStep::write(path, &without_markers(&text)))?;
            }
            ScriptStep::Ask { questions } => {
                let content = json!({ "questions": questions }).to_string();
                let path = scratch::question_file(self.env)?;
                self.step(&ScriptStep::write(&path, &content))?;
            }
            ScriptStep::OpenAttachments { path } => {
                let mut seen = String::new();
                for file in scratch::attachments(self.env, self.prompt) {
                    let input = json!({"file_path": file});
                    let id = self.open_tool("Read", &input)?;
                    if !self.is_permitted("Read", &input) {
                        self.deny(&id, "Read", &input)?;
                        continue;
                    }
                    let line = scratch::describe(Path::new(&file)).map_err(|e| e.to_string());
                    seen.extend(line.as_deref());
                    self.stream.tool_result(&id, line)?;
                }
                self.step(&ScriptStep::write(path, &seen))?;
            }
            _ => self.tool(step)?,
        }
        Ok(())
    }

    /// Runs a step as a tool call, if the tool is available and permitted.
    fn tool(&mut self, step: &ScriptStep) -> Result<(), EarlyStop> {
        let (name, input) = self.as_tool(step);
        let id = self.open_tool(name, &input)?;
        if !self.has_tool(name) {
            let message =
                format!("<tool_use_error>Error: No such tool available: {name}</tool_use_error>");
            self.stream.tool_result(&id, Err(message))?;
            return Ok(());
        }
        if !self.is_permitted(name, &input) {
            return self.deny(&id, name, &input);
        }
        let result = self.perform(step);
        Ok(self.stream.tool_result(&id, result)?)
    }

    fn open_tool(&mut self, name: &str, input: &Value) -> Result<String, EarlyStop> {
        self.check_turn_limit()?;
        let text = self.pending_text.take();
        Ok(self.stream.message(text.as_deref(), Some((name, input)))?)
    }

    fn deny(&mut self, id: &str, tool: &str, input: &Value) -> Result<(), EarlyStop> {
        let message =
            format!("Claude requested permissions to use {tool}, but you haven't granted it yet.");
        self.stream
            .permission_denials
            .push(json!({"tool_name": tool, "tool_use_id": id, "tool_input": input}));
        Ok(self.stream.tool_result(id, Err(message))?)
    }

    fn check_turn_limit(&self) -> Result<(), EarlyStop> {
        match self.flags.max_turns() {
            Some(max) if self.stream.messages() >= max => {
                Err(EarlyStop::End(CallOutcome::TooManyTurns(max)))
            }
            _ => Ok(()),
        }
    }

    fn resolve_path(&self, path: &str) -> PathBuf {
        self.cwd.join(path)
    }

    fn as_tool(&self, step: &ScriptStep) -> (&'static str, Value) {
        let file = |path: &str| self.resolve_path(path).to_string_lossy().into_owned();
        match step {
            ScriptStep::Read { path } => ("Read", json!({"file_path": file(path)})),
            ScriptStep::Write { path, content } => (
                "Write",
                json!({"file_path": file(path), "content": content}),
            ),
            ScriptStep::Append { path, content } => (
                "Edit",
                json!({"file_path": file(path), "old_string": "", "new_string": content}),
            ),
            ScriptStep::Delete { path } => bash(&format!("rm {path}")),
            ScriptStep::Run { command } => bash(command),
            ScriptStep::WriteAnywhere { path, .. } => bash(&format!("cat > {path} <<'EOF'")),
            ScriptStep::Symlink { path, target } => bash(&format!("ln -s {target} {path}")),
            _ => bash("true"),
        }
    }

    /// Returns whether the tool is available to the model.
    fn has_tool(&self, name: &str) -> bool {
        let allowed = self.flags.list("--tools");
        let disallowed = self.flags.list("--disallowedTools").unwrap_or_default();
        allowed.is_none_or(|tools| tools.contains(&"default") || tools.contains(&name))
            && !disallowed.contains(&name)
    }

    fn is_permitted(&self, name: &str, input: &Value) -> bool {
        let mode = self.flags.value("--permission-mode").unwrap_or("default");
        let listed = self.flags.list("--allowedTools").unwrap_or_default();
        (name == "Read" && self.is_in_working_folder(input))
            || self.flags.has("--dangerously-skip-permissions")
            || mode == "bypassPermissions"
            || (mode == "acceptEdits" && name != "Bash")
            || listed
                .iter()
                .any(|rule| self.rule_permits(rule, name, input))
    }

    /// Returns whether a file is in the working directory or in a folder of `--add-dir`. Reading others needs a
    /// permission.
    fn is_in_working_folder(&self, input: &Value) -> bool {
        let path = Path::new(input["file_path"].as_str().unwrap_or_default());
        let added = self.flags.list("--add-dir").unwrap_or_default();
        let mut folders = added.into_iter().map(Path::new).chain([self.cwd]);
        !has_parent_dir(path) && folders.any(|folder| path.starts_with(folder))
    }

    /// Returns whether a rule like `Edit(./docs/**)` or `Edit(//absolute/file)` permits this call. `Edit` rules apply to all tools
    /// that write files.
    fn rule_permits(&self, rule: &str, name: &str, input: &Value) -> bool {
        let (tool, pattern) = match rule.split_once('(') {
            Some((tool, pattern)) => (tool, Some(pattern.trim_end_matches(')'))),
            None => (rule, None),
        };
        let applies_to_tool = tool == name || (tool == "Edit" && name == "Write");
        let Some(pattern) = pattern else {
            return applies_to_tool;
        };
        let (pattern, is_folder) = match pattern.strip_suffix("/**") {
            Some(folder) => (folder, true),
            None => (pattern, false),
        };
        let permitted = match pattern.strip_prefix("//") {
            Some(absolute) => Path::new("/").join(absolute),
            None => self.cwd.join(pattern.trim_start_matches("./")),
        };
        let path = Path::new(input["file_path"].as_str().unwrap_or_default());
        let is_permitted = path == permitted || (is_folder && path.starts_with(&permitted));
        applies_to_tool && !has_parent_dir(path) && is_permitted
    }

    fn perform(&self, step: &ScriptStep) -> Result<String, String> {
        let file_result =
            |result: io::Result<()>, text: String| result.map(|()| text).map_err(|e| e.to_string());
        match step {
            ScriptStep::Read { path } => {
                std::fs::read_to_string(self.resolve_path(path)).map_err(|e| e.to_string())
            }
            ScriptStep::Write { path, content } | ScriptStep::WriteAnywhere { path, content } => {
                let path = self.resolve_path(path);
                file_result(
                    write(&path, content),
                    format!("File created successfully at: {}", path.display()),
                )
            }
            ScriptStep::Append { path, content } => {
                let path = self.resolve_path(path);
                let before = std::fs::read_to_string(&path).unwrap_or_default();
                file_result(
                    write(&path, &(before + content)),
                    format!("The file {} has been updated.", path.display()),
                )
            }
            ScriptStep::Delete { path } => {
                file_result(std::fs::remove_file(self.resolve_path(path)), String::new())
            }
            ScriptStep::Symlink { path, target } => file_result(
                std::os::unix::fs::symlink(target, self.resolve_path(path)),
                String::new(),
            ),
            ScriptStep::Run { command } => match run_shell(command, self.cwd, self.env) {
                (text, 0) => Ok(text),
                (text, code) => Err(format!("Exit code {code}\n{text}")),
            },
            _ => Ok(String::new()),
        }
    }
}

fn has_parent_dir(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

fn bash(command: &str) -> (&'static str, Value) {
    (
        "Bash",
        json!({"command": command, "description": "scripted"}),
    )
}

/// Writes a file and its parent folders; a script (first bytes `#!`) becomes executable.
fn write(path: &Path, content: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, content)?;
    if content.starts_with("#!") {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Returns a text with conflict markers of the style `diff3` without the markers and the common ancestor.
fn without_markers(text: &str) -> String {
    let mut is_ancestor = false;
    let is_kept = |line: &&str| {
        let is_marker = |sign: &str| line.starts_with(&sign.repeat(7));
        is_ancestor = (is_ancestor || is_marker("|")) && !is_marker("=");
        !is_ancestor && !["<", "=", ">"].into_iter().any(is_marker)
    };
    text.split_inclusive('\n').filter(is_kept).collect()
}

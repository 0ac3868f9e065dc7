//! Plays the steps of one pass.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::flags::Flags;
use super::project::{Env, shell};
use super::script::Step;
use super::stream::{End, Stream};

/// A loop without a turn cap ends here, so that a forgotten cap fails a test instead of hanging it.
const TURNS_MAX: usize = 300;

pub(super) struct Player<'a, 'b> {
    pub flags: &'a Flags,
    pub cwd: &'a Path,
    pub env: &'a Env,
    pub stream: &'a mut Stream<'b>,
    /// Said, and not yet part of a message.
    pub text: Option<String>,
}

/// Why playing stopped before the last step.
pub(super) enum Stop {
    End(End),
    /// Exit without a result.
    Exit(u8),
    Broken(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl Player<'_, '_> {
    pub fn play(&mut self, steps: &[Step]) -> Result<End, Stop> {
        for step in steps {
            self.step(step)?;
        }
        self.room_for_a_turn()?;
        let text = self.text.take().unwrap_or_else(|| "Done.".into());
        self.stream.message(Some(&text), None)?;
        Ok(End::Done {
            text,
            structured: None,
        })
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Say { text } => {
                if let Some(earlier) = self.text.replace(text.clone()) {
                    self.room_for_a_turn()?;
                    self.stream.message(Some(&earlier), None)?;
                }
            }
            Step::Loop => {
                for turn in 1..=TURNS_MAX {
                    self.step(&Step::run(&format!("echo turn{turn}")))?;
                }
            }
            Step::FailApi { status, message } => {
                self.stream.retry(*status)?;
                let text = format!("API Error: {status} {message}");
                return Err(Stop::End(End::Refused {
                    status: Some(*status),
                    text,
                }));
            }
            Step::UsageLimit { resets_at } => {
                self.stream.limit(*resets_at)?;
                let text = "You've hit your session limit".to_owned();
                return Err(Stop::End(End::Refused {
                    status: Some(429),
                    text,
                }));
            }
            Step::Deny { tool } => {
                let input = json!({"command": "true", "file_path": "x"});
                let id = self.open_tool(tool, &input)?;
                self.deny(&id, tool, &input)?;
            }
            Step::Die { code } => return Err(Stop::Exit(*code)),
            Step::Hang => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            Step::Sleep { ms } => std::thread::sleep(Duration::from_millis(*ms)),
            Step::WaitFor { file } => {
                while !file.exists() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            Step::PrintEnv { file } => {
                let lines = self
                    .env
                    .iter()
                    .map(|(name, value)| format!("{name}={value}\n"));
                std::fs::write(file, lines.collect::<String>())?;
            }
            _ => self.tool(step)?,
        }
        Ok(())
    }

    /// A step that the model would do through a tool, if it has it and may use it.
    fn tool(&mut self, step: &Step) -> Result<(), Stop> {
        let (name, input) = self.as_tool(step);
        let id = self.open_tool(name, &input)?;
        if !self.has(name) {
            let message =
                format!("<tool_use_error>Error: No such tool available: {name}</tool_use_error>");
            self.stream.tool_result(&id, Err(message))?;
            return Ok(());
        }
        if !self.may(name, &input) {
            return self.deny(&id, name, &input);
        }
        let result = self.act(step);
        Ok(self.stream.tool_result(&id, result)?)
    }

    fn open_tool(&mut self, name: &str, input: &Value) -> Result<String, Stop> {
        self.room_for_a_turn()?;
        let text = self.text.take();
        Ok(self.stream.message(text.as_deref(), Some((name, input)))?)
    }

    fn deny(&mut self, id: &str, tool: &str, input: &Value) -> Result<(), Stop> {
        let message =
            format!("Claude requested permissions to use {tool}, but you haven't granted it yet.");
        self.stream
            .denials
            .push(json!({"tool_name": tool, "tool_use_id": id, "tool_input": input}));
        Ok(self.stream.tool_result(id, Err(message))?)
    }

    fn room_for_a_turn(&self) -> Result<(), Stop> {
        match self.flags.max_turns() {
            Some(max) if self.stream.messages() >= max => Err(Stop::End(End::TooManyTurns(max))),
            _ => Ok(()),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.cwd.join(path)
    }

    fn as_tool(&self, step: &Step) -> (&'static str, Value) {
        let file = |path: &str| self.at(path).to_string_lossy().into_owned();
        match step {
            Step::Read { path } => ("Read", json!({"file_path": file(path)})),
            Step::Write { path, content } => (
                "Write",
                json!({"file_path": file(path), "content": content}),
            ),
            Step::Append { path, content } => (
                "Edit",
                json!({"file_path": file(path), "old_string": "", "new_string": content}),
            ),
            Step::Delete { path } => bash(&format!("rm {path}")),
            Step::Run { command } => bash(command),
            Step::Plant { path, .. } => bash(&format!("cat > {path} <<'EOF'")),
            Step::Symlink { path, target } => bash(&format!("ln -s {target} {path}")),
            _ => bash("true"),
        }
    }

    /// Whether the tool is among those the model was given.
    fn has(&self, name: &str) -> bool {
        let given = self.flags.list("--tools");
        let taken = self.flags.list("--disallowedTools").unwrap_or_default();
        given.is_none_or(|tools| tools.contains(&"default") || tools.contains(&name))
            && !taken.contains(&name)
    }

    fn may(&self, name: &str, input: &Value) -> bool {
        let mode = self.flags.value("--permission-mode").unwrap_or("default");
        let listed = self.flags.list("--allowedTools").unwrap_or_default();
        name == "Read"
            || self.flags.has("--dangerously-skip-permissions")
            || mode == "bypassPermissions"
            || (mode == "acceptEdits" && name != "Bash")
            || listed.iter().any(|rule| self.permits(rule, name, input))
    }

    /// Whether a rule such as `Edit(./docs/**)` permits this call. A rule of `Edit` is one of all
    /// tools that write files.
    fn permits(&self, rule: &str, name: &str, input: &Value) -> bool {
        let (tool, pattern) = match rule.split_once('(') {
            Some((tool, pattern)) => (tool, Some(pattern.trim_end_matches(')'))),
            None => (rule, None),
        };
        let is_meant = tool == name || (tool == "Edit" && name == "Write");
        let Some(pattern) = pattern else {
            return is_meant;
        };
        let folder = pattern.trim_start_matches("./").trim_end_matches("/**");
        let path = Path::new(input["file_path"].as_str().unwrap_or_default());
        let climbs = path.components().any(|part| part == Component::ParentDir);
        is_meant && !climbs && path.starts_with(self.cwd.join(folder))
    }

    fn act(&self, step: &Step) -> Result<String, String> {
        let done =
            |result: io::Result<()>, text: String| result.map(|()| text).map_err(|e| e.to_string());
        match step {
            Step::Read { path } => {
                std::fs::read_to_string(self.at(path)).map_err(|e| e.to_string())
            }
            Step::Write { path, content } | Step::Plant { path, content } => {
                let path = self.at(path);
                done(
                    write(&path, content),
                    format!("File created successfully at: {}", path.display()),
                )
            }
            Step::Append { path, content } => {
                let path = self.at(path);
                let before = std::fs::read_to_string(&path).unwrap_or_default();
                done(
                    write(&path, &(before + content)),
                    format!("The file {} has been updated.", path.display()),
                )
            }
            Step::Delete { path } => done(std::fs::remove_file(self.at(path)), String::new()),
            Step::Symlink { path, target } => done(
                std::os::unix::fs::symlink(target, self.at(path)),
                String::new(),
            ),
            Step::Run { command } => match shell(command, self.cwd, self.env) {
                (text, 0) => Ok(text),
                (text, code) => Err(format!("Exit code {code}\n{text}")),
            },
            _ => Ok(String::new()),
        }
    }
}

fn bash(command: &str) -> (&'static str, Value) {
    (
        "Bash",
        json!({"command": command, "description": "scripted"}),
    )
}

/// Writes a file and the folders above it; a script (first bytes `#!`) becomes executable.
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

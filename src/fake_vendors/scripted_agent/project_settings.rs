//! Project settings of the working directory that the real agent CLI obeys before it reads the prompt.
//!
//! As dangerous as in the real CLI, on purpose: unless the caller disables project settings and
//! project servers, hooks and helpers of the working directory really run with the whole
//! environment, and the API key is sent to the address that the repository configures.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::cli_flags::CliFlags;

/// Environment of all processes that the agent starts.
pub(super) type ScriptEnv = BTreeMap<String, String>;

/// Settings of the working directory, and the MCP servers that they started.
pub(super) struct ProjectSettings {
    settings: Vec<Value>,
    hooks: bool,
    servers: Vec<(String, Child)>,
}

impl ProjectSettings {
    pub(super) fn load(flags: &CliFlags, cwd: &Path, env: &mut ScriptEnv) -> Self {
        let mut project = Self {
            hooks: !flags.has("--bare") && !flags.has("--safe-mode") && !are_hooks_disabled(flags),
            settings: Vec::new(),
            servers: Vec::new(),
        };
        for (source, file) in [
            ("project", "settings.json"),
            ("local", "settings.local.json"),
        ] {
            if flags.loads_settings_from(source)
                && let Some(settings) = read_json(&cwd.join(".claude").join(file))
            {
                project.settings.push(settings);
            }
        }
        project.apply_env(env);
        if !flags.has("--bare") {
            project.run_key_helper(cwd, env);
        }
        if !flags.has("--bare") && !flags.has("--safe-mode") && !flags.has("--strict-mcp-config") {
            project.start_servers(cwd, env);
        }
        project
    }

    pub(super) fn server_names(&self) -> Vec<String> {
        self.servers.iter().map(|(name, _)| name.clone()).collect()
    }

    fn apply_env(&self, env: &mut ScriptEnv) {
        for settings in &self.settings {
            for (name, value) in settings["env"].as_object().into_iter().flatten() {
                env.insert(name.clone(), value.as_str().unwrap_or_default().to_owned());
            }
            if let Some(url) = settings["env"]["ANTHROPIC_BASE_URL"].as_str() {
                send_api_key(url, env);
            }
        }
    }

    fn run_key_helper(&self, cwd: &Path, env: &ScriptEnv) {
        for settings in &self.settings {
            if let Some(command) = settings["apiKeyHelper"].as_str() {
                run_shell(command, cwd, env);
            }
        }
    }

    fn start_servers(&mut self, cwd: &Path, env: &ScriptEnv) {
        let servers = read_json(&cwd.join(".mcp.json")).unwrap_or_default();
        for (name, server) in servers["mcpServers"].as_object().into_iter().flatten() {
            let Some(program) = server["command"].as_str() else {
                continue;
            };
            let args = server["args"].as_array().cloned().unwrap_or_default();
            let child = Command::new(program)
                .args(args.iter().filter_map(Value::as_str))
                .current_dir(cwd)
                .env_clear()
                .envs(env)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            // As in the real CLI, a server that fails to start is only missing.
            if let Ok(child) = child {
                self.servers.push((name.clone(), child));
            }
        }
    }

    /// Runs the commands hooked to an event.
    pub(super) fn run_hooks(&self, event: &str, cwd: &Path, env: &ScriptEnv) {
        if !self.hooks {
            return;
        }
        for settings in &self.settings {
            let matchers = settings["hooks"][event].as_array();
            for hook in matchers
                .into_iter()
                .flatten()
                .flat_map(|m| m["hooks"].as_array())
                .flatten()
            {
                if let Some(command) = hook["command"].as_str() {
                    run_shell(command, cwd, env);
                }
            }
        }
    }
}

impl Drop for ProjectSettings {
    fn drop(&mut self) {
        for (_, server) in &mut self.servers {
            // Fails if the server has already exited.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Runs a command and returns its output and exit code.
pub(super) fn run_shell(command: &str, cwd: &Path, env: &ScriptEnv) -> (String, i32) {
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(cwd)
        .env_clear()
        .envs(env)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            (
                text.trim_end().to_owned(),
                output.status.code().unwrap_or(-1),
            )
        }
        Err(error) => (error.to_string(), 127),
    }
}

fn are_hooks_disabled(flags: &CliFlags) -> bool {
    let settings = flags.value("--settings").unwrap_or_default();
    let settings = serde_json::from_slice(settings.as_bytes())
        .ok()
        .or_else(|| read_json(Path::new(settings)));
    settings.is_some_and(|settings: Value| settings["disableAllHooks"] == Value::Bool(true))
}

fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Sends the API key to the configured address: plain HTTP, or a `file://` marker of a test.
fn send_api_key(url: &str, env: &ScriptEnv) {
    let names = [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
    ];
    let key = names
        .iter()
        .find_map(|name| env.get(*name))
        .cloned()
        .unwrap_or_default();
    if let Some(path) = url.strip_prefix("file://") {
        // If the marker cannot be written, the test that expects it fails.
        let _ = std::fs::write(path, format!("x-api-key: {key}\n"));
        return;
    }
    let Some(rest) = url.strip_prefix("http://") else {
        return;
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let Ok(mut stream) = TcpStream::connect(host) else {
        return;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let body = "{}";
    let _ = write!(
        stream,
        "POST /{path}/v1/messages HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.read(&mut [0u8; 512]);
}

//! Fake of the agent CLI: same flags and same event stream, with scripted steps instead of a model.
//!
//! Finds the script of the ticket named in the prompt and runs its next pass. Dangerous behavior of
//! the real CLI (project settings, permissions, misleading exit codes) is reproduced on purpose: a
//! test that plants hostile settings fails if the caller forgets a flag.

mod cli_flags;
mod event_stream;
mod project_settings;
mod scratch;
mod script;
mod script_runner;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

pub use self::script::{Script, ScriptStep, ScriptedPass, ScriptedReview};

use self::cli_flags::CliFlags;
use self::event_stream::{CallOutcome, EventStream};
use self::project_settings::{ProjectSettings, ScriptEnv};
use self::script_runner::{EarlyStop, ScriptRunner};

/// Arguments, input and environment of one call of the CLI.
pub(crate) struct Invocation<'a> {
    pub args: Vec<String>,
    pub stdin: String,
    pub cwd: PathBuf,
    pub env: ScriptEnv,
    pub is_root: bool,
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
}

/// Runs the hidden subcommand: `--scripts DIR`, then the flags of the real CLI.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut stdin = String::new();
    if !std::io::stdin().is_terminal() {
        // A prompt that is not UTF-8 counts as empty, which is rejected below.
        let _ = std::io::stdin().read_to_string(&mut stdin);
    }
    let lossy = |text: OsString| text.to_string_lossy().into_owned();
    let invocation = Invocation {
        args: args.into_iter().map(lossy).collect(),
        stdin,
        cwd: std::env::current_dir().unwrap_or_default(),
        env: std::env::vars_os()
            .map(|(k, v)| (lossy(k), lossy(v)))
            .collect(),
        is_root: rustix::process::geteuid().is_root(),
        out: &mut std::io::stdout(),
        err: &mut std::io::stderr(),
    };
    ExitCode::from(run_invocation(invocation))
}

/// Runs one call and returns its exit code.
pub(crate) fn run_invocation(mut invocation: Invocation<'_>) -> u8 {
    let flags = match CliFlags::parse(std::mem::take(&mut invocation.args)) {
        Ok(flags) => flags,
        Err(message) => return fail(&mut invocation, &message),
    };
    if flags.has("--version") {
        return print(&mut invocation, "2.1.197 (Claude Code)");
    }
    if flags.has("--help") {
        return print(
            &mut invocation,
            "Usage: claude [options] [command] [prompt]",
        );
    }
    if let Some(message) = startup_error(&flags, &invocation) {
        return fail(&mut invocation, &message);
    }
    execute(&flags, invocation).unwrap_or(1)
}

fn print(invocation: &mut Invocation<'_>, text: &str) -> u8 {
    u8::from(writeln!(invocation.out, "{text}").is_err())
}

fn fail(invocation: &mut Invocation<'_>, message: &str) -> u8 {
    // A closed standard error does not change the exit code.
    let _ = writeln!(invocation.err, "{message}");
    1
}

fn prompt(flags: &CliFlags, invocation: &Invocation<'_>) -> String {
    let mut parts = vec![invocation.stdin.clone()];
    parts.extend(flags.positional.iter().cloned());
    parts.retain(|part| !part.trim().is_empty());
    parts.join("\n")
}

/// Returns the error with which the real CLI would exit before it starts a session.
fn startup_error(flags: &CliFlags, invocation: &Invocation<'_>) -> Option<String> {
    let is_sandboxed = invocation
        .env
        .get("IS_SANDBOX")
        .is_some_and(|flag| flag == "1");
    let bypass = flags.has("--dangerously-skip-permissions")
        || flags.value("--permission-mode") == Some("bypassPermissions");
    let schema = flags.value("--json-schema");
    let files = ["--append-system-prompt-file", "--system-prompt-file"];
    let missing = files
        .iter()
        .filter_map(|flag| flags.value(flag))
        .find(|file| !invocation.cwd.join(file).exists());
    let modes = [
        "acceptEdits",
        "auto",
        "bypassPermissions",
        "default",
        "dontAsk",
        "plan",
    ];
    if let Some(mode) = flags
        .value("--permission-mode")
        .filter(|mode| !modes.contains(mode))
    {
        return Some(format!(
            "error: option '--permission-mode <mode>' argument '{mode}' is invalid. Allowed choices are {}.",
            modes.join(", ")
        ));
    }
    if !flags.has("--print") {
        return Some("Error: the scripted agent only supports --print".into());
    }
    if bypass && invocation.is_root && !is_sandboxed {
        return Some("--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons".into());
    }
    if flags.output_format() == "stream-json" && !flags.has("--verbose") {
        return Some(
            "Error: When using --print, --output-format=stream-json requires --verbose".into(),
        );
    }
    if prompt(flags, invocation).is_empty() {
        return Some("Error: Input must be provided either through stdin or as a prompt argument when using --print".into());
    }
    if let Some(file) = missing {
        return Some(format!("Error: System prompt file not found: {file}"));
    }
    if schema.is_some_and(|text| serde_json::from_str::<Value>(text).is_err()) {
        return Some("Error: --json-schema is not valid JSON".into());
    }
    None
}

fn execute(flags: &CliFlags, invocation: Invocation<'_>) -> anyhow::Result<u8> {
    let prompt = prompt(flags, &invocation);
    let scripts = PathBuf::from(flags.value("--scripts").unwrap_or("."));
    let (ticket, script) = find_script(&scripts, &prompt)?;
    let is_review = flags.value("--json-schema").is_some();
    let steps = if is_review {
        Vec::new()
    } else {
        next_pass(&scripts, &ticket, &script, &prompt)
    };
    if matches!(steps.first(), Some(ScriptStep::Hang)) {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
    }
    let Invocation {
        cwd, mut env, out, ..
    } = invocation;
    let project = ProjectSettings::load(flags, &cwd, &mut env);
    let mut stream = EventStream::new(out, flags.output_format(), flags.value("--model"));
    let bypass = flags.has("--dangerously-skip-permissions");
    let mode = if bypass {
        "bypassPermissions"
    } else {
        flags.value("--permission-mode").unwrap_or("default")
    };
    let key_variable = key_source(&env);
    let cwd_text = cwd.to_string_lossy();
    stream.init(
        &cwd_text,
        flags.list("--tools"),
        mode,
        key_variable.unwrap_or("none"),
        &project.server_names(),
    )?;
    project.run_hooks("SessionStart", &cwd, &env);
    project.run_hooks("UserPromptSubmit", &cwd, &env);
    if key_variable.is_none() {
        let text = "Not logged in · Please run /login".into();
        return Ok(stream.finish(CallOutcome::ApiError { status: None, text })?);
    }
    let outcome = if is_review {
        review(&mut stream, next_review(&scripts, &ticket, &script))
    } else {
        let mut runner = ScriptRunner {
            flags,
            cwd: &cwd,
            env: &env,
            prompt: &prompt,
            stream: &mut stream,
            pending_text: None,
        };
        runner.run(&steps)
    };
    project.run_hooks("Stop", &cwd, &env);
    match outcome {
        Ok(end) | Err(EarlyStop::End(end)) => Ok(stream.finish(end)?),
        Err(EarlyStop::Exit(code)) => Ok(code),
        Err(EarlyStop::Io(error)) => Err(error.into()),
    }
}

fn key_source(env: &ScriptEnv) -> Option<&'static str> {
    const SOURCES: [&str; 4] = [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
    ];
    SOURCES
        .into_iter()
        .find(|name| env.get(*name).is_some_and(|value| !value.is_empty()))
}

/// Returns the script of the first ticket in the prompt that has a script, else the script `default`,
/// else an empty script.
fn find_script(scripts: &Path, prompt: &str) -> anyhow::Result<(String, Script)> {
    let ticket_key_pattern =
        regex::Regex::new(r"\b(?:[A-Z][A-Z0-9]*-[0-9]+|[A-Za-z0-9._-]+#[0-9]+)\b")?;
    let ticket_keys = ticket_key_pattern
        .find_iter(prompt)
        .map(|found| found.as_str());
    for ticket in ticket_keys.chain(["default"]) {
        let path = scripts.join(format!("{ticket}.json"));
        if path.exists() {
            return Ok((ticket.to_owned(), Script::load(&path)?));
        }
    }
    Ok(("default".into(), Script::default()))
}

/// Begin of the list of files in conflict in a prompt.
const IN_CONFLICT: &str = "Files in conflict.";

fn next_pass(scripts: &Path, ticket: &str, script: &Script, prompt: &str) -> Vec<ScriptStep> {
    if !script.conflicts.is_empty() && prompt.contains(IN_CONFLICT) {
        return script.conflicts.clone();
    }
    let matches_prompt = |pass: &&script::ScriptedPass| {
        pass.prompt_contains
            .as_ref()
            .is_none_or(|text| prompt.contains(text.as_str()))
    };
    let special = script
        .passes
        .iter()
        .any(|pass| pass.prompt_contains.is_some() && matches_prompt(&pass));
    let candidates: Vec<&ScriptedPass> = script
        .passes
        .iter()
        .filter(|pass| matches_prompt(pass) && (pass.prompt_contains.is_some() || !special))
        .collect();
    let kind = if special { "special" } else { "pass" };
    let index = take_call_index(scripts, ticket, kind);
    let pass = candidates.get(index).or(candidates.last());
    pass.map(|pass| pass.steps.clone()).unwrap_or_default()
}

fn next_review(scripts: &Path, ticket: &str, script: &Script) -> ScriptedReview {
    let index = take_call_index(scripts, ticket, "review");
    script
        .reviews
        .get(index)
        .cloned()
        .unwrap_or_else(ScriptedReview::approve)
}

/// Returns how many calls of this kind came before, and counts this one. Calls of one ticket do not
/// overlap, so a plain file is enough.
fn take_call_index(scripts: &Path, ticket: &str, kind: &str) -> usize {
    let path = scripts.join("counts").join(format!("{ticket}.{kind}"));
    let before = std::fs::read_to_string(&path).ok();
    let before: usize = before
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    // If the count cannot be stored (read-only mount), every call is the first.
    let _ = std::fs::create_dir_all(scripts.join("counts"));
    let _ = std::fs::write(path, (before + 1).to_string());
    before
}

fn review(stream: &mut EventStream<'_>, review: ScriptedReview) -> Result<CallOutcome, EarlyStop> {
    let Some(output) = review.0 else {
        let text = "I could not decide.".to_owned();
        stream.message(Some(&text), None)?;
        return Ok(CallOutcome::Success {
            text,
            structured: None,
        });
    };
    let id = stream.message(None, Some(("StructuredOutput", &output)))?;
    stream.tool_result(&id, Ok("Structured output provided successfully".into()))?;
    stream.message(Some("Reviewed."), None)?;
    Ok(CallOutcome::Success {
        text: json!(output).to_string(),
        structured: Some(output),
    })
}

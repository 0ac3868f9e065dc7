//! Claude Code: how it is started and how its end is judged.
//!
//! The two flags that keep a repository from running code and taking the key are
//! `--setting-sources user --strict-mcp-config`; nothing less does. Neither the exit code nor the
//! subtype says alone whether a run went well: a refused key ends as `success`, an interrupted run
//! with code 0.

use std::ffi::OsString;
use std::path::Path;

use super::{AgentFailure, Answer, Ending, Pass, Role};
use crate::domain::report::FailureCode;
use crate::pipeline::child::ChildEnv;
use crate::pipeline::text;

/// The form of a review's answer.
pub const REVIEW_SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"required":["approved","blocking"],"properties":{"approved":{"type":"boolean"},"blocking":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["title","location","problem","requiredFix"],"properties":{"title":{"type":"string"},"location":{"type":"string"},"problem":{"type":"string"},"requiredFix":{"type":"string"}}}}}}"#;

/// How much of the program's own words stands in a reason?
const MAX_WORDS: usize = 600;

pub(super) fn arguments(pass: &Pass, model: Option<&str>, system: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--setting-sources",
        "user",
        "--strict-mcp-config",
        "--no-session-persistence",
        "--max-turns",
    ]
    .map(Into::into)
    .into();
    args.push(pass.max_turns.to_string().into());
    args.extend(["--append-system-prompt-file".into(), system.into()]);
    if let Some(model) = model {
        args.extend(["--model".into(), model.into()]);
    }
    // What is not in the list of tools need not be forbidden.
    let given: Vec<String> = match pass.role {
        Role::Implement => words(["--permission-mode", "bypassPermissions"]),
        Role::Review => words([
            "--permission-mode",
            "bypassPermissions",
            "--tools",
            "Read,Grep,Glob",
            "--json-schema",
            REVIEW_SCHEMA,
        ]),
        // In this mode reading inside the working directory needs no permission and nothing else
        // is given; a rule for `Read` or `Grep` would open the whole disk. The rule of `Edit` covers
        // every tool that writes files. (tried with 2.1.197)
        Role::Plan { folder } => {
            let mut given = words(["--permission-mode", "dontAsk"]);
            given.extend(words(["--tools", "Read,Grep,Glob,Write", "--allowedTools"]));
            given.push(format!("Edit(./{folder}/**)"));
            given
        }
    };
    args.extend(given.into_iter().map(Into::into));
    args
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

pub(super) fn environment(env: ChildEnv, home: &Path, settings: &Path, temp: &Path) -> ChildEnv {
    let env = env
        .with("HOME", home)
        .with("CLAUDE_CONFIG_DIR", settings)
        .with("TMPDIR", temp)
        .with("CLAUDE_CODE_TMPDIR", temp)
        .with("DISABLE_AUTOUPDATER", "1")
        .with("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    if rustix::process::geteuid().is_root() {
        // Without it the program refuses to skip permission prompts as root. A run is a sandbox.
        env.with("IS_SANDBOX", "1")
    } else {
        env
    }
}

pub(super) fn not_started(cause: &str) -> AgentFailure {
    AgentFailure {
        code: None,
        reason: format!("model invocation failed: {cause}"),
    }
}

/// Decides whether a pass went well. (facts: the vendor's own rule, and a result that was read)
///
/// To a planner, being kept from something is no failure: it may try a file outside of its folder,
/// and what it did write shows for itself.
pub(super) fn judge(ending: Ending, pass: &Pass) -> Result<Answer, AgentFailure> {
    let max_turns = pass.max_turns;
    let is_planning = matches!(pass.role, Role::Plan { .. });
    let failed = |code: Option<FailureCode>, exit: i32, words: &str| AgentFailure {
        code,
        reason: format!(
            "model invocation failed with exit code {exit}: {}",
            text::cut(words.trim(), MAX_WORDS)
        ),
    };
    // What we ended after its result had nothing left to say with its exit code.
    let exit = ending
        .exit_code
        .unwrap_or(i32::from(ending.result.is_none()));
    let Some(result) = ending.result else {
        let code = ending
            .denied_access
            .then_some(FailureCode::ProviderUnavailable);
        let words = match (&ending.stopped, ending.stderr.trim()) {
            (Some(stopped), _) => stopped.as_str(),
            (None, "") => "it ended without a result",
            (None, said) => said,
        };
        return Err(failed(code, exit.max(1), words));
    };
    let out_of_turns = AgentFailure {
        code: Some(FailureCode::MaxTurnsExhausted),
        reason: format!(
            "model invocation failed with exit code {}: Reached max turns ({max_turns})",
            exit.max(1)
        ),
    };
    match (result.subtype.as_str(), result.is_error) {
        ("error_max_turns", _) => Err(out_of_turns),
        ("success", false) if result.num_turns > u64::from(max_turns) => Err(out_of_turns),
        ("success", false) if exit != 0 => {
            Err(failed(None, exit, "it ended badly after its result"))
        }
        ("success", false) if !result.permission_denials.is_empty() && !is_planning => {
            let denied: Vec<&str> = result
                .permission_denials
                .iter()
                .filter_map(|denial| denial["tool_name"].as_str())
                .collect();
            let words = format!("it was not permitted to use {}", denied.join(", "));
            Err(failed(None, 1, &words))
        }
        ("success", false) => Ok(Answer {
            text: result.result.unwrap_or_default(),
            structured: result.structured_output,
        }),
        // The interface failed: refused, overloaded, out of reach.
        ("success", true) => {
            let words = result.result.unwrap_or_default();
            let code = (result.api_error_status.is_some() || words.contains("API Error"))
                .then_some(FailureCode::ProviderUnavailable);
            Err(failed(code, exit.max(1), &words))
        }
        (subtype, _) => {
            let words = if result.errors.is_empty() {
                subtype.replace('_', " ")
            } else {
                result.errors.join("; ")
            };
            Err(failed(None, exit.max(1), &words))
        }
    }
}

//! Shell completions and manual pages that the program prints.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use requires::requires;
use store::Store;

use crate::process::command;
use crate::requirements::require;

/// Runs the program with a secret in its environment and checks that the secret is not printed.
fn program(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_agent-implement"))
        .args(arguments)
        .env("LINEAR_API_KEY", "lin_canary")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!stdout.contains("lin_canary"), "{arguments:?}");
    output
}

/// Runs the program and returns its standard output.
fn printed(arguments: &[&str]) -> String {
    let output = program(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Passes text to another program. Returns whether the program succeeded, and its output.
fn check_with(reader: &str, arguments: &[&str], text: &str) -> (bool, String) {
    let started = Command::new(reader)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = require(reader, started);
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Checks the completions of a shell with the shell itself.
fn assert_completions_are_valid(shell: &str, check: &str) {
    let script = printed(&["completions", shell]);
    for word in [
        "agent-implement",
        "serve",
        "poll-interval-ms",
        "completions",
    ] {
        assert!(script.contains(word), "{word}");
    }
    assert!(!script.contains("scripted-agent"));
    let (is_valid, output) = check_with(shell, &[check], &script);
    assert!(is_valid && output.is_empty(), "{output}");
}

#[test]
fn bash_completions_are_valid() {
    assert_completions_are_valid("bash", "-n");
    assert!(!program(&["completions", "tcsh"]).status.success());
}

#[requires("zsh")]
#[test]
fn zsh_completions_are_valid() {
    assert_completions_are_valid("zsh", "-n");
}

#[requires("fish")]
#[test]
fn fish_completions_are_valid() {
    assert_completions_are_valid("fish", "--no-execute");
}

#[test]
fn bash_completes_a_flag() {
    let script = printed(&["completions", "bash"]);
    // Bash passes the command, the word under the cursor, and the word before it.
    let call = format!(
        "{script}\nfunction=$(complete -p agent-implement | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n\
         COMP_WORDS=(agent-implement serve --poll) COMP_CWORD=2\n\
         \"$function\" agent-implement --poll serve\necho \"${{COMPREPLY[@]}}\"\n"
    );
    let (is_valid, output) = check_with("bash", &["--norc"], &call);
    assert!(is_valid, "{output}");
    assert_eq!(output.trim(), "--poll-interval-ms");
}

#[test]
fn manual_pages_name_the_variables() {
    let page = printed(&["man"]);
    assert!(page.contains(".TH agent-implement 1"), "{page}");
    assert!(!page.contains("scripted"), "{page}");
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("new/man1");
    printed(&["man", "--dir", folder.to_str().unwrap()]);
    let mut pages: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    for command in [
        "",
        "-serve",
        "-demo",
        "-guard",
        "-guard-scan",
        "-openapi",
        "-completions",
        "-man",
    ] {
        let name = format!("agent-implement{command}.1");
        assert!(pages.contains(&name), "{pages:?}");
    }
    assert!(pages.iter().all(|name| !name.contains("help")), "{pages:?}");
    let serve = std::fs::read_to_string(folder.join("agent-implement-serve.1")).unwrap();
    // The page names the variable of each flag.
    assert!(serve.contains("POLL_INTERVAL_MS") && serve.contains("SCM_WEBHOOK_SECRET"));
    let nowhere = Path::new("/proc/nowhere");
    let refused = program(&["man", "--dir", nowhere.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && stderr.contains("/proc/nowhere"),
        "{stderr}"
    );
}

#[requires("groff")]
#[test]
fn manual_pages_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    printed(&["man", "--dir", dir.path().to_str().unwrap()]);
    for page in std::fs::read_dir(dir.path()).unwrap() {
        let page = page.unwrap().path();
        let text = std::fs::read_to_string(&page).unwrap();
        let (is_valid, output) = check_with("groff", &["-man", "-ww", "-z", "-Tutf8"], &text);
        assert!(
            is_valid && output.is_empty(),
            "{}: {output}",
            page.display()
        );
    }
}

/// A reader may close the pipe early.
#[test]
fn a_command_whose_output_nobody_reads_completes() {
    let data = tempfile::tempdir().unwrap();
    drop(Store::open(data.path()).unwrap());
    let export = format!("export --data-dir {}", data.path().display());
    for line in [
        "openapi",
        "man",
        "completions bash",
        "serve --print-config",
        "image build --dry-run",
        &export,
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command(&line.split(' ').collect::<Vec<_>>())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{line} {output:?}"
        );
    }
}

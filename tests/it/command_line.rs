//! The commands that help people at a shell: completions and the manual, as the program prints them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::requirements::require;

/// The program in an environment of its own, in which a secret is set that nobody may read.
fn program(arguments: &[&str]) -> Output {
    let done = Command::new(env!("CARGO_BIN_EXE_agent-implement"))
        .args(arguments)
        .env("LINEAR_API_KEY", "lin_canary")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(!told.contains("lin_canary"), "{arguments:?}");
    done
}

fn printed(arguments: &[&str]) -> String {
    let done = program(arguments);
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// Whether another program takes this text; None where it is not installed and the skip is named.
fn taken_by(reader: &str, arguments: &[&str], text: &str) -> Option<(bool, String)> {
    let started = Command::new(reader)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut reading = match started {
        Ok(reading) => reading,
        Err(error) => {
            return require(
                reader,
                "what the command line prints",
                Err(error.to_string()),
            );
        }
    };
    let mut input = reading.stdin.take().unwrap();
    let text = text.to_owned();
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let read = reading.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let told = [read.stdout, read.stderr].concat();
    Some((
        read.status.success(),
        String::from_utf8_lossy(&told).into_owned(),
    ))
}

#[test]
fn each_shell_gets_a_script_that_it_takes() {
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = printed(&["completions", shell]);
        for word in [
            "agent-implement",
            "serve",
            "poll-interval-ms",
            "completions",
        ] {
            assert!(script.contains(word), "{shell} {word}");
        }
        assert!(!script.contains("scripted-agent"), "{shell}");
        if let Some((is_taken, told)) = taken_by(shell, &[check], &script) {
            assert!(is_taken && told.is_empty(), "{shell}: {told}");
        }
    }
    assert!(!program(&["completions", "tcsh"]).status.success());
}

#[test]
fn bash_completes_what_there_is() {
    let script = printed(&["completions", "bash"]);
    // As bash calls it: the command, the word under the cursor, the word before it.
    let asked = format!(
        "{script}\nfunction=$(complete -p agent-implement | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n\
         COMP_WORDS=(agent-implement serve --poll) COMP_CWORD=2\n\
         \"$function\" agent-implement --poll serve\necho \"${{COMPREPLY[@]}}\"\n"
    );
    let (is_taken, told) = taken_by("bash", &["--norc"], &asked).unwrap();
    assert!(is_taken, "{told}");
    assert_eq!(told.trim(), "--poll-interval-ms");
}

#[test]
fn the_manual_is_readable_and_names_every_variable() {
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
    // The variable of every flag is named, as roff writes a dash and an underscore.
    assert!(serve.contains("POLL_INTERVAL_MS") && serve.contains("SCM_WEBHOOK_SECRET"));
    for name in &pages {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        if let Some((is_taken, told)) = taken_by("groff", &["-man", "-ww", "-z", "-Tutf8"], &text) {
            assert!(is_taken && told.is_empty(), "{name}: {told}");
        }
    }
    let nowhere = Path::new("/proc/nowhere");
    let refused = program(&["man", "--dir", nowhere.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && told.contains("/proc/nowhere"),
        "{told}"
    );
}

/// A reader that has read enough is no failure.
#[test]
fn what_is_printed_may_be_read_in_part() {
    for command in ["openapi", "man", "completions bash"] {
        let line = format!(
            "{} {command} | head -c 10",
            env!("CARGO_BIN_EXE_agent-implement")
        );
        let done = Command::new("bash")
            .args(["-c", &format!("set -o pipefail; {line}")])
            .output()
            .unwrap();
        assert!(
            done.status.success() && done.stderr.is_empty(),
            "{command} {done:?}"
        );
    }
}

//! Log files: fields that identify tickets and runs, levels, and output without files.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// Returns the lines of all files in a folder.
fn lines(dir: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(dir).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let texts: Vec<String> = texts.collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the value of a field of a line or of its spans.
fn field<'l>(line: &'l Value, name: &str) -> Option<&'l str> {
    let spans = line["spans"].as_array().into_iter().flatten();
    std::iter::once(line)
        .chain(spans)
        .find_map(|fields| fields[name].as_str())
}

/// Each line about a ticket has the ticket's key. Each line about a run has the job ID.
#[test]
fn logs_show_a_ticket_from_its_dispatch_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Command::new(PROGRAM);
    demo.args([
        "demo",
        "--exit-when-idle",
        "--log-level",
        "info",
        "--data-dir",
    ]);
    let output = demo.arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&dir.path().join("data/logs"));
    let about = |issue: &str| -> Vec<&Value> {
        lines
            .iter()
            .filter(|line| field(line, "issue") == Some(issue))
            .collect()
    };
    let line_with = |lines: &[&Value], message: &str| {
        let mut found = lines.iter().filter(|line| line["message"] == message);
        found
            .next()
            .unwrap_or_else(|| panic!("no line has the message: {message}\n{lines:#?}"))
            .to_owned()
            .clone()
    };

    let plain = about("DEMO-1");
    let job = line_with(&plain, "Reserved a run.")["job_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let ended = line_with(&plain, "Run ended.");
    assert_eq!([&ended["status"], &ended["team"]], ["completed", "DEMO"]);
    for line in plain {
        assert_eq!(field(line, "job_id"), Some(job.as_str()), "{line}");
        assert_eq!(field(line, "team"), Some("DEMO"), "{line}");
    }
    let reported = line_with(
        &lines.iter().collect::<Vec<_>>(),
        "Recorded the result of a run.",
    );
    assert_eq!(reported["spans"][0]["path"], "/runner/result");
    assert!(reported["spans"][0]["job_id"].is_string(), "{reported}");

    let leaky = line_with(&about("DEMO-3"), "Run failed.");
    assert_eq!([&leaky["level"], &leaky["status"]], ["INFO", "failed"]);
    assert!(
        leaky["why"].as_str().unwrap().contains("sensitive file"),
        "{leaky}"
    );

    let performed = lines
        .iter()
        .filter(|line| line["message"] == "Performed effect.");
    for line in performed {
        let effect = field(line, "effect").unwrap();
        let is_named = field(line, "job_id").is_some() && field(line, "team").is_some();
        assert!(is_named || effect == "chat message", "{line}");
    }
    let errors: Vec<&Value> = lines
        .iter()
        .filter(|line| line["level"] == "ERROR")
        .collect();
    assert!(errors.is_empty(), "unexpected errors: {errors:#?}");
}

#[test]
fn logs_to_standard_error_without_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = Command::new(PROGRAM);
    serve
        .env_clear()
        .args(["serve", "--port", "0", "--log-format", "json"]);
    serve
        .args(["--log-keep-days", "0", "--data-dir"])
        .arg(dir.path());
    let mut serve = serve.stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(serve.stderr.take().unwrap());
    let stderr = stderr.lines().map_while(Result::ok);
    let mut lines = stderr.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let started = lines.find(|line| line["message"] == "Agent Implement is running.");
    serve.kill().unwrap();
    serve.wait().unwrap();
    assert_eq!(started.unwrap()["level"], "INFO");
    assert!(!dir.path().join("logs").exists());
}

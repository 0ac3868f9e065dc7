//! What the logs say, to somebody who has to find out what happened.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

fn lines(dir: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(dir).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let texts: Vec<String> = texts.collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The value of a field of a line, or of the spans around it.
fn field<'l>(line: &'l Value, name: &str) -> Option<&'l str> {
    let spans = line["spans"].as_array().into_iter().flatten();
    std::iter::once(line)
        .chain(spans)
        .find_map(|one| one[name].as_str())
}

/// Every line about a ticket can be found by the ticket, every one about a run by the run.
#[test]
fn a_ticket_is_told_from_its_dispatch_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Command::new(PROGRAM);
    demo.args([
        "demo",
        "--exit-when-idle",
        "--log-level",
        "info",
        "--data-dir",
    ]);
    let ended = demo.arg(dir.path()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let lines = lines(&dir.path().join("data/logs"));
    let about = |issue: &str| -> Vec<&Value> {
        lines
            .iter()
            .filter(|line| field(line, "issue") == Some(issue))
            .collect()
    };
    let says = |lines: &[&Value], message: &str| {
        let mut found = lines.iter().filter(|line| line["message"] == message);
        found
            .next()
            .unwrap_or_else(|| panic!("nobody says: {message}\n{lines:#?}"))
            .to_owned()
            .clone()
    };

    let plain = about("DEMO-1");
    let job = says(&plain, "Reserved a run.")["job_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let ended = says(&plain, "The run ended.");
    assert_eq!([&ended["status"], &ended["team"]], ["completed", "DEMO"]);
    for line in plain {
        assert_eq!(field(line, "job_id"), Some(job.as_str()), "{line}");
        assert_eq!(field(line, "team"), Some("DEMO"), "{line}");
    }
    let reported = says(
        &lines.iter().collect::<Vec<_>>(),
        "The run reported its result.",
    );
    assert_eq!(reported["spans"][0]["path"], "/runner/result");
    assert!(reported["spans"][0]["job_id"].is_string(), "{reported}");

    let leaky = says(&about("DEMO-3"), "The run ended badly.");
    assert_eq!([&leaky["level"], &leaky["status"]], ["INFO", "failed"]);
    assert!(
        leaky["why"].as_str().unwrap().contains("sensitive file"),
        "{leaky}"
    );

    let delivered = lines.iter().filter(|line| line["message"] == "Delivered.");
    for line in delivered {
        let effect = field(line, "effect").unwrap();
        let is_named = field(line, "job_id").is_some() && field(line, "team").is_some();
        assert!(is_named || effect == "chat message", "{line}");
    }
    let errors: Vec<&Value> = lines
        .iter()
        .filter(|line| line["level"] == "ERROR")
        .collect();
    assert!(
        errors.is_empty(),
        "a refusal that is expected is no error: {errors:#?}"
    );
}

#[test]
fn without_files_there_is_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = Command::new(PROGRAM);
    serve
        .env_clear()
        .args(["serve", "--port", "0", "--log-format", "json"]);
    serve
        .args(["--log-keep-days", "0", "--data-dir"])
        .arg(dir.path());
    let mut serve = serve.stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(serve.stderr.take().unwrap());
    let said = said.lines().map_while(Result::ok);
    let mut lines = said.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let started = lines.find(|line| line["message"] == "Agent Implement is running.");
    serve.kill().unwrap();
    serve.wait().unwrap();
    assert_eq!(started.unwrap()["level"], "INFO");
    assert!(!dir.path().join("logs").exists());
}

//! Credentials of a run: which of them the agent can reach, and that none is published.
//!
//! Every credential has its own value in these tests. An agent that searches everything it can reach
//! finds its model key and no other credential. Nothing that leaves the run contains any of them,
//! including the model key.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use data_encoding::{BASE64, HEXLOWER};
use domain::job::JobState;
use fake_vendors::scripted_agent::{Script, ScriptStep, ScriptedReview};
use serde_json::Value;

use crate::api_server::{ACCESS_CODE, TOKEN_SECRET};
use crate::planning::{IMPLEMENTATION_PROMPT, PLANNING_PROMPT, wait_for_runs};
use crate::test_env::{TestEnv, app_key, planning_mapping};

/// Model key without a recognizable format.
const MODEL_KEY: &str = "canary.of+the/model~7f3a9c55e1";

/// All variables that the agent's environment may contain.
const AGENT_VARIABLES: [&str; 14] = [
    "AGENT_IMPLEMENT_SCRATCH",
    "ANTHROPIC_API_KEY",
    "CI",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_MAX_RETRIES",
    "CLAUDE_CODE_TMPDIR",
    "CLAUDE_CONFIG_DIR",
    "DISABLE_AUTOUPDATER",
    "HOME",
    "IS_SANDBOX",
    "LANG",
    "PATH",
    "PWD",
    "TMPDIR",
];

/// Prints the environment and open memory files of the agent's ancestors up to the run, the event that
/// started the run, and the model key in two encodings. Processes above the run belong to the CI host
/// and are out of scope.
pub const DUMP_CREDENTIALS_SCRIPT: &str = r#"
p=$$
while [ "$p" -gt 1 ]; do
  line=$(tr '\0' ' ' <"/proc/$p/cmdline")
  case $line in */runner[.]sh*) break ;; esac
  echo "ancestor: $line"
  echo "environment: $(tr '\0' '\n' <"/proc/$p/environ" 2>&1)"
  for f in "/proc/$p/fd/"*; do
    case $(readlink "$f") in *memfd:*) echo "memory: $(cat "$f")" ;; esac
  done
  p=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$p/status")
done
echo "event: $(cat ../../../event.json)"
printf %s "$ANTHROPIC_API_KEY" | od -An -tx1 | tr -d ' \n'; echo
printf %s "$ANTHROPIC_API_KEY" | base64
"#;

#[tokio::test(flavor = "multi_thread")]
async fn agent_sees_only_its_model_key_and_never_publishes_it() {
    let env = TestEnv::start().await;
    env.repo().set_secret("ANTHROPIC_API_KEY", MODEL_KEY);
    let environment = env.dir().join("agent-environment");
    let found = env.dir().join("agent-found");
    let steps = [
        ScriptStep::print_env(&environment),
        // Once into a file for this test, and once into the log of the run.
        ScriptStep::run(&format!(
            "{{ {DUMP_CREDENTIALS_SCRIPT} }} >{}",
            found.display()
        )),
        ScriptStep::run(DUMP_CREDENTIALS_SCRIPT),
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message(&format!(
            "My key is {MODEL_KEY}, also known as {}.",
            BASE64.encode(MODEL_KEY.as_bytes())
        )),
    ];
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);

    let canaries = canaries(&env);
    let variables = variables(&environment);
    assert_eq!(variables["ANTHROPIC_API_KEY"], MODEL_KEY);
    let names: BTreeSet<&str> = variables.keys().map(String::as_str).collect();
    let allowed = BTreeSet::from(AGENT_VARIABLES);
    assert!(
        names.is_subset(&allowed),
        "{:?}",
        names.difference(&allowed)
    );

    let found = std::fs::read_to_string(&found).unwrap();
    assert!(found.contains("agent-implement run"), "{found}");
    if is_root() {
        let of_run = found
            .split("ancestor: ")
            .find(|part| part.contains("run --handed-over"));
        let of_run = of_run.unwrap_or_default();
        assert!(
            of_run.contains("environment: ") && of_run.contains("PATH="),
            "root reads the run's environment; this test relies on it: {of_run}"
        );
    }
    for (name, canary) in &canaries {
        let is_own = *name == "model key";
        let holds = found.contains(canary.as_str());
        assert_eq!(holds, is_own, "the agent and the {name}:\n{found}");
    }

    for (location, text) in published_texts(&env, &job.id.to_string()).await {
        for (name, canary) in &canaries {
            for encoding in encodings(canary) {
                let holds = contains(&text, encoding.as_bytes());
                assert!(!holds, "{location} holds the {name} as {encoding}");
            }
        }
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_a_push_that_contains_a_run_credential() {
    let env = TestEnv::start().await;
    env.repo().set_secret("ANTHROPIC_API_KEY", MODEL_KEY);
    let encoded = BASE64.encode(MODEL_KEY.as_bytes());
    let steps = [
        ScriptStep::write("docs/plain.txt", &format!("see {MODEL_KEY}\n")),
        ScriptStep::write("docs/packed.txt", &format!("see {encoded}\n")),
        ScriptStep::write("docs/fine.txt", "nothing to see\n"),
        ScriptStep::symlink("link", MODEL_KEY),
    ];
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(env.repo().branches(), ["main"]);
    let comments = env.vendors.linear().issue("ENG-1").comments();
    for path in ["docs/plain.txt", "docs/packed.txt", "link"] {
        let line = format!("{path}: tokens and auth files (credential of this run)");
        assert!(comments[0].contains(&line), "{line} in {comments:?}");
    }
    assert!(!comments[0].contains("fine.txt"), "{comments:?}");
    for (location, text) in published_texts(&env, &job.id.to_string()).await {
        for encoding in encodings(MODEL_KEY) {
            assert!(
                !contains(&text, encoding.as_bytes()),
                "{location}: {encoding}"
            );
        }
    }
    env.finish().await;
}

/// Tokens in published formats that are not credentials of this run. They are assembled, so that no
/// scanner reports this file.
fn foreign_tokens() -> Vec<String> {
    let word = "Zq7LkT9mWx2Vr8NpYc5HdJfBsGhAuEiC3oDy6Xt1QvMn";
    let hex = "0a9f8e7d6c5b4a39281706f5e4d3c2b1";
    vec![
        ["sk_li", "ve_", &word[..24]].concat(),
        ["glp", "at-", &word[..20]].concat(),
        ["np", "m_", &word[..36]].concat(),
        ["h", "f_", &word[..34]].concat(),
        ["S", "G.", &word[..22], ".", &word[..43]].concat(),
        ["dop", "_v1_", hex, hex].concat(),
    ]
}

/// Checks that no usable part of a token is in the text.
fn assert_no_token(tokens: &[String], location: &str, text: &[u8]) {
    for token in tokens {
        let start = token.as_bytes()[..token.len().min(24)].to_vec();
        assert!(!contains(text, &start), "{location} holds {token}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redacts_secrets_in_everything_published() {
    let env = TestEnv::with_mapping(planning_mapping()).await;
    let tokens = foreign_tokens();
    let joined_tokens = tokens.join(" and ");
    let key = ["-----BEGIN ", "PRIVATE KEY-----"].concat();
    let body = "MIIEpAIBAAKCAQEAq7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoWb8Rn";
    let print_secrets = format!("printf '%s\\n' '{joined_tokens}' '{key}' {body} {body}");
    let plan = format!("## Steps\n\nUse {joined_tokens}.");
    let planning = [
        ScriptStep::write("ai-output/comments/01-plan.md", &plan),
        ScriptStep::run(&print_secrets),
        ScriptStep::message(&format!("I will use {joined_tokens}.")),
    ];
    let implementing = [
        ScriptStep::run(&print_secrets),
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message(&format!("I used {joined_tokens}.")),
    ];
    let script = Script::new()
        .pass_if_prompt_contains(PLANNING_PROMPT, planning)
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, implementing);
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let jobs = wait_for_runs(&env, "ENG-1", 2).await;
    assert!(jobs.iter().all(|job| job.state == JobState::Completed));
    let text = env.repo().pulls().remove(0).body;
    assert!(text.contains("I used [redacted] and [redacted]"), "{text}");
    let comments = env.comments("ENG-1").join("\n");
    assert!(comments.contains("Use [redacted] and"), "{comments}");
    for job in jobs {
        for (location, text) in published_texts(&env, &job.id.to_string()).await {
            assert_no_token(&tokens, &location, &text);
            assert_no_token(&[body.to_owned()], &location, &text);
        }
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redacts_tokens_in_titles_and_failure_reasons() {
    let env = TestEnv::start().await;
    let tokens = foreign_tokens();
    let failing = Script::new().pass([ScriptStep::api_error(400, &format!("bad {}", tokens[0]))]);
    env.set_agent_script("ENG-2", failing);
    for (key, token) in [("ENG-1", &tokens[1]), ("ENG-2", &tokens[0])] {
        let issue = env.vendors.linear().issue(key);
        issue
            .title(&format!("Rotate {token} now"))
            .describe(&format!("The old one is {}.", tokens[2]))
            .add_label("Agent-Implement");
    }
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(job.branch, "agent-implement/eng-1-rotate-redacted-now");
    let pull = env.repo().pulls().remove(0);
    assert_eq!(pull.title, "ENG-1: Rotate [redacted] now");
    let failed = env.wait_for_job_end("ENG-2").await;
    assert_eq!(failed.state.status(), "failed");
    let messages = format!("{:?}", env.vendors.chat().messages());
    assert!(messages.contains("Rotate [redacted] now"), "{messages}");
    for job in [job, failed] {
        for (location, text) in published_texts(&env, &job.id.to_string()).await {
            // The ticket belongs to its author, and the store holds the description for the run.
            if location != "the ticket" && !location.ends_with(".redb") {
                assert_no_token(&tokens, &location, &text);
            }
        }
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redacts_secrets_in_review_findings() {
    let env = TestEnv::start().await;
    let tokens = foreign_tokens();
    let joined_tokens = tokens.join(" and ");
    let finding = |problem: &str| {
        ScriptedReview::block(
            &format!("Remove {}", tokens[0]),
            "a.ts:1",
            problem,
            &joined_tokens,
        )
    };
    let script = (0..9).fold(
        Script::new().pass([
            ScriptStep::write("feature.txt", "done\n"),
            ScriptStep::message("Done."),
        ]),
        |script, _| script.review(finding(&format!("It holds {joined_tokens}."))),
    );
    env.set_agent_script("ENG-1", script);
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let JobState::ReviewFailed { unresolved } = &job.state else {
        panic!("{:?}", job.state)
    };
    assert!(
        unresolved[0].contains("Remove [redacted]"),
        "{unresolved:?}"
    );
    let pull = env.repo().pulls().remove(0);
    let comments = format!("{:?}", env.repo().comments(pull.number));
    assert!(comments.contains("It holds [redacted] and"), "{comments}");
    for (location, text) in published_texts(&env, &job.id.to_string()).await {
        assert_no_token(&tokens, &location, &text);
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_a_push_with_encoded_secrets() {
    let env = TestEnv::start().await;
    let tokens = foreign_tokens();
    let utf16 = |text: &str| {
        text.encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<u8>>()
    };
    let filler = "Nothing to see in this line.\n".repeat(100_000);
    let files: [(&str, Vec<u8>); 6] = [
        (
            "beside-zero.txt",
            format!("a\0b\nkey = {}\n", tokens[0]).into_bytes(),
        ),
        (
            "wide.txt",
            [
                b"\xff\xfe".to_vec(),
                utf16(&format!("{filler}{}\n", tokens[1])),
            ]
            .concat(),
        ),
        (
            "wide-unmarked.txt",
            utf16(&format!("{filler}{}\n", tokens[2])),
        ),
        (
            "packed.yaml",
            format!("data:\n  key: {}\n", BASE64.encode(tokens[3].as_bytes())).into_bytes(),
        ),
        (
            "twice.txt",
            BASE64
                .encode(BASE64.encode(tokens[4].as_bytes()).as_bytes())
                .into_bytes(),
        ),
        (
            "escaped.json",
            format!("{{\"key\": \"{}\"}}", tokens[5].replace('_', "\\u005f")).into_bytes(),
        ),
    ];
    let mut steps = vec![ScriptStep::write("fine.txt", "nothing to see\n")];
    for (name, content) in &files {
        let source = env.dir().join(name);
        std::fs::write(&source, content).unwrap();
        steps.push(ScriptStep::run(&format!(
            "cp '{}' {name}",
            source.display()
        )));
    }
    steps.push(ScriptStep::write(
        &format!("named/{}.txt", tokens[0]),
        "fine\n",
    ));
    steps.push(ScriptStep::symlink("link", &tokens[1]));
    env.set_agent_script("ENG-1", Script::new().pass(steps));
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(env.repo().branches(), ["main"], "nothing was pushed");
    let comment = env.comments("ENG-1").remove(0);
    let named = files
        .iter()
        .map(|(name, _)| *name)
        .chain(["named/[redacted].txt", "link"]);
    for name in named {
        assert!(
            comment.contains(&format!("\n- {name}: ")),
            "{name} in {comment}"
        );
    }
    assert!(
        comment.contains("Push blocked: 8 sensitive file(s)"),
        "{comment}"
    );
    for (location, text) in published_texts(&env, &job.id.to_string()).await {
        assert_no_token(&tokens, &location, &text);
        for token in &tokens {
            let encoded = BASE64.encode(&token.as_bytes()[..18]);
            assert!(
                !contains(&text, encoded.as_bytes()),
                "{location} holds {token}"
            );
        }
    }
    env.finish().await;
}

/// All credentials of a run and of the service, by name.
fn canaries(env: &TestEnv) -> BTreeMap<&'static str, String> {
    let run = env.repo().runs().remove(0);
    let input = |name: &str| run.inputs[name].as_str().unwrap().to_owned();
    // The fake host stores its masked values beside the run: the secrets, and the job's own token last.
    let masks = env.repo().run_dir(run.id).unwrap().join("masks.json");
    let masks: Vec<String> = serde_json::from_slice(&std::fs::read(masks).unwrap()).unwrap();
    let mut canaries = BTreeMap::from([
        ("model key", MODEL_KEY.to_owned()),
        ("workflow token", masks.last().unwrap().clone()),
        ("run token", input("run_token")),
        ("progress token", input("run_progress_token")),
        ("ticketing key", env.vendors.linear().api_key()),
        ("access code", ACCESS_CODE.to_owned()),
        ("token secret", TOKEN_SECRET.to_owned()),
        ("chat address", env.vendors.slack_url()),
        ("App key", app_key().lines().nth(1).unwrap().to_owned()),
    ]);
    let github = std::fs::read(env.vendors.dir().join("github.json")).unwrap();
    let github: Value = serde_json::from_slice(&github).unwrap();
    let minted = github["tokens"].as_object().unwrap();
    assert!(minted.len() >= 3, "one for the service, two for the run");
    let names = ["minted token 1", "minted token 2", "minted token 3"];
    canaries.extend(names.into_iter().zip(minted.keys().cloned()));
    for (name, canary) in &canaries {
        assert!(canary.len() >= 12, "{name} is too short to search for");
    }
    canaries
}

/// Everything that a run publishes or stores where a person could read it.
async fn published_texts(env: &TestEnv, job: &str) -> Vec<(String, Vec<u8>)> {
    let mut published_texts: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |location: &str, text: String| {
        published_texts.push((location.to_owned(), text.into_bytes()))
    };
    for path in [
        "/api/log",
        "/api/outbox",
        "/api/mappings",
        "/api/dedup",
        "/api/parked",
        "/api/why/ENG-1",
        "/health",
        &format!("/api/jobs/{job}"),
        &format!("/api/jobs/{job}/steps"),
    ] {
        add(path, env.admin_get(path).await.to_string());
    }
    let repo = env.repo();
    for run in repo.runs() {
        add("the log of the run", repo.run_log(run.id));
        add("the job output", job_output(env, run.id));
    }
    add(
        "comments",
        env.vendors.linear().issue("ENG-1").comments().join("\n"),
    );
    add(
        "the ticket",
        format!("{:?}", env.vendors.linear().issue("ENG-1").snapshot()),
    );
    add("chat", format!("{:?}", env.vendors.chat().messages()));
    add("pull requests", format!("{:?}", repo.pulls()));
    for pull in repo.pulls() {
        let comments = repo.comments(pull.number);
        add("comments on a pull request", format!("{comments:?}"));
    }
    // A dispatch carries the run's tokens and its ticket, and the chat URL is itself a credential.
    for request in env.vendors.requests().all() {
        let url = match request.vendor {
            "chat" => "",
            _ => request.url.as_str(),
        };
        if !url.ends_with("/dispatches") {
            add(
                &format!("a request to {} {url}", request.vendor),
                format!("{url} {}", request.body),
            );
        }
    }
    // All pushed objects, the repository's configuration, and the store.
    let bare = find_path(env.vendors.dir(), "shop.git");
    let objects = "git cat-file --batch-all-objects --batch --buffer --unordered; cat config";
    let output = Command::new("sh")
        .args(["-c", objects])
        .current_dir(bare)
        .output()
        .unwrap();
    assert!(contains(&output.stdout, b"# Shop"), "no objects were read");
    published_texts.push(("the repository".to_owned(), output.stdout));
    for file in std::fs::read_dir(env.dir().join("data")).unwrap() {
        let file = file.unwrap().path();
        // The folder of the socket of runs.
        if file.is_dir() {
            continue;
        }
        published_texts.push((file.display().to_string(), std::fs::read(&file).unwrap()));
    }
    published_texts
}

/// Output of the run's job before the host masks it.
fn job_output(env: &TestEnv, run: u64) -> String {
    let dir = env.repo().run_dir(run).unwrap();
    let log = std::fs::read_to_string(dir.join("job-00/log")).unwrap();
    let (_, output) = log.rsplit_once("##[endgroup]").unwrap();
    assert!(output.contains("Step: clone"), "{output}");
    output.to_owned()
}

fn variables(file: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file).unwrap();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn encodings(canary: &str) -> [String; 3] {
    let bytes = canary.as_bytes();
    // The last Base64 characters depend on the text that follows.
    let base64 = BASE64.encode(bytes);
    let base64 = base64[..base64.len() - 4].to_owned();
    [canary.to_owned(), base64, HEXLOWER.encode(bytes)]
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn find_path(dir: &Path, name: &str) -> std::path::PathBuf {
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.file_name() == name {
                return entry.path();
            }
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    panic!("no {name} in {}", dir.display());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

//! Where the credentials of a run are, and where they never are.
//!
//! Every credential has a value of its own here. An agent that looks for them everywhere it can
//! reach finds its model key and no other; and none, that key included, is in anything that leaves
//! the run.

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

/// The key of the agent. It has no shape that anybody could know it by.
const MODEL_KEY: &str = "canary.of+the/model~7f3a9c55e1";

/// All that an agent may find in its environment.
const AGENT_VARIABLES: [&str; 13] = [
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

/// Looks at everything that the agent's ancestors up to the run were started with and hold open,
/// and at the event that started the run; says all of it aloud, also in other spellings. Above the
/// run is the host, whose processes are not ours to keep secrets from.
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
async fn an_agent_finds_its_model_key_and_nothing_it_reports_holds_even_that() {
    let world = TestEnv::start().await;
    world.repo().set_secret("ANTHROPIC_API_KEY", MODEL_KEY);
    let environment = world.dir().join("agent-environment");
    let found = world.dir().join("agent-found");
    let steps = [
        ScriptStep::print_env(&environment),
        // Once for us, and once into the log of the run.
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
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);

    let canaries = canaries(&world);
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
    if we_are_root() {
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

    for (place, text) in places(&world, &job.id.to_string()).await {
        for (name, canary) in &canaries {
            for spelling in spellings(canary) {
                let holds = contains(&text, spelling.as_bytes());
                assert!(!holds, "{place} holds the {name} as {spelling}");
            }
        }
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_holds_a_credential_of_the_run_blocks_the_push() {
    let world = TestEnv::start().await;
    world.repo().set_secret("ANTHROPIC_API_KEY", MODEL_KEY);
    let packed = BASE64.encode(MODEL_KEY.as_bytes());
    let steps = [
        ScriptStep::write("docs/plain.txt", &format!("see {MODEL_KEY}\n")),
        ScriptStep::write("docs/packed.txt", &format!("see {packed}\n")),
        ScriptStep::write("docs/fine.txt", "nothing to see\n"),
        ScriptStep::symlink("link", MODEL_KEY),
    ];
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(world.repo().branches(), ["main"]);
    let comments = world.vendors.linear().issue("ENG-1").comments();
    for path in ["docs/plain.txt", "docs/packed.txt", "link"] {
        let line = format!("{path}: tokens and auth files (credential of this run)");
        assert!(comments[0].contains(&line), "{line} in {comments:?}");
    }
    assert!(!comments[0].contains("fine.txt"), "{comments:?}");
    for (place, text) in places(&world, &job.id.to_string()).await {
        for spelling in spellings(MODEL_KEY) {
            assert!(!contains(&text, spelling.as_bytes()), "{place}: {spelling}");
        }
    }
    world.finish().await;
}

/// Tokens of published formats that are no credential of ours. None stands in this file, so that nobody
/// takes it for one.
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

/// No part of a token that would be of use stands in the text.
fn assert_without(tokens: &[String], place: &str, text: &[u8]) {
    for token in tokens {
        let start = token.as_bytes()[..token.len().min(24)].to_vec();
        assert!(!contains(text, &start), "{place} holds {token}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_guard_would_block_is_in_nothing_that_people_read() {
    let world = TestEnv::with_mapping(planning_mapping()).await;
    let tokens = foreign_tokens();
    let said = tokens.join(" and ");
    let key = ["-----BEGIN ", "PRIVATE KEY-----"].concat();
    let body = "MIIEpAIBAAKCAQEAq7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoWb8Rn";
    let shell = format!("printf '%s\\n' '{said}' '{key}' {body} {body}");
    let plan = format!("## Steps\n\nUse {said}.");
    let planning = [
        ScriptStep::write("ai-output/comments/01-plan.md", &plan),
        ScriptStep::run(&shell),
        ScriptStep::message(&format!("I will use {said}.")),
    ];
    let working = [
        ScriptStep::run(&shell),
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message(&format!("I used {said}.")),
    ];
    let script = Script::new()
        .pass_if_prompt_contains(PLANNING_PROMPT, planning)
        .pass_if_prompt_contains(IMPLEMENTATION_PROMPT, working);
    world.set_agent_script("ENG-1", script);
    world.create_labelled_issue("ENG-1", "Add the feature");
    let jobs = wait_for_runs(&world, "ENG-1", 2).await;
    assert!(jobs.iter().all(|job| job.state == JobState::Completed));
    let text = world.repo().pulls().remove(0).body;
    assert!(text.contains("I used [redacted] and [redacted]"), "{text}");
    let comments = world.comments("ENG-1").join("\n");
    assert!(comments.contains("Use [redacted] and"), "{comments}");
    for job in jobs {
        for (place, text) in places(&world, &job.id.to_string()).await {
            assert_without(&tokens, &place, &text);
            assert_without(&[body.to_owned()], &place, &text);
        }
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_a_title_or_a_reason_goes_nowhere() {
    let world = TestEnv::start().await;
    let tokens = foreign_tokens();
    let failing = Script::new().pass([ScriptStep::api_error(400, &format!("bad {}", tokens[0]))]);
    world.set_agent_script("ENG-2", failing);
    for (key, token) in [("ENG-1", &tokens[1]), ("ENG-2", &tokens[0])] {
        let issue = world.vendors.linear().issue(key);
        issue
            .title(&format!("Rotate {token} now"))
            .describe(&format!("The old one is {}.", tokens[2]))
            .add_label("Agent-Implement");
    }
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(job.branch, "agent-implement/eng-1-rotate-redacted-now");
    let pull = world.repo().pulls().remove(0);
    assert_eq!(pull.title, "ENG-1: Rotate [redacted] now");
    let failed = world.wait_for_job_end("ENG-2").await;
    assert_eq!(failed.state.status(), "failed");
    let messages = format!("{:?}", world.vendors.chat().messages());
    assert!(messages.contains("Rotate [redacted] now"), "{messages}");
    for job in [job, failed] {
        for (place, text) in places(&world, &job.id.to_string()).await {
            // The ticket itself is its author's; what the run is to do stands in our store.
            if place != "the ticket" && !place.ends_with(".redb") {
                assert_without(&tokens, &place, &text);
            }
        }
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finding_that_quotes_a_secret_is_shown_without_it() {
    let world = TestEnv::start().await;
    let tokens = foreign_tokens();
    let said = tokens.join(" and ");
    let finding = |problem: &str| {
        ScriptedReview::block(&format!("Remove {}", tokens[0]), "a.ts:1", problem, &said)
    };
    let script = (0..9).fold(
        Script::new().pass([
            ScriptStep::write("feature.txt", "done\n"),
            ScriptStep::message("Done."),
        ]),
        |script, _| script.review(finding(&format!("It holds {said}."))),
    );
    world.set_agent_script("ENG-1", script);
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    let JobState::ReviewFailed { unresolved } = &job.state else {
        panic!("{:?}", job.state)
    };
    assert!(
        unresolved[0].contains("Remove [redacted]"),
        "{unresolved:?}"
    );
    let pull = world.repo().pulls().remove(0);
    let comments = format!("{:?}", world.repo().comments(pull.number));
    assert!(comments.contains("It holds [redacted] and"), "{comments}");
    for (place, text) in places(&world, &job.id.to_string()).await {
        assert_without(&tokens, &place, &text);
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_any_disguise_blocks_the_push_and_goes_nowhere() {
    let world = TestEnv::start().await;
    let tokens = foreign_tokens();
    let wide = |text: &str| {
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
                wide(&format!("{filler}{}\n", tokens[1])),
            ]
            .concat(),
        ),
        (
            "wide-unmarked.txt",
            wide(&format!("{filler}{}\n", tokens[2])),
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
        let source = world.dir().join(name);
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
    world.set_agent_script("ENG-1", Script::new().pass(steps));
    world.create_labelled_issue("ENG-1", "Add the feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state.status(), "failed");
    assert_eq!(world.repo().branches(), ["main"], "nothing was pushed");
    let comment = world.comments("ENG-1").remove(0);
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
    for (place, text) in places(&world, &job.id.to_string()).await {
        assert_without(&tokens, &place, &text);
        for token in &tokens {
            let packed = BASE64.encode(&token.as_bytes()[..18]);
            assert!(!contains(&text, packed.as_bytes()), "{place} holds {token}");
        }
    }
    world.finish().await;
}

/// Every credential of a run and of the service, by name.
fn canaries(world: &TestEnv) -> BTreeMap<&'static str, String> {
    let run = world.repo().runs().remove(0);
    let input = |name: &str| run.inputs[name].as_str().unwrap().to_owned();
    // The host keeps what it masks beside the run: the secrets, and the job's own token last.
    let masks = world.repo().run_dir(run.id).unwrap().join("masks.json");
    let masks: Vec<String> = serde_json::from_slice(&std::fs::read(masks).unwrap()).unwrap();
    let mut canaries = BTreeMap::from([
        ("model key", MODEL_KEY.to_owned()),
        ("workflow token", masks.last().unwrap().clone()),
        ("run token", input("run_token")),
        ("progress token", input("run_progress_token")),
        ("ticketing key", world.vendors.linear().api_key()),
        ("access code", ACCESS_CODE.to_owned()),
        ("token secret", TOKEN_SECRET.to_owned()),
        ("chat address", world.vendors.slack_url()),
        ("App key", app_key().lines().nth(1).unwrap().to_owned()),
    ]);
    let github = std::fs::read(world.vendors.dir().join("github.json")).unwrap();
    let github: Value = serde_json::from_slice(&github).unwrap();
    let minted = github["tokens"].as_object().unwrap();
    assert!(minted.len() >= 3, "one for the service, two for the run");
    let names = ["minted token 1", "minted token 2", "minted token 3"];
    canaries.extend(names.into_iter().zip(minted.keys().cloned()));
    for (name, canary) in &canaries {
        assert!(canary.len() >= 12, "{name} is too short to be looked for");
    }
    canaries
}

/// Everything that a run leaves behind where somebody could read it.
async fn places(world: &TestEnv, job: &str) -> Vec<(String, Vec<u8>)> {
    let mut places: Vec<(String, Vec<u8>)> = Vec::new();
    let mut put = |place: &str, text: String| places.push((place.to_owned(), text.into_bytes()));
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
        put(path, world.admin_get(path).await.to_string());
    }
    let repo = world.repo();
    for run in repo.runs() {
        put("the log of the run", repo.run_log(run.id));
        put("what the run said", said(world, run.id));
    }
    put(
        "comments",
        world.vendors.linear().issue("ENG-1").comments().join("\n"),
    );
    put(
        "the ticket",
        format!("{:?}", world.vendors.linear().issue("ENG-1").snapshot()),
    );
    put("chat", format!("{:?}", world.vendors.chat().messages()));
    put("pull requests", format!("{:?}", repo.pulls()));
    for pull in repo.pulls() {
        let comments = repo.comments(pull.number);
        put("comments on a pull request", format!("{comments:?}"));
    }
    // A dispatch carries a run's tokens and its ticket to the run; the chat's address is its credential.
    for request in world.vendors.requests().all() {
        let url = match request.vendor {
            "chat" => "",
            _ => request.url.as_str(),
        };
        if !url.ends_with("/dispatches") {
            put(
                &format!("a request to {} {url}", request.vendor),
                format!("{url} {}", request.body),
            );
        }
    }
    // Every object that was ever pushed, the configuration of the repository, and the store.
    let bare = find(world.vendors.dir(), "shop.git");
    let objects = "git cat-file --batch-all-objects --batch --buffer --unordered; cat config";
    let output = Command::new("sh")
        .args(["-c", objects])
        .current_dir(bare)
        .output()
        .unwrap();
    assert!(contains(&output.stdout, b"# Shop"), "no objects were read");
    places.push(("the repository".to_owned(), output.stdout));
    for file in std::fs::read_dir(world.dir().join("data")).unwrap() {
        let file = file.unwrap().path();
        places.push((file.display().to_string(), std::fs::read(&file).unwrap()));
    }
    places
}

/// What a run itself printed, before its host masked anything.
fn said(world: &TestEnv, run: u64) -> String {
    let dir = world.repo().run_dir(run).unwrap();
    let log = std::fs::read_to_string(dir.join("job-00/log")).unwrap();
    let (_, said) = log.rsplit_once("##[endgroup]").unwrap();
    assert!(said.contains("step clone"), "{said}");
    said.to_owned()
}

fn variables(file: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file).unwrap();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn spellings(canary: &str) -> [String; 3] {
    let bytes = canary.as_bytes();
    // The end of a packed text depends on what follows.
    let packed = BASE64.encode(bytes);
    let packed = packed[..packed.len() - 4].to_owned();
    [canary.to_owned(), packed, HEXLOWER.encode(bytes)]
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn find(dir: &Path, name: &str) -> std::path::PathBuf {
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

fn we_are_root() -> bool {
    rustix::process::geteuid().is_root()
}

//! Context of the ticket, questions of the agent, and runs that continue after an answer.

use serde_json::{Value, json};

use super::{APPROVE, BRANCH, RunFixture, TicketStub};
use domain::report_artifact::FILE;
use domain::run_config::RunInputs;

const QUESTIONS: &str = r#"{"questions":[{"text":"Which greeting?","choices":["hi","hello"],"default":"hi"},{"text":"Is it the-model-key?"}]}"#;

/// Returns a script of the agent that makes changes and asks.
fn asks(changes: &str) -> String {
    format!("{changes}\necho '{QUESTIONS}' > $AGENT_IMPLEMENT_SCRATCH/question.json")
}

fn with_option(mut inputs: RunInputs, options: &Value) -> RunInputs {
    inputs.insert("options".into(), options.to_string());
    inputs
}

impl RunFixture {
    pub(super) fn prompt(&self, number: u32) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("prompt-{number}"))).unwrap()
    }

    fn set_context(&self, context: Value) {
        self.ticket.lock().unwrap().context = context;
    }

    /// Serves the context of a run that continues after an answer.
    fn answer_with_patch(&self, patch: &Value) {
        let exchange = json!({"phase": "implementation", "questions": [{"text": "Which greeting?"}],
            "answer": "Say hello", "answeredBy": "Ada", "source": "comment", "at": "2026-11-24T10:00:00Z"});
        self.set_context(json!({"exchanges": [exchange], "patch": patch}));
    }

    /// Runs until the agent asks, and returns the patch of its work.
    async fn patch_of(&self, changes: &str) -> Value {
        let agent = self.agent(&asks(changes), APPROVE);
        assert!(self.run(&agent, self.inputs()).await);
        let result = self.result();
        assert_eq!(result["failureCode"], "NEEDS_INPUT", "{result}");
        result["patch"].clone()
    }
}

#[tokio::test]
async fn a_question_ends_the_run_and_the_next_run_continues_its_work() {
    let fixture =
        RunFixture::new("echo a > a.txt; echo b > b.txt; mkdir bin; printf 'x\\0y' > bin/c").await;
    let changes = "mkdir new; echo hello > new/hello.txt; echo more >> a.txt; rm b.txt; printf 'x\\0z' > bin/c; \
                   chmod +x a.txt; ln -s a.txt link";
    let agent = fixture.agent(&asks(changes), APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    let result = fixture.result();
    assert_eq!(result["outcome"], "failure");
    assert_eq!(result["failureCode"], "NEEDS_INPUT");
    assert_eq!(
        result["questions"],
        json!([
            {"text": "Which greeting?", "choices": ["hi", "hello"], "default": "hi"},
            {"text": "Is it [redacted]?", "choices": [], "default": null},
        ])
    );
    assert_eq!(fixture.git("git branch --list"), "* main");
    assert_eq!(fixture.bodies("/api/token").len(), 1, "no token for a push");
    assert!(
        fixture
            .bodies("/api/status")
            .iter()
            .all(|event| event["event"] != "error")
    );
    let prompt = fixture.prompt(1);
    for expected in ["/scratch/question.json`", "at most 3 questions"] {
        assert!(prompt.contains(expected), "{prompt}");
    }
    let steps = fixture.steps();
    for (id, status) in [
        ("feedback-loop", "passed"),
        ("implement.1", "passed"),
        ("push", "skipped"),
    ] {
        assert!(steps.contains(&(id.into(), status.into())), "{steps:?}");
    }

    fixture.answer_with_patch(&result["patch"]);
    let agent = fixture.agent(
        "test -e new/hello.txt; git diff --cached --quiet && exit 9 || true",
        APPROVE,
    );
    let inputs = with_option(fixture.inputs(), &json!({"mayNotAsk": true}));
    assert!(fixture.run(&agent, inputs).await, "{}", fixture.result());
    assert_eq!(fixture.result()["outcome"], "success");
    assert_eq!(fixture.result()["patchDropped"], Value::Null);
    assert_eq!(
        fixture.git(&format!("git ls-tree -r {BRANCH} | cut -c1-6,53-")),
        "100755\ta.txt\n100644\tbin/c\n120000\tlink\n100644\tnew/hello.txt"
    );
    let prompt = fixture.prompt(2);
    for expected in [
        "Ada, 2026-11-24T10:00:00.000Z:\n\nSay hello",
        "No more questions are possible",
        "Continue it.",
    ] {
        assert!(prompt.contains(expected), "{prompt}");
    }
    assert_eq!(fixture.pulls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn starts_over_if_the_work_does_not_apply() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let patch = fixture.patch_of("echo b > a.txt").await;
    fixture.answer_with_patch(&patch);
    fixture.git(
        "cd .. && git clone -q r.git w && cd w && git config user.email a@b && git config user.name n && \
         echo other > a.txt && git commit -qam other && git push -q",
    );
    let agent = fixture.agent("echo hello > hello.txt", APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    assert_eq!(fixture.result()["patchDropped"], true);
    assert_eq!(fixture.git(&format!("git show {BRANCH}:a.txt")), "other");
    assert!(fixture.prompt(2).contains("Start over."));

    let fixture = RunFixture::new("echo a > a.txt").await;
    fixture.set_context(json!({"patchLeftOut": true}));
    let agent = fixture.agent("echo hello > hello.txt", APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    assert_eq!(fixture.result()["patchDropped"], true);
}

#[tokio::test]
async fn a_hostile_patch_is_dropped() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let new_file = |path: &str, mode: &str, line: &str| {
        format!(
            "diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n"
        )
    };
    let link = new_file("out", "120000", "/etc") + "\\ No newline at end of file\n";
    let through_link = format!("{link}{}", new_file("out/file", "100644", "x"));
    let long = new_file("long", "100644", &"x".repeat(300_000));
    let patches = [
        link,
        through_link,
        long,
        new_file(".git/hooks/pre-commit", "100755", "x"),
        new_file(".GIT/config", "100644", "x"),
        new_file("../outside", "100644", "x"),
        new_file(".env", "100644", "KEY=1"),
        new_file("key", "100644", "the-model-key"),
        "not a patch".to_owned(),
        String::new(),
    ];
    for patch in patches {
        fixture.answer_with_patch(&json!(patch));
        let agent = fixture.agent("ls -A > ls.txt; date +%N > hello.txt", APPROVE);
        assert!(
            fixture.run(&agent, fixture.inputs()).await,
            "{}",
            fixture.result()
        );
        let start = &patch[..patch.len().min(200)];
        assert_eq!(fixture.result()["patchDropped"], true, "{start}");
        let pushed = fixture.git(&format!("git show {BRANCH}:ls.txt"));
        let mut names: Vec<&str> = pushed.lines().filter(|name| *name != "hello.txt").collect();
        names.sort_unstable();
        assert_eq!(names, [".git", "a.txt", "ls.txt"], "{start}");
        fixture.git(&format!("git branch -D {BRANCH}"));
        fixture.pulls.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn work_that_cannot_be_continued_is_not_kept() {
    let fixture = RunFixture::new("echo a > a.txt; printf 'gr\\xfc\\xdfe\\n' > latin.txt").await;
    for changes in [
        "true",
        "echo 'KEY=1' > .env; echo hello > hello.txt",
        "head -c 400000 /dev/urandom | base64 > large.txt; echo hello > hello.txt",
        "printf 'gr\\xfcn\\n' > latin.txt",
    ] {
        assert_eq!(fixture.patch_of(changes).await, Value::Null, "{changes}");
        assert_eq!(fixture.result()["questions"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_run_that_may_not_ask_completes() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent(&asks("echo hello > hello.txt"), APPROVE);
    let inputs = with_option(fixture.inputs(), &json!({"mayNotAsk": true}));
    assert!(fixture.run(&agent, inputs).await);
    let result = fixture.result();
    assert_eq!(
        (&result["outcome"], &result["questions"]),
        (&json!("success"), &Value::Null)
    );
    assert!(
        fixture
            .prompt(1)
            .contains("Nobody can answer questions. Decide")
    );

    // A file without a question.
    let fixture = RunFixture::new("echo a > a.txt").await;
    let agent = fixture.agent(
        "echo x >> hello.txt; echo '{}' > $AGENT_IMPLEMENT_SCRATCH/question.json",
        APPROVE,
    );
    assert!(fixture.run(&agent, fixture.inputs()).await);
    assert_eq!(fixture.result()["outcome"], "success");
}

#[tokio::test]
async fn a_question_in_a_later_pass_ends_the_run_too() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let script = format!(
        "if [ -e hello.txt ]; then {}\nfi; echo x >> hello.txt",
        asks("true")
    );
    let agent = fixture.agent(&script, super::A_RACE);
    let mut inputs = fixture.inputs();
    inputs.insert("session_mode".into(), "hybrid".into());
    assert!(fixture.run(&agent, inputs).await, "and keeps no session");
    let result = fixture.result();
    assert_eq!(result["failureCode"], "NEEDS_INPUT");
    assert!(
        result["patch"].as_str().unwrap().contains("+x\n+x\n"),
        "{result}"
    );
}

#[tokio::test]
async fn a_planner_asks_and_gets_what_people_wrote() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    fixture.set_context(json!({
        "comments": [{"author": "Ada", "at": "2026-11-24T10:00:00Z", "body": "In blue, please"}],
        "leftOutComments": 2,
    }));
    let mut inputs = fixture.inputs();
    inputs.insert("phase".into(), "planning".into());
    inputs.insert("instruction".into(), "Plan without a new table".into());
    let agent = fixture.agent(&asks("echo plan > ai-output/comments/01.md"), APPROVE);
    assert!(fixture.run(&agent, inputs).await);
    let result = fixture.result();
    assert_eq!(result["failureCode"], "NEEDS_INPUT");
    assert_eq!(
        (&result["patch"], &result["comments"]),
        (&Value::Null, &json!([]))
    );
    let prompt = fixture.prompt(1);
    for expected in [
        "of=\"comment\">\nAda, 2026-11-24T10:00:00.000Z:\n\nIn blue, please\n",
        "2 older comment(s) are left out",
        "of=\"request of an operator\">\nPlan without a new table\n",
        "`## Files`",
        "question.json",
    ] {
        assert!(prompt.contains(expected), "{expected}: {prompt}");
    }
}

#[tokio::test]
async fn attachments_are_beside_the_work_tree() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let attachment = |id: &str, title: &str| json!({"id": id, "title": title});
    *fixture.ticket.lock().unwrap() = TicketStub {
        context: json!({
            "attachments": [attachment("1", "../Mock up.exe"), attachment("2", "notes.md"), attachment("3", "a.png"),
                attachment("4", "missing.gif"), attachment("5", "long.txt"), attachment("6", "sixth.txt")],
            "leftOutAttachments": [{"title": "video.mov", "reason": "it is larger than 5 MiB"}],
        }),
        attachments: vec![
            ("1", "GIF89a of the page".into()),
            ("2", "# Notes\n".into()),
            ("3", "PK\u{3}\u{4}\0".into()),
            ("5", "x".repeat((5 << 20) + 1)),
            ("6", "never asked for".into()),
        ],
    };
    let script = "cd $AGENT_IMPLEMENT_SCRATCH; ls attachments > $OLDPWD/seen.txt; cat attachments/* >> $OLDPWD/seen.txt";
    let agent = fixture.agent(script, APPROVE);
    assert!(fixture.run(&agent, fixture.inputs()).await);
    assert_eq!(
        fixture.git(&format!("git show {BRANCH}:seen.txt")),
        "01-Mock-up.gif\n02-notes.txt\nGIF89a of the page# Notes"
    );
    let prompt = fixture.prompt(1);
    for expected in [
        "/scratch/attachments/01-Mock-up.gif`: ../Mock up.exe\n",
        "- a.png: it is neither an image, a PDF nor text\n",
        "- missing.gif: it cannot be fetched",
        "- long.txt: it cannot be fetched",
        "- sixth.txt: a run gets 5 attachments\n",
        "- video.mov: it is larger than 5 MiB\n",
    ] {
        assert!(prompt.contains(expected), "{expected}: {prompt}");
    }
    assert!(fixture.prompt(2).contains("01-Mock-up.gif"), "the review");
}

#[tokio::test]
async fn a_run_without_an_address_gets_the_context_and_reports_questions() {
    let fixture = RunFixture::new("echo a > a.txt").await;
    let context = json!({
        "comments": [{"author": "Ada", "at": "2026-11-24T10:00:00Z", "body": "In blue, please"}],
        "attachments": [{"id": "1", "title": "mock.png"}],
    });
    let options = json!({"context": context});
    let mut inputs = with_option(fixture.inputs(), &options);
    for name in ["callback_url", "run_progress_token"] {
        inputs.insert(name.into(), String::new());
    }
    let agent = fixture.agent(&asks("echo hello > hello.txt"), APPROVE);
    let mut environment = fixture.environment(&agent, inputs);
    environment.workspace = Some(fixture.dir.path().to_owned());
    assert!(fixture.run_in(environment).await);
    let report = std::fs::read_to_string(fixture.dir.path().join(FILE)).unwrap();
    let signed: Value = serde_json::from_str(&report).unwrap();
    let payload: Value = serde_json::from_str(signed["payload"].as_str().unwrap()).unwrap();
    let result = &payload["result"];
    assert_eq!(result["failureCode"], "NEEDS_INPUT", "{payload}");
    assert_eq!(result["questions"][0]["text"], "Which greeting?");
    assert!(result["patch"].as_str().unwrap().contains("+hello\n"));
    let prompt = fixture.prompt(1);
    assert!(prompt.contains("In blue, please"), "{prompt}");
    assert!(
        prompt.contains("- mock.png: this run cannot reach the service"),
        "{prompt}"
    );
}

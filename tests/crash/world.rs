//! A town of stand-in vendors on both ticketing systems, and the service that is killed in it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fake_vendors::scripted_agent::{Script, Step};
use fake_vendors::{Dial, HookDial, Repo, Town, TownOptions, Vendor};
use reqwest::Method;
use serde_json::{Value, json};

use crate::program::{Mortal, PROGRAM, command};
use crate::tickets::{self, Ticket};

pub const HOOK_SECRET: &str = "what the senders of webhooks know";
const TOKEN_SECRET: &str = "0123456789abcdef0123456789abcdef";

const WORKFLOW: &str = include_str!("../../templates/workflows/agent-implement.yml");
const PLANNING: &str = include_str!("../../templates/workflows/agent-plan.yml");

/// How long may any one thing take that must happen?
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A mapping that no ticket has. Operators change it all the time.
pub const IDLE: &str = "IDLE";

/// What was seen so far.
#[derive(Default)]
pub struct Record {
    pub tickets: Vec<Ticket>,
    pub kills: usize,
    /// Job and step of every report that was answered with 2xx.
    pub reports: Vec<(String, String)>,
    /// Jobs whose result was answered.
    pub results: Vec<String>,
    pub backups: Vec<Copy>,
    /// The last cap that an operator asked for, and those that were acknowledged.
    pub asked: u32,
    pub changes: Vec<u32>,
    /// What must not have happened.
    pub faults: Vec<String>,
}

/// An answer to a request for a backup.
pub struct Copy {
    pub file: PathBuf,
    /// Whether it was answered to its end.
    pub is_whole: bool,
    /// How many reports had been acknowledged before it was asked for.
    pub reports: usize,
}

pub struct World {
    pub dir: PathBuf,
    pub town: Town,
    pub seed: u64,
    port: u16,
    record: Arc<Mutex<Record>>,
}

impl World {
    /// A town, a service that knows its projects and is stopped again, and nothing filed yet.
    pub async fn found(dir: &Path, seed: u64) -> Self {
        // Fails only when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = dir.canonicalize().unwrap();
        let mut options = TownOptions::new(dir.join("town"), PROGRAM);
        options.seed = seed;
        let world = Self {
            town: Town::start(options).await.unwrap(),
            port: free_port(),
            record: Arc::default(),
            dir,
            seed,
        };
        world.furnish();
        let service = world.start(None);
        for mapping in mappings() {
            let (status, body) = world.ask(Method::POST, "/api/mappings", mapping).await;
            assert_eq!(status, 200, "{body}");
        }
        drop(service);
        world
    }

    fn furnish(&self) {
        let town = &self.town;
        town.linear().set_quota(1_000_000);
        town.github().set_quota(1_000_000);
        let workflows = [
            (".github/workflows/agent-implement.yml", WORKFLOW),
            (".github/workflows/agent-plan.yml", PLANNING),
        ];
        let real = self.repo("shop");
        let readme = ("README.md", "# Shop\n");
        real.seed(&[workflows[0], workflows[1], readme], "Begin")
            .unwrap();
        let puppet = puppet_workflow(&self.gates());
        let puppet = (".github/workflows/agent-implement.yml", puppet.as_str());
        self.repo("puppets")
            .seed(&[puppet, readme], "Begin")
            .unwrap();
        for name in ["shop", "puppets"] {
            let repo = self.repo(name);
            repo.let_actions_open_pulls();
            repo.collaborator("mia", "maintain")
                .secret("ANTHROPIC_API_KEY", "sk-ant-sandbox-only");
            repo.hook(&self.url("/api/repo-host/webhook"), HOOK_SECRET);
        }
        std::fs::create_dir_all(self.gates()).unwrap();
        std::fs::create_dir_all(self.dir.join("backups")).unwrap();
        let done = [Step::write("feature.txt", "done\n"), Step::say("Done.")];
        let script = Script::new().pass(done);
        script.save(&town.scripts(), "default").unwrap();
        tickets::furnish(town);
        let hooks = HookDial {
            twice: 0.15,
            insistent: true,
            ..HookDial::default()
        };
        town.github().set_hook_dial(hooks);
        town.linear().set_hook_dial(hooks);
        town.jira().set_hook_dial(hooks);
        let hook = self.url("/api/ticketing-a/webhook");
        town.linear().send_events_to(&hook, HOOK_SECRET);
        let hook = self.url("/api/ticketing-b/webhook");
        town.jira().send_events_to(&hook, HOOK_SECRET);
    }

    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    /// What must not have happened.
    pub fn blame(&self, fault: String) {
        self.record().faults.push(fault);
    }

    pub fn repo(&self, name: &str) -> Repo {
        self.town.github().repo("acme", name)
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where the runs that this test plays wait for their end, each by its dispatch id.
    pub fn gates(&self) -> PathBuf {
        self.dir.join("gates")
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join("service.log")
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Lets every vendor misbehave by chance, or (zero) no more.
    pub fn misbehave(&self, chance: f64) {
        let dial = Dial {
            latency: Duration::ZERO,
            error: chance,
            drop_before: chance,
            drop_after: chance,
        };
        for vendor in [Vendor::Linear, Vendor::Jira, Vendor::GitHub, Vendor::Chat] {
            self.town.faults(vendor).clear();
            self.town.faults(vendor).set(dial.clone());
        }
    }

    /// Starts the service, to die at a visit of a place if one is named.
    pub fn start(&self, visit: Option<&str>) -> Mortal {
        let mut log = self.opened_log();
        writeln!(log, "== started, to die at {visit:?}").unwrap();
        let mut serve = command(&["serve", "--quick", "--log-level=info"]);
        serve.args(self.flags());
        if let Some(visit) = visit {
            serve.args(["--crash-at", visit]);
        }
        serve.stdout(log.try_clone().unwrap()).stderr(log);
        Mortal(serve.spawn().unwrap())
    }

    fn opened_log(&self) -> File {
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(self.log()).unwrap()
    }

    fn flags(&self) -> Vec<String> {
        let town = &self.town;
        let flags = [
            ("--port", self.port.to_string()),
            ("--data-dir", self.data().display().to_string()),
            ("--poll-interval-ms", "1000".to_owned()),
            ("--runner-token-secret", TOKEN_SECRET.to_owned()),
            ("--runner-callback-base-url", self.url("")),
            ("--linear-api-key", town.linear().key()),
            ("--linear-api-url", town.linear_url()),
            ("--linear-webhook-secret", HOOK_SECRET.to_owned()),
            ("--jira-site-url", town.jira_url()),
            ("--jira-email", town.jira().email().to_owned()),
            ("--jira-api-token", town.jira().token().to_owned()),
            ("--jira-webhook-secret", HOOK_SECRET.to_owned()),
            ("--github-token", town.github().token().to_owned()),
            ("--github-api-url", town.github_api_url()),
            ("--scm-webhook-secret", HOOK_SECRET.to_owned()),
            ("--notify-webhook-url", town.chat_url()),
        ];
        let pair = |(flag, value): (&str, String)| [flag.to_owned(), value];
        flags.into_iter().flat_map(pair).collect()
    }

    /// A client of the control socket. Nothing is kept alive: who answers dies too often.
    pub fn control(&self) -> reqwest::Client {
        let client = reqwest::Client::builder().unix_socket(self.data().join("control.sock"));
        let client = client.pool_max_idle_per_host(0);
        client.timeout(Duration::from_secs(20)).build().unwrap()
    }

    /// Asks the control socket until somebody answers.
    pub async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let began = Instant::now();
        loop {
            if let Some(answer) = self.try_asking(method.clone(), path, &body).await {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "nobody answers {path}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// None when nobody answered to the end.
    pub async fn try_asking(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let mut request = self
            .control()
            .request(method, format!("http://control{path}"));
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        let text = answer.text().await.ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// What is owed and what was given up.
    pub async fn outbox(&self) -> (usize, Value) {
        let (_, shown) = self.ask(Method::GET, "/api/outbox", Value::Null).await;
        let pending = shown["pending"].as_array().map_or(usize::MAX, Vec::len);
        (pending, shown["dead"].clone())
    }
}

/// A port that no client is given by chance, so that it is free again after each kill.
fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(15_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The real workflow's head, and a job that waits until its part has been played.
fn puppet_workflow(gates: &Path) -> String {
    let (head, _) = WORKFLOW.split_once("\njobs:\n").unwrap();
    let gate = gates.display();
    format!(
        "{head}\njobs:\n  implement:\n    runs-on: ubuntu-latest\n    steps:\n      - name: Wait\n        \
         run: 'while [ ! -e \"$GATE\" ]; do sleep 0.2; done'\n        env:\n          \
         GATE: {gate}/${{{{ inputs.dispatch_id }}}}\n"
    )
}

fn mappings() -> Vec<Value> {
    let mut all = Vec::new();
    for (team, repo, is_planned) in [
        ("ENG", "shop", false),
        ("PLAN", "shop", true),
        ("PUP", "puppets", false),
        (IDLE, "shop", false),
        ("OPS", "shop", false),
        ("WAY", "shop", true),
        ("SIM", "puppets", false),
    ] {
        let mut mapping = json!({
            "teamKey": team, "owner": "acme", "repo": repo, "defaultBranch": "main",
            "ticketingProvider": "A", "maxInProgressAiIssues": if repo == "puppets" { 6 } else { 2 },
        });
        if is_planned {
            mapping["planningEnabled"] = json!(true);
            mapping["planningWorkflowFile"] = json!("agent-plan.yml");
        }
        if ["OPS", "WAY", "SIM"].contains(&team) {
            mapping["ticketingProvider"] = json!("B");
            mapping["ticketingConfig"] =
                json!({"kind": "B", "jql": format!("project = {team}"), "repoFieldValue": team});
        }
        all.push(mapping);
    }
    all
}

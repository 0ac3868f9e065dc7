//! A whole world for a story: the town of stand-in vendors, the engine, HTTP, and real CI runs.
//!
//! A story ends with [`World::end`], which fails when anything is left undelivered, given up or
//! running: what nobody looked at is a fault, too.

use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use agent_implement::app::{App, Pace, Setting};
use agent_implement::config::Config;
use agent_implement::domain::ids::IssueId;
use agent_implement::domain::job::Job;
use agent_implement::domain::mapping::{Input, Mapping, PLAN_WORKFLOW};
use agent_implement::domain::time::Timestamp;
use agent_implement::flow::{self, Stop};
use agent_implement::http;
use agent_implement::sandbox::scripted_agent::{Script, Step};
use agent_implement::sandbox::{Dial, Repo, Town, TownOptions, Vendor};
use agent_implement::store::{Store, jobs, mappings, outbox};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api::{ACCESS_CODE, TOKEN_SECRET, config};
use crate::contracts;

/// The workflows that target repositories get.
pub const WORKFLOW: &str = include_str!("../../templates/workflows/agent-implement.yml");
pub const PLANNING: &str = include_str!("../../templates/workflows/agent-plan.yml");

/// How long may any one thing in a story take?
const PATIENCE: Duration = Duration::from_secs(300);

/// The App's key that the town accepts and the service signs with. For tests only.
pub fn app_key() -> String {
    let base64 = include_str!("../../src/keys/testdata/rsa-test-key.pkcs8.base64");
    let label = "PRIVATE KEY";
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        base64.trim()
    )
}

pub struct World {
    pub town: Town,
    pub app: App,
    pub address: String,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    dir: tempfile::TempDir,
}

impl World {
    /// A town with team `ENG` mapped to `acme/shop`, and the engine alive.
    pub async fn start() -> Self {
        Self::mapped([mapping()]).await
    }

    /// The same, with this mapping.
    pub async fn with(mapping: Mapping) -> Self {
        Self::mapped([mapping]).await
    }

    /// The same with other mappings. Jira has project `OPS`.
    pub async fn mapped(given: impl IntoIterator<Item = Mapping>) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let dir = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_agent-implement");
        let mut options = TownOptions::new(dir.path().join("town"), program);
        options.app_key_pem = Some(app_key());
        let town = Town::start(options).await.unwrap();
        town.linear().team("ENG", "Engineering");
        town.jira().project("OPS", "Operations");
        let files = [
            ("README.md", "# Shop\n"),
            (".github/workflows/agent-implement.yml", WORKFLOW),
            (".github/workflows/agent-plan.yml", PLANNING),
        ];
        town.github()
            .repo("acme", "shop")
            .seed(&files, "Begin")
            .unwrap();
        town.github()
            .repo("acme", "shop")
            .secret("ANTHROPIC_API_KEY", "sk-ant-canary-of-the-model");
        default_script().save(&town.scripts(), "default").unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let store = Store::open(&dir.path().join("data")).unwrap();
        let setting = Setting {
            pace: quick(),
            ..Setting::default()
        };
        let app = App::new(configured(&town, &address), store, setting).unwrap();
        for mapping in given {
            let put = app.store.write(move |tx| mappings::put(tx, &mapping));
            put.await.unwrap();
        }
        let (stop, signal) = Stop::new();
        let told = signal.clone();
        let served = http::serve(app.clone(), listener, async move { told.given().await });
        let tasks = vec![
            tokio::spawn(flow::run(app.clone(), signal)),
            tokio::spawn(async { served.await.unwrap() }),
        ];
        Self {
            town,
            app,
            address,
            stop,
            tasks,
            dir,
        }
    }

    pub fn repo(&self) -> Repo {
        self.town.github().repo("acme", "shop")
    }

    /// Files a ticket of team `ENG` and flags it.
    pub fn flag(&self, key: &str, title: &str) {
        self.town
            .linear()
            .issue(key)
            .title(title)
            .describe("Please.")
            .add_label("Agent-Implement");
    }

    pub fn script(&self, ticket: &str, script: Script) {
        script.save(&self.town.scripts(), ticket).unwrap();
    }

    /// Lets both vendors misbehave by chance.
    pub fn dial(&self, dial: &Dial) {
        self.town.faults(Vendor::Linear).set(dial.clone());
        self.town.faults(Vendor::Jira).set(dial.clone());
        self.town.faults(Vendor::GitHub).set(dial.clone());
    }

    /// The jobs of a ticket, oldest first.
    pub fn jobs(&self, key: &str) -> Vec<Job> {
        let linear = self.town.linear().issue(key).snapshot();
        let jira = || self.town.jira().issue(key).snapshot();
        let Some(id) = linear.map(|ticket| ticket.id).or_else(|| Some(jira()?.id)) else {
            return Vec::new();
        };
        let issue = IssueId::new(id);
        self.app
            .store
            .read(|tx| jobs::of_issue(tx, &issue))
            .unwrap()
    }

    /// Waits until a ticket's last job has ended and everything owed for it is delivered.
    pub async fn ended(&self, key: &str) -> Job {
        self.until(&format!("{key} has ended"), || {
            self.jobs(key).last().is_some_and(|job| !job.is_active())
        })
        .await;
        self.settled().await;
        self.jobs(key).pop().unwrap()
    }

    /// Waits until nothing is owed any more.
    pub async fn settled(&self) {
        self.until("everything is delivered", || {
            self.app.store.read(outbox::lanes).unwrap().is_empty()
        })
        .await;
    }

    /// Waits for two whole polls, so that what the engine would do it has done.
    pub async fn polled(&self) {
        let before = self.app.pulse.polls();
        self.app.bells.poll.notify_one();
        self.until("two polls", || self.app.pulse.polls() >= before + 2)
            .await;
    }

    pub async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(
                began.elapsed() < PATIENCE,
                "waited in vain until {what}\n{}",
                self.describe()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What a failed story needs to tell.
    fn describe(&self) -> String {
        let jobs = self.app.store.read(|tx| jobs::latest(tx, 50)).unwrap();
        let owed = self.app.store.read(outbox::pending).unwrap();
        let runs = self.repo().runs();
        let logs: Vec<String> = runs.iter().map(|run| self.repo().run_log(run.id)).collect();
        format!(
            "jobs {jobs:#?}\nowed {owed:#?}\nruns {runs:#?}\nlogs {}",
            logs.join("\n---\n")
        )
    }

    /// A token of the admin API.
    pub async fn sign_in(&self) -> String {
        let code = json!({ "code": ACCESS_CODE });
        let signed_in = reqwest::Client::new()
            .post(format!("{}/api/auth", self.address))
            .json(&code)
            .send()
            .await
            .unwrap();
        let answer: Value = signed_in.json().await.unwrap();
        answer["token"].as_str().unwrap().to_owned()
    }

    /// Asks the admin API, signed in.
    pub async fn admin(&self, path: &str) -> Value {
        let token = self.sign_in().await;
        let answer = reqwest::Client::new()
            .get(format!("{}{path}", self.address))
            .bearer_auth(token)
            .send()
            .await
            .unwrap();
        answer.json().await.unwrap()
    }

    /// The folder of everything: the town's state and the store.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends the story. Fails when anything was left undone.
    pub async fn end(self) {
        self.dial(&Dial::default());
        self.settled().await;
        let dead = self.app.store.read(outbox::dead).unwrap();
        assert!(dead.is_empty(), "given up: {dead:#?}");
        let active = self.app.store.read(jobs::active).unwrap();
        assert!(active.is_empty(), "still running: {active:#?}");
        self.stop().await;
    }

    /// Stops everything, whatever it is doing.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            tokio::time::timeout(Duration::from_secs(20), task)
                .await
                .unwrap()
                .unwrap();
        }
        contracts::keep(&self.town);
        self.town.stop_and_kill_runs().await;
    }
}

fn configured(town: &Town, address: &str) -> Config {
    let id = town.github().app_id().to_string();
    config(&[
        "--admin-access-code",
        ACCESS_CODE,
        "--runner-token-secret",
        TOKEN_SECRET,
        "--runner-callback-base-url",
        address,
        "--poll-interval-ms",
        "1000",
        "--linear-api-key",
        &town.linear().key(),
        "--linear-api-url",
        &town.linear_url(),
        "--jira-site-url",
        &town.jira_url(),
        "--jira-email",
        town.jira().email(),
        "--jira-api-token",
        town.jira().token(),
        "--github-app-id",
        &id,
        "--github-app-private-key",
        &app_key(),
        "--github-api-url",
        &town.github_api_url(),
        "--notify-webhook-url",
        &town.chat_url(),
    ])
}

/// The town answers at once, so stories need not wait as long as the real vendors would ask for.
fn quick() -> Pace {
    Pace {
        watch: Duration::from_secs(1),
        run_appears_within: Duration::from_secs(2),
        first_retry: Duration::from_millis(100),
        longest_retry: Duration::from_secs(2),
    }
}

/// Team `ENG` and its repository, everything else as it comes.
pub fn mapping() -> Mapping {
    let body = json!({
        "teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main", "ticketingProvider": "A",
    });
    Input::read(body)
        .unwrap()
        .validate(None, Timestamp::EPOCH)
        .unwrap()
}

/// The mapping, with planning before implementation.
pub fn planning_mapping() -> Mapping {
    Mapping {
        planning_enabled: true,
        planning_workflow_file: Some(PLAN_WORKFLOW.to_owned()),
        ..mapping()
    }
}

/// What the agent does on a ticket without a script of its own.
fn default_script() -> Script {
    Script::new().pass([
        Step::Write {
            path: "feature.txt".into(),
            content: "done\n".into(),
        },
        Step::Say {
            text: "I wrote the feature.".into(),
        },
    ])
}

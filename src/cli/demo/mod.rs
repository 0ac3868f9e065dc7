//! `agent-implement demo`: a complete demonstration on one machine, without configuration.
//!
//! Fake vendors, the real service and real runs, all on loopback. If it is killed and started again with the
//! same folder, it resumes where it stopped.

mod outcomes;
mod printed;
mod progress;
mod replies;
mod saved_state;
mod tickets;
mod vendors_only;

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use domain::ids::Repo;
use domain::mapping::{Mapping, MappingInput, PLAN_WORKFLOW};
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use domain::templates::{self, SyncPolicy, Template};
use domain::time::Timestamp;
use engine::app::{App, AppOptions, Timings};
use engine::config::{
    ChatConfig, Config, ContainerEngine, ContainerNetwork, ContainersConfig, Credentials,
    GitHubAuthConfig, GitHubConfig, JiraConfig, KubernetesConfig, LinearConfig, LogFormat,
    MetricsConfig, Notices, ProxyConfig, ReaperConfig, VendorAddresses, VmSessionsConfig,
};
use fake_vendors::demo::{self, Tracker};
use fake_vendors::{FakeVendors, FakeVendorsOptions};
use run::StopSignal;
use store::crash_injection::{CrashPlan, CrashTrigger};
use store::{Store, mappings};
use vendors::chat::ChatKind;
use vendors::http::Redactor;
use vendors::session_hosts::JobSettings;
use vendors::ticketing::{JiraCredentials, LinearCredentials};

use super::{logging, serve};
use printed::PrintedEvents;
use progress::{DemoProgress, DemoResult};
use saved_state::DemoState;
use tickets::DemoTickets;

/// Maximum time until the demo is idle; after it, the demo counts as stuck.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Maximum number of attempts to remove the temporary folder.
const CLEANUP_ATTEMPTS: u32 = 40;
/// Pause between two attempts to remove the temporary folder.
const CLEANUP_PAUSE: Duration = Duration::from_millis(50);

/// Model key of the runs. The scripted agent calls no model.
const MODEL_KEY: &str = "sk-ant-sandbox-only";

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// Ticketing system that holds the tickets.
    #[arg(long, value_enum, default_value_t)]
    system: Tracker,
    /// Where runs execute: as CI workflows (ci), in virtual machines (vm), in local containers (local) or
    /// as Kubernetes Jobs (kubernetes). All of them are fakes on this machine.
    #[arg(long, value_enum, default_value_t)]
    runner: Runner,
    /// Folder for all data of the demo, which a later demo can resume; default: a temporary folder that is
    /// removed at the end.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Answer questions, approve plans, and exit when nothing is left to do. Exit code 0: every ticket had its
    /// expected outcome; 1: one did not, and the reason is printed.
    #[arg(long)]
    exit_when_idle: bool,
    /// Start only the fake vendors, and print the variables that make a service use them, to try agent-implement
    /// init and serve.
    #[arg(long, conflicts_with_all = ["exit_when_idle", "runner"])]
    vendors_only: bool,
    /// Level of the log on standard error: error, warn, info, debug or trace.
    #[arg(long, default_value = "warn")]
    log_level: String,
    /// Kill the process at a crash point, as kill -9 does; for crash tests.
    #[arg(long, hide = true)]
    crash_at: Option<CrashTrigger>,
}

/// Where the runs of the demo execute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Runner {
    #[default]
    Ci,
    Vm,
    Local,
    Kubernetes,
}

impl Runner {
    fn mode(self) -> RunnerMode {
        match self {
            Runner::Ci => RunnerMode::Ci,
            Runner::Vm => RunnerMode::Vm,
            Runner::Local => RunnerMode::Local,
            Runner::Kubernetes => RunnerMode::Kubernetes,
        }
    }
}

/// Runs the demo until it is stopped or, on request, idle.
pub(super) async fn demo(arguments: DemoArgs) -> anyhow::Result<ExitCode> {
    // First, so that a signal leaves no temporary folder behind.
    let stop = StopSignal::listen()?;
    check_git()?;
    let demo_dir = DemoDir::open(arguments.data_dir.as_deref())?;
    let result = match arguments.vendors_only {
        true => vendors_only::run(&demo_dir.dir, arguments.system, &stop).await,
        false => run_demo(arguments, &demo_dir, &stop).await,
    };
    demo_dir.clear().await;
    result
}

async fn run_demo(
    arguments: DemoArgs,
    demo_dir: &DemoDir,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let dir = demo_dir.dir.as_path();
    let state = DemoState::open(dir, arguments.system)?;
    let vendors = start_vendors(dir, state.tracker).await?;
    let listener = TcpListener::bind(("127.0.0.1", state.port))
        .await
        .with_context(|| {
            format!(
                "listening on port {}, where the runs of this folder report",
                state.port
            )
        })?;
    let port = listener.local_addr()?.port();
    state.save(dir, port)?;

    let config = config(dir, &vendors, &state, port);
    let config = match arguments.runner.mode() {
        // As on a machine without an address: containers report through the socket.
        RunnerMode::Local => Config {
            callback_base_url: None,
            runner_token_secret: None,
            ..config
        },
        _ => config,
    };
    let config = Config {
        runner_mode: Some(arguments.runner.mode()),
        ..config
    };
    let redactor = Redactor::new(config.secrets());
    let _logging = logging::start(&config, &arguments.log_level, &redactor)?;
    let crash = CrashPlan::new(arguments.crash_at);
    let store = Store::open_when_released(&config.data_dir, crash.clone()).await?;
    let options = AppOptions {
        timings: Timings::for_fake_vendors(),
        crash_plan: crash,
        redactor,
        ..AppOptions::default()
    };
    map_project(&store, state.tracker, options.clock.now()).await?;
    let app = App::new(config, store, options)?;

    let tickets = DemoTickets::new(vendors.clone(), state.tracker);
    let printed = PrintedEvents::open(dir)?;
    let progress = DemoProgress::new(app.clone(), vendors.clone(), tickets, printed);
    progress.print_introduction(port, &state.access_code, demo_dir);
    let finished = async {
        let followed = async {
            match arguments.exit_when_idle {
                true => progress.follow_until_idle(IDLE_TIMEOUT).await,
                false => progress.follow().await,
            }
        };
        tokio::select! {
            result = followed => result,
            _ = stop.wait() => DemoResult::Interrupted,
        }
    };
    let (result_tx, result_rx) = tokio::sync::oneshot::channel();
    let until_finished = async move {
        // `serve::run` needs only the moment; the result is read below.
        let _ = result_tx.send(finished.await);
    };
    let served = serve::run(app, listener, until_finished).await;
    match demo_dir.temporary {
        Some(_) => vendors.stop_and_kill_runs().await,
        // The runs continue; a later demo in the same folder adopts them.
        None => vendors.stop().await,
    }
    let code = served?;
    if let Some(code) = stop.exit_code() {
        return Ok(ExitCode::from(code));
    }
    Ok(match result_rx.await {
        Ok(result) => result.report(),
        Err(_) => code,
    })
}

/// Checks that git is there and new enough: the fake repositories and the runs execute it.
fn check_git() -> anyhow::Result<()> {
    match Command::new("git").arg("--version").output() {
        Ok(output) if output.status.success() => {
            run::check_git_version(&String::from_utf8_lossy(&output.stdout))?;
            Ok(())
        }
        _ => bail!(
            "the demo needs git, which was not found in PATH. Install it (apt-get install git, dnf install git or \
             brew install git) and start the demo again"
        ),
    }
}

/// Folder with all data of the demo.
struct DemoDir {
    dir: PathBuf,
    /// Set for a temporary folder, which is removed at the end.
    temporary: Option<tempfile::TempDir>,
}

impl DemoDir {
    fn open(chosen: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(dir) = chosen {
            std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
            let dir = dir.canonicalize()?;
            return Ok(Self {
                dir,
                temporary: None,
            });
        }
        let temporary = tempfile::Builder::new()
            .prefix("agent-implement-demo-")
            .tempdir()?;
        Ok(Self {
            dir: temporary.path().to_owned(),
            temporary: Some(temporary),
        })
    }

    /// Removes a temporary folder. Retries, because killed processes may still write to it.
    async fn clear(self) {
        if self.temporary.is_none() {
            return;
        }
        for _ in 0..CLEANUP_ATTEMPTS {
            let _ = std::fs::remove_dir_all(&self.dir);
            if !self.dir.exists() {
                break;
            }
            tokio::time::sleep(CLEANUP_PAUSE).await;
        }
    }
}

impl fmt::Display for DemoDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.temporary.is_some() {
            " (removed at the end)"
        } else {
            ""
        };
        write!(f, "{}{note}", self.dir.display())
    }
}

async fn start(dir: &Path) -> anyhow::Result<FakeVendors> {
    let program = std::env::current_exe().context("finding the path of this program")?;
    let options = FakeVendorsOptions::new(dir.join("vendors"), program);
    FakeVendors::start(options).await
}

async fn start_vendors(dir: &Path, tracker: Tracker) -> anyhow::Result<FakeVendors> {
    let vendors = start(dir).await?;
    let workflows = workflows(tracker)?;
    let workflows: Vec<(&str, &str)> = workflows
        .iter()
        .map(|workflow| (workflow.path.as_str(), workflow.text.as_str()))
        .collect();
    demo::seed_demo(&vendors, tracker, &workflows)?;
    Ok(vendors)
}

/// Workflow files of the demo's repository, as a template sync would write them. The fake GitHub reads them
/// as the real one does.
fn workflows(tracker: Tracker) -> anyhow::Result<Vec<Template>> {
    let mut projects = projects(tracker, Timestamp::EPOCH)?;
    let repo = Repo::new(demo::DEMO_OWNER, demo::DEMO_REPO);
    // With GitHub there are two repositories. Both get the files of both projects.
    for project in &mut projects {
        project.repo.clone_from(&repo.name);
    }
    let mut all = templates::desired_templates(&repo, &projects, None)?;
    all.retain(|template| template.sync_policy == SyncPolicy::Managed);
    Ok(all)
}

fn config(dir: &Path, vendors: &FakeVendors, state: &DemoState, port: u16) -> Config {
    let address = format!("http://127.0.0.1:{port}");
    let webhook_secret = state.webhook_secret.as_ref().map(Secret::new);
    Config {
        listen: ([127, 0, 0, 1], port).into(),
        data_dir: dir.join("data"),
        custom_dir: dir.join("custom"),
        admin_access_code: Some(Secret::new(&state.access_code)),
        poll_interval: Duration::from_secs(1),
        callback_base_url: Some(address),
        runner_token_secret: Some(Secret::new(&state.token_secret)),
        gap_fill_trigger_secret: webhook_secret.clone(),
        credentials: Credentials {
            linear: (state.tracker == Tracker::Linear).then(|| linear(vendors)),
            jira: (state.tracker == Tracker::Jira).then(|| jira(vendors)),
            github: Some(GitHubConfig {
                credentials: GitHubAuthConfig::Token(Secret::new(
                    vendors.github().personal_token(),
                )),
                api_url: vendors.github_api_url(),
            }),
            scm_webhook_secret: webhook_secret.clone(),
            linear_webhook_secret: webhook_secret.clone(),
            jira_webhook_secret: webhook_secret,
            model_keys: vec![("ANTHROPIC_API_KEY", Secret::new(MODEL_KEY))],
            chat: Some(ChatConfig {
                url: Secret::new(vendors.slack_url()),
                kind: ChatKind::Slack,
            }),
            vm_token: Some(Secret::new(vendors.fly().token())),
        },
        vendor_addresses: VendorAddresses {
            linear_api_url: vendors.linear_url(),
            linear_uploads_url: vendors.linear_uploads_url(),
            jira_api_url: None,
            github_api_url: vendors.github_api_url(),
        },
        runner_program: None,
        standby: None,
        session_image: None,
        vm_sessions: VmSessionsConfig {
            app: Some(vendors.fly().app().to_owned()),
            region: None,
            api_url: vendors.fly_url(),
        },
        containers: ContainersConfig {
            // The repository of the demo is tiny.
            mirror_limit_mb: 0,
            engine: ContainerEngine::Http(vendors.docker_url()),
            is_explicit: true,
            image: vendors.docker().image().to_owned(),
            data_dir_on_host: None,
            // The containers of the demo are processes of this machine.
            network: ContainerNetwork::Open,
        },
        kubernetes: kubernetes(vendors).ok(),
        dedup_window: Some(Duration::from_secs(24 * 60 * 60)),
        digest_hour: None,
        breaker_threshold: Some(3),
        secrets_key: None,
        runner_mode: None,
        image_prefixes: Vec::new(),
        reaper: ReaperConfig {
            dry_run: false,
            alert_threshold: None,
        },
        trusted_proxies: Default::default(),
        proxy: ProxyConfig::default(),
        supervisor: None,
        metrics: MetricsConfig {
            enabled: true,
            token: None,
        },
        log_format: LogFormat::Text,
        log_level: "warn".to_owned(),
        log_keep_days: 14,
        allow_plain_http: false,
        allow_workflow_token: false,
        notices: Notices::default(),
    }
}

fn kubernetes(vendors: &FakeVendors) -> Result<KubernetesConfig, String> {
    let jobs = JobSettings {
        namespace: vendors.kubernetes().namespace().to_owned(),
        runtime_class: None,
        pull_secret: None,
    };
    KubernetesConfig::read(vendors.kubernetes().kubeconfig(), jobs)
}

fn linear(vendors: &FakeVendors) -> LinearConfig {
    LinearConfig {
        credentials: LinearCredentials::ApiKey(Secret::new(vendors.linear().api_key())),
        api_url: vendors.linear_url(),
        uploads_url: vendors.linear_uploads_url(),
    }
}

fn jira(vendors: &FakeVendors) -> JiraConfig {
    JiraConfig {
        credentials: JiraCredentials::Basic {
            email: vendors.jira().email().to_owned(),
            token: Secret::new(vendors.jira().api_token()),
        },
        site_url: Some(vendors.jira_url()),
        api_url: vendors.jira_url(),
    }
}

/// Maps the demo's teams or projects to their repository, unless they are mapped already.
async fn map_project(store: &Store, tracker: Tracker, now: Timestamp) -> anyhow::Result<()> {
    let mapped = projects(tracker, now)?;
    store
        .write(move |tx| {
            for mapping in &mapped {
                if mappings::get(tx, &mapping.team_key)?.is_none() {
                    mappings::put(tx, mapping)?;
                }
            }
            Ok(())
        })
        .await?;
    Ok(())
}

fn projects(tracker: Tracker, now: Timestamp) -> anyhow::Result<Vec<Mapping>> {
    let plain = mapping(tracker, demo::DEMO_TEAM);
    let mut planned = mapping(tracker, demo::DEMO_PLANNING_TEAM);
    planned["planningEnabled"] = json!(true);
    planned["planningWorkflowFile"] = json!(PLAN_WORKFLOW);
    planned["planApproval"] = json!("auto");
    planned["planAutoApprove"] =
        json!({"maxFiles": demo::DEMO_MAX_FILES, "forbidPaths": [demo::DEMO_FORBIDDEN]});
    let valid = |body| Ok(MappingInput::read(body)?.validate(None, now)?);
    [plain, planned].into_iter().map(valid).collect()
}

fn mapping(tracker: Tracker, team: &str) -> Value {
    let mut mapping = json!({
        "teamKey": team,
        "owner": demo::DEMO_OWNER,
        "repo": demo::DEMO_REPO,
        "defaultBranch": "main",
        // The tickets of the demo all change the same test, and people merge when they like.
        "collisions": "allow",
    });
    match tracker {
        Tracker::Linear => mapping["ticketingProvider"] = json!("A"),
        Tracker::GitHub => {
            mapping["ticketingProvider"] = json!("C");
            if team == demo::DEMO_PLANNING_TEAM {
                mapping["repo"] = json!(demo::DEMO_PLANNING_REPO);
            }
        }
        Tracker::Jira => {
            mapping["ticketingProvider"] = json!("B");
            mapping["ticketingConfig"] = json!({
                "kind": "B", "jql": format!("project = {team}"), "repoFieldValue": demo::DEMO_REPO,
            });
        }
    }
    mapping
}

impl DemoResult {
    /// Prints an unexpected result to standard error and returns the exit code.
    fn report(self) -> ExitCode {
        match self {
            DemoResult::Expected | DemoResult::Interrupted | DemoResult::OutputClosed => {
                ExitCode::SUCCESS
            }
            DemoResult::Unexpected(reason) => {
                // If standard error is closed, the exit code is all that is left.
                let _ = writeln!(
                    std::io::stderr(),
                    "agent-implement: the demo did not have the expected outcome: {reason}"
                );
                ExitCode::FAILURE
            }
        }
    }
}

//! `agent-implement serve`: runs the service.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinHandle};

use domain::machine::HostKind;
use engine::app::{App, AppOptions, Timings};
use engine::config::{Config, ConfigError, EnvFile, Options};
use engine::standby::{StandbyPlace, StandbySetup, StandbyTimings, StartError};
use engine::{ShutdownSignal, github_token};
use server::{ControlSocket, EgressSocket, RunSocket};
use store::Store;
use store::crash_injection::{CrashPlan, CrashTrigger};
use vendors::http::Redactor;

use super::DISK_FAILED;
use super::logging;
use super::service_manager::ServiceManagerNotifier;
use super::stop_signal::stop_signal;

/// Maximum time for requests and effects in progress to finish after the signal to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time to prepare the next start. With twice the one above, it is shorter than `TimeoutStopSec` of the systemd unit.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the request for the scopes of a plain token, at startup.
const TOKEN_CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Text after the list of options in the help.
const HELP: &str = "A flag overrides its variable. A secret can also be read from a file named by NAME_FILE, for example \
    LINEAR_API_KEY_FILE=/etc/agent-implement/linear, or from a systemd credential called NAME. If values are \
    wrong, the service does not start and lists all of them; --print-config shows the effective configuration.";

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    options: Options,
    /// File with the service's variables, in the format of systemd's EnvironmentFile=. Secrets are read from the
    /// folder credentials beside it. It overrides the environment of this shell; flags override the file.
    #[arg(long, value_name = "FILE")]
    pub(super) env_file: Option<PathBuf>,
    /// Print the effective configuration with secrets masked, and exit.
    #[arg(long)]
    pub(super) print_config: bool,
    #[command(flatten)]
    test_options: TestOptions,
}

/// Hidden options for tests of the program. No variable sets them.
#[derive(Debug, clap::Args)]
struct TestOptions {
    /// Kill the process at a crash point, as kill -9 does.
    #[arg(long, hide = true)]
    crash_at: Option<CrashTrigger>,
    /// Use the short intervals that fake vendors allow.
    #[arg(long, hide = true)]
    quick: bool,
}

impl TestOptions {
    fn into_app_options(self) -> AppOptions {
        AppOptions {
            timings: match self.quick {
                true => Timings::for_fake_vendors(),
                false => Timings::default(),
            },
            crash_plan: CrashPlan::new(self.crash_at),
            ..AppOptions::default()
        }
    }
}

/// Runs the service until it receives SIGTERM or SIGINT.
pub(super) async fn serve(arguments: ServeArgs) -> anyhow::Result<ExitCode> {
    // The file could be read when the command line was parsed.
    let file = arguments.env_file.as_deref();
    let variables = file.and_then(|file| EnvFile::read(file).ok());
    let config = Config::from_options(arguments.options, variables.as_ref())?;
    if arguments.print_config {
        for (name, value) in config.effective() {
            println!("{name}={value}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let redactor = Redactor::new(config.secrets());
    let options = AppOptions {
        redactor: redactor.clone(),
        ..arguments.test_options.into_app_options()
    };
    // Before the store is opened, which creates one in an empty folder.
    let standby = check_standby(&config, &options).await?;
    let store = Store::open_when_released(&config.data_dir, options.crash_plan.clone()).await?;
    let _logging = logging::start(&config, &config.log_level, &redactor)?;
    for notice in &config.notices.unknown_names {
        tracing::warn!(notice, "Unknown setting.");
    }
    server::raise_descriptor_limit();
    let listener = server::bind(config.listen).with_context(|| {
        format!(
            "listening on {} (is another service using the port?)",
            config.listen
        )
    })?;
    let stop = stop_signal()?;
    let (standby, standby_start) = standby.map(|setup| setup.attach(store.clone())).unzip();
    let options = AppOptions { standby, ..options };
    let app = App::new(config, store.clone(), options)?;
    refuse_workflow_token(&app).await?;
    let standby_task = match standby_start {
        Some(start) => Some(start.begin().await.map_err(standby_error)?),
        None => None,
    };
    let code = run(app, listener, stop).await?;
    if let Some(task) = standby_task {
        let finished = tokio::time::timeout(SHUTDOWN_TIMEOUT, task.finish()).await;
        if finished.is_err() {
            tracing::warn!("The last changes could not be written to the place of the standby.");
        }
    }
    // Otherwise the next start takes longer.
    let _ = tokio::time::timeout(PREPARE_TIMEOUT, store.prepare_next_start()).await;
    Ok(code)
}

/// Checks that the service may work with the place that it shares with its standby.
async fn check_standby(
    config: &Config,
    options: &AppOptions,
) -> anyhow::Result<Option<StandbySetup>> {
    let Some(standby) = &config.standby else {
        return Ok(None);
    };
    let place = StandbyPlace::open(&standby.place, &config.proxy, &options.redactor);
    let timings = options.timings.standby;
    let setup = StandbySetup {
        place: place.map_err(anyhow::Error::msg)?,
        data_dir: config.data_dir.clone(),
        clock: options.clock.clone(),
        timings: StandbyTimings {
            interval: standby.interval.min(timings.interval),
            ..timings
        },
    };
    setup.check().await.map_err(standby_error)?;
    Ok(Some(setup))
}

/// Error of a start, with the exit code that tells the service manager whether to try again.
fn standby_error(error: StartError) -> anyhow::Error {
    let is_retried = error.is_temporary() || error.needs_restore();
    let error = anyhow::Error::from(error);
    match is_retried {
        true => error,
        // With its causes.
        false => ConfigError::single(format!("{error:#}")).into(),
    }
}

/// Resolves with the exit code when another service has taken over. The next start waits for its turn, or is refused.
async fn standby_lost(app: &App) -> ExitCode {
    let Some(standby) = &app.live.standby else {
        return std::future::pending().await;
    };
    let reason = standby.lost().await;
    tracing::error!(reason, "Stopping: another service does the work.");
    ExitCode::FAILURE
}

/// Runs the engine and the HTTP server until `stop` resolves, the store fails, another service has taken over or either
/// ends.
pub(super) async fn run(
    app: App,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<ExitCode> {
    let service_manager = ServiceManagerNotifier::connect(app.core.config.supervisor.as_ref());
    let (shutdown, signal) = ShutdownSignal::new();
    let control = open_control(&app);
    let run_socket = open_run_socket(&app);
    log_startup(&app, &listener);
    let mut engine = tasks::spawn(engine::run(app.clone(), signal.clone()));
    let http_signal = signal.clone();
    let mut http_server = tokio::spawn(server::serve(app.clone(), listener, async move {
        http_signal.requested().await
    }));
    let control_server = tasks::spawn(serve_control(app.clone(), control, signal.clone()));
    let run_server = tasks::spawn(serve_runs(app.clone(), run_socket, signal.clone()));
    let egress_proxy = tasks::spawn(serve_egress(app.clone(), open_egress_socket(&app), signal));
    service_manager.notify_ready();
    let code = tokio::select! {
        () = stop => ExitCode::SUCCESS,
        // Only the next process can determine whether the last commit is on disk.
        () = app.core.store().failed() => ExitCode::from(DISK_FAILED),
        code = standby_lost(&app) => code,
        // Exits if one part ends, so that systemd restarts the whole service.
        ended = &mut engine => ended_early("The engine", ended.err()),
        ended = &mut http_server => ended_early("The HTTP server", ended.err()),
        never = service_manager.report_periodically(&app) => match never {},
    };
    tracing::info!("Stopping.");
    service_manager.notify_stopping();
    let _ = shutdown.send(true);
    let finished = async {
        tokio::join!(
            join_unless_finished(engine),
            join_unless_finished(http_server),
            join_unless_finished(control_server),
            join_unless_finished(run_server),
            join_unless_finished(egress_proxy)
        )
    };
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, finished).await;
    Ok(code)
}

/// Rejects a plain token that may change workflows. If the repository host does not respond, the service
/// starts anyway: no run gets the token before its scopes are known.
async fn refuse_workflow_token(app: &App) -> Result<(), ConfigError> {
    let refused = tokio::time::timeout(TOKEN_CHECK_TIMEOUT, github_token::is_refused(app)).await;
    match refused {
        Ok(Ok(true)) => Err(ConfigError::single(github_token::REFUSAL_MESSAGE)),
        _ => Ok(()),
    }
}

/// Logs the unexpected end of a part of the service and returns the exit code.
fn ended_early(part: &str, panic: Option<JoinError>) -> ExitCode {
    let cause = panic.map(|error| error.to_string());
    tracing::error!(cause, "{part} ended unexpectedly.");
    ExitCode::FAILURE
}

/// Waits for the end of a task. A finished task was already polled to its end and must not be polled again.
async fn join_unless_finished<T>(task: JoinHandle<T>) {
    if !task.is_finished() {
        let _ = task.await;
    }
}

/// Opens the control socket in the data directory. Without it, the service still runs.
fn open_control(app: &App) -> Option<ControlSocket> {
    let dir = &app.core.config.data_dir;
    ControlSocket::open(dir)
        .inspect_err(|error| {
            tracing::error!(dir = %dir.display(), %error, "Failed to open the control socket; the commands why, doctor and backup work only while the service is stopped.");
        })
        .ok()
}

/// Serves the control socket, if it is open.
async fn serve_control(app: App, control: Option<ControlSocket>, stop: ShutdownSignal) {
    if let Some(control) = control {
        // Clients report requests that the shutdown interrupted.
        let _ = server::serve_control(app, control, async move { stop.requested().await }).await;
    }
}

/// Opens the socket of runs in the data directory. Without it, the service still runs.
fn open_run_socket(app: &App) -> Option<RunSocket> {
    let dir = &app.core.config.data_dir;
    RunSocket::open(dir)
        .inspect_err(|error| {
            tracing::error!(dir = %dir.display(), %error, "Failed to open the socket of runs; runs in local containers cannot report unless RUNNER_CALLBACK_BASE_URL is set.");
        })
        .ok()
}

/// Serves the socket of runs, if it is open.
async fn serve_runs(app: App, socket: Option<RunSocket>, stop: ShutdownSignal) {
    if let Some(socket) = socket {
        // Runs repeat requests that the shutdown interrupted.
        let _ = server::serve_runs(app, socket, async move { stop.requested().await }).await;
    }
}

/// Opens the socket of the proxy of isolated containers in the data directory. Without it, the service still runs.
fn open_egress_socket(app: &App) -> Option<EgressSocket> {
    let config = &app.core.config;
    if !config.isolates_containers() {
        return None;
    }
    EgressSocket::open(&config.data_dir)
        .inspect_err(|error| {
            tracing::error!(dir = %config.data_dir.display(), %error, "Failed to open the socket of the proxy; runs in local containers reach no other host unless LOCAL_EGRESS is open.");
        })
        .ok()
}

/// Serves the proxy of isolated containers, if its socket is open.
async fn serve_egress(app: App, socket: Option<EgressSocket>, stop: ShutdownSignal) {
    if let Some(socket) = socket {
        server::serve_egress(app, socket, async move { stop.requested().await }).await;
    }
}

/// Logs which features are on, and for each that is off, the variables that switch it on.
fn log_startup(app: &App, listener: &TcpListener) {
    let address = listener
        .local_addr()
        .map(|address| address.to_string())
        .unwrap_or_default();
    let on = |is_set: bool, off: &'static str| if is_set { "on" } else { off };
    let (config, credentials) = (&app.core.config, &app.vendors.credentials);
    tracing::info!(
        address,
        data_dir = %config.data_dir.display(),
        admin = on(config.admin_access_code.is_some(), "off (set ADMIN_ACCESS_CODE)"),
        linear = on(credentials.linear.is_some(), "off (set LINEAR_API_KEY)"),
        jira = on(credentials.jira.is_some(), "off (set JIRA_SITE_URL, JIRA_EMAIL and JIRA_API_TOKEN)"),
        github = on(credentials.github.is_some(), "off (set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY)"),
        callbacks = on(config.has_callbacks(), "off (without an address; set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET)"),
        webhook = on(credentials.scm_webhook_secret.is_some(), "off (set SCM_WEBHOOK_SECRET)"),
        linear_webhook = on(credentials.linear_webhook_secret.is_some(), "off (set LINEAR_WEBHOOK_SECRET)"),
        jira_webhook = on(credentials.jira_webhook_secret.is_some(), "off (set JIRA_WEBHOOK_SECRET)"),
        vm_sessions = on(app.vendors.sessions.has_host(HostKind::Vm), "off (set VM_SESSIONS_TOKEN and VM_SESSIONS_APP)"),
        local_containers = on(app.vendors.sessions.has_host(HostKind::Local), "off (set DOCKER_HOST)"),
        kubernetes = on(app.vendors.sessions.has_host(HostKind::Kubernetes), "off (set KUBERNETES_NAMESPACE)"),
        chat = on(credentials.chat.is_some(), "off (set NOTIFY_WEBHOOK_URL)"),
        version = env!("CARGO_PKG_VERSION"),
        "Agent Implement is running."
    );
}

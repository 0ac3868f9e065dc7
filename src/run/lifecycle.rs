//! Lifecycle of a run: preparation, pipeline, teardown and result.
//!
//! A panic, a stop signal and the time limit are handled like other failures: open steps are ended
//! and the result is reported.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::task::Poll;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::time::sleep_until;

use crate::agent;
use crate::console::Console;
use crate::context::{Reporting, RunContext};
use crate::environment::Environment;
use crate::evidence::UnsentEvidence;
use crate::executor;
use crate::failure::RunFailure;
use crate::folders::Folders;
use crate::keep_alive;
use crate::orchestrator_client;
use crate::orphan_processes::{self, OrphanProcesses};
use crate::prepare::{self, RunServices};
use crate::print::print_line;
use crate::progress::ProgressReporter;
use crate::random::random_hex;
use crate::report_file::ReportFile;
use crate::result_report;
use crate::run_log::RunLog;
use crate::status_reporter::{StatusReporter, StatusReporterTask};
use crate::steps;
use crate::stop_signal::StopSignal;
use domain::ids::JobId;
use domain::report::{FailureCode, ResultReport, RunOutcome, RunPhase};
use domain::report_artifact;
use domain::run_config::{RunCallback, RunConfig, RunInputs};
use domain::secret::Secret;
use domain::session_event::SessionEvent;
use pipeline::PipelineDefinition;
use vendors::http::{Client, Redactor, Timeouts};

/// Executes a run and reports its result. The exit code is 0 on success or if the run asked questions, and 128 plus the signal number
/// after a stop signal.
pub async fn run(environment: Environment) -> ExitCode {
    let stop = match harden(environment.orphan_processes).and_then(|()| StopSignal::listen()) {
        Ok(stop) => stop,
        Err(error) => {
            print_line(&format!(
                "Cannot protect the run from its child processes: {error}"
            ));
            return ExitCode::FAILURE;
        }
    };
    let config = RunConfig::from_inputs(&environment.inputs);
    let callback = match &config {
        Ok(config) => config.callback.clone(),
        Err(_) => callback_from_inputs(&environment.inputs),
    };
    let report_key = report_key(&environment.inputs);
    let secrets = secrets(&environment, callback.as_ref(), report_key.as_ref());
    let redactor = Redactor::new(secrets.iter().map(Secret::expose));
    let clients =
        Client::with_proxies(&environment.proxies, "the web", redactor.clone()).and_then(|web| {
            Ok((
                web,
                service_client(&environment, &redactor, callback.as_ref())?,
            ))
        });
    let (web_client, client) = match clients {
        Ok(clients) => clients,
        Err(error) => {
            print_line(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let report_file = report_key.and_then(|key| {
        let dispatch_id = environment.inputs.get("dispatch_id")?;
        ReportFile::prepare(&environment, JobId::new(dispatch_id), key)
    });
    let channels = ReportChannels {
        callback,
        file: report_file,
    };
    let (reporting, outbound) = start_reporting(&environment, redactor, client.clone(), channels);
    let run_id = environment.run_id;
    let (mut report, folders) = match config {
        Ok(config) => {
            let services = RunServices {
                client,
                web_client,
                reporting,
                secrets,
                stop_signal: stop.clone(),
            };
            Box::pin(execute(environment, config, services)).await
        }
        Err(error) => {
            let failure = RunFailure::other(error);
            report_error(&reporting.status_reporter, &failure);
            // The last events are sent only after every reporter is dropped.
            drop(reporting);
            let phase = phase_from_inputs(&environment.inputs);
            (result_report::failed(phase, &failure), None)
        }
    };
    report.run_id = run_id;
    let console = outbound.console.clone();
    tokio::select! {
        () = outbound.finish(&report) => {}
        () = stop.wait_grace_period() => console.log("Run stopped before its result was accepted"),
    }
    // Only now: deleting many files can take longer than a host waits after a stop signal.
    drop(folders);
    match (stop.exit_code(), report.outcome, report.failure_code) {
        (Some(code), ..) => ExitCode::from(code),
        (None, RunOutcome::Success, _) => ExitCode::SUCCESS,
        // The run did its work: people see no failed workflow.
        (None, RunOutcome::Failure, Some(FailureCode::NeedsInput)) => ExitCode::SUCCESS,
        (None, RunOutcome::Failure, _) => ExitCode::FAILURE,
    }
}

/// Creates a client of the orchestrator, at its address or through its socket.
fn service_client(
    environment: &Environment,
    redactor: &Redactor,
    callback: Option<&RunCallback>,
) -> Result<Client, String> {
    let (vendor, redactor) = ("the orchestrator", redactor.clone());
    match callback.and_then(RunCallback::socket) {
        Some(socket) => Client::with_unix_socket(vendor, redactor, Timeouts::default(), socket),
        None => Client::with_proxies(&environment.proxies, vendor, redactor),
    }
}

/// Denies other processes of the user access to memory and environment of this process, and adopts
/// orphans.
fn harden(orphans: OrphanProcesses) -> std::io::Result<()> {
    if orphans == OrphanProcesses::Leave {
        return Ok(());
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    orphan_processes::become_subreaper()
}

/// Where reports of the run go. Both are `None` if nobody receives them.
struct ReportChannels {
    /// Orchestrator.
    callback: Option<RunCallback>,
    /// File for an orchestrator that cannot be reached.
    file: Option<ReportFile>,
}

/// Senders of the last reports, used after the pipeline ended.
struct Outbound {
    client: Client,
    channels: ReportChannels,
    console: Console,
    progress: ProgressReporter,
    evidence: UnsentEvidence,
    log: RunLog,
    status_task: StatusReporterTask,
}

/// Starts log, progress and session events.
fn start_reporting(
    environment: &Environment,
    redactor: Redactor,
    client: Client,
    channels: ReportChannels,
) -> (Reporting, Outbound) {
    let callback = channels.callback.as_ref();
    let progress = ProgressReporter::default();
    let log = RunLog::default();
    if let Some(callback) = callback {
        progress.start(client.clone(), callback, environment.run_id);
        // A second client, so that a rate limit of the log does not delay reports.
        match service_client(environment, &redactor, Some(callback)) {
            Ok(client) => drop(log.start(client, callback)),
            Err(error) => print_line(&error.to_string()),
        }
    }
    let console = if environment.is_ci {
        Console::for_ci(redactor, log.clone(), random_hex())
    } else {
        Console::plain(redactor, log.clone())
    };
    let url = callback.map(|callback| callback.route("/api/status"));
    let (status_reporter, status_task) =
        StatusReporter::start(client.clone(), url, environment.nonce.clone());
    let reporting = Reporting::new(console.clone(), progress.clone(), status_reporter);
    let outbound = Outbound {
        client,
        channels,
        console,
        progress,
        evidence: reporting.evidence.clone(),
        log,
        status_task,
    };
    (reporting, outbound)
}

impl Outbound {
    /// Logs the result, sends the last progress, log and session events, then reports the result.
    async fn finish(self, report: &ResultReport) {
        let Self {
            client,
            channels: ReportChannels { callback, file },
            console,
            progress,
            evidence,
            log,
            status_task,
        } = self;
        match &report.failure_reason {
            None => console.log("Run succeeded"),
            Some(reason) if report.failure_code == Some(FailureCode::NeedsInput) => {
                console.log(&format!("Run ended: {reason}"));
            }
            Some(reason) => {
                console.log("Run failed");
                reason.lines().for_each(|line| console.log(line));
            }
        }
        if callback.is_some() {
            tokio::join!(progress.flush(), log.flush());
        }
        status_task.flush().await;
        let reported = match (callback, file) {
            (Some(callback), _) => {
                orchestrator_client::report_result(&client, &callback, report).await
            }
            (None, Some(file)) => {
                let steps = report_artifact::final_steps(progress.take_unsent());
                let written = file.write(report, &steps, &evidence.take());
                written.map_err(|error| format!("writing the report file: {error}"))
            }
            (None, None) => Ok(()),
        };
        if let Err(error) = reported {
            console.log(&format!("Failed to report the result: {error}"));
        }
    }
}

/// Prepares the run, executes its pipeline and returns the result, with the folders that are still to be deleted.
async fn execute(
    environment: Environment,
    config: RunConfig,
    services: RunServices,
) -> (ResultReport, Option<Folders>) {
    let phase = config.phase;
    let console = services.reporting.console.clone();
    let status_reporter = services.reporting.status_reporter.clone();
    let prepared = prepare::prepare(environment, config, services);
    let (mut run, definition) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            let failure = sanitize(&console, failure);
            report_error(&status_reporter, &failure);
            return (result_report::failed(phase, &failure), None);
        }
    };
    let definition = keep_alive::effective_pipeline(&run.dispatch, definition);
    let result = execute_pipeline(&mut run, &definition).await;
    let result = result.and_then(|()| require_pull(&run));
    let result = match keep_alive::reason(&run.dispatch, &result) {
        Some(reason) => keep_alive::keep_session(&mut run, reason, result).await,
        None => result,
    };
    let stop = run.limits.stop_signal.clone();
    tokio::select! {
        biased;
        // A stop signal leaves no time for teardown.
        _ = stop.wait() => {}
        () = steps::tear_down(&mut run) => {}
    }
    // No process may outlive the run.
    let _ = orphan_processes::kill_all(run.workspace.orphan_processes).await;
    let Err(failure) = result else {
        let report = result_report::of_run(&run, None);
        return (report, Some(run.workspace.folders));
    };
    run.reporting.fail_open_steps(&failure.reason);
    let failure = sanitize(&console, failure);
    // The orchestrator reports a later retry, the time limit, a stop and questions itself.
    let is_reported_by_orchestrator = failure.retry_at.is_some()
        || failure.is_question()
        || matches!(
            failure.code,
            Some(FailureCode::TimedOut | FailureCode::Cancelled)
        );
    if !is_reported_by_orchestrator {
        report_error(&status_reporter, &failure);
    }
    let report = result_report::of_run(&run, Some(&failure));
    (report, Some(run.workspace.folders))
}

/// Reports a failure as a session event.
fn report_error(status_reporter: &StatusReporter, failure: &RunFailure) {
    let reason = failure.reason.clone();
    status_reporter.report(&SessionEvent::Error { reason });
}

/// Returns the failure without secrets and invisible characters.
fn sanitize(console: &Console, failure: RunFailure) -> RunFailure {
    RunFailure {
        reason: console.sanitize(&failure.reason),
        ..failure
    }
}

/// Fails an implementation run without a pull request, which a custom pipeline can cause.
fn require_pull(run: &RunContext) -> Result<(), RunFailure> {
    let is_implementation = run.dispatch.config.phase == RunPhase::Implementation;
    if is_implementation && run.publication.url().is_none() {
        return Err(RunFailure::other(
            "the run ended without opening a pull request",
        ));
    }
    Ok(())
}

/// Executes the pipeline until it ends, panics, is stopped or reaches the time limit.
async fn execute_pipeline(
    run: &mut RunContext,
    definition: &PipelineDefinition,
) -> Result<(), RunFailure> {
    let (deadline, stop) = (run.limits.deadline, run.limits.stop_signal.clone());
    tokio::select! {
        result = catch_panic(Box::pin(executor::execute(run, definition))) => result.unwrap_or_else(|panic| {
            let message = panic_message(panic.as_ref());
            Err(RunFailure::other(format!("the run panicked: {message}")))
        }),
        _ = stop.wait() => Err(RunFailure::stopped()),
        () = sleep_until(deadline) => Err(RunFailure::out_of_time()),
    }
}

/// Drives a future and returns a panic in it as an error.
async fn catch_panic<T>(
    mut future: impl Future<Output = T> + Unpin,
) -> Result<T, Box<dyn Any + Send>> {
    std::future::poll_fn(move |context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            std::pin::Pin::new(&mut future).poll(context)
        }));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Returns every secret of the environment, for redaction.
fn secrets(
    environment: &Environment,
    callback: Option<&RunCallback>,
    report_key: Option<&Secret>,
) -> Vec<Secret> {
    let keys = environment
        .direct_keys
        .iter()
        .chain(&environment.cloud_keys);
    keys.filter(|(name, _)| !agent::is_base_url(name))
        .map(|(_, key)| key.clone())
        .chain(environment.workflow_token.clone())
        .chain(environment.nonce.clone())
        .chain(environment.secrets.clone())
        .chain(report_key.cloned())
        .chain(report_key.map(report_artifact::upload_permit))
        .chain(
            callback
                .into_iter()
                .flat_map(|callback| [callback.run_token.clone(), callback.progress_token.clone()]),
        )
        .collect()
}

/// Returns the callback from the raw inputs, so that an invalid configuration can be reported too.
fn callback_from_inputs(inputs: &RunInputs) -> Option<RunCallback> {
    let input = |name: &str| inputs.get(name).filter(|text| !text.is_empty());
    Some(RunCallback {
        url: input("callback_url")?.clone(),
        run_token: Secret::new(input("run_token")?),
        progress_token: Secret::new(input("run_progress_token")?),
    })
}

/// Returns the key of the report file from the raw inputs; `None` if the run reports to the orchestrator.
fn report_key(inputs: &RunInputs) -> Option<Secret> {
    let input = |name: &str| inputs.get(name).filter(|text| !text.is_empty());
    match input("callback_url") {
        Some(_) => None,
        None => input("run_token").map(Secret::new),
    }
}

/// Returns the phase from the raw inputs, to report an invalid configuration.
fn phase_from_inputs(inputs: &RunInputs) -> RunPhase {
    let phase = inputs.get("phase").and_then(|phase| RunPhase::parse(phase));
    phase.unwrap_or(RunPhase::Implementation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_a_panic_as_an_error() {
        let result = catch_panic(Box::pin(async {
            tokio::task::yield_now().await;
            assert!(std::hint::black_box(false), "out of luck");
        }))
        .await;
        assert!(panic_message(result.unwrap_err().as_ref()).contains("out of luck"));
        let result = catch_panic(Box::pin(async { 7 })).await;
        assert_eq!(result.ok(), Some(7));
    }
}

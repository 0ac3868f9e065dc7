//! From the environment to the result: setting a run up, seeing it through, telling how it ended.
//!
//! A panic, a signal to stop and the end of the run's time are ends like others: the step that was
//! at work is closed and the result is reported.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::task::Poll;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::time::sleep_until;

use super::agent;
use super::callback;
use super::console::{Console, line};
use super::environment::Environment;
use super::executor;
use super::herald::Herald;
use super::hold;
use super::prepare::{self, Setting};
use super::progress::Progress;
use super::run::{Failure, Run};
use super::steps;
use super::stop::StopSignal;
use super::strays::{self, Strays};
use super::text;
use domain::caps;
use domain::report::{FailureCode, Outcome, ResultReport, RunComment, RunPhase};
use domain::run_config::{Callback, RunConfig};
use domain::secret::Secret;
use domain::session_event::SessionEvent;
use pipeline::Definition;
use vendors::http::{Client, Redactor};

/// Longest repeat of what the agent said last, in bytes.
const MAX_LAST_WORDS: usize = 4_000;

/// Sees one run through and reports its result. The exit code is 0 when it was a success.
pub async fn run(environment: Environment) -> ExitCode {
    let shielded = harden(environment.strays).and_then(|()| StopSignal::listen());
    let stop = match shielded {
        Ok(stop) => stop,
        Err(error) => {
            line(&format!(
                "the run cannot shield itself from its children: {error}"
            ));
            return ExitCode::FAILURE;
        }
    };
    let (config, unfit) = match RunConfig::from_inputs(&environment.inputs) {
        Ok(config) => (Some(config), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let phase = environment.inputs.get("phase");
    let phase = phase.and_then(|phase| RunPhase::parse(phase));
    let phase = phase.unwrap_or(RunPhase::Implementation);
    let callback = config.as_ref().map_or_else(
        || bare_callback(&environment),
        |config| config.callback.clone(),
    );
    let secrets = secrets(&environment, callback.as_ref());
    let redactor = Redactor::new(secrets.iter().map(Secret::expose));
    let client = match Client::through(&environment.proxies, "orchestrator", redactor.clone()) {
        Ok(client) => client,
        Err(error) => {
            line(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let progress = Progress::default();
    let sender = callback
        .as_ref()
        .map(|callback| progress.start(client.clone(), callback, environment.run_id));
    let console = if environment.in_ci {
        Console::in_ci(redactor, progress.clone(), super::random_word())
    } else {
        Console::plain(redactor, progress.clone())
    };
    let url = callback.as_ref().map(|callback| callback.url.as_str());
    let (herald, sending) = Herald::start(client.clone(), url, environment.nonce.clone());
    let run_id = environment.run_id;
    let mut report = match (config, unfit) {
        (Some(config), _) => {
            let setting = Setting {
                client: client.clone(),
                console: console.clone(),
                progress: progress.clone(),
                herald,
                secrets,
                stop: stop.clone(),
            };
            Box::pin(see_through(environment, config, setting)).await
        }
        (None, unfit) => {
            let failure = Failure::other(unfit.unwrap_or_default());
            herald.tell(&broken(&failure));
            drop(herald);
            failed(phase, &failure)
        }
    };
    report.run_id = run_id;
    let telling = async {
        if sender.is_some() {
            progress.flush().await;
        }
        sending.finish().await;
        tell(&client, callback.as_ref(), &report, &console).await;
    };
    tokio::select! {
        () = telling => {}
        () = stop.overdue() => console.say("the run was stopped before its result was taken"),
    }
    match (stop.exit_code(), report.outcome) {
        (Some(code), _) => ExitCode::from(code),
        (None, Outcome::Success) => ExitCode::SUCCESS,
        (None, Outcome::Failure) => ExitCode::FAILURE,
    }
}

/// No other process of the same user may read our memory or environment; orphans become ours.
fn harden(strays: Strays) -> std::io::Result<()> {
    if strays == Strays::Leave {
        return Ok(());
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    strays::adopt()
}

async fn see_through(
    environment: Environment,
    config: RunConfig,
    setting: Setting,
) -> ResultReport {
    let phase = config.phase;
    let console = setting.console.clone();
    let herald = setting.herald.clone();
    let prepared = prepare::prepare(environment, config, setting);
    let (mut run, definition) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            let failure = redacted(&console, failure);
            herald.tell(&broken(&failure));
            return failed(phase, &failure);
        }
    };
    let definition = hold::part_of(&run, definition);
    let ended = guarded(&mut run, &definition).await;
    let ended = ended.and_then(|()| delivered(&run));
    let ended = match hold::why(&run, &ended) {
        Some(kept) => hold::keep(&mut run, kept, ended).await,
        None => ended,
    };
    let stop = run.stop.clone();
    tokio::select! {
        biased;
        // Whoever stops a run leaves it no time to tidy up.
        _ = stop.given() => {}
        () = steps::tear_down(&mut run) => {}
    }
    // Nothing of the work may outlive it.
    let _ = strays::end_all(run.strays).await;
    let mut report = match ended {
        Ok(()) => succeeded(&run),
        Err(failure) => {
            executor::end_open(&mut run, "failed", &failure.reason);
            let failure = redacted(&console, failure);
            // What goes on later has not failed for good, and the end of the time has words of its own;
            // the orchestrator has them.
            let is_told_there =
                failure.retry_at.is_some() || failure.code == Some(FailureCode::TimedOut);
            if !is_told_there {
                herald.tell(&broken(&failure));
            }
            ResultReport {
                last_words: last_words(&run),
                ..failed(phase, &failure)
            }
        }
    };
    report.usage = Some(run.progress.meter().total());
    report.patch = run.found.patch.as_ref().map(|patch| console.redact(patch));
    let pull = run.found.pull.as_ref().map(|pull| pull.url.clone());
    // The branch of a shadow stands in place of its pull request.
    report.pr_url = pull.or_else(|| run.found.shadow_url.clone());
    report.unresolved = run
        .found
        .unresolved
        .iter()
        .map(|finding| executor::shown(&run, finding))
        .collect();
    report
}

/// An implementation is its pull request; a pipeline of an operator's own may have opened none.
fn delivered(run: &Run) -> Result<(), Failure> {
    let nothing = run.found.pull.is_none() && run.found.shadow_url.is_none();
    let owed = run.config.phase == RunPhase::Implementation && nothing;
    if owed {
        return Err(Failure::other(
            "the run ended without opening a pull request",
        ));
    }
    Ok(())
}

/// The pipeline, with everything that may cut it short.
async fn guarded(run: &mut Run, definition: &Definition) -> Result<(), Failure> {
    let (deadline, stop) = (run.deadline, run.stop.clone());
    tokio::select! {
        ended = caught(Box::pin(executor::execute(run, definition))) => ended.unwrap_or_else(|panic| {
            Err(Failure::other(format!("the run broke down: {}", words(panic.as_ref()))))
        }),
        _ = stop.given() => Err(Failure::stopped()),
        () = sleep_until(deadline) => Err(Failure::out_of_time()),
    }
}

/// Drives a future; a panic in it is a value.
async fn caught<T>(mut future: impl Future<Output = T> + Unpin) -> Result<T, Box<dyn Any + Send>> {
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

fn words(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Everything in the environment that must not be seen.
fn secrets(environment: &Environment, callback: Option<&Callback>) -> Vec<Secret> {
    let keys = environment
        .direct_keys
        .iter()
        .chain(&environment.cloud_keys);
    keys.filter(|(name, _)| !agent::is_address(name))
        .map(|(_, key)| key.clone())
        .chain(environment.workflow_token.clone())
        .chain(environment.nonce.clone())
        .chain(environment.secrets.clone())
        .chain(
            callback
                .into_iter()
                .flat_map(|callback| [callback.run_token.clone(), callback.progress_token.clone()]),
        )
        .collect()
}

/// The way back of a run whose other inputs are unfit: even that must be told.
fn bare_callback(environment: &Environment) -> Option<Callback> {
    let given = |name: &str| environment.inputs.get(name).filter(|text| !text.is_empty());
    Some(Callback {
        url: given("callback_url")?.clone(),
        run_token: Secret::new(given("run_token")?),
        progress_token: Secret::new(given("run_progress_token")?),
    })
}

fn succeeded(run: &Run) -> ResultReport {
    let unapproved = !run.found.unresolved.is_empty();
    ResultReport {
        phase: run.config.phase,
        outcome: Outcome::Success,
        pr_url: None,
        comments: comments(run),
        failure_reason: None,
        failure_code: unapproved.then_some(FailureCode::ReviewUnapproved),
        last_words: None,
        retry_at: None,
        unresolved: Vec::new(),
        usage: None,
        patch: None,
        run_id: None,
    }
}

/// What the run wants said on its ticket, as it may leave the run.
fn comments(run: &Run) -> Vec<RunComment> {
    let comment = |body: &String| RunComment {
        body: text::cut(&run.console.shown(body), caps::MAX_COMMENT_BYTES),
    };
    run.found.comments.iter().map(comment).collect()
}

/// What the agent said last, as it may leave the run.
fn last_words(run: &Run) -> Option<String> {
    let said = text::cut(&run.console.shown(&run.found.summary), MAX_LAST_WORDS);
    Some(said).filter(|said| !said.trim().is_empty())
}

fn failed(phase: RunPhase, failure: &Failure) -> ResultReport {
    ResultReport {
        phase,
        outcome: Outcome::Failure,
        pr_url: None,
        comments: Vec::new(),
        failure_reason: Some(failure.reason.clone()),
        failure_code: failure.code,
        last_words: None,
        retry_at: failure.retry_at,
        unresolved: Vec::new(),
        usage: None,
        patch: None,
        run_id: None,
    }
}

/// What a session says of its failure.
fn broken(failure: &Failure) -> SessionEvent {
    SessionEvent::Error {
        reason: failure.reason.clone(),
    }
}

fn redacted(console: &Console, failure: Failure) -> Failure {
    Failure {
        reason: console.shown(&failure.reason),
        ..failure
    }
}

async fn tell(
    client: &Client,
    callback: Option<&Callback>,
    report: &ResultReport,
    console: &Console,
) {
    match &report.failure_reason {
        None => console.say("the run succeeded"),
        Some(reason) => {
            console.say("the run failed");
            reason.lines().for_each(|line| console.say(line));
        }
    }
    let Some(callback) = callback else {
        return;
    };
    if let Err(error) = callback::deliver(client, callback, report).await {
        console.say(&format!("the result could not be delivered: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_value() {
        let ended = caught(Box::pin(async {
            tokio::task::yield_now().await;
            assert!(std::hint::black_box(false), "out of luck");
        }))
        .await;
        assert!(words(ended.unwrap_err().as_ref()).contains("out of luck"));
        assert_eq!(caught(Box::pin(async { 7 })).await.ok(), Some(7));
    }
}

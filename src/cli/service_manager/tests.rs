use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc;

use clap::Parser;
use tokio::net::UnixDatagram as Receiver;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use engine::ShutdownSignal;
use engine::app::AppOptions;
use engine::config::{Config, Options};
use store::Store;

/// Timeout for an expected notification.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

fn app() -> App {
    app_with(Store::in_memory().unwrap())
}

fn app_with(store: Store) -> App {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = CommandLine::parse_from(["serve"]).options;
    let config = Config::from_options(options, None).unwrap();
    App::new(config, store, AppOptions::default()).unwrap()
}

/// Fake service manager with a notifier that reports to it.
struct FakeManager {
    receiver: Receiver,
    reporting: JoinHandle<Infallible>,
}

impl FakeManager {
    fn start(app: &App, dir: &Path, watchdog: Option<Duration>) -> Self {
        let path = dir.join("notify");
        let receiver = Receiver::bind(&path).unwrap();
        let notifier = ServiceManagerNotifier::connect(Some(&Supervisor {
            socket: path.to_str().unwrap().to_owned(),
            watchdog,
        }));
        let app = app.clone();
        let reporting = tokio::spawn(async move { notifier.report_periodically(&app).await });
        Self {
            receiver,
            reporting,
        }
    }

    async fn next_message(&self) -> String {
        receive(&self.receiver).await
    }

    /// Returns the next message with this prefix.
    async fn next_message_with(&self, prefix: &str) -> String {
        loop {
            let message = self.next_message().await;
            if message.starts_with(prefix) {
                return message;
            }
        }
    }
}

impl Drop for FakeManager {
    fn drop(&mut self) {
        self.reporting.abort();
    }
}

async fn receive(receiver: &Receiver) -> String {
    let mut bytes = [0; 1024];
    let length = tokio::time::timeout(TIMEOUT, receiver.recv(&mut bytes))
        .await
        .expect("no notification was sent")
        .unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

const HEALTHY: &str =
    "WATCHDOG=1\nSTATUS=0 runs under way, 0 labelled tickets, 0 pending updates, 0 polls";

#[tokio::test]
async fn notifies_the_watchdog_while_healthy() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    let manager = FakeManager::start(&app, dir.path(), Some(Duration::from_millis(300)));
    for _ in 0..3 {
        assert_eq!(manager.next_message().await, HEALTHY);
    }
}

#[tokio::test]
async fn reports_only_the_status_without_a_watchdog() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    let manager = FakeManager::start(&app, dir.path(), None);
    assert_eq!(
        manager.next_message().await,
        HEALTHY.strip_prefix("WATCHDOG=1\n").unwrap()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stops_notifying_the_watchdog_while_the_writer_is_stuck() {
    let (store, dir) = (Store::in_memory().unwrap(), tempfile::tempdir().unwrap());
    let app = app_with(store.clone());
    let (release, released) = mpsc::channel::<()>();
    let (entered_tx, entered) = tokio::sync::oneshot::channel();
    let mut entered_tx = Some(entered_tx);
    // Blocks the writer thread inside a transaction, as a disk that hangs would.
    let stuck = tokio::spawn(async move {
        store
            .write(move |_| {
                if let Some(entered) = entered_tx.take() {
                    entered.send(()).unwrap();
                }
                released.recv().unwrap();
                Ok(())
            })
            .await
    });
    entered.await.unwrap();
    let manager = FakeManager::start(&app, dir.path(), Some(Duration::from_millis(300)));
    for _ in 0..3 {
        let message = manager.next_message().await;
        assert_eq!(
            message,
            "STATUS=Stuck: the store's writer does not respond."
        );
    }
    release.send(()).unwrap();
    stuck.await.unwrap().unwrap();
    assert_eq!(manager.next_message_with("WATCHDOG=1").await, HEALTHY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifies_the_watchdog_during_long_reads() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    let manager = FakeManager::start(&app, dir.path(), Some(Duration::from_millis(300)));
    let (releases, readers): (Vec<_>, Vec<_>) = (0..20)
        .map(|_| {
            let ((release, released), store) = (mpsc::channel::<()>(), app.core.store().clone());
            let read = async move { store.read_long(move |_| Ok(released.recv())).await };
            (release, tokio::spawn(read))
        })
        .unzip();
    let busy = "WATCHDOG=1\nSTATUS=working; long reads are in progress";
    manager.next_message_with(busy).await;
    assert_eq!(manager.next_message().await, busy);
    drop(releases);
    for reader in readers {
        assert!(reader.await.unwrap().unwrap().is_err());
    }
    assert_eq!(manager.next_message_with(HEALTHY).await, HEALTHY);
}

#[tokio::test]
async fn stops_notifying_the_watchdog_while_a_task_is_overdue() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    app.live.heartbeats.expect_within("poll", Duration::ZERO);
    app.live
        .heartbeats
        .expect_within("watch", Duration::from_secs(600));
    let manager = FakeManager::start(&app, dir.path(), Some(Duration::from_millis(300)));
    for _ in 0..2 {
        let message = manager.next_message().await;
        assert_eq!(message, "STATUS=Stuck: the task poll missed its heartbeat.");
    }
    app.live
        .heartbeats
        .expect_within("poll", Duration::from_secs(600));
    assert_eq!(manager.next_message_with("WATCHDOG=1").await, HEALTHY);
    // A retired task is never overdue.
    app.live.heartbeats.expect_within("poll", Duration::ZERO);
    app.live.heartbeats.retire("poll");
    manager.next_message().await;
    assert_eq!(manager.next_message().await, HEALTHY);
}

#[tokio::test]
async fn supports_abstract_sockets_and_ignores_a_missing_manager() {
    let name = format!("agent-implement-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let bound = UnixDatagram::bind_addr(&address).unwrap();
    bound.set_nonblocking(true).unwrap();
    let receiver = Receiver::from_std(bound).unwrap();
    let notifier = ServiceManagerNotifier::connect(Some(&Supervisor {
        socket: format!("@{name}"),
        watchdog: None,
    }));
    notifier.notify_ready();
    assert_eq!(receive(&receiver).await, "READY=1\nSTATUS=Started.");
    notifier.notify_stopping();
    assert_eq!(receive(&receiver).await, "STOPPING=1\nSTATUS=Stopping.");
    drop(receiver);
    notifier.notify_ready();
}

#[tokio::test]
async fn every_engine_task_sends_heartbeats() {
    let app = app();
    let (shutdown, signal) = ShutdownSignal::new();
    let engine = tokio::spawn(engine::run(app.clone(), signal));
    let far = Instant::now() + Duration::from_secs(1_000_000);
    let expected = [
        "follow-up",
        "outbox",
        "poll",
        "reap",
        "reconcile",
        "run-monitor",
    ];
    let mut seen = BTreeSet::new();
    let started = Instant::now();
    while !expected.iter().all(|name| seen.contains(name)) {
        assert!(
            started.elapsed() < TIMEOUT,
            "only {seen:?} sent a heartbeat"
        );
        match app.live.heartbeats.overdue(far) {
            Some(name) => {
                seen.insert(name);
                app.live.heartbeats.retire(name);
            }
            None => tokio::task::yield_now().await,
        }
    }
    shutdown.send(true).unwrap();
    engine.await.unwrap();
    assert_eq!(app.live.heartbeats.overdue(far), None);
}

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc;

use clap::Parser;
use tokio::net::UnixDatagram as Ear;
use tokio::task::JoinHandle;

use super::*;
use engine::ShutdownSignal;
use engine::app::AppOptions;
use engine::config::{Config, Options};
use store::Store;

/// How long may anything take that must happen?
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn app() -> App {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Line::parse_from(["serve"]).options;
    let config = Config::from_options(options).unwrap();
    App::new(config, Store::in_memory().unwrap(), AppOptions::default()).unwrap()
}

/// A stand-in service manager, and a service that tells it how it is.
struct Manager {
    ear: Ear,
    keeper: JoinHandle<Infallible>,
}

impl Manager {
    fn of(app: &App, dir: &Path, watchdog: Option<Duration>) -> Self {
        let path = dir.join("notify");
        let ear = Ear::bind(&path).unwrap();
        let supervision = ServiceManagerNotifier::connect(Some(&Supervisor {
            socket: path.to_str().unwrap().to_owned(),
            watchdog,
        }));
        let app = app.clone();
        let keeper = tokio::spawn(async move { supervision.report_periodically(&app).await });
        Self { ear, keeper }
    }

    async fn hears(&self) -> String {
        heard(&self.ear).await
    }

    /// What it hears until something that begins like this, which it answers.
    async fn hears_at_last(&self, begin: &str) -> String {
        loop {
            let word = self.hears().await;
            if word.starts_with(begin) {
                return word;
            }
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn heard(ear: &Ear) -> String {
    let mut bytes = [0; 1024];
    let length = tokio::time::timeout(PATIENCE, ear.recv(&mut bytes))
        .await
        .expect("nothing was said")
        .unwrap();
    String::from_utf8(bytes[..length].to_vec()).unwrap()
}

const FED: &str =
    "WATCHDOG=1\nSTATUS=0 under way, 0 flagged in sight, 0 to deliver, 0 polls so far";

#[tokio::test]
async fn a_service_that_lives_feeds_the_watchdog_again_and_again() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    let manager = Manager::of(&app, dir.path(), Some(Duration::from_millis(300)));
    for _ in 0..3 {
        assert_eq!(manager.hears().await, FED);
    }
}

#[tokio::test]
async fn without_a_watchdog_the_state_alone_is_told() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    let manager = Manager::of(&app, dir.path(), None);
    assert_eq!(
        manager.hears().await,
        FED.strip_prefix("WATCHDOG=1\n").unwrap()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_writer_feeds_nobody_and_a_freed_one_does_again() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    let (free, held) = mpsc::channel::<()>();
    let (holds, is_held) = tokio::sync::oneshot::channel();
    let mut holds = Some(holds);
    let store = app.store.clone();
    // The writer's own thread stands still inside a transaction, as behind a disk that hangs.
    let stuck = tokio::spawn(async move {
        store
            .write(move |_| {
                if let Some(holds) = holds.take() {
                    holds.send(()).unwrap();
                }
                held.recv().unwrap();
                Ok(())
            })
            .await
    });
    is_held.await.unwrap();
    let manager = Manager::of(&app, dir.path(), Some(Duration::from_millis(300)));
    for _ in 0..3 {
        let word = manager.hears().await;
        assert_eq!(word, "STATUS=Stuck: the store's writer does not answer.");
    }
    free.send(()).unwrap();
    stuck.await.unwrap().unwrap();
    assert_eq!(manager.hears_at_last("WATCHDOG=1").await, FED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_others_that_read_is_fed_all_the_same() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    let manager = Manager::of(&app, dir.path(), Some(Duration::from_millis(300)));
    let (held, readers): (Vec<_>, Vec<_>) = (0..20)
        .map(|_| {
            let ((free, held), store) = (mpsc::channel::<()>(), app.store.clone());
            let read = async move { store.read_long(move |_| Ok(held.recv())).await };
            (free, tokio::spawn(read))
        })
        .unzip();
    let busy = "WATCHDOG=1\nSTATUS=at work; long lists are being read";
    manager.hears_at_last(busy).await;
    assert_eq!(manager.hears().await, busy);
    drop(held);
    for reader in readers {
        assert!(reader.await.unwrap().unwrap().is_err());
    }
    assert_eq!(manager.hears_at_last(FED).await, FED);
}

#[tokio::test]
async fn a_task_that_does_not_keep_its_word_feeds_nobody() {
    let (app, dir) = (app(), tempfile::tempdir().unwrap());
    app.heartbeats.expect_within("poll", Duration::ZERO);
    app.heartbeats
        .expect_within("watch", Duration::from_secs(600));
    let manager = Manager::of(&app, dir.path(), Some(Duration::from_millis(300)));
    for _ in 0..2 {
        let word = manager.hears().await;
        assert_eq!(word, "STATUS=Stuck: the task poll has not been heard from.");
    }
    app.heartbeats
        .expect_within("poll", Duration::from_secs(600));
    assert_eq!(manager.hears_at_last("WATCHDOG=1").await, FED);
    // A task that has ended owes nothing.
    app.heartbeats.expect_within("poll", Duration::ZERO);
    app.heartbeats.retire("poll");
    manager.hears().await;
    assert_eq!(manager.hears().await, FED);
}

#[tokio::test]
async fn an_abstract_socket_is_reached_and_a_manager_that_is_gone_is_no_fault() {
    let name = format!("agent-implement-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let bound = UnixDatagram::bind_addr(&address).unwrap();
    bound.set_nonblocking(true).unwrap();
    let ear = Ear::from_std(bound).unwrap();
    let supervision = ServiceManagerNotifier::connect(Some(&Supervisor {
        socket: format!("@{name}"),
        watchdog: None,
    }));
    supervision.notify_ready();
    assert_eq!(heard(&ear).await, "READY=1\nSTATUS=Started.");
    supervision.notify_stopping();
    assert_eq!(heard(&ear).await, "STOPPING=1\nSTATUS=Stopping.");
    drop(ear);
    supervision.notify_ready();
}

#[tokio::test]
async fn every_task_of_the_engine_gives_its_word() {
    let app = app();
    let (hand, stop) = ShutdownSignal::new();
    let engine = tokio::spawn(engine::run(app.clone(), stop));
    let far = Instant::now() + Duration::from_secs(1_000_000);
    let expected = ["deliver", "follow-up", "heal", "poll", "reap", "watch"];
    let mut seen = BTreeSet::new();
    let began = Instant::now();
    while !expected.iter().all(|name| seen.contains(name)) {
        assert!(began.elapsed() < PATIENCE, "only {seen:?} gave it");
        match app.heartbeats.overdue(far) {
            Some(name) => {
                seen.insert(name);
                app.heartbeats.retire(name);
            }
            None => tokio::task::yield_now().await,
        }
    }
    hand.send(true).unwrap();
    engine.await.unwrap();
    assert_eq!(app.heartbeats.overdue(far), None);
}

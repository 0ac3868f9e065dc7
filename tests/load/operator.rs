//! The operator's clients: two open panels, a metrics collector and one backup.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::http_client::{self, HttpConnection, encode_request};
use crate::load_env::LoadEnv;
use crate::measurements::RequestKind;
use crate::process;
use crate::record_error;
use crate::webhooks::sleep_until_or_end;

/// Number of open panels.
const PANELS: u32 = 2;

/// Interval between two refreshes of a panel. Constant changes make a panel refresh at its maximum rate.
const PANEL_INTERVAL: Duration = Duration::from_secs(5);

const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);

/// Lists shown by the overview, the issues panel, the pull request panel and the scoreboard.
const LISTS: [(RequestKind, &str); 6] = [
    (RequestKind::Log, "/api/log"),
    (RequestKind::Issues, "/api/issues"),
    (RequestKind::Blockers, "/api/blockers?all=true"),
    (RequestKind::Pulls, "/api/pulls"),
    (RequestKind::Outbox, "/api/outbox"),
    (RequestKind::Scoreboard, "/api/scoreboard?by=team"),
];

pub fn spawn_clients(env: &Arc<LoadEnv>, traffic: &mut JoinSet<()>) {
    let started = Instant::now();
    for panel in 0..PANELS {
        traffic.spawn(read_events(Arc::clone(env)));
        let first = started + PANEL_INTERVAL * panel / PANELS;
        traffic.spawn(poll_lists(Arc::clone(env), first));
    }
    traffic.spawn(scrape(Arc::clone(env), started));
    traffic.spawn(back_up(Arc::clone(env), started));
}

/// Reads the event stream and reconnects if the service closes it.
async fn read_events(env: Arc<LoadEnv>) {
    while !env.is_stopped() {
        env.recorder.count("event streams opened", 1);
        let on_event = |name: &str| {
            let _ = name;
            env.recorder.count("events seen", 1);
        };
        let stream = http_client::read_event_stream(env.service, &env.token, on_event);
        tokio::select! {
            ended = stream => if let Err(error) = ended {
                record_error(&env.recorder, "event stream", &error);
            },
            _ = sleep_until_or_end(&env, Instant::now() + Duration::from_secs(1_000_000)) => return,
        }
    }
}

async fn poll_lists(env: Arc<LoadEnv>, first: Instant) {
    let mut connection = HttpConnection::new(env.service);
    for round in 0_u32.. {
        let due = first + PANEL_INTERVAL * round;
        if !sleep_until_or_end(&env, due).await {
            return;
        }
        for (kind, path) in LISTS {
            get(&env, &mut connection, kind, path).await;
        }
        let job = env.acknowledged_runs().last().map(|run| run.job.clone());
        if let Some(job) = job {
            get(
                &env,
                &mut connection,
                RequestKind::Steps,
                &format!("/api/jobs/{job}/steps"),
            )
            .await;
        }
    }
}

async fn scrape(env: Arc<LoadEnv>, started: Instant) {
    for round in 0_u32.. {
        if !sleep_until_or_end(&env, started + SCRAPE_INTERVAL * round).await {
            return;
        }
        let mut connection = HttpConnection::new(env.service);
        get(&env, &mut connection, RequestKind::Metrics, "/metrics").await;
    }
}

/// Requests one list. Like in a panel, each request is scheduled when the previous response has arrived.
async fn get(env: &LoadEnv, connection: &mut HttpConnection, kind: RequestKind, path: &str) {
    let bearer = format!("Bearer {}", env.token);
    let request = encode_request("GET", path, &[("authorization", &bearer)], b"");
    let scheduled_at = Instant::now();
    match connection.send(&request).await {
        Ok(response) if response.status == 200 => env.recorder.record_response(kind, scheduled_at),
        Ok(response) => {
            let (status, excerpt) = (response.status, response.excerpt());
            env.recorder
                .record_error(format!("{}: {status} {excerpt}", kind.name()));
        }
        Err(error) => record_error(&env.recorder, kind.name(), &error),
    }
}

/// Creates one backup in the middle of the test, with the `backup` command.
async fn back_up(env: Arc<LoadEnv>, started: Instant) {
    let middle = started + env.plan.warm_up + env.plan.duration / 2;
    if !sleep_until_or_end(&env, middle).await {
        return;
    }
    let (file, data) = (env.dir.path().join("backup"), env.data_dir());
    let backup = tokio::task::spawn_blocking(move || {
        let (file, data) = (file.to_string_lossy(), data.to_string_lossy());
        process::run(&["backup", &file, "--data-dir", &data])
    });
    let (code, _, stderr) = process::exit_and_output(&backup.await.unwrap());
    match code {
        0 => env.recorder.count("backups", 1),
        _ => env.recorder.record_error(format!("backup: {stderr}")),
    }
}

/// Current metrics page.
pub async fn scrape_metrics(env: &LoadEnv) -> String {
    env.admin_request("GET", "/metrics", None).await.text()
}

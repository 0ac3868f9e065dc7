//! The operator's side: two panels that are open, a collector of metrics, one backup.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::http_client::{self, HttpConnection, encode_request};
use crate::load_env::LoadEnv;
use crate::measurements::RequestKind;
use crate::process;
use crate::record_error;
use crate::webhooks::sleep_until_or_end;

/// Panels that are open at a time.
const PANELS: u32 = 2;

/// How often does a panel ask again? What changes all the time makes it look as often as it may.
const LOOK: Duration = Duration::from_secs(5);

const SCRAPE: Duration = Duration::from_secs(15);

/// The lists of the overview, of the issues and of what is open.
const LISTS: [(RequestKind, &str); 5] = [
    (RequestKind::Log, "/api/log"),
    (RequestKind::Issues, "/api/issues"),
    (RequestKind::Blockers, "/api/blockers?all=true"),
    (RequestKind::Pulls, "/api/pulls"),
    (RequestKind::Outbox, "/api/outbox"),
];

pub fn spawn_clients(scene: &Arc<LoadEnv>, traffic: &mut JoinSet<()>) {
    let began = Instant::now();
    for panel in 0..PANELS {
        traffic.spawn(listen(Arc::clone(scene)));
        let first = began + LOOK * panel / PANELS;
        traffic.spawn(look(Arc::clone(scene), first));
    }
    traffic.spawn(scrape(Arc::clone(scene), began));
    traffic.spawn(back_up(Arc::clone(scene), began));
}

/// Who falls behind is let go by the service, and comes back.
async fn listen(scene: Arc<LoadEnv>) {
    while !scene.is_stopped() {
        scene.recorder.count("event streams opened", 1);
        let told = |name: &str| {
            let _ = name;
            scene.recorder.count("events seen", 1);
        };
        let listening = http_client::read_event_stream(scene.service, &scene.token, told);
        tokio::select! {
            ended = listening => if let Err(error) = ended {
                record_error(&scene.recorder, "event stream", &error);
            },
            _ = sleep_until_or_end(&scene, Instant::now() + Duration::from_secs(1_000_000)) => return,
        }
    }
}

async fn look(scene: Arc<LoadEnv>, first: Instant) {
    let mut line = HttpConnection::new(scene.service);
    for round in 0_u32.. {
        let due = first + LOOK * round;
        if !sleep_until_or_end(&scene, due).await {
            return;
        }
        for (kind, path) in LISTS {
            get(&scene, &mut line, kind, path).await;
        }
        let job = scene
            .acknowledged_runs()
            .last()
            .map(|told| told.job.clone());
        if let Some(job) = job {
            get(
                &scene,
                &mut line,
                RequestKind::Steps,
                &format!("/api/jobs/{job}/steps"),
            )
            .await;
        }
    }
}

async fn scrape(scene: Arc<LoadEnv>, began: Instant) {
    for round in 0_u32.. {
        if !sleep_until_or_end(&scene, began + SCRAPE * round).await {
            return;
        }
        let mut line = HttpConnection::new(scene.service);
        get(&scene, &mut line, RequestKind::Metrics, "/metrics").await;
    }
}

/// A list after the other, as a panel asks for them: each is due when the one before has come.
async fn get(scene: &LoadEnv, line: &mut HttpConnection, kind: RequestKind, path: &str) {
    let bearer = format!("Bearer {}", scene.token);
    let request = encode_request("GET", path, &[("authorization", &bearer)], b"");
    let meant_for = Instant::now();
    match line.send(&request).await {
        Ok(answer) if answer.status == 200 => scene.recorder.record_response(kind, meant_for),
        Ok(answer) => {
            let (status, said) = (answer.status, answer.excerpt());
            scene
                .recorder
                .record_error(format!("{}: {status} {said}", kind.name()));
        }
        Err(error) => record_error(&scene.recorder, kind.name(), &error),
    }
}

/// Once, in the middle, with the operator's own command.
async fn back_up(scene: Arc<LoadEnv>, began: Instant) {
    let middle = began + scene.plan.warm_up + scene.plan.duration / 2;
    if !sleep_until_or_end(&scene, middle).await {
        return;
    }
    let (file, data) = (scene.dir.path().join("backup"), scene.data_dir());
    let taking = tokio::task::spawn_blocking(move || {
        let (file, data) = (file.to_string_lossy(), data.to_string_lossy());
        process::run(&["backup", &file, "--data-dir", &data])
    });
    let (code, _, said) = process::exit_and_output(&taking.await.unwrap());
    match code {
        0 => scene.recorder.count("backups", 1),
        _ => scene.recorder.record_error(format!("backup: {said}")),
    }
}

/// The page of metrics as it is now.
pub async fn scrape_metrics(scene: &LoadEnv) -> String {
    scene.admin_request("GET", "/metrics", None).await.text()
}

//! The operator's side: two panels that are open, a collector of metrics, one backup.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::failed;
use crate::hooks::rest_until;
use crate::measure::Kind;
use crate::process;
use crate::scene::Scene;
use crate::wire::{self, Line, request};

/// Panels that are open at a time.
const PANELS: u32 = 2;

/// How often does a panel ask again? What changes all the time makes it look as often as it may.
const LOOK: Duration = Duration::from_secs(5);

const SCRAPE: Duration = Duration::from_secs(15);

/// The lists of the overview, of the issues and of what is open.
const LISTS: [(Kind, &str); 5] = [
    (Kind::Log, "/api/log"),
    (Kind::Issues, "/api/issues"),
    (Kind::Blockers, "/api/blockers?all=true"),
    (Kind::Pulls, "/api/pulls"),
    (Kind::Outbox, "/api/outbox"),
];

pub fn open_all(scene: &Arc<Scene>, traffic: &mut JoinSet<()>) {
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
async fn listen(scene: Arc<Scene>) {
    while !scene.is_over() {
        scene.book.note("event streams opened", 1);
        let told = |name: &str| {
            let _ = name;
            scene.book.note("events seen", 1);
        };
        let listening = wire::listen(scene.service, &scene.token, told);
        tokio::select! {
            ended = listening => if let Err(error) = ended {
                failed(&scene.book, "event stream", &error);
            },
            _ = rest_until(&scene, Instant::now() + Duration::from_secs(1_000_000)) => return,
        }
    }
}

async fn look(scene: Arc<Scene>, first: Instant) {
    let mut line = Line::to(scene.service);
    for round in 0_u32.. {
        let due = first + LOOK * round;
        if !rest_until(&scene, due).await {
            return;
        }
        for (kind, path) in LISTS {
            get(&scene, &mut line, kind, path).await;
        }
        let job = scene.told().last().map(|told| told.job.clone());
        if let Some(job) = job {
            get(
                &scene,
                &mut line,
                Kind::Steps,
                &format!("/api/jobs/{job}/steps"),
            )
            .await;
        }
    }
}

async fn scrape(scene: Arc<Scene>, began: Instant) {
    for round in 0_u32.. {
        if !rest_until(&scene, began + SCRAPE * round).await {
            return;
        }
        let mut line = Line::to(scene.service);
        get(&scene, &mut line, Kind::Metrics, "/metrics").await;
    }
}

/// A list after the other, as a panel asks for them: each is due when the one before has come.
async fn get(scene: &Scene, line: &mut Line, kind: Kind, path: &str) {
    let bearer = format!("Bearer {}", scene.token);
    let request = request("GET", path, &[("authorization", &bearer)], b"");
    let meant_for = Instant::now();
    match line.ask(&request).await {
        Ok(answer) if answer.status == 200 => scene.book.answered(kind, meant_for),
        Ok(answer) => {
            let (status, said) = (answer.status, answer.excerpt());
            scene
                .book
                .error(format!("{}: {status} {said}", kind.name()));
        }
        Err(error) => failed(&scene.book, kind.name(), &error),
    }
}

/// Once, in the middle, with the operator's own command.
async fn back_up(scene: Arc<Scene>, began: Instant) {
    let middle = began + scene.plan.warm_up + scene.plan.span / 2;
    if !rest_until(&scene, middle).await {
        return;
    }
    let (file, data) = (scene.dir.path().join("backup"), scene.data_dir());
    let taking = tokio::task::spawn_blocking(move || {
        let (file, data) = (file.to_string_lossy(), data.to_string_lossy());
        process::run(&["backup", &file, "--data-dir", &data])
    });
    let (code, _, said) = process::said(&taking.await.unwrap());
    match code {
        0 => scene.book.note("backups", 1),
        _ => scene.book.error(format!("backup: {said}")),
    }
}

/// The page of metrics as it is now.
pub async fn metrics(scene: &Scene) -> String {
    scene.ask("GET", "/metrics", None).await.text()
}

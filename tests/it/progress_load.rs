//! A thousand reports over 64 connections: all are stored, in far fewer commits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::crypto::run_token::TokenAudience;
use domain::job::JobKind;
use serde_json::json;
use store::{Store, steps};

use crate::api_server::{ALL_FEATURES, ApiServer, dispatched_job};
use crate::test_env::open_store;

const REPORTS: usize = 1000;
const CONNECTIONS: usize = 64;

/// At most 500 steps per run are stored.
const RUNS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_reports_are_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start_with(ALL_FEATURES, Store::open(dir.path()).unwrap()).await;
    let runs: Vec<_> = (0..RUNS)
        .map(|number| dispatched_job(&format!("01JOB{number}"), JobKind::Implementation))
        .collect();
    let mut tokens = Vec::new();
    for run in &runs {
        server.put_job(run).await;
        tokens.push(server.run_token(run, TokenAudience::Progress));
    }
    let before = server.store.stats().commits;

    let disk = tokio::spawn(slow_disk(server.store.clone()));
    let server = Arc::new(server);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|client| {
            let (server, token) = (Arc::clone(&server), tokens[client % RUNS].clone());
            tokio::spawn(async move {
                for number in (client..REPORTS).step_by(CONNECTIONS) {
                    let body = json!({"step": {
                        "id": format!("step-{number:04}"), "type": "clone", "status": "passed",
                        "started_at": "2027-01-15T08:00:00Z",
                    }});
                    let response =
                        server.send("POST", "/runner/progress", &token, body.to_string());
                    assert_eq!(response.await.status, 200);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    disk.abort();
    // Waits for the running task to end.
    assert!(disk.await.is_err());
    let commits = server.store.stats().commits - before;
    assert!(commits < (REPORTS / 4) as u64, "{commits} commits");

    // The store file stays locked while any task holds the store.
    Arc::into_inner(server).unwrap().stop().await.unwrap();
    let store = open_store(dir.path()).await;
    let stored = runs
        .iter()
        .flat_map(|run| store.read(|tx| steps::of_job(tx, &run.id)).unwrap());
    let ids: BTreeSet<String> = stored.map(|step| step.id).collect();
    assert_eq!(ids.len(), REPORTS);
}

/// Makes every commit slow, so that the number of reports per commit does not depend on the machine's
/// load.
async fn slow_disk(store: Store) {
    loop {
        let write = store.write(|_| {
            std::thread::sleep(Duration::from_millis(50));
            Ok(())
        });
        write.await.unwrap();
    }
}

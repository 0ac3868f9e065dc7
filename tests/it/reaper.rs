//! Reaper rules by age, dry runs, and machines that must never be destroyed.

use std::time::Duration;

use domain::issue::System;
use domain::job::{Job, JobKind, JobState, RunHandle, RunnerKind};
use domain::machine::HostKind;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, FaultRates, InjectedFault};
use reqwest::Method;
use serde_json::{Value, json};
use store::jobs;

use crate::api_server::{ACCESS_CODE, ApiServer, dispatched_job};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Environment with both session hosts, a manually driven engine, and runs in VMs.
async fn machine_env(flags: &[(&'static str, &str)]) -> TestEnv {
    let mut flag_list = vec![("--runner-mode", "vm".to_owned())];
    flag_list.extend(
        flags
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned())),
    );
    TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        extra_flags: flag_list,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await
}

impl TestEnv {
    /// Runs the reaper once, and what it enqueued.
    pub async fn reap(&self) {
        engine::reap::run_once(&self.app).await.unwrap();
        engine::outbox_worker::drain(&self.app).await.unwrap();
    }

    /// Adds a machine labelled with this instance and job, without a running program. IDs beginning with
    /// `c` are containers, those beginning with `k` are Jobs of Kubernetes.
    pub fn add_machine(&self, id: &str, job: &str) {
        let instance = self.app.vendors.sessions.instance();
        let labels = [
            ("agent_implement_purpose", "session"),
            ("agent_implement_instance", instance),
            ("agent_implement_dispatch", job),
            ("agent_implement_issue", "ENG-7"),
            ("agent_implement_team", "ENG"),
            ("agent_implement_repo", "acme/shop"),
        ];
        let host = match id.as_bytes() {
            [b'c', ..] => HostKind::Local,
            [b'k', ..] => HostKind::Kubernetes,
            _ => HostKind::Vm,
        };
        self.fake_host(host).add_foreign_machine(id, id, &labels);
    }

    /// Adds a machine of another instance, and one that no service created.
    pub fn add_foreign_machines(&self, host: HostKind) {
        let labels = [
            ("agent_implement_purpose", "session"),
            ("agent_implement_instance", "somebody-else"),
            ("agent_implement_dispatch", "01X"),
        ];
        let host = self.fake_host(host);
        host.add_foreign_machine("foreign", "foreign", &labels);
        host.add_foreign_machine("unlabelled", "unlabelled", &[]);
    }

    /// Sorted IDs of all machines, containers and Jobs.
    pub fn machine_ids(&self) -> Vec<String> {
        let machines =
            { HostKind::ALL.into_iter() }.flat_map(|host| self.fake_host(host).snapshots());
        let mut ids: Vec<String> = machines.map(|machine| machine.id).collect();
        ids.sort();
        ids
    }

    async fn put(&self, job: Job) {
        let put = self.store.write(move |tx| jobs::put(tx, &job));
        put.await.unwrap();
    }

    /// Rule, machine ID and badge of each reaper action, oldest first.
    pub async fn actions(&self) -> Vec<String> {
        let rows = self.admin_get("/api/reaper/recent").await;
        let text = |action: &Value, name: &str| action[name].as_str().unwrap().to_owned();
        let mut actions: Vec<String> = rows
            .as_array()
            .unwrap()
            .iter()
            .map(|action| {
                let words = ["rule", "machineId", "badge"].map(|name| text(action, name));
                words.join(" ")
            })
            .collect();
        actions.reverse();
        actions
    }

    /// Starts a run that hangs in its machine and returns the machine's ID.
    pub async fn start_hanging_run(&self) -> String {
        self.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
        self.create_labelled_issue("ENG-1", "Add a feature");
        self.tick().await;
        let job = self.jobs("ENG-1").pop().unwrap();
        job.run.unwrap().machine().unwrap().id
    }

    /// Closes the ticket. A poll would end its job as well, so the recorded snapshot stays empty.
    pub fn close_issue_before_poll(&self) {
        self.vendors.linear().issue("ENG-1").complete();
        let now = self.app.core.now();
        let snapshots = &self.app.live.poll_snapshots;
        snapshots.record(System::Linear, Vec::new(), &[], now);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn destroys_orphans_and_finished_machines_but_not_foreign_ones() {
    let env = machine_env(&[("--reaper-alert-threshold", "3")]).await;
    env.add_foreign_machines(HostKind::Vm);
    env.add_machine("m-orphan", "01GONE");
    env.add_machine("c-orphan", "01GONE");
    env.add_machine("m-over", "01OVER");
    let completed_job = Job {
        runner: RunnerKind::Vm,
        state: JobState::Completed,
        finished_at: Some(env.app.core.now()),
        ..dispatched_job("01OVER", JobKind::GapFill)
    };
    env.put(completed_job).await;

    env.advance_clock(5 * MINUTE - 10 * SECOND);
    env.reap().await;
    let unchanged = ["c-orphan", "foreign", "m-orphan", "m-over", "unlabelled"];
    assert_eq!(env.machine_ids(), unchanged, "nothing is old enough");
    env.vendors.faults(FakeService::Fly).set_outage(true);
    env.advance_clock(2 * MINUTE);
    env.reap().await;
    env.vendors.faults(FakeService::Fly).clear();
    env.vendors.faults(FakeService::Fly).set_outage(false);
    assert_eq!(
        env.machine_ids(),
        ["foreign", "m-orphan", "m-over", "unlabelled"],
        "machines on an unreachable host are left alone"
    );
    env.reap().await;
    assert_eq!(env.machine_ids(), ["foreign", "m-over", "unlabelled"]);
    env.advance_clock(5 * MINUTE);
    env.reap().await;
    env.reap().await;
    assert_eq!(env.machine_ids(), ["foreign", "unlabelled"]);
    let expected_actions = [
        "orphan c-orphan destroyed",
        "orphan m-orphan destroyed",
        "stale-terminal-job m-over destroyed",
    ];
    assert_eq!(env.actions().await, expected_actions);
    let last = env.admin_get("/api/reaper/recent?limit=1").await;
    let action_row = &last[0];
    assert_eq!(last.as_array().unwrap().len(), 1);
    assert_eq!(
        (&action_row["tenant"], &action_row["issueIdentifier"]),
        (&json!("ENG"), &json!("ENG-7"))
    );
    assert!(action_row["ageSeconds"].as_u64().unwrap() >= 600 && action_row["at"].is_string());
    let summary = env.admin_get("/api/reaper/summary").await;
    let by_rule =
        json!({"issue-terminal": 0, "max-age-exceeded": 0, "orphan": 2, "stale-terminal-job": 1});
    assert_eq!(
        (&summary["total24h"], &summary["byRule"]),
        (&json!(3), &by_rule)
    );
    assert_eq!(summary["dryRun"], json!(false));
    assert_eq!(summary["lastSweepAt"], json!(env.app.core.now()));
    assert!(
        env.vendors.chat().messages().is_empty(),
        "three destroyed, but in three sweeps"
    );

    for id in ["m-1", "m-2", "c-3"] {
        env.add_machine(id, "01GONE");
    }
    env.advance_clock(10 * MINUTE);
    env.reap().await;
    assert_eq!(env.machine_ids(), ["foreign", "unlabelled"]);
    assert_eq!(
        env.vendors.chat().messages().len(),
        1,
        "three in one sweep raise an alert"
    );
    env.advance_clock(24 * 60 * MINUTE + MINUTE);
    let summary = env.admin_get("/api/reaper/summary").await;
    assert_eq!(summary["total24h"], json!(0));
    assert_eq!(
        env.actions().await.len(),
        6,
        "older actions are still listed"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn destroys_a_machine_after_four_hours_and_frees_its_issue() {
    let env = machine_env(&[]).await;
    let id = env.start_hanging_run().await;
    assert!(env.admin_get("/api/dedup").await.as_array().unwrap().len() == 1);
    env.advance_clock(4 * 60 * MINUTE - 10 * SECOND);
    env.reap().await;
    assert_eq!(env.machine_ids(), std::slice::from_ref(&id));
    // Fly machines are created at the real time, which advanced since the test clock was read.
    env.advance_clock(2 * MINUTE);
    env.reap().await;
    assert!(env.machine_ids().is_empty());
    assert_eq!(
        env.actions().await,
        [format!("max-age-exceeded {id} destroyed")]
    );
    let job = env.jobs("ENG-1").pop().unwrap();
    assert!(
        matches!(job.state, JobState::Failed { reason, .. } if reason == "stopped by the reaper (max-age-exceeded)")
    );
    assert_eq!(env.admin_get("/api/dedup").await, json!([]));
    let labels = env.vendors.linear().issue("ENG-1").labels();
    assert_eq!(
        labels,
        ["Agent-Implement"],
        "the in-progress marker is removed"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn destroys_the_machine_of_a_closed_issue() {
    let env = machine_env(&[]).await;
    let id = env.start_hanging_run().await;
    env.reap().await;
    assert_eq!(env.machine_ids(), std::slice::from_ref(&id));
    env.close_issue_before_poll();
    env.reap().await;
    assert!(env.machine_ids().is_empty());
    assert_eq!(
        env.actions().await,
        [format!("issue-terminal {id} destroyed")]
    );
    assert!(!env.jobs("ENG-1").pop().unwrap().is_active());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_a_machine_that_its_host_does_not_delete_once() {
    let env = machine_env(&[]).await;
    env.add_machine("m-orphan", "01GONE");
    env.advance_clock(6 * MINUTE);
    for _ in 0..3 {
        let faults = env.vendors.faults(FakeService::Fly);
        faults.inject_on_match("DELETE", InjectedFault::ErrorStatus(403));
        env.reap().await;
        env.advance_clock(MINUTE);
    }
    assert_eq!(env.actions().await, ["orphan m-orphan destroyed"]);
    let dead = env.store.read(store::outbox::dead).unwrap();
    assert_eq!(dead.len(), 1, "{dead:#?}");

    // The operator gives the service the right, and deletes the failed update.
    env.vendors.faults(FakeService::Fly).clear();
    let entry = dead[0].clone();
    let remove = env
        .store
        .write(move |tx| store::outbox::remove_dead(tx, &entry));
    remove.await.unwrap();
    env.reap().await;
    assert!(env.machine_ids().is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_each_machine_once_in_dry_run_and_destroys_none() {
    let env = machine_env(&[
        ("--reaper-dry-run", "true"),
        ("--reaper-alert-threshold", "1"),
    ])
    .await;
    env.add_machine("m-orphan", "01GONE");
    env.add_machine("c-orphan", "01GONE");
    env.advance_clock(6 * MINUTE);
    for _ in 0..3 {
        env.reap().await;
        env.advance_clock(MINUTE);
    }
    assert_eq!(env.machine_ids(), ["c-orphan", "m-orphan"]);
    let mut recorded = env.actions().await;
    recorded.sort();
    assert_eq!(
        recorded,
        ["orphan c-orphan dry-run", "orphan m-orphan dry-run"]
    );
    let summary = env.admin_get("/api/reaper/summary").await;
    assert_eq!(
        (&summary["total24h"], &summary["dryRun"]),
        (&json!(0), &json!(true))
    );
    assert!(env.vendors.chat().messages().is_empty());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_destroys_sessions_for_an_operator() {
    let env = machine_env(&[]).await;
    env.add_foreign_machines(HostKind::Vm);
    let id = env.start_hanging_run().await;
    env.add_machine("c-orphan", "01GONE");
    let job = env.jobs("ENG-1").pop().unwrap();
    let listed = env.admin_get("/api/sessions").await;
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2, "{listed:#?}");
    let find_session = |id: &str| listed.iter().find(|session| session["machineId"] == id);
    let session = find_session(&id).unwrap();
    assert_eq!(
        (&session["kind"], &session["region"]),
        (&json!("vm"), &json!("iad"))
    );
    assert!(["started", "starting", "created"].contains(&session["state"].as_str().unwrap()));
    assert_eq!(session["issueIdentifier"], json!("ENG-1"));
    assert_eq!(
        (&session["repo"], &session["jobId"]),
        (&json!("acme/shop"), &json!(job.id))
    );
    assert!(session["uptimeSeconds"].is_u64() && session["createdAt"].is_string());
    assert_eq!(find_session("c-orphan").unwrap()["kind"], json!("local"));

    let destroyed = (200, json!({"destroyed": true}));
    let delete = async |id: &str| {
        let path = format!("/api/sessions/{id}");
        let request = env.admin_request(Method::DELETE, &path, None);
        let mut request = std::pin::pin!(request);
        // The engine is driven manually, so the outbox is drained while the request waits.
        loop {
            tokio::select! {
                answer = &mut request => break answer,
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    engine::outbox_worker::drain(&env.app).await.unwrap();
                }
            }
        }
    };
    env.vendors.faults(FakeService::Fly).set_outage(true);
    let (status, response) = delete(&id).await;
    assert_eq!(status, 500, "{response}");
    assert!(response["error"].is_string(), "{response}");
    let (status, response) = env.admin_request(Method::GET, "/api/sessions", None).await;
    assert_eq!(status, 500, "{response}");
    assert_eq!(
        delete("c-orphan").await,
        destroyed,
        "the other host is reachable"
    );
    env.vendors.faults(FakeService::Fly).set_outage(false);
    env.advance_clock(10 * MINUTE);
    assert_eq!(delete(&id).await, destroyed);
    assert_eq!(delete("c-orphan").await, destroyed);
    assert_eq!(
        delete("foreign").await,
        destroyed,
        "a foreign machine is not destroyed"
    );
    assert_eq!(delete("gone").await, destroyed);
    assert_eq!(env.machine_ids(), ["foreign", "unlabelled"]);
    let stopped_job = env.jobs("ENG-1").pop().unwrap();
    assert!(
        matches!(stopped_job.state, JobState::Failed { reason, .. } if reason == "stopped by an operator")
    );
    assert_eq!(env.admin_get("/api/dedup").await, json!([]));
    assert_eq!(env.admin_get("/api/sessions").await, json!([]));
    let labels = env.vendors.linear().issue("ENG-1").labels();
    assert_eq!(labels, ["Agent-Implement"]);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_sessions_of_other_hosts_when_the_container_engine_is_down() {
    let env = machine_env(&[]).await;
    let id = env.start_hanging_run().await;
    env.add_machine("m-orphan", "01GONE");
    env.add_machine("c-orphan", "01GONE");
    env.vendors
        .faults(FakeService::Docker)
        .set_rates(FaultRates {
            drop_request_rate: 1.0,
            ..FaultRates::default()
        });
    let (status, response) = env.admin_request(Method::GET, "/api/sessions", None).await;
    assert_eq!(status, 503, "{response}");
    let error = response["error"].as_str().unwrap();
    let engine = format!("The container engine at {} ", env.vendors.docker_socket());
    assert!(error.starts_with(&engine), "{error}");
    assert!(error.contains("does not answer: "), "{error}");
    let listed = response["sessions"].as_array().unwrap().iter();
    let mut listed: Vec<&str> = { listed }
        .map(|session| session["machineId"].as_str().unwrap())
        .collect();
    listed.sort_unstable();
    let mut expected_ids = [id.as_str(), "m-orphan"];
    expected_ids.sort_unstable();
    assert_eq!(listed, expected_ids);
    // The container may exist, so the request cannot succeed.
    let (status, response) =
        { env.admin_request(Method::DELETE, "/api/sessions/c-orphan", None) }.await;
    assert_eq!(status, 503, "{response}");
    assert!(
        response["error"].as_str().unwrap().starts_with(&engine),
        "{response}"
    );

    env.advance_clock(6 * MINUTE);
    env.reap().await;
    assert_eq!(env.actions().await, ["orphan m-orphan destroyed"]);
    env.vendors.fly().host().kill(&id);
    env.tick_until("the end of the run is seen", || {
        let jobs = env.jobs("ENG-1");
        jobs.iter().all(|job| job.conclusion.is_some())
    })
    .await;
    env.stop().await;
}

#[tokio::test]
async fn lists_nothing_without_session_hosts() {
    let flags = ["--admin-access-code", ACCESS_CODE];
    let store = store::Store::in_memory().unwrap();
    let server = ApiServer::start_with(&flags, store).await;
    let token = server.sign_in().await;
    let call = async |method, path| server.send(method, path, &token, None).await;
    let fresh = call("GET", "/api/reaper/summary").await.body;
    assert_eq!(
        (&fresh["total24h"], &fresh["lastSweepAt"]),
        (&json!(0), &Value::Null)
    );
    assert_eq!(fresh["byRule"].as_object().unwrap().len(), 4);
    assert_eq!(call("GET", "/api/reaper/recent").await.body, json!([]));
    // A container engine at the default socket counts as a host.
    if server.app.vendors.sessions.hosts().next().is_none() {
        assert_eq!(call("GET", "/api/sessions").await.body, json!([]));
        let response = call("DELETE", "/api/sessions/m1").await;
        assert_eq!(response.error(), (503, "Fly sessions config not set"));
    }
    for path in ["/api/sessions", "/api/reaper/recent", "/api/reaper/summary"] {
        let unauthenticated = server.send("GET", path, "", None).await;
        assert_eq!(unauthenticated.error(), (401, "Unauthorized"), "{path}");
        assert_eq!(call("PUT", path).await.error(), (405, "Method not allowed"));
    }
}

/// A machine labelled with the job of a CI run is destroyed, and the job continues.
#[tokio::test(flavor = "multi_thread")]
async fn destroys_a_machine_of_a_ci_run_without_ending_the_job() {
    let env = machine_env(&[]).await;
    let ci_job = Job {
        state: JobState::Running,
        run: Some(RunHandle::Ci {
            id: 7,
            url: String::new(),
        }),
        ..dispatched_job("01ELSE", JobKind::Implementation)
    };
    env.put(ci_job).await;
    env.add_machine("m-1", "01ELSE");
    env.add_machine("m-2", "01ELSE");

    let (app, token) = (env.app.clone(), env.sign_in().await);
    let outbox_task = tokio::spawn(async move {
        loop {
            engine::outbox_worker::drain(&app).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let destroyed = reqwest::Client::new()
        .delete(format!("{}/api/sessions/m-1", env.address))
        .bearer_auth(token);
    assert_eq!(destroyed.send().await.unwrap().status(), 200);
    outbox_task.abort();
    assert_eq!(env.machine_ids(), ["m-2"]);

    env.advance_clock(6 * MINUTE);
    env.reap().await;
    assert_eq!(env.machine_ids(), [""; 0]);
    assert_eq!(env.actions().await, ["orphan m-2 destroyed"]);
    let job = env.store.read(|tx| jobs::get(tx, &"01ELSE".into()));
    assert_eq!(job.unwrap().unwrap().state, JobState::Running);
    env.stop().await;
}

//! Machines that nobody needs any more: each rule by the clock, dry runs, and what is never touched.

use std::time::Duration;

use domain::job::{Job, JobKind, JobState, RunHandle, RunnerKind};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, FaultRates};
use reqwest::Method;
use serde_json::{Value, json};
use store::jobs;

use crate::api_server::{ACCESS_CODE, ApiServer, dispatched_job};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A world of both hosts, turned by hand, whose runs execute in machines.
async fn world(flags: &[(&'static str, &str)]) -> TestEnv {
    let mut all = vec![("--runner-mode", "vm".to_owned())];
    all.extend(
        flags
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned())),
    );
    TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        extra_flags: all,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await
}

impl TestEnv {
    async fn reap(&self) {
        engine::reap::run_once(&self.app).await.unwrap();
        engine::outbox_worker::drain(&self.app).await.unwrap();
    }

    /// A machine of ours that was made for this job, without a program.
    fn plant(&self, id: &str, job: &str) {
        let instance = self.app.sessions.instance();
        let stamps = [
            ("agent_implement_purpose", "session"),
            ("agent_implement_instance", instance),
            ("agent_implement_dispatch", job),
            ("agent_implement_issue", "ENG-7"),
            ("agent_implement_team", "ENG"),
            ("agent_implement_repo", "acme/shop"),
        ];
        if id.starts_with('c') {
            self.vendors.docker().add_foreign_container(id, id, &stamps);
        } else {
            self.vendors.fly().add_foreign_machine(id, id, &stamps);
        }
    }

    fn plant_foreign(&self) {
        let stamps = [
            ("agent_implement_purpose", "session"),
            ("agent_implement_instance", "somebody-else"),
            ("agent_implement_dispatch", "01X"),
        ];
        self.vendors
            .fly()
            .add_foreign_machine("foreign", "foreign", &stamps);
        self.vendors
            .fly()
            .add_foreign_machine("stranger", "stranger", &[]);
    }

    /// Every machine and container, by id.
    fn there(&self) -> Vec<String> {
        let all = [
            self.vendors.fly().machines(),
            self.vendors.docker().containers(),
        ]
        .concat();
        let mut ids: Vec<String> = all.into_iter().map(|machine| machine.id).collect();
        ids.sort();
        ids
    }

    async fn put(&self, job: Job) {
        let put = self.app.store.write(move |tx| jobs::put(tx, &job));
        put.await.unwrap();
    }

    /// Rule, machine and badge of each action, oldest first.
    async fn actions(&self) -> Vec<String> {
        let told = self.admin_get("/api/reaper/recent").await;
        let text = |action: &Value, name: &str| action[name].as_str().unwrap().to_owned();
        let mut told: Vec<String> = told
            .as_array()
            .unwrap()
            .iter()
            .map(|action| {
                let words = ["rule", "machineId", "badge"].map(|name| text(action, name));
                words.join(" ")
            })
            .collect();
        told.reverse();
        told
    }

    /// A run that hangs in its machine; answers the machine's id.
    async fn at_work(&self) -> String {
        self.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
        self.create_labelled_issue("ENG-1", "Add a feature");
        self.tick().await;
        let job = self.jobs("ENG-1").pop().unwrap();
        job.run.unwrap().machine().unwrap().id
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_and_leftovers_go_when_their_time_has_come_and_strangers_stay() {
    let world = world(&[("--reaper-alert-threshold", "3")]).await;
    world.plant_foreign();
    world.plant("m-orphan", "01GONE");
    world.plant("c-orphan", "01GONE");
    world.plant("m-over", "01OVER");
    let over = Job {
        runner: RunnerKind::Vm,
        state: JobState::Completed,
        finished_at: Some(world.app.now()),
        ..dispatched_job("01OVER", JobKind::GapFill)
    };
    world.put(over).await;

    world.advance_clock(5 * MINUTE - 10 * SECOND);
    world.reap().await;
    let all = ["c-orphan", "foreign", "m-orphan", "m-over", "stranger"];
    assert_eq!(world.there(), all, "nothing is old enough");
    world.vendors.faults(FakeService::Fly).set_outage(true);
    world.advance_clock(2 * MINUTE);
    world.reap().await;
    world.vendors.faults(FakeService::Fly).clear();
    world.vendors.faults(FakeService::Fly).set_outage(false);
    assert_eq!(
        world.there(),
        ["foreign", "m-orphan", "m-over", "stranger"],
        "what cannot be listed is left alone"
    );
    world.reap().await;
    assert_eq!(world.there(), ["foreign", "m-over", "stranger"]);
    world.advance_clock(5 * MINUTE);
    world.reap().await;
    world.reap().await;
    assert_eq!(world.there(), ["foreign", "stranger"]);
    let done = [
        "orphan c-orphan destroyed",
        "orphan m-orphan destroyed",
        "stale-terminal-job m-over destroyed",
    ];
    assert_eq!(world.actions().await, done);
    let last = world.admin_get("/api/reaper/recent?limit=1").await;
    let shown = &last[0];
    assert_eq!(last.as_array().unwrap().len(), 1);
    assert_eq!(
        (&shown["tenant"], &shown["issueIdentifier"]),
        (&json!("ENG"), &json!("ENG-7"))
    );
    assert!(shown["ageSeconds"].as_u64().unwrap() >= 600 && shown["at"].is_string());
    let summary = world.admin_get("/api/reaper/summary").await;
    let by_rule =
        json!({"issue-terminal": 0, "max-age-exceeded": 0, "orphan": 2, "stale-terminal-job": 1});
    assert_eq!(
        (&summary["total24h"], &summary["byRule"]),
        (&json!(3), &by_rule)
    );
    assert_eq!(summary["dryRun"], json!(false));
    assert_eq!(summary["lastSweepAt"], json!(world.app.now()));
    assert!(
        world.vendors.chat().messages().is_empty(),
        "three, but in three sweeps"
    );

    for id in ["m-1", "m-2", "c-3"] {
        world.plant(id, "01GONE");
    }
    world.advance_clock(10 * MINUTE);
    world.reap().await;
    assert_eq!(world.there(), ["foreign", "stranger"]);
    assert_eq!(world.vendors.chat().messages().len(), 1, "a burst is told");
    world.advance_clock(24 * 60 * MINUTE + MINUTE);
    let summary = world.admin_get("/api/reaper/summary").await;
    assert_eq!(summary["total24h"], json!(0));
    assert_eq!(world.actions().await.len(), 6, "but shown");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_four_hours_goes_and_its_issue_may_run_again() {
    let world = world(&[]).await;
    let id = world.at_work().await;
    assert!(
        world
            .admin_get("/api/dedup")
            .await
            .as_array()
            .unwrap()
            .len()
            == 1
    );
    world.advance_clock(4 * 60 * MINUTE - 10 * SECOND);
    world.reap().await;
    assert_eq!(world.there(), std::slice::from_ref(&id));
    // Machines live by the machine's clock, which went on meanwhile.
    world.advance_clock(2 * MINUTE);
    world.reap().await;
    assert!(world.there().is_empty());
    assert_eq!(
        world.actions().await,
        [format!("max-age-exceeded {id} destroyed")]
    );
    let job = world.jobs("ENG-1").pop().unwrap();
    assert!(
        matches!(job.state, JobState::Failed { reason, .. } if reason == "stopped by the reaper (max-age-exceeded)")
    );
    assert_eq!(world.admin_get("/api/dedup").await, json!([]));
    let labels = world.vendors.linear().issue("ENG-1").labels();
    assert_eq!(labels, ["Agent-Implement"], "no marker of work in progress");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_of_a_closed_issue_goes() {
    let world = world(&[]).await;
    let id = world.at_work().await;
    world.reap().await;
    assert_eq!(world.there(), std::slice::from_ref(&id));
    world.vendors.linear().issue("ENG-1").complete();
    // The next poll would see it, too; this one has not been yet.
    world.app.poll_snapshots.record(
        domain::issue::System::Linear,
        Vec::new(),
        &[],
        world.app.now(),
    );
    world.reap().await;
    assert!(world.there().is_empty());
    assert_eq!(
        world.actions().await,
        [format!("issue-terminal {id} destroyed")]
    );
    assert!(!world.jobs("ENG-1").pop().unwrap().is_active());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_notes_each_machine_once_and_destroys_none() {
    let world = world(&[
        ("--reaper-dry-run", "true"),
        ("--reaper-alert-threshold", "1"),
    ])
    .await;
    world.plant("m-orphan", "01GONE");
    world.plant("c-orphan", "01GONE");
    world.advance_clock(6 * MINUTE);
    for _ in 0..3 {
        world.reap().await;
        world.advance_clock(MINUTE);
    }
    assert_eq!(world.there(), ["c-orphan", "m-orphan"]);
    let mut noted = world.actions().await;
    noted.sort();
    assert_eq!(
        noted,
        ["orphan c-orphan dry-run", "orphan m-orphan dry-run"]
    );
    let summary = world.admin_get("/api/reaper/summary").await;
    assert_eq!(
        (&summary["total24h"], &summary["dryRun"]),
        (&json!(0), &json!(true))
    );
    assert!(world.vendors.chat().messages().is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_sessions_and_destroys_them() {
    let world = world(&[]).await;
    world.plant_foreign();
    let id = world.at_work().await;
    world.plant("c-orphan", "01GONE");
    let job = world.jobs("ENG-1").pop().unwrap();
    let listed = world.admin_get("/api/sessions").await;
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2, "{listed:#?}");
    let of = |id: &str| listed.iter().find(|session| session["machineId"] == id);
    let session = of(&id).unwrap();
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
    assert_eq!(of("c-orphan").unwrap()["kind"], json!("local"));

    let destroyed = (200, json!({"destroyed": true}));
    let delete = async |id: &str| {
        let path = format!("/api/sessions/{id}");
        let asked = world.admin_request(Method::DELETE, &path, None);
        let mut asked = std::pin::pin!(asked);
        // The engine is turned by hand, so somebody must turn it.
        loop {
            tokio::select! {
                answer = &mut asked => break answer,
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    engine::outbox_worker::drain(&world.app).await.unwrap();
                }
            }
        }
    };
    world.vendors.faults(FakeService::Fly).set_outage(true);
    let (status, told) = delete(&id).await;
    assert_eq!(status, 500, "{told}");
    assert!(told["error"].is_string(), "{told}");
    let (status, told) = world
        .admin_request(Method::GET, "/api/sessions", None)
        .await;
    assert_eq!(status, 500, "{told}");
    assert_eq!(
        delete("c-orphan").await,
        destroyed,
        "the other host is there"
    );
    world.vendors.faults(FakeService::Fly).set_outage(false);
    world.advance_clock(10 * MINUTE);
    assert_eq!(delete(&id).await, destroyed);
    assert_eq!(delete("c-orphan").await, destroyed);
    assert_eq!(delete("foreign").await, destroyed, "none of ours");
    assert_eq!(delete("gone").await, destroyed);
    assert_eq!(world.there(), ["foreign", "stranger"]);
    let ended = world.jobs("ENG-1").pop().unwrap();
    assert!(
        matches!(ended.state, JobState::Failed { reason, .. } if reason == "stopped by an operator")
    );
    assert_eq!(world.admin_get("/api/dedup").await, json!([]));
    assert_eq!(world.admin_get("/api/sessions").await, json!([]));
    let labels = world.vendors.linear().issue("ENG-1").labels();
    assert_eq!(labels, ["Agent-Implement"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_does_not_answer_hides_nothing_of_the_other_host() {
    let world = world(&[]).await;
    let id = world.at_work().await;
    world.plant("m-orphan", "01GONE");
    world.plant("c-orphan", "01GONE");
    world
        .vendors
        .faults(FakeService::Docker)
        .set_rates(FaultRates {
            drop_request_rate: 1.0,
            ..FaultRates::default()
        });
    let (status, told) = world
        .admin_request(Method::GET, "/api/sessions", None)
        .await;
    assert_eq!(status, 503, "{told}");
    let error = told["error"].as_str().unwrap();
    let engine = format!("The container engine at {} ", world.vendors.docker_socket());
    assert!(error.starts_with(&engine), "{error}");
    assert!(error.contains("does not answer: "), "{error}");
    let listed = told["sessions"].as_array().unwrap().iter();
    let mut listed: Vec<&str> = { listed }
        .map(|session| session["machineId"].as_str().unwrap())
        .collect();
    listed.sort_unstable();
    let mut there = [id.as_str(), "m-orphan"];
    there.sort_unstable();
    assert_eq!(listed, there);
    // It may be there: nobody can tell.
    let (status, told) =
        { world.admin_request(Method::DELETE, "/api/sessions/c-orphan", None) }.await;
    assert_eq!(status, 503, "{told}");
    assert!(
        told["error"].as_str().unwrap().starts_with(&engine),
        "{told}"
    );

    world.advance_clock(6 * MINUTE);
    world.reap().await;
    assert_eq!(world.actions().await, ["orphan m-orphan destroyed"]);
    world.vendors.fly().kill(&id);
    world
        .tick_until("the end of the run is seen", || {
            let jobs = world.jobs("ENG-1");
            jobs.iter().all(|job| job.conclusion.is_some())
        })
        .await;
    world.stop().await;
}

#[tokio::test]
async fn without_hosts_there_are_no_sessions_and_nothing_to_reap() {
    let flags = ["--admin-access-code", ACCESS_CODE];
    let store = store::Store::in_memory().unwrap();
    let server = ApiServer::start_with(&flags, store).await;
    let token = server.sign_in().await;
    let ask = async |method, path| server.send(method, path, &token, None).await;
    let fresh = ask("GET", "/api/reaper/summary").await.body;
    assert_eq!(
        (&fresh["total24h"], &fresh["lastSweepAt"]),
        (&json!(0), &Value::Null)
    );
    assert_eq!(fresh["byRule"].as_object().unwrap().len(), 4);
    assert_eq!(ask("GET", "/api/reaper/recent").await.body, json!([]));
    // Where an engine stands at its usual place there is a host.
    if server.app.sessions.hosts().next().is_none() {
        assert_eq!(ask("GET", "/api/sessions").await.body, json!([]));
        let told = ask("DELETE", "/api/sessions/m1").await;
        assert_eq!(told.error(), (503, "Fly sessions config not set"));
    }
    for path in ["/api/sessions", "/api/reaper/recent", "/api/reaper/summary"] {
        let stranger = server.send("GET", path, "", None).await;
        assert_eq!(stranger.error(), (401, "Unauthorized"), "{path}");
        assert_eq!(ask("PUT", path).await.error(), (405, "Method not allowed"));
    }
}

/// A machine that bears the stamp of a job whose run is a workflow serves nobody: it goes, and the job
/// goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_a_run_that_is_elsewhere_goes_alone() {
    let world = world(&[]).await;
    let elsewhere = Job {
        state: JobState::Running,
        run: Some(RunHandle::Ci {
            id: 7,
            url: String::new(),
        }),
        ..dispatched_job("01ELSE", JobKind::Implementation)
    };
    world.put(elsewhere).await;
    world.plant("m-1", "01ELSE");
    world.plant("m-2", "01ELSE");

    let (app, token) = (world.app.clone(), world.sign_in().await);
    let delivering = tokio::spawn(async move {
        loop {
            engine::outbox_worker::drain(&app).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let destroyed = reqwest::Client::new()
        .delete(format!("{}/api/sessions/m-1", world.address))
        .bearer_auth(token);
    assert_eq!(destroyed.send().await.unwrap().status(), 200);
    delivering.abort();
    assert_eq!(world.there(), ["m-2"]);

    world.advance_clock(6 * MINUTE);
    world.reap().await;
    assert_eq!(world.there(), [""; 0]);
    assert_eq!(world.actions().await, ["orphan m-2 destroyed"]);
    let job = world.app.store.read(|tx| jobs::get(tx, &"01ELSE".into()));
    assert_eq!(job.unwrap().unwrap().state, JobState::Running);
    world.stop().await;
}

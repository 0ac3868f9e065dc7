//! Runs in machines and containers: from the ticket to the pull request, and every way in which a
//! machine lets its run down.

use std::time::Duration;

use domain::job::{Job, JobState, RunHandle, RunnerKind, TimeoutReason};
use domain::machine::HostKind;
use domain::mapping::{Mapping, SessionMode};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, InjectedFault, MachineSnapshot};
use store::{outbox, steps};

use crate::test_env::{EngineMode, Gate, TestEnv, TestEnvOptions, default_script, mapping};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOSTS: [HostKind; 2] = [HostKind::Vm, HostKind::Local];

/// A world whose runs execute at this host.
fn making(host: HostKind, engine: EngineMode) -> TestEnvOptions {
    TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--runner-mode", host.as_str().to_owned())],
        engine,
        ..TestEnvOptions::default()
    }
}

impl TestEnv {
    /// The machines at this host, whoever made them.
    fn machines(&self, host: HostKind) -> Vec<MachineSnapshot> {
        match host {
            HostKind::Vm => self.vendors.fly().machines(),
            HostKind::Local => self.vendors.docker().containers(),
        }
    }

    /// The one machine that is ours.
    fn machine(&self, host: HostKind) -> MachineSnapshot {
        let mut ours = self.machines(host);
        ours.retain(|machine| !machine.labels.is_empty());
        assert_eq!(ours.len(), 1, "{ours:#?}");
        ours.remove(0)
    }

    fn kill(&self, host: HostKind, id: &str) {
        match host {
            HostKind::Vm => self.vendors.fly().kill(id),
            HostKind::Local => self.vendors.docker().kill(id),
        }
    }

    fn faults_of(&self, host: HostKind) -> &fake_vendors::FaultInjector {
        self.vendors.faults(match host {
            HostKind::Vm => FakeService::Fly,
            HostKind::Local => FakeService::Docker,
        })
    }

    fn only_job(&self) -> Job {
        let jobs = self.jobs("ENG-1");
        assert_eq!(jobs.len(), 1, "{jobs:#?}");
        jobs.into_iter().next().unwrap()
    }

    /// What the ticket was told, without the times.
    fn told(&self) -> Vec<String> {
        let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
        self.comments("ENG-1").into_iter().map(first).collect()
    }
}

fn is_duration(comment: &str) -> bool {
    comment
        .strip_prefix("Session machine cleaned up. Duration: ")
        .is_some_and(|lived| lived.ends_with('s'))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_becomes_a_pull_request_in_a_machine_of_either_kind() {
    for host in HOSTS {
        let world = TestEnv::with_options(TestEnvOptions {
            mappings: vec![Mapping {
                machine_memory_mb: 300,
                machine_cpus: 1,
                extra_env: [
                    ("SESSION_NONCE".to_owned(), "stolen".to_owned()),
                    ("GREETING".to_owned(), "hello".to_owned()),
                ]
                .into(),
                ..mapping()
            }],
            ..making(host, EngineMode::Running)
        })
        .await;
        let foreign = [("agent_implement_instance", "somebody-else")];
        world
            .vendors
            .fly()
            .add_foreign_machine("f1", "foreign", &foreign);
        world
            .vendors
            .docker()
            .add_foreign_container("f2", "foreign", &foreign);
        let gate = Gate::new(&world);
        world.set_agent_script(
            "ENG-1",
            Script::new().pass([
                gate.wait_step(),
                ScriptStep::Write {
                    path: "feature.txt".into(),
                    content: "done\n".into(),
                },
            ]),
        );
        world.create_labelled_issue("ENG-1", "Add a feature");
        world
            .wait_until("the run is at work", || {
                let jobs = world.jobs("ENG-1");
                jobs.first()
                    .is_some_and(|job| job.state == JobState::Running)
            })
            .await;
        let job = world.only_job();
        let mut ours = world.machines(host);
        ours.retain(|machine| machine.name != "foreign");
        assert_eq!(ours.len(), 1);
        let machine = ours.remove(0);
        assert_stamped(&machine, &job);
        assert_given(&machine, &job);
        match host {
            HostKind::Vm => assert_one_shot(&machine),
            HostKind::Local => assert_shut_in(&machine),
        }
        let handle = job.run.as_ref().and_then(RunHandle::machine).unwrap();
        assert_eq!((handle.host, &handle.id), (host, &machine.id));
        gate.open();

        let job = world.wait_for_job_end("ENG-1").await;
        assert_eq!(job.state, JobState::Completed, "{job:#?}");
        world
            .wait_until("the machine is gone", || world.machines(host).len() == 1)
            .await;
        world.wait_for_empty_outbox().await;
        let pull = job.pull.unwrap();
        let told = world.told();
        assert_eq!(
            told[..4],
            [
                "Session machine created. Cloning repo and running setup...".to_owned(),
                "Environment ready. Implementation is running...".to_owned(),
                format!("Finished. PR #{} opened: {}", pull.number, pull.url),
                format!("Pull request opened: [#{}]({})", pull.number, pull.url),
            ]
        );
        assert!(is_duration(&told[4]) && told.len() == 5, "{told:#?}");
        let names: Vec<String> = [
            world.machines(HostKind::Vm),
            world.machines(HostKind::Local),
        ]
        .concat()
        .into_iter()
        .map(|machine| machine.name)
        .collect();
        assert_eq!(names, ["foreign", "foreign"]);
        world.finish().await;
    }
}

fn assert_stamped(machine: &MachineSnapshot, job: &Job) {
    assert_eq!(
        machine.name,
        format!("agent-{}", job.id.as_str().to_lowercase())
    );
    let stamp = |name: &str| machine.labels[&format!("agent_implement_{name}")].clone();
    assert_eq!(stamp("dispatch"), job.id.as_str());
    assert_eq!(stamp("issue"), "ENG-1");
    assert_eq!(stamp("repo"), "acme/shop");
    let nonce = &machine.env["SESSION_NONCE"];
    let public = format!("{:?} {}", machine.labels, machine.name);
    assert!(!public.contains(nonce) && !public.contains("sk-ant"));
}

/// What the session was handed, and what it was not.
fn assert_given(machine: &MachineSnapshot, job: &Job) {
    let env = &machine.env;
    assert_ne!(
        env["SESSION_NONCE"], "stolen",
        "a mapping overrides nothing of ours"
    );
    let hash = domain::crypto::sha256_hex(&env["SESSION_NONCE"]);
    assert_eq!(job.nonce_hash.as_deref(), Some(hash.as_str()));
    assert_eq!(env["GREETING"], "hello");
    assert_eq!(env["ANTHROPIC_API_KEY"], "sk-ant-canary-of-the-model");
    assert_eq!(env["GITHUB_REPOSITORY"], "acme/shop");
    let mut names: Vec<&str> = env.keys().map(String::as_str).collect();
    names.retain(|name| *name != "HOME");
    assert_eq!(
        names,
        [
            "ANTHROPIC_API_KEY",
            "GITHUB_API_URL",
            "GITHUB_REF_NAME",
            "GITHUB_REPOSITORY",
            "GITHUB_SERVER_URL",
            "GREETING",
            "RUN_CONFIG",
            "SESSION_NONCE",
            "SESSION_SECRETS",
            "SESSION_VARIABLES",
        ]
    );
    for theirs in ["lin_api_sandbox", "PRIVATE KEY", "jira-api-token"] {
        assert!(!format!("{env:?}").contains(theirs), "{theirs}");
    }
}

fn assert_one_shot(machine: &MachineSnapshot) {
    let config = &machine.create_request["config"];
    assert_eq!(config["restart"]["policy"], "no");
    assert_eq!(config["auto_destroy"], false);
    assert_eq!(config["guest"]["cpu_kind"], "shared");
    assert_eq!(config["guest"]["cpus"], 1);
    assert_eq!(config["guest"]["memory_mb"], 512, "rounded up");
    assert_eq!(machine.create_request["region"], "iad");
    assert_eq!(machine.image, "ghcr.io/acme/agent-implement-runner:latest");
}

fn assert_shut_in(container: &MachineSnapshot) {
    let host = &container.create_request["HostConfig"];
    assert!(host["Init"].is_null(), "it would keep the environment");
    assert_eq!(
        container.create_request["Entrypoint"],
        serde_json::json!([])
    );
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["CapDrop"][0], "ALL");
    assert_eq!(host["SecurityOpt"][0], "no-new-privileges");
    assert_eq!(host["Memory"], 512 << 20);
    assert_eq!(host["MemorySwap"], host["Memory"]);
    assert_eq!(host["NanoCpus"], 1_000_000_000);
    assert!(host["PidsLimit"].as_u64().is_some_and(|limit| limit > 0));
    assert!(host["Tmpfs"]["/tmp"].is_string());
    for open in ["Binds", "Mounts", "Devices", "CapAdd"] {
        assert!(host[open].is_null(), "{open}");
    }
    assert_eq!(container.create_request["User"], "1000:1000");
    assert_eq!(container.image, "agent-implement-runner:local");
}

/// Flagged, dispatched, and held at work by a script that never ends.
async fn at_work(host: HostKind) -> TestEnv {
    let world = TestEnv::with_options(making(host, EngineMode::manual())).await;
    world.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    world.create_labelled_issue("ENG-1", "Add a feature");
    world.tick().await;
    world
        .wait_until("the machine runs", || {
            let machine = world.machine(host);
            let log = match host {
                HostKind::Vm => world.vendors.fly().log(&machine.id),
                HostKind::Local => world.vendors.docker().log(&machine.id),
            };
            machine.running && !log.is_empty()
        })
        .await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_ends_without_a_word_is_judged_after_a_grace_and_taken_down() {
    for host in HOSTS {
        for out_of_memory in [false, true] {
            let world = at_work(host).await;
            let id = world.machine(host).id;
            match (host, out_of_memory) {
                (_, false) => world.kill(host, &id),
                (HostKind::Vm, true) => world.vendors.fly().kill_out_of_memory(&id),
                (HostKind::Local, true) => world.vendors.docker().kill_out_of_memory(&id),
            }
            world.tick().await;
            assert!(world.only_job().is_active(), "its report may still come");
            world.advance_clock(2 * MINUTE - SECOND);
            world.tick().await;
            assert!(world.only_job().is_active());
            world.advance_clock(SECOND);
            world.tick().await;
            let how = if out_of_memory {
                "out of memory"
            } else {
                "exit code 137"
            };
            let reason = format!("the session ended with {how} and reported no result");
            let label = match host {
                HostKind::Vm => "session_failed",
                HostKind::Local => "container_failed",
            };
            let told = world.told();
            assert_eq!(
                told[..4],
                [
                    "Session machine created. Cloning repo and running setup...".to_owned(),
                    format!("Session failed: {reason}. Machine will be cleaned up."),
                    format!("Implementation failed: {reason}"),
                    format!("Log excerpt (`{label}`)"),
                ]
            );
            assert!(is_duration(&told[4]), "{told:#?}");
            assert!(world.machines(host).is_empty());
            world.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_an_hour_and_its_log_is_read_before_it_goes() {
    for (host, timeout, label) in [
        (
            HostKind::Vm,
            TimeoutReason::MachineTimeout,
            "machine_timeout",
        ),
        (
            HostKind::Local,
            TimeoutReason::ContainerTimeout,
            "container_timeout",
        ),
    ] {
        let world = at_work(host).await;
        world.advance_clock(60 * MINUTE - SECOND);
        world.tick().await;
        assert!(world.only_job().is_active());
        world.advance_clock(SECOND);
        world.tick().await;
        assert_eq!(
            world.only_job().state,
            JobState::TimedOut { reason: timeout }
        );
        let told = world.told();
        assert_eq!(
            told[1..4],
            [
                "Session timed out: the run exceeded its time budget of 60 minutes. Machine will be cleaned up.".to_owned(),
                "Implementation failed: the run exceeded its time budget of 60 minutes".to_owned(),
                format!("Log excerpt (`{label}`)"),
            ]
        );
        assert_eq!(told[4], "Session machine cleaned up. Duration: 1h 0m 0s");
        let log = world.admin_get("/api/log").await;
        assert_eq!(log[0]["timeoutReason"], timeout.as_str());
        assert!(world.machines(host).is_empty());
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_vanishes_ends_its_run() {
    for host in HOSTS {
        let world = at_work(host).await;
        let id = world.machine(host).id;
        match host {
            HostKind::Vm => world.vendors.fly().remove(&id),
            HostKind::Local => world.vendors.docker().remove(&id),
        }
        world.tick().await;
        world.advance_clock(2 * MINUTE);
        world.tick().await;
        let told = world.told();
        let reason = "the session ended with its machine gone and reported no result";
        assert_eq!(told[2], format!("Implementation failed: {reason}"));
        assert!(is_duration(&told[3]), "there is no log to show: {told:#?}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_making_was_not_heard_of_is_adopted() {
    for (host, lost) in [
        (HostKind::Vm, vec!["POST /v1/apps"]),
        (HostKind::Local, vec!["/containers/create", "/start"]),
    ] {
        let world = TestEnv::with_options(making(host, EngineMode::Running)).await;
        for call in lost {
            world
                .faults_of(host)
                .inject_on_match(call, InjectedFault::DropResponse);
        }
        world.create_labelled_issue("ENG-1", "Add a feature");
        world
            .wait_until("the machine is known", || {
                let jobs = world.jobs("ENG-1");
                jobs.first().is_some_and(|job| job.run.is_some())
            })
            .await;
        assert_eq!(world.faults_of(host).pending(), 0);
        assert!(world.machines(host).len() <= 1);
        let job = world.wait_for_job_end("ENG-1").await;
        assert_eq!(job.state, JobState::Completed);
        assert_eq!(world.jobs("ENG-1").len(), 1);
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_comes_back_goes_on_with_the_machines_it_left() {
    let host = HostKind::Local;
    let world = TestEnv::with_options(making(host, EngineMode::Running)).await;
    let gate = Gate::new(&world);
    world.set_agent_script(
        "ENG-1",
        Script::new().pass([
            gate.wait_step(),
            ScriptStep::Write {
                path: "a.txt".into(),
                content: "a\n".into(),
            },
        ]),
    );
    world.create_labelled_issue("ENG-1", "Add a feature");
    world
        .wait_until("the run is at work", || {
            let jobs = world.jobs("ENG-1");
            jobs.first()
                .is_some_and(|job| job.state == JobState::Running)
        })
        .await;
    let before = world.machine(host).id;
    let again = TestEnvOptions {
        mappings: Vec::new(),
        ..making(host, EngineMode::Running)
    };
    let world = world.restart_service(again).await;
    assert_eq!(world.machine(host).id, before);
    world.kill(host, &before);
    world
        .wait_until("its end is seen", || {
            world.only_job().run_ended_at.is_some()
        })
        .await;
    world.stop().await;
}

/// The states of a job's steps, by name.
fn steps(world: &TestEnv) -> Vec<(String, String)> {
    let job = world.only_job().id;
    let steps = world.app.store.read(|tx| steps::of_job(tx, &job)).unwrap();
    steps
        .into_iter()
        .map(|step| (step.id, step.status))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_may_be_kept_for_a_person_until_its_time_is_over() {
    let rows = [
        (SessionMode::Interactive, default_script()),
        (
            SessionMode::Hybrid,
            Script::new().pass([ScriptStep::ExhaustTurns]),
        ),
    ];
    for (session_mode, script) in rows {
        let world = TestEnv::with_options(TestEnvOptions {
            mappings: vec![Mapping {
                session_mode,
                ..mapping()
            }],
            ..making(HostKind::Vm, EngineMode::manual())
        })
        .await;
        world.set_agent_script("ENG-1", script);
        world.create_labelled_issue("ENG-1", "Add a feature");
        world.tick().await;
        world
            .wait_until("the session is kept", || {
                steps(&world).contains(&("hold".to_owned(), "running".to_owned()))
            })
            .await;
        let done = steps(&world);
        let worked = done.iter().any(|(id, _)| id == "feedback-loop");
        assert_eq!(worked, session_mode == SessionMode::Hybrid, "{done:#?}");
        assert!(world.repo().pulls().is_empty());
        world.tick().await;
        assert!(world.only_job().is_active());
        assert!(world.machine(HostKind::Vm).running);
        world.advance_clock(60 * MINUTE);
        world.tick().await;
        let timeout = TimeoutReason::MachineTimeout;
        assert_eq!(
            world.only_job().state,
            JobState::TimedOut { reason: timeout }
        );
        assert!(world.machines(HostKind::Vm).is_empty());
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_room_is_asked_again_and_told_of_when_that_lasts() {
    let world = TestEnv::with_options(making(HostKind::Vm, EngineMode::manual())).await;
    world.vendors.fly().set_out_of_capacity(true);
    world.create_labelled_issue("ENG-1", "Add a feature");
    world.tick().await;
    assert_eq!(world.only_job().state, JobState::Reserved);
    let owed = world.app.store.read(outbox::pending).unwrap();
    let error = owed[0].last_error.clone().unwrap();
    assert!(
        error.contains("no room for the machine: could not reserve"),
        "{error}"
    );
    assert!(owed[0].outcome_unknown_since.is_none(), "nothing was made");

    world.vendors.fly().set_out_of_capacity(false);
    world.advance_clock(MINUTE);
    world.tick().await;
    assert!(world.only_job().dispatched_at.is_some());
    world.kill(HostKind::Vm, &world.machine(HostKind::Vm).id);
    world.tick().await;
    world.advance_clock(2 * MINUTE);
    world.tick().await;

    world.vendors.fly().set_out_of_capacity(true);
    world.create_labelled_issue("ENG-2", "Add another");
    world.tick().await;
    world.advance_clock(31 * MINUTE);
    world.tick().await;
    let job = world.jobs("ENG-2").pop().unwrap();
    assert_eq!(job.state.status(), "failed");
    let told = world.comments("ENG-2");
    assert!(told[0].starts_with("Implementation failed: the run could not be dispatched: the host has no room for the machine: could not reserve resource"), "{told:#?}");
    assert_eq!(told.len(), 1, "no machine, no session: {told:#?}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_fetched_when_it_is_not_there() {
    let host = HostKind::Local;
    let image = |image: &str| {
        let mut made = making(host, EngineMode::manual());
        made.extra_flags
            .push(("--local-runner-image", image.to_owned()));
        made
    };
    let world = TestEnv::with_options(image("localhost:5000/acme/runner")).await;
    world
        .vendors
        .docker()
        .add_registry_image("localhost:5000/acme/runner:latest");
    world.create_labelled_issue("ENG-1", "Add a feature");
    world.tick().await;
    let container = world.machine(host);
    assert_eq!(container.image, "localhost:5000/acme/runner");
    world.stop().await;

    let world = TestEnv::with_options(image("acme/nowhere:1")).await;
    world.create_labelled_issue("ENG-1", "Add a feature");
    world.tick().await;
    assert_eq!(world.only_job().state.status(), "failed");
    let told = world.told();
    assert_eq!(
        told,
        [
            "Implementation failed: the run could not be dispatched: the image acme/nowhere:1 is not there and could not be fetched: pull access denied for acme/nowhere:1, repository does not exist"
        ]
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_runs_beside_the_run_that_counts_and_is_told_to_nobody() {
    let world = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--runner-mode", "shadow".to_owned())],
        ..TestEnvOptions::default()
    })
    .await;
    world.create_labelled_issue("ENG-1", "Add a feature");
    world
        .wait_until("both have ended", || {
            let jobs = world.jobs("ENG-1");
            jobs.len() == 2 && jobs.iter().all(|job| !job.is_active())
        })
        .await;
    world.wait_for_empty_outbox().await;
    let (mut shadows, mut real): (Vec<Job>, Vec<Job>) =
        world.jobs("ENG-1").into_iter().partition(|job| job.shadow);
    let (shadow, real) = (shadows.remove(0), real.remove(0));
    assert_eq!(
        (real.runner, shadow.runner),
        (RunnerKind::Ci, RunnerKind::Vm)
    );
    assert_eq!(real.state, JobState::Completed);
    assert_eq!(shadow.state, JobState::Completed, "{shadow:#?}");
    assert_eq!(shadow.branch, format!("{}-shadow", real.branch));
    assert_eq!((&shadow.pull, shadow.result_accepted), (&None, true));
    let repo = world.repo();
    assert_eq!(repo.pulls().len(), 1, "one pull request");
    for branch in [&real.branch, &shadow.branch] {
        let written = repo.read_file(branch, "feature.txt");
        assert_eq!(written.as_deref(), Some("done\n"), "{branch}");
    }
    let pull = real.pull.unwrap();
    assert_eq!(
        world.comments("ENG-1"),
        [format!(
            "Pull request opened: [#{}]({})",
            pull.number, pull.url
        )],
        "one history"
    );
    assert_eq!(world.vendors.chat().messages().len(), 2);
    assert!(world.machines(HostKind::Vm).is_empty());
    let log = world.admin_get("/api/log").await;
    let rows = log.as_array().unwrap().iter();
    let shadows = rows.filter(|row| row["shadow"] == true).count();
    assert_eq!((log.as_array().unwrap().len(), shadows), (2, 1), "two runs");
    world.finish().await;
}

//! Runs in VMs, containers and Kubernetes: the normal path, lost machines, timeouts, retries and shadow runs.

mod kubernetes;

use std::time::Duration;

use domain::job::{Job, JobState, RunHandle, RunnerKind, TimeoutReason};
use domain::machine::HostKind;
use domain::mapping::{Mapping, SessionMode};
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{InjectedFault, MachineSnapshot};
use store::{outbox, steps};

use crate::test_env::{EngineMode, Gate, TestEnv, TestEnvOptions, default_script, mapping};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOSTS: [HostKind; 3] = HostKind::ALL;

/// Options for a test environment whose runs execute on this kind of host.
fn options_for(host: HostKind, engine: EngineMode) -> TestEnvOptions {
    TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--runner-mode", host.as_str().to_owned())],
        engine,
        ..TestEnvOptions::default()
    }
}

impl TestEnv {
    /// All machines of a host, including foreign ones.
    fn machines(&self, host: HostKind) -> Vec<MachineSnapshot> {
        self.fake_host(host).snapshots()
    }

    /// The only machine of the host with the labels of the service.
    fn machine(&self, host: HostKind) -> MachineSnapshot {
        let mut labelled = self.machines(host);
        labelled.retain(|machine| !machine.labels.is_empty());
        assert_eq!(labelled.len(), 1, "{labelled:#?}");
        labelled.remove(0)
    }

    fn kill(&self, host: HostKind, id: &str) {
        self.fake_host(host).kill(id);
    }

    fn only_job(&self) -> Job {
        let jobs = self.jobs("ENG-1");
        assert_eq!(jobs.len(), 1, "{jobs:#?}");
        jobs.into_iter().next().unwrap()
    }

    /// First line of each ticket comment.
    fn comment_headlines(&self) -> Vec<String> {
        let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
        self.comments("ENG-1").into_iter().map(first).collect()
    }
}

fn is_duration(comment: &str) -> bool {
    comment
        .strip_prefix("Session machine cleaned up. Duration: ")
        .is_some_and(|duration| duration.ends_with('s'))
}

#[tokio::test(flavor = "multi_thread")]
async fn opens_a_pull_request_from_a_vm_or_container() {
    for host in HOSTS {
        let env = TestEnv::with_options(TestEnvOptions {
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
            ..options_for(host, EngineMode::Running)
        })
        .await;
        let foreign = [("agent_implement_instance", "somebody-else")];
        for host in HOSTS {
            env.fake_host(host)
                .add_foreign_machine("foreign", "foreign", &foreign);
        }
        let gate = Gate::new(&env);
        env.set_agent_script(
            "ENG-1",
            Script::new().pass([
                gate.wait_step(),
                ScriptStep::Write {
                    path: "feature.txt".into(),
                    content: "done\n".into(),
                },
            ]),
        );
        env.create_labelled_issue("ENG-1", "Add a feature");
        env.wait_until("the run is working", || {
            let jobs = env.jobs("ENG-1");
            jobs.first()
                .is_some_and(|job| job.state == JobState::Running)
        })
        .await;
        let job = env.only_job();
        let mut labelled = env.machines(host);
        labelled.retain(|machine| machine.name != "foreign");
        assert_eq!(labelled.len(), 1);
        let machine = labelled.remove(0);
        assert_labels(&machine, &job);
        assert_environment(&machine, &job);
        match host {
            HostKind::Vm => assert_fly_settings(&machine),
            HostKind::Local => assert_container_isolation(&machine),
            HostKind::Kubernetes => kubernetes::assert_restricted_job(&env, &machine),
        }
        let handle = job.run.as_ref().and_then(RunHandle::machine).unwrap();
        assert_eq!((handle.host, &handle.id), (host, &machine.id));
        gate.open();

        let job = env.wait_for_job_end("ENG-1").await;
        assert_eq!(job.state, JobState::Completed, "{job:#?}");
        env.wait_until("the machine is gone", || env.machines(host).len() == 1)
            .await;
        env.wait_for_empty_outbox().await;
        let pull = job.pull.unwrap();
        let comments = env.comment_headlines();
        assert_eq!(
            comments[..4],
            [
                "Session machine created. Cloning repo and running setup...".to_owned(),
                "Environment ready. Implementation is running...".to_owned(),
                format!("Finished. PR #{} opened: {}", pull.number, pull.url),
                format!("Pull request opened: [#{}]({})", pull.number, pull.url),
            ]
        );
        assert!(
            is_duration(&comments[4]) && comments.len() == 5,
            "{comments:#?}"
        );
        for host in HOSTS {
            let names: Vec<String> = { env.machines(host).into_iter() }
                .map(|machine| machine.name)
                .collect();
            assert_eq!(names, ["foreign"], "{host:?}");
        }
        env.finish().await;
    }
}

fn assert_labels(machine: &MachineSnapshot, job: &Job) {
    assert_eq!(
        machine.name,
        format!("agent-{}", job.id.as_str().to_lowercase())
    );
    let label = |name: &str| machine.labels[&format!("agent_implement_{name}")].clone();
    assert_eq!(label("dispatch"), job.id.as_str());
    assert_eq!(label("issue"), "ENG-1");
    assert_eq!(label("repo"), "acme/shop");
    let nonce = &machine.env["SESSION_NONCE"];
    let public = format!("{:?} {}", machine.labels, machine.name);
    assert!(!public.contains(nonce) && !public.contains("sk-ant"));
}

/// Checks the environment variables passed to the session, and that no service credential is among them.
fn assert_environment(machine: &MachineSnapshot, job: &Job) {
    let env = &machine.env;
    assert_ne!(
        env["SESSION_NONCE"], "stolen",
        "a mapping cannot override service variables"
    );
    let hash = domain::crypto::sha256_hex(&env["SESSION_NONCE"]);
    assert_eq!(job.nonce_hash.as_deref(), Some(hash.as_str()));
    assert_eq!(env["GREETING"], "hello");
    assert_eq!(env["ANTHROPIC_API_KEY"], "sk-ant-canary-of-the-model");
    assert_eq!(env["GITHUB_REPOSITORY"], "acme/shop");
    let mut names: Vec<&str> = env.keys().map(String::as_str).collect();
    // Only containers have these.
    names.retain(|name| !["EGRESS_PROXY", "HOME"].contains(name));
    // A local container starts when it is dispatched.
    let is_local = job.runner == RunnerKind::Local;
    assert_eq!(names.contains(&"SESSION_ENDS_AT"), !is_local);
    if let Some(ends_at) = env.get("SESSION_ENDS_AT") {
        assert_eq!(ends_at, &machine.labels["agent_implement_expires"]);
    }
    names.retain(|name| *name != "SESSION_ENDS_AT");
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
    for service_secret in ["lin_api_sandbox", "PRIVATE KEY", "jira-api-token"] {
        assert!(
            !format!("{env:?}").contains(service_secret),
            "{service_secret}"
        );
    }
}

fn assert_fly_settings(machine: &MachineSnapshot) {
    let config = &machine.create_request["config"];
    assert_eq!(config["restart"]["policy"], "no");
    assert_eq!(config["auto_destroy"], false);
    let command = serde_json::json!({"entrypoint": ["agent-implement"], "cmd": ["run"]});
    assert_eq!(config["init"], command);
    assert_eq!(config["guest"]["cpu_kind"], "shared");
    assert_eq!(config["guest"]["cpus"], 1);
    assert_eq!(config["guest"]["memory_mb"], 512, "rounded up");
    assert_eq!(machine.create_request["region"], "iad");
    assert_eq!(machine.image, "ghcr.io/acme/agent-implement-runner:latest");
}

fn assert_container_isolation(container: &MachineSnapshot) {
    let host = &container.create_request["HostConfig"];
    assert_eq!(
        host["Init"], false,
        "an init process would keep the environment"
    );
    assert_eq!(
        container.create_request["Entrypoint"],
        serde_json::json!([""])
    );
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["CapDrop"][0], "ALL");
    assert_eq!(host["SecurityOpt"][0], "no-new-privileges");
    assert_eq!(host["Memory"], 512 << 20);
    assert_eq!(host["MemorySwap"], host["Memory"]);
    assert_eq!(host["NanoCpus"], 1_000_000_000);
    assert!(host["PidsLimit"].as_u64().is_some_and(|limit| limit > 0));
    assert!(host["Tmpfs"]["/tmp"].is_string());
    for option in ["Binds", "Devices", "CapAdd"] {
        assert!(host[option].is_null(), "{option}");
    }
    assert_eq!(host["NetworkMode"], "none");
    let proxy = &container.env["EGRESS_PROXY"];
    assert!(proxy.ends_with("/run-socket/egress.sock"), "{proxy}");
    assert_eq!(host["Mounts"].as_array().map(Vec::len), Some(1));
    assert_eq!(host["Mounts"][0]["ReadOnly"], true);
    assert_eq!(container.create_request["User"], "1000:1000");
    assert_eq!(container.image, "agent-implement-runner:local");
}

/// What a ticket says once the agent works.
const READY: &str = "Environment ready. Implementation is running...";

/// Environment with a dispatched run whose agent hangs.
async fn env_with_running_job(host: HostKind) -> TestEnv {
    let env = TestEnv::with_options(options_for(host, EngineMode::manual())).await;
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    // The outbox writes the comment with the next cycle, or has written it with this one.
    env.wait_until("the agent works", || {
        let machine = env.machine(host);
        let log = env.fake_host(host).log(&machine.id);
        let pending = env.store.read(outbox::pending).unwrap();
        let is_ready = format!("{pending:?}").contains(READY)
            || env.comment_headlines().contains(&READY.into());
        is_ready && machine.running && !log.is_empty()
    })
    .await;
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn fails_the_job_and_cleans_up_when_a_machine_ends_without_reporting() {
    for host in HOSTS {
        for out_of_memory in [false, true] {
            let env = env_with_running_job(host).await;
            let id = env.machine(host).id;
            match out_of_memory {
                false => env.kill(host, &id),
                true => env.fake_host(host).kill_out_of_memory(&id),
            }
            env.tick().await;
            assert!(env.only_job().is_active(), "the report may still arrive");
            env.advance_clock(2 * MINUTE - SECOND);
            env.tick().await;
            assert!(env.only_job().is_active());
            env.advance_clock(SECOND);
            env.tick().await;
            let cause = if out_of_memory {
                "out of memory"
            } else {
                "exit code 137"
            };
            let reason = format!("the session ended with {cause} and reported no result");
            let label = match host {
                HostKind::Vm => "session_failed",
                HostKind::Local | HostKind::Kubernetes => "container_failed",
            };
            let comments = env.comment_headlines();
            assert_eq!(
                comments[..5],
                [
                    "Session machine created. Cloning repo and running setup...".to_owned(),
                    READY.to_owned(),
                    format!("Session failed: {reason}. Machine will be cleaned up."),
                    format!("Implementation failed: {reason}"),
                    format!("Log excerpt (`{label}`)"),
                ]
            );
            assert!(is_duration(&comments[5]), "{comments:#?}");
            assert!(env.machines(host).is_empty());
            env.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn times_out_a_session_after_an_hour_and_keeps_its_log_excerpt() {
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
        (
            HostKind::Kubernetes,
            TimeoutReason::ContainerTimeout,
            "container_timeout",
        ),
    ] {
        let env = env_with_running_job(host).await;
        env.advance_clock(60 * MINUTE - SECOND);
        env.tick().await;
        assert!(env.only_job().is_active());
        env.advance_clock(SECOND);
        env.tick().await;
        assert_eq!(env.only_job().state, JobState::TimedOut { reason: timeout });
        let comments = env.comment_headlines();
        assert_eq!(
            comments[1..5],
            [
                READY.to_owned(),
                "Session timed out: the run exceeded its time budget of 60 minutes. Machine will be cleaned up.".to_owned(),
                "Implementation failed: the run exceeded its time budget of 60 minutes".to_owned(),
                format!("Log excerpt (`{label}`)"),
            ]
        );
        assert_eq!(
            comments[5],
            "Session machine cleaned up. Duration: 1h 0m 0s"
        );
        let log = env.admin_get("/api/log").await;
        assert_eq!(log[0]["timeoutReason"], timeout.as_str());
        assert!(env.machines(host).is_empty());
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fails_the_job_of_a_vanished_machine() {
    for host in HOSTS {
        let env = env_with_running_job(host).await;
        let id = env.machine(host).id;
        env.fake_host(host).remove(&id);
        env.tick().await;
        env.advance_clock(2 * MINUTE);
        env.tick().await;
        let comments = env.comment_headlines();
        let reason = "the session ended with its machine gone and reported no result";
        assert_eq!(comments[3], format!("Implementation failed: {reason}"));
        assert!(
            is_duration(&comments[4]),
            "there is no log to show: {comments:#?}"
        );
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adopts_a_machine_whose_create_response_was_lost() {
    for (host, lost) in [
        (HostKind::Vm, vec!["POST /v1/apps"]),
        (HostKind::Local, vec!["/containers/create", "/start"]),
        (
            HostKind::Kubernetes,
            vec!["POST /apis/batch", "/secrets", "PATCH /apis/batch"],
        ),
    ] {
        let env = TestEnv::with_options(options_for(host, EngineMode::Running)).await;
        for call in lost {
            env.faults_of(host)
                .inject_on_match(call, InjectedFault::DropResponse);
        }
        env.create_labelled_issue("ENG-1", "Add a feature");
        env.wait_until("the machine is known", || {
            let jobs = env.jobs("ENG-1");
            jobs.first().is_some_and(|job| job.run.is_some())
        })
        .await;
        assert_eq!(env.faults_of(host).pending(), 0);
        assert!(env.machines(host).len() <= 1);
        let job = env.wait_for_job_end("ENG-1").await;
        assert_eq!(job.state, JobState::Completed);
        assert_eq!(env.jobs("ENG-1").len(), 1);
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resumes_watching_machines_after_a_restart() {
    let host = HostKind::Local;
    let env = TestEnv::with_options(options_for(host, EngineMode::Running)).await;
    let gate = Gate::new(&env);
    env.set_agent_script(
        "ENG-1",
        Script::new().pass([
            gate.wait_step(),
            ScriptStep::Write {
                path: "a.txt".into(),
                content: "a\n".into(),
            },
        ]),
    );
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.wait_until("the run is working", || {
        let jobs = env.jobs("ENG-1");
        jobs.first()
            .is_some_and(|job| job.state == JobState::Running)
    })
    .await;
    let before = env.machine(host).id;
    let restart_options = TestEnvOptions {
        mappings: Vec::new(),
        ..options_for(host, EngineMode::Running)
    };
    let env = env.restart_service(restart_options).await;
    assert_eq!(env.machine(host).id, before);
    env.kill(host, &before);
    env.wait_until("the end of the run is recorded", || {
        env.only_job().run_ended_at.is_some()
    })
    .await;
    env.stop().await;
}

/// ID and status of each step of the only job.
fn steps(env: &TestEnv) -> Vec<(String, String)> {
    let job = env.only_job().id;
    let steps = env.store.read(|tx| steps::of_job(tx, &job)).unwrap();
    steps
        .into_iter()
        .map(|step| (step.id, step.status))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_a_session_alive_until_its_timeout() {
    let rows = [
        (SessionMode::Interactive, default_script()),
        (
            SessionMode::Hybrid,
            Script::new().pass([ScriptStep::ExhaustTurns]),
        ),
    ];
    for (session_mode, script) in rows {
        let env = TestEnv::with_options(TestEnvOptions {
            mappings: vec![Mapping {
                session_mode,
                ..mapping()
            }],
            ..options_for(HostKind::Vm, EngineMode::manual())
        })
        .await;
        env.set_agent_script("ENG-1", script);
        env.create_labelled_issue("ENG-1", "Add a feature");
        env.tick().await;
        env.wait_until("the session is kept", || {
            steps(&env).contains(&("hold".to_owned(), "running".to_owned()))
        })
        .await;
        let done = steps(&env);
        let implemented = done.iter().any(|(id, _)| id == "feedback-loop");
        assert_eq!(
            implemented,
            session_mode == SessionMode::Hybrid,
            "{done:#?}"
        );
        assert!(env.repo().pulls().is_empty());
        env.tick().await;
        assert!(env.only_job().is_active());
        assert!(env.machine(HostKind::Vm).running);
        env.advance_clock(60 * MINUTE);
        env.tick().await;
        let timeout = TimeoutReason::MachineTimeout;
        assert_eq!(env.only_job().state, JobState::TimedOut { reason: timeout });
        assert!(env.machines(HostKind::Vm).is_empty());
        env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_a_host_without_capacity_then_fails_the_job() {
    let env = TestEnv::with_options(options_for(HostKind::Vm, EngineMode::manual())).await;
    env.vendors.fly().set_out_of_capacity(true);
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    assert_eq!(env.only_job().state, JobState::Reserved);
    let entries = env.store.read(outbox::pending).unwrap();
    let error = entries[0].last_error.clone().unwrap();
    assert!(
        error.contains("no capacity for the machine: could not reserve"),
        "{error}"
    );
    assert!(
        entries[0].outcome_unknown_since.is_none(),
        "no machine was created"
    );

    env.vendors.fly().set_out_of_capacity(false);
    env.advance_clock(MINUTE);
    env.tick().await;
    assert!(env.only_job().dispatched_at.is_some());
    env.kill(HostKind::Vm, &env.machine(HostKind::Vm).id);
    env.tick().await;
    env.advance_clock(2 * MINUTE);
    env.tick().await;

    env.vendors.fly().set_out_of_capacity(true);
    env.create_labelled_issue("ENG-2", "Add another");
    env.tick().await;
    env.advance_clock(31 * MINUTE);
    env.tick().await;
    let job = env.jobs("ENG-2").pop().unwrap();
    assert_eq!(job.state.status(), "failed");
    let comments = env.comments("ENG-2");
    assert!(comments[0].starts_with("Implementation failed: the run could not be dispatched: the host has no capacity for the machine: could not reserve resource"), "{comments:#?}");
    assert_eq!(comments.len(), 1, "no machine, no session: {comments:#?}");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_a_missing_image() {
    let host = HostKind::Local;
    let image = |image: &str| {
        let mut options = options_for(host, EngineMode::manual());
        options
            .extra_flags
            .push(("--local-runner-image", image.to_owned()));
        options
    };
    let env = TestEnv::with_options(image("localhost:5000/acme/runner")).await;
    env.vendors
        .docker()
        .add_registry_image("localhost:5000/acme/runner:latest");
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    let container = env.machine(host);
    assert_eq!(container.image, "localhost:5000/acme/runner");
    env.stop().await;

    let env = TestEnv::with_options(image("acme/nowhere:1")).await;
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.tick().await;
    assert_eq!(env.only_job().state.status(), "failed");
    let comments = env.comment_headlines();
    assert_eq!(
        comments,
        [
            "Implementation failed: the run could not be dispatched: image acme/nowhere:1 not found locally, and pulling it failed: pull access denied for acme/nowhere:1, repository does not exist"
        ]
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_a_shadow_job_without_reporting_it() {
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--runner-mode", "shadow".to_owned())],
        ..TestEnvOptions::default()
    })
    .await;
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.wait_until("both have ended", || {
        let jobs = env.jobs("ENG-1");
        jobs.len() == 2 && jobs.iter().all(|job| !job.is_active())
    })
    .await;
    env.wait_for_empty_outbox().await;
    let (mut shadows, mut real): (Vec<Job>, Vec<Job>) =
        env.jobs("ENG-1").into_iter().partition(|job| job.shadow);
    let (shadow, real) = (shadows.remove(0), real.remove(0));
    assert_eq!(
        (real.runner, shadow.runner),
        (RunnerKind::Ci, RunnerKind::Vm)
    );
    assert_eq!(real.state, JobState::Completed);
    assert_eq!(shadow.state, JobState::Completed, "{shadow:#?}");
    assert_eq!(shadow.branch, format!("{}-shadow", real.branch));
    assert_eq!((&shadow.pull, shadow.result_accepted), (&None, true));
    let repo = env.repo();
    assert_eq!(repo.pulls().len(), 1, "one pull request");
    for branch in [&real.branch, &shadow.branch] {
        let written = repo.read_file(branch, "feature.txt");
        assert_eq!(written.as_deref(), Some("done\n"), "{branch}");
    }
    let pull = real.pull.unwrap();
    assert_eq!(
        env.comments("ENG-1"),
        [format!(
            "Pull request opened: [#{}]({})",
            pull.number, pull.url
        )],
        "only the real run comments"
    );
    assert_eq!(env.vendors.chat().messages().len(), 2);
    assert!(env.machines(HostKind::Vm).is_empty());
    let log = env.admin_get("/api/log").await;
    let rows = log.as_array().unwrap().iter();
    let shadows = rows.filter(|row| row["shadow"] == true).count();
    assert_eq!((log.as_array().unwrap().len(), shadows), (2, 1), "two runs");
    env.finish().await;
}

//! A session in a real container of a real engine: it can do its work there, and nothing else.
//!
//! `tests/run.sh` names the engine's socket in `AGENT_IMPLEMENT_ENGINE`. Nothing is fetched from anywhere: the image is made of this machine's own
//! programs.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use domain::job::JobState;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use reqwest::Method;
use serde_json::Value;

use crate::requirements::require;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, default_script};

const IMAGE: &str = "agent-implement-runner:engine-test";

/// What a run calls by name.
const PROGRAMS: [&str; 12] = [
    "bash", "sh", "cat", "cp", "env", "git", "id", "ls", "mkdir", "rm", "sleep", "touch",
];

/// A real engine.
struct RealEngine {
    host: String,
    client: reqwest::Client,
}

impl RealEngine {
    fn needed(test: &str) -> Option<Self> {
        let named = std::env::var("AGENT_IMPLEMENT_ENGINE").ok();
        let host = named.filter(|host| !host.is_empty());
        let host = require(
            "engine",
            test,
            host.ok_or("AGENT_IMPLEMENT_ENGINE is not set"),
        )?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let socket = host.strip_prefix("unix://").expect("a Unix socket");
        let client = reqwest::Client::builder().unix_socket(Path::new(socket));
        Some(Self {
            client: client.build().unwrap(),
            host,
        })
    }

    async fn ask(&self, method: Method, path: &str) -> Value {
        let url = format!("http://engine{path}");
        let answer = self.client.request(method, url).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The address of this machine in the network of containers.
    async fn gateway(&self) -> IpAddr {
        let network = self.ask(Method::GET, "/networks/bridge").await;
        let config = &network["IPAM"]["Config"][0];
        if let Some(gateway) = config["Gateway"].as_str() {
            return gateway.parse().unwrap();
        }
        let subnet = config["Subnet"].as_str().unwrap();
        let first: Ipv4Addr = subnet.split('/').next().unwrap().parse().unwrap();
        Ipv4Addr::from(u32::from(first) + 1).into()
    }

    async fn import(&self, tar: PathBuf) {
        let (name, tag) = IMAGE.split_once(':').unwrap();
        let url = format!("http://engine/images/create?fromSrc=-&repo={name}&tag={tag}");
        let body = std::fs::read(tar).unwrap();
        let answer = self.client.post(url).body(body).send().await.unwrap();
        assert!(
            answer.status().is_success(),
            "{}",
            answer.text().await.unwrap()
        );
    }

    /// The containers of this world.
    async fn ours(&self, world: &TestEnv) -> Vec<Value> {
        let instance = world.app.sessions.instance();
        let filter = format!(r#"{{"label":["agent_implement_instance={instance}"]}}"#);
        let path = format!("/containers/json?all=true&filters={filter}");
        let listed = self.ask(Method::GET, &path.replace('"', "%22")).await;
        listed.as_array().unwrap().clone()
    }

    async fn inspect(&self, container: &Value) -> Value {
        let id = container["Id"].as_str().unwrap();
        self.ask(Method::GET, &format!("/containers/{id}/json"))
            .await
    }
}

/// A root file system of this machine's own programs, with an agent that plays scripts.
fn root_file_system(dir: &Path) -> PathBuf {
    let root = dir.join("root");
    for folder in [
        "tmp",
        "proc",
        "sys",
        "dev",
        "etc",
        "home/agent",
        "scripts",
        "usr/local/bin",
    ] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let users = "root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/bash\n";
    std::fs::write(root.join("etc/passwd"), users).unwrap();
    default_script()
        .save(&root.join("scripts"), "default")
        .unwrap();
    let waits = Script::new().pass([
        ScriptStep::run("id; touch /etc/own 2>&1 || true"),
        ScriptStep::Hang,
    ]);
    waits.save(&root.join("scripts"), "ENG-2").unwrap();
    let claude = "#!/bin/sh\n[ -d /tmp/scripts ] || cp -R /scripts /tmp/scripts\nexec agent-implement scripted-agent --scripts /tmp/scripts \"$@\"\n";
    std::fs::write(root.join("usr/local/bin/claude"), claude).unwrap();
    let script = format!(
        r#"set -euo pipefail
        cd "$ROOT"
        mkdir -p usr/bin usr/lib lib64 lib
        strip -o usr/local/bin/agent-implement "$PROGRAM" || cp "$PROGRAM" usr/local/bin/agent-implement
        chmod 755 usr/local/bin/*
        ln -s usr/bin bin
        for program in {programs}; do cp -L "$(command -v "$program")" usr/bin/; done
        core=$(git --exec-path)
        mkdir -p ".$core" && cp -a "$core/." ".$core/"
        cp -aL /usr/share/git-core usr/share/ 2>/dev/null || true
        libraries() {{ ldd "$@" 2>/dev/null | grep -o '/[^ ]*' | grep -v ':$' | sort -u; }}
        for library in $(libraries usr/local/bin/agent-implement usr/bin/* "$core"/git-remote-http "$core"/git); do
            mkdir -p ".$(dirname "$library")" && cp -L "$library" ".$library"
        done
        chmod 1777 tmp && chown -R 1000:1000 home/agent
        tar -cf "$TAR" .
        "#,
        programs = PROGRAMS.join(" ")
    );
    let tar = dir.join("root.tar");
    let made = Command::new("bash")
        .args(["-c", &script])
        .env("ROOT", &root)
        .env("TAR", &tar)
        .env("PROGRAM", env!("CARGO_BIN_EXE_agent-implement"))
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    tar
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_becomes_a_pull_request_in_a_real_container() {
    let Some(engine) = RealEngine::needed("a session in a real container") else {
        return;
    };
    let image = tempfile::tempdir().unwrap();
    engine.import(root_file_system(image.path())).await;
    let gateway = engine.gateway().await;
    let making = || TestEnvOptions {
        session_hosts: true,
        // A mapping of the world that stands already is left as it is.
        mappings: Vec::new(),
        omitted_flags: &["--docker-host"],
        extra_flags: vec![
            ("--runner-mode", "local".to_owned()),
            ("--docker-host", engine.host.clone()),
            ("--local-runner-image", IMAGE.to_owned()),
        ],
        external_ip: Some(gateway),
        engine: EngineMode::Running,
        ..TestEnvOptions::default()
    };
    let world = TestEnv::with_options(TestEnvOptions {
        mappings: TestEnvOptions::default().mappings,
        ..making()
    })
    .await;
    world.create_labelled_issue("ENG-1", "Add a feature");
    let job = world.wait_for_job_end("ENG-1").await;
    assert_eq!(
        job.state,
        JobState::Completed,
        "{:#?}",
        world.comments("ENG-1")
    );
    let pull = world.repo().pulls().remove(0);
    let written = world.repo().read_file(&pull.head, "feature.txt");
    assert_eq!(written.as_deref(), Some("done\n"));
    assert!(engine.ours(&world).await.is_empty(), "it is taken down");

    world.create_labelled_issue("ENG-2", "Wait for ever");
    world
        .wait_until("the agent is at work", || {
            let jobs = world.jobs("ENG-2");
            jobs.first()
                .is_some_and(|job| job.state == JobState::Running)
        })
        .await;
    let containers = engine.ours(&world).await;
    assert_eq!(containers.len(), 1, "{containers:#?}");
    let shown = engine.inspect(&containers[0]).await;
    assert_shut_in(&shown);
    let labels = &shown["Config"]["Labels"];
    let job = world.jobs("ENG-2").remove(0);
    assert_eq!(labels["agent_implement_dispatch"], job.id.as_str());
    assert_eq!(labels["agent_implement_issue"], "ENG-2");

    let world = world.restart_service(making()).await;
    world.wait_for_polls().await;
    assert!(world.jobs("ENG-2")[0].is_active(), "it goes on");
    let after = engine.ours(&world).await;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0]["Id"], containers[0]["Id"], "the same one");
    world.vendors.linear().issue("ENG-2").cancel();
    world.wait_for_job_end("ENG-2").await;
    assert!(engine.ours(&world).await.is_empty());
    world.finish().await;
}

/// What the engine itself says of a container's limits.
fn assert_shut_in(shown: &Value) {
    let host = &shown["HostConfig"];
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["CapDrop"][0], "ALL");
    assert_eq!(host["SecurityOpt"][0], "no-new-privileges");
    assert_eq!(host["Privileged"], false);
    assert_eq!(host["Memory"], 4_096_i64 << 20);
    assert_eq!(host["MemorySwap"], 4_096_i64 << 20);
    assert_eq!(host["NanoCpus"], 2_000_000_000_i64);
    assert_eq!(host["PidsLimit"], 1_024);
    assert_eq!(host["RestartPolicy"]["Name"], "no");
    assert_eq!(shown["Config"]["User"], "1000:1000");
    assert!(
        shown["Mounts"].as_array().is_some_and(Vec::is_empty),
        "{shown:#}"
    );
    assert!(host["Binds"].is_null());
    let pid = shown["State"]["Pid"].as_u64().unwrap();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(environment.contains("PATH="), "{environment}");
    for secret in ["RUN_CONFIG", "SESSION_NONCE", "ANTHROPIC_API_KEY"] {
        assert!(!environment.contains(secret), "{secret} in {environment}");
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line} in {status}");
    }
}

//! Sessions in real containers of a real engine: they can do their work and nothing else.
//!
//! `tests/run.sh` names the engine's socket in `AGENT_IMPLEMENT_ENGINE`. The image is built from this
//! machine's programs, so nothing is downloaded.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use domain::job::JobState;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use requires::requires;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::requirements::require;
use crate::test_env::{EngineMode, TIMEOUT, TestEnv, TestEnvOptions, default_script};

const IMAGE: &str = "agent-implement-runner:engine-test";

/// Programs that a run calls by name.
const PROGRAMS: [&str; 13] = [
    "bash", "sh", "cat", "cp", "env", "git", "id", "ls", "mkdir", "rm", "sleep", "timeout", "touch",
];

/// Client of a real container engine.
pub struct RealEngine {
    host: String,
    client: reqwest::Client,
}

impl RealEngine {
    pub fn require() -> Self {
        let value = std::env::var("AGENT_IMPLEMENT_ENGINE").ok();
        let host = value.filter(|host| !host.is_empty());
        let host = require("engine", host.ok_or("AGENT_IMPLEMENT_ENGINE is not set"));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let socket = host.strip_prefix("unix://").expect("a Unix socket");
        let client = reqwest::Client::builder().unix_socket(Path::new(socket));
        Self {
            client: client.build().unwrap(),
            host,
        }
    }

    pub async fn request(&self, method: Method, path: &str) -> Value {
        let url = format!("http://engine{path}");
        send(self.client.request(method, url)).await
    }

    /// Address of this machine in the container network.
    async fn gateway(&self) -> IpAddr {
        let network = self.request(Method::GET, "/networks/bridge").await;
        let config = &network["IPAM"]["Config"][0];
        if let Some(gateway) = config["Gateway"].as_str() {
            return gateway.parse().unwrap();
        }
        let subnet = config["Subnet"].as_str().unwrap();
        let first: Ipv4Addr = subnet.split('/').next().unwrap().parse().unwrap();
        Ipv4Addr::from(u32::from(first) + 1).into()
    }

    /// Returns the address of the engine.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Imports a root file system as an image.
    pub async fn import(&self, tar: PathBuf, image: &str) {
        let (name, tag) = image.split_once(':').unwrap();
        let url = format!("http://engine/images/create?fromSrc=-&repo={name}&tag={tag}");
        let body = std::fs::read(tar).unwrap();
        let response = self.client.post(url).body(body).send().await.unwrap();
        assert!(
            response.status().is_success(),
            "{}",
            response.text().await.unwrap()
        );
    }

    /// Containers of this environment's service instance.
    async fn session_containers(&self, env: &TestEnv) -> Vec<Value> {
        let instance = env.app.vendors.sessions.instance();
        let filter = format!(r#"{{"label":["agent_implement_instance={instance}"]}}"#);
        let path = format!("/containers/json?all=true&filters={filter}");
        let listed = self.request(Method::GET, &path.replace('"', "%22")).await;
        listed.as_array().unwrap().clone()
    }

    async fn inspect(&self, container: &Value) -> Value {
        let id = container["Id"].as_str().unwrap();
        self.request(Method::GET, &format!("/containers/{id}/json"))
            .await
    }

    /// Starts a container in the engine's default network that accepts connections at a port. Returns the container and
    /// its address.
    async fn start_neighbour(&self, image: &str, port: u16) -> (Value, IpAddr) {
        // A test that fails leaves the container behind, so it ends by itself.
        let serve = format!("timeout 600 git daemon --port={port} --base-path=/tmp");
        let spec = json!({
            "Image": image,
            "Cmd": ["sh", "-c", serve],
            "HostConfig": {"AutoRemove": true, "NetworkMode": "bridge"},
        });
        let create = self.client.post("http://engine/containers/create");
        let container = send(create.json(&spec)).await;
        let id = container["Id"].as_str().unwrap();
        self.request(Method::POST, &format!("/containers/{id}/start"))
            .await;
        let inspected = self.inspect(&container).await;
        let address = &inspected["NetworkSettings"]["Networks"]["bridge"]["IPAddress"];
        let address: IpAddr = address.as_str().unwrap().parse().unwrap();
        let began = Instant::now();
        while TcpStream::connect((address, port)).await.is_err() {
            assert!(began.elapsed() < TIMEOUT, "{inspected:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        (container, address)
    }

    async fn remove(&self, container: &Value) {
        let id = container["Id"].as_str().unwrap();
        self.request(Method::DELETE, &format!("/containers/{id}?force=true"))
            .await;
    }
}

/// Sends a request that the engine accepts. Returns the body.
async fn send(request: reqwest::RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    let (status, url) = (response.status(), response.url().clone());
    let text = response.text().await.unwrap();
    assert!(status.is_success(), "{url}: {status} {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

/// Builds a root file system from this machine's programs, with an agent that plays scripts.
pub fn root_file_system(dir: &Path) -> PathBuf {
    let root = dir.join("root");
    std::fs::create_dir_all(root.join("scripts")).unwrap();
    default_script()
        .save(&root.join("scripts"), "default")
        .unwrap();
    // The socket of the service cannot be replaced.
    let hostile = Script::new().pass([
        ScriptStep::run(
            "rm -f /run/agent-implement/service.sock; touch /run/agent-implement/own; true",
        ),
        ScriptStep::write("feature.txt", "done\n"),
    ]);
    hostile.save(&root.join("scripts"), "ENG-3").unwrap();
    let hanging = Script::new().pass([
        ScriptStep::run("id; touch /etc/own 2>&1 || true"),
        ScriptStep::Hang,
    ]);
    hanging.save(&root.join("scripts"), "ENG-2").unwrap();
    let tar = dir.join("root.tar");
    let output = Command::new("bash")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runner_root.sh"))
        .args(PROGRAMS)
        .env("ROOT", &root)
        .env("TAR", &tar)
        .env("PROGRAM", env!("CARGO_BIN_EXE_agent-implement"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    tar
}

/// Returns the mounts of a container except the mirror of its repository, which it may have.
fn mounts_besides_mirror(inspected: &Value) -> Vec<Value> {
    let mounts = inspected["Mounts"].as_array().unwrap().iter();
    let is_mirror = |mount: &&Value| {
        let is_mirror = mount["Destination"] == "/run/git-mirror";
        assert!(!is_mirror || mount["RW"] == false, "{mount}");
        is_mirror
    };
    mounts.filter(|mount| !is_mirror(mount)).cloned().collect()
}

#[requires("engine")]
#[tokio::test(flavor = "multi_thread")]
async fn runs_sessions_in_real_containers() {
    let engine = RealEngine::require();
    let image = tempfile::tempdir().unwrap();
    engine.import(root_file_system(image.path()), IMAGE).await;
    let gateway = engine.gateway().await;
    let options = || TestEnvOptions {
        session_hosts: true,
        // The mapping of the existing environment is kept.
        mappings: Vec::new(),
        omitted_flags: &["--docker-host"],
        extra_flags: vec![
            ("--runner-mode", "local".to_owned()),
            ("--docker-host", engine.host.clone()),
            ("--local-runner-image", IMAGE.to_owned()),
            ("--local-egress", "open".to_owned()),
        ],
        external_ip: Some(gateway),
        engine: EngineMode::Running,
        ..TestEnvOptions::default()
    };
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: TestEnvOptions::default().mappings,
        ..options()
    })
    .await;
    env.create_labelled_issue("ENG-1", "Add a feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(
        job.state,
        JobState::Completed,
        "{:#?}",
        env.comments("ENG-1")
    );
    let pull = env.repo().pulls().remove(0);
    let written = env.repo().read_file(&pull.head, "feature.txt");
    assert_eq!(written.as_deref(), Some("done\n"));
    assert!(
        engine.session_containers(&env).await.is_empty(),
        "the container is removed"
    );

    env.create_labelled_issue("ENG-2", "Wait for ever");
    env.wait_until("the agent is at work", || {
        let jobs = env.jobs("ENG-2");
        jobs.first()
            .is_some_and(|job| job.state == JobState::Running)
    })
    .await;
    let containers = engine.session_containers(&env).await;
    assert_eq!(containers.len(), 1, "{containers:#?}");
    let inspected = engine.inspect(&containers[0]).await;
    assert_isolation(&inspected);
    assert_eq!(
        mounts_besides_mirror(&inspected),
        [Value::Null; 0],
        "{inspected:#}"
    );
    let labels = &inspected["Config"]["Labels"];
    let job = env.jobs("ENG-2").remove(0);
    assert_eq!(labels["agent_implement_dispatch"], job.id.as_str());
    assert_eq!(labels["agent_implement_issue"], "ENG-2");

    let env = env.restart_service(options()).await;
    env.wait_for_polls().await;
    assert!(env.jobs("ENG-2")[0].is_active(), "the job stays active");
    let after = engine.session_containers(&env).await;
    assert_eq!(after.len(), 1);
    assert_eq!(after[0]["Id"], containers[0]["Id"], "the same container");
    env.vendors.linear().issue("ENG-2").cancel();
    env.wait_for_job_end("ENG-2").await;
    assert!(engine.session_containers(&env).await.is_empty());
    env.finish().await;
}

#[requires("engine")]
#[tokio::test(flavor = "multi_thread")]
async fn real_containers_report_through_the_socket() {
    let engine = RealEngine::require();
    let image = tempfile::tempdir().unwrap();
    engine.import(root_file_system(image.path()), IMAGE).await;
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        omitted_flags: &["--docker-host"],
        extra_flags: vec![
            ("--runner-mode", "local".to_owned()),
            ("--docker-host", engine.host.clone()),
            ("--local-runner-image", IMAGE.to_owned()),
        ],
        // For the fake vendors: nothing listens at the address of the service.
        external_ip: Some(engine.gateway().await),
        behind_nat: true,
        ..TestEnvOptions::default()
    })
    .await;
    env.create_labelled_issue("ENG-3", "Add a feature");
    let job = env.wait_for_job_end("ENG-3").await;
    assert_eq!(
        job.state,
        JobState::Completed,
        "{:#?}",
        env.comments("ENG-3")
    );
    assert!(job.result_accepted && job.usage.is_some());
    let folder = env.dir().join("data/run-socket");
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["egress.sock", "service.sock"]);

    env.create_labelled_issue("ENG-2", "Wait for ever");
    env.wait_until("the agent is at work", || {
        let jobs = env.jobs("ENG-2");
        jobs.first()
            .is_some_and(|job| job.state == JobState::Running)
    })
    .await;
    let containers = engine.session_containers(&env).await;
    let inspected = engine.inspect(&containers[0]).await;
    assert_isolation(&inspected);
    let mounts = mounts_besides_mirror(&inspected);
    assert_eq!(mounts.len(), 1, "{mounts:#?}");
    assert_eq!(mounts[0]["Destination"], "/run/agent-implement");
    assert_eq!(mounts[0]["RW"], false);
    assert_eq!(inspected["HostConfig"]["NetworkMode"], "none");
    env.vendors.linear().issue("ENG-2").cancel();
    env.wait_for_job_end("ENG-2").await;
    env.finish().await;
}

/// Shell script that tries to reach services of the host, a neighbour and the metadata address: directly, and through the
/// proxy of the run. `PORT` is a port at which the host and the neighbour accept connections. It leaves what it reached in
/// `reached.txt`.
const PROBE: &str = r#"
direct() { timeout 5 bash -c "exec 3<>/dev/tcp/$1/$2" 2>/dev/null && echo "direct $1:$2" >>reached.txt; }
through() {
    exec 3<>"/dev/tcp/127.0.0.1/${HTTPS_PROXY##*:}"
    printf 'CONNECT %s:%s HTTP/1.1\r\n\r\n' "$1" "$2" >&3
    read -r status <&3
    echo "proxy $1:$2 $status" >>reached.txt
    exec 3>&-
}
: >reached.txt
for host in HOST NEIGHBOUR 169.254.169.254 127.0.0.1; do direct "$host" PORT; done
direct 169.254.169.254 80
[ -n "$HTTPS_PROXY" ] || exit 0
for host in HOST NEIGHBOUR 169.254.169.254 127.0.0.1 localhost; do through "$host" PORT; done
true
"#;

/// Runs the probe for a ticket, and returns the lines of what it reached.
async fn run_probe(env: &TestEnv, key: &str) -> Vec<String> {
    env.create_labelled_issue(key, "Add a feature");
    let job = env.wait_for_job_end(key).await;
    let comments = env.comments(key);
    assert_eq!(job.state, JobState::Completed, "{comments:#?}");
    let reached = env.repo().read_file(&job.branch, "reached.txt").unwrap();
    reached.lines().map(str::to_owned).collect()
}

/// Imports an image whose agent runs the probe of the repository.
async fn import_probing_image(engine: &RealEngine, image: &str) {
    let dir = tempfile::tempdir().unwrap();
    let scripts = dir.path().join("root/scripts");
    std::fs::create_dir_all(&scripts).unwrap();
    let probing = Script::new().pass([
        ScriptStep::run("bash probe.sh"),
        ScriptStep::write("feature.txt", "done\n"),
    ]);
    for key in ["ENG-4", "ENG-5"] {
        probing.save(&scripts, key).unwrap();
    }
    engine.import(root_file_system(dir.path()), image).await;
}

#[requires("engine")]
#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_container_reaches_nothing_but_permitted_hosts() {
    let engine = RealEngine::require();
    let gateway = engine.gateway().await;
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let image = "agent-implement-runner:isolation-test";
    import_probing_image(&engine, image).await;
    let (neighbour, address) = engine.start_neighbour(image, port).await;
    let options = |egress: Option<&str>| TestEnvOptions {
        session_hosts: true,
        omitted_flags: &["--docker-host"],
        extra_flags: [
            ("--runner-mode", Some("local")),
            ("--docker-host", Some(engine.host())),
            ("--local-runner-image", Some(image)),
            ("--local-egress", egress),
        ]
        .into_iter()
        .filter_map(|(flag, value)| Some((flag, value?.to_owned())))
        .collect(),
        external_ip: Some(gateway),
        ..TestEnvOptions::default()
    };
    let env = TestEnv::with_options(options(None)).await;
    let probe = PROBE
        .replace("HOST", &gateway.to_string())
        .replace("NEIGHBOUR", &address.to_string())
        .replace("PORT", &port.to_string());
    let files = [("probe.sh", probe.as_str())];
    env.repo().commit("main", &files, "Add the probe").unwrap();

    let attempts = run_probe(&env, "ENG-4").await;
    assert_eq!(attempts.len(), 5, "nothing directly: {attempts:#?}");
    let is_refused = |attempt: &String| attempt.trim().ends_with("HTTP/1.1 403 Forbidden");
    assert!(attempts.iter().all(is_refused), "{attempts:#?}");
    let refused = env.jobs("ENG-4").remove(0).refused_hosts;
    for host in [gateway, address] {
        let host = format!("{host}:{port}");
        assert!(refused.contains(&host), "{refused:?}");
    }
    assert_eq!(refused.len(), 5, "{refused:?}");

    // The same probe reaches both from a container with the engine's network.
    let env = env.restart_service(options(Some("open"))).await;
    let attempts = run_probe(&env, "ENG-5").await;
    for host in [gateway, address] {
        let reached = format!("direct {host}:{port}");
        assert!(attempts.contains(&reached), "{attempts:#?}");
    }
    engine.remove(&neighbour).await;
    drop(listener);
    env.finish().await;
}

/// Checks the limits of a container as the engine and the kernel report them.
fn assert_isolation(inspected: &Value) {
    let host = &inspected["HostConfig"];
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["CapDrop"][0], "ALL");
    assert_eq!(host["SecurityOpt"][0], "no-new-privileges");
    assert_eq!(host["Privileged"], false);
    assert_eq!(host["Memory"], 4_096_i64 << 20);
    assert_eq!(host["MemorySwap"], 4_096_i64 << 20);
    assert_eq!(host["NanoCpus"], 2_000_000_000_i64);
    assert_eq!(host["PidsLimit"], 1_024);
    assert_eq!(host["RestartPolicy"]["Name"], "no");
    assert_eq!(inspected["Config"]["User"], "1000:1000");
    assert!(host["Binds"].is_null());
    let pid = inspected["State"]["Pid"].as_u64().unwrap();
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

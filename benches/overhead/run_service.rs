//! The service as a process of its own, whose runs are executed by one runner.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use domain::time::Timestamp;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeVendors, FakeVendorsOptions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use store::crash_injection::CrashPlan;
use store::{Store, mappings};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::run_parts::CLOCK_FILE;
use crate::support::{fixtures, service, vendor_setup};
use crate::{Runner, now};

/// Path of the service binary.
const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// Image of runs in a real container engine, and programs in it.
const IMAGE: &str = "agent-implement-runner:overhead";
const PROGRAMS: [&str; 6] = ["bash", "sh", "cat", "cp", "date", "git"];

/// Secret of Linear's webhooks.
const WEBHOOK_SECRET: &str = "secret of the ticketing webhook";

/// Memory of a machine in MB. The work tree of a container is in memory.
const MEMORY_MB: u32 = 2_048;

/// What is measured.
pub struct Setup<'a> {
    pub runner: Runner,
    /// Socket of a real container engine.
    pub engine: Option<&'a str>,
    /// Whether the service keeps mirrors of repositories.
    pub has_mirror: bool,
    /// Folder for the stores and the fake vendors.
    pub dir: &'a Path,
}

/// Running service and its fake vendors. The service is killed on drop.
pub struct RunService {
    pub vendors: FakeVendors,
    child: Child,
    data_dir: PathBuf,
    forward: Option<JoinHandle<()>>,
    dir: tempfile::TempDir,
}

impl RunService {
    /// Starts the fake vendors with the repository `acme/shop`, whose bare repository `fill` fills, and the service
    /// with its production intervals. Linear announces flagged tickets by webhook.
    pub async fn start(setup: &Setup<'_>, fill: impl Fn(&Path) -> Result<()>) -> Result<Self> {
        let dir = tempfile::tempdir_in(setup.dir)?;
        let options = FakeVendorsOptions {
            app_key_pem: Some(test_support::app_key()),
            ..FakeVendorsOptions::new(dir.path().join("vendors"), PROGRAM)
        };
        let vendors = FakeVendors::start(options).await?;
        vendors.linear().ensure_team("ENG", "Engineering");
        vendor_setup::create_repo(&vendors, "shop")?;
        fill(&vendors.dir().join("git/acme/shop.git"))?;
        clock_script().save(&vendors.scripts_dir(), "default")?;
        let mut forward = None;
        let mut address = None;
        if let Some(engine) = setup.engine {
            import_image(engine, dir.path()).await?;
            let ip = gateway(engine).await?;
            forward = Some(forward_port(ip, vendors.port()).await?);
            address = Some(ip.to_string());
        }
        let data_dir = dir.path().join("data");
        let store = Store::open(&data_dir)?;
        let mut mapping = fixtures::mapping("ENG")?;
        mapping.machine_memory_mb = MEMORY_MB;
        store.write(move |tx| mappings::put(tx, &mapping)).await?;
        drop(store);
        drop(Store::open_when_released(&data_dir, CrashPlan::default()).await?);
        let child = serve(setup, &vendors, &data_dir, address.as_deref())?;
        Ok(Self {
            vendors,
            child,
            data_dir,
            forward,
            dir,
        })
    }

    /// Waits until a condition holds. Returns the time.
    pub async fn wait_until(
        &self,
        limit: Duration,
        what: &str,
        holds: impl Fn() -> bool,
    ) -> Result<Timestamp> {
        let began = Instant::now();
        loop {
            // The time before the question: the condition held at the latest then.
            let at = now();
            if holds() {
                return Ok(at);
            }
            ensure!(began.elapsed() < limit, "timeout: {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops the service and returns its store. The fake vendors run on.
    pub async fn stop(mut self) -> Result<(Store, FakeVendors, tempfile::TempDir)> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.child.wait()?;
        if let Some(forward) = self.forward.take() {
            forward.abort();
        }
        let store = Store::open_when_released(&self.data_dir, CrashPlan::default()).await?;
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir()?);
        Ok((store, self.vendors.clone(), dir))
    }
}

impl Drop for RunService {
    fn drop(&mut self) {
        // The process has usually exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the service and waits until it serves.
fn serve(
    setup: &Setup<'_>,
    vendors: &FakeVendors,
    data_dir: &Path,
    address: Option<&str>,
) -> Result<Child> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let own = format!("http://127.0.0.1:{port}");
    let external = |url: String| match address {
        Some(ip) => url.replace("127.0.0.1", ip),
        None => url,
    };
    let mode = match setup.runner {
        Runner::Local => "local",
        Runner::Ci => "ci",
        Runner::Vm => "vm",
        Runner::Kubernetes => "kubernetes",
    };
    let mut flags = vec![
        ("--port", port.to_string()),
        ("--data-dir", data_dir.display().to_string()),
        ("--runner-mode", mode.to_owned()),
        ("--linear-api-key", vendors.linear().api_key()),
        ("--linear-api-url", vendors.linear_url()),
        ("--linear-webhook-secret", WEBHOOK_SECRET.to_owned()),
        ("--github-app-id", vendors.github().app_id().to_string()),
        ("--github-app-private-key", test_support::app_key()),
        ("--github-api-url", external(vendors.github_api_url())),
        ("--anthropic-api-key", "sk-ant-of-the-benchmark".to_owned()),
        ("--allow-plain-http", "true".to_owned()),
    ];
    if !setup.has_mirror {
        flags.push(("--git-mirror-limit-mb", "0".to_owned()));
    }
    match (setup.runner, setup.engine) {
        (Runner::Local, Some(engine)) => flags.extend([
            ("--docker-host", engine.to_owned()),
            ("--local-runner-image", IMAGE.to_owned()),
        ]),
        (Runner::Local, None) => flags.push(("--docker-host", vendors.docker_socket())),
        _ => flags.extend([
            ("--runner-callback-base-url", own.clone()),
            ("--runner-token-secret", service::TOKEN_SECRET.to_owned()),
            ("--vm-sessions-token", vendors.fly().token().to_owned()),
            ("--vm-sessions-app", vendors.fly().app().to_owned()),
            ("--vm-api-url", vendors.fly_url()),
            (
                "--kubeconfig",
                vendors.kubernetes().kubeconfig().display().to_string(),
            ),
            (
                "--kubernetes-namespace",
                vendors.kubernetes().namespace().to_owned(),
            ),
        ]),
    }
    let mut child = Command::new(PROGRAM)
        .arg("serve")
        .args(flags.iter().flat_map(|(flag, value)| [*flag, value]))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let log = child.stderr.take().context("no log")?;
    let mut log = BufReader::new(log).lines();
    let mut output = String::new();
    loop {
        let line = log
            .next()
            .with_context(|| format!("the service exited: {output}"))??;
        if line.contains("is running.") {
            break;
        }
        output.push_str(&line);
    }
    let is_verbose = std::env::var_os("OVERHEAD_LOG").is_some();
    // A full pipe would block the service.
    std::thread::spawn(move || {
        for line in log.map_while(Result::ok) {
            if is_verbose {
                eprintln!("{line}");
            }
        }
    });
    let webhook = format!("{own}/api/ticketing-a/webhook");
    vendors.linear().set_webhook(&webhook, WEBHOOK_SECRET);
    Ok(child)
}

/// Script of the agent: it writes the times of its first and of its last output, and changes nothing else.
fn clock_script() -> Script {
    let write_time = ScriptStep::run(&format!("date +%s%N >>{CLOCK_FILE}"));
    let message = ScriptStep::Message {
        text: "I wrote the time.".into(),
    };
    Script::new().pass([write_time.clone(), message, write_time])
}

/// Sends a request to a container engine.
async fn engine_request(engine: &str, request: Request) -> Result<Value> {
    let socket = engine
        .strip_prefix("unix://")
        .context("not a Unix socket")?;
    let client = reqwest::Client::builder()
        .unix_socket(Path::new(socket))
        .build()?;
    let sent = match request {
        Request::Gateway => client.get("http://engine/networks/bridge"),
        Request::Import(tar) => {
            let (name, tag) = IMAGE.split_once(':').context("no tag")?;
            let url = format!("http://engine/images/create?fromSrc=-&repo={name}&tag={tag}");
            client.post(url).body(std::fs::read(tar)?)
        }
    };
    let text = sent.send().await?.error_for_status()?.text().await?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Request to a container engine.
enum Request {
    /// Description of the default network.
    Gateway,
    /// Import of a root file system as the image.
    Import(PathBuf),
}

/// Imports a runner image made of the programs of this machine.
async fn import_image(engine: &str, dir: &Path) -> Result<()> {
    let (root, tar) = (dir.join("root"), dir.join("root.tar"));
    clock_script().save(&root.join("scripts"), "default")?;
    let status = Command::new("bash")
        .arg("tests/runner_root.sh")
        .args(PROGRAMS)
        .env("ROOT", &root)
        .env("TAR", &tar)
        .env("PROGRAM", PROGRAM)
        .status()?;
    ensure!(status.success(), "the image could not be made");
    engine_request(engine, Request::Import(tar)).await?;
    Ok(())
}

/// Returns the address of this machine in the network of the containers.
async fn gateway(engine: &str) -> Result<IpAddr> {
    let network = engine_request(engine, Request::Gateway).await?;
    let config = &network["IPAM"]["Config"][0];
    if let Some(gateway) = config["Gateway"].as_str() {
        return Ok(gateway.parse()?);
    }
    // Older engines name the network only.
    let subnet = config["Subnet"].as_str().context("no subnet")?;
    let first: Ipv4Addr = subnet.split('/').next().unwrap_or_default().parse()?;
    Ok(Ipv4Addr::from(u32::from(first) + 1).into())
}

/// Forwards connections to the same port of 127.0.0.1.
async fn forward_port(ip: IpAddr, port: u16) -> Result<JoinHandle<()>> {
    let listener = TcpListener::bind((ip, port)).await?;
    Ok(tokio::spawn(async move {
        while let Ok((mut outside, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut inside) = TcpStream::connect(("127.0.0.1", port)).await {
                    // Either side may close the connection at any time.
                    let _ = copy_bidirectional(&mut outside, &mut inside).await;
                }
            });
        }
    }))
}

//! A service in a network namespace of its own: it reaches the vendors, and nothing reaches it.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fake_vendors::scripted_agent::{Script, ScriptStep};
use requires::requires;

use crate::planning::{PLANNING_PROMPT, write_steps};
use crate::requirements::require;
use crate::test_env::{
    EngineMode, StoppedEnv, TestEnv, TestEnvOptions, forward_port, planning_mapping,
};

const PORT: u16 = 8080;

/// Maximum time until a ticket has its pull request.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Service in its namespace, with a link to this machine.
struct IsolatedService {
    process: Child,
    /// Address of this machine on the link.
    outside: IpAddr,
    /// Address of the service on the link.
    inside: IpAddr,
}

impl IsolatedService {
    /// Creates the namespace and the link. The service starts in [`IsolatedService::start`].
    fn create(env: &StoppedEnv, runner_mode: &str, subnet: u8) -> Result<Self, String> {
        let [outside, inside] =
            [1, 2].map(|host| IpAddr::from(Ipv4Addr::new(10, 213, subnet, host)));
        let options = TestEnvOptions {
            behind_nat: true,
            session_hosts: true,
            extra_flags: vec![
                ("--runner-mode", runner_mode.to_owned()),
                ("--allow-plain-http", "true".to_owned()),
            ],
            ..TestEnvOptions::default()
        };
        let flags = env.command_line("", &options).into_iter();
        let flags = flags.map(|flag| flag.replace("127.0.0.1", &outside.to_string()));
        let log =
            File::create(env.data_dir().join("service.log")).map_err(|error| error.to_string())?;
        let process = Command::new("unshare")
            .args([
                "--net",
                "sh",
                "-c",
                "read _ && ip link set lo up && exec \"$@\"",
                "sh",
            ])
            .arg(env!("CARGO_BIN_EXE_agent-implement"))
            .args(["serve", "--quick", "--port", &PORT.to_string()])
            .args(flags)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| error.to_string())?;
        let service = Self {
            process,
            outside,
            inside,
        };
        let (pid, link) = (service.process.id(), format!("ai-nat{subnet}"));
        let script = format!(
            "until [ \"$(readlink /proc/{pid}/ns/net)\" != \"$(readlink /proc/self/ns/net)\" ]; do sleep 0.05; done
             ip link add {link} type veth peer name eth0 netns {pid} && ip addr add {outside}/30 dev {link} && \
             ip link set {link} up && nsenter -t {pid} -n ip addr add {inside}/30 dev eth0 && \
             nsenter -t {pid} -n ip link set eth0 up"
        );
        let output = Command::new("timeout")
            .args(["20", "sh", "-c", &script])
            .output();
        let output = output.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(service),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn start(&mut self) {
        let mut stdin = self.process.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
    }
}

impl Drop for IsolatedService {
    fn drop(&mut self) {
        // The link ends with its namespace.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until a pull request of the ticket is open, and checks that its plan was posted.
async fn wait_for_planned_pull(env: &StoppedEnv, service: &mut IsolatedService, key: &str) {
    let began = std::time::Instant::now();
    let ticket = env.vendors.linear().issue(key);
    let mentions = |text: &str| ticket.comments().iter().any(|body| body.contains(text));
    while !mentions("Pull request opened") {
        if began.elapsed() > TIMEOUT {
            let log = std::fs::read_to_string(env.data_dir().join("service.log")).unwrap();
            panic!("{key}: {:?}\n{log}", ticket.comments());
        }
        assert!(
            service.process.try_wait().unwrap().is_none(),
            "the service exited"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(mentions("1. Write feature.txt"), "{:?}", ticket.comments());
}

#[requires("namespaces")]
#[tokio::test(flavor = "multi_thread")]
async fn plans_and_implements_on_both_runners_without_a_way_in() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![planning_mapping()],
        behind_nat: true,
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    env.repo().allow_actions_to_open_pulls();
    let plan = [
        ScriptStep::write(
            "ai-output/comments/01-steps.md",
            "## Steps\n\n1. Write feature.txt",
        ),
        ScriptStep::message("Planned."),
    ];
    for key in ["ENG-1", "ENG-2"] {
        let script = Script::new()
            .pass_if_prompt_contains(PLANNING_PROMPT, plan.clone())
            .pass_if_prompt_contains("1. Write feature.txt", write_steps());
        env.set_agent_script(key, script);
    }
    let env = env.stop_service().await;
    let vendors = SocketAddr::from(([127, 0, 0, 1], env.vendors.port()));
    for (key, runner_mode, subnet) in [("ENG-1", "ci", 71), ("ENG-2", "local", 72)] {
        let created = IsolatedService::create(&env, runner_mode, subnet);
        let mut service = require("namespaces", created);
        let forward = forward_port((service.outside, vendors.port()).into(), vendors).await;
        service.start();
        let ticket = env.vendors.linear().issue(key).title("Add the feature");
        ticket.describe("Please.").add_label("Agent-Implement");
        wait_for_planned_pull(&env, &mut service, key).await;
        let address = SocketAddr::from((service.inside, PORT));
        let connected = TcpStream::connect_timeout(&address, Duration::from_secs(2));
        assert!(connected.is_err(), "{address} is reachable");
        drop(service);
        forward.close().await;
    }
    env.vendors.stop_and_kill_runs().await;
}

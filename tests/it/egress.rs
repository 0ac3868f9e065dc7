//! Connections of runs in isolated containers, through the socket of the proxy.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use domain::crypto::sha256_hex;
use domain::ids::JobId;
use domain::job::{JobKind, JobState};
use engine::clock::Clock;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};

use crate::api_server::dispatched_job;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions, mapping_with};

const JOB: &str = "01JEGRESS";

/// Starts a service whose containers are isolated and may reach these hosts, with a running job.
async fn env_with(hosts: &str) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--local-egress-hosts", hosts.to_owned())],
        engine: EngineMode::Manual(Clock::System),
        ..TestEnvOptions::default()
    })
    .await;
    add_job(&env, JOB).await;
    env
}

async fn add_job(env: &TestEnv, id: &str) {
    let mut job = dispatched_job(id, JobKind::Implementation);
    job.nonce_hash = Some(sha256_hex(&nonce(env, id)));
    let put = env.store.write(move |tx| store::jobs::put(tx, &job));
    put.await.unwrap();
}

fn nonce(env: &TestEnv, job: &str) -> String {
    let nonce = env.app.secrets.run_tokens.session_nonce(&JobId::from(job));
    nonce.expose().to_owned()
}

fn request_head(env: &TestEnv, job: &str, destination: &str) -> String {
    let nonce = nonce(env, job);
    format!("CONNECT {destination} HTTP/1.1\r\nProxy-Authorization: Bearer {nonce}\r\n\r\n")
}

async fn connect(data_dir: &Path) -> UnixStream {
    let socket = data_dir.join("run-socket/egress.sock");
    UnixStream::connect(socket).await.unwrap()
}

/// Sends bytes to the proxy. Returns what it sends until it closes the connection.
async fn send(env: &TestEnv, bytes: &[u8]) -> String {
    let mut proxy = connect(&env.dir().join("data")).await;
    proxy.write_all(bytes).await.unwrap();
    let mut response = Vec::new();
    // The proxy may close a connection from which it has not read everything.
    let _ = proxy.read_to_end(&mut response).await;
    String::from_utf8_lossy(&response).into_owned()
}

async fn request(env: &TestEnv, destination: &str) -> String {
    send(env, request_head(env, JOB, destination).as_bytes()).await
}

async fn refused_hosts(env: &TestEnv) -> serde_json::Value {
    let details = env.admin_get(&format!("/api/jobs/{JOB}/details")).await;
    details["refusedHosts"].clone()
}

/// An address of this machine that other machines use.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing.
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnels_lead_to_permitted_hosts_only() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut hello = [0; 5];
            connection.read_exact(&mut hello).await.unwrap();
            connection.write_all(b"welcome").await.unwrap();
        }
    });
    let own = own_address();
    let env = env_with(&format!("*, {own}:{port}")).await;

    // Sent with the request, as a program may do that does not wait.
    let head = request_head(&env, JOB, &format!("{own}:{port}")) + "hello";
    let response = send(&env, head.as_bytes()).await;
    assert_eq!(
        response,
        "HTTP/1.1 200 Connection established\r\n\r\nwelcome"
    );

    let private =
        "is on this machine or in a private network, and LOCAL_EGRESS_HOSTS does not name it";
    for destination in [
        format!("{own}:22"),
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("0.0.0.0:{port}"),
        "169.254.169.254:80".to_owned(),
        "[fe80::1]:80".to_owned(),
        "10.0.0.1:443".to_owned(),
    ] {
        let response = request(&env, &destination).await;
        assert!(
            response.starts_with("HTTP/1.1 403 Forbidden\r\n"),
            "{response}"
        );
        assert!(response.ends_with(&format!("{private}.\n")), "{response}");
    }
    let refused = refused_hosts(&env).await;
    assert_eq!(refused.as_array().unwrap().len(), 9, "{refused}");
    assert_eq!(refused[0], format!("{own}:22"));
    request(&env, &format!("{own}:22")).await;
    assert_eq!(refused_hosts(&env).await, refused, "each host once");

    let absent = request(&env, "absent.invalid:443").await;
    assert!(
        absent.starts_with("HTTP/1.1 502 Bad Gateway\r\n"),
        "{absent}"
    );
    env.stop().await;
}

/// Also if an operator names them: a run would find the credentials of the machine there.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_and_loopback_addresses_are_never_reached() {
    let hosts = [
        "127.0.0.1:9",
        "localhost:9",
        "169.254.169.254:80",
        "100.100.100.200:80",
        "192.0.0.192:80",
        "168.63.129.16:80",
        "[fd00:ec2::254]:80",
        "[fd20:ce::254]:80",
        "[::ffff:169.254.169.254]:80",
        "[64:ff9b::a9fe:a9fe]:80",
    ];
    let env = env_with(&hosts.join(",")).await;
    for host in hosts {
        let response = request(&env, host).await;
        assert!(
            response.starts_with("HTTP/1.1 403 Forbidden\r\n")
                && response.ends_with("which runs never reach.\n"),
            "{host}: {response}"
        );
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_hosts_excludes_all_others() {
    let env = env_with("registry.example, *.corp.example:8443").await;
    // Other services may share it with the panel. The run reports through its socket.
    let callback = env.app.core.config.callback_base_url.clone().unwrap();
    let callback = callback.strip_prefix("http://").unwrap();
    let refused = [
        "api.example:443",
        "corp.example:8443",
        "x.corp.example:443",
        callback,
    ];
    for destination in refused {
        let response = request(&env, destination).await;
        let sentence = format!("LOCAL_EGRESS_HOSTS does not permit {destination}.\n");
        assert!(response.ends_with(&sentence), "{response}");
    }
    assert_eq!(refused_hosts(&env).await, json!(refused));
    // Resolved, because it is permitted.
    let permitted = request(&env, "registry.example:443").await;
    assert!(permitted.starts_with("HTTP/1.1 50"), "{permitted}");
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_well_formed_requests_of_active_runs_are_served() {
    let env = env_with("*").await;
    let unauthorized = "HTTP/1.1 407 Proxy Authentication Required\r\n";
    for authorization in [
        "",
        "Proxy-Authorization: Bearer guessed\r\n",
        "Authorization: Bearer x\r\n",
    ] {
        let head = format!("CONNECT 10.0.0.1:443 HTTP/1.1\r\n{authorization}\r\n");
        let response = send(&env, head.as_bytes()).await;
        assert!(response.starts_with(unauthorized), "{response}");
    }
    for head in [
        "GET http://10.0.0.1/ HTTP/1.1\r\n\r\n",
        "CONNECT 10.0.0.1 HTTP/1.1\r\n\r\n",
        "CONNECT 127.1:80 HTTP/1.1\r\n\r\n",
        "\r\n\r\n",
    ] {
        let response = send(&env, head.as_bytes()).await;
        assert!(
            response.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{head}: {response}"
        );
    }
    let long = send(&env, &[b'x'; 8192]).await;
    assert!(
        long.is_empty() || long.starts_with("HTTP/1.1 400"),
        "{long}"
    );

    let mut job = env
        .store
        .read(|tx| store::jobs::get(tx, &JobId::from(JOB)))
        .unwrap()
        .unwrap();
    job.state = JobState::Completed;
    let put = env.store.write(move |tx| store::jobs::put(tx, &job));
    put.await.unwrap();
    let ended = request(&env, "10.0.0.1:443").await;
    assert!(ended.starts_with(unauthorized), "{ended}");
    assert_eq!(refused_hosts(&env).await, json!([]));
    env.stop().await;
}

/// Asserts that a request is answered before idle connections would end by themselves, after ten seconds.
async fn assert_others_are_served(env: &TestEnv) {
    let began = std::time::Instant::now();
    let response = request(env, "api.example:443").await;
    assert!(
        response.starts_with("HTTP/1.1 403 Forbidden\r\n"),
        "{response}"
    );
    assert!(began.elapsed() < std::time::Duration::from_secs(5));
}

/// A hostile run opens connections and sends nothing. Others are served nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_keep_others_out() {
    let env = env_with("registry.example").await;
    let data_dir = env.dir().join("data");
    let mut idle = Vec::new();
    for _ in 0..500 {
        idle.push(connect(&data_dir).await);
    }
    assert_others_are_served(&env).await;
    let read = idle[0].read(&mut [0]).await;
    assert_eq!(read.unwrap_or_default(), 0, "the oldest are closed");
    env.stop().await;
}

/// Hostile runs use up the tunnels of all as well. The run with most tunnels makes place.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_and_tunnels_do_not_keep_others_out() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let silent = format!(
        "{}:{}",
        own_address(),
        listener.local_addr().unwrap().port()
    );
    tokio::spawn(async move {
        let mut connections = Vec::new();
        loop {
            connections.push(listener.accept().await.unwrap());
        }
    });
    let env = env_with(&silent).await;
    let data_dir = env.dir().join("data");
    let mut tunnels = Vec::new();
    for job in ["01JHOSTILE0", "01JHOSTILE1", "01JHOSTILE2", "01JHOSTILE3"] {
        add_job(&env, job).await;
        let head = request_head(&env, job, &silent);
        for _ in 0..64 {
            let mut tunnel = connect(&data_dir).await;
            tunnel.write_all(head.as_bytes()).await.unwrap();
            let mut response = [0; 12];
            tunnel.read_exact(&mut response).await.unwrap();
            assert_eq!(&response, b"HTTP/1.1 200");
            tunnels.push(tunnel);
        }
    }
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(connect(&data_dir).await);
    }
    assert_others_are_served(&env).await;
    drop((tunnels, idle));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_run_gets_no_network_and_the_proxy() {
    let java = json!({"extraEnv": {"JAVA_TOOL_OPTIONS": "-Xmx2g"}});
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: vec![mapping_with(&java)],
        session_hosts: true,
        extra_flags: vec![("--runner-mode", "local".to_owned())],
        ..TestEnvOptions::default()
    })
    .await;
    // The options of the project stay in force.
    let setup =
        "---\nsetup: '[[ $JAVA_TOOL_OPTIONS == \"-Xmx2g -Dhttp.proxyHost=127.0.0.1 \"* ]]'\n---\n";
    env.repo()
        .commit("main", &[("WORKFLOW.md", setup)], "Check the options")
        .unwrap();
    env.create_labelled_issue("ENG-1", "Add a feature");
    env.wait_until("a container", || {
        !env.vendors.docker().host().snapshots().is_empty()
    })
    .await;
    let created = env
        .vendors
        .docker()
        .host()
        .snapshots()
        .remove(0)
        .create_request;
    assert_eq!(created["HostConfig"]["NetworkMode"], "none");
    assert_eq!(created["HostConfig"]["ExtraHosts"], json!([]));
    let variables = created["Env"].as_array().unwrap();
    assert!(variables.contains(&json!("EGRESS_PROXY=/run/agent-implement/egress.sock")));
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(
        job.state,
        JobState::Completed,
        "{:#?}",
        env.comments("ENG-1")
    );
    env.finish().await;
}

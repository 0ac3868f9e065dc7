//! Tests of the Docker client.

use super::*;
use crate::http::test_client;
use test_support::{StubReply, TestServer};

#[test]
fn splits_an_image_into_name_and_tag() {
    for (image, name, tag) in [
        (
            "agent-implement-runner:local",
            "agent-implement-runner",
            "local",
        ),
        ("ghcr.io/acme/runner", "ghcr.io/acme/runner", "latest"),
        ("localhost:5000/runner", "localhost:5000/runner", "latest"),
        ("localhost:5000/a/runner:1", "localhost:5000/a/runner", "1"),
        ("r@sha256:abc", "r@sha256:abc", ""),
    ] {
        assert_eq!(image_parts(image), (name, tag), "{image}");
    }
}

#[test]
fn removes_the_frame_headers_of_a_log() {
    let frame = |stream: u8, text: &str| {
        let mut bytes = vec![stream, 0, 0, 0];
        bytes.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    let log = [frame(1, "out\n"), frame(2, "err\n"), frame(1, "")].concat();
    assert_eq!(strip_log_frames(&log), "out\nerr\n");
    let cut = &log[..log.len() - 11];
    assert_eq!(strip_log_frames(cut), "out\ne");
    assert_eq!(
        strip_log_frames(b"plain text of a terminal"),
        "plain text of a terminal"
    );
    assert_eq!(strip_log_frames(b""), "");
}

fn spec() -> MachineSpec {
    MachineSpec {
        name: "run".into(),
        image: "acme/runner:1".into(),
        cpus: 1,
        memory_mb: 256,
        socket_folder: None,
        mirror_folder: None,
        is_isolated: false,
        node_selector: Default::default(),
        max_lifetime: Duration::ZERO,
        environment: [].into(),
        labels: MachineLabels {
            instance: "here".into(),
            job: "01J".into(),
            issue: None,
            team: None,
            repo: None,
            expires_at: None,
        },
    }
}

fn client_of(server: &TestServer) -> Docker {
    Docker::new(test_client("the container engine"), &server.url)
}

#[tokio::test]
async fn retries_without_the_host_gateway_if_the_engine_rejects_it() {
    const GATEWAY_ERROR: &str = "invalid IP address in add-host: \"host-gateway\"";
    let server = TestServer::start(|request, _| {
        if request.path.contains("/containers/create") {
            let has_gateway = request.body.contains(HOST_GATEWAY_IP);
            let (status, body) = match has_gateway {
                true => (500, json!({"message": GATEWAY_ERROR, "response": 500})),
                false => (201, json!({"Id": "c1"})),
            };
            return StubReply::json(status, &body);
        }
        StubReply::json(404, &json!({"message": "no such container"}))
    })
    .await;
    let started = client_of(&server).start(&spec(), "here").await.unwrap();
    assert!(is_refused(&started, 404), "{started:?}");
    let requests = server.requests();
    let creates = requests
        .iter()
        .filter(|request| request.path.contains("/create"));
    assert_eq!(creates.count(), 2);
}

fn is_refused(started: &MachineStartOutcome, with: u16) -> bool {
    matches!(started, MachineStartOutcome::Refused { status: Some(status), .. } if *status == with)
}

/// As Podman answers, which had no 409 before version 6, and has one status for every failed start.
#[tokio::test]
async fn a_container_of_podman_is_adopted_and_one_that_cannot_start_is_removed() {
    let (in_use, program) = (
        "creating container storage: the container name \"run\" is already in use by c1",
        "crun: executable file `agent-implement` not found in $PATH: No such file or directory",
    );
    let mount = "statfs /var/lib/agent-implement/mirrors/x: no such file or directory";
    let engine = "failed to create task: /run/containerd/io: no such file or directory";
    for (start_error, is_final) in [(program, true), (mount, true), (engine, false)] {
        let server = TestServer::start(move |request, _| {
            let labels = spec().labels.to_map();
            match request.path.split('?').next().unwrap() {
                "/containers/create" => StubReply::json(500, &json!({"message": in_use})),
                "/containers/json" => StubReply::json(
                    200,
                    &json!([{"Id": "c1", "Names": ["/run"], "State": "created", "Created": 1, "Labels": labels}]),
                ),
                "/containers/c1/start" => StubReply::json(500, &json!({"message": start_error})),
                _ => StubReply::json(204, &json!({})),
            }
        })
        .await;
        let started = client_of(&server).start(&spec(), "here").await;
        let requests = server.requests();
        let is_removed = { requests.iter() }.any(|request| request.method == "DELETE");
        assert_eq!(is_removed, is_final, "{start_error}");
        match is_final {
            true => assert!(is_refused(&started.unwrap(), 500)),
            false => assert!(!started.unwrap_err().is_permanent()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_goes_on_when_nobody_waits_for_it() {
    let (finish, finished) = std::sync::mpsc::channel();
    let finished = std::sync::Mutex::new(finished);
    let server = TestServer::start(move |request, _| {
        if request.path.contains("/images/create") {
            // Without this, tasks that only this thread can run would wait, too.
            tokio::task::block_in_place(|| finished.lock().unwrap().recv().unwrap());
            return StubReply::json(200, &json!({"status": "Download complete"}));
        }
        StubReply::json(404, &json!({"message": "No such image"}))
    })
    .await;
    let docker = Docker {
        pull_wait: Duration::from_millis(50),
        ..client_of(&server)
    };
    for _ in 0..2 {
        let error = docker.start(&spec(), "here").await.unwrap_err();
        assert!(!error.is_permanent());
        assert_eq!(
            error.to_string(),
            "pulling the image: the engine is still pulling the image"
        );
    }
    finish.send(()).unwrap();
    let docker = Docker {
        pull_wait: PULL_WAIT,
        ..docker
    };
    let started = docker.start(&spec(), "here").await.unwrap();
    assert!(
        is_refused(&started, 404),
        "the engine has no image after the pull"
    );
    let requests = server.requests();
    let pulls = requests
        .iter()
        .filter(|request| request.path.contains("/images/create"));
    assert_eq!(pulls.count(), 1);
}

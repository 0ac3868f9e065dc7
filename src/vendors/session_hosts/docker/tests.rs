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
    let docker = Docker::new(
        test_client("the container engine"),
        test_client("the container engine"),
        &server.url,
    );
    let spec = MachineSpec {
        name: "run".into(),
        image: "acme/runner:1".into(),
        cpus: 1,
        memory_mb: 256,
        socket_folder: None,
        mirror_folder: None,
        is_isolated: false,
        node_selector: Default::default(),
        max_lifetime: std::time::Duration::ZERO,
        environment: [].into(),
        labels: MachineLabels {
            instance: "here".into(),
            job: "01J".into(),
            issue: None,
            team: None,
            repo: None,
            expires_at: None,
        },
    };
    let started = docker.start(&spec, "here").await.unwrap();
    assert!(
        matches!(
            started,
            MachineStartOutcome::Refused {
                status: Some(404),
                ..
            }
        ),
        "{started:?}"
    );
    let requests = server.requests();
    let creates = requests
        .iter()
        .filter(|request| request.path.contains("/create"));
    assert_eq!(creates.count(), 2);
}

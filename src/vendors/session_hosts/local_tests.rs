use super::*;
use crate::http::test_client;
use test_support::{StubReply, TestServer};

#[test]
fn an_image_is_split_into_name_and_tag() {
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
fn frames_are_taken_off_a_log() {
    let frame = |stream: u8, text: &str| {
        let mut bytes = vec![stream, 0, 0, 0];
        bytes.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    let log = [frame(1, "out\n"), frame(2, "err\n"), frame(1, "")].concat();
    assert_eq!(unframed(&log), "out\nerr\n");
    let cut = &log[..log.len() - 11];
    assert_eq!(unframed(cut), "out\ne");
    assert_eq!(
        unframed(b"plain text of a terminal"),
        "plain text of a terminal"
    );
    assert_eq!(unframed(b""), "");
}

#[tokio::test]
async fn an_engine_that_cannot_name_its_machine_gets_a_container_without_that_name() {
    const WORDS: &str = "invalid IP address in add-host: \"host-gateway\"";
    let server = TestServer::start(|asked, _| {
        if asked.path.contains("/containers/create") {
            let names_host = asked.body.contains(HOST_GATEWAY_IP);
            let (status, said) = match names_host {
                true => (500, json!({"message": WORDS, "response": 500})),
                false => (201, json!({"Id": "c1"})),
            };
            return StubReply::json(status, &said);
        }
        StubReply::json(404, &json!({"message": "gone again"}))
    })
    .await;
    let docker = Docker::new(test_client("docker"), test_client("docker"), &server.url);
    let spec = MachineSpec {
        name: "run".into(),
        image: "acme/runner:1".into(),
        cpus: 1,
        memory_mb: 256,
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
    let asked = server.requests();
    let creates = asked.iter().filter(|asked| asked.path.contains("/create"));
    assert_eq!(creates.count(), 2);
}

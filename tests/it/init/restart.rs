//! A running service that does not have the settings yet.

use std::os::unix::net::UnixStream;
use std::process::Stdio;

use super::{NewMachine, Running, wait_until};
use crate::process::command;

const ARGUMENTS: [&str; 6] = ["--runner", "ci", "--system", "linear", "--team", "ENG"];

impl NewMachine {
    /// Starts the service with the files of the setup, and waits until it answers.
    fn serve(&self) -> Running {
        let mut serve = command(&["serve", "--port", "0", "--env-file"]);
        serve.arg(self.path("agent-implement.env"));
        let child = serve.stderr(Stdio::null()).spawn().unwrap();
        let socket = self.path("data/control.sock");
        wait_until("the socket", || UnixStream::connect(&socket).is_ok());
        Running(child)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_setup_does_not_use_a_service_without_what_an_earlier_one_stored() {
    let machine = NewMachine::start().await;
    // Stops before anything is stored.
    let (code, _) = machine.init(&ARGUMENTS, &["GITHUB_TOKEN"]).await;
    assert_eq!(code, 1);
    let service = tokio::task::block_in_place(|| machine.serve());
    let (code, text) = machine.init(&ARGUMENTS, &["LINEAR_API_KEY"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("Stored GITHUB_TOKEN"), "{text}");
    for _ in 0..2 {
        let (code, text) = machine.init(&ARGUMENTS, &[]).await;
        assert_eq!(code, 1);
        let instruction =
            "the service runs with its previous settings. Stop it and run this command again";
        assert!(text.contains(instruction), "{text}");
    }
    drop(service);
    let service = tokio::task::block_in_place(|| machine.serve());
    let (code, text) = machine.init(&ARGUMENTS, &[]).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Stored project ENG."), "{text}");
    drop(service);
}

//! A setup that is killed at several points, and repeated.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use fake_vendors::{FakeService, InjectedFault};

use super::{NewMachine, Running, wait_until};

const ARGUMENTS: [&str; 6] = ["--runner", "ci", "--system", "jira", "--team", "OPS"];

/// Delay that no test outlives.
const LONG: Duration = Duration::from_secs(60 * 60);

/// Point at which a setup is killed.
enum Kill {
    /// After this output.
    Output(&'static str),
    /// While a vendor has performed this request and has not answered yet.
    Answer(FakeService, &'static str),
    /// While a vendor has this request and has not performed it.
    Request(FakeService, &'static str),
}

const KILLS: [Kill; 12] = [
    Kill::Output("Settings: "),
    Kill::Output("Stored GITHUB_TOKEN"),
    Kill::Output("Repository: "),
    Kill::Output("Stored JIRA_EMAIL"),
    Kill::Answer(FakeService::Jira, "POST /rest/api/3/field?"),
    Kill::Request(FakeService::Jira, "POST /rest/api/3/screens/addToDefault/"),
    Kill::Answer(FakeService::Jira, "POST /rest/api/3/field/"),
    Kill::Output("Created the Jira field Agent-Implement Repo"),
    Kill::Answer(FakeService::GitHub, "POST /repos/acme/web.shop/git/refs?"),
    Kill::Request(FakeService::GitHub, "POST /repos/acme/web.shop/pulls?"),
    Kill::Answer(FakeService::GitHub, "POST /repos/acme/web.shop/pulls?"),
    Kill::Output("Pull request with the workflows: "),
];

impl NewMachine {
    /// Starts a setup and kills it.
    fn kill(&self, kill: &Kill) {
        let mut command = self.command(&ARGUMENTS, &[]);
        match kill {
            Kill::Output(line) => {
                let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
                let output = BufReader::new(child.0.stdout.take().unwrap());
                let mut lines = output.lines().map(Result::unwrap);
                let found = lines.any(|shown| shown.contains(line));
                drop(child);
                assert!(found, "no output {line}");
            }
            Kill::Answer(service, request) => {
                self.kill_at_fault(command, *service, request, InjectedFault::HoldResponse);
            }
            Kill::Request(service, request) => {
                let delay = InjectedFault::DelayRequest(LONG);
                self.kill_at_fault(command, *service, request, delay);
            }
        }
    }

    fn kill_at_fault(
        &self,
        mut command: Command,
        service: FakeService,
        request: &str,
        fault: InjectedFault,
    ) {
        let faults = self.vendors.faults(service);
        let before = faults.injected().len();
        faults.inject_on_match(request, fault);
        let child = Running(command.stdout(Stdio::null()).spawn().unwrap());
        wait_until(request, || faults.injected().len() > before);
        drop(child);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setup_that_is_killed_and_repeated_ends_like_one_that_is_not() {
    let whole = NewMachine::start().await;
    let killed = NewMachine::start().await;
    for machine in [&whole, &killed] {
        machine.vendors.jira().remove_custom_fields();
        machine.vendors.jira().grant_admin();
    }
    let (code, text) = whole.init(&ARGUMENTS, &[]).await;
    assert_eq!(code, 0, "{text}");
    for kill in &KILLS {
        tokio::task::block_in_place(|| killed.kill(kill));
    }
    let (code, text) = killed.init(&ARGUMENTS, &[]).await;
    assert_eq!(code, 0, "{text}");

    assert_eq!(killed.export(), whole.export());
    let names = |machine: &NewMachine| {
        let files = machine.files().into_iter();
        let names = files.map(|(path, _)| path.file_name().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&killed), names(&whole), "no unfinished file");
    for name in ["GITHUB_TOKEN", "JIRA_API_TOKEN"] {
        let path = format!("credentials/{name}");
        let read = |machine: &NewMachine| super::stored_secret(&machine.path(&path));
        assert_eq!(read(&killed), read(&whole));
    }
    let fields = killed.vendors.jira().select_fields();
    assert_eq!(fields.len(), 2);
    assert_eq!(fields, whole.vendors.jira().select_fields());
    assert!(fields.iter().all(|field| field.is_on_default_screen));
    let pulls = killed.vendors.github().repo("acme", "web.shop").pulls();
    assert_eq!(pulls.len(), 1, "one pull request");
    killed.assert_requests_conform();
}

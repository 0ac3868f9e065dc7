//! Rights of a plain token, which are checked before the setup goes on.

use super::{NewMachine, Terminal};
use crate::process::{command, exit_and_output};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_lacks_a_permission_is_named_with_the_page_that_gives_it() {
    let machine = NewMachine::start().await;
    let github = machine.vendors.github();
    let arguments = ["--runner", "ci", "--system", "github"];
    for (permission, title) in [
        ("issues", "Issues"),
        ("pull_requests", "Pull requests"),
        ("actions", "Actions"),
    ] {
        github.deny_token_permission(permission);
        let (code, text) = machine.init(&arguments, &[]).await;
        assert_eq!(code, 1, "{text}");
        let lacks = format!("the token lacks the permission {title} in acme/web.shop.");
        assert!(text.contains(&lacks), "{text}");
        let page = "/settings/personal-access-tokens: select the repository";
        assert!(text.contains(page), "{text}");
        github.grant_token_permission(permission);
    }
    assert!(!machine.path("data").exists(), "nothing is mapped");

    // Tickets of Linear need no issues, and containers no workflows.
    github.deny_token_permission("issues");
    github.deny_token_permission("actions");
    let arguments = ["--runner", "local", "--system", "linear", "--team", "ENG"];
    let (_, text) = machine.init(&arguments, &[]).await;
    assert!(text.contains("Stored project ENG."), "{text}");
    machine.assert_requests_conform();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_may_not_push_is_refused_until_it_may() {
    let machine = NewMachine::start().await;
    let login = machine.vendors.github().personal_login();
    let repo = machine.vendors.github().repo("acme", "web.shop");
    repo.set_collaborator_role(login, "read");
    let [github, ..] = machine.secrets();
    let mut terminal = Terminal::start(&machine, "init --runner ci --system github");
    terminal.answer("GitHub token (not shown", &github);
    terminal.answer("Number or name [1]: ", "");
    terminal.wait_for("the account of the token may not push to acme/web.shop.");
    repo.set_collaborator_role(login, "write");
    terminal.answer("Number or name [1]: ", "");
    let (code, text) = terminal.end();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Stored project web-shop."), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_what_the_token_of_a_project_lacks() {
    let machine = NewMachine::start().await;
    let arguments = ["--runner", "ci", "--system", "github"];
    let (code, text) = machine.init(&arguments, &[]).await;
    assert_eq!(code, 0, "{text}");
    let doctor = || {
        let mut doctor = command(&["doctor", "--env-file"]);
        doctor.arg(machine.path("agent-implement.env"));
        exit_and_output(&doctor.output().unwrap()).1
    };
    let fine = "web-shop: the token can read what it needs in acme/web.shop";
    assert!(doctor().contains(fine), "{}", doctor());
    machine
        .vendors
        .github()
        .deny_token_permission("pull_requests");
    machine.vendors.github().deny_token_permission("actions");
    let found = doctor();
    let lacks = "the token lacks the permissions Actions, Pull requests in acme/web.shop";
    assert!(found.contains(lacks), "{found}");
}

//! A further project, whose runner changes the mode of the whole service.

use super::{NewMachine, Terminal};

#[tokio::test(flavor = "multi_thread")]
async fn other_projects_move_to_another_runner_only_if_a_person_agrees() {
    let machine = NewMachine::start().await;
    let local = ["--runner", "local", "--system", "linear", "--team", "ENG"];
    let (_, text) = machine.init(&local, &[]).await;
    assert!(text.contains("Stored project ENG."), "{text}");
    let stored = machine.export();
    assert_eq!(stored["runnerMode"], "local");

    let arguments = "--runner ci --system github --project WEB";
    let words: Vec<&str> = arguments.split(' ').collect();
    let (code, text) = machine.init(&words, &[]).await;
    assert_eq!(code, 1, "{text}");
    let change =
        "must change from local to default, which decides where other projects run, too: ENG.";
    assert!(text.contains(change), "{text}");
    assert_eq!(machine.export(), stored);

    for (answer, is_stored) in [("n", false), ("y", true)] {
        let mut terminal = Terminal::start(&machine, &format!("init {arguments}"));
        terminal.answer("Number or name [1]: ", "");
        terminal.answer("Change it? [Y/n]: ", answer);
        let (_, text) = terminal.end();
        assert_eq!(text.contains("Stored project WEB."), is_stored, "{text}");
    }
    assert_eq!(machine.export()["runnerMode"], "default");
    // The mode is that of both projects now.
    let (_, text) = machine.init(&words, &[]).await;
    assert!(text.contains("Project WEB is stored already."), "{text}");
}

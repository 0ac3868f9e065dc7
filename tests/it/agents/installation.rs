//! Agents that a run installs itself: they work, leave their installation as it is, and do not start from a changed
//! one.

use requires::requires;
use run::agent::{AgentCli, AgentRole};

use super::agent_harness::{AgentHarness, agents_dir};
use crate::fake_model::ModelTurn;

/// A file of each package that is loaded by its program.
const PACKAGES: [(AgentCli, &str); 3] = [
    (AgentCli::Claude, "@anthropic-ai/claude-code/package.json"),
    (AgentCli::Codex, "@openai/codex/bin/codex.js"),
    (AgentCli::Gemini, "@google/gemini-cli/package.json"),
];

/// Variables by which this machine reaches the registry. A run passes them to its children.
const NETWORK_VARIABLES: [&str; 3] = ["HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS"];

#[requires("agents")]
#[tokio::test(flavor = "multi_thread")]
async fn installed_agents_run_until_their_installation_is_changed() {
    // A machine with the agents has npm and its registry.
    agents_dir();
    for (cli, file) in PACKAGES {
        let turns = || [ModelTurn::text("All done.")];
        let nowhere = std::env::temp_dir().join("no-agents");
        let mut harness = AgentHarness::new(&nowhere, cli, turns()).await;
        harness.agent.may_install = true;
        for name in NETWORK_VARIABLES {
            if let Ok(value) = std::env::var(name) {
                harness.agent.env = harness.agent.env.with(name, value);
            }
        }
        let installed = harness.agent.install_if_missing(&harness.folders, |_| {});
        installed.await.unwrap();
        harness.agent.pin_program();
        for pass in 0..2 {
            harness.model.set_turns(turns());
            let outcome = harness.run_pass(AgentRole::Implement, 3).await;
            assert_eq!(outcome.text(), "All done.", "{cli:?}, pass {pass}");
        }
        let path = harness.path("../agent-program/node_modules").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}\n")).unwrap();
        let outcome = harness.run_pass(AgentRole::Review, 3).await;
        let (_, reason) = outcome.failure();
        assert!(
            reason.contains("changed during the run and is not started"),
            "{cli:?}: {reason}"
        );
    }
}

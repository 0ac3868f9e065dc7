//! Agent passes of steps.

use tokio::time::Instant;

use crate::agent::{AgentAnswer, AgentPass, AgentRole};
use crate::context::{PUSH_RESERVE, RunContext};
use crate::failure::RunFailure;
use crate::prompts;
use domain::limits;

/// Maximum number of turns of a review pass.
const REVIEW_TURNS: u32 = 40;

/// Runs an agent pass. It is stopped early enough to check and push the work.
pub(super) async fn run_agent_pass(
    run: &mut RunContext,
    role: AgentRole,
    prompt: String,
) -> Result<AgentAnswer, RunFailure> {
    let max_turns = run.dispatch.config.max_turns;
    let pass = AgentPass {
        role,
        max_turns: match role {
            AgentRole::Review => REVIEW_TURNS,
            AgentRole::Implement | AgentRole::Plan { .. } => {
                max_turns.unwrap_or(limits::DEFAULT_MAX_TURNS)
            }
        },
        system: prompts::system(&run.dispatch, &run.repo_config),
        prompt,
    };
    let of_dispatch = run.dispatch.config.options.model.clone();
    run.agent.model = of_dispatch.or_else(|| run.repo_config.model(role));
    let latest = run.limits.deadline_before(PUSH_RESERVE);
    let deadline = latest.max(Instant::now());
    run.workspace.git.expect_changes();
    run.reporting.begin_pass(pass.prompt.len());
    let (folders, console) = (&run.workspace.folders, &run.reporting.console);
    let meter = run.reporting.progress.usage_meter();
    let pass = run
        .agent
        .run_pass_metered(&pass, folders, console, deadline, meter);
    let answer = pass.await;
    run.reporting.end_pass();
    answer
}

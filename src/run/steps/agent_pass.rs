//! Agent passes of steps.

use tokio::time::Instant;

use crate::agent::{AgentAnswer, AgentPass};
use crate::context::{PUSH_RESERVE, RunContext};
use crate::failure::RunFailure;

/// Runs an agent pass. It is stopped early enough to check and push the work.
pub(super) async fn run_agent_pass(
    run: &mut RunContext,
    pass: &AgentPass,
) -> Result<AgentAnswer, RunFailure> {
    run.agent.model = run.repo_config.model(pass.role);
    let latest = run.limits.deadline_before(PUSH_RESERVE);
    let deadline = latest.max(Instant::now());
    let (folders, console) = (&run.workspace.folders, &run.reporting.console);
    let meter = run.reporting.progress.usage_meter();
    run.agent
        .run_pass_metered(pass, folders, console, deadline, meter)
        .await
}

//! `agent-implement demo --vendors-only`: the fake vendors alone, to try the setup of a real service against them.

use std::path::Path;
use std::process::ExitCode;

use fake_vendors::FakeVendors;
use fake_vendors::demo::{self, DEMO_OWNER, DEMO_REPO, Tracker};
use run::StopSignal;

use super::{MODEL_KEY, start};

/// Starts the fake vendors with the demo's tickets, a repository without workflows and a Jira site without
/// custom fields, prints the variables that
/// make a service use them, and runs until it is stopped.
pub(super) async fn run(
    dir: &Path,
    tracker: Tracker,
    stop: &StopSignal,
) -> anyhow::Result<ExitCode> {
    let vendors = start(dir).await?;
    demo::seed_demo(&vendors, tracker, &[])?;
    if tracker == Tracker::Jira {
        vendors.jira().remove_custom_fields();
        vendors.jira().grant_admin();
    }
    println!(
        "# Fake vendors for the repository {DEMO_OWNER}/{DEMO_REPO}, with tickets in {}.",
        tracker.name()
    );
    println!("# Export these variables, then: agent-implement init");
    for (name, value) in variables(&vendors) {
        println!("{name}={value}");
    }
    stop.wait().await;
    Ok(ExitCode::SUCCESS)
}

fn variables(vendors: &FakeVendors) -> Vec<(&'static str, String)> {
    vec![
        ("GITHUB_API_URL", vendors.github_api_url()),
        ("GITHUB_TOKEN", vendors.github().personal_token().to_owned()),
        ("LINEAR_API_URL", vendors.linear_url()),
        ("LINEAR_UPLOADS_URL", vendors.linear_uploads_url()),
        ("LINEAR_API_KEY", vendors.linear().api_key().to_owned()),
        ("JIRA_SITE_URL", vendors.jira_url()),
        ("JIRA_EMAIL", vendors.jira().email().to_owned()),
        ("JIRA_API_TOKEN", vendors.jira().api_token().to_owned()),
        ("VM_API_URL", vendors.fly_url()),
        ("VM_SESSIONS_APP", vendors.fly().app().to_owned()),
        ("VM_SESSIONS_TOKEN", vendors.fly().token().to_owned()),
        ("DOCKER_HOST", vendors.docker_url()),
        ("LOCAL_RUNNER_IMAGE", vendors.docker().image().to_owned()),
        (
            "KUBECONFIG",
            vendors.kubernetes().kubeconfig().display().to_string(),
        ),
        (
            "KUBERNETES_NAMESPACE",
            vendors.kubernetes().namespace().to_owned(),
        ),
        ("ANTHROPIC_API_KEY", MODEL_KEY.to_owned()),
    ]
}

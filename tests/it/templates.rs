//! What the workflows that target repositories get must say.

use std::collections::BTreeSet;

use agent_implement::domain::issue::Related;
use agent_implement::domain::mapping::Provider;
use agent_implement::domain::report::RunPhase;
use agent_implement::domain::run_config::{Callback, RunConfig};
use agent_implement::domain::secret::Secret;
use serde_json::Value;

use crate::world::{COMMENT_TRIGGER, PLANNING, WORKFLOW};

/// A dispatch that says everything a dispatch can say.
fn whole(phase: RunPhase) -> RunConfig {
    RunConfig {
        dispatch_id: "01J".into(),
        issue_id: "uuid".into(),
        issue_key: "ENG-1".into(),
        issue_title: "t".into(),
        issue_description: "d".into(),
        phase,
        pr_number: Some(7),
        branch: "b".into(),
        instruction: Some("i".into()),
        findings: Some("f".into()),
        related: Related {
            parent: Some("p".into()),
            siblings: vec!["s".into()],
            dependencies: vec!["d".into()],
        },
        provider: Provider::Cloud { region: "r".into() },
        runner_image: Some("image".into()),
        max_turns: Some(1),
        max_iterations: Some(1),
        job_timeout_minutes: Some(1),
        session_mode: None,
        shadow: false,
        callback: Some(Callback {
            url: "http://here".into(),
            run_token: Secret::new("a"),
            progress_token: Secret::new("b"),
        }),
    }
}

fn read(template: &str) -> Value {
    serde_saphyr::from_str(template).unwrap()
}

#[test]
fn both_workflows_declare_exactly_the_inputs_of_a_dispatch() {
    for (template, phase) in [
        (WORKFLOW, RunPhase::Implementation),
        (PLANNING, RunPhase::Planning),
    ] {
        let sent = whole(phase).to_inputs();
        let sent: BTreeSet<&str> = sent.keys().map(String::as_str).collect();
        let workflow = read(template);
        let declared = workflow["on"]["workflow_dispatch"]["inputs"].as_object();
        let declared: BTreeSet<&str> = declared.unwrap().keys().map(String::as_str).collect();
        assert_eq!(declared, sent, "{phase:?}");
        assert!(declared.len() <= 25, "the host takes no more");
    }
}

#[test]
fn each_workflow_has_the_rights_it_needs_and_no_more() {
    let jobs = |template| read(template)["jobs"].clone();
    assert_eq!(
        jobs(PLANNING)["plan"]["permissions"],
        serde_json::json!({"contents": "read"}),
        "a plan pushes nothing"
    );
    assert_eq!(
        jobs(WORKFLOW)["implement"]["permissions"],
        serde_json::json!({"contents": "write", "pull-requests": "write", "checks": "read"})
    );
    for template in [WORKFLOW, PLANNING] {
        let workflow = read(template);
        assert_eq!(workflow["permissions"], serde_json::json!({}));
        let name = workflow["run-name"].as_str().unwrap();
        assert!(name.contains("${{ inputs.dispatch_id }}"), "{name}");
        let (_, job) = workflow["jobs"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(job["steps"][0]["run"], "agent-implement mask");
        assert_eq!(job["steps"][1]["run"], "exec agent-implement run");
    }
}

#[test]
fn the_comment_trigger_has_no_right_no_foreign_action_and_no_foreign_text_in_its_script() {
    let workflow = read(COMMENT_TRIGGER);
    assert_eq!(
        workflow["on"],
        serde_json::json!({"issue_comment": {"types": ["created"]}})
    );
    assert_eq!(workflow["permissions"], serde_json::json!({}));
    let jobs = workflow["jobs"].as_object().unwrap();
    for job in jobs.values() {
        assert!(job.get("permissions").is_none());
        for step in job["steps"].as_array().unwrap() {
            assert!(step.get("uses").is_none(), "{step}");
            let script = step["run"].as_str().unwrap();
            assert!(!script.contains("${{"), "{script}");
            for value in step["env"].as_object().unwrap().values() {
                let value = value.as_str().unwrap();
                assert!(!value.contains("github.event"), "{value}");
            }
        }
    }
}

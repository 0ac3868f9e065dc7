//! What the workflows that target repositories get must say.

use std::collections::BTreeSet;

use domain::issue::RelatedIssues;
use domain::mapping::{Mapping, ModelProvider};
use domain::report::RunPhase;
use domain::run_config::{RunCallback, RunConfig};
use domain::secret::Secret;
use domain::templates;
use serde_json::{Value, json};

use crate::test_env::{
    COMMENT_TRIGGER_WORKFLOW, IMPLEMENTATION_WORKFLOW, PLANNING_WORKFLOW, planning_mapping,
};

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
        related: RelatedIssues {
            parent: Some("p".into()),
            siblings: vec!["s".into()],
            dependencies: vec!["d".into()],
        },
        provider: ModelProvider::Cloud { region: "r".into() },
        runner_image: Some("image".into()),
        max_turns: Some(1),
        max_iterations: Some(1),
        job_timeout_minutes: Some(1),
        session_mode: None,
        shadow: false,
        callback: Some(RunCallback {
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
        (IMPLEMENTATION_WORKFLOW, RunPhase::Implementation),
        (PLANNING_WORKFLOW, RunPhase::Planning),
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

/// A workflow as a repository gets it whose model is served by this provider.
fn synced(file: &str, provider: ModelProvider) -> Value {
    let mapping = Mapping {
        provider,
        ..planning_mapping()
    };
    let all = templates::desired_templates(&mapping.target_repo(), &[mapping], None).unwrap();
    let path = format!(".github/workflows/{file}");
    read(&all.into_iter().find(|one| one.path == path).unwrap().text)
}

#[test]
fn each_workflow_has_the_rights_it_needs_and_no_more() {
    let reads = json!({"contents": "read", "packages": "read"});
    let writes = json!({"contents": "write", "pull-requests": "write", "checks": "read", "statuses": "read", "packages": "read"});
    let region = "eu-west-1".to_owned();
    for (file, job, rights) in [
        ("agent-plan.yml", "plan", reads),
        ("agent-implement.yml", "implement", writes),
    ] {
        for provider in [
            ModelProvider::Direct,
            ModelProvider::Cloud {
                region: region.clone(),
            },
        ] {
            let is_cloud = provider != ModelProvider::Direct;
            let workflow = synced(file, provider);
            let mut rights = rights.clone();
            if is_cloud {
                rights["id-token"] = json!("write");
            }
            assert_eq!(workflow["permissions"], json!({}));
            let job = &workflow["jobs"][job];
            assert_eq!(job["permissions"], rights, "{file}");
            let name = workflow["run-name"].as_str().unwrap();
            assert!(name.contains("${{ inputs.dispatch_id }}"), "{name}");
            let steps = job["steps"].as_array().unwrap();
            assert_eq!(steps.len(), if is_cloud { 3 } else { 2 });
            assert_eq!(
                steps[0],
                json!({"name": "Mask the run's tokens", "run": "agent-implement mask"})
            );
            let run = steps.last().unwrap();
            assert_eq!(run["run"], "exec agent-implement run");
            let keys: Vec<&String> = run["env"].as_object().unwrap().keys().collect();
            assert_eq!(
                keys.iter().any(|key| key.starts_with("AWS_")),
                is_cloud,
                "{keys:?}"
            );
        }
    }
}

#[test]
fn foreign_actions_are_named_by_their_commit() {
    for template in [
        IMPLEMENTATION_WORKFLOW,
        PLANNING_WORKFLOW,
        COMMENT_TRIGGER_WORKFLOW,
    ] {
        for line in template.lines() {
            let entry = line.trim_start_matches(['-', ' ']);
            let Some(action) = entry.strip_prefix("uses: ") else {
                continue;
            };
            let (name, version) = action.split_once(" # v").unwrap();
            let (_, commit) = name.split_once('@').unwrap();
            assert!(
                commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{line}"
            );
            assert_eq!(version.split('.').count(), 3, "{line}");
        }
    }
}

#[test]
fn the_comment_trigger_has_no_right_no_foreign_action_and_no_foreign_text_in_its_script() {
    let workflow = read(COMMENT_TRIGGER_WORKFLOW);
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

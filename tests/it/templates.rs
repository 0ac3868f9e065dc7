//! Workflow templates for target repositories: inputs, permissions and pinned actions.

use std::collections::BTreeSet;

use domain::issue::RelatedIssues;
use domain::mapping::{Mapping, ModelProvider};
use domain::report::RunPhase;
use domain::report_artifact::{self, ReportOrigin};
use domain::run_config::{RunCallback, RunConfig};
use domain::run_options::RunOptions;
use domain::secret::Secret;
use domain::templates;
use serde_json::{Value, json};
use test_support::{StubReply, TestServer};
use tokio::process::Command;

use crate::test_env::{
    COMMENT_TRIGGER_WORKFLOW, IMPLEMENTATION_WORKFLOW, PLANNING_WORKFLOW, planning_mapping,
};

/// Run configuration with every field set.
fn full_config(phase: RunPhase) -> RunConfig {
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
        options: RunOptions {
            task: None,
            agent: Some("codex".into()),
            model: Some("m".into()),
            plan: Some("p".into()),
            may_not_ask: true,
            context: Some(Box::default()),
            program_sha256: Some("0".repeat(64)),
            program_url: Some("https://example.com/agent-implement".into()),
        },
        runs_on: vec!["self-hosted".into()],
        callback: Some(RunCallback {
            url: "http://here".into(),
            run_token: Secret::new("a"),
            progress_token: Secret::new("b"),
        }),
        report_key: None,
    }
}

fn parse(template: &str) -> Value {
    serde_saphyr::from_str(template).unwrap()
}

#[test]
fn both_workflows_declare_exactly_the_inputs_of_a_dispatch() {
    for (template, phase) in [
        (IMPLEMENTATION_WORKFLOW, RunPhase::Implementation),
        (PLANNING_WORKFLOW, RunPhase::Planning),
    ] {
        let sent = full_config(phase).to_inputs();
        let sent: BTreeSet<&str> = sent.keys().map(String::as_str).collect();
        let workflow = parse(template);
        let declared = workflow["on"]["workflow_dispatch"]["inputs"].as_object();
        let declared: BTreeSet<&str> = declared.unwrap().keys().map(String::as_str).collect();
        assert_eq!(declared, sent, "{phase:?}");
        assert!(declared.len() <= 25, "GitHub accepts at most 25 inputs");
    }
}

/// Workflow as synced to a repository with this model provider.
fn synced_workflow(file: &str, provider: ModelProvider) -> Value {
    let mapping = Mapping {
        provider,
        ..planning_mapping()
    };
    let all = templates::desired_templates(&mapping.target_repo(), &[mapping], None).unwrap();
    let path = format!(".github/workflows/{file}");
    parse(&all.into_iter().find(|one| one.path == path).unwrap().text)
}

#[test]
fn each_workflow_has_minimal_permissions() {
    let reads = json!({"contents": "read", "packages": "read"});
    let writes = json!({"contents": "write", "pull-requests": "write", "checks": "read", "statuses": "read", "packages": "read"});
    let region = "eu-west-1".to_owned();
    for (file, job, permissions) in [
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
            let workflow = synced_workflow(file, provider);
            let mut permissions = permissions.clone();
            if is_cloud {
                permissions["id-token"] = json!("write");
            }
            assert_eq!(workflow["permissions"], json!({}));
            let job = &workflow["jobs"][job];
            assert_eq!(job["permissions"], permissions, "{file}");
            let name = workflow["run-name"].as_str().unwrap();
            assert!(name.contains("${{ inputs.dispatch_id }}"), "{name}");
            let steps = job["steps"].as_array().unwrap();
            assert_eq!(steps.len(), if is_cloud { 5 } else { 4 });
            // Nothing of the first step's environment is a token: it would be printed before it is masked.
            let printed: Vec<&str> = steps[0]["env"]
                .as_object()
                .unwrap()
                .values()
                .map(|value| value.as_str().unwrap())
                .collect();
            assert_eq!(
                printed,
                [
                    "${{ fromJSON(inputs.options || '{}').programSha256 }}",
                    "${{ fromJSON(inputs.options || '{}').programUrl }}",
                    "${{ inputs.callback_url }}",
                    "${{ inputs.phase }}"
                ]
            );
            let upload = steps.last().unwrap();
            assert_eq!(
                upload["if"],
                "always() && !inputs.callback_url && inputs.run_progress_token && steps.run.outputs.upload == \
                 inputs.run_progress_token"
            );
            assert_eq!(upload["continue-on-error"], true);
            assert_eq!(upload["with"]["path"], report_artifact::FILE);
            let origin = ReportOrigin {
                dispatch_id: "${{ inputs.dispatch_id }}".into(),
                run_id: 1,
                run_attempt: 2,
            };
            let name = origin
                .artifact_name()
                .replace("-2", "-${{ github.run_attempt }}");
            assert_eq!(upload["with"]["name"], name);
            let run = &steps[steps.len() - 2];
            assert_eq!(run["run"], "exec \"$AGENT_IMPLEMENT_PROGRAM\" run");
            let first = steps[0]["run"].as_str().unwrap();
            assert!(!first.contains("${{"), "{first}");
            assert_eq!(steps[1]["run"], "exec \"$PROGRAM\" mask");
            let keys: Vec<&String> = run["env"].as_object().unwrap().keys().collect();
            assert_eq!(
                keys.iter().any(|key| key.starts_with("AWS_")),
                is_cloud,
                "{keys:?}"
            );
        }
    }
}

/// The agent can change the files of actions, and a second part of an action would start after the agent.
#[test]
fn no_action_but_the_upload_is_used_in_a_run() {
    let region = "eu-west-1".to_owned();
    for file in ["agent-plan.yml", "agent-implement.yml"] {
        let workflow = synced_workflow(
            file,
            ModelProvider::Cloud {
                region: region.clone(),
            },
        );
        let jobs = workflow["jobs"].as_object().unwrap();
        let steps = jobs
            .values()
            .flat_map(|job| job["steps"].as_array().unwrap());
        let actions: Vec<&str> = steps.filter_map(|step| step["uses"].as_str()).collect();
        let [upload] = actions[..] else {
            panic!("{file}: {actions:?}");
        };
        assert!(upload.starts_with("actions/upload-artifact@"), "{upload}");
    }
}

/// Runs the step that assumes the role against a service that answers with this status and text. Returns its exit
/// code, log and outputs.
async fn assume_role(status: u16, answer: &'static str) -> (Option<i32>, String, String) {
    let server = TestServer::start(move |request, _| match request.path.as_str() {
        "/token?api-version=2&audience=sts.amazonaws.com" => {
            assert_eq!(request.header("authorization"), Some("Bearer of-the-job"));
            StubReply::json(200, &json!({"count": 1, "value": "ey.identity.x+y"}))
        }
        _ => StubReply::Response(status, vec![], answer.to_owned()),
    })
    .await;
    let region = "eu-west-1".to_owned();
    let workflow = synced_workflow("agent-implement.yml", ModelProvider::Cloud { region });
    let steps = workflow["jobs"]["implement"]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["id"] == "cloud").unwrap();
    let script = step["run"].as_str().unwrap();
    let address = "https://sts.$CLOUD_REGION.amazonaws.com";
    assert_eq!(script.matches(address).count(), 1, "{script}");
    let script = script.replace(address, &server.url);
    let dir = tempfile::tempdir().unwrap();
    let outputs = dir.path().join("outputs");
    let ended = Command::new("bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &script])
        .env("GITHUB_OUTPUT", &outputs)
        .env("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-the-job")
        .env(
            "ACTIONS_ID_TOKEN_REQUEST_URL",
            format!("{}/token?api-version=2", server.url),
        )
        .envs([
            ("CLOUD_REGION", "eu-west-1"),
            ("CLOUD_ROLE_ARN", "arn:aws:iam::1:role/a"),
            ("SESSION_SECONDS", "3600"),
        ])
        .output()
        .await
        .unwrap();
    let sent = server.requests().pop().unwrap().body;
    assert_eq!(
        sent,
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&DurationSeconds=3600&RoleSessionName=agent-implement\
         &RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fa&WebIdentityToken=ey.identity.x%2By"
    );
    let log = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    (
        ended.status.code(),
        log,
        std::fs::read_to_string(outputs).unwrap_or_default(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn assumes_the_cloud_role_and_masks_its_credentials() {
    let answer = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>\n<Credentials>\n\
                  <AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>a/b+c</SecretAccessKey>\n\
                  <SessionToken>x+y/z==</SessionToken></Credentials>\n";
    let (code, log, outputs) = assume_role(200, answer).await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(
        log,
        "::add-mask::ASIA1\n::add-mask::a/b+c\n::add-mask::x+y/z==\n"
    );
    assert_eq!(
        outputs,
        "AccessKeyId=ASIA1\nSecretAccessKey=a/b+c\nSessionToken=x+y/z==\n"
    );

    let refusal = "<ErrorResponse><Error>\n<Code>AccessDenied</Code>\n<Message>Not authorized</Message>\n</Error>";
    let (code, log, outputs) = assume_role(403, refusal).await;
    assert_eq!((code, outputs.as_str()), (Some(1), ""), "{log}");
    assert_eq!(
        log,
        "::error::Cannot assume the role arn:aws:iam::1:role/a in eu-west-1: Not authorized. Check the secret \
         CLOUD_ROLE_ARN, and that the role trusts this repository.\n"
    );
}

#[test]
fn third_party_actions_are_pinned_to_a_commit() {
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
fn the_comment_trigger_has_no_permissions_actions_or_event_text_in_its_script() {
    let workflow = parse(COMMENT_TRIGGER_WORKFLOW);
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

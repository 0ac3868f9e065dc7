//! `agent-implement export` and `agent-implement apply`.

use std::path::Path;

use serde_json::{Map, Value, json};
use store::Store;

use crate::api_server::{ACCESS_CODE, ApiServer};
use crate::process::{ServiceProcess, exit_and_output, run};

const PATH: &str = "/api/projects-file";

fn file() -> Value {
    json!({
        "mappings": {
            "ENG": {"owner": "acme", "repo": "shop", "defaultBranch": "main", "maxTurns": 80},
            "OPS": {
                "owner": "acme", "repo": "infrastructure", "defaultBranch": "trunk",
                "ticketingConfig": {"kind": "B", "jql": "project = OPS", "repoFieldValue": "infra"},
                "provider": "cloud", "cloudRegion": "eu-central-1", "extraEnv": {"A": "b"}, "budgetUsd": 12.5,
                "planningEnabled": true, "planningWorkflowFile": "plan.yml", "paused": true,
            },
        },
        "settings": {"vmSessionsRegion": "fra"},
        "runnerMode": "ci",
    })
}

async fn apply(server: &ApiServer, token: &str, body: Value) -> (u16, Value) {
    let response = server.send("POST", PATH, token, body.to_string()).await;
    (response.status, response.body)
}

/// Target, action and key of each change.
fn changes(answer: &Value) -> Vec<String> {
    let changes = answer["changes"].as_array().unwrap().iter();
    let text = |change: &Value| {
        let part = |name: &str| change[name].as_str().unwrap().to_owned();
        format!("{} {} {}", part("target"), part("action"), part("key"))
    };
    changes.map(text).collect()
}

async fn audit_actions(server: &ApiServer, token: &str) -> Vec<String> {
    let audit = server.send("GET", "/api/audit", token, None).await.body;
    let entries = audit.as_array().unwrap().iter().rev();
    let texts = entries.map(|entry| format!("{} {}", entry["action"], entry["target"]));
    texts.filter(|text| !text.contains("sign")).collect()
}

#[tokio::test]
async fn a_file_is_applied_whole_and_exported_again() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let dry = json!({"file": file(), "dryRun": true});
    let (status, planned) = apply(&server, &token, dry).await;
    assert_eq!((status, &planned["applied"]), (200, &json!(false)));
    let expected = [
        "mapping create ENG",
        "mapping create OPS",
        "setting update vmSessionsRegion",
        "runner-mode update ",
    ];
    assert_eq!(changes(&planned), expected);
    let empty = json!({"mappings": {}});
    assert_eq!(server.send("GET", PATH, &token, None).await.body, empty);

    let (status, applied) = apply(&server, &token, json!({"file": file()})).await;
    assert_eq!((status, &applied["applied"]), (200, &json!(true)));
    assert_eq!(applied["changes"], planned["changes"]);
    let actions = [
        r#""mapping-created" "ENG""#,
        r#""mapping-created" "OPS""#,
        r#""settings-changed" """#,
        r#""runner-mode-set" "ci""#,
    ];
    assert_eq!(audit_actions(&server, &token).await, actions);
    let exported = server.send("GET", PATH, &token, None).await.body;
    assert_eq!(exported, file());
    let (_, again) = apply(&server, &token, json!({"file": exported, "prune": true})).await;
    assert_eq!(again, json!({"applied": false, "changes": []}));
    assert_eq!(audit_actions(&server, &token).await.len(), actions.len());
}

#[tokio::test]
async fn omitted_fields_get_their_defaults_and_a_pause_stays() {
    let flags = ["--admin-access-code", ACCESS_CODE, "--runner-mode", "local"];
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let token = server.sign_in().await;
    apply(&server, &token, json!({"file": file()})).await;
    let secret = json!({"name": "TOKEN", "value": "a-secret-value"}).to_string();
    let secret = server.send("POST", "/api/mappings/OPS/secrets", &token, secret);
    assert_eq!(secret.await.status, 200);
    let paused = json!({"paused": true}).to_string();
    let paused = server.send("PATCH", "/api/mappings/ENG", &token, paused);
    assert_eq!(paused.await.status, 200);

    let next =
        json!({"mappings": {"ENG": {"owner": "acme", "repo": "shop", "defaultBranch": "main"}}});
    let (_, applied) = apply(&server, &token, json!({"file": next})).await;
    let fields = json!([{"field": "maxTurns", "before": 80, "after": null}]);
    assert_eq!(applied["changes"][0]["fields"], fields);
    assert_eq!(changes(&applied), ["mapping update ENG"]);
    let stored = server.send("GET", "/api/mappings", &token, None).await.body;
    assert_eq!(stored["ENG"]["paused"], true);
    assert!(stored["OPS"].is_object(), "{stored}");

    let prune = json!({"file": next, "prune": true});
    let (_, pruned) = apply(&server, &token, prune).await;
    assert_eq!(changes(&pruned), ["mapping remove OPS"]);
    let secrets = json!([{"field": "secrets", "before": ["OPS_TOKEN"], "after": null}]);
    assert_eq!(pruned["changes"][0]["fields"], secrets);
    let stored = server.send("GET", "/api/mappings", &token, None).await.body;
    assert_eq!(stored.as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn an_invalid_file_changes_nothing_and_all_its_problems_are_named() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let file = json!({
        "mapping": {},
        "mappings": {
            "ENG": {"owner": "acme", "repo": "shop", "defaultBranch": "main"},
            "eng": {"owner": "acme", "repo": "shop", "defaultBranch": "main"},
            "WEB": {
                "owner": "acme", "repo": "a/b", "defaultBranch": "main", "maxTurn": 3, "maxIterations": 0,
                "ticketingConfig": {"kind": "B", "jqll": "x", "repoFieldValue": "x"},
            },
            "API": {"teamKey": "OTHER", "owner": "acme", "repo": "api", "defaultBranch": "main"},
            "APP": 7,
        },
        "settings": {"vmSessionRegion": "fra", "vmSessionsApp": "a b"},
        "runnerMode": "cloud",
    });
    let (status, refused) = apply(&server, &token, json!({"file": file})).await;
    assert_eq!(
        (status, &refused["error"]),
        (400, &json!("The file is invalid"))
    );
    let problems = refused["problems"].as_array().unwrap().iter();
    let problems: Vec<String> = problems
        .map(|one| {
            let text = |name: &str| one[name].as_str().unwrap().to_owned();
            format!("{}: {}", text("place"), text("message"))
        })
        .collect();
    let expected = [
        "mapping: unknown field; did you mean mappings?",
        "mappings.eng: overlaps with ENG: their secrets could have the same stored names",
        "mappings.WEB.maxTurn: unknown field; did you mean maxTurns?",
        "mappings.WEB.ticketingConfig.jqll: unknown field; did you mean jql?",
        "mappings.WEB.repo: Repository must be the name of a repository: letters, digits, ., _ and -",
        "mappings.WEB.maxIterations: Iterations must be at least 1",
        "mappings.WEB.ticketingConfig.jql: Query is required",
        "mappings.API.teamKey: must be the key of the project",
        "mappings.APP: must be an object",
        "settings.vmSessionRegion: unknown field; did you mean vmSessionsRegion?",
        "settings.vmSessionsApp: vmSessionsApp must be letters, digits and '-', beginning with a letter or digit",
        "runnerMode: must be default, ci, vm, local, shadow or kubernetes",
    ];
    assert_eq!(problems, expected);
    let empty = json!({"mappings": {}});
    assert_eq!(server.send("GET", PATH, &token, None).await.body, empty);

    let project = json!({"owner": "acme", "repo": "shop", "defaultBranch": "main"});
    let many: Map<String, Value> = (0..=1_000)
        .map(|number| (format!("P{number}"), project.clone()))
        .collect();
    let (status, refused) = apply(&server, &token, json!({"file": {"mappings": many}})).await;
    let problems = json!([{"place": "mappings", "message": "must be at most 1000 projects"}]);
    assert_eq!((status, &refused["problems"]), (400, &problems));
    let misspelt: Map<String, Value> = (0..10_000)
        .map(|number| (format!("field{number}"), json!(number)))
        .collect();
    let file = json!({"mappings": {"ENG": misspelt}});
    let (_, refused) = apply(&server, &token, json!({"file": file})).await;
    assert_eq!(refused["problems"].as_array().unwrap().len(), 100);

    for (body, error) in [
        (json!([]), "Invalid request body"),
        (json!({}), "file is required"),
        (json!({"file": {}, "prune": 1}), "prune must be a boolean"),
        (
            json!({"file": {}, "dryRun": null}),
            "dryRun must be a boolean",
        ),
        (json!({"file": "x"}), "The file is invalid"),
    ] {
        let (status, answer) = apply(&server, &token, body).await;
        assert_eq!((status, &answer["error"]), (400, &json!(error)));
    }
    let unauthorized = server.send("GET", PATH, "", None).await;
    assert_eq!(unauthorized.status, 401);
}

#[tokio::test]
async fn a_file_that_overlaps_with_a_stored_project_is_refused_unless_it_is_removed() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let of = |key: &str| json!({key: {"owner": "acme", "repo": "shop", "defaultBranch": "main"}});
    apply(
        &server,
        &token,
        json!({"file": {"mappings": of("ENG_WEB")}}),
    )
    .await;
    let file = json!({"mappings": of("ENG")});
    let (status, refused) = apply(&server, &token, json!({"file": file})).await;
    assert_eq!(status, 400, "{refused}");
    assert_eq!(refused["problems"][0]["place"], "mappings.ENG");
    let (status, applied) = apply(&server, &token, json!({"file": file, "prune": true})).await;
    assert_eq!(status, 200, "{applied}");
    assert_eq!(
        changes(&applied),
        ["mapping create ENG", "mapping remove ENG_WEB"]
    );
}

#[test]
fn the_commands_print_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let path = dir.path().join("projects.yml");
    let call = |arguments: &[&str]| {
        let location = ["--data-dir", data.to_str().unwrap()];
        exit_and_output(&run(&[arguments, &location].concat()))
    };
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    let name = path.to_str().unwrap();
    let service = ServiceProcess::start(&data, &[]);
    write(
        &path,
        "mappings:\n  ENG:\n    owner: acme\n    repo: shop\n    defaultBranch: main\n    maxTurn: 80\n",
    );
    let misspelt = call(&["apply", name]);
    assert_eq!(misspelt.0, 1, "{misspelt:?}");
    assert_eq!(
        misspelt.2,
        "agent-implement: mappings.ENG.maxTurn: unknown field; did you mean maxTurns?\nNothing was stored.\n"
    );
    let yaml = "mappings:\n  ENG:\n    owner: acme\n    repo: shop\n    defaultBranch: main\n    maxTurns: 80\nrunnerMode: ci\n";
    write(&path, yaml);
    let dry = call(&["apply", name, "--dry-run"]);
    assert_eq!(dry.0, 0, "{dry:?}");
    assert!(dry.1.starts_with("+ project ENG\n"), "{}", dry.1);
    assert!(dry.1.contains("\n    maxTurns: 80\n"), "{}", dry.1);
    let end = "~ runner mode: default → ci\n2 changes. Nothing was stored, because of --dry-run.\n";
    assert!(dry.1.ends_with(end), "{}", dry.1);
    let applied = call(&["apply", name]);
    assert!(applied.1.ends_with("Applied 2 changes.\n"), "{applied:?}");
    assert_eq!(call(&["export"]).1, yaml);
    write(&path, &yaml.replace("80", "90"));
    assert_eq!(
        call(&["apply", name]).1,
        "~ project ENG\n    maxTurns: 80 → 90\nApplied 1 change.\n"
    );
    assert_eq!(call(&["apply", name]).1, "Nothing differs.\n");
    assert_eq!(service.stop(), 0);

    let stopped = call(&["apply", name]);
    assert_eq!(stopped.0, 1);
    assert!(stopped.2.contains("is stopped. Start it"), "{stopped:?}");
    let exported = call(&["export", "--format", "json"]).1;
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported["mappings"]["ENG"]["maxTurns"], 90);
    write(&path, "mappings: [");
    let broken = call(&["apply", name]);
    assert_eq!(broken.0, 1);
    assert!(broken.2.contains("is not valid YAML or JSON"), "{broken:?}");
}

//! Admin API for customization files, and for the pipelines and steps in effect.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};
use store::Store;

use crate::api_server::{ALL_FEATURES, ApiServer};

async fn server(root: &Path) -> ApiServer {
    let root = root.to_str().unwrap();
    let mut flags = ALL_FEATURES.to_vec();
    flags.extend(["--custom-dir", root]);
    ApiServer::start_with(&flags, Store::in_memory().unwrap()).await
}

async fn get(server: &ApiServer, path: &str) -> Value {
    let token = server.sign_in().await;
    let response = server.send("GET", path, &token, None).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

fn find<'v>(all: &'v Value, id: &str) -> &'v Value {
    let found = all.as_array().unwrap().iter().find(|one| one["id"] == id);
    found.unwrap_or_else(|| panic!("{id} in {all:#}"))
}

#[tokio::test]
async fn customization_files_are_listed_with_the_files_they_override() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("custom");
    let server = server(&root).await;
    let nothing = json!({"root": root.to_str(), "customizations": []});
    assert_eq!(get(&server, "/api/customizations").await, nothing);

    std::fs::create_dir_all(root.join("pipelines")).unwrap();
    std::fs::create_dir_all(root.join("steps")).unwrap();
    std::fs::create_dir_all(root.join("providers")).unwrap();
    std::fs::write(root.join("pipelines/autonomous.yml"), "id: x").unwrap();
    std::fs::write(root.join("steps/lint"), "#!/bin/sh\n").unwrap();
    std::fs::write(root.join("providers/own.yml"), "").unwrap();
    std::fs::write(root.join("notes.txt"), "abc").unwrap();
    symlink(&root, root.join("steps/circle")).unwrap();
    let response = get(&server, "/api/customizations").await;
    let shown: Vec<Value> = response["customizations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let modified = one["modifiedAt"].as_str().unwrap();
            assert!(
                modified.starts_with("20") && modified.ends_with('Z'),
                "{one}"
            );
            json!([
                one["path"],
                one["category"],
                one["status"],
                one["upstreamPath"],
                one["size"]
            ])
        })
        .collect();
    assert_eq!(
        shown,
        [
            json!(["notes.txt", "other", null, null, 3]),
            json!([
                "pipelines/autonomous.yml",
                "pipeline",
                "override",
                "src/pipeline/definitions/autonomous.yml",
                5
            ]),
            json!(["providers/own.yml", "provider", "additive", null, 0]),
            json!(["steps/lint", "step", "additive", null, 10]),
        ]
    );

    std::fs::remove_dir_all(&root).unwrap();
    std::fs::write(&root, "a file, not a folder").unwrap();
    let token = server.sign_in().await;
    for path in ["/api/customizations", "/api/pipelines-steps"] {
        let response = server.send("GET", path, &token, None).await;
        assert_eq!(response.status, 500, "{path} {response:?}");
        assert!(
            response.error().1.starts_with(root.to_str().unwrap()),
            "{response:?}"
        );
        assert_eq!(server.send("POST", path, &token, None).await.status, 405);
    }
}

#[tokio::test]
async fn pipelines_and_steps_are_listed_as_a_run_loads_them() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let server = server(root).await;
    let plain = get(&server, "/api/pipelines-steps").await;
    let ids = |all: &Value| -> Vec<String> {
        let all = all.as_array().unwrap().iter();
        all.map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        ids(&plain["pipelines"]),
        ["autonomous", "gap-fill", "planning"]
    );
    let loop_steps = [
        "clone",
        "install",
        "setup",
        "feedback-loop",
        "preflight",
        "push",
        "verify",
        "post-push-review",
    ];
    assert_eq!(ids(&plain["steps"]), loop_steps);
    assert_eq!(
        ids(&find(&plain["pipelines"], "autonomous")["steps"]),
        loop_steps
    );
    assert_eq!(
        plain["steps"][3],
        json!({
            "id": "feedback-loop", "builtinPath": "src/run/steps/feedback_loop.rs",
            "customPath": null, "status": "built-in", "error": null,
        })
    );

    for folder in ["pipelines", "steps"] {
        std::fs::create_dir(root.join(folder)).unwrap();
    }
    let write = |path: &str, text: &str| std::fs::write(root.join(path), text).unwrap();
    write(
        "pipelines/autonomous.yml",
        "id: autonomous\nsteps: [{id: clone, type: clone}, {id: verify, type: verify}, {id: style, module: lint}]\n",
    );
    write(
        "pipelines/gap-fill.yml",
        "id: gap-fill\nsteps: [{id: a, type: test-plan}, {id: b, type: cook}, {id: preflight, type: preflight}]\n",
    );
    write(
        "pipelines/planning.yml",
        "id: planning\nsteps: [{id: a, type: push}]\n",
    );
    write("pipelines/nightly.yml", "id: other\n");
    write("pipelines/late.yaml", "");
    for (name, mode) in [("verify", 0o755), ("lint", 0o755), ("preflight", 0o644)] {
        write(&format!("steps/{name}"), "#!/bin/sh\n");
        let mode = PermissionsExt::from_mode(mode);
        std::fs::set_permissions(root.join("steps").join(name), mode).unwrap();
    }
    let response = get(&server, "/api/pipelines-steps").await;
    let pipelines = &response["pipelines"];
    assert_eq!(
        find(pipelines, "autonomous"),
        &json!({
            "id": "autonomous", "file": "pipelines/autonomous.yml", "status": "override",
            "steps": [
                {"id": "clone", "type": "clone", "module": null, "status": "built-in"},
                {"id": "verify", "type": "verify", "module": "verify", "status": "override"},
                {"id": "style", "type": "custom", "module": "lint", "status": "additive"},
            ],
            "error": null, "errors": [],
        })
    );
    let broken = find(pipelines, "gap-fill");
    assert_eq!(
        (&broken["status"], &broken["steps"]),
        (&json!("override"), &json!([]))
    );
    let errors: Vec<Value> = broken["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| json!([fault["file"], fault["step"]]))
        .collect();
    let file = "pipelines/gap-fill.yml";
    assert_eq!(
        errors,
        [
            json!([file, "a"]),
            json!([file, "b"]),
            json!([file, "preflight"])
        ]
    );
    let error = broken["error"].as_str().unwrap();
    for expected_text in [
        "pipelines/gap-fill.yml: step a: test-plan is a planning step",
        "step b: unknown type cook",
        "step preflight: steps/preflight is not an executable file",
    ] {
        assert!(error.contains(expected_text), "{expected_text} in {error}");
    }
    let planning = find(pipelines, "planning");
    assert_eq!(
        (&planning["status"], &planning["steps"][2]["type"]),
        (&json!("built-in"), &json!("plan"))
    );
    assert_eq!(
        planning["error"],
        "pipelines/planning.yml: ignored, because planning cannot be customized"
    );
    let nightly = find(pipelines, "nightly");
    assert_eq!(
        (&nightly["status"], &nightly["errors"][0]["step"]),
        (&json!("additive"), &Value::Null)
    );
    assert_eq!(
        nightly["errors"][0]["reason"],
        "the id is other, expected nightly"
    );
    assert!(
        find(pipelines, "late.yaml")["error"]
            .as_str()
            .unwrap()
            .contains("does not end in .yml")
    );
    let module = |id: &str| {
        let step = find(&response["steps"], id);
        json!([step["customPath"], step["status"], step["error"]])
    };
    assert_eq!(module("verify"), json!(["steps/verify", "override", null]));
    assert_eq!(module("lint"), json!(["steps/lint", "additive", null]));
    let unfit = "steps/preflight is not an executable file";
    assert_eq!(
        module("preflight"),
        json!(["steps/preflight", "override", unfit])
    );
    assert_eq!(module("clone"), json!([null, "built-in", null]));
}

use super::*;

#[tokio::test]
async fn a_dispatched_workflow_really_runs() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    let repo = seed(&town);
    let run = dispatch(&town, json!({"issue": "ENG-1", "note": "hush-hush"})).await;
    let done = until(|| {
        repo.runs()
            .into_iter()
            .find(|run| run.status == "completed")
    })
    .await;
    assert_eq!(
        (done.id, done.conclusion.as_deref()),
        (run, Some("success")),
        "{}",
        repo.run_log(run)
    );
    assert_eq!(done.title, "implement ENG-1 (none)");
    let log = repo.run_log(run);
    assert!(log.contains("hello LOUD kept ***"), "{log}");
    assert!(
        !log.contains("hush-hush")
            && !log.contains("sk-very-secret")
            && !log.contains("mended")
            && !log.contains("ghs_")
    );
    let temp = repo.run_dir(run).unwrap().join("temp");
    let config: Value =
        serde_json::from_str(&std::fs::read_to_string(temp.join("config.json")).unwrap()).unwrap();
    assert_eq!(
        config,
        json!({"issue": "ENG-1", "dispatch_id": "none", "note": "hush-hush"})
    );
    let env = std::fs::read_to_string(temp.join("env")).unwrap();
    assert!(
        env.contains("GITHUB_REPOSITORY=acme/shop") && !env.contains("CARGO"),
        "{env}"
    );
    let (_, jobs) = github(
        &town,
        "GET",
        &format!("/repos/acme/shop/actions/runs/{run}/jobs"),
        None,
    )
    .await;
    let steps = jobs["jobs"][0]["steps"].as_array().unwrap();
    let conclusions: Vec<&str> = steps
        .iter()
        .map(|step| step["conclusion"].as_str().unwrap())
        .collect();
    assert_eq!(conclusions, ["skipped", "success", "success", "skipped"]);
    let logs = format!(
        "{}/repos/acme/shop/actions/jobs/{}/logs",
        town.github_api_url(),
        jobs["jobs"][0]["id"]
    );
    let text = client()
        .get(logs)
        .bearer_auth(town.github().personal_token())
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert_eq!(text, log);
}

#[tokio::test]
async fn failing_and_cancelled_runs_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    let repo = seed(&town);
    let failing = dispatch(&town, json!({"issue": "FAIL"})).await;
    let sleeping = dispatch(&town, json!({"issue": "SLEEP"})).await;
    let by_id = |id| repo.runs().into_iter().find(|run| run.id == id).unwrap();
    until(|| (by_id(failing).conclusion.as_deref() == Some("failure")).then_some(())).await;
    assert!(repo.run_log(failing).contains("mended"));
    until(|| repo.run_log(sleeping).contains("hello LOUD").then_some(())).await;
    let cancel = format!("/repos/acme/shop/actions/runs/{sleeping}/cancel");
    assert_eq!(github(&town, "POST", &cancel, None).await.0, 202);
    until(|| (by_id(sleeping).conclusion.as_deref() == Some("cancelled")).then_some(())).await;
    assert_eq!(github(&town, "POST", &cancel, None).await.0, 409);
}

#[tokio::test]
async fn dispatches_are_checked_as_the_host_checks_them() {
    let dir = tempfile::tempdir().unwrap();
    let town = start_fake_vendors(dir.path()).await;
    seed(&town);
    let workflows = "/repos/acme/shop/actions/workflows";
    let send = async |file: &str, body: Value| {
        let (status, answer) = github(
            &town,
            "POST",
            &format!("{workflows}/{file}/dispatches"),
            Some(body),
        )
        .await;
        (
            status,
            answer["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let inputs = |inputs: Value| json!({"ref": "main", "inputs": inputs});
    let (status, why) = send(
        "implement.yml",
        inputs(json!({"issue": "x", "colour": "red"})),
    )
    .await;
    assert_eq!(
        (status, why.as_str()),
        (422, "Unexpected inputs provided: [\"colour\"]")
    );
    let (status, why) = send("implement.yml", inputs(json!({}))).await;
    assert_eq!(
        (status, why.as_str()),
        (422, "Required input 'issue' not provided")
    );
    let (status, why) = send(
        "implement.yml",
        inputs(json!({"issue": "x".repeat(70_000)})),
    )
    .await;
    assert_eq!((status, why.as_str()), (422, "inputs are too large."));
    assert_eq!(send("missing.yml", inputs(json!({}))).await.0, 404);
    assert_eq!(
        send("implement.yml", json!({"ref": "nowhere"})).await.0,
        422
    );
    assert_eq!(
        send("implement.yml", inputs(json!({"issue": "x"}))).await.0,
        204
    );
    let (_, runs) = github(
        &town,
        "GET",
        "/repos/acme/shop/actions/runs?event=workflow_dispatch&per_page=1",
        None,
    )
    .await;
    assert_eq!(runs["total_count"], 1);
}

#[tokio::test]
async fn runs_outlive_the_town_and_start_again_when_they_died_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = start_fake_vendors(dir.path()).await;
    let port = first.port();
    let repo = seed(&first);
    let run = dispatch(&first, json!({"issue": "SLEEP"})).await;
    until(|| repo.run_log(run).contains("hello LOUD").then_some(())).await;
    first.stop().await;
    let second = start_fake_vendors(dir.path()).await;
    assert_eq!(second.port(), port);
    let repo = second.github().repo("acme", "shop");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        (repo.runs()[0].status.as_str(), repo.runs()[0].attempt),
        ("in_progress", 1)
    );
    second.stop_and_kill_runs().await;
    let third = start_fake_vendors(dir.path()).await;
    let repo = third.github().repo("acme", "shop");
    until(|| (repo.runs()[0].attempt == 2).then_some(())).await;
    assert_eq!((repo.runs().len(), repo.runs()[0].id), (1, run));
    third.stop_and_kill_runs().await;
}

use super::*;

#[tokio::test]
async fn a_dispatched_workflow_really_runs() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    let repo = seed(&vendors);
    let run = dispatch(&vendors, json!({"issue": "ENG-1", "note": "hush-hush"})).await;
    let completed = wait_until(|| {
        repo.runs()
            .into_iter()
            .find(|run| run.status == "completed")
    })
    .await;
    assert_eq!(
        (completed.id, completed.conclusion.as_deref()),
        (run, Some("success")),
        "{}",
        repo.run_log(run)
    );
    assert_eq!(completed.title, "implement ENG-1 (none)");
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
        &vendors,
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
        vendors.github_api_url(),
        jobs["jobs"][0]["id"]
    );
    let text = client()
        .get(logs)
        .bearer_auth(vendors.github().personal_token())
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert_eq!(text, log);
}

#[tokio::test]
async fn reports_failed_and_cancelled_runs() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    let repo = seed(&vendors);
    let failing = dispatch(&vendors, json!({"issue": "FAIL"})).await;
    let sleeping = dispatch(&vendors, json!({"issue": "SLEEP"})).await;
    let by_id = |id| repo.runs().into_iter().find(|run| run.id == id).unwrap();
    wait_until(|| (by_id(failing).conclusion.as_deref() == Some("failure")).then_some(())).await;
    assert!(repo.run_log(failing).contains("mended"));
    wait_until(|| repo.run_log(sleeping).contains("hello LOUD").then_some(())).await;
    let cancel = format!("/repos/acme/shop/actions/runs/{sleeping}/cancel");
    assert_eq!(github(&vendors, "POST", &cancel, None).await.0, 202);
    wait_until(|| (by_id(sleeping).conclusion.as_deref() == Some("cancelled")).then_some(())).await;
    assert_eq!(github(&vendors, "POST", &cancel, None).await.0, 409);
}

#[tokio::test]
async fn validates_dispatches_like_github() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    seed(&vendors);
    let workflows = "/repos/acme/shop/actions/workflows";
    let send = async |file: &str, body: Value| {
        let (status, response) = github(
            &vendors,
            "POST",
            &format!("{workflows}/{file}/dispatches"),
            Some(body),
        )
        .await;
        (
            status,
            response["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let inputs = |inputs: Value| json!({"ref": "main", "inputs": inputs});
    let (status, message) = send(
        "implement.yml",
        inputs(json!({"issue": "x", "colour": "red"})),
    )
    .await;
    assert_eq!(
        (status, message.as_str()),
        (422, "Unexpected inputs provided: [\"colour\"]")
    );
    let (status, message) = send("implement.yml", inputs(json!({}))).await;
    assert_eq!(
        (status, message.as_str()),
        (422, "Required input 'issue' not provided")
    );
    let (status, message) = send(
        "implement.yml",
        inputs(json!({"issue": "x".repeat(70_000)})),
    )
    .await;
    assert_eq!((status, message.as_str()), (422, "inputs are too large."));
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
        &vendors,
        "GET",
        "/repos/acme/shop/actions/runs?event=workflow_dispatch&per_page=1",
        None,
    )
    .await;
    assert_eq!(runs["total_count"], 1);
}

#[tokio::test]
async fn runs_survive_a_stop_and_are_retried_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let first = start_fake_vendors(dir.path()).await;
    let port = first.port();
    let repo = seed(&first);
    let run = dispatch(&first, json!({"issue": "SLEEP"})).await;
    wait_until(|| repo.run_log(run).contains("hello LOUD").then_some(())).await;
    first.stop().await;
    let second = start_fake_vendors(dir.path()).await;
    assert_eq!(second.port(), port);
    let repo = second.github().repo("acme", "shop");
    // A run that starts after the restart shows that the first one is not started again.
    let next = dispatch(&second, json!({"issue": "SLEEP"})).await;
    wait_until(|| repo.run_log(next).contains("hello LOUD").then_some(())).await;
    let first_run = |repo: &crate::FakeRepo| repo.runs().into_iter().find(|found| found.id == run);
    let survivor = first_run(&repo).unwrap();
    assert_eq!(
        (survivor.status.as_str(), survivor.attempt),
        ("in_progress", 1)
    );
    second.stop_and_kill_runs().await;
    let third = start_fake_vendors(dir.path()).await;
    let repo = third.github().repo("acme", "shop");
    wait_until(|| (first_run(&repo)?.attempt == 2).then_some(())).await;
    assert_eq!(repo.runs().len(), 2);
    third.stop_and_kill_runs().await;
}

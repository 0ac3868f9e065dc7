use super::*;

#[tokio::test]
async fn serves_clones_and_pushes_and_rejects_unauthorized_ones() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(&dir.path().join("vendors")).await;
    let repo = seed(&vendors);
    let write =
        vendors
            .github()
            .create_installation_token("acme", &["shop"], &[("contents", "write")]);
    let read =
        vendors
            .github()
            .create_installation_token("acme", &["shop"], &[("contents", "read")]);
    let other =
        vendors
            .github()
            .create_installation_token("acme", &["else"], &[("contents", "write")]);
    let url = move |token: &str| {
        repo.clone_url()
            .replace("http://", &format!("http://x-access-token:{token}@"))
    };
    let base = dir.path().to_owned();
    let work = base.join("work");
    tokio::task::spawn_blocking(move || {
        assert!(!git(&base, &["clone", "-q", &url(&other), "other"]).0);
        assert!(!git(&base, &["clone", "-q", &url("wrong"), "wrong"]).0);
        let (ok, output) = git(&base, &["clone", "-q", "--depth=1", &url(&write), "work"]);
        assert!(ok, "{output}");
        // Large enough that git compresses what it sends.
        let noise: String = (0..40_000).map(|n| format!("{}\n", n * 7919)).collect();
        std::fs::write(work.join("noise.txt"), noise).unwrap();
        git(&work, &["checkout", "-q", "-b", "agent-implement/eng-1"]);
        git(&work, &["add", "-A"]);
        git(&work, &["commit", "-q", "-m", "Add noise"]);
        let (ok, output) = git(&work, &["push", "-q", &url(&read), "HEAD"]);
        assert!(!ok && output.contains("403"), "{output}");
        let (ok, output) = git(&work, &["push", "-q", "origin", "HEAD"]);
        assert!(ok, "{output}");
        std::fs::write(work.join(".github/workflows/evil.yml"), "on: push\n").unwrap();
        git(&work, &["add", "-A"]);
        git(&work, &["commit", "-q", "-m", "Change the workflow"]);
        let (ok, output) = git(&work, &["push", "-q", "origin", "HEAD"]);
        assert!(
            !ok && output.contains("without `workflows` permission"),
            "{output}"
        );
    })
    .await
    .unwrap();
    let repo = vendors.github().repo("acme", "shop");
    assert_eq!(
        repo.commits("agent-implement/eng-1")[0].message,
        "Add noise"
    );
    let pulls = "/repos/acme/shop/pulls";
    let body = json!({"title": "ENG-1: Noise", "head": "agent-implement/eng-1", "base": "main", "draft": true});
    let (status, pull) = github(&vendors, "POST", pulls, Some(body.clone())).await;
    assert_eq!(
        (status, &pull["draft"], &pull["number"]),
        (201, &json!(true), &json!(1))
    );
    assert_eq!(github(&vendors, "POST", pulls, Some(body)).await.0, 422);
    let ready = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } } }";
    let (_, response) = github(
        &vendors,
        "POST",
        "/graphql",
        Some(json!({"query": ready, "variables": {"id": pull["node_id"]}})),
    )
    .await;
    assert_eq!(
        response["data"]["markPullRequestReadyForReview"]["pullRequest"]["isDraft"], false,
        "{response}"
    );
    repo.merge_pull(1).unwrap();
    assert!(repo.read_file("main", "noise.txt").is_some() && repo.pulls()[0].merged);
}

#[tokio::test]
async fn pages_lists_with_etags_and_enforces_token_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    let repo = seed(&vendors);
    repo.commit("topic", &[("a", "1\n")], "Topic").unwrap();
    let body = json!({"title": "T", "head": "topic", "base": "main"});
    github(&vendors, "POST", "/repos/acme/shop/pulls", Some(body)).await;
    for number in 0..3 {
        repo.add_comment(1, "robin", &format!("comment {number}"));
    }
    let url = format!(
        "{}/repos/acme/shop/issues/1/comments?per_page=2",
        vendors.github_api_url()
    );
    let get = || {
        client()
            .get(&url)
            .bearer_auth(vendors.github().personal_token())
    };
    let first = get().send().await.unwrap();
    let link = first.headers()["link"].to_str().unwrap().to_owned();
    assert!(link.contains("page=2>; rel=\"next\""), "{link}");
    let etag = first.headers()["etag"].clone();
    assert_eq!(
        get()
            .header("if-none-match", etag)
            .send()
            .await
            .unwrap()
            .status(),
        304
    );
    let narrow = vendors.github().create_installation_token(
        "acme",
        &["shop"],
        &[("contents", "read"), ("metadata", "read")],
    );
    assert_eq!(
        github_as(&vendors, &narrow, "GET", "/repos/acme/shop", None)
            .await
            .0,
        200
    );
    let (status, response) =
        github_as(&vendors, &narrow, "GET", "/repos/acme/shop/pulls", None).await;
    assert_eq!(
        (status, &response["message"]),
        (403, &json!("Resource not accessible by integration"))
    );
    let foreign =
        vendors
            .github()
            .create_installation_token("acme", &["else"], &[("contents", "read")]);
    assert_eq!(
        github_as(&vendors, &foreign, "GET", "/repos/acme/shop", None)
            .await
            .0,
        404
    );
}

/// Returns a JWT of an App, signed with the key beside this file.
fn app_jwt(issuer: &str, lifetime_secs: i64) -> String {
    use data_encoding::{BASE64, BASE64URL_NOPAD};
    let pem = include_str!("app-key.pem");
    let body: String = pem
        .lines()
        .filter(|line| !line.starts_with("---"))
        .collect();
    let der = BASE64.decode(body.as_bytes()).unwrap();
    let key = ring::rsa::KeyPair::from_der(&der).unwrap();
    let now = crate::clock::now_ms() / 1_000;
    let claims = json!({"iss": issuer, "iat": now - 60, "exp": now + lifetime_secs});
    let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!(
        "{}.{}",
        part(json!({"alg": "RS256", "typ": "JWT"})),
        part(claims)
    );
    let mut signature = vec![0; key.public().modulus_len()];
    let random = ring::rand::SystemRandom::new();
    let padding = &ring::signature::RSA_PKCS1_SHA256;
    key.sign(padding, &random, signed.as_bytes(), &mut signature)
        .unwrap();
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}

#[tokio::test]
async fn narrows_installation_tokens_to_the_requested_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let options = FakeVendorsOptions {
        app_key_pem: Some(include_str!("app-key.pem").into()),
        app_id: 42,
        ..FakeVendorsOptions::new(dir.path(), "/bin/true")
    };
    let vendors = FakeVendors::start(options).await.unwrap();
    seed(&vendors);
    let jwt = app_jwt("42", 540);
    let (_, found) = github_as(&vendors, &jwt, "GET", "/repos/acme/shop/installation", None).await;
    let token_path = format!("/app/installations/{}/access_tokens", found["id"]);
    let request = json!({"repositories": ["shop"], "permissions": {"contents": "read"}});
    let (status, created) = github_as(&vendors, &jwt, "POST", &token_path, Some(request)).await;
    assert_eq!(
        (status, &created["permissions"]["contents"]),
        (201, &json!("read"))
    );
    let token = created["token"].as_str().unwrap();
    assert!(token.starts_with("ghs_") && token.len() > 500);
    assert_eq!(
        github_as(
            &vendors,
            token,
            "GET",
            "/repos/acme/shop/contents/README.md",
            None
        )
        .await
        .0,
        200
    );
    assert_eq!(
        github_as(
            &vendors,
            token,
            "GET",
            "/repos/acme/shop/actions/runs",
            None
        )
        .await
        .0,
        403
    );
    let excessive = json!({"permissions": {"administration": "write"}});
    assert_eq!(
        github_as(&vendors, &jwt, "POST", &token_path, Some(excessive))
            .await
            .0,
        422
    );
    for bad in [
        app_jwt("41", 540),
        app_jwt("42", 3_600),
        app_jwt("42", -5),
        jwt.replace('A', "B"),
    ] {
        assert_eq!(github_as(&vendors, &bad, "GET", "/app", None).await.0, 401);
    }
    assert_eq!(
        github_as(&vendors, &jwt, "GET", "/repos/acme/shop", None)
            .await
            .0,
        401
    );
}

#[tokio::test]
async fn commits_files_through_trees_and_refs() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(dir.path()).await;
    let repo = seed(&vendors);
    let git = "/repos/acme/shop/git";
    let head = repo.branch_head("main").unwrap();
    let tree = json!({"base_tree": head, "tree": [{"path": "a/b.txt", "mode": "100644", "type": "blob", "content": "hi\n"}]});
    let (_, tree) = github(&vendors, "POST", &format!("{git}/trees"), Some(tree)).await;
    let commit = json!({"message": "Add b", "tree": tree["sha"], "parents": [head]});
    let (_, commit) = github(&vendors, "POST", &format!("{git}/commits"), Some(commit)).await;
    let branch = json!({"ref": "refs/heads/sync/one", "sha": commit["sha"]});
    assert_eq!(
        github(
            &vendors,
            "POST",
            &format!("{git}/refs"),
            Some(branch.clone())
        )
        .await
        .0,
        201
    );
    assert_eq!(
        github(&vendors, "POST", &format!("{git}/refs"), Some(branch))
            .await
            .0,
        422
    );
    let (_, found) = github(&vendors, "GET", &format!("{git}/ref/heads/sync/one"), None).await;
    assert_eq!(found["object"]["sha"], commit["sha"]);
    assert_eq!(
        repo.read_file("sync/one", "a/b.txt").as_deref(),
        Some("hi\n")
    );
    assert_eq!(
        repo.read_file("sync/one", "README.md").as_deref(),
        Some("shop\n")
    );
    let narrow =
        vendors
            .github()
            .create_installation_token("acme", &["shop"], &[("contents", "write")]);
    let tree = json!({"base_tree": head, "tree": [{"path": ".github/workflows/x.yml", "mode": "100644", "content": "on: push\n"}]});
    let (_, tree) = github(&vendors, "POST", &format!("{git}/trees"), Some(tree)).await;
    let commit = json!({"message": "Change", "tree": tree["sha"], "parents": [head]});
    let (_, commit) = github(&vendors, "POST", &format!("{git}/commits"), Some(commit)).await;
    let branch = json!({"ref": "refs/heads/evil", "sha": commit["sha"]});
    assert_eq!(
        github_as(
            &vendors,
            &narrow,
            "POST",
            &format!("{git}/refs"),
            Some(branch)
        )
        .await
        .0,
        403
    );
}

#[tokio::test]
async fn merges_at_the_same_time_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let vendors = start_fake_vendors(&dir.path().join("vendors")).await;
    let repo = seed(&vendors);
    let names = ["a", "b", "c", "d"];
    let pulls = names.map(|name| {
        let path = format!("{name}.txt");
        repo.commit(name, &[(&path, name)], name).unwrap();
        repo.open_pull(name, "mia", name, "")
    });
    std::thread::scope(|scope| {
        for number in pulls {
            let repo = &repo;
            scope.spawn(move || repo.merge_pull(number).unwrap());
        }
    });
    for name in names {
        let path = format!("{name}.txt");
        assert_eq!(repo.read_file("main", &path).as_deref(), Some(name));
    }
}

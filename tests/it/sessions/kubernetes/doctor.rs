//! Checks of the cluster.

use domain::check_result::CheckResult;
use engine::doctor::{self, ServiceState};
use fake_vendors::FakeService;

use super::{MINUTE, cluster, manual};
use crate::test_env::TestEnv;

/// Returns the check results about Kubernetes.
async fn results(env: &TestEnv) -> Vec<CheckResult> {
    let mut results = doctor::examine(&env.app, ServiceState::Running)
        .await
        .unwrap();
    results.retain(|one| one.check.starts_with("kubernetes"));
    results
}

async fn found(env: &TestEnv) -> Vec<String> {
    let results = results(env).await.into_iter();
    results
        .map(|one| format!("{}: {}", one.check, one.message))
        .collect()
}

/// Stops the environment. No rule covers the requests that measure the clocks of the vendors.
async fn stop(env: TestEnv) {
    let requests = env.vendors.requests();
    for request in requests.for_service(FakeService::Kubernetes) {
        assert_eq!(request.contract_violations(), [""; 0], "{}", request.url);
    }
    requests.clear();
    env.stop().await;
}

const CONNECTED: &str = "kubernetes: The host responds; machines of this service: 0.";

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_checks_rights_and_protection_of_the_namespace() {
    let env = TestEnv::with_options(manual()).await;
    assert_eq!(
        found(&env).await,
        [
            CONNECTED,
            "kubernetes-rights: Kubernetes v1.34.0: the account has all rights that it needs in agent-runs",
        ]
    );
    cluster(&env).deny_rights(&["create jobs", "get pods/log"]);
    cluster(&env).remove_protection();
    assert_eq!(
        found(&env).await,
        [
            CONNECTED,
            "kubernetes-rights: the account may not create jobs, get pods/log in agent-runs",
            "kubernetes-namespace: the namespace agent-runs does not enforce the Pod Security Standard restricted",
            "kubernetes-network: no NetworkPolicy in agent-runs keeps runs from other pods and from the metadata of nodes",
        ]
    );
    cluster(&env).refuse_next(
        "GET /api/v1/namespaces/agent-runs",
        404,
        "NotFound",
        "namespaces not found",
    );
    assert_eq!(
        found(&env).await[1],
        "kubernetes-rights: the cluster has no namespace agent-runs"
    );
    cluster(&env).rotate_token("revoked").unwrap();
    std::fs::write(
        cluster(&env)
            .kubeconfig()
            .with_file_name("kubernetes-token"),
        "old",
    )
    .unwrap();
    env.advance_clock(2 * MINUTE);
    assert_eq!(
        found(&env).await,
        [
            "kubernetes: listing the Jobs: Kubernetes answered 401: Unauthorized",
            "kubernetes-rights: could not review the rights: reading the version: Kubernetes answered 401: Unauthorized",
        ]
    );
    stop(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_claims_nothing_about_what_the_account_may_not_read() {
    let env = TestEnv::with_options(manual()).await;
    assert_eq!(found(&env).await[0], CONNECTED);
    cluster(&env).remove_protection();
    let rights = ["get namespaces", "list networkpolicies"];
    cluster(&env).deny_rights(&rights);
    for line in ["GET /api/v1/namespaces/agent-runs", "networkpolicies"] {
        cluster(&env).refuse_next(line, 403, "Forbidden", "no");
    }
    assert_eq!(
        found(&env).await,
        [
            CONNECTED,
            "kubernetes-rights: the account may not get namespaces, list networkpolicies in agent-runs",
        ]
    );
    stop(env).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_cannot_be_read_is_not_a_problem_of_the_network() {
    let env = TestEnv::with_options(manual()).await;
    let token = { cluster(&env).kubeconfig() }.with_file_name("kubernetes-token");
    std::fs::remove_file(&token).unwrap();
    let results = results(&env).await;
    let connection = &results[0];
    let cause = format!(
        "cannot read the Kubernetes token {}: No such file",
        token.display()
    );
    assert!(connection.message.contains(&cause), "{connection:?}");
    let remedy = &connection.remedy;
    assert!(
        remedy.contains("Check the account of KUBECONFIG"),
        "{remedy}"
    );
    assert!(results[1].message.contains(&cause), "{results:?}");
    stop(env).await;
}

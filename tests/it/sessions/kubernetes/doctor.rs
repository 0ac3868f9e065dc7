//! Checks of the cluster.

use engine::doctor::{self, ServiceState};
use fake_vendors::FakeService;

use super::{MINUTE, cluster, manual};
use crate::test_env::TestEnv;

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_checks_rights_and_protection_of_the_namespace() {
    let env = TestEnv::with_options(manual()).await;
    let found = async || {
        let results = doctor::examine(&env.app, ServiceState::Running)
            .await
            .unwrap();
        let about = { results.into_iter() }.filter(|one| one.check.starts_with("kubernetes"));
        about
            .map(|one| format!("{}: {}", one.check, one.message))
            .collect::<Vec<String>>()
    };
    let connected = "kubernetes: The host responds; machines of this service: 0.";
    assert_eq!(
        found().await,
        [
            connected,
            "kubernetes-rights: Kubernetes v1.34.0: the account has all rights that it needs in agent-runs",
        ]
    );
    cluster(&env).deny_rights(&["create jobs", "get pods/log"]);
    cluster(&env).remove_protection();
    assert_eq!(
        found().await,
        [
            connected,
            "kubernetes-rights: the account may not create jobs, get pods/log in agent-runs",
            "kubernetes-namespace: the namespace agent-runs does not enforce the Pod Security Standard restricted",
            "kubernetes-network: no NetworkPolicy in agent-runs restricts what runs connect to",
        ]
    );
    cluster(&env).refuse_next(
        "GET /api/v1/namespaces/agent-runs",
        404,
        "NotFound",
        "namespaces not found",
    );
    assert_eq!(
        found().await[1],
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
        found().await,
        ["kubernetes: listing the Jobs: Kubernetes answered 401: Unauthorized"]
    );
    let requests = env.vendors.requests();
    for request in requests.for_service(FakeService::Kubernetes) {
        assert_eq!(request.contract_violations(), [""; 0], "{}", request.url);
    }
    // No rule covers the requests that measure the clocks of the vendors.
    requests.clear();
    env.stop().await;
}

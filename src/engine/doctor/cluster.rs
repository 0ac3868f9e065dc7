//! Checks of the Kubernetes cluster: version, rights and protection of the namespace.

use crate::app::App;
use domain::check_result::CheckResult;
use vendors::session_hosts::{ClusterReport, SessionHostError};

/// Manifest with the rights, the standard and the NetworkPolicy of the namespace.
const REMEDY: &str = "Apply packaging/kubernetes/runs.yaml (of a package: \
                      /usr/share/agent-implement/kubernetes/runs.yaml), adapted to the cluster.";

/// Checks the cluster. Empty if there is none.
pub(super) async fn examine(app: &App) -> Vec<CheckResult> {
    match app.vendors.sessions.cluster_report().await {
        Ok(report) => checks(&report),
        Err(SessionHostError::NotConfigured(_)) => Vec::new(),
        Err(SessionHostError::Vendor(error)) => {
            let what = format!("could not review the rights: {error}");
            let failed = CheckResult::warning("kubernetes-rights", what)
                .with_impact("It is not known whether runs in Kubernetes can start.")
                .with_remedy("Check the connection to Kubernetes, and run this check again.");
            vec![failed]
        }
    }
}

fn checks(report: &ClusterReport) -> Vec<CheckResult> {
    let ClusterReport {
        version, namespace, ..
    } = report;
    if !report.has_namespace {
        let what = format!("the cluster has no namespace {namespace}");
        let missing = CheckResult::error("kubernetes-rights", what)
            .with_impact("Runs in Kubernetes do not start.")
            .with_remedy(REMEDY);
        return vec![missing];
    }
    let rights = match report.missing_rights.as_slice() {
        [] => CheckResult::ok(
            "kubernetes-rights",
            format!(
                "Kubernetes {version}: the account has all rights that it needs in {namespace}"
            ),
        ),
        missing => {
            let what = format!("the account may not {} in {namespace}", missing.join(", "));
            CheckResult::error("kubernetes-rights", what)
                .with_impact(
                    "Runs in Kubernetes do not start, are not followed, or are not deleted.",
                )
                .with_remedy(REMEDY)
        }
    };
    // What the account may not read is in the missing rights.
    let standard = (report.is_restricted == Some(false)).then(|| {
        let what = format!(
            "the namespace {namespace} does not enforce the Pod Security Standard restricted"
        );
        CheckResult::warning("kubernetes-namespace", what)
            .with_impact("Runs meet the standard, but other pods of the namespace may not.")
            .with_remedy(REMEDY)
    });
    let egress = (report.has_egress_policy == Some(false)).then(|| {
        let what = format!("no NetworkPolicy in {namespace} keeps runs from other pods and from the metadata of nodes");
        CheckResult::warning("kubernetes-network", what)
            .with_impact(
                "A run can connect to services of the cluster, and to the metadata of its node.",
            )
            .with_remedy(REMEDY)
    });
    [Some(rights), standard, egress]
        .into_iter()
        .flatten()
        .collect()
}

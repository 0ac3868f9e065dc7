//! What a cluster allows the account of the service, and how it protects itself from runs.

use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::Kubernetes;
use super::state::metadata;
use crate::http::{Method, Request, VendorError};
use domain::machine::MachineLabels;

/// Rights that the service needs in the namespace: group, resource, verb.
const RIGHTS: [(&str, &str, &str); 12] = [
    ("batch", "jobs", "create"),
    ("batch", "jobs", "get"),
    ("batch", "jobs", "list"),
    ("batch", "jobs", "patch"),
    ("batch", "jobs", "delete"),
    ("", "secrets", "create"),
    ("", "pods", "list"),
    ("", "pods", "patch"),
    ("", "pods/log", "get"),
    ("", "events", "list"),
    ("", "namespaces", "get"),
    ("networking.k8s.io", "networkpolicies", "list"),
];

/// Label of a namespace with the Pod Security Standard that it enforces.
const ENFORCED_STANDARD: &str = "pod-security.kubernetes.io/enforce";

/// State of a cluster and its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterReport {
    /// Version of the API server.
    pub version: String,
    /// Namespace.
    pub namespace: String,
    /// Rights that the account lacks, such as `create jobs`.
    pub missing_rights: Vec<String>,
    /// Whether the namespace exists. True if the account may not read it.
    pub has_namespace: bool,
    /// Whether the namespace rejects pods that do not meet the standard `restricted`.
    pub is_restricted: bool,
    /// Whether a NetworkPolicy restricts what runs can connect to.
    pub has_egress_policy: bool,
}

impl Kubernetes {
    /// Reads the version, the rights of the account, and the protection of the namespace.
    ///
    /// # Errors
    /// Fails if the API server rejects a request that every account may send, or does not respond.
    pub(in crate::session_hosts) async fn report(&self) -> Result<ClusterReport, VendorError> {
        let url = format!("{}/version", self.server);
        let version: Value = self.read("reading the version", url).await?;
        let checks = RIGHTS.map(async |right| Ok(self.lacks(right).await?.then_some(right)));
        let missing = try_join_all(checks).await?.into_iter().flatten();
        let missing_rights = missing.map(|(_, resource, verb)| format!("{verb} {resource}"));
        let namespace = self.read("reading the namespace", self.core("")).await?;
        let labels = &metadata(&namespace)["labels"];
        let url = format!(
            "{}/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
            self.server, self.settings.namespace
        );
        let policies = self.read("listing the NetworkPolicies", url).await?;
        let policies = policies["items"].as_array();
        Ok(ClusterReport {
            version: version["gitVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            namespace: self.settings.namespace.clone(),
            missing_rights: missing_rights.collect(),
            has_namespace: namespace["reason"] != "NotFound",
            is_restricted: labels[ENFORCED_STANDARD] == "restricted",
            has_egress_policy: policies.into_iter().flatten().any(restricts_egress_of_runs),
        })
    }

    /// Reads an object. Returns the refusal if the account may not read it.
    async fn read(&self, action: &'static str, url: String) -> Result<Value, VendorError> {
        let request = Request::get(action, url).accept_status(403);
        self.send(request.accept_status(404)).await?.json()
    }

    async fn lacks(&self, right: (&str, &str, &str)) -> Result<bool, VendorError> {
        let (group, resource, verb) = right;
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let url = format!(
            "{}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            self.server
        );
        let request = Request::new("reviewing the access", Method::POST, url).safe();
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "namespace": self.settings.namespace,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "verb": verb,
            }},
        });
        let answer: Value = self.send(request.json(&review)).await?.json()?;
        Ok(answer["status"]["allowed"] != true)
    }
}

/// Returns whether a NetworkPolicy selects the pods of runs and restricts their outbound connections.
fn restricts_egress_of_runs(policy: &Value) -> bool {
    let spec = &policy["spec"];
    let types = spec["policyTypes"].as_array().into_iter().flatten();
    let selector = &spec["podSelector"];
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let (name, value) = MachineLabels::PURPOSE;
    { types }.any(|kind| kind == "Egress") && selector["matchExpressions"].is_null() && { labels }
        .all(|(label, wanted)| label == name && wanted == value)
}

//! What a cluster allows the account of the service, and how it protects itself from runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::future::try_join_all;
use ipnet::IpNet;
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
    /// Whether the namespace rejects pods that do not meet the standard `restricted`. `None` if the account may not
    /// read it.
    pub is_restricted: Option<bool>,
    /// Whether NetworkPolicies restrict what runs can connect to. `None` if the account may not list them.
    pub has_egress_policy: Option<bool>,
}

impl Kubernetes {
    /// Reads the version, the rights of the account, and the protection of the namespace.
    ///
    /// # Errors
    /// Fails if the API server rejects a request that every account may send, or does not respond.
    pub(in crate::session_hosts) async fn report(&self) -> Result<ClusterReport, VendorError> {
        let url = format!("{}/version", self.server);
        let version = self.read("reading the version", url).await?;
        let checks = RIGHTS.map(async |right| Ok(self.lacks(right).await?.then_some(right)));
        let missing = try_join_all(checks).await?.into_iter().flatten();
        let missing_rights = missing.map(|(_, resource, verb)| format!("{verb} {resource}"));
        let namespace = self.read("reading the namespace", self.core("")).await?;
        let url = format!(
            "{}/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
            self.server, self.settings.namespace
        );
        let policies = self.read("listing the NetworkPolicies", url).await?;
        let standard = |namespace: &Value| metadata(namespace)["labels"][ENFORCED_STANDARD].clone();
        Ok(ClusterReport {
            version: { version.as_ref() }
                .and_then(|version| version["gitVersion"].as_str())
                .unwrap_or_default()
                .to_owned(),
            namespace: self.settings.namespace.clone(),
            missing_rights: missing_rights.collect(),
            has_namespace: { namespace.as_ref() }
                .is_none_or(|namespace| namespace["reason"] != "NotFound"),
            is_restricted: namespace.map(|namespace| standard(&namespace) == "restricted"),
            has_egress_policy: policies.map(|policies| {
                let policies = policies["items"].as_array();
                policies.is_some_and(|policies| protects_runs(policies))
            }),
        })
    }

    /// Reads an object. `None` if the account may not read it. Returns the refusal if it does not exist.
    async fn read(&self, action: &'static str, url: String) -> Result<Option<Value>, VendorError> {
        let request = Request::get(action, url).accept_status(403);
        let response = self.send(request.accept_status(404)).await?;
        match response.status() {
            403 => Ok(None),
            _ => response.json().map(Some),
        }
    }

    async fn lacks(&self, right: (&str, &str, &str)) -> Result<bool, VendorError> {
        let (group, resource, verb) = right;
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        // The Role names the only namespace that the account may read. Such a rule grants no access without a name.
        let name = match resource {
            "namespaces" => self.settings.namespace.as_str(),
            _ => "",
        };
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
                "name": name,
                "verb": verb,
            }},
        });
        let answer: Value = self.send(request.json(&review)).await?.json()?;
        Ok(answer["status"]["allowed"] != true)
    }
}

/// Addresses at which most clouds serve the credentials of a node.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// An address of each private network of IPv4. Nodes, pods and services of most clusters are in one of these.
const PRIVATE: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(172, 16, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
];

/// Returns whether NetworkPolicies restrict the outbound connections of runs. Policies add up: what one of them allows is
/// allowed.
fn protects_runs(policies: &[Value]) -> bool {
    let mut selecting = policies.iter().filter(|one| selects_egress_of_runs(one));
    let exposes = |policy: &Value| {
        let rules = policy["spec"]["egress"].as_array();
        rules.into_iter().flatten().any(exposes_cluster)
    };
    let first = selecting.next();
    first.is_some_and(|first| !exposes(first) && !selecting.any(exposes))
}

/// Returns whether a NetworkPolicy selects the pods of runs and applies to their outbound connections.
fn selects_egress_of_runs(policy: &Value) -> bool {
    let spec = &policy["spec"];
    let mut types = spec["policyTypes"].as_array().into_iter().flatten();
    let selector = &spec["podSelector"];
    let mut labels = selector["matchLabels"].as_object().into_iter().flatten();
    let (name, value) = MachineLabels::PURPOSE;
    let mut expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    types.any(|kind| kind == "Egress")
        && labels.all(|(label, wanted)| label == name && wanted == value)
        && expressions.all(matches_runs)
}

/// Returns whether the pods of runs match an expression of a selector.
fn matches_runs(expression: &Value) -> bool {
    let (name, value) = MachineLabels::PURPOSE;
    let is_label = expression["key"] == name;
    let mut values = expression["values"].as_array().into_iter().flatten();
    match expression["operator"].as_str() {
        Some("In") => is_label && values.any(|one| one == value),
        Some("NotIn") => !(is_label && values.any(|one| one == value)),
        Some("Exists") => is_label,
        _ => !is_label,
    }
}

/// Returns whether a rule allows connections to every address, to the metadata of a node, to every private network, or to
/// every pod of the cluster. Rules for DNS alone may.
fn exposes_cluster(rule: &Value) -> bool {
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let mut ports = rule["ports"].as_array().into_iter().flatten();
    let is_of_dns = !is_empty(&rule["ports"])
        && ports.all(|one| one["port"] == 53 && (one["endPort"].is_null() || one["endPort"] == 53));
    let mut destinations = rule["to"].as_array().into_iter().flatten();
    !is_of_dns && (is_empty(&rule["to"]) || destinations.any(is_exposing))
}

fn is_exposing(destination: &Value) -> bool {
    let block = |text: &Value| text.as_str()?.parse::<IpNet>().ok();
    let selects_all = |selector: &Value| {
        let lists = [&selector["matchLabels"], &selector["matchExpressions"]];
        lists.iter().all(|list| match list {
            Value::Object(labels) => labels.is_empty(),
            Value::Array(expressions) => expressions.is_empty(),
            _ => true,
        })
    };
    let Some(allowed) = block(&destination["ipBlock"]["cidr"]) else {
        return destination["namespaceSelector"].is_object()
            && selects_all(&destination["namespaceSelector"])
            && selects_all(&destination["podSelector"]);
    };
    let excepted = destination["ipBlock"]["except"].as_array();
    let excepted: Vec<IpNet> = excepted.into_iter().flatten().filter_map(block).collect();
    let allows = |address: &IpAddr| {
        allowed.contains(address) && !excepted.iter().any(|block| block.contains(address))
    };
    METADATA.iter().any(allows) || PRIVATE.iter().all(allows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_protect_runs_unless_one_of_them_allows_everything() {
        let policy = |labels: Value, types: Value, egress: Value| {
            json!({"spec": {
                "podSelector": {"matchLabels": labels},
                "policyTypes": types,
                "egress": egress,
            }})
        };
        let of_runs = |egress: Value| {
            let labels = json!({"agent_implement_purpose": "session"});
            policy(labels, json!(["Ingress", "Egress"]), egress)
        };
        let block = |cidr: &str, except: Value| json!([{"to": [{"ipBlock": {"cidr": cidr, "except": except}}]}]);
        let public = |except: Value| vec![of_runs(block("0.0.0.0/0", except))];
        let dns = |cidr: &str, port: u16| json!([{"to": [{"ipBlock": {"cidr": cidr}}], "ports": [{"port": port}]}]);
        let by_expression = |operator: &str, values: Value| {
            let key = "agent_implement_purpose";
            json!({"spec": {
                "podSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]},
                "policyTypes": ["Egress"],
                "egress": [{}],
            }})
        };
        let closed = of_runs(Value::Null);
        let open = of_runs(json!([{}]));
        let all = policy(json!({}), json!(["Egress"]), Value::Null);
        let other = policy(json!({"app": "x"}), json!(["Egress"]), json!([{}]));
        let ingress = policy(json!({}), json!(["Ingress"]), Value::Null);
        let rows = [
            (vec![], false),
            (vec![closed.clone()], true),
            (vec![all], true),
            (vec![ingress], false),
            (vec![open.clone()], false),
            (vec![closed.clone(), open], false),
            (vec![closed.clone(), other.clone()], true),
            (vec![other], false),
            (vec![of_runs(json!([{"to": []}]))], false),
            (vec![of_runs(json!([{"ports": [{"port": 443}]}]))], false),
            (vec![of_runs(block("0.0.0.0/0", Value::Null))], false),
            (vec![of_runs(block("::/0", json!([])))], false),
            (public(json!(["169.254.0.0/16", "10.0.0.0/8"])), true),
            (public(json!(["10.0.0.0/8"])), false),
            (public(json!(["169.254.169.254/32"])), false),
            (public(json!(["192.0.2.0/24"])), false),
            (vec![of_runs(block("128.0.0.0/1", Value::Null))], false),
            (
                vec![of_runs(block("169.254.169.254/32", Value::Null))],
                false,
            ),
            (vec![of_runs(block("10.1.0.0/16", Value::Null))], true),
            (vec![of_runs(block("::/0", json!(["fc00::/7"])))], true),
            (vec![of_runs(dns("169.254.169.254/32", 53))], true),
            (vec![of_runs(dns("169.254.169.254/32", 80))], false),
            (
                vec![of_runs(json!([{"to": [{"namespaceSelector": {}}]}]))],
                false,
            ),
            (
                vec![of_runs(json!([{"to": [
                    {"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}},
                ]}]))],
                true,
            ),
            (
                vec![closed.clone(), by_expression("In", json!(["session"]))],
                false,
            ),
            (
                vec![closed.clone(), by_expression("Exists", Value::Null)],
                false,
            ),
            (
                vec![closed.clone(), by_expression("NotIn", json!(["x"]))],
                false,
            ),
            (
                vec![closed, by_expression("NotIn", json!(["session"]))],
                true,
            ),
            (vec![of_runs(block("203.0.113.0/24", Value::Null))], true),
            (vec![of_runs(json!([{"to": [{"podSelector": {}}]}]))], true),
        ];
        for (policies, expected) in rows {
            assert_eq!(protects_runs(&policies), expected, "{policies:?}");
        }
    }
}

//! Objects of Kubernetes, in requests and in manifests, against the published types of its API.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use fake_vendors::FakeService;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    authorization::v1::SelfSubjectAccessReview,
    batch::v1::Job,
    core::v1::{ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    rbac::v1::{Role, RoleBinding},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::verbs;
use crate::test_env::{TestEnv, TestEnvOptions};

/// Reads an object as the published type of this kind, and writes it.
fn as_published(kind: &str, object: &Value) -> Result<Value, String> {
    fn convert<T: Serialize + DeserializeOwned>(object: &Value) -> Result<Value, String> {
        let read: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
        serde_json::to_value(read).map_err(|error| error.to_string())
    }
    let convert = match kind {
        "ConfigMap" => convert::<ConfigMap>,
        "DeleteOptions" => convert::<DeleteOptions>,
        "Job" => convert::<Job>,
        "Namespace" => convert::<Namespace>,
        "NetworkPolicy" => convert::<NetworkPolicy>,
        "Pod" => convert::<Pod>,
        "Role" => convert::<Role>,
        "RoleBinding" => convert::<RoleBinding>,
        "Secret" => convert::<Secret>,
        "SelfSubjectAccessReview" => convert::<SelfSubjectAccessReview>,
        "Service" => convert::<Service>,
        "ServiceAccount" => convert::<ServiceAccount>,
        "StatefulSet" => convert::<StatefulSet>,
        other => return Err(format!("unknown kind {other}")),
    };
    convert(object)
}

/// Lists the values that a published type has lost, because it does not know their field.
fn lost(at: &str, sent: &Value, kept: &Value) -> Vec<String> {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => { sent.iter() }
            .flat_map(|(name, value)| {
                let kept = kept.get(name).unwrap_or(&Value::Null);
                lost(&format!("{at}.{name}"), value, kept)
            })
            .collect(),
        (Value::Array(sent), Value::Array(kept)) if sent.len() == kept.len() => {
            let pairs = sent.iter().zip(kept).enumerate();
            pairs
                .flat_map(|(index, (sent, kept))| lost(&format!("{at}[{index}]"), sent, kept))
                .collect()
        }
        (sent, kept) if sent == kept => Vec::new(),
        (sent, kept) => vec![format!("{at}: {sent} became {kept}")],
    }
}

fn violations(kind: &str, object: &Value) -> Vec<String> {
    match as_published(kind, object) {
        Ok(kept) => lost(kind, object, &kept),
        Err(error) => vec![format!("{kind}: {error}")],
    }
}

/// Objects of a file in packaging/kubernetes.
fn manifest(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&manifest_text(file)).unwrap()
}

fn manifest_text(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().unwrap().iter();
    items
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

#[test]
fn a_misspelt_field_and_a_wrong_type_are_found() {
    let job = |spec: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec});
    let template = json!({"spec": {"containers": [{"name": "run"}]}});
    let misspelt = job(json!({"template": template, "backofLimit": 0}));
    assert_eq!(
        violations("Job", &misspelt),
        ["Job.spec.backofLimit: 0 became null"]
    );
    assert_eq!(
        violations("Job", &job(json!({"template": template, "suspend": "yes"}))).len(),
        1
    );
    assert_eq!(
        violations("Job", &job(json!({"template": template, "suspend": true}))),
        [""; 0]
    );
}

#[test]
fn manifests_have_the_published_types() {
    let mut kinds = BTreeSet::new();
    for file in ["runs.yaml", "service.yaml"] {
        for object in manifest(file) {
            assert_eq!(
                violations(kind(&object), &object),
                [""; 0],
                "{file}: {object}"
            );
            kinds.insert(kind(&object).to_owned());
        }
    }
    assert_eq!(kinds.len(), 8, "{kinds:?}");
}

/// Probes need no credentials, and a path that answers 200 even if the page of the health check does not.
#[tokio::test(flavor = "multi_thread")]
async fn probes_of_the_manifest_succeed() {
    let env = TestEnv::start().await;
    let objects = manifest("service.yaml");
    let set = { objects.iter() }.find(|object| kind(object) == "StatefulSet");
    let container = &set.unwrap()["spec"]["template"]["spec"]["containers"][0];
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        assert_ne!(path, "/", "{probe}: 503 while the disk is full");
        let response = reqwest::get(format!("{}{path}", env.address))
            .await
            .unwrap();
        assert_eq!(response.status(), 200, "{probe}");
    }
    env.stop().await;
}

/// With the default, a pod that never becomes ready blocks the update that corrects it.
#[test]
fn a_corrected_manifest_replaces_a_pod_that_never_became_ready() {
    let objects = manifest("service.yaml");
    let set = { objects.iter() }.find(|object| kind(object) == "StatefulSet");
    assert_eq!(set.unwrap()["spec"]["podManagementPolicy"], "Parallel");
}

/// The rights in the manifest are those that the doctor checks: no more, no fewer.
#[tokio::test(flavor = "multi_thread")]
async fn requests_have_the_published_types_and_need_no_more_than_the_rights_of_the_manifest() {
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        ..TestEnvOptions::default()
    })
    .await;
    verbs::create_and_destroy_machines(&env).await;
    let mut reviewed = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for request in env.vendors.requests().for_service(FakeService::Kubernetes) {
        if request.body.is_null() {
            continue;
        }
        // A change to some fields of an object has no kind.
        let kind = match request.body["kind"].as_str() {
            Some(kind) => kind,
            None if request.url.contains("/pods/") => "Pod",
            None => "Job",
        };
        let found = violations(kind, &request.body);
        assert_eq!(found, [""; 0], "{} {}", request.method, request.url);
        kinds.insert(kind.to_owned());
        if kind == "SelfSubjectAccessReview" {
            let wanted = &request.body["spec"]["resourceAttributes"];
            let part = |name: &str| wanted[name].as_str().unwrap().to_owned();
            let resource = match part("subresource").as_str() {
                "" => part("resource"),
                subresource => format!("{}/{subresource}", part("resource")),
            };
            reviewed.insert((part("group"), resource, part("verb"), part("name")));
        }
    }
    let expected = [
        "DeleteOptions",
        "Job",
        "Pod",
        "Secret",
        "SelfSubjectAccessReview",
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
    let objects = manifest("runs.yaml");
    let role = objects
        .iter()
        .find(|object| kind(object) == "Role")
        .unwrap();
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        // A rule with names matches only a review that has one of them.
        let names: Vec<String> = match &rule["resourceNames"] {
            Value::Null => vec![String::new()],
            names => { texts(names).into_iter() }
                .map(|name| match role["metadata"]["namespace"] == name {
                    true => env.vendors.kubernetes().namespace().to_owned(),
                    false => name,
                })
                .collect(),
        };
        let group = &texts(&rule["apiGroups"])[0];
        for resource in texts(&rule["resources"]) {
            for verb in texts(&rule["verbs"]) {
                let named = names.iter().cloned();
                let right = |name| (group.clone(), resource.clone(), verb.clone(), name);
                granted.extend(named.map(right));
            }
        }
    }
    assert_eq!(granted, reviewed);
    env.stop().await;
}

/// The NetworkPolicy selects the pods of runs, and denies what is inside the network.
#[test]
fn the_network_policy_denies_private_and_link_local_addresses() {
    let objects = manifest("runs.yaml");
    let policy = objects
        .iter()
        .find(|object| kind(object) == "NetworkPolicy")
        .unwrap();
    let (label, value) = domain::machine::MachineLabels::PURPOSE;
    assert_eq!(
        policy["spec"]["podSelector"],
        json!({"matchLabels": {label: value}})
    );
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert!(
        policy["spec"]["ingress"].is_null(),
        "nothing connects to a run"
    );
    let excepted = |all: &str| -> Vec<String> {
        let rules = policy["spec"]["egress"].as_array().unwrap().iter();
        let blocks = rules.flat_map(|rule| rule["to"].as_array().into_iter().flatten());
        let mut blocks = blocks.map(|to| &to["ipBlock"]);
        texts(&blocks.find(|block| block["cidr"] == all).unwrap()["except"])
    };
    let (v4, v6) = (excepted("0.0.0.0/0"), excepted("::/0"));
    for denied in [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "169.254.0.0/16",
    ] {
        assert!(v4.iter().any(|block| block == denied), "{denied}");
    }
    for denied in ["fc00::/7", "fe80::/10", "64:ff9b:1::/48"] {
        assert!(v6.iter().any(|block| block == denied), "{denied}");
    }
    for block in &v4 {
        let by_nat64 = as_nat64(block);
        assert!(v6.contains(&by_nat64), "{block} by NAT64 is {by_nat64}");
    }
    let github = json!("64:ff9b::8c52:7903/128");
    let reaches_public = |block: &String| !is_strictly_within(&github, &json!(block));
    assert!(v6.iter().all(reaches_public), "{v6:?}");
    for rule in policy["spec"]["egress"].as_array().unwrap() {
        assert!(!rule["to"].is_null(), "{rule} allows every address");
        let blocks = rule["to"].as_array().into_iter().flatten();
        for block in blocks.map(|to| &to["ipBlock"]) {
            for except in block["except"].as_array().into_iter().flatten() {
                assert!(is_strictly_within(except, &block["cidr"]), "{except}");
            }
        }
    }
}

/// Returns the block of IPv6 addresses by which NAT64 reaches a block of IPv4 addresses.
fn as_nat64(block: &str) -> String {
    let (address, length) = block.split_once('/').unwrap();
    let address: Ipv4Addr = address.parse().unwrap();
    let prefix = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).to_bits();
    let mapped = Ipv6Addr::from_bits(prefix | u128::from(address.to_bits()));
    let length: u32 = length.parse().unwrap();
    format!("{mapped}/{}", length + 96)
}

/// The rules in comments are valid, so that an operator only removes the marks.
#[test]
fn rules_in_comments_of_the_network_policy_are_valid() {
    let text = manifest_text("runs.yaml");
    let is_rule = |line: &str| {
        let content = line.trim_start().strip_prefix("# ").map(str::trim_start);
        let field = content.and_then(|content| content.strip_prefix("- ").or(Some(content)));
        let field = field.map(|field| field.trim_start_matches("{ "));
        let field = field.and_then(|field| field.split_once(':'));
        line.starts_with(' ') && field.is_some_and(|(name, _)| !name.contains(' '))
    };
    let lines = text.lines().map(|line| match is_rule(line) {
        true => line.replacen("# ", "", 1),
        false => line.to_owned(),
    });
    let text: Vec<String> = lines.collect();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text.join("\n")).unwrap();
    let policy = objects.last().unwrap();
    assert_eq!(violations("NetworkPolicy", policy), [""; 0], "{policy}");
    let rules = policy["spec"]["egress"].as_array().unwrap();
    assert_eq!(rules.len(), 5, "{rules:#?}");
    let openshift = &rules[1];
    let pods = &openshift["to"][0]["podSelector"]["matchLabels"];
    assert_eq!(pods["dns.operator.openshift.io/daemonset-dns"], "default");
    let ports = openshift["ports"].as_array().unwrap().iter();
    let ports: Vec<_> = ports.map(|one| (&one["protocol"], &one["port"])).collect();
    let [udp, tcp, port] = [json!("UDP"), json!("TCP"), json!(5353)];
    assert_eq!(ports, [(&udp, &port), (&tcp, &port)]);
    let dns = rules[0]["to"].as_array().unwrap().iter();
    let (blocks, pods): (Vec<_>, Vec<_>) = dns.partition(|to| to["podSelector"].is_null());
    let blocks = blocks.into_iter().map(|to| &to["ipBlock"]["cidr"]);
    assert_eq!(
        blocks.collect::<Vec<_>>(),
        ["169.254.169.254/32", "10.96.0.10/32", "169.254.20.10/32"]
    );
    let pods = { pods.into_iter() }.map(|to| &to["podSelector"]["matchLabels"]["k8s-app"]);
    assert_eq!(pods.collect::<Vec<_>>(), ["kube-dns", "node-local-dns"]);
}

/// Whether a block of addresses is a part of another, as the API server decides it. It reads IPv4-mapped addresses as IPv4.
fn is_strictly_within(part: &Value, whole: &Value) -> bool {
    let bits = |block: &Value| {
        let (address, length) = block.as_str().unwrap().split_once('/').unwrap();
        let length: u32 = length.parse().unwrap();
        match address.parse::<IpAddr>().unwrap().to_canonical() {
            IpAddr::V4(v4) => (32, u128::from(v4.to_bits()), length),
            IpAddr::V6(v6) => (128, v6.to_bits(), length),
        }
    };
    let ((width, part, long), (other_width, whole, short)) = (bits(part), bits(whole));
    let host_bits = |width: u32, length: u32| {
        1_u128
            .checked_shl(width - length)
            .map_or(u128::MAX, |size| size - 1)
    };
    width == other_width
        && long > short
        && part & host_bits(width, long) == 0
        && part & !host_bits(width, short) == whole
}

//! Fake Kubernetes cluster: the API server, and what its controllers and its only node do.

mod controls;
mod core_api;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{FakeMachine, FakeMachineState, MachineHost, string_list, string_map};
use crate::clock;
use crate::contract::kubernetes::object_violations;
use crate::http::{HttpRequest, HttpResponse};
use crate::persistence::{PersistedModel, lock, write_atomic};
use objects::{Disruption, Pod, PodTimes, invalid_metadata, job_json, matches_labels, secret_name};

const NAMESPACE: &str = "agent-runs";
const TOKEN: &str = "kubernetes-token-of-the-sandbox";

/// Fake Kubernetes cluster. Clones share their state.
#[derive(Clone)]
pub struct FakeKubernetes {
    host: Arc<MachineHost>,
    secrets: Arc<PersistedModel<BTreeMap<String, Value>>>,
    state: Arc<Mutex<ClusterState>>,
    /// Held while pods are started, so that each is started once.
    starting: Arc<Mutex<()>>,
    dir: PathBuf,
}

struct ClusterState {
    token: String,
    problem: Option<PodProblem>,
    refusals: Vec<Refusal>,
    denied_rights: BTreeSet<String>,
    is_protected: bool,
    /// Difference between the clock of the cluster and that of this machine, in milliseconds.
    clock_shift_ms: i64,
    has_sidecar: bool,
    /// Times of the pods, by the id of their Job.
    times: BTreeMap<String, PodTimes>,
    /// End of each pod that the cluster ended, by the id of its Job.
    disruptions: BTreeMap<String, Disruption>,
    /// Ids of Jobs whose deletion waits for something.
    in_deletion: BTreeSet<String>,
}

struct Refusal {
    line: String,
    response: HttpResponse,
    is_lasting: bool,
}

/// Why the pods of the cluster do not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodProblem {
    /// The container waits for this reason, with this message.
    Waiting(&'static str, &'static str),
    /// No node has room.
    Unschedulable,
    /// The node prepares the pod without end. An event has this reason and this message, if there is one.
    InPreparation(Option<(&'static str, &'static str)>),
    /// The pod is refused with this message.
    NotCreated(&'static str),
}

impl FakeKubernetes {
    /// Opens the cluster and writes its kubeconfig file. `server` is the address of the API server.
    pub(crate) fn open(dir: &Path, server: &str) -> anyhow::Result<Self> {
        let cluster = Self {
            host: Arc::new(MachineHost::open(dir, "kubernetes")?),
            secrets: Arc::new(PersistedModel::open(dir.join("kubernetes-secrets.json"))?),
            state: Arc::new(Mutex::new(ClusterState {
                token: TOKEN.to_owned(),
                problem: None,
                refusals: Vec::new(),
                denied_rights: BTreeSet::new(),
                is_protected: true,
                clock_shift_ms: 0,
                has_sidecar: false,
                times: BTreeMap::new(),
                disruptions: BTreeMap::new(),
                in_deletion: BTreeSet::new(),
            })),
            starting: Arc::default(),
            dir: dir.to_owned(),
        };
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "runner"}}],
            "clusters": [{"name": "sandbox", "cluster": {"server": server}}],
            "users": [{"name": "runner", "user": {"tokenFile": "kubernetes-token"}}],
        });
        write_atomic(&cluster.kubeconfig(), config.to_string().as_bytes())?;
        write_atomic(&dir.join("kubernetes-token"), TOKEN.as_bytes())?;
        cluster.start_pods();
        Ok(cluster)
    }

    /// Returns the kubeconfig file. It is JSON, which is YAML, and names a token file.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Returns the only namespace.
    pub fn namespace(&self) -> &'static str {
        NAMESPACE
    }

    /// Returns the Jobs. Their id is their name.
    pub fn host(&self) -> &MachineHost {
        &self.host
    }

    /// Returns the Secrets by name.
    pub fn secrets(&self) -> BTreeMap<String, Value> {
        self.secrets.read(Clone::clone)
    }

    pub(crate) fn rate_limited_response(left: Duration) -> HttpResponse {
        let message =
            "the server has received too many requests and has asked us to try again later";
        let response = status(429, "TooManyRequests", message);
        response.header("retry-after", left.as_secs().max(1))
    }

    pub(crate) fn handle(&self, request: &HttpRequest) -> HttpResponse {
        let bearer = format!("Bearer {}", lock(&self.state).token);
        if request.header("authorization") != Some(bearer.as_str()) {
            return status(401, "Unauthorized", "Unauthorized");
        }
        if let Some(refusal) = self.take_refusal(request) {
            return refusal;
        }
        let response = self.route(request);
        self.start_pods();
        response
    }

    fn take_refusal(&self, request: &HttpRequest) -> Option<HttpResponse> {
        let line = format!("{} {}", request.method, request.path);
        let refusals = &mut lock(&self.state).refusals;
        let at = { refusals.iter() }.position(|refusal| line.contains(&refusal.line))?;
        Some(match refusals[at].is_lasting {
            true => refusals[at].response.clone(),
            false => refusals.remove(at).response,
        })
    }

    fn route(&self, request: &HttpRequest) -> HttpResponse {
        let segments = request.segments();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (request.method.as_str(), &segments[..]) {
            ("GET", ["version"]) => HttpResponse::json(
                200,
                &json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"}),
            ),
            (
                "POST",
                [
                    "apis",
                    "authorization.k8s.io",
                    "v1",
                    "selfsubjectaccessreviews",
                ],
            ) => self.review(request),
            ("GET", ["api", "v1", "namespaces", namespace]) if *namespace == NAMESPACE => {
                let labels = match lock(&self.state).is_protected {
                    true => json!({"pod-security.kubernetes.io/enforce": "restricted"}),
                    false => json!({}),
                };
                HttpResponse::json(
                    200,
                    &json!({"metadata": {"name": namespace, "labels": labels}}),
                )
            }
            ("GET", ["api", "v1", "namespaces", namespace]) => {
                not_found(&format!("namespaces \"{namespace}\" not found"))
            }
            (
                method,
                [
                    "apis",
                    "batch",
                    "v1",
                    "namespaces",
                    namespace,
                    "jobs",
                    rest @ ..,
                ],
            ) => self.jobs(method, namespace, rest, request),
            (
                "GET",
                [
                    "apis",
                    "networking.k8s.io",
                    "v1",
                    "namespaces",
                    _,
                    "networkpolicies",
                ],
            ) => {
                let public =
                    json!({"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "169.254.0.0/16"]});
                let policy = json!({"spec": {
                    "podSelector": {"matchLabels": {"agent_implement_purpose": "session"}},
                    "policyTypes": ["Ingress", "Egress"],
                    "egress": [{"to": [{"ipBlock": public}]}],
                }});
                items(
                    [policy]
                        .into_iter()
                        .filter(|_| lock(&self.state).is_protected),
                )
            }
            (method, ["api", "v1", "namespaces", namespace, rest @ ..]) => {
                self.core(method, namespace, rest, request)
            }
            _ => not_found("the server could not find the requested resource"),
        }
    }

    fn review(&self, request: &HttpRequest) -> HttpResponse {
        let mut review = request.json().unwrap_or_default();
        let wanted = &review["spec"]["resourceAttributes"];
        let part = |name: &str| wanted[name].as_str().unwrap_or_default();
        let right = match part("subresource") {
            "" => format!("{} {}", part("verb"), part("resource")),
            subresource => format!("{} {}/{subresource}", part("verb"), part("resource")),
        };
        // The Role names the namespace, and such a rule matches no review without the name.
        let is_unnamed = part("resource") == "namespaces" && part("name") != NAMESPACE;
        let is_denied = is_unnamed || lock(&self.state).denied_rights.contains(&right);
        review["status"] = json!({"allowed": !is_denied});
        HttpResponse::json(201, &review)
    }

    fn jobs(
        &self,
        method: &str,
        namespace: &str,
        rest: &[&str],
        request: &HttpRequest,
    ) -> HttpResponse {
        match (method, rest) {
            ("POST", []) if namespace != NAMESPACE => {
                not_found(&format!("namespaces \"{namespace}\" not found"))
            }
            ("POST", []) => self.create_job(request),
            ("GET", []) => {
                let selector = request.query_param("labelSelector").unwrap_or_default();
                let jobs = self
                    .jobs_json()
                    .into_iter()
                    .filter(|_| namespace == NAMESPACE);
                items(jobs.filter(|job| matches_labels(job, &selector)))
            }
            (_, [name]) => match self.host.find(name).filter(|job| job.name == *name) {
                Some(job) => self.job_request(method, &job, request),
                None => not_found(&format!("jobs.batch \"{name}\" not found")),
            },
            _ => not_found("the server could not find the requested resource"),
        }
    }

    fn job_request(&self, method: &str, job: &FakeMachine, request: &HttpRequest) -> HttpResponse {
        match method {
            "GET" => HttpResponse::json(200, &self.job_json(job)),
            "PATCH" => {
                let change = request.json().unwrap_or_default();
                let suspend = change["spec"]["suspend"].clone();
                self.host.update(&job.id, |job| {
                    job.create_request["spec"]["suspend"] = suspend
                });
                self.start_pods();
                let job = self.host.find(&job.id).unwrap_or_else(|| job.clone());
                HttpResponse::json(200, &self.job_json(&job))
            }
            "DELETE" => {
                let options = request.json().unwrap_or_default();
                let (uid, wanted) = (objects::uid(job), &options["preconditions"]["uid"]);
                if wanted.as_str().is_some_and(|wanted| wanted != uid) {
                    let message = "the UID in the precondition does not match the UID in record";
                    return status(409, "Conflict", message);
                }
                self.host.remove(&job.id);
                lock(&self.state).times.remove(&job.id);
                // The garbage collector deletes what the Job owned.
                let owner =
                    |secret: &Value| secret["metadata"]["ownerReferences"][0]["uid"].clone();
                self.secrets
                    .update_and_flush(|secrets| secrets.retain(|_, secret| owner(secret) != uid));
                status(200, "", "")
            }
            _ => status(
                405,
                "MethodNotAllowed",
                "the server does not allow this method",
            ),
        }
    }

    fn create_job(&self, request: &HttpRequest) -> HttpResponse {
        let mut body = match valid_object(request, "Job.batch") {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        let name = body["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if self.host.find(&name).is_some() {
            let message = format!("jobs.batch \"{name}\" already exists");
            return status(409, "AlreadyExists", &message);
        }
        let now = self.now_ms();
        body["metadata"]["uid"] = json!(format!("{:032x}", fastrand::u128(..)));
        body["metadata"]["creationTimestamp"] = json!(clock::iso(now));
        let container = &body["spec"]["template"]["spec"]["containers"][0];
        let about = &body["metadata"];
        let mut labels = string_map(&about["annotations"]);
        labels.extend(string_map(&about["labels"]));
        let job = FakeMachine {
            id: name.clone(),
            name,
            image: container["image"].as_str().unwrap_or_default().to_owned(),
            region: String::new(),
            env: BTreeMap::new(),
            command: string_list(&container["command"]),
            labels,
            create_request: body.clone(),
            created_at: now,
            started_at: None,
            stop_requested_at: None,
            state_override: None,
            removed: false,
        };
        self.host.add(job);
        HttpResponse::json(201, &body)
    }

    /// Starts the pods of Jobs that are not suspended and whose Secret exists.
    fn start_pods(&self) {
        let _starting = lock(&self.starting);
        self.create_pods();
        if lock(&self.state).problem.is_some() {
            return;
        }
        let secrets = self.secrets();
        for job in self.host.machines() {
            let is_due = job.create_request["spec"]["suspend"] == false
                && self.host.state(&job) == FakeMachineState::Created;
            let Some(secret) = secrets.get(&secret_name(&job)).filter(|_| is_due) else {
                continue;
            };
            let container = &job.create_request["spec"]["template"]["spec"]["containers"][0];
            let own = container["env"].as_array().into_iter().flatten();
            let own = own.map(|pair| (pair["name"].clone(), pair["value"].clone()));
            let own = own.filter_map(|(name, value)| {
                Some((name.as_str()?.to_owned(), value.as_str()?.to_owned()))
            });
            let mut env = string_map(&secret["stringData"]);
            env.extend(own);
            self.host.update(&job.id, |job| job.env = env);
            if let Some(job) = self.host.find(&job.id) {
                // A job without a process counts as ended.
                let _ = self.host.start(&job);
            }
        }
    }

    fn jobs_json(&self) -> Vec<Value> {
        let jobs = self.host.machines();
        jobs.iter().map(|job| self.job_json(job)).collect()
    }

    fn job_json(&self, job: &FakeMachine) -> Value {
        let state = lock(&self.state);
        let mut object = job_json(job, self.host.state(job), state.has_sidecar);
        if let Some(Disruption::Deletion(_)) = state.disruptions.get(&job.id) {
            // A pod counts as failed when its deletion begins, whatever its exit code.
            object["status"] = objects::failed_status(match self.host.state(job) {
                FakeMachineState::Exited { .. } => "Failed",
                _ => "FailureTarget",
            });
        }
        if state.in_deletion.contains(&job.id) {
            object["metadata"]["deletionTimestamp"] = json!(clock::iso_seconds(job.created_at));
        }
        object
    }

    /// Records when the pods were created and got their node.
    fn create_pods(&self) {
        let now = self.now_ms();
        let mut state = lock(&self.state);
        let problem = state.problem.clone();
        for job in self.host.machines() {
            if !Pod::exists(&job, self.host.state(&job), problem.as_ref()) {
                continue;
            }
            let times = state.times.entry(job.id).or_insert(PodTimes {
                created: now,
                scheduled: None,
            });
            if problem != Some(PodProblem::Unschedulable) {
                times.scheduled.get_or_insert(now);
            }
        }
    }

    /// Returns the time of the cluster.
    fn now_ms(&self) -> i64 {
        clock::now_ms() + lock(&self.state).clock_shift_ms
    }
}

/// Returns the object of a create request, or the refusal of the API server.
fn valid_object(request: &HttpRequest, kind: &str) -> Result<Value, HttpResponse> {
    let body = request.json().unwrap_or_default();
    // A release contains no rules: the tests have checked what the demo sends.
    let violations = match cfg!(debug_assertions) {
        true => object_violations(&request.path, &body),
        false => Vec::new(),
    };
    if !violations.is_empty() {
        let message = format!("strict decoding error: {}", violations.join(", "));
        return Err(status(400, "BadRequest", &message));
    }
    match invalid_metadata(&body) {
        Some(problem) => {
            let message = format!("{kind} {} is invalid: {problem}", body["metadata"]["name"]);
            Err(status(422, "Invalid", &message))
        }
        None => Ok(body),
    }
}

fn items(items: impl Iterator<Item = Value>) -> HttpResponse {
    let items: Vec<Value> = items.collect();
    HttpResponse::json(
        200,
        &json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}),
    )
}

fn not_found(message: &str) -> HttpResponse {
    status(404, "NotFound", message)
}

fn status(code: u16, reason: &str, message: &str) -> HttpResponse {
    let outcome = if code < 400 { "Success" } else { "Failure" };
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": outcome,
        "message": message,
        "reason": reason,
        "code": code,
    });
    HttpResponse::json(code, &body)
}

//! What tests do to the fake cluster.

use serde_json::{Value, json};

use super::objects::Disruption;
use super::{FakeKubernetes, PodProblem, Refusal};
use crate::clock;
use crate::http::HttpResponse;
use crate::persistence::{lock, write_atomic};

impl FakeKubernetes {
    /// Sets why pods do not start from now on.
    pub fn set_pod_problem(&self, problem: Option<PodProblem>) {
        lock(&self.state).problem = problem;
        self.start_pods();
    }

    /// Refuses the next request whose method and path contain `line`.
    pub fn refuse_next(&self, line: &str, status: u16, reason: &str, message: &str) {
        self.add_refusal(line, super::status(status, reason, message), false);
    }

    /// Refuses every request whose method and path contain `line`.
    pub fn refuse_all(&self, line: &str, status: u16, reason: &str, message: &str) {
        self.add_refusal(line, super::status(status, reason, message), true);
    }

    /// Answers every request whose method and path contain `line` with a page, as a load balancer before the API server
    /// does.
    pub fn refuse_all_with_page(&self, line: &str, status: u16, page: &str) {
        let response = HttpResponse::new(status, "text/html", page.to_owned());
        self.add_refusal(line, response, true);
    }

    fn add_refusal(&self, line: &str, response: HttpResponse, is_lasting: bool) {
        lock(&self.state).refusals.push(Refusal {
            line: line.to_owned(),
            response,
            is_lasting,
        });
    }

    /// Takes rights away from the account, such as `create jobs`, as an access review reports them.
    pub fn deny_rights(&self, rights: &[&str]) {
        let rights = rights.iter().map(|right| (*right).to_owned());
        lock(&self.state).denied_rights.extend(rights);
    }

    /// Removes the Pod Security Standard and the NetworkPolicy of the namespace.
    pub fn remove_protection(&self) {
        lock(&self.state).is_protected = false;
    }

    /// Replaces the token of the account, and its file.
    pub fn rotate_token(&self, token: &str) -> anyhow::Result<()> {
        lock(&self.state).token = token.to_owned();
        write_atomic(&self.dir.join("kubernetes-token"), token.as_bytes())
    }

    /// Sets the clock of the cluster to this many minutes after that of this machine, or before it.
    pub fn shift_clock(&self, minutes: i64) {
        lock(&self.state).clock_shift_ms = minutes * 60_000;
    }

    /// Adds a container to every pod, before that of the run, which runs until the pod is stopped.
    pub fn add_sidecar(&self) {
        lock(&self.state).has_sidecar = true;
    }

    /// Deletes the pod of a Job, as the drain of its node or a preemption does. The pod gets SIGTERM, and disappears
    /// when it has exited.
    pub fn disrupt(&self, job: &str, reason: &str, message: &str) {
        let deletion = Disruption::Deletion(self.disruption(reason, message));
        self.add_disruption(job, deletion);
        if let Some(job) = self.host.find(job) {
            self.host.stop(&job);
        }
    }

    /// Kills the pod of a Job, as the kubelet of a node that is short of memory does. The pod stays.
    pub fn kill_pod(&self, job: &str, reason: &str, message: &str) {
        let kill = Disruption::Kill(self.disruption(reason, message));
        self.add_disruption(job, kill);
        self.host.kill(job);
    }

    fn disruption(&self, reason: &str, message: &str) -> Value {
        json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": clock::iso_seconds(self.now_ms()),
        })
    }

    fn add_disruption(&self, job: &str, disruption: Disruption) {
        let disruptions = &mut lock(&self.state).disruptions;
        disruptions.insert(job.to_owned(), disruption);
    }

    /// Begins the deletion of a Job. It exists until [`FakeKubernetes::finish_deletion`].
    pub fn begin_deletion(&self, job: &str) {
        lock(&self.state).in_deletion.insert(job.to_owned());
    }

    /// Ends the deletion of a Job.
    pub fn finish_deletion(&self, job: &str) {
        self.host.remove(job);
        lock(&self.state).in_deletion.remove(job);
    }
}

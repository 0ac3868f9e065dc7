//! Machines and containers of sessions, as their host describes them.
//!
//! A machine belongs to the service if it carries the labels of its instance. Other machines on the
//! same host are neither counted nor changed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::{IssueKey, JobId, Repo, TeamKey};
use super::job::{Job, RunHandle, RunnerKind};
use super::machine_size::round_up_memory;
use super::mapping::{Mapping, SessionMode};
use super::time::Timestamp;
use super::transition::FailureKind;

/// Names of the labels. Both kinds of hosts accept letters and underscores.
const LABEL_INSTANCE: &str = "agent_implement_instance";
const LABEL_DISPATCH: &str = "agent_implement_dispatch";
const LABEL_ISSUE: &str = "agent_implement_issue";
const LABEL_TEAM: &str = "agent_implement_team";
const LABEL_REPO: &str = "agent_implement_repo";
const LABEL_EXPIRES: &str = "agent_implement_expires";

/// Environment variables or labels, by name.
pub type EnvVarMap = BTreeMap<String, String>;

/// Host of machines.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum HostKind {
    /// Fly Machines.
    Vm,
    /// Local container engine.
    Local,
    /// Kubernetes cluster.
    Kubernetes,
}

impl HostKind {
    /// All hosts.
    pub const ALL: [HostKind; 3] = [HostKind::Vm, HostKind::Local, HostKind::Kubernetes];

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            HostKind::Vm => "vm",
            HostKind::Local => "local",
            HostKind::Kubernetes => "kubernetes",
        }
    }
}

impl RunnerKind {
    /// Returns the host of the runner's machines. `None` for CI.
    pub fn host(self) -> Option<HostKind> {
        match self {
            RunnerKind::Ci => None,
            RunnerKind::Vm => Some(HostKind::Vm),
            RunnerKind::Local => Some(HostKind::Local),
            RunnerKind::Kubernetes => Some(HostKind::Kubernetes),
        }
    }
}

/// Machine, by host and id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineRef {
    /// Host.
    pub host: HostKind,
    /// Id at the host.
    pub id: String,
}

impl fmt::Display for MachineRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.host.as_str(), self.id)
    }
}

impl RunHandle {
    /// Returns the machine of the run. `None` for CI.
    pub fn machine(&self) -> Option<MachineRef> {
        let (host, id) = match self {
            RunHandle::Ci { .. } => return None,
            RunHandle::Machine { id, .. } => (HostKind::Vm, id),
            RunHandle::Container { id } => (HostKind::Local, id),
            RunHandle::KubernetesJob { id } => (HostKind::Kubernetes, id),
        };
        let id = id.clone();
        Some(MachineRef { host, id })
    }
}

/// Machine as its host describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Host.
    pub host: HostKind,
    /// Id at the host.
    pub id: String,
    /// Name.
    pub name: String,
    /// State as reported by the host.
    pub state: MachineState,
    /// Exit of its program. Known for a stopped machine that was inspected.
    pub exit: Option<MachineExit>,
    /// Why its program does not start, or ended without an exit.
    pub problem: Option<MachineProblem>,
    /// Region.
    pub region: Option<String>,
    /// Address of the log page, if the host has one.
    pub log_url: Option<String>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Labels of the service.
    pub labels: MachineLabels,
}

impl Machine {
    /// Returns the problem of a machine that has not started, if it counts as permanent.
    pub fn permanent_problem(&self, now: Timestamp) -> Option<&MachineProblem> {
        let is_permanent = |problem: &&MachineProblem| {
            let since = problem.since.unwrap_or(self.created_at);
            now.since(since) >= problem.permanent_after
        };
        self.problem.as_ref().filter(is_permanent)
    }

    /// Returns the reference to the machine.
    pub fn reference(&self) -> MachineRef {
        MachineRef {
            host: self.host,
            id: self.id.clone(),
        }
    }

    /// Returns the run handle that a job stores.
    pub fn run_handle(&self) -> RunHandle {
        let id = self.id.clone();
        match self.host {
            HostKind::Vm => RunHandle::Machine {
                id,
                log_url: self.log_url.clone(),
            },
            HostKind::Local => RunHandle::Container { id },
            HostKind::Kubernetes => RunHandle::KubernetesJob { id },
        }
    }
}

/// Problem of a machine, as its host states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineProblem {
    /// Sentence about the machine, after `the session failed:`.
    pub message: String,
    /// Kind of the failure of the run: transient if the host caused it.
    pub kind: FailureKind,
    /// Earliest time at which the problem can have begun. `None`: the creation of the machine.
    pub since: Option<Timestamp>,
    /// Time after which a machine that has not started is given up.
    pub permanent_after: Duration,
}

/// State of a machine, as the host names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineState(String);

/// Phase of a machine, derived from its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachinePhase {
    /// Created, and its program is not running yet.
    Starting,
    /// Its program is running.
    Running,
    /// Its program has ended, or cannot start.
    Stopped,
    /// Being destroyed, or destroyed.
    Destroying,
}

impl MachineState {
    /// Creates a state from its name at the host.
    pub fn new(state: impl Into<String>) -> Self {
        Self(state.into())
    }

    /// Returns the name at the host.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the phase. An unknown state counts as running, so that no action follows from it.
    /// The time budget still applies.
    pub fn phase(&self) -> MachinePhase {
        match self.0.as_str() {
            "created" | "starting" | "preparing" => MachinePhase::Starting,
            "stopped" | "failed" | "launch_failed" | "dead" | "suspended" => MachinePhase::Stopped,
            "destroying" | "destroyed" | "removing" | "replaced" | "migrated" => {
                MachinePhase::Destroying
            }
            _ => MachinePhase::Running,
        }
    }
}

/// Exit of a machine's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineExit {
    /// Exit code. `None` if the host does not report it.
    pub code: Option<i32>,
    /// Whether the program was killed because it exceeded its memory.
    pub out_of_memory: bool,
}

impl MachineExit {
    /// Returns the conclusion of the run: `success` or the reason of the failure.
    pub fn conclusion(self) -> String {
        match self {
            MachineExit {
                out_of_memory: true,
                ..
            } => "out of memory".to_owned(),
            MachineExit { code: Some(0), .. } => "success".to_owned(),
            MachineExit {
                code: Some(code), ..
            } => format!("exit code {code}"),
            MachineExit { code: None, .. } => "no exit code".to_owned(),
        }
    }
}

/// Labels of a machine, by which the service recognizes its machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineLabels {
    /// Id of the service instance that created the machine.
    pub instance: String,
    /// Job that the machine was created for.
    pub job: JobId,
    /// Key of the issue.
    pub issue: Option<IssueKey>,
    /// Key of the mapping.
    pub team: Option<TeamKey>,
    /// Repository of the run.
    pub repo: Option<Repo>,
    /// End of the time budget.
    pub expires_at: Option<Timestamp>,
}

impl MachineLabels {
    /// Label that every machine has: name and value.
    pub const PURPOSE: (&'static str, &'static str) = ("agent_implement_purpose", "session");

    /// Returns the labels by name. They contain no secrets, because everyone who can list the
    /// machine can read them.
    pub fn to_map(&self) -> EnvVarMap {
        let text = |value: Option<&dyn fmt::Display>| value.map(ToString::to_string);
        [
            (Self::PURPOSE.0, Some(Self::PURPOSE.1.to_owned())),
            (LABEL_INSTANCE, Some(self.instance.clone())),
            (LABEL_DISPATCH, Some(self.job.to_string())),
            (LABEL_ISSUE, text(self.issue.as_ref().map(|key| key as _))),
            (LABEL_TEAM, text(self.team.as_ref().map(|team| team as _))),
            (LABEL_REPO, text(self.repo.as_ref().map(|repo| repo as _))),
            (
                LABEL_EXPIRES,
                text(self.expires_at.as_ref().map(|at| at as _)),
            ),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
    }

    /// Parses labels. `None` unless they belong to a session of this instance.
    pub fn read(pairs: &EnvVarMap, instance: &str) -> Option<Self> {
        let label = |name: &str| pairs.get(name).filter(|text| !text.is_empty());
        let (purpose, session) = Self::PURPOSE;
        let is_own = label(LABEL_INSTANCE)? == instance && label(purpose)? == session;
        is_own.then_some(())?;
        Some(Self {
            instance: instance.to_owned(),
            job: JobId::new(label(LABEL_DISPATCH)?),
            issue: label(LABEL_ISSUE).map(IssueKey::new),
            team: label(LABEL_TEAM).map(TeamKey::new),
            repo: label(LABEL_REPO).and_then(|repo| Repo::parse(repo)),
            expires_at: label(LABEL_EXPIRES).and_then(|at| Timestamp::parse(at)),
        })
    }

    /// Returns the label filter for all sessions of an instance.
    pub fn instance_selector(instance: &str) -> String {
        format!("{LABEL_INSTANCE}={instance}")
    }
}

/// Returns the name of a job's machine. Names are unique at a host, which prevents a second machine
/// for the same job. Hosts accept lower-case letters, digits and dashes.
pub fn machine_name(job: &JobId) -> String {
    format!("agent-{}", job.as_str().to_ascii_lowercase())
}

/// Settings of a session, copied from its mapping at the dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSpec {
    /// Session mode.
    pub mode: SessionMode,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory, in MB.
    pub memory_mb: u32,
    /// Additional environment variables.
    pub extra_env: EnvVarMap,
    /// Labels of the Kubernetes nodes on which the session may run.
    #[serde(default, skip_serializing_if = "EnvVarMap::is_empty")]
    pub node_selector: EnvVarMap,
}

impl SessionSpec {
    /// Returns the settings of a mapping.
    pub fn from_mapping(mapping: &Mapping) -> Self {
        Self {
            mode: mapping.session_mode,
            cpus: mapping.machine_cpus,
            memory_mb: round_up_memory(mapping.machine_memory_mb),
            extra_env: mapping.extra_env.clone(),
            node_selector: mapping.node_selector.clone(),
        }
    }
}

/// Machine to create.
#[derive(Clone, PartialEq, Eq)]
pub struct MachineSpec {
    /// Name, unique at the host.
    pub name: String,
    /// Container image.
    pub image: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory, in MB.
    pub memory_mb: u32,
    /// Environment variables. They contain secrets and are only sent to the host.
    pub environment: EnvVarMap,
    /// Folder on the host with the socket of the service, for a container that reports through it. Mounted
    /// read-only at [`run_socket::MOUNT_POINT`](crate::run_socket::MOUNT_POINT).
    pub socket_folder: Option<String>,
    /// Folder on the host with the mirror of the repository. Mounted read-only at
    /// [`git_mirror::MOUNT_POINT`](crate::git_mirror::MOUNT_POINT).
    pub mirror_folder: Option<String>,
    /// Whether the machine gets no network. It then reaches others only through sockets in `socket_folder`.
    pub is_isolated: bool,
    /// Labels of the Kubernetes nodes on which the machine may run.
    pub node_selector: EnvVarMap,
    /// Time after which the host ends the machine by itself, if the service has not ended it.
    pub max_lifetime: Duration,
    /// Labels.
    pub labels: MachineLabels,
}

impl fmt::Debug for MachineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineSpec")
            .field("name", &self.name)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

impl MachineLabels {
    /// Returns the labels of a job's machine.
    pub fn for_job(job: &Job, instance: &str, now: Timestamp) -> Self {
        Self {
            instance: instance.to_owned(),
            job: job.id.clone(),
            issue: Some(job.issue.key.clone()),
            team: Some(job.team.clone()),
            repo: Some(job.repo.clone()),
            expires_at: Some(now + job.timeout()),
        }
    }
}

/// Variable with the names of the variables that the run passes on to the repository's programs,
/// separated by commas.
pub const SESSION_VARIABLES: &str = "SESSION_VARIABLES";

/// Variable with the names of those variables whose values must be redacted, separated by commas.
pub const SESSION_SECRETS: &str = "SESSION_SECRETS";

/// Variable with the end of the time budget, as a timestamp. Hosts set it whose machines may start long after their
/// dispatch, from which the service counts the budget.
pub const SESSION_ENDS_AT: &str = "SESSION_ENDS_AT";

/// Returns the environment of a session. Variables of the service override secrets, and secrets
/// override variables of the mapping. The names of the variables that are not the service's own are
/// listed, so that the run knows which to pass on.
pub fn session_environment(own: EnvVarMap, extra_env: &EnvVarMap, secrets: EnvVarMap) -> EnvVarMap {
    let foreign_names = |variables: &EnvVarMap| {
        let names = variables.keys().filter(|name| !own.contains_key(*name));
        names.cloned().collect::<Vec<_>>().join(",")
    };
    let secret_names = foreign_names(&secrets);
    let mut all = extra_env.clone();
    all.extend(secrets);
    let names = foreign_names(&all);
    all.extend(own);
    all.insert(SESSION_VARIABLES.to_owned(), names);
    all.insert(SESSION_SECRETS.to_owned(), secret_names);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_labels() -> MachineLabels {
        MachineLabels {
            instance: "i1".into(),
            job: JobId::from("01JABC"),
            issue: Some("ENG-1".into()),
            team: Some("ENG".into()),
            repo: Some(Repo::new("acme", "shop")),
            expires_at: Some(Timestamp::from_millis(1_000)),
        }
    }

    #[test]
    fn parses_labels_of_its_own_instance_only() {
        let pairs = sample_labels().to_map();
        assert_eq!(MachineLabels::read(&pairs, "i1"), Some(sample_labels()));
        assert_eq!(MachineLabels::read(&pairs, "i2"), None);
        assert_eq!(MachineLabels::read(&EnvVarMap::new(), "i1"), None);
        for name in [MachineLabels::PURPOSE.0, LABEL_INSTANCE, LABEL_DISPATCH] {
            let mut incomplete = pairs.clone();
            incomplete.remove(name);
            assert_eq!(MachineLabels::read(&incomplete, "i1"), None, "{name}");
        }
    }

    #[test]
    fn own_variables_override_secrets_and_secrets_override_extra() {
        let set = |pairs: &[(&str, &str)]| -> EnvVarMap {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let all = session_environment(
            set(&[("RUN_CONFIG", "own")]),
            &set(&[("RUN_CONFIG", "extra"), ("NPM_TOKEN", "extra"), ("A", "a")]),
            set(&[("RUN_CONFIG", "secret"), ("NPM_TOKEN", "secret")]),
        );
        let expected = [
            ("A", "a"),
            ("NPM_TOKEN", "secret"),
            ("RUN_CONFIG", "own"),
            (SESSION_SECRETS, "NPM_TOKEN"),
            (SESSION_VARIABLES, "A,NPM_TOKEN"),
        ];
        assert_eq!(all, set(&expected));
    }

    #[test]
    fn rounds_memory_up_to_steps() {
        for (requested, rounded) in [(256, 256), (257, 512), (4_096, 4_096), (4_100, 4_352)] {
            assert_eq!(round_up_memory(requested), rounded);
        }
    }

    #[test]
    fn unknown_states_count_as_running() {
        let rows = [
            ("created", MachinePhase::Starting),
            ("starting", MachinePhase::Starting),
            ("started", MachinePhase::Running),
            ("running", MachinePhase::Running),
            ("stopping", MachinePhase::Running),
            ("stopped", MachinePhase::Stopped),
            ("failed", MachinePhase::Stopped),
            ("destroyed", MachinePhase::Destroying),
            ("hibernating", MachinePhase::Running),
        ];
        for (state, phase) in rows {
            assert_eq!(MachineState::new(state).phase(), phase, "{state}");
        }
    }

    #[test]
    fn names_the_conclusion_of_an_exit() {
        let exit = |code, out_of_memory| MachineExit {
            code,
            out_of_memory,
        };
        let rows = [
            (exit(Some(0), false), "success"),
            (exit(Some(1), false), "exit code 1"),
            (exit(Some(137), true), "out of memory"),
            (exit(None, false), "no exit code"),
        ];
        for (exit, conclusion) in rows {
            assert_eq!(exit.conclusion(), conclusion);
        }
    }

    #[test]
    fn machine_names_are_lower_case() {
        assert_eq!(machine_name(&JobId::from("01JABC")), "agent-01jabc");
    }
}

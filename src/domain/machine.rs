//! The machine or container that a session runs in, as its host knows it.
//!
//! A machine is ours when it carries our instance's stamp, and only then: others share the host, and
//! are neither counted nor touched.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ids::{IssueKey, JobId, Repo, TeamKey};
use super::job::{Job, RunHandle, RunnerKind};
use super::machine_size::round_up_memory;
use super::mapping::{Mapping, SessionMode};
use super::time::Timestamp;

/// What a machine is for; the stamp that tells it from others of ours, should there ever be any.
const PURPOSE: &str = "session";

/// Names of the stamps. Both kinds of hosts take letters and underscores.
const STAMP_PURPOSE: &str = "agent_implement_purpose";
const STAMP_INSTANCE: &str = "agent_implement_instance";
const STAMP_DISPATCH: &str = "agent_implement_dispatch";
const STAMP_ISSUE: &str = "agent_implement_issue";
const STAMP_TEAM: &str = "agent_implement_team";
const STAMP_REPO: &str = "agent_implement_repo";
const STAMP_EXPIRES: &str = "agent_implement_expires";

/// Environment variables, by name.
pub type EnvVarMap = BTreeMap<String, String>;

/// Where machines stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostKind {
    Vm,
    Local,
}

impl HostKind {
    pub fn as_str(self) -> &'static str {
        match self {
            HostKind::Vm => "vm",
            HostKind::Local => "local",
        }
    }
}

impl RunnerKind {
    /// The host whose machines it runs in; none for CI.
    pub fn host(self) -> Option<HostKind> {
        match self {
            RunnerKind::Ci => None,
            RunnerKind::Vm => Some(HostKind::Vm),
            RunnerKind::Local => Some(HostKind::Local),
        }
    }
}

/// Which machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineRef {
    pub host: HostKind,
    pub id: String,
}

impl fmt::Display for MachineRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.host.as_str(), self.id)
    }
}

impl RunHandle {
    /// The machine that the run is in; none for CI.
    pub fn machine(&self) -> Option<MachineRef> {
        let (host, id) = match self {
            RunHandle::Ci { .. } => return None,
            RunHandle::Machine { id, .. } => (HostKind::Vm, id),
            RunHandle::Container { id } => (HostKind::Local, id),
        };
        let id = id.clone();
        Some(MachineRef { host, id })
    }
}

/// A machine as its host describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub host: HostKind,
    pub id: String,
    pub name: String,
    pub state: MachineState,
    /// How its program ended; known of a machine that is over, once it has been inspected.
    pub exit: Option<MachineExit>,
    pub region: Option<String>,
    /// Where people read its log, when its host has a page for it.
    pub log_url: Option<String>,
    pub created_at: Timestamp,
    pub labels: MachineLabels,
}

impl Machine {
    pub fn reference(&self) -> MachineRef {
        MachineRef {
            host: self.host,
            id: self.id.clone(),
        }
    }

    /// How a job keeps hold of it.
    pub fn run_handle(&self) -> RunHandle {
        let id = self.id.clone();
        match self.host {
            HostKind::Vm => RunHandle::Machine {
                id,
                log_url: self.log_url.clone(),
            },
            HostKind::Local => RunHandle::Container { id },
        }
    }
}

/// What a machine is doing, in the host's own word. (spec: *Other state rules*)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineState(String);

/// What a machine's state means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachinePhase {
    /// It exists and its program is not at work yet.
    Starting,
    Running,
    /// Its program has ended, or will never start.
    Stopped,
    /// It is being taken down, or is no more.
    Destroying,
}

impl MachineState {
    pub fn new(word: impl Into<String>) -> Self {
        Self(word.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A word that we do not know counts as being at work: nothing is concluded from it, and the
    /// time budget holds all the same.
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

/// How a machine's program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineExit {
    /// None when the host does not say.
    pub code: Option<i32>,
    /// Whether it was killed for using more memory than it had.
    pub out_of_memory: bool,
}

impl MachineExit {
    /// In the words of a conclusion: `success`, or what it was instead.
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

/// What we write on a machine to know it again: whose it is and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineLabels {
    /// The service that made it.
    pub instance: String,
    /// The dispatch that it was made for.
    pub job: JobId,
    pub issue: Option<IssueKey>,
    pub team: Option<TeamKey>,
    pub repo: Option<Repo>,
    /// When its time is used up.
    pub expires_at: Option<Timestamp>,
}

impl MachineLabels {
    /// As metadata or labels. Nothing secret is among them: whoever sees the machine sees these.
    pub fn to_map(&self) -> EnvVarMap {
        let text = |value: Option<&dyn fmt::Display>| value.map(ToString::to_string);
        [
            (STAMP_PURPOSE, Some(PURPOSE.to_owned())),
            (STAMP_INSTANCE, Some(self.instance.clone())),
            (STAMP_DISPATCH, Some(self.job.to_string())),
            (STAMP_ISSUE, text(self.issue.as_ref().map(|key| key as _))),
            (STAMP_TEAM, text(self.team.as_ref().map(|team| team as _))),
            (STAMP_REPO, text(self.repo.as_ref().map(|repo| repo as _))),
            (
                STAMP_EXPIRES,
                text(self.expires_at.as_ref().map(|at| at as _)),
            ),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
    }

    /// Reads them back; none unless it is a session of this instance.
    pub fn read(pairs: &EnvVarMap, instance: &str) -> Option<Self> {
        let given = |name: &str| pairs.get(name).filter(|text| !text.is_empty());
        let ours = given(STAMP_INSTANCE)? == instance && given(STAMP_PURPOSE)? == PURPOSE;
        ours.then_some(())?;
        Some(Self {
            instance: instance.to_owned(),
            job: JobId::new(given(STAMP_DISPATCH)?),
            issue: given(STAMP_ISSUE).map(IssueKey::new),
            team: given(STAMP_TEAM).map(TeamKey::new),
            repo: given(STAMP_REPO).and_then(|repo| Repo::parse(repo)),
            expires_at: given(STAMP_EXPIRES).and_then(|at| Timestamp::parse(at)),
        })
    }

    /// The label by which a host that can filter finds all sessions of an instance.
    pub fn instance_selector(instance: &str) -> String {
        format!("{STAMP_INSTANCE}={instance}")
    }
}

/// The name of a job's machine. Names are unique at a host, so it keeps a second one from being
/// made; hosts take lower-case letters, digits and dashes.
pub fn machine_name(job: &JobId) -> String {
    format!("agent-{}", job.as_str().to_ascii_lowercase())
}

/// What a session is given beside its run, by the mapping as it was when it was dispatched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSpec {
    pub mode: SessionMode,
    pub cpus: u32,
    pub memory_mb: u32,
    pub extra_env: EnvVarMap,
}

impl SessionSpec {
    pub fn from_mapping(mapping: &Mapping) -> Self {
        Self {
            mode: mapping.session_mode,
            cpus: mapping.machine_cpus,
            memory_mb: round_up_memory(mapping.machine_memory_mb),
            extra_env: mapping.extra_env.clone(),
        }
    }
}

/// A machine to be made.
#[derive(Clone, PartialEq, Eq)]
pub struct MachineSpec {
    pub name: String,
    pub image: String,
    pub cpus: u32,
    pub memory_mb: u32,
    /// Secrets among them; they leave for the host and nowhere else.
    pub environment: EnvVarMap,
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
    /// Those of a job's machine.
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

/// Names the variables that the run passes on to the programs of its repository, separated by commas.
pub const SESSION_VARIABLES: &str = "SESSION_VARIABLES";

/// Names those of them whose values must not be seen.
pub const SESSION_SECRETS: &str = "SESSION_SECRETS";

/// The environment of a session: what we set beats secrets, and secrets beat what the mapping adds.
/// What is not ours is named, for the run to know what it may pass on.
pub fn session_environment(
    ours: EnvVarMap,
    extra_env: &EnvVarMap,
    secrets: EnvVarMap,
) -> EnvVarMap {
    let not_ours = |variables: &EnvVarMap| {
        let names = variables.keys().filter(|name| !ours.contains_key(*name));
        names.cloned().collect::<Vec<_>>().join(",")
    };
    let secret_names = not_ours(&secrets);
    let mut all = extra_env.clone();
    all.extend(secrets);
    let names = not_ours(&all);
    all.extend(ours);
    all.insert(SESSION_VARIABLES.to_owned(), names);
    all.insert(SESSION_SECRETS.to_owned(), secret_names);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps() -> MachineLabels {
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
    fn stamps_come_back_as_they_were_and_only_to_their_instance() {
        let pairs = stamps().to_map();
        assert_eq!(MachineLabels::read(&pairs, "i1"), Some(stamps()));
        assert_eq!(MachineLabels::read(&pairs, "i2"), None);
        assert_eq!(MachineLabels::read(&EnvVarMap::new(), "i1"), None);
        for name in [STAMP_PURPOSE, STAMP_INSTANCE, STAMP_DISPATCH] {
            let mut less = pairs.clone();
            less.remove(name);
            assert_eq!(MachineLabels::read(&less, "i1"), None, "{name}");
        }
    }

    #[test]
    fn ours_beats_secrets_and_secrets_beat_extra() {
        let set = |pairs: &[(&str, &str)]| -> EnvVarMap {
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let all = session_environment(
            set(&[("RUN_CONFIG", "ours")]),
            &set(&[("RUN_CONFIG", "extra"), ("NPM_TOKEN", "extra"), ("A", "a")]),
            set(&[("RUN_CONFIG", "secret"), ("NPM_TOKEN", "secret")]),
        );
        let expected = [
            ("A", "a"),
            ("NPM_TOKEN", "secret"),
            ("RUN_CONFIG", "ours"),
            (SESSION_SECRETS, "NPM_TOKEN"),
            (SESSION_VARIABLES, "A,NPM_TOKEN"),
        ];
        assert_eq!(all, set(&expected));
    }

    #[test]
    fn memory_is_rounded_up_to_whole_steps() {
        for (asked, given) in [(256, 256), (257, 512), (4_096, 4_096), (4_100, 4_352)] {
            assert_eq!(round_up_memory(asked), given);
        }
    }

    #[test]
    fn states_are_read_and_strange_ones_conclude_nothing() {
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
        for (word, stage) in rows {
            assert_eq!(MachineState::new(word).phase(), stage, "{word}");
        }
    }

    #[test]
    fn an_exit_is_told_by_what_ended_it() {
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
        for (exit, told) in rows {
            assert_eq!(exit.conclusion(), told);
        }
    }

    #[test]
    fn a_name_is_one_that_hosts_take() {
        assert_eq!(machine_name(&JobId::from("01JABC")), "agent-01jabc");
    }
}

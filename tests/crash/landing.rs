//! Tickets of the crash tests whose pull requests are brought to their merge: failing checks are repaired, branches
//! follow their base, people push, approve and take over, and the policy of the project merges.

use domain::issue::System;
use domain::job::JobKind;
use fake_vendors::scripted_agent::{Script, ScriptStep};

use crate::crash_env::CrashEnv;

/// Repository whose pull requests are checked and merged with one commit.
pub const LANDING: &str = "landing";

/// Repository whose rules want branches that are up to date. Pull requests are merged with a merge commit, and their
/// branches deleted.
pub const UP_TO_DATE: &str = "up-to-date";

/// Repository whose rules want a second approval. GitHub merges by itself once it is there.
pub const PROTECTED: &str = "protected";

pub const LANDING_REPOS: [&str; 3] = [LANDING, UP_TO_DATE, PROTECTED];

/// File name of the workflow that checks pull requests.
pub const CI: &str = "ci.yml";

/// Ticket whose pull request needs more than its first run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Landing {
    /// A run repairs its failing check.
    Repaired,
    /// The first run for its failing check leaves another failure, which the second repairs.
    RepairedTwice,
    /// Its check fails, and passes when it runs again.
    Flaky,
    /// The run for its failing check leaves the same failure. A person is needed.
    SameFailure,
    /// A run resolves the conflict with its base.
    Conflicted,
    /// The host updates its branch from its base.
    Behind,
    /// A person pushes while a run repairs its failing check.
    PushedMeanwhile,
    /// An operator takes it over, a person makes its check fail, and it is given back.
    TakenOver,
    /// It is armed, disarmed by a push of a person, and armed again.
    Armed,
}

pub const LANDINGS: [Landing; 9] = [
    Landing::Repaired,
    Landing::RepairedTwice,
    Landing::Flaky,
    Landing::SameFailure,
    Landing::Conflicted,
    Landing::Behind,
    Landing::PushedMeanwhile,
    Landing::TakenOver,
    Landing::Armed,
];

/// What a person or an operator does about a pull request before its approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Merges another pull request into the base branch.
    MoveBase,
    /// Pushes to the branch while a run works on it.
    PushDuringRun,
    TakeOver,
    /// Approves a pull request that is taken over.
    ApproveTaken,
    /// Pushes a change whose check fails.
    PushFailure,
    /// Gives the ticket back once the check has failed.
    GiveBack,
    /// Approves the head, and waits until the service has armed it.
    ApproveToArm,
    /// Pushes to the branch of an armed pull request.
    PushToArmed,
    /// Gives the second approval.
    ApproveAsSecond,
}

/// Lines by which the check of a pull request fails, and which its log shows.
const FIRST_FAILURE: &str = "red: the first failure";
const SECOND_FAILURE: &str = "red: the second failure";
const FAILURE_BY_HAND: &str = "red: a failure by hand";

impl Landing {
    pub fn repo(self) -> &'static str {
        match self {
            Self::Behind => UP_TO_DATE,
            Self::Armed => PROTECTED,
            _ => LANDING,
        }
    }

    /// Team, project or repository of its ticket.
    pub fn team(self, system: System) -> &'static str {
        match (self, system) {
            (_, System::GitHub) => self.repo(),
            (Self::Behind, System::Linear) => "BEHIND",
            (Self::Behind, System::Jira) => "LAG",
            (Self::Armed, System::Linear) => "ARM",
            (Self::Armed, System::Jira) => "HOLD",
            (_, System::Linear) => "LAND",
            (_, System::Jira) => "PORT",
        }
    }

    /// What people do before they approve.
    pub fn acts(self) -> &'static [Act] {
        match self {
            Self::Conflicted | Self::Behind => &[Act::MoveBase],
            Self::PushedMeanwhile => &[Act::PushDuringRun],
            Self::TakenOver => &[
                Act::TakeOver,
                Act::ApproveTaken,
                Act::PushFailure,
                Act::GiveBack,
            ],
            Self::Armed => &[
                Act::ApproveToArm,
                Act::PushToArmed,
                Act::ApproveToArm,
                Act::ApproveAsSecond,
            ],
            Self::Repaired | Self::RepairedTwice | Self::Flaky | Self::SameFailure => &[],
        }
    }

    /// Whether it is merged at the end.
    pub fn is_merged(self) -> bool {
        self != Self::SameFailure
    }

    /// Script of its runs.
    pub fn script(self, env: &CrashEnv, key: &str) -> Script {
        let path = changed_file(key);
        let write = |text: &str| {
            let write = ScriptStep::write(&path, &format!("{text}\n"));
            [write, ScriptStep::message("Done.")]
        };
        let begin = |text| Script::new().pass(write(text));
        let repair =
            |script: Script, failure, text| script.pass_if_prompt_contains(failure, write(text));
        match self {
            Self::Repaired => repair(begin(FIRST_FAILURE), FIRST_FAILURE, "repaired"),
            Self::RepairedTwice => {
                let first = repair(begin(FIRST_FAILURE), FIRST_FAILURE, SECOND_FAILURE);
                repair(first, SECOND_FAILURE, "repaired")
            }
            Self::SameFailure => {
                let same = format!("{FIRST_FAILURE}\nnot repaired");
                repair(begin(FIRST_FAILURE), FIRST_FAILURE, &same)
            }
            Self::Flaky | Self::Behind | Self::Armed => begin("done"),
            Self::Conflicted => begin("ours").pass_if_prompt_contains(
                "Files in conflict.",
                [
                    ScriptStep::keep_both_sides(&path),
                    ScriptStep::message("I kept both sides."),
                ],
            ),
            Self::PushedMeanwhile => {
                let [write, message] = write("repaired");
                let steps = [ScriptStep::wait_for_file(env.gate(key)), write, message];
                begin(FIRST_FAILURE).pass_if_prompt_contains(FIRST_FAILURE, steps)
            }
            Self::TakenOver => repair(begin("done"), FAILURE_BY_HAND, "repaired"),
        }
    }

    /// Expected jobs in order, and whether each succeeds.
    pub fn expected_jobs(self) -> Vec<(JobKind, bool)> {
        let later: &[(JobKind, bool)] = match self {
            Self::Flaky | Self::Behind | Self::Armed => &[],
            Self::Repaired | Self::SameFailure | Self::TakenOver => &[(JobKind::CiFix, true)],
            Self::RepairedTwice => &[(JobKind::CiFix, true), (JobKind::CiFix, true)],
            Self::Conflicted => &[(JobKind::Conflict, true)],
            Self::PushedMeanwhile => &[(JobKind::CiFix, false)],
        };
        [&[(JobKind::Implementation, true)], later].concat()
    }

    /// Number of heads whose failed job ran again.
    pub fn expected_reruns(self) -> usize {
        match self {
            Self::Conflicted | Self::Behind | Self::Armed => 0,
            Self::Repaired | Self::Flaky | Self::PushedMeanwhile | Self::TakenOver => 1,
            Self::RepairedTwice | Self::SameFailure => 2,
        }
    }

    /// Beginning of the last comment on the ticket.
    pub fn last_comment(self) -> &'static str {
        match self {
            Self::SameFailure => "CI is red: test, stopped after the same failure came back",
            Self::Behind => "Merged by policy (merge): approved by @mia for ",
            _ => "Merged by policy (squash): approved by @mia for ",
        }
    }

    /// Text of the file on the base branch once it is merged, if the text says who has changed it.
    pub fn merged_text(self) -> Option<&'static str> {
        match self {
            Self::Conflicted => Some("ours\ntheirs\n"),
            Self::PushedMeanwhile | Self::Armed => Some("changed by hand\n"),
            _ => None,
        }
    }
}

/// Path of the file that the pull request of a ticket changes.
pub fn changed_file(key: &str) -> String {
    format!("changes/{}.txt", key.replace('#', "-"))
}

/// Change of the ticket's file, or of another one, that a person makes.
pub fn change_by_hand(key: &str, act: Act, landing: Landing) -> (String, String) {
    let path = changed_file(key);
    match (act, landing) {
        (Act::PushFailure, _) => (path, format!("{FAILURE_BY_HAND}\n")),
        (Act::MoveBase, Landing::Conflicted) => (path, "theirs\n".to_owned()),
        (Act::MoveBase, _) => (format!("{path}.base"), "moved\n".to_owned()),
        _ => (path, "changed by hand\n".to_owned()),
    }
}

/// Workflow with one check. It fails while a changed file says so, and the first time for each head of a flaky ticket.
pub fn ci_workflow(env: &CrashEnv) -> String {
    let flakes = env.flakes_dir();
    let flakes = flakes.display();
    format!(
        r#"name: CI
on: [pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: |
          if grep -rh '^red' changes; then exit 1; fi
          case "$GITHUB_REF_NAME" in
            *flaky*) if mkdir "{flakes}/$GITHUB_SHA"; then exit 1; fi ;;
          esac
"#
    )
}

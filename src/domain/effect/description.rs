//! Effects in words, and the vendors that they need.

use super::{DraftState, Effect, PullCommentStyle};
use crate::ids::Repo;
use crate::issue::System;
use crate::job::{RunHandle, RunnerKind};
use crate::machine::HostKind;
use crate::vendor::Vendor;

impl Effect {
    /// Returns what the effect does, for operators. It follows the key of the issue.
    pub fn description(&self) -> String {
        match self {
            Effect::StartRun { spec, .. } => match spec.pr_number {
                Some(number) => format!("start run on pull request #{number}"),
                None => "start run".to_owned(),
            },
            Effect::StopRun { .. } => "cancel run".to_owned(),
            Effect::DestroyMachine { machine, .. } => match machine.host {
                HostKind::Vm => "delete machine".to_owned(),
                HostKind::Local => "delete container".to_owned(),
                HostKind::Kubernetes => "delete Kubernetes Job".to_owned(),
            },
            Effect::SetMarker { issue, .. } => match issue.system {
                System::Linear | System::GitHub => "update status label".to_owned(),
                System::Jira => "update status field".to_owned(),
            },
            Effect::TicketComment { .. } => "post comment".to_owned(),
            Effect::WaitingComment { body, .. } => match body {
                Some(_) => "post comment about the wait".to_owned(),
                None => "delete comment about the wait".to_owned(),
            },
            Effect::LogExcerpt { .. } => "post end of the log".to_owned(),
            Effect::PullComment { number, style, .. } => match style {
                PullCommentStyle::New => format!("post comment on pull request #{number}"),
                PullCommentStyle::Sticky { .. } => {
                    format!("update comment on pull request #{number}")
                }
            },
            Effect::SetDraft { number, draft, .. } => match draft {
                DraftState::Draft => format!("mark pull request #{number} as draft"),
                DraftState::Ready => format!("mark pull request #{number} as ready for review"),
            },
            Effect::UpdateBranch { number, .. } => {
                format!("update branch of pull request #{number}")
            }
            Effect::MergePull { number, .. } => format!("merge pull request #{number}"),
            Effect::DisarmMerge { number, .. } => {
                format!("stop merge of pull request #{number}")
            }
            Effect::DeleteBranch { number, .. } => {
                format!("delete branch of pull request #{number}")
            }
            Effect::RerunFailedJobs { number, .. } => {
                format!("run failed jobs of pull request #{number} again")
            }
            Effect::Chat { .. } => "post chat message".to_owned(),
            Effect::SyncWorkflows { repo, .. } => format!("update workflow files of {repo}"),
        }
    }

    /// Returns the repository that the effect changes or reads, if the effect names it.
    pub fn repo(&self) -> Option<&Repo> {
        match self {
            Effect::StopRun { repo, .. }
            | Effect::LogExcerpt { repo, .. }
            | Effect::PullComment { repo, .. }
            | Effect::SetDraft { repo, .. }
            | Effect::UpdateBranch { repo, .. }
            | Effect::MergePull { repo, .. }
            | Effect::DisarmMerge { repo, .. }
            | Effect::DeleteBranch { repo, .. }
            | Effect::RerunFailedJobs { repo, .. }
            | Effect::SyncWorkflows { repo, .. } => Some(repo),
            Effect::StartRun { .. }
            | Effect::DestroyMachine { .. }
            | Effect::SetMarker { .. }
            | Effect::TicketComment { .. }
            | Effect::WaitingComment { .. }
            | Effect::Chat { .. } => None,
        }
    }

    /// Returns the vendors without which the effect cannot be performed, the first request first. `runner` is
    /// the runner of the effect's job, if it has one.
    pub fn vendors(&self, runner: Option<RunnerKind>) -> Vec<Vendor> {
        let host_of = |run: &RunHandle| match run {
            RunHandle::Ci { .. } => Vendor::GitHub,
            RunHandle::Machine { .. } => Vendor::FlyMachines,
            RunHandle::Container { .. } => Vendor::ContainerEngine,
            RunHandle::KubernetesJob { .. } => Vendor::Kubernetes,
        };
        match self {
            Effect::StartRun { .. } | Effect::StopRun { run: None, .. } => {
                vec![runner.map_or(Vendor::GitHub, Vendor::from)]
            }
            Effect::StopRun { run: Some(run), .. } => vec![host_of(run)],
            Effect::DestroyMachine { machine, .. } => vec![machine.host.into()],
            Effect::SetMarker { issue, .. }
            | Effect::TicketComment { issue, .. }
            | Effect::WaitingComment { issue, .. } => vec![issue.system.into()],
            Effect::LogExcerpt { issue, run, .. } => vec![host_of(run), issue.system.into()],
            Effect::PullComment { .. }
            | Effect::SetDraft { .. }
            | Effect::UpdateBranch { .. }
            | Effect::MergePull { .. }
            | Effect::DisarmMerge { .. }
            | Effect::DeleteBranch { .. }
            | Effect::RerunFailedJobs { .. }
            | Effect::SyncWorkflows { .. } => vec![Vendor::GitHub],
            Effect::Chat { .. } => vec![Vendor::Chat],
        }
    }
}

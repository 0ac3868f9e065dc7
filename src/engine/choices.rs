//! Lists to choose from in forms: teams, repositories and branches, read at the vendors.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use domain::ids::{Repo, TeamKey};
use domain::issue::System;
use domain::stage::ALL_LABELS;
use domain::vendor::Vendor;
use vendors::http::{Redactor, VendorError, VendorErrorKind};
use vendors::ticketing::{TicketSource, TicketingClient};

/// Maximum number of items in a list.
const MAX_CHOICES: usize = 500;

/// Timeout of reading a list.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Value that an operator can choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Choice {
    /// Value of the field.
    pub value: String,
    /// Text to show.
    pub label: String,
    /// Remark about the value. Omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Choice {
    /// Creates a choice without a remark.
    pub fn new(value: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            label: label.into(),
            note: None,
        }
    }

    fn with_note(self, note: Option<&str>) -> Self {
        let note = note.map(str::to_owned);
        Self { note, ..self }
    }
}

/// Values that an operator can choose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChoiceList {
    /// The values.
    pub choices: Vec<Choice>,
    /// Sentence about why they could not be listed. `None` if they could.
    pub error: Option<String>,
    /// Remark about the list, for example that it is not complete. `None` if there is none.
    pub note: Option<String>,
}

impl ChoiceList {
    /// Creates an empty list with the reason for it.
    pub(crate) fn failed(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }

    fn of(choices: Vec<Choice>) -> Self {
        let is_full = choices.len() >= MAX_CHOICES;
        let note = is_full.then(|| format!("Only the first {MAX_CHOICES} are listed."));
        Self {
            choices,
            error: None,
            note,
        }
    }
}

/// List that a vendor has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VendorList {
    /// Teams of Linear, or projects of Jira.
    Teams(System),
    /// Labels that tickets of a team of Linear can have.
    Labels(TeamKey),
    /// Projects of a team of Linear.
    TeamProjects(TeamKey),
    /// Repositories that the credentials of GitHub can access.
    Repositories,
    /// Branches of a repository.
    Branches(Repo),
}

/// Returns a list of a vendor. It is read at most once in 30 seconds.
pub async fn vendor_list(app: &App, wanted: VendorList) -> ChoiceList {
    let (reader, list) = (app.clone(), wanted.clone());
    let read = move || {
        async move {
            match tokio::time::timeout(TIMEOUT, read(&reader, &list)).await {
                Ok(Ok(choices)) => ChoiceList::of(choices),
                Ok(Err(sentence)) => ChoiceList::failed(sentence),
                Err(_) => ChoiceList::failed(format!("{} did not answer in time.", list.vendor())),
            }
        }
        .boxed()
    };
    let now = app.core.now();
    app.live.form_lookups.list(wanted, now, read).await
}

impl VendorList {
    fn vendor(&self) -> Vendor {
        match self {
            Self::Teams(system) => (*system).into(),
            Self::Labels(_) | Self::TeamProjects(_) => Vendor::Linear,
            Self::Repositories | Self::Branches(_) => Vendor::GitHub,
        }
    }
}

/// Reads a list. The error is a sentence.
async fn read(app: &App, wanted: &VendorList) -> Result<Vec<Choice>, String> {
    let vendor = wanted.vendor();
    let sentence = |error| failure_sentence(vendor, &app.secrets.redactor, &error);
    let not_configured = || format!("{vendor} is not configured.");
    match wanted {
        VendorList::Teams(system) => {
            let teams = match app.vendors.account(*system) {
                Some(TicketingClient::Linear(linear)) => linear.teams(MAX_CHOICES).await,
                Some(TicketingClient::Jira(jira)) => jira.projects(MAX_CHOICES).await,
                // Tickets are the issues of the repository, which is chosen itself.
                Some(TicketingClient::GitHub(_)) => Ok(Vec::new()),
                None => return Err(not_configured()),
            };
            let choice = |team: TicketSource| Choice::new(team.key, team.name);
            Ok(teams.map_err(sentence)?.into_iter().map(choice).collect())
        }
        VendorList::Labels(team) | VendorList::TeamProjects(team) => {
            let Some(TicketingClient::Linear(linear)) = app.vendors.account(System::Linear) else {
                return Err(not_configured());
            };
            let names = match wanted {
                VendorList::Labels(_) => linear.label_names(team.as_str(), MAX_CHOICES).await,
                _ => linear.project_names(team.as_str(), MAX_CHOICES).await,
            };
            let names: BTreeSet<String> = names.map_err(sentence)?.into_iter().collect();
            let names = names
                .into_iter()
                .filter(|name| !ALL_LABELS.contains(&name.as_str()));
            Ok(names.map(|name| Choice::new(name.clone(), name)).collect())
        }
        VendorList::Repositories => {
            let github = app.vendors.github.as_ref().ok_or_else(not_configured)?;
            let found = github.repositories(MAX_CHOICES).await.map_err(sentence)?;
            let choices = found.into_iter().map(|repo| {
                let note = repo.archived.then_some("Archived: nothing can be pushed.");
                Choice::new(repo.full_name.clone(), repo.full_name).with_note(note)
            });
            Ok(choices.collect())
        }
        VendorList::Branches(repo) => {
            let github = app.vendors.github.as_ref().ok_or_else(not_configured)?;
            let invisible = |error: VendorError| match error.is_not_found() {
                true => format!(
                    "GitHub shows no repository {repo}. Check owner and name, and that the GitHub App is installed on it."
                ),
                false => sentence(error),
            };
            let default = github.default_branch(repo).await.map_err(invisible)?;
            let mut branches = github.branches(repo, MAX_CHOICES).await.map_err(sentence)?;
            branches.sort_by_key(|branch| *branch != default);
            let choices = branches.into_iter().map(|branch| {
                let note = (branch == default).then_some("Default branch of the repository.");
                Choice::new(branch.clone(), branch).with_note(note)
            });
            Ok(choices.collect())
        }
    }
}

/// Returns a sentence for operators about a failed request to a vendor.
pub(crate) fn failure_sentence(vendor: Vendor, redactor: &Redactor, error: &VendorError) -> String {
    let sentence = match &error.kind {
        VendorErrorKind::RateLimited { .. } => format!("{vendor} is rate limited."),
        VendorErrorKind::Timeout => format!("{vendor} did not answer in time."),
        VendorErrorKind::Connect(_) | VendorErrorKind::Transport(_) => {
            format!("{vendor} cannot be reached.")
        }
        VendorErrorKind::Decode(_) => format!("{vendor} gave an answer that cannot be read."),
        VendorErrorKind::Precondition(_) => error.sentence(vendor.name()),
        VendorErrorKind::Status {
            status: 401 | 403,
            message,
            ..
        } => format!("{vendor} rejected the credentials: {message}"),
        VendorErrorKind::Status {
            status, message, ..
        } => format!("{vendor} answered {status}: {message}"),
    };
    redactor.redact(&sentence).to_string()
}

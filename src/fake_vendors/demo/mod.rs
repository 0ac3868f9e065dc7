//! Demo data: a small repository and its tickets, the same every time, on Linear, Jira or GitHub.

mod greeter_repo;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::persistence::write_atomic;
use super::scripted_agent::Script;
use super::{FakeIssue, FakeRepo, FakeVendors};

/// Owner of the demo repository.
pub const DEMO_OWNER: &str = "demo";
/// Name of the demo repository.
pub const DEMO_REPO: &str = "greeter";

/// Name of the repository whose issues are planned first, if the tickets are issues of GitHub.
pub const DEMO_PLANNING_REPO: &str = "motto";

/// Team (Linear) or project (Jira) without planning.
pub const DEMO_TEAM: &str = "DEMO";
/// Team or project whose tickets are planned first.
pub const DEMO_PLANNING_TEAM: &str = "PLAN";

/// Key of a plain ticket.
pub const DEMO_PLAIN: &str = "DEMO-1";
/// Key of a ticket that waits for [`DEMO_PLAIN`].
pub const DEMO_BLOCKED: &str = "DEMO-2";
/// Key of a ticket whose change contains a secret.
pub const DEMO_SECRET_LEAK: &str = "DEMO-3";
/// Key of a ticket whose run asks a question.
pub const DEMO_QUESTION: &str = "DEMO-4";
/// Key of a ticket that is planned first, with a plan that the rule of its project approves.
pub const DEMO_PLANNED: &str = "PLAN-1";
/// Key of a ticket whose plan waits for an approval.
pub const DEMO_APPROVAL: &str = "PLAN-2";

/// Maximum number of files of a plan that needs no approval.
pub const DEMO_MAX_FILES: u32 = 3;
/// File whose change needs an approval.
pub const DEMO_FORBIDDEN: &str = "LICENSE";

/// Label that triggers a run.
const TRIGGER_LABEL: &str = "Agent-Implement";

/// Ticketing system of the demo's tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tracker {
    /// Linear.
    #[default]
    Linear,
    /// Jira Cloud.
    Jira,
    /// Issues of the demo repositories.
    #[value(name = "github")]
    GitHub,
}

impl Tracker {
    /// Returns the product name.
    pub fn name(self) -> &'static str {
        match self {
            Tracker::Linear => "Linear",
            Tracker::Jira => "Jira",
            Tracker::GitHub => "GitHub",
        }
    }

    /// Returns the key of the ticket with this key on Linear and Jira.
    pub fn key(self, key: &'static str) -> &'static str {
        match (self, key) {
            (Tracker::GitHub, DEMO_PLAIN) => "greeter#1",
            (Tracker::GitHub, DEMO_BLOCKED) => "greeter#2",
            (Tracker::GitHub, DEMO_SECRET_LEAK) => "greeter#3",
            (Tracker::GitHub, DEMO_QUESTION) => "greeter#4",
            (Tracker::GitHub, DEMO_PLANNED) => "motto#1",
            (Tracker::GitHub, DEMO_APPROVAL) => "motto#2",
            _ => key,
        }
    }
}

/// Returns the issue of GitHub with the key of a demo ticket.
pub fn demo_issue(vendors: &FakeVendors, key: &str) -> FakeIssue {
    let key = Tracker::GitHub.key(
        ALL_KEYS
            .into_iter()
            .find(|one| *one == key)
            .unwrap_or(DEMO_PLAIN),
    );
    let (repo, number) = key.split_once('#').unwrap_or((DEMO_REPO, "1"));
    let repo = vendors.github().repo(DEMO_OWNER, repo);
    repo.issue(number.parse().unwrap_or(1))
}

/// Keys of all demo tickets.
const ALL_KEYS: [&str; 6] = [
    DEMO_PLAIN,
    DEMO_BLOCKED,
    DEMO_SECRET_LEAK,
    DEMO_QUESTION,
    DEMO_PLANNED,
    DEMO_APPROVAL,
];

/// Demo ticket. Each one is triggered from the start.
pub struct DemoTicket {
    /// Ticket key.
    pub key: &'static str,
    /// Title.
    pub title: &'static str,
    /// Expected outcome, shown by the demo.
    pub expected_outcome: &'static str,
    text: &'static str,
    acceptance_criteria: &'static [&'static str],
    priority: Priority,
    blocked_by: Option<&'static str>,
    script: fn() -> Script,
}

enum Priority {
    High,
    Medium,
}

/// All demo tickets, in the order they are created.
pub const DEMO_TICKETS: [DemoTicket; 6] = [
    DemoTicket {
        key: DEMO_PLAIN,
        title: "Greet people by name",
        expected_outcome: "becomes a pull request",
        text: "`greet.sh` always greets the world. It should greet the people named as arguments, \
               one line each, and still greet the world when nobody is named.",
        acceptance_criteria: &[
            "`./greet.sh Ada Grace` prints two lines",
            "`./greet.sh` prints what it always did",
            "The README and the tests cover it",
        ],
        priority: Priority::High,
        blocked_by: None,
        script: greeter_repo::greet_by_name_script,
    },
    DemoTicket {
        key: DEMO_BLOCKED,
        title: "Say goodbye, too",
        expected_outcome: "waits, because DEMO-1 blocks it",
        text: "Add `farewell.sh`, which says goodbye the way `greet.sh` says hello.",
        acceptance_criteria: &[],
        priority: Priority::Medium,
        blocked_by: Some(DEMO_PLAIN),
        script: greeter_repo::goodbye_script,
    },
    DemoTicket {
        key: DEMO_SECRET_LEAK,
        title: "Publish the greeting",
        expected_outcome: "fails, because its change would push a secret",
        text: "Add `publish.sh`, which uploads today's greeting to the bucket that the website reads.",
        acceptance_criteria: &[],
        priority: Priority::Medium,
        blocked_by: None,
        script: greeter_repo::secret_leak_script,
    },
    DemoTicket {
        key: DEMO_QUESTION,
        title: "Greet as fits the hour",
        expected_outcome: "asks a question, and waits for the answer",
        text: "Add `daytime.sh`, which says good morning, good afternoon, or what fits the evening.",
        acceptance_criteria: &[],
        priority: Priority::Medium,
        blocked_by: None,
        script: greeter_repo::daytime_script,
    },
    DemoTicket {
        key: DEMO_PLANNED,
        title: "Print the motto of the day",
        expected_outcome: "is planned first, then becomes a pull request",
        text: "Add a small command that prints a motto: one for working days, one for the weekend.",
        acceptance_criteria: &[],
        priority: Priority::High,
        blocked_by: None,
        script: greeter_repo::daily_motto_script,
    },
    DemoTicket {
        key: DEMO_APPROVAL,
        title: "Add a license",
        expected_outcome: "is planned first, and its plan waits for approval",
        text: "People ask whether they may use the greeter. Add a license that lets them.",
        acceptance_criteria: &[],
        priority: Priority::Medium,
        blocked_by: None,
        script: greeter_repo::license_script,
    },
];

/// Creates the demo repository with these workflow files (path, content), and the demo's tickets.
/// Does nothing for parts that exist. Completes a demo that was interrupted or that an older version
/// created.
pub fn seed_demo(
    vendors: &FakeVendors,
    tracker: Tracker,
    workflows: &[(&str, &str)],
) -> anyhow::Result<FakeRepo> {
    let repo = vendors.github().repo(DEMO_OWNER, DEMO_REPO);
    seed_repo(&repo, workflows)?;
    if tracker == Tracker::GitHub {
        let planned = vendors.github().repo(DEMO_OWNER, DEMO_PLANNING_REPO);
        seed_repo(&planned, workflows)?;
    }
    for ticket in &DEMO_TICKETS {
        let marker = format!("demo-{}-is-on-{}", ticket.key, tracker.name());
        let marker = vendors.dir().join(marker);
        if !marker.exists() {
            let script = (ticket.script)().on_conflict(greeter_repo::keep_both_sides());
            script.save(&vendors.scripts_dir(), tracker.key(ticket.key))?;
            match tracker {
                Tracker::Linear => ticket.create_on_linear(vendors),
                Tracker::Jira => ticket.create_on_jira(vendors),
                Tracker::GitHub => ticket.create_on_github(vendors),
            }
            write_atomic(&marker, b"")?;
        }
    }
    Ok(repo)
}

/// Keys of the tickets whose pull requests are merged.
pub fn merged_tickets(vendors: &FakeVendors, tracker: Tracker) -> Vec<&'static str> {
    let pulls = vendors.github().repo(DEMO_OWNER, DEMO_REPO).pulls();
    let merged = pulls.iter().filter(|pull| pull.merged);
    let ticket = |branch: &str| {
        let mut tickets = DEMO_TICKETS.iter();
        tickets.find(|ticket| ticket.owns(tracker, branch))
    };
    merged
        .filter_map(|pull| Some(ticket(&pull.head)?.key))
        .collect()
}

/// Completes a ticket, as the ticketing systems do after a merge if they are connected to GitHub.
pub fn complete_ticket(vendors: &FakeVendors, tracker: Tracker, key: &str) {
    match tracker {
        Tracker::Linear => drop(vendors.linear().issue(key).complete()),
        Tracker::Jira => drop(vendors.jira().issue(key).complete()),
        Tracker::GitHub => drop(demo_issue(vendors, key).complete()),
    }
}

fn seed_repo(repo: &FakeRepo, workflows: &[(&str, &str)]) -> anyhow::Result<()> {
    if repo.branch_head("main").is_none() {
        repo.seed(
            &[&greeter_repo::SEED_FILES, workflows].concat(),
            "Greet the world",
        )?;
    }
    let is_missing = |(path, _): &&(&str, &str)| repo.read_file("main", path).is_none();
    let missing: Vec<(&str, &str)> = workflows.iter().filter(is_missing).copied().collect();
    if !missing.is_empty() {
        repo.commit("main", &missing, "Add workflows")?;
    }
    repo.set_collaborator_role("robin", "admin")
        .set_secret("ANTHROPIC_API_KEY", "sk-ant-sandbox-only");
    Ok(())
}

impl DemoTicket {
    /// Whether a branch is that of the ticket's runs: `agent-implement/demo-1-greet-people-by-name` of `DEMO-1`.
    fn owns(&self, tracker: Tracker, branch: &str) -> bool {
        let key = tracker.key(self.key).to_lowercase().replace('#', "-");
        branch.contains(&format!("/{key}-"))
    }

    /// Returns the text with the acceptance criteria as a list, in Markdown.
    fn markdown(&self) -> String {
        let criteria = self.acceptance_criteria.iter();
        let criteria: String = criteria
            .map(|criterion| format!("\n- [ ] {criterion}"))
            .collect();
        match criteria.as_str() {
            "" => self.text.to_owned(),
            criteria => format!("{}\n{criteria}", self.text),
        }
    }

    /// Creates the issue on GitHub. The trigger label comes last, when the issue is complete.
    fn create_on_github(&self, vendors: &FakeVendors) {
        let issue = demo_issue(vendors, self.key).title(self.title);
        let mut issue = issue.describe(&self.markdown());
        if let Some(blocker) = self.blocked_by {
            issue = issue.blocked_by_issue(&demo_issue(vendors, blocker));
        }
        issue.add_label(TRIGGER_LABEL);
    }

    /// Returns the key and the name of the ticket's team or project.
    fn team(&self) -> (&'static str, &'static str) {
        match self.key.rsplit_once('-') {
            Some((DEMO_PLANNING_TEAM, _)) => (DEMO_PLANNING_TEAM, "Demo, planned first"),
            _ => (DEMO_TEAM, "Demo"),
        }
    }

    /// Creates the ticket on Linear. The trigger label comes last, when the ticket is complete.
    fn create_on_linear(&self, vendors: &FakeVendors) {
        let (team, name) = self.team();
        let priority = match self.priority {
            Priority::High => 2,
            Priority::Medium => 3,
        };
        let tickets = vendors.linear().ensure_team(team, name);
        let mut ticket = tickets.issue(self.key).title(self.title);
        ticket = ticket.describe(&self.markdown()).priority(priority);
        if let Some(blocker) = self.blocked_by {
            ticket = ticket.blocked_by(blocker);
        }
        ticket.add_label(TRIGGER_LABEL);
    }

    fn create_on_jira(&self, vendors: &FakeVendors) {
        let (project, name) = self.team();
        let priority = match self.priority {
            Priority::High => "High",
            Priority::Medium => "Medium",
        };
        let tickets = vendors.jira().ensure_project(project, name);
        let mut ticket = tickets.issue(self.key).title(self.title);
        ticket = ticket
            .document(self.document())
            .priority(priority)
            .repo(DEMO_REPO);
        if let Some(blocker) = self.blocked_by {
            ticket = ticket.blocked_by(blocker);
        }
        ticket.status("Ready");
    }

    /// Returns the description as an Atlassian document.
    fn document(&self) -> Value {
        let mut content = vec![paragraph(self.text)];
        let item =
            |criterion: &&str| json!({"type": "listItem", "content": [paragraph(criterion)]});
        let items: Vec<Value> = self.acceptance_criteria.iter().map(item).collect();
        if !items.is_empty() {
            content.push(json!({"type": "bulletList", "content": items}));
        }
        json!({"type": "doc", "version": 1, "content": content})
    }
}

/// Returns a paragraph of an Atlassian document; text between backquotes becomes code.
fn paragraph(text: &str) -> Value {
    let runs = text
        .split('`')
        .enumerate()
        .filter(|(_, run)| !run.is_empty());
    let content: Vec<Value> = runs
        .map(|(at, run)| match at % 2 {
            0 => json!({"type": "text", "text": run}),
            _ => json!({"type": "text", "text": run, "marks": [{"type": "code"}]}),
        })
        .collect();
    json!({"type": "paragraph", "content": content})
}

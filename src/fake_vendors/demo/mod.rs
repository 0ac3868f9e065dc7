//! Seeds that a demo starts from: small, real, and the same every time, on either tracker.

mod greeter_repo;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::persistence::write_atomic;
use super::scripted_agent::Script;
use super::{FakeRepo, FakeVendors};

/// The repository that all of the demo's tickets are for.
pub const DEMO_OWNER: &str = "demo";
pub const DEMO_REPO: &str = "greeter";

/// The team, or project, whose tickets are implemented at once, and the one whose tickets are
/// planned first.
pub const DEMO_TEAM: &str = "DEMO";
pub const DEMO_PLANNING_TEAM: &str = "PLAN";

/// The tickets: one plain, one that waits for it, one whose change holds a secret, and one that is
/// planned first.
pub const DEMO_PLAIN: &str = "DEMO-1";
pub const DEMO_BLOCKED: &str = "DEMO-2";
pub const DEMO_SECRET_LEAK: &str = "DEMO-3";
pub const DEMO_PLANNED: &str = "PLAN-1";

/// The label that hands a ticket to the agent.
const TRIGGER: &str = "Agent-Implement";

/// Where a demo's tickets are filed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tracker {
    #[default]
    Linear,
    Jira,
}

impl Tracker {
    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Tracker::Linear => "Linear",
            Tracker::Jira => "Jira",
        }
    }
}

/// A ticket of the demo. All of them are flagged from the start.
pub struct DemoTicket {
    pub key: &'static str,
    pub title: &'static str,
    /// What it is there to show.
    pub expected_outcome: &'static str,
    text: &'static str,
    wishes: &'static [&'static str],
    priority: Priority,
    blocked_by: Option<&'static str>,
    script: fn() -> Script,
}

enum Priority {
    High,
    Medium,
}

/// The demo's tickets, in the order they are filed.
pub const DEMO_TICKETS: [DemoTicket; 4] = [
    DemoTicket {
        key: DEMO_PLAIN,
        title: "Greet people by name",
        expected_outcome: "becomes a pull request",
        text: "`greet.sh` always greets the world. It should greet the people named as arguments, \
               one line each, and still greet the world when nobody is named.",
        wishes: &[
            "`./greet.sh Ada Grace` prints two lines",
            "`./greet.sh` prints what it always did",
            "README and tests tell about it",
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
        wishes: &[],
        priority: Priority::Medium,
        blocked_by: Some(DEMO_PLAIN),
        script: greeter_repo::goodbye_script,
    },
    DemoTicket {
        key: DEMO_SECRET_LEAK,
        title: "Publish the greeting",
        expected_outcome: "fails, because its change would push a secret",
        text: "Add `publish.sh`, which uploads today's greeting to the bucket that the website reads.",
        wishes: &[],
        priority: Priority::Medium,
        blocked_by: None,
        script: greeter_repo::secret_leak_script,
    },
    DemoTicket {
        key: DEMO_PLANNED,
        title: "Print the motto of the day",
        expected_outcome: "is planned first, then becomes a pull request",
        text: "Add a small command that prints a motto: one for working days, one for the weekend.",
        wishes: &[],
        priority: Priority::High,
        blocked_by: None,
        script: greeter_repo::daily_motto_script,
    },
];

/// The repository `demo/greeter` with these workflow files (path, content), and the demo's tickets.
/// On a town that has them already it changes nothing; one that was killed half way is seeded again,
/// and one that an older version seeded gets what is new.
pub fn seed_demo(
    town: &FakeVendors,
    tracker: Tracker,
    workflows: &[(&str, &str)],
) -> anyhow::Result<FakeRepo> {
    let repo = town.github().repo(DEMO_OWNER, DEMO_REPO);
    seed(&repo, workflows)?;
    for ticket in &DEMO_TICKETS {
        let mark = format!("demo-{}-is-on-{}", ticket.key, tracker.name());
        let mark = town.dir().join(mark);
        if !mark.exists() {
            (ticket.script)().save(&town.scripts_dir(), ticket.key)?;
            match tracker {
                Tracker::Linear => ticket.file_on_linear(town),
                Tracker::Jira => ticket.file_on_jira(town),
            }
            write_atomic(&mark, b"")?;
        }
    }
    Ok(repo)
}

fn seed(repo: &FakeRepo, workflows: &[(&str, &str)]) -> anyhow::Result<()> {
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
    /// The key of its team or project, and that one's name.
    fn team(&self) -> (&'static str, &'static str) {
        match self.key.rsplit_once('-') {
            Some((DEMO_PLANNING_TEAM, _)) => (DEMO_PLANNING_TEAM, "Demo, planned first"),
            _ => (DEMO_TEAM, "Demo"),
        }
    }

    /// Flagged last of all: what is seen before is not meant yet.
    fn file_on_linear(&self, town: &FakeVendors) {
        let (team, name) = self.team();
        let wishes: String = self
            .wishes
            .iter()
            .map(|wish| format!("\n- [ ] {wish}"))
            .collect();
        let described = match wishes.as_str() {
            "" => self.text.to_owned(),
            wishes => format!("{}\n{wishes}", self.text),
        };
        let priority = match self.priority {
            Priority::High => 2,
            Priority::Medium => 3,
        };
        let tickets = town.linear().ensure_team(team, name);
        let mut ticket = tickets.issue(self.key).title(self.title);
        ticket = ticket.describe(&described).priority(priority);
        if let Some(blocker) = self.blocked_by {
            ticket = ticket.blocked_by(blocker);
        }
        ticket.add_label(TRIGGER);
    }

    fn file_on_jira(&self, town: &FakeVendors) {
        let (project, name) = self.team();
        let priority = match self.priority {
            Priority::High => "High",
            Priority::Medium => "Medium",
        };
        let tickets = town.jira().ensure_project(project, name);
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

    /// What it says, as rich text.
    fn document(&self) -> Value {
        let mut content = vec![paragraph(self.text)];
        let item = |wish: &&str| json!({"type": "listItem", "content": [paragraph(wish)]});
        let items: Vec<Value> = self.wishes.iter().map(item).collect();
        if !items.is_empty() {
            content.push(json!({"type": "bulletList", "content": items}));
        }
        json!({"type": "doc", "version": 1, "content": content})
    }
}

/// A paragraph of rich text; what stands between backquotes is code.
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

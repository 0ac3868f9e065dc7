//! Projects of the model: one merges at once, one lets GitHub merge, one has a merge queue.

use domain::collision::CollisionRule;
use domain::ids::Repo;
use domain::mapping::Mapping;
use domain::merge_policy::MergeMode;
use fake_vendors::{BranchProtection, FakeRepo};
use serde_json::json;
use store::mappings;

use super::event::ProjectChange;
use super::world::World;
use crate::test_env::{TestEnv, mapping_with};
use crate::webhooks::WEBHOOK_SECRET;

/// Number of projects.
pub const PROJECTS: usize = 3;

/// Number of places for tickets.
pub const SLOTS: usize = 8;

/// Number of files that plans declare and that base branches change.
pub const FILES: usize = 3;

/// Team, repository, way of merging.
const NAMES: [(&str, &str, MergeMode); PROJECTS] = [
    ("ENG", "shop", MergeMode::Auto),
    ("WEB", "web", MergeMode::Auto),
    ("OPS", "ops", MergeMode::Queue),
];

/// Workflow with one job that checks every push.
const CHECKS: &str = "name: CI
on: [push]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - run: \"true\"
";

/// Returns the project of a place.
pub fn project_of_slot(slot: usize) -> usize {
    match slot {
        0..4 => 0,
        4..6 => 1,
        _ => 2,
    }
}

pub fn team(project: usize) -> &'static str {
    NAMES[project].0
}

pub fn file_name(file: usize) -> String {
    format!("src/part-{file}.rs")
}

/// Returns the mappings before any change.
pub fn mappings() -> Vec<Mapping> {
    let fields = [
        json!({"merge": {"mode": "auto"}, "maxOpenPulls": 3, "deleteBranch": true}),
        json!({"merge": {"mode": "auto", "method": "merge"}, "maxAwaitingReview": 2}),
        json!({"merge": {"mode": "queue"}, "collisions": "allow"}),
    ];
    let mapped = NAMES.iter().zip(fields).map(|((team, repo, _), mut all)| {
        all["teamKey"] = json!(team);
        all["repo"] = json!(repo);
        all["maxInProgressAiIssues"] = json!(50);
        mapping_with(&all)
    });
    mapped.collect()
}

/// Creates the teams and repositories.
pub fn set_up(env: &TestEnv) {
    env.vendors.keep_in_memory();
    for (project, (team, name, _)) in NAMES.iter().enumerate() {
        env.vendors.linear().ensure_team(team, team);
        let repo = match project {
            0 => env.repo(),
            _ => env.seed_repo(name),
        };
        repo.set_collaborator_role("mia", "maintain")
            .set_collaborator_role("kim", "write")
            .set_collaborator_role("guest", "triage");
        let names: Vec<String> = (0..FILES).map(file_name).collect();
        let mut files: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), "1\n")).collect();
        // The repository with a merge queue has only checks of another App.
        if project < 2 {
            files.push((".github/workflows/ci.yml", CHECKS));
        }
        repo.commit("main", &files, "Add the parts").unwrap();
        repo.run_checks();
        repo.start_checking_runs();
    }
    let repo = |project: usize| env.vendors.github().repo("acme", NAMES[project].1);
    repo(1).require_up_to_date(true);
    repo(1).allow_auto_merge().protect(BranchProtection {
        required_reviews: 2,
        ..BranchProtection::default()
    });
    repo(2).protect(BranchProtection {
        has_merge_queue: true,
        ..BranchProtection::default()
    });
}

/// Registers the address of the service, which changes with each start.
pub fn register_webhooks(env: &TestEnv) {
    let url = format!("{}/api/repo-host/webhook", env.address);
    for (_, name, _) in NAMES {
        let repo = env.vendors.github().repo("acme", name);
        repo.set_webhook(&url, WEBHOOK_SECRET);
    }
}

impl World {
    pub fn repo(&self, project: usize) -> FakeRepo {
        let github = self.env().vendors.github();
        github.repo("acme", NAMES[project].1)
    }

    pub fn repo_id(&self, project: usize) -> Repo {
        self.mapping(project).target_repo()
    }

    pub fn mapping(&self, project: usize) -> Mapping {
        let team = NAMES[project].0.into();
        let mapping = self.env().store.read(|tx| mappings::get(tx, &team));
        mapping.unwrap().unwrap()
    }

    pub async fn change_project(&self, project: usize, change: ProjectChange) -> bool {
        let mut mapping = self.mapping(project);
        match change {
            ProjectChange::Merge(true) => mapping.merge.mode = NAMES[project].2,
            ProjectChange::Merge(false) => mapping.merge.mode = MergeMode::Never,
            ProjectChange::MaxOpen(limit) => mapping.max_open_pulls = limit,
            ProjectChange::MaxAwaiting(limit) => mapping.max_awaiting_review = limit,
            ProjectChange::AllowCollisions(true) => mapping.collisions = CollisionRule::Allow,
            ProjectChange::AllowCollisions(false) => mapping.collisions = CollisionRule::Wait,
            ProjectChange::Pause(paused) => mapping.paused = paused,
        }
        let write = { &self.env().store }.write(move |tx| mappings::put(tx, &mapping));
        write.await.unwrap();
        true
    }
}

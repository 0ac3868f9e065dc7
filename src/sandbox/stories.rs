//! Seeds that a demo starts from: small, real, and the same every time.

use super::scripted_agent::{Script, Step};
use super::state::replace;
use super::{Repo, Town};

/// The demo's team, and the repository it is to be mapped to.
pub const DEMO_TEAM: &str = "DEMO";
pub const DEMO_OWNER: &str = "demo";
pub const DEMO_REPO: &str = "greeter";

/// The team whose tickets are planned first, mapped to the same repository; its flagged ticket.
pub const DEMO_PLANNING_TEAM: &str = "PLAN";
pub const DEMO_PLANNED: &str = "PLAN-1";

/// The ticket that is plain and flagged, and the one that waits for it.
pub const DEMO_PLAIN: &str = "DEMO-1";
pub const DEMO_BLOCKED: &str = "DEMO-2";

/// The label that hands a ticket to the agent.
const TRIGGER: &str = "Agent-Implement";

const README: &str = "\
# greeter

A small command that greets.

    ./greet.sh

## Tests

    sh tests/run.sh
";

const GREET: &str = "\
#!/bin/sh
# Greets whoever is there.
echo \"Hello, world!\"
";

const TESTS: &str = "\
#!/bin/sh
# Runs every check; the first that fails ends the run.
set -eu
cd \"$(dirname \"$0\")/..\"

check() {
    expected=$1
    shift
    actual=$(\"$@\")
    if [ \"$actual\" != \"$expected\" ]; then
        echo \"FAIL: $*: expected '$expected', got '$actual'\" >&2
        exit 1
    fi
    echo \"ok: $*\"
}

check \"Hello, world!\" ./greet.sh
";

const GREET_BY_NAME: &str = "\
#!/bin/sh
# Greets the people named as arguments, or the world.
set -eu

if [ $# -eq 0 ]; then
    set -- world
fi
for name in \"$@\"; do
    echo \"Hello, $name!\"
done
";

const FAREWELL: &str = "\
#!/bin/sh
# Says goodbye to the people named as arguments, or to everybody.
set -eu

if [ $# -eq 0 ]; then
    set -- everybody
fi
for name in \"$@\"; do
    echo \"Goodbye, $name!\"
done
";

const MOTTO: &str = "\
#!/bin/sh
# Prints the motto of the day; a day of the week may be given, Monday is 1.
set -eu

day=${1:-$(date +%u)}
case $day in
    [1-5]) echo \"Small steps, every day.\" ;;
    [67]) echo \"Rest is work, too.\" ;;
    *)
        echo \"motto.sh: there is no day '$day'\" >&2
        exit 2
        ;;
esac
";

const MOTTO_PLAN_WHAT: &str = "\
## What is wanted

A command `motto.sh` beside `greet.sh` that prints one line fit for the day. Left out: a file of mottos that
people edit; nobody asked for it yet.

## How

A `case` on the day of the week, as `date +%u` gives it. A day may be given as the first argument, which is
also what makes it testable without touching the clock.
";

const MOTTO_PLAN_STEPS: &str = "\
## Steps

1. `motto.sh`: two mottos, and exit 2 with a message for a day that does not exist.
2. `tests/run.sh`: one check for a working day and one for the weekend, each with the day given.

## Open question

Should Friday have a motto of its own? Planned as an ordinary working day.
";

/// What `demo` seeded.
#[derive(Clone)]
pub struct Demo {
    pub repo: Repo,
    /// Plain and flagged.
    pub plain: &'static str,
    /// Flagged, and blocked by the plain one.
    pub blocked: &'static str,
    /// Flagged in the team that plans first.
    pub planned: &'static str,
}

/// Team `DEMO`, the repository `demo/greeter` with these workflow files (path, content), a flagged
/// ticket and one that waits for it; and team `PLAN` with a flagged ticket of its own. On a town that has them already it changes nothing; one that
/// was killed half way is seeded again.
pub fn demo(town: &Town, workflows: &[(&str, &str)]) -> anyhow::Result<Demo> {
    let repo = town.github().repo(DEMO_OWNER, DEMO_REPO);
    let demo = Demo {
        repo: repo.clone(),
        plain: DEMO_PLAIN,
        blocked: DEMO_BLOCKED,
        planned: DEMO_PLANNED,
    };
    once(town, "demo-is-seeded", || seed(town, &demo, workflows))?;
    // A mark of its own: a folder of the time before planning gets this half, and keeps the other.
    once(town, "demo-planning-is-seeded", || {
        seed_planning(town, &demo, workflows)
    })?;
    Ok(demo)
}

/// Seeds unless that was done to its end before.
fn once(town: &Town, mark: &str, seed: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mark = town.dir().join(mark);
    if !mark.exists() {
        seed()?;
        replace(&mark, b"")?;
    }
    Ok(())
}

fn seed(town: &Town, demo: &Demo, workflows: &[(&str, &str)]) -> anyhow::Result<()> {
    let repo = &demo.repo;
    let scripts = town.scripts();
    for (ticket, script) in [(demo.plain, greet_by_name()), (demo.blocked, say_goodbye())] {
        script.save(&scripts, ticket)?;
    }
    if repo.branch_head("main").is_none() {
        let project = [
            ("README.md", README),
            ("greet.sh", GREET),
            ("tests/run.sh", TESTS),
        ];
        let files = [&project[..], workflows].concat();
        repo.seed(&files, "Greet the world")?;
    }
    repo.collaborator("robin", "admin")
        .secret("ANTHROPIC_API_KEY", "sk-ant-sandbox-only");
    file_tickets(town, demo);
    Ok(())
}

fn seed_planning(town: &Town, demo: &Demo, workflows: &[(&str, &str)]) -> anyhow::Result<()> {
    motto_of_the_day().save(&town.scripts(), demo.planned)?;
    let missing: Vec<(&str, &str)> = workflows
        .iter()
        .filter(|(path, _)| demo.repo.file_at("main", path).is_none())
        .copied()
        .collect();
    if !missing.is_empty() {
        demo.repo.commit("main", &missing, "Add workflows")?;
    }
    let linear = town.linear();
    linear.team(DEMO_PLANNING_TEAM, "Demo, planned first");
    linear
        .issue(demo.planned)
        .title("Print the motto of the day")
        .describe(
            "Add a small command that prints a motto: one for working days, one for the weekend.",
        )
        .priority(2)
        .add_label(TRIGGER);
    Ok(())
}

fn file_tickets(town: &Town, demo: &Demo) {
    let linear = town.linear();
    linear.team(DEMO_TEAM, "Demo");
    linear
        .issue(demo.plain)
        .title("Greet people by name")
        .describe(
            "`greet.sh` always greets the world. It should greet the people named as arguments, \
             one line each, and still greet the world when nobody is named.\n\n\
             - [ ] `./greet.sh Ada Grace` prints two lines\n\
             - [ ] `./greet.sh` prints what it always did\n\
             - [ ] README and tests tell about it",
        )
        .priority(2)
        .add_label(TRIGGER);
    linear
        .issue(demo.blocked)
        .title("Say goodbye, too")
        .describe("Add `farewell.sh`, which says goodbye the way `greet.sh` says hello.")
        .priority(3)
        .blocked_by(demo.plain)
        .add_label(TRIGGER);
}

fn greet_by_name() -> Script {
    Script::new().pass([
        Step::say("I'll look at how the greeting is made and tested."),
        Step::read("greet.sh"),
        Step::read("tests/run.sh"),
        Step::write("greet.sh", GREET_BY_NAME),
        Step::append(
            "tests/run.sh",
            "check \"Hello, Ada!\" ./greet.sh Ada\n\
             check \"Hello, Ada!\nHello, Grace!\" ./greet.sh Ada Grace\n",
        ),
        Step::append(
            "README.md",
            "\n## Names\n\nName the people to greet:\n\n    ./greet.sh Ada Grace\n",
        ),
        Step::say("Now the tests."),
        Step::run("sh tests/run.sh"),
        Step::say(
            "`greet.sh` now greets everybody named as an argument, one line each, and the world when \
             nobody is named. Tests cover no, one and two names; the README shows it.",
        ),
    ])
}

fn motto_of_the_day() -> Script {
    let plan = [
        Step::say("I'll look at how commands here are made and tested."),
        Step::read("greet.sh"),
        Step::read("tests/run.sh"),
        Step::write("ai-output/comments/01-what.md", MOTTO_PLAN_WHAT),
        Step::write("ai-output/comments/02-steps.md", MOTTO_PLAN_STEPS),
        Step::say("The plan is written."),
    ];
    let work = [
        Step::say("The plan holds up; I'll follow it."),
        Step::write("motto.sh", MOTTO),
        Step::append(
            "tests/run.sh",
            "check \"Small steps, every day.\" ./motto.sh 3\ncheck \"Rest is work, too.\" ./motto.sh 7\n",
        ),
        Step::run("sh tests/run.sh"),
        Step::say(
            "`motto.sh` prints the motto of the day, as planned, with tests for both kinds of day.",
        ),
    ];
    // The plan has reached the prompt when its steps are in it.
    Script::new()
        .pass_when("You are planning", plan)
        .pass_when("`motto.sh`: two mottos", work)
}

fn say_goodbye() -> Script {
    Script::new().pass([
        Step::write("farewell.sh", FAREWELL),
        Step::append(
            "tests/run.sh",
            "check \"Goodbye, everybody!\" ./farewell.sh\ncheck \"Goodbye, Ada!\" ./farewell.sh Ada\n",
        ),
        Step::run("sh tests/run.sh"),
        Step::say("`farewell.sh` says goodbye to everybody named, with tests."),
    ])
}

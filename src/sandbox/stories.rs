//! Seeds that a demo starts from: small, real, and the same every time.

use super::scripted_agent::{Script, Step};
use super::state::replace;
use super::{Repo, Town};

/// The demo's team, and the repository it is to be mapped to.
pub const DEMO_TEAM: &str = "DEMO";
pub const DEMO_OWNER: &str = "demo";
pub const DEMO_REPO: &str = "greeter";

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

/// What `demo` seeded.
#[derive(Clone)]
pub struct Demo {
    pub repo: Repo,
    /// Plain and flagged.
    pub plain: &'static str,
    /// Flagged, and blocked by the plain one.
    pub blocked: &'static str,
}

/// Team `DEMO`, the repository `demo/greeter` with these workflow files (path, content), a flagged
/// ticket and one that waits for it. On a town that has them already it changes nothing; one that
/// was killed half way is seeded again.
pub fn demo(town: &Town, workflows: &[(&str, &str)]) -> anyhow::Result<Demo> {
    let repo = town.github().repo(DEMO_OWNER, DEMO_REPO);
    let demo = Demo {
        repo: repo.clone(),
        plain: DEMO_PLAIN,
        blocked: DEMO_BLOCKED,
    };
    let seeded = town.dir().join("demo-is-seeded");
    if seeded.exists() {
        return Ok(demo);
    }
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
    file_tickets(town, &demo);
    replace(&seeded, b"")?;
    Ok(demo)
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

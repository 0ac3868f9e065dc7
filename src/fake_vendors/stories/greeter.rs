//! What stands in the demo's repository, and what the scripted agent makes of each ticket.

use crate::scripted_agent::{Script, Step};

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

/// A script as agents write them when they are in a hurry. Taken apart, so that this file does not
/// look like one that leaks.
const PUBLISH: &str = concat!(
    "\
#!/bin/sh
# Uploads today's greeting to the bucket that the website reads.
set -eu

export AWS_ACCESS_KEY_ID=",
    "AKIA",
    "Q3EGWTVZ7LMN5RKD",
    "
./greet.sh | aws s3 cp - s3://greetings/today.txt
"
);

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

/// The project's files before anybody worked on it: path and content.
pub(super) const PROJECT: [(&str, &str); 3] = [
    ("README.md", README),
    ("greet.sh", GREET),
    ("tests/run.sh", TESTS),
];

pub(super) fn greet_by_name() -> Script {
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

pub(super) fn motto_of_the_day() -> Script {
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

pub(super) fn say_goodbye() -> Script {
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

pub(super) fn publish_the_greeting() -> Script {
    Script::new().pass([
        Step::read("greet.sh"),
        Step::say("The upload needs an access key; I'll put it where it is used."),
        Step::write("publish.sh", PUBLISH),
        Step::say("`publish.sh` uploads the greeting."),
    ])
}

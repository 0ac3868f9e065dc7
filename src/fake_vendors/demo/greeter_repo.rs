//! Files of the demo repository, and the scripts of the scripted agent for the demo's tickets.

use serde_json::json;

use crate::scripted_agent::{Script, ScriptStep};

const README: &str = "\
# greeter

A small command that greets.

    ./greet.sh

## Tests

    sh tests/run.sh
";

const GREET: &str = "\
#!/bin/sh
# Greets the world.
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

/// Shell script with a hard-coded access key. The key is split here, so that secret scanners do not
/// report this file.
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

## Files

- `motto.sh`
- `tests/run.sh`

## Open question

Should Friday have a motto of its own? Planned as an ordinary working day.
";

const DAYTIME: &str = "\
#!/bin/sh
# Greets as fits the hour; an hour may be given.
set -eu

hour=${1:-$(date +%H)}
if [ \"$hour\" -lt 12 ]; then
    echo \"Good morning!\"
    exit
fi
if [ \"$hour\" -lt 18 ]; then
    echo \"Good afternoon!\"
    exit
fi
";

const LICENSE_PLAN: &str = "\
## What is wanted

Others may use, change and share the greeter, without conditions.

## Steps

1. `LICENSE`: the text of the Zero-Clause BSD license.
2. `README.md`: a section that names it.

## Files

- `LICENSE`
- `README.md`

## Risks

A license that was given cannot be taken back.
";

const LICENSE: &str = "\
Zero-Clause BSD

Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby
granted.

THE SOFTWARE IS PROVIDED \"AS IS\" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE.
";

/// Initial files of the demo repository: path and content.
pub(super) const SEED_FILES: [(&str, &str); 3] = [
    ("README.md", README),
    ("greet.sh", GREET),
    ("tests/run.sh", TESTS),
];

pub(super) fn greet_by_name_script() -> Script {
    Script::new().pass([
        ScriptStep::message("I'll look at how the greeting is made and tested."),
        ScriptStep::read("greet.sh"),
        ScriptStep::read("tests/run.sh"),
        ScriptStep::write("greet.sh", GREET_BY_NAME),
        ScriptStep::append(
            "tests/run.sh",
            "check \"Hello, Ada!\" ./greet.sh Ada\n\
             check \"Hello, Ada!\nHello, Grace!\" ./greet.sh Ada Grace\n",
        ),
        ScriptStep::append(
            "README.md",
            "\n## Names\n\nName the people to greet:\n\n    ./greet.sh Ada Grace\n",
        ),
        ScriptStep::message("Now the tests."),
        ScriptStep::run("sh tests/run.sh"),
        ScriptStep::message(
            "`greet.sh` now greets everybody named as an argument, one line each, and the world when \
             nobody is named. Tests cover no, one and two names; the README shows it.",
        ),
    ])
}

/// Resolves the conflicts after another ticket's merge: every ticket adds to the ends of the same files.
pub(super) fn keep_both_sides() -> [ScriptStep; 4] {
    [
        ScriptStep::keep_both_sides("tests/run.sh"),
        ScriptStep::keep_both_sides("README.md"),
        ScriptStep::run("sh tests/run.sh"),
        ScriptStep::message("Both sides add to the end of the same files; all of it is kept."),
    ]
}

pub(super) fn daily_motto_script() -> Script {
    let plan = [
        ScriptStep::message("I'll look at how commands here are made and tested."),
        ScriptStep::read("greet.sh"),
        ScriptStep::read("tests/run.sh"),
        ScriptStep::write("ai-output/comments/01-what.md", MOTTO_PLAN_WHAT),
        ScriptStep::write("ai-output/comments/02-steps.md", MOTTO_PLAN_STEPS),
        ScriptStep::message("The plan is written."),
    ];
    let implementation = [
        ScriptStep::message("The plan holds up; I'll follow it."),
        ScriptStep::write("motto.sh", MOTTO),
        ScriptStep::append(
            "tests/run.sh",
            "check \"Small steps, every day.\" ./motto.sh 3\ncheck \"Rest is work, too.\" ./motto.sh 7\n",
        ),
        ScriptStep::run("sh tests/run.sh"),
        ScriptStep::message(
            "`motto.sh` prints the motto of the day, as planned, with tests for both kinds of day.",
        ),
    ];
    // An implementation run is recognized by the plan's steps in its prompt.
    Script::new()
        .pass_if_prompt_contains("You are planning", plan)
        .pass_if_prompt_contains("`motto.sh`: two mottos", implementation)
}

pub(super) fn goodbye_script() -> Script {
    Script::new().pass([
        ScriptStep::write("farewell.sh", FAREWELL),
        ScriptStep::append(
            "tests/run.sh",
            "check \"Goodbye, everybody!\" ./farewell.sh\ncheck \"Goodbye, Ada!\" ./farewell.sh Ada\n",
        ),
        ScriptStep::run("sh tests/run.sh"),
        ScriptStep::message("`farewell.sh` says goodbye to everybody named, with tests."),
    ])
}

pub(super) fn secret_leak_script() -> Script {
    Script::new().pass([
        ScriptStep::read("greet.sh"),
        ScriptStep::message("The upload needs an access key; I'll put it where it is used."),
        ScriptStep::write("publish.sh", PUBLISH),
        ScriptStep::message("`publish.sh` uploads the greeting."),
    ])
}

/// Asks what to say in the evening, and continues with the answer.
pub(super) fn daytime_script() -> Script {
    let first = [
        ScriptStep::read("greet.sh"),
        ScriptStep::write("daytime.sh", DAYTIME),
        ScriptStep::message("The ticket leaves open what fits the evening; I'll ask."),
        ScriptStep::ask(json!([{
            "text": "What should `daytime.sh` say in the evening?",
            "choices": ["Good evening", "Good night"],
            "default": "Good evening",
        }])),
    ];
    // The answer stands in the prompt below the line with its author and time.
    Script::new()
        .pass_if_prompt_contains(":\n\nGood night", say_in_the_evening("Good night"))
        .pass_if_prompt_contains(
            "Earlier runs for this ticket asked questions",
            say_in_the_evening("Good evening"),
        )
        .pass(first)
}

fn say_in_the_evening(greeting: &str) -> [ScriptStep; 4] {
    [
        ScriptStep::append("daytime.sh", &format!("echo \"{greeting}!\"\n")),
        ScriptStep::append(
            "tests/run.sh",
            &format!(
                "check \"Good morning!\" ./daytime.sh 8\ncheck \"{greeting}!\" ./daytime.sh 20\n"
            ),
        ),
        ScriptStep::run("sh tests/run.sh"),
        ScriptStep::message(&format!(
            "`daytime.sh` greets as fits the hour, and says \"{greeting}\" in the evening, as answered."
        )),
    ]
}

pub(super) fn license_script() -> Script {
    let plan = [
        ScriptStep::read("README.md"),
        ScriptStep::write("ai-output/comments/01-plan.md", LICENSE_PLAN),
        ScriptStep::message("The plan is written."),
    ];
    let implementation = [
        ScriptStep::write("LICENSE", LICENSE),
        ScriptStep::append(
            "README.md",
            "\n## License\n\nZero-Clause BSD, see `LICENSE`.\n",
        ),
        ScriptStep::message("The license is in `LICENSE`, and the README names it."),
    ];
    Script::new()
        .pass_if_prompt_contains("You are planning", plan)
        .pass_if_prompt_contains("`LICENSE`: the text", implementation)
}

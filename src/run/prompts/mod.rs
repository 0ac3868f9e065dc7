//! Prompts of the agent.
//!
//! Templates are in the Markdown files of this folder. Text from tickets, people and diffs is
//! fenced with a random mark that its author cannot know. Invisible characters are stripped; in diffs
//! they are shown as escapes.
//! Templates are filled in one pass, so that placeholders in untrusted text have no effect.

mod material;
mod merge;
mod ticket;

use crate::context::Dispatch;
use crate::repo_config::RepoConfig;
use domain::run_options::PullRequestTask;
use material::Mark;
pub(crate) use material::PromptMaterial;

const IMPLEMENT: &str = include_str!("implement.md");
const PLAN: &str = include_str!("plan.md");
const REVIEW: &str = include_str!("review.md");
const SYSTEM: &str = include_str!("system.md");

/// Returns the prompt of an implement pass. `plan` was made before; `findings` are the review
/// findings to fix. Either may be empty.
pub(crate) fn implement(material: &PromptMaterial<'_>, plan: &str, findings: &str) -> String {
    let PromptMaterial {
        dispatch, ticket, ..
    } = material;
    let mark = Mark::new();
    let mut extra = related_tickets(dispatch, &mark);
    extra.push_str(&ticket::conversation(ticket, &mark));
    if !plan.is_empty() {
        extra.push_str(
            "A plan was made before. Follow it where it fits the code; where you deviate from it, say so in your \
             summary.\n",
        );
        extra.push_str(&mark.fence("plan", plan));
    }
    extra.push_str(&requests(dispatch, &mark));
    extra.push_str(&merge::conflicts(material, &mark));
    if !findings.trim().is_empty() {
        extra.push_str(&mark.fence("findings of the review", findings));
    }
    extra.push_str(ticket::earlier_work(ticket));
    let task = if material.merge.is_some() && findings.is_empty() {
        merge::TASK
    } else if !findings.is_empty() {
        "A first version of the change is in the working tree. A review found problems that must be fixed: \
         fix all of them, and nothing else."
    } else if is_ci_fix(dispatch) {
        "The branch holds a pull request for this ticket, and checks of its last commit fail. Their names, outputs \
         and the ends of their logs are below. Find the cause and repair it in the code; keep the change as small \
         as possible, and leave the rest as it is. Never weaken, skip or delete a test, and never change CI \
         configuration, linter settings or snapshots, only to make a check pass. If the cause is outside this \
         branch, change nothing and say so in your summary."
    } else if dispatch.config.pr_number.is_some() && !has_request(dispatch) {
        "The branch holds a pull request for this ticket. Compare it with the ticket and complete what is \
         missing or wrong; leave the rest of the change as it is."
    } else if dispatch.config.pr_number.is_some() {
        "The branch holds a pull request for this ticket. Do what the feedback or the request below asks \
         for; leave the rest of the change as it is."
    } else {
        "Implement the ticket."
    };
    fill(
        IMPLEMENT,
        &[
            ("identifier", dispatch.config.issue_key.as_str()),
            ("repository", &dispatch.repo.to_string()),
            ("branch", dispatch.branch()),
            ("task", task),
            ("mark", &mark.0),
            ("asking", &ticket::asking(material, "your summary")),
            ("ticket", &ticket_text(dispatch, &mark)),
            ("extra", &extra),
        ],
    )
}

/// Whether the run repairs failing checks.
fn is_ci_fix(dispatch: &Dispatch) -> bool {
    dispatch.config.options.task == Some(PullRequestTask::CiFix)
}

/// Whether an operator or a reviewer requests something beyond the ticket.
fn has_request(dispatch: &Dispatch) -> bool {
    dispatch.config.instruction.is_some() || dispatch.config.findings.is_some()
}

/// Returns the prompt of a planning pass, which writes to `folder`.
pub(crate) fn plan(material: &PromptMaterial<'_>, folder: &str) -> String {
    let PromptMaterial {
        dispatch, ticket, ..
    } = material;
    let mark = Mark::new();
    let mut extra = related_tickets(dispatch, &mark);
    extra.push_str(&ticket::conversation(ticket, &mark));
    extra.push_str(&requests(dispatch, &mark));
    fill(
        PLAN,
        &[
            ("identifier", dispatch.config.issue_key.as_str()),
            ("repository", &dispatch.repo.to_string()),
            ("mark", &mark.0),
            ("asking", &ticket::asking(material, "the plan")),
            ("ticket", &ticket_text(dispatch, &mark)),
            ("extra", &extra),
            ("folder", folder),
        ],
    )
}

/// Returns the prompt of a review pass.
pub(crate) fn review(material: &PromptMaterial<'_>, diff: &str) -> String {
    let PromptMaterial {
        dispatch, ticket, ..
    } = material;
    let mark = Mark::new();
    // Not limited here: the diff was cut when it was read, at a higher limit.
    let diff = diff.replace(&mark.0, "");
    let diff = format!("<{0} of=\"diff\">\n{diff}\n</{0}>", mark.0);
    let extra = ticket::conversation(ticket, &mark)
        + &requests(dispatch, &mark)
        + &merge::review(material, &mark);
    fill(
        REVIEW,
        &[
            ("identifier", dispatch.config.issue_key.as_str()),
            ("repository", &dispatch.repo.to_string()),
            ("mark", &mark.0),
            ("ticket", &ticket_text(dispatch, &mark)),
            ("extra", &extra),
            ("diff", &diff),
        ],
    )
}

/// Returns the system prompt: rules of the service and guidance of the team.
pub(crate) fn system(dispatch: &Dispatch, config: &RepoConfig) -> String {
    let mut guidance = String::new();
    for (name, text) in &config.team_guidance {
        let text = substitute(text, &variables(dispatch));
        guidance.push_str(&format!("\n# The team's guidance ({name})\n\n{text}\n"));
    }
    for (name, text) in &config.agent_guidance {
        guidance.push_str(&format!(
            "\n# The repository's guidance ({name})\n\n{text}\n"
        ));
    }
    fill(SYSTEM, &[("guidance", &guidance)])
}

/// Returns the variables that guidance may use as `${…}`. Only generated names, because guidance is
/// not fenced: never text that people wrote into a ticket.
fn variables(dispatch: &Dispatch) -> [(&'static str, String); 6] {
    let pull = dispatch.config.pr_number.map(|number| number.to_string());
    [
        ("issue_identifier", dispatch.config.issue_key.to_string()),
        ("repository", dispatch.repo.to_string()),
        ("branch", dispatch.branch().to_owned()),
        ("base_branch", dispatch.base_branch.clone()),
        ("phase", dispatch.config.phase.as_str().to_owned()),
        ("pr_number", pull.unwrap_or_default()),
    ]
}

/// Replaces variables in guidance. Unknown `${…}` stay; they may belong to a shell command.
fn substitute(guidance: &str, variables: &[(&str, String)]) -> String {
    let replace =
        |text: String, (name, value): &(&str, String)| text.replace(&format!("${{{name}}}"), value);
    variables.iter().fold(guidance.to_owned(), replace)
}

fn ticket_text(dispatch: &Dispatch, mark: &Mark) -> String {
    let config = &dispatch.config;
    mark.fence(
        "ticket",
        &format!(
            "{}: {}\n\n{}",
            config.issue_key, config.issue_title, config.issue_description
        ),
    )
}

/// Returns the fenced requests of operators and reviewers.
fn requests(dispatch: &Dispatch, mark: &Mark) -> String {
    let config = &dispatch.config;
    let findings = match is_ci_fix(dispatch) {
        true => "failing checks",
        false => "feedback on the pull request",
    };
    let requests = [
        ("request of an operator", &config.instruction),
        (findings, &config.findings),
    ];
    let given = requests
        .into_iter()
        .filter_map(|(label, text)| Some((label, text.as_deref()?)))
        .filter(|(_, text)| !text.trim().is_empty());
    given.map(|(label, text)| mark.fence(label, text)).collect()
}

/// Returns the fenced parent, sibling and dependency tickets.
fn related_tickets(dispatch: &Dispatch, mark: &Mark) -> String {
    let related = &dispatch.config.related;
    let mut text = String::new();
    if let Some(parent) = &related.parent {
        text.push_str(&mark.fence("parent ticket", parent));
    }
    for (label, lines) in [
        ("sibling tickets", &related.siblings),
        ("dependencies", &related.dependencies),
    ] {
        if !lines.is_empty() {
            text.push_str(&mark.fence(label, &lines.join("\n")));
        }
    }
    text
}

/// Replaces `{{name}}` by values. Placeholders in values are not replaced.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        let Some((name, later)) = after.split_once("}}") else {
            break;
        };
        let value = values.iter().find(|(known, _)| *known == name);
        filled.push_str(value.map_or("", |(_, value)| value));
        rest = later;
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::plan_approval::declared_files;

    #[test]
    fn does_not_replace_placeholders_in_values() {
        assert_eq!(
            fill("a {{x}} b {{y}}", &[("x", "{{y}}"), ("y", "2")]),
            "a {{y}} b 2"
        );
    }

    #[test]
    fn substitutes_known_variables_in_guidance_only() {
        let variables = [("branch", "b/1".to_owned()), ("pr_number", String::new())];
        let text = "Work on ${branch}${pr_number}; ${HOME} and $branch stay.";
        assert_eq!(
            substitute(text, &variables),
            "Work on b/1; ${HOME} and $branch stay."
        );
    }

    #[test]
    fn the_example_of_a_plan_declares_its_file() {
        let example = PLAN.split("`` ").nth(1).unwrap();
        let example = example.split(" ``").next().unwrap();
        let plan = format!("## Files\n\n{example}\n");
        assert_eq!(declared_files(&[plan]), ["src/cart.rs"]);
    }

    #[test]
    fn templates_use_known_placeholders_only() {
        let known = [
            "identifier",
            "repository",
            "branch",
            "task",
            "mark",
            "ticket",
            "extra",
            "diff",
            "guidance",
            "folder",
            "asking",
        ];
        for template in [IMPLEMENT, PLAN, REVIEW, SYSTEM] {
            for part in template.split("{{").skip(1) {
                let name = part.split("}}").next().unwrap();
                assert!(known.contains(&name), "{name}");
            }
        }
    }
}

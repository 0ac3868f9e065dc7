//! Trust in the account that set the trigger label, on repositories in which strangers may file
//! issues. See docs/behaviour.md#who-may-start-runs-on-github.

use crate::ids::Repo;
use crate::issue::TriggerAuthor;
use crate::sanitize::{single_line, truncate};

/// Part of every refusal, by which advice recognizes it.
const SET_THE_LABEL: &str = "set the label";

/// Maximum length of an account name in a sentence, in bytes.
const MAX_NAME: usize = 60;

/// Returns why an issue may not start runs of `repo`, as a sentence. `None` if it may. `is_writer`
/// says whether a person has write access; Apps and bots never count.
pub fn trigger_refusal(author: &TriggerAuthor, repo: &Repo, is_writer: bool) -> Option<String> {
    Some(match author {
        TriggerAuthor::Trusted => return None,
        TriggerAuthor::Person(_) if is_writer => return None,
        TriggerAuthor::Person(login) => {
            format!(
                "{} {SET_THE_LABEL}, but has no write access to {repo}.",
                short(login)
            )
        }
        TriggerAuthor::App(app) => format!(
            "The app {} {SET_THE_LABEL}, and apps cannot start runs of {repo}.",
            short(app)
        ),
        TriggerAuthor::Unknown => {
            format!("GitHub does not show who {SET_THE_LABEL} Agent-Implement in {repo}.")
        }
    })
}

/// Returns the sentence for an issue whose labeller could not be checked.
pub fn unchecked_trigger(login: &str, repo: &Repo) -> String {
    let login = short(login);
    format!(
        "{login} {SET_THE_LABEL}, but GitHub does not answer whether {login} has write access to {repo}."
    )
}

fn short(name: &str) -> String {
    truncate(single_line(name), MAX_NAME, "…").into_owned()
}

/// Returns whether a decision's message is about the account that set the trigger.
pub(super) fn is_about_trigger(message: &str) -> bool {
    message.contains(SET_THE_LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_people_with_write_access_start_runs() {
        let repo = Repo::new("acme", "shop");
        let person = || TriggerAuthor::Person("mallory".into());
        let refused = |author, is_writer| trigger_refusal(&author, &repo, is_writer);
        assert_eq!(refused(TriggerAuthor::Trusted, false), None);
        assert_eq!(refused(person(), true), None);
        assert_eq!(
            refused(person(), false).as_deref(),
            Some("mallory set the label, but has no write access to acme/shop.")
        );
        for author in [TriggerAuthor::App("triage".into()), TriggerAuthor::Unknown] {
            for is_writer in [false, true] {
                let refusal = refused(author.clone(), is_writer).unwrap();
                assert!(is_about_trigger(&refusal), "{refusal}");
            }
        }
        let long = refused(TriggerAuthor::Person("x\n".repeat(500)), false).unwrap();
        assert!(long.len() < 200 && !long.contains('\n'), "{long}");
    }
}

//! Refusals of a workflow dispatch, and what removes their cause.

use domain::ids::Repo;

const SYNC: &str = "Sync the workflows of this project, then try again";
const SHORTEN: &str = "Shorten the ticket, its related tickets or the instruction, then try again";
const UNARCHIVE: &str = "Unarchive the repository, or map the project to another one";
const ENABLE_WORKFLOW: &str = "Enable the workflow on the repository host";
const ENABLE_ACTIONS: &str = "Enable Actions in the settings of the repository or its organization";
const BILLING: &str = "Check the Actions quota and the billing of the repository's owner";
const ALLOW_ADDRESS: &str = "Add the service's address to the organization's IP allow list";
const AUTHORIZE: &str = "Authorize the token for the organization's single sign-on";
const PERMIT: &str = "Give the GitHub App the permission actions: write and accept it for the installation; \
    a token needs the scope repo, a fine-grained one actions: write";
const LOOK: &str = "Check the workflow and the settings of the repository on its host";

/// Words of the host, in lower case, and the remedy; the first row that matches decides.
const REMEDIES: [(&str, &str); 19] = [
    ("unexpected inputs", SYNC),
    ("required input", SYNC),
    ("list of allowed values", SYNC),
    ("does not have 'workflow_dispatch'", SYNC),
    ("failed to parse workflow", SYNC),
    ("too large", SHORTEN),
    ("archived", UNARCHIVE),
    ("disabled workflow", ENABLE_WORKFLOW),
    ("disabled", ENABLE_ACTIONS),
    ("quota", BILLING),
    ("billing", BILLING),
    ("payment", BILLING),
    ("spending limit", BILLING),
    ("ip allow list", ALLOW_ADDRESS),
    ("saml", AUTHORIZE),
    ("not accessible by", PERMIT),
    ("admin rights", PERMIT),
    ("permission", PERMIT),
    ("write access", PERMIT),
];

/// Returns what went wrong, as a sentence without its full stop, and what removes the cause. `said` is
/// the host's message, `error` our sentence around it.
pub(super) fn explain(
    status: u16,
    said: &str,
    error: &str,
    (repo, workflow, git_ref): (&Repo, &str, &str),
) -> (String, &'static str) {
    let lower = said.to_lowercase();
    if status == 404 {
        let missing =
            format!("{repo} has no workflow {workflow} on its default branch, or it is hidden");
        return (missing, SYNC);
    }
    if lower.contains("no ref found") {
        let remedy = "Correct the default branch in the project's mapping";
        return (format!("{repo} has no branch {git_ref}"), remedy);
    }
    let known = REMEDIES.iter().find(|(words, _)| lower.contains(words));
    let unknown = if status == 403 { PERMIT } else { LOOK };
    let remedy = known.map_or(unknown, |(_, remedy)| remedy);
    (error.trim_end_matches('.').to_owned(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_the_remedy_of_its_cause() {
        let rows = [
            (422, "Unexpected inputs provided: [\"x\"]", SYNC),
            (422, "Required input 'phase' not provided", SYNC),
            (
                422,
                "Provided value 'x' for input 'phase' not in the list of allowed values",
                SYNC,
            ),
            (
                422,
                "Workflow does not have 'workflow_dispatch' trigger",
                SYNC,
            ),
            (
                422,
                "failed to parse workflow: (Line: 3, Col: 5): Unexpected value 'job'",
                SYNC,
            ),
            (404, "Not Found", SYNC),
            (422, "inputs are too large.", SHORTEN),
            (
                422,
                "Cannot trigger a 'workflow_dispatch' on a disabled workflow",
                ENABLE_WORKFLOW,
            ),
            (
                422,
                "Actions has been disabled for this repository.",
                ENABLE_ACTIONS,
            ),
            (403, "Repository was archived so is read-only.", UNARCHIVE),
            (403, "Resource not accessible by integration", PERMIT),
            (
                403,
                "Resource not accessible by personal access token",
                PERMIT,
            ),
            (403, "Must have admin rights to Repository.", PERMIT),
            (403, "Forbidden", PERMIT),
            (
                403,
                "Resource protected by organization SAML enforcement. You must grant your OAuth token access to this organization.",
                AUTHORIZE,
            ),
            (
                403,
                "Although you appear to have the correct authorization credentials, the `acme` organization has an IP allow list enabled, and your IP address is not permitted to access this resource.",
                ALLOW_ADDRESS,
            ),
            (
                403,
                "Recent account payments have failed or your spending limit needs to be increased.",
                BILLING,
            ),
            (422, "Something new.", LOOK),
        ];
        let repo = Repo::new("acme", "shop");
        let of = (&repo, "agent-implement.yml", "main");
        for (status, said, remedy) in rows {
            let error = format!("github answered {status}: {said}");
            let (message, mends) = explain(status, said, &error, of);
            assert_eq!(mends, remedy, "{said}");
            assert!(!message.ends_with('.'), "{message}");
            assert!(!mends.ends_with('.'), "{mends}");
        }
        let (message, _) = explain(422, "No ref found for: main", "", of);
        assert_eq!(message, "acme/shop has no branch main");
    }
}

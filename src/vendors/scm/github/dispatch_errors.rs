//! Explanation of rejected workflow dispatches, with a remedy for each cause.

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
pub(super) const INSTALL: &str =
    "Install the App on the repository, or correct the repository of the project, then try again";
const CHECK_SETTINGS: &str = "Check the workflow and the settings of the repository on its host";

/// Phrases of the host's messages, in lower case, with their remedies. The first match applies.
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

/// Returns a description of the failure and a remedy, both without the final full stop. `host_message` is
/// the host's message, `error` the vendor error that contains it.
pub(super) fn explain(
    status: u16,
    host_message: &str,
    error: &str,
    (repo, workflow, git_ref): (&Repo, &str, &str),
) -> (String, &'static str) {
    let lower = host_message.to_lowercase();
    if status == 404 {
        let missing = format!(
            "{repo} has no workflow {workflow} on its default branch, or the credentials cannot see it"
        );
        return (missing, SYNC);
    }
    if lower.contains("no ref found") {
        let remedy = "Correct the default branch in the project's mapping";
        return (format!("{repo} has no branch {git_ref}"), remedy);
    }
    let known = REMEDIES.iter().find(|(phrase, _)| lower.contains(phrase));
    let unknown = if status == 403 {
        PERMIT
    } else {
        CHECK_SETTINGS
    };
    let remedy = known.map_or(unknown, |(_, remedy)| remedy);
    (error.trim_end_matches('.').to_owned(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_remedy_for_each_rejection() {
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
            (422, "Something new.", CHECK_SETTINGS),
        ];
        let repo = Repo::new("acme", "shop");
        let dispatch = (&repo, "agent-implement.yml", "main");
        for (status, host_message, remedy) in rows {
            let error = format!("GitHub answered {status}: {host_message}");
            let (message, actual) = explain(status, host_message, &error, dispatch);
            assert_eq!(actual, remedy, "{host_message}");
            assert!(!message.ends_with('.'), "{message}");
            assert!(!actual.ends_with('.'), "{actual}");
        }
        let (message, _) = explain(422, "No ref found for: main", "", dispatch);
        assert_eq!(message, "acme/shop has no branch main");
    }
}

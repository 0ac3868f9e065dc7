//! Paths and credentials of routes in the notation of OpenAPI.

use domain::crypto::run_token::TokenAudience;

use crate::routing::{Access, PathPattern};
use crate::webhook_source::WebhookSource;

/// Returns the names of the parameters of a path.
pub(super) fn param_names(path: PathPattern) -> impl Iterator<Item = &'static str> {
    let segments = path.label().split('/');
    segments.filter_map(|segment| segment.strip_prefix(':'))
}

/// Returns a path such as `/api/jobs/{jobId}`.
pub(super) fn path(path: PathPattern) -> String {
    let segments = path.label().split('/').map(|segment| {
        let name = segment.strip_prefix(':');
        name.map_or_else(|| segment.to_owned(), |name| format!("{{{name}}}"))
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Returns the names of the security schemes, of which one is required; empty for public routes.
pub(super) fn security_schemes(access: Access) -> Vec<&'static str> {
    match access {
        Access::Admin => vec!["admin", "adminSession"],
        Access::Run(TokenAudience::Result) => vec!["resultToken"],
        Access::Run(TokenAudience::Progress) => vec!["progressToken"],
        Access::TriggerSecret => vec!["triggerSecret"],
        Access::Webhook(WebhookSource::GitHub) => vec!["webhookSignature"],
        Access::Webhook(WebhookSource::Linear) => vec!["linearSignature"],
        Access::Webhook(WebhookSource::Jira) => vec!["jiraSignature"],
        Access::Public => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_parameters_in_braces() {
        let pattern = PathPattern::new("/api/outbox/:id/retry");
        assert_eq!(path(pattern), "/api/outbox/{id}/retry");
        assert_eq!(param_names(pattern).collect::<Vec<_>>(), ["id"]);
    }
}

//! Projects of the account.

use serde::Deserialize;

use super::Jira;
use crate::http::VendorError;
use crate::ticketing::TicketSource;

/// Number of projects in a page, the maximum of Jira.
const PAGE_SIZE: usize = 100;

impl Jira {
    /// Lists the projects whose issues the account can see; at most `limit`.
    ///
    /// # Errors
    /// Fails if Jira rejects a request or does not respond.
    pub async fn projects(&self, limit: usize) -> Result<Vec<TicketSource>, VendorError> {
        let mut found = Vec::new();
        while found.len() < limit {
            let path = format!(
                "/project/search?action=browse&maxResults={PAGE_SIZE}&startAt={}",
                found.len()
            );
            let request = self.get("listing the projects", &path);
            let page: Page = self.client.send(&request).await?.json()?;
            let is_last = page.is_last || page.values.is_empty();
            found.extend(page.values);
            if is_last {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    values: Vec<TicketSource>,
    #[serde(default)]
    is_last: bool,
}

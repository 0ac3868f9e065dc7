//! Teams of the account.

use serde::Deserialize;
use serde_json::json;

use super::Linear;
use super::snapshot::PageInfo;
use crate::http::VendorError;
use crate::ticketing::TicketSource;

const QUERY: &str = "query($after: String) { \
    teams(first: 250, after: $after) { nodes { key name } pageInfo { hasNextPage endCursor } } }";

impl Linear {
    /// Lists the teams that are visible to the account; at most `limit`.
    ///
    /// # Errors
    /// Fails if Linear rejects a request or does not respond.
    pub async fn teams(&self, limit: usize) -> Result<Vec<TicketSource>, VendorError> {
        let (mut found, mut after) = (Vec::new(), None);
        while found.len() < limit {
            let variables = json!({ "after": after });
            let page: Page = self
                .execute(self.query("listing the teams", QUERY, variables))
                .await?;
            found.extend(page.teams.nodes);
            after = page.teams.page_info.next();
            if after.is_none() {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }
}

#[derive(Deserialize)]
struct Page {
    teams: Connection,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Connection {
    nodes: Vec<TicketSource>,
    page_info: PageInfo,
}

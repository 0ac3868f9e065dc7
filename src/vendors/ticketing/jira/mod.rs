//! Jira Cloud: REST v3, a select field as marker.
//!
//! The marker is one custom field, called `Agent-Implement Status` or named by the mapping; Jira's
//! own workflow status is a different thing and is never written. Search answers from an index that
//! lags behind: issues we have just written are named in the search, so that it reads them afresh.

mod adf;
mod closed_issues;
mod comments;
mod field_options;
mod fields;
mod find_issue;
mod issue;
mod jql;
mod siblings;
mod snapshot;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::json;

use crate::http::{Client, Method, Quota, Request, VendorError, percent_encode};
use domain::ids::{IssueId, IssueKey};
use domain::issue::{IssueLookup, IssueRef, PollResult};
use domain::mapping::{Mapping, TicketingConfig};
use domain::secret::Secret;
use domain::stage::Stage;
use domain::time::Timestamp;

pub use field_options::FieldOption;
use fields::CachedFields;
pub use fields::JiraField;
use fields::STATUS_FIELD;

/// How much of an answer do we read? A page of issues carries their descriptions.
const MAX_BODY: usize = 64 << 20;

/// How long may Jira's index take to show what we wrote?
const INDEX_LAG: Duration = Duration::from_secs(120);

/// How many issues may a search be told to read afresh?
const MAX_RECONCILED: usize = 50;

/// How we prove who we are.
#[derive(Clone)]
pub enum JiraCredentials {
    /// An API token of the person with this address.
    Basic { email: String, token: Secret },
    /// An OAuth token.
    Bearer(Secret),
}

/// An account at Jira Cloud.
#[derive(Clone)]
pub struct Jira {
    client: Client,
    /// Up to and with `/rest/api/3`.
    api: String,
    authorization: Secret,
    cache: Arc<Mutex<Cache>>,
}

/// What we have learned; all of it can be asked for again.
#[derive(Default)]
struct Cache {
    site_url: Option<String>,
    fields: Option<CachedFields>,
    /// Issues we wrote, oldest first.
    written: VecDeque<(u64, Instant)>,
}

impl Jira {
    /// `api_url` is the address without `/rest/api/3`; `site_url` where people read tickets, if it
    /// is known.
    pub fn new(
        client: Client,
        api_url: &str,
        site_url: Option<&str>,
        credentials: &JiraCredentials,
    ) -> Self {
        let authorization = match credentials {
            JiraCredentials::Basic { email, token } => {
                let pair = format!("{email}:{}", token.expose());
                format!("Basic {}", BASE64.encode(pair.as_bytes()))
            }
            JiraCredentials::Bearer(token) => format!("Bearer {}", token.expose()),
        };
        let known = Cache {
            site_url: site_url.map(|url| url.trim_end_matches('/').to_owned()),
            ..Cache::default()
        };
        Self {
            client,
            api: format!("{}/rest/api/3", api_url.trim_end_matches('/')),
            authorization: Secret::new(authorization),
            cache: Arc::new(Mutex::new(known)),
        }
    }

    /// Every open issue of these mappings that waits for a run or has one, one search for each
    /// distinct query.
    ///
    /// # Errors
    /// When no mapping's issues could be read. Mappings that fail beside others that do not are
    /// named in the snapshot.
    pub async fn snapshot(&self, mappings: &[&Mapping]) -> Result<PollResult, VendorError> {
        snapshot::read(self, mappings).await
    }

    /// The issue of this key, once for each of these mappings whose query and repo value it meets.
    ///
    /// # Errors
    /// When it meets none, and of one of them it could not be told.
    pub async fn find_issue(
        &self,
        mappings: &[&Mapping],
        key: &IssueKey,
    ) -> Result<Vec<IssueLookup>, VendorError> {
        find_issue::read(self, mappings, key).await
    }

    /// Sets the issue's status field.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn set_stage(&self, issue: &IssueRef, stage: Stage) -> Result<(), VendorError> {
        const ACTION: &str = "setting the issue's status field";
        let field = issue.marker_field.as_deref().unwrap_or(STATUS_FIELD);
        let field = self.find_field(ACTION, field).await?;
        let body = json!({"fields": {field.id(): {"value": stage.jira_status()}}});
        // Before the request: a search that overtakes it must not trust the index either.
        self.remember_written(&issue.id);
        let path = format!("/issue/{}", percent_encode(issue.id.as_str()));
        let request = self.request(ACTION, Method::PUT, &path).json(&body).safe();
        self.client.send(&request).await.map(drop)
    }

    /// Writes a comment, in Markdown. Look with [`Jira::has_comment`] before repeating it.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn create_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        comments::create(self, issue, effect_id, body).await
    }

    /// Returns whether the issue has the comment of this effect, written at `since` or later.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn has_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
        since: Timestamp,
    ) -> Result<bool, VendorError> {
        comments::exists(self, issue, effect_id, body, since).await
    }

    /// Deletes the comment that we wrote for an effect.
    ///
    /// # Errors
    /// `is_not_found()` when the comment is gone.
    pub async fn delete_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
    ) -> Result<(), VendorError> {
        comments::delete(self, issue, effect_id).await
    }

    /// Replaces the text of the comment that we wrote for an effect.
    ///
    /// # Errors
    /// `is_not_found()` when the comment is gone.
    pub async fn edit_comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        comments::edit(self, issue, effect_id, body).await
    }

    /// The comments that we wrote for these effects, as they stand now and in the order asked for.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn comments(
        &self,
        issue: &IssueRef,
        effect_ids: &[String],
    ) -> Result<Vec<String>, VendorError> {
        comments::read_own(self, issue, effect_ids).await
    }

    /// The other children of each issue's parent, a line of text each.
    ///
    /// # Errors
    /// When they could not be read.
    pub async fn siblings(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashMap<IssueId, Vec<String>>, VendorError> {
        siblings::read(self, issues).await
    }

    /// Those of the issues that are done or gone.
    ///
    /// # Errors
    /// When their states cannot be read.
    pub async fn closed_issues(
        &self,
        issues: &[IssueRef],
    ) -> Result<HashSet<IssueId>, VendorError> {
        closed_issues::find(self, issues).await
    }

    /// Links a pull request to the issue. The same URL is linked once.
    ///
    /// # Errors
    /// `is_not_found()` when the issue is gone.
    pub async fn link_pull_request(
        &self,
        issue: &IssueRef,
        title: &str,
        url: &str,
    ) -> Result<(), VendorError> {
        /// Longest name by which Jira knows a link again.
        const MAX_GLOBAL_ID: usize = 255;
        let name: String = url.chars().take(MAX_GLOBAL_ID).collect();
        let body = json!({"globalId": name, "object": {"url": url, "title": title}});
        let path = format!("/issue/{}/remotelink", percent_encode(issue.id.as_str()));
        let request = self.request("linking the pull request", Method::POST, &path);
        // The name makes a second link an update of the first.
        self.client
            .send(&request.json(&body).safe())
            .await
            .map(drop)
    }

    /// What is left of the account's allowance.
    pub fn quota(&self) -> Quota {
        self.client.quota()
    }

    /// Asks who we are.
    ///
    /// # Errors
    /// 401 when the credential is refused.
    pub async fn probe(&self) -> Result<String, VendorError> {
        let request = self.get("asking Jira who we are", "/myself");
        let who: Who = self.client.send(&request).await?.json()?;
        Ok(format!(
            "{} at {}",
            who.display_name,
            self.site_url().await?
        ))
    }

    /// What Jira's parser says against a query clause; nothing when it is good.
    ///
    /// # Errors
    /// When Jira could not be asked.
    pub async fn validate_jql(&self, clause: &str) -> Result<Vec<String>, VendorError> {
        // Alone, because `a) OR (b` would be good in parentheses; in parentheses, because that is
        // how we use it, and a clause that brings its own order cannot stand there.
        let body = json!({"queries": [clause, format!("({clause})")]});
        let path = "/jql/parse?validation=strict";
        let request = self.request("checking the query", Method::POST, path);
        let parsed: Parsed = self
            .client
            .send(&request.json(&body).safe())
            .await?
            .json()?;
        let mut queries = parsed.queries.into_iter().map(|query| query.errors);
        let (alone, wrapped) = (queries.next().unwrap_or_default(), queries.next());
        if alone.is_empty() && wrapped.is_some_and(|errors| !errors.is_empty()) {
            let problem =
                "The query must be a clause that can stand in parentheses: leave out ORDER BY.";
            return Ok(vec![problem.to_owned()]);
        }
        Ok(alone)
    }

    /// What speaks against a mapping's ticketing; nothing when it is good.
    ///
    /// # Errors
    /// When Jira could not be asked.
    pub async fn validate_mapping(&self, mapping: &Mapping) -> Result<Vec<String>, VendorError> {
        let TicketingConfig::Jira { jql, .. } = &mapping.ticketing else {
            return Ok(Vec::new());
        };
        let mut problems = self.validate_jql(jql).await?;
        for name in snapshot::mapping_field_names(&mapping.ticketing) {
            match self.find_field("looking for the field", name).await {
                Ok(_) => {}
                Err(error) if error.status() == Some(fields::FIELD_NOT_FOUND_STATUS) => {
                    problems.push(fields::missing_field_message(name));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(problems)
    }

    /// The values that a mapping's status field and its repo field offer.
    ///
    /// # Errors
    /// When Jira could not be asked.
    pub async fn mapping_field_options(
        &self,
        mapping: &Mapping,
    ) -> Result<[BTreeSet<String>; 2], VendorError> {
        let mut offered = [BTreeSet::new(), BTreeSet::new()];
        let names = snapshot::mapping_field_names(&mapping.ticketing);
        for (name, values) in names.into_iter().zip(&mut offered) {
            let options = self.field_options(name).await?;
            values.extend(options.into_iter().map(|option| option.value));
        }
        Ok(offered)
    }

    /// The custom fields, or those called `name`, whatever its case.
    ///
    /// # Errors
    /// When Jira could not be asked.
    pub async fn custom_fields(&self, name: Option<&str>) -> Result<Vec<JiraField>, VendorError> {
        let mut all = self.read_fields("reading the custom fields").await?;
        all.retain(|field| field.custom);
        if let Some(name) = name.map(str::to_lowercase) {
            all.retain(|field| field.name.to_lowercase() == name);
        }
        Ok(all)
    }

    /// The options of a select field; none when it has none.
    ///
    /// # Errors
    /// When Jira could not be asked.
    pub async fn field_options(&self, field: &str) -> Result<Vec<FieldOption>, VendorError> {
        field_options::read(self, field).await
    }

    /// Where people read tickets.
    async fn site_url(&self) -> Result<String, VendorError> {
        if let Some(known) = self.cache().site_url.clone() {
            return Ok(known);
        }
        let request = self.get("asking Jira for its address", "/serverInfo");
        let server: Server = self.client.send(&request).await?.json()?;
        let url = server.base_url.trim_end_matches('/').to_owned();
        self.cache().site_url = Some(url.clone());
        Ok(url)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember_written(&self, issue: &IssueId) {
        let Ok(id) = issue.as_str().parse() else {
            return;
        };
        let mut known = self.cache();
        known.written.retain(|(other, _)| *other != id);
        known.written.push_back((id, Instant::now()));
        while known.written.len() > MAX_RECONCILED {
            known.written.pop_front();
        }
    }

    /// Issues whose state in the index may be older than what we wrote.
    fn recently_written(&self) -> Vec<u64> {
        let mut known = self.cache();
        known.written.retain(|(_, at)| at.elapsed() < INDEX_LAG);
        known.written.iter().map(|(id, _)| *id).collect()
    }

    fn get(&self, action: &'static str, path: &str) -> Request {
        self.request(action, Method::GET, path).safe()
    }

    fn request(&self, action: &'static str, method: Method, path: &str) -> Request {
        Request::new(action, method, format!("{}{path}", self.api))
            .authorization(self.authorization.expose())
            .header("accept", "application/json")
            .max_body(MAX_BODY)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Who {
    display_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    base_url: String,
}

#[derive(Deserialize)]
struct Parsed {
    queries: Vec<ParsedQuery>,
}

#[derive(Deserialize)]
struct ParsedQuery {
    #[serde(default)]
    errors: Vec<String>,
}

/// For the fuzzer: a document as people wrote it.
pub fn adf_to_markdown(document: &serde_json::Value) -> String {
    adf::to_markdown(document)
}

/// For the fuzzer: a text as a document.
pub fn markdown_to_adf(text: &str) -> serde_json::Value {
    adf::from_markdown(text)
}

#[cfg(test)]
mod tests;

//! Jira Cloud client (REST API v3), with a select field as marker.
//!
//! The marker is one custom field, `Agent-Implement Status` or the field set in the mapping. Jira's own
//! workflow status is never written. Search uses an index that lags behind writes. Recently written issues
//! are passed to the search as `reconcileIssues`, so that their current state is returned.
//!
//! Rightly ours: Atlassian publishes no client for Rust.

mod adf;
mod bulk_fetch;
mod closed_issues;
mod comments;
mod field_options;
mod fields;
mod find_issue;
mod issue;
mod jql;
mod projects;
mod select_fields;
mod siblings;
mod snapshot;
mod status_values;
mod ticket;
mod watch;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::json;

use super::read_changes::ReadChanges;
use crate::http::{Availability, Client, Method, Quota, Request, VendorError, percent_encode};
use domain::ids::IssueId;
use domain::issue::IssueRef;
use domain::mapping::{Mapping, TicketingConfig};
use domain::secret::Secret;
use domain::stage::Stage;
use domain::ticket_comment::{AuthorKind, CommentAuthor};

pub use field_options::FieldOption;
pub use fields::JiraField;
use fields::STATUS_FIELD;
use fields::{CachedFields, FieldId};
pub(super) use issue::collect_values;
pub use select_fields::{SelectField, SelectFieldGap};
use status_values::CachedQuery;

/// Maximum size of a response, in bytes. A page of issues contains their descriptions.
const MAX_BODY: usize = 64 << 20;

/// Maximum time until Jira's search index contains a write.
const INDEX_LAG: Duration = Duration::from_secs(120);

/// Maximum number of issues in `reconcileIssues` of a search.
const MAX_RECONCILED: usize = 50;

/// Credentials for Jira.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JiraCredentials {
    /// API token of an account.
    Basic {
        /// Email address of the account.
        email: String,
        /// API token.
        token: Secret,
    },
    /// OAuth token.
    Bearer(Secret),
}

/// Client of an account at Jira Cloud. Clones share the cache.
#[derive(Clone)]
pub struct Jira {
    client: Client,
    /// API address, including `/rest/api/3`.
    api: String,
    authorization: Secret,
    cache: Arc<Mutex<Cache>>,
}

/// Cached data. All of it can be read from Jira again.
#[derive(Default)]
struct Cache {
    site_url: Option<String>,
    /// Id of the authenticated account.
    own_account: Option<String>,
    fields: Option<CachedFields>,
    status_values: HashMap<FieldId, CachedQuery>,
    read_changes: ReadChanges,
    /// Recently written issues with the time of the write, oldest first.
    written: VecDeque<(u64, Instant)>,
}

impl Jira {
    /// Creates a client. `api_url` is the API address without `/rest/api/3`. `site_url` is the address of
    /// Jira's web pages; if `None`, it is read from Jira.
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
        let cache = Cache {
            site_url: site_url.map(|url| url.trim_end_matches('/').to_owned()),
            ..Cache::default()
        };
        Self {
            client,
            api: format!("{}/rest/api/3", api_url.trim_end_matches('/')),
            authorization: Secret::new(authorization),
            cache: Arc::new(Mutex::new(cache)),
        }
    }

    /// Sets the status field of an issue, or clears it. A field without the option of an optional stage stays as it is.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn set_stage(&self, issue: &IssueRef, stage: Stage) -> Result<(), VendorError> {
        const ACTION: &str = "setting the issue's status field";
        let field = issue.marker_field.as_deref().unwrap_or(STATUS_FIELD);
        let field = self.find_field(ACTION, field).await?;
        let option = stage.jira_status().map(|value| json!({ "value": value }));
        let body = json!({"fields": {field.id(): option}});
        // Before the request, because a concurrent search must not rely on the index either.
        self.remember_written(&issue.id);
        let path = format!("/issue/{}", percent_encode(issue.id.as_str()));
        let request = self.request(ACTION, Method::PUT, &path).json(&body).safe();
        match self.client.send(&request).await {
            Err(error) if error.status() == Some(400) && jql::OPTIONAL_STAGES.contains(&stage) => {
                match self.has_option(&field, stage).await? {
                    true => Err(error),
                    // An approval that was refused must not stay on the ticket.
                    false if stage == Stage::PlanReady => {
                        Box::pin(self.set_stage(issue, Stage::Planning)).await
                    }
                    false => Ok(()),
                }
            }
            outcome => outcome.map(drop),
        }
    }

    /// Links a pull request to the issue. Idempotent per URL.
    ///
    /// # Errors
    /// `is_not_found()` if the issue does not exist.
    pub async fn link_pull_request(
        &self,
        issue: &IssueRef,
        title: &str,
        url: &str,
    ) -> Result<(), VendorError> {
        /// Maximum length of a remote link's `globalId`, in characters.
        const MAX_GLOBAL_ID: usize = 255;
        let global_id: String = url.chars().take(MAX_GLOBAL_ID).collect();
        let body = json!({"globalId": global_id, "object": {"url": url, "title": title}});
        let path = format!("/issue/{}/remotelink", percent_encode(issue.id.as_str()));
        let request = self.request("linking the pull request", Method::POST, &path);
        // A second request with the same `globalId` updates the link, so it is safe to repeat.
        self.client
            .send(&request.json(&body).safe())
            .await
            .map(drop)
    }

    /// Returns what keeps Jira from answering at the moment.
    pub fn availability(&self) -> Availability {
        self.client.availability()
    }

    /// Returns the rate limit with the least remaining share.
    pub fn quota(&self) -> Quota {
        self.client.quota()
    }

    /// Returns all rate limits.
    pub fn quotas(&self) -> Vec<Quota> {
        self.client.quotas()
    }

    /// Returns the name of the account and the address of the site.
    ///
    /// # Errors
    /// 401 if the credential is rejected.
    pub async fn probe(&self) -> Result<String, VendorError> {
        let request = self.get("checking the Jira credentials", "/myself");
        let account: Myself = self.client.send(&request).await?.json()?;
        Ok(format!(
            "{} at {}",
            account.display_name,
            self.site_url().await?
        ))
    }

    /// Validates a query clause with Jira's parser and returns its errors. Empty if the clause is valid.
    ///
    /// # Errors
    /// Fails if Jira rejects the request or does not respond.
    pub async fn validate_jql(&self, clause: &str) -> Result<Vec<String>, VendorError> {
        // Checked alone, because `a) OR (b` would be valid in parentheses. Checked in parentheses,
        // because the searches use it so, and a clause with `ORDER BY` is not valid there.
        let body = json!({"queries": [clause, format!("({clause})")]});
        let path = "/jql/parse?validation=strict";
        let request = self.request("checking the query", Method::POST, path);
        let parsed: ParsedQueries = self
            .client
            .send(&request.json(&body).safe())
            .await?
            .json()?;
        let mut queries = parsed.queries.into_iter().map(|query| query.errors);
        let (alone, wrapped) = (queries.next().unwrap_or_default(), queries.next());
        if alone.is_empty() && wrapped.is_some_and(|errors| !errors.is_empty()) {
            let problem = "The query must also be valid in parentheses. Remove ORDER BY.";
            return Ok(vec![problem.to_owned()]);
        }
        Ok(alone)
    }

    /// Validates a mapping's query and custom fields and returns the problems. Empty if there are none.
    ///
    /// # Errors
    /// Fails if Jira rejects the request or does not respond.
    pub async fn validate_mapping(&self, mapping: &Mapping) -> Result<Vec<String>, VendorError> {
        let problems = self.validate_ticketing(&mapping.ticketing).await?;
        Ok(problems.into_iter().map(|(_, problem)| problem).collect())
    }

    /// Validates a query and custom fields and returns the problems with the names of their fields. Empty if
    /// there are none.
    ///
    /// # Errors
    /// Fails if Jira rejects the request or does not respond.
    pub async fn validate_ticketing(
        &self,
        ticketing: &TicketingConfig,
    ) -> Result<Vec<(&'static str, String)>, VendorError> {
        let TicketingConfig::Jira { jql, .. } = ticketing else {
            return Ok(Vec::new());
        };
        let invalid = self.validate_jql(jql).await?.into_iter();
        let mut problems: Vec<(&'static str, String)> =
            invalid.map(|problem| ("jql", problem)).collect();
        let names = ["statusFieldOverride", "repoFieldOverride"];
        for (field, name) in names
            .into_iter()
            .zip(snapshot::mapping_field_names(ticketing))
        {
            match self.find_field("looking up the field", name).await {
                Ok(_) => {}
                Err(error) if error.status() == Some(fields::FIELD_NOT_FOUND_STATUS) => {
                    problems.push((field, fields::missing_field_message(name)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(problems)
    }

    /// Returns the options of a mapping's status field and of its repo field.
    ///
    /// # Errors
    /// Fails if Jira rejects the request or does not respond.
    pub async fn mapping_field_options(
        &self,
        mapping: &Mapping,
    ) -> Result<[BTreeSet<String>; 2], VendorError> {
        let mut values_by_field = [BTreeSet::new(), BTreeSet::new()];
        let names = snapshot::mapping_field_names(&mapping.ticketing);
        for (name, values) in names.into_iter().zip(&mut values_by_field) {
            let options = self.field_options(name).await?;
            values.extend(options.into_iter().map(|option| option.value));
        }
        Ok(values_by_field)
    }

    /// Lists the custom fields. With `name`, only those of that name, ignoring case.
    ///
    /// # Errors
    /// Fails if Jira rejects the request or does not respond.
    pub async fn custom_fields(&self, name: Option<&str>) -> Result<Vec<JiraField>, VendorError> {
        let mut fields = self.read_fields("reading the custom fields").await?;
        fields.retain(|field| field.custom);
        if let Some(name) = name.map(str::to_lowercase) {
            fields.retain(|field| field.name.to_lowercase() == name);
        }
        Ok(fields)
    }

    /// Returns the id of the authenticated account.
    async fn own_account(&self) -> Result<String, VendorError> {
        if let Some(cached) = self.cache().own_account.clone() {
            return Ok(cached);
        }
        let request = self.get("reading the account of the Jira credentials", "/myself");
        let account: Account = self.client.send(&request).await?.json()?;
        self.cache().own_account = Some(account.account_id.clone());
        Ok(account.account_id)
    }

    /// Returns the address of Jira's web pages.
    async fn site_url(&self) -> Result<String, VendorError> {
        if let Some(cached) = self.cache().site_url.clone() {
            return Ok(cached);
        }
        let request = self.get("reading Jira's base address", "/serverInfo");
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
        let mut cached = self.cache();
        cached.written.retain(|(other, _)| *other != id);
        cached.written.push_back((id, Instant::now()));
        while cached.written.len() > MAX_RECONCILED {
            cached.written.pop_front();
        }
    }

    /// Returns the issues whose state in the search index may be outdated.
    fn recently_written(&self) -> Vec<u64> {
        let mut cached = self.cache();
        cached.written.retain(|(_, at)| at.elapsed() < INDEX_LAG);
        cached.written.iter().map(|(id, _)| *id).collect()
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

/// Account that wrote a comment or changed an issue.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Account {
    #[serde(default)]
    account_id: String,
    #[serde(default)]
    display_name: String,
    email_address: Option<String>,
    account_type: Option<String>,
}

impl Account {
    /// Returns the account as an author. Apps and customers start nothing.
    fn author(&self) -> CommentAuthor {
        CommentAuthor {
            id: self.account_id.clone(),
            name: self.display_name.clone(),
            email: self.email_address.clone().filter(|email| !email.is_empty()),
            kind: match self.account_type.as_deref() {
                Some("atlassian") => AuthorKind::Person,
                _ => AuthorKind::Other,
            },
        }
    }

    /// Returns the author of a comment whose account was deleted.
    fn deleted() -> CommentAuthor {
        CommentAuthor {
            id: String::new(),
            name: String::new(),
            email: None,
            kind: AuthorKind::Other,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Myself {
    display_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    base_url: String,
}

#[derive(Deserialize)]
struct ParsedQueries {
    queries: Vec<ParsedQuery>,
}

#[derive(Deserialize)]
struct ParsedQuery {
    #[serde(default)]
    errors: Vec<String>,
}

/// Fuzzing entry point: converts a document to Markdown.
pub fn adf_to_markdown(document: &serde_json::Value) -> String {
    adf::to_markdown(document)
}

/// Fuzzing entry point: converts Markdown to a document.
pub fn markdown_to_adf(text: &str) -> serde_json::Value {
    adf::from_markdown(text)
}

#[cfg(test)]
mod conversation_tests;
#[cfg(test)]
mod tests;

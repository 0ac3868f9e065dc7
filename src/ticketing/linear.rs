use crate::domain::issue::{IssueRef, Snapshot};
use crate::domain::mapping::Mapping;
use crate::domain::secret::Secret;
use crate::domain::stage::Stage;
use crate::wire::{Client, Quota, VendorError};

/// An account at Linear.
#[derive(Clone)]
pub struct Linear {
    wire: Client,
    api_url: String,
    key: Secret,
}

impl Linear {
    /// `api_url` is the address without `/graphql`; `key` a personal API key.
    pub fn new(wire: Client, api_url: &str, key: Secret) -> Self {
        Self {
            wire,
            api_url: api_url.to_owned(),
            key,
        }
    }
    pub async fn snapshot(&self, _mappings: &[&Mapping]) -> Result<Snapshot, VendorError> {
        todo!("{}{:?}", self.api_url, self.key)
    }
    pub async fn move_marker(&self, issue: &IssueRef, stage: Stage) -> Result<(), VendorError> {
        todo!("{issue:?}{stage:?}")
    }
    pub async fn comment(
        &self,
        issue: &IssueRef,
        effect_id: &str,
        body: &str,
    ) -> Result<(), VendorError> {
        todo!("{issue:?}{effect_id}{body}")
    }
    pub async fn link_pull_request(
        &self,
        issue: &IssueRef,
        title: &str,
        url: &str,
    ) -> Result<(), VendorError> {
        todo!("{issue:?}{title}{url}")
    }
    pub fn quota(&self) -> Quota {
        self.wire.quota()
    }
    pub async fn probe(&self) -> Result<String, VendorError> {
        todo!()
    }
}

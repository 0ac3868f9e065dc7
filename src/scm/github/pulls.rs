use crate::domain::ids::Repo;
use crate::wire::VendorError;

use super::GitHub;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullState {
    Open,
    Closed,
    Merged,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    pub number: u64,
    pub url: String,
    pub draft: bool,
    pub title: String,
    pub body: String,
    pub node_id: String,
    pub head_branch: String,
    pub head_sha: String,
    pub base_branch: String,
    pub state: PullState,
    pub merge_sha: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPull {
    pub title: String,
    pub body: String,
    pub head: String,
    pub base: String,
    pub draft: bool,
}

impl GitHub {
    pub async fn pull(&self, repo: &Repo, number: u64) -> Result<Pull, VendorError> {
        todo!("{repo}{number}")
    }
    pub async fn open_pull(&self, repo: &Repo, branch: &str) -> Result<Option<Pull>, VendorError> {
        todo!("{repo}{branch}")
    }
    pub async fn pulls_of_branch(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<Vec<Pull>, VendorError> {
        todo!("{repo}{branch}")
    }
    pub async fn create_pull(&self, repo: &Repo, new: &NewPull) -> Result<Pull, VendorError> {
        todo!("{repo}{new:?}")
    }
    pub async fn update_pull(
        &self,
        repo: &Repo,
        number: u64,
        title: &str,
        body: &str,
    ) -> Result<Pull, VendorError> {
        todo!("{repo}{number}{title}{body}")
    }
    pub async fn set_draft(&self, repo: &Repo, node_id: &str) -> Result<(), VendorError> {
        todo!("{repo}{node_id}")
    }
    pub async fn set_ready(&self, repo: &Repo, node_id: &str) -> Result<(), VendorError> {
        todo!("{repo}{node_id}")
    }
}

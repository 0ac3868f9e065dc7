//! One file of several repositories, read with one request per owner.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::http::{VendorError, VendorErrorKind};
use domain::ids::Repo;

use super::GitHub;
use super::contents::RepoFile;

/// Maximum number of repositories per request.
const MAX_REPOS_PER_REQUEST: usize = 50;

const ACTION: &str = "reading a file of several repositories";

/// File as [`GitHub::file`] returns it.
pub type FileResult = Result<Option<RepoFile>, VendorError>;

impl GitHub {
    /// Returns a text file at a git reference of each repository, in the order of `places`. It is `None` for a
    /// repository that the credentials cannot see.
    pub async fn file_of_each(&self, path: &str, places: &[(Repo, String)]) -> Vec<FileResult> {
        let mut of_owners: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, (repo, _)) in places.iter().enumerate() {
            let owner = repo.owner.to_lowercase();
            of_owners.entry(owner).or_default().push(index);
        }
        let groups = of_owners.values();
        let groups = groups.flat_map(|indexes| indexes.chunks(MAX_REPOS_PER_REQUEST));
        let reads = groups.map(async |indexes| {
            let of_owner: Vec<_> = indexes.iter().map(|index| &places[*index]).collect();
            let files = match of_owner.as_slice() {
                // The REST API does not charge for an unchanged file.
                [(repo, git_ref)] => vec![self.file(repo, path, git_ref).await],
                several => match self.file_of_owner(path, several).await {
                    Ok(files) => files,
                    Err(error) => several.iter().map(|_| Err(error.clone())).collect(),
                },
            };
            indexes.iter().copied().zip(files).collect::<Vec<_>>()
        });
        let mut files: Vec<(usize, FileResult)> = join_all(reads).await.concat();
        files.sort_by_key(|(index, _)| *index);
        files.into_iter().map(|(_, file)| file).collect()
    }

    /// Reads the file of repositories of one owner with one request.
    async fn file_of_owner(
        &self,
        path: &str,
        places: &[&(Repo, String)],
    ) -> Result<Vec<FileResult>, VendorError> {
        let Some((first, _)) = places.first() else {
            return Ok(Vec::new());
        };
        let (query, variables) = query(path, places);
        let (mut repos, errors) = self
            .graphql_partial::<BTreeMap<String, Option<RepoNode>>>(
                first, ACTION, &query, &variables,
            )
            .await?;
        let failure = |key: &str| {
            let of_repo = |failed: &str| failed.split('.').next() == Some(key);
            let error = errors.iter().find(|error| of_repo(&error.path))?;
            let kind = VendorErrorKind::Status {
                status: error.status,
                message: error.message.clone(),
                retry_after: None,
            };
            let error = VendorError::new(self.inner.client.vendor(), ACTION, kind);
            (!error.is_not_found()).then_some(error)
        };
        let file = |index: usize| {
            let key = key(index);
            if let Some(error) = failure(&key) {
                return Err(error);
            }
            let object = repos.remove(&key).flatten().and_then(|repo| repo.object);
            let text = object.and_then(|object| object.text);
            let path = path.to_owned();
            Ok(text.map(|text| RepoFile { path, text }))
        };
        Ok((0..places.len()).map(file).collect())
    }
}

fn key(index: usize) -> String {
    format!("r{index}")
}

fn query(path: &str, places: &[&(Repo, String)]) -> (String, Value) {
    let (mut parameters, mut fields, mut variables) = (String::new(), String::new(), Map::new());
    for (index, (repo, git_ref)) in places.iter().enumerate() {
        let key = key(index);
        let values = [
            ("owner", repo.owner.clone()),
            ("name", repo.name.clone()),
            ("file", format!("{git_ref}:{path}")),
        ];
        for (name, value) in values {
            parameters += &format!("${key}{name}: String! ");
            variables.insert(format!("{key}{name}"), value.into());
        }
        fields += &format!(
            "{key}: repository(owner: ${key}owner, name: ${key}name) {{ \
             object(expression: ${key}file) {{ ... on Blob {{ text }} }} }} "
        );
    }
    (
        format!("query({parameters}) {{ {fields}}}"),
        variables.into(),
    )
}

#[derive(Deserialize)]
struct RepoNode {
    object: Option<BlobNode>,
}

/// File. Other objects of git have no text.
#[derive(Deserialize)]
struct BlobNode {
    text: Option<String>,
}

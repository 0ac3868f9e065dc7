//! Build of an image from a Dockerfile and one program.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::json;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::build_progress::BuildProgress;
use super::{Docker, tar};
use crate::http::{DownloadError, Method, Request, VendorError, percent_encode};
use domain::machine::EnvVarMap;

/// Maximum pause in the engine's output. The installation of large packages prints nothing for minutes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Size of the chunks in which the program is sent, in bytes.
const CHUNK: usize = 256 << 10;

/// Image to build. The build context holds a Dockerfile and one program.
#[derive(Debug)]
pub struct ImageBuild {
    /// Name and tag of the image.
    pub tag: String,
    /// Text of the Dockerfile.
    pub dockerfile: String,
    /// Values of its `ARG` instructions.
    pub arguments: EnvVarMap,
    /// Name of the program in the build context.
    pub program_name: &'static str,
    /// The program, opened for reading.
    pub program: File,
}

/// Error of an image build.
#[derive(Debug, thiserror::Error)]
pub enum ImageBuildError {
    /// The engine rejected the request, or did not respond.
    #[error(transparent)]
    Vendor(#[from] VendorError),
    /// The program could not be read.
    #[error("cannot read the program: {0}")]
    Read(io::Error),
    /// A step of the build failed.
    #[error("{0}")]
    Failed(String),
}

impl Docker {
    /// Builds an image and passes every line of the engine's progress to `on_line`, without control
    /// characters.
    ///
    /// # Errors
    /// Fails if the engine rejects the request, is silent for 15 minutes, or reports an error.
    pub async fn build_image(
        &self,
        build: ImageBuild,
        mut on_line: impl FnMut(&str),
    ) -> Result<(), ImageBuildError> {
        let arguments = json!(build.arguments).to_string();
        let url = self.url(&format!(
            "/build?t={}&rm=true&forcerm=true&buildargs={}",
            percent_encode(&build.tag),
            percent_encode(&arguments)
        ));
        let request = Request::new("building the image", Method::POST, url)
            .header("content-type", "application/x-tar");
        let size = build
            .program
            .metadata()
            .await
            .map_err(ImageBuildError::Read)?
            .len();
        let context = StreamBody::new(context(build, size).map(|chunk| chunk.map(Frame::data)));
        let mut progress = BuildProgress::default();
        let sent = self.client.upload(
            &request,
            reqwest::Body::wrap(context),
            IDLE_TIMEOUT,
            |chunk| {
                progress.read(chunk, &mut on_line);
                Ok(())
            },
        );
        sent.await.map_err(|error| match error {
            DownloadError::Vendor(error) => ImageBuildError::Vendor(error),
            DownloadError::Write(error) => ImageBuildError::Failed(error.to_string()),
        })?;
        progress
            .finish(&mut on_line)
            .map_err(ImageBuildError::Failed)
    }
}

/// Returns the build context as a tar archive, in chunks.
fn context(build: ImageBuild, size: u64) -> impl Stream<Item = io::Result<Bytes>> + Send + Sync {
    let dockerfile = build.dockerfile.as_bytes();
    let length = dockerfile.len() as u64;
    let head = [
        &tar::header("Dockerfile", 0o644, length)[..],
        dockerfile,
        &tar::padding(length),
        &tar::header(build.program_name, 0o755, size),
    ]
    .concat();
    let tail = [tar::padding(size), tar::END.to_vec()].concat();
    let program = stream::try_unfold((build.program, size), async |(mut file, left)| {
        if left == 0 {
            return Ok(None);
        }
        let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        file.read_exact(&mut chunk).await?;
        let left = left - chunk.len() as u64;
        Ok(Some((Bytes::from(chunk), (file, left))))
    });
    let once = |bytes: Vec<u8>| stream::once(std::future::ready(Ok(Bytes::from(bytes))));
    once(head).chain(program).chain(once(tail))
}

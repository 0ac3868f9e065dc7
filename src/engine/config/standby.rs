//! Configuration of the standby: the place, and the access to its bucket.

use std::path::PathBuf;
use std::time::Duration;

use domain::crypto::aws_signature::AwsKey;
use domain::secret::Secret;
use vendors::object_store::BucketAddress;

use super::validator::Validator;
use super::{Config, ConfigError, EnvFile, ProxyConfig};

/// Minimum and maximum of the interval, in seconds.
const INTERVAL: std::ops::RangeInclusive<u64> = 1..=3600;

/// Access to a bucket of a service that is compatible with S3.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct BucketOptions {
    /// ID of the access key of the bucket.
    #[arg(long, env = "AWS_ACCESS_KEY_ID")]
    pub aws_access_key_id: Option<String>,
    /// Secret of the access key of the bucket.
    #[arg(
        long,
        env = "AWS_SECRET_ACCESS_KEY",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub aws_secret_access_key: Option<String>,
    /// Session token of a temporary access key.
    #[arg(
        long,
        env = "AWS_SESSION_TOKEN",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub aws_session_token: Option<String>,
    /// Region of the bucket. Services other than AWS take any, such as auto.
    #[arg(long, env = "AWS_REGION")]
    pub aws_region: Option<String>,
    /// Base URL of the service of the bucket; unset for AWS.
    #[arg(long, env = "AWS_ENDPOINT_URL")]
    pub aws_endpoint_url: Option<String>,
}

/// Options of commands that use a place without the rest of the configuration.
#[derive(Debug, Clone, clap::Args)]
pub struct PlaceOptions {
    /// Access to the bucket of the place.
    #[command(flatten)]
    pub bucket: BucketOptions,
    /// Proxy for https requests.
    #[arg(long, env = "HTTPS_PROXY", hide_env_values = true, hide = true)]
    pub https_proxy: Option<String>,
    /// Proxy for plain http requests.
    #[arg(long, env = "HTTP_PROXY", hide = true)]
    pub http_proxy: Option<String>,
    /// Hosts that are requested without a proxy.
    #[arg(long, env = "NO_PROXY", hide = true)]
    pub no_proxy: Option<String>,
    /// Whether a bucket may be reached over plain http: true or false.
    #[arg(long, env = "ALLOW_PLAIN_HTTP", default_value = "false", hide = true)]
    pub allow_plain_http: String,
}

impl PlaceOptions {
    /// Returns the place with this address, and the proxies to use. `file` names the variables of the service, if they
    /// are in a file.
    ///
    /// # Errors
    /// Returns the problems of the options.
    pub fn into_config(
        mut self,
        place: &str,
        file: Option<&EnvFile>,
    ) -> Result<(PlaceConfig, ProxyConfig), ConfigError> {
        let mut sources = super::sources_of(file);
        let mut check = Validator::new(Vec::new(), &self.allow_plain_http);
        let mut secret = |name: &str, value: &mut Option<String>| {
            let read = sources.secret(name, value.take());
            let read = read.map_err(ConfigError::single)?;
            Ok::<_, ConfigError>(read)
        };
        let https = secret("HTTPS_PROXY", &mut self.https_proxy)?;
        let http = secret("HTTP_PROXY", &mut self.http_proxy)?;
        for (name, value) in self.bucket.secrets_mut() {
            *value = secret(name, value)?.map(|secret| secret.expose().to_owned());
        }
        let proxy = check.proxy(&sources, (https, http, self.no_proxy));
        if let Some(endpoint) = &self.bucket.aws_endpoint_url {
            check.base_url("AWS_ENDPOINT_URL", endpoint);
        }
        let config = PlaceConfig::parse(place, self.bucket);
        let config = config.map_err(|problem| ConfigError::single(format!("{place} {problem}")))?;
        Config::check_problems(check.problems)?;
        Ok((config, proxy))
    }
}

/// Reads a secret of a command that does not use the rest of the configuration, from the same sources as the service: the
/// value of its option, a file that `NAME_FILE` names, or a credential. `file` names the variables of the service, if they
/// are in a file.
///
/// # Errors
/// If the file of the secret cannot be read.
pub fn command_secret(
    name: &str,
    value: Option<String>,
    file: Option<&EnvFile>,
) -> Result<Option<Secret>, ConfigError> {
    let read = super::sources_of(file).secret(name, value);
    read.map_err(ConfigError::single)
}

impl BucketOptions {
    /// Secrets, which files can also have, with the names of their variables.
    pub(super) fn secrets_mut(&mut self) -> [(&'static str, &mut Option<String>); 2] {
        [
            ("AWS_SECRET_ACCESS_KEY", &mut self.aws_secret_access_key),
            ("AWS_SESSION_TOKEN", &mut self.aws_session_token),
        ]
    }
}

/// Place for backups.
#[derive(Debug, Clone)]
pub enum PlaceConfig {
    /// Folder.
    Folder(PathBuf),
    /// Bucket.
    Bucket {
        /// Address.
        address: BucketAddress,
        /// Access key.
        key: AwsKey,
        /// Session token of a temporary key.
        session_token: Option<Secret>,
    },
}

/// Configuration of the standby.
#[derive(Debug, Clone)]
pub struct StandbyConfig {
    /// Address of the place, as it was configured.
    pub place_text: String,
    /// Place that the service shares with its standby.
    pub place: PlaceConfig,
    /// Maximum age of acknowledged changes that are not in the place.
    pub interval: Duration,
}

impl PlaceConfig {
    /// Parses the address of a place: a folder, or `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// Returns a clause for operators that follows the name of the value.
    pub fn parse(place: &str, bucket: BucketOptions) -> Result<Self, String> {
        if !place.contains("://") {
            return Ok(PlaceConfig::Folder(PathBuf::from(place)));
        }
        let set = |value: Option<String>| {
            let value = value.map(|text| text.trim().to_owned());
            value.filter(|text| !text.is_empty())
        };
        let endpoint = set(bucket.aws_endpoint_url);
        let has_path = |url: &String| {
            url.split_once("://")
                .is_some_and(|(_, rest)| rest.trim_end_matches('/').contains('/'))
        };
        if endpoint.as_ref().is_some_and(has_path) {
            return Err("is a bucket of a service whose AWS_ENDPOINT_URL has a path".to_owned());
        }
        let address = BucketAddress::parse(place, endpoint);
        let address = address
            .ok_or_else(|| format!("must be a folder or s3://BUCKET/PREFIX, not '{place}'"))?;
        let (id, secret, region) = (
            set(bucket.aws_access_key_id),
            set(bucket.aws_secret_access_key),
            set(bucket.aws_region),
        );
        let (Some(id), Some(secret), Some(region)) = (id, secret, region) else {
            return Err(
                "is a bucket, which needs AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION"
                    .to_owned(),
            );
        };
        Ok(PlaceConfig::Bucket {
            address,
            key: AwsKey {
                id,
                secret: Secret::new(secret),
                region,
                service: "s3",
            },
            session_token: set(bucket.aws_session_token).map(Secret::new),
        })
    }

    /// Secrets of the access to the place.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let (secret, token) = match self {
            PlaceConfig::Folder(_) => (None, None),
            PlaceConfig::Bucket {
                key, session_token, ..
            } => (Some(&key.secret), session_token.as_ref()),
        };
        secret.into_iter().chain(token)
    }
}

impl Validator {
    /// Returns the configuration of the standby; `None` without a place.
    pub(super) fn standby(
        &mut self,
        place: Option<String>,
        interval: &str,
        bucket: BucketOptions,
    ) -> Option<StandbyConfig> {
        let place_text = place.map(|text| text.trim().to_owned());
        let place_text = place_text.filter(|text| !text.is_empty())?;
        if let Some(endpoint) = &bucket.aws_endpoint_url {
            self.base_url("AWS_ENDPOINT_URL", endpoint);
        }
        let seconds = interval.trim().parse().ok();
        let seconds = seconds.filter(|seconds| INTERVAL.contains(seconds));
        self.require(seconds.is_some(), || {
            format!("STANDBY_INTERVAL must be a number of seconds from 1 to 3600, not '{interval}'")
        });
        let place = PlaceConfig::parse(&place_text, bucket);
        let place = match place {
            Ok(PlaceConfig::Folder(path)) if !path.is_absolute() => Err(format!(
                "must be an absolute path or s3://BUCKET/PREFIX, not '{place_text}'"
            )),
            parsed => parsed,
        };
        match place {
            Ok(place) => Some(StandbyConfig {
                place_text,
                place,
                interval: Duration::from_secs(seconds.unwrap_or(30)),
            }),
            Err(problem) => {
                self.require(false, || format!("STANDBY_PLACE {problem}"));
                None
            }
        }
    }
}

/// Effective values for display, with secrets masked.
pub(super) fn effective(config: Option<&StandbyConfig>) -> Vec<(&'static str, String)> {
    let unset = || "<unset>".to_owned();
    let bucket = config.and_then(|config| match &config.place {
        PlaceConfig::Folder(_) => None,
        PlaceConfig::Bucket {
            address,
            key,
            session_token,
        } => Some((address, key, session_token)),
    });
    let mask = |set: bool| if set { "<set>" } else { "<unset>" }.to_owned();
    vec![
        (
            "STANDBY_PLACE",
            config.map_or_else(unset, |config| config.place_text.clone()),
        ),
        (
            "STANDBY_INTERVAL",
            config.map_or_else(unset, |config| config.interval.as_secs().to_string()),
        ),
        (
            "AWS_ACCESS_KEY_ID",
            bucket.map_or_else(unset, |(_, key, _)| key.id.clone()),
        ),
        ("AWS_SECRET_ACCESS_KEY", mask(bucket.is_some())),
        (
            "AWS_SESSION_TOKEN",
            mask(bucket.is_some_and(|(_, _, token)| token.is_some())),
        ),
        (
            "AWS_REGION",
            bucket.map_or_else(unset, |(_, key, _)| key.region.clone()),
        ),
        (
            "AWS_ENDPOINT_URL",
            bucket
                .and_then(|(address, _, _)| address.endpoint.clone())
                .unwrap_or_else(unset),
        ),
    ]
}

//! Configuration of the Kubernetes cluster in which runs execute.

use std::path::{Path, PathBuf};

use domain::kubeconfig::{ClusterAccess, MAX_KUBECONFIG, Material};
use domain::kubernetes_labels::{is_dns_label, is_dns_name};
use domain::secret::Secret;
use vendors::session_hosts::JobSettings;

use super::sources::Sources;
use super::validator::Validator;

/// Folder with the token and the certificate authority of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Configuration of a Kubernetes cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// kubeconfig file; `None` for the service account of the pod that this service runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Access to the cluster.
    pub access: ClusterAccess,
    /// Settings of the Jobs.
    pub jobs: JobSettings,
}

/// Options of a Kubernetes cluster.
pub(super) struct KubernetesOptions {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) namespace: Option<String>,
    pub(super) runtime_class: Option<String>,
    pub(super) pull_secret: Option<String>,
}

impl Validator {
    /// Returns the configuration of the cluster; `None` without a namespace.
    pub(super) fn kubernetes(
        &mut self,
        options: KubernetesOptions,
        sources: &mut Sources,
    ) -> Option<KubernetesConfig> {
        let mut name = |variable: &str, value: Option<String>, is_valid: fn(&str) -> bool| {
            let value = value.map(|name| name.trim().to_owned());
            let value = value.filter(|name| !name.is_empty())?;
            self.require(is_valid(&value), || {
                format!("{variable} must be a valid Kubernetes name: lower-case letters, digits and '-', not '{value:.80}'")
            });
            Some(value)
        };
        let namespace = name("KUBERNETES_NAMESPACE", options.namespace, is_dns_label);
        let runtime_class = name(
            "KUBERNETES_RUNTIME_CLASS",
            options.runtime_class,
            is_dns_name,
        );
        let pull_secret = name("KUBERNETES_PULL_SECRET", options.pull_secret, is_dns_name);
        let kubeconfig = options
            .kubeconfig
            .filter(|path| !path.as_os_str().is_empty());
        let jobs = JobSettings {
            namespace: namespace?,
            runtime_class,
            pull_secret,
        };
        let config = match kubeconfig {
            Some(path) => {
                sources.secret_files.push(path.clone());
                KubernetesConfig::read(path, jobs)
            }
            None => in_cluster(|name| (sources.lookup)(name)).map(|access| KubernetesConfig {
                kubeconfig: None,
                access,
                jobs,
            }),
        };
        match config {
            Ok(config) => {
                self.base_url("KUBECONFIG", &config.access.server);
                Some(config)
            }
            Err(problem) => {
                self.require(false, || problem);
                None
            }
        }
    }
}

impl KubernetesConfig {
    /// Reads a kubeconfig file.
    ///
    /// # Errors
    /// Returns a sentence for operators if the file cannot be read or used.
    pub fn read(kubeconfig: PathBuf, jobs: JobSettings) -> Result<Self, String> {
        let access = read(&kubeconfig);
        let access =
            access.map_err(|problem| format!("KUBECONFIG: {}: {problem}", kubeconfig.display()))?;
        Ok(Self {
            kubeconfig: Some(kubeconfig),
            access,
            jobs,
        })
    }

    /// Returns the credentials that the configuration contains.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let key = self.access.identity.as_ref().map(|[_, key]| key);
        let materials = self.access.token.iter().chain(key);
        materials.filter_map(|material| match material {
            Material::Text(text) => Some(text),
            Material::File(_) => None,
        })
    }
}

/// Reads a kubeconfig file. Relative paths in it are below its folder.
fn read(path: &Path) -> Result<ClusterAccess, String> {
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if size > MAX_KUBECONFIG as u64 {
        return Err(format!("it is larger than {MAX_KUBECONFIG} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut access = ClusterAccess::parse(&text)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    for material in access.materials() {
        if let Material::File(file) = material {
            *file = folder.join(&file);
        }
    }
    Ok(access)
}

/// Returns the access of the pod's service account.
fn in_cluster(variable: impl Fn(&str) -> Option<String>) -> Result<ClusterAccess, String> {
    let host = variable("KUBERNETES_SERVICE_HOST").ok_or(
        "KUBERNETES_NAMESPACE is set, and this service does not run in a cluster: set KUBECONFIG to a kubeconfig file",
    )?;
    let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
    let server = match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    };
    let file = |name: &str| Some(Material::File(Path::new(SERVICE_ACCOUNT).join(name)));
    Ok(ClusterAccess {
        server,
        authority: file("ca.crt"),
        token: file("token"),
        identity: None,
    })
}

/// Effective values for display.
pub(super) fn effective(config: Option<&KubernetesConfig>) -> Vec<(&'static str, String)> {
    let plain = |value: Option<&str>| value.unwrap_or("<unset>").to_owned();
    let jobs = config.map(|config| &config.jobs);
    let file = config.and_then(|config| config.kubeconfig.as_ref());
    vec![
        ("KUBECONFIG", plain(file.and_then(|path| path.to_str()))),
        (
            "KUBERNETES_NAMESPACE",
            plain(jobs.map(|jobs| jobs.namespace.as_str())),
        ),
        (
            "KUBERNETES_RUNTIME_CLASS",
            plain(jobs.and_then(|jobs| jobs.runtime_class.as_deref())),
        ),
        (
            "KUBERNETES_PULL_SECRET",
            plain(jobs.and_then(|jobs| jobs.pull_secret.as_deref())),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_service_account_of_the_pod() {
        let at = |host: &'static str| {
            let variable = move |name: &str| match name {
                "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
                "KUBERNETES_SERVICE_PORT" => Some("6443".to_owned()),
                _ => None,
            };
            in_cluster(variable).unwrap()
        };
        assert_eq!(at("10.96.0.1").server, "https://10.96.0.1:6443");
        assert_eq!(at("fd00::1").server, "https://[fd00::1]:6443");
        let token = Path::new("/var/run/secrets/kubernetes.io/serviceaccount/token");
        assert_eq!(at("k").token, Some(Material::File(token.to_owned())));
        let outside = in_cluster(|_| None).unwrap_err();
        assert!(outside.contains("set KUBECONFIG"), "{outside}");
    }

    #[test]
    fn relative_paths_are_below_the_folder_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], clusters: \
            [{name: k, cluster: {server: 'https://k', certificate-authority: ca.crt}}], users: \
            [{name: u, user: {tokenFile: /run/token}}]}";
        std::fs::write(&path, text).unwrap();
        let access = read(&path).unwrap();
        assert_eq!(
            access.authority,
            Some(Material::File(folder.path().join("ca.crt")))
        );
        assert_eq!(access.token, Some(Material::File("/run/token".into())));
        std::fs::write(&path, " ".repeat(MAX_KUBECONFIG + 1)).unwrap();
        assert!(read(&path).unwrap_err().contains("larger than"));
        assert!(
            read(Path::new("/nowhere"))
                .unwrap_err()
                .contains("No such file")
        );
    }
}

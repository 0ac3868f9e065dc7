//! Access to a Kubernetes cluster, as a kubeconfig file describes it.

use std::path::PathBuf;

use data_encoding::BASE64;
use serde_json::Value;

use super::secret::Secret;

/// Maximum size of a kubeconfig file, in bytes.
pub const MAX_KUBECONFIG: usize = 1 << 20;

/// Fields of a cluster that are refused, with what to do instead.
const REFUSED_OF_CLUSTERS: [(&str, &str); 3] = [
    (
        "insecure-skip-tls-verify",
        "anyone on the network path could read the credentials of runs. Set certificate-authority",
    ),
    ("proxy-url", "set HTTPS_PROXY"),
    (
        "tls-server-name",
        "give the server an address that its certificate names",
    ),
];

/// Fields of a user that are refused, with what to do instead.
const REFUSED_OF_USERS: [(&str, &str); 6] = [
    (
        "exec",
        "the service starts no program for a token. Use the token of a service account, or a client certificate",
    ),
    (
        "auth-provider",
        "Kubernetes removed it. Use the token of a service account, or a client certificate",
    ),
    (
        "username",
        "Kubernetes removed passwords. Use the token of a service account, or a client certificate",
    ),
    (
        "password",
        "Kubernetes removed passwords. Use the token of a service account, or a client certificate",
    ),
    ("as", "give the account itself the rights that it needs"),
    (
        "as-groups",
        "give the account itself the rights that it needs",
    ),
];

/// Address of a cluster, and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAccess {
    /// Base URL of the API server.
    pub server: String,
    /// Certificates of the authorities that sign the server's certificate. `None` for those of this machine.
    pub authority: Option<Material>,
    /// Bearer token.
    pub token: Option<Material>,
    /// Client certificate and its key.
    pub identity: Option<[Material; 2]>,
}

/// Text of a credential, or the file that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Material {
    /// Text.
    Text(Secret),
    /// File. A relative path is below the folder of the kubeconfig file.
    File(PathBuf),
}

impl ClusterAccess {
    /// Parses a kubeconfig file and returns the access of its current context.
    ///
    /// # Errors
    /// Returns a sentence for operators about the first field that is missing, invalid or refused.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_KUBECONFIG {
            return Err(format!("it is larger than {MAX_KUBECONFIG} bytes"));
        }
        // The error of the parser quotes the file, which contains credentials.
        let file: Value = serde_saphyr::from_str(text).map_err(|_| "it is not valid YAML")?;
        let context = text_of(&file, "current-context").ok_or("it has no current-context")?;
        let context = entry(&file, "contexts", "context", context)?;
        let named = |kind: &str| {
            let name = text_of(context, kind);
            name.ok_or_else(|| format!("its current context names no {kind}"))
        };
        let cluster = entry(&file, "clusters", "cluster", named("cluster")?)?;
        let user = entry(&file, "users", "user", named("user")?)?;
        refuse(cluster, &REFUSED_OF_CLUSTERS)?;
        refuse(user, &REFUSED_OF_USERS)?;
        let server = text_of(cluster, "server").ok_or("its cluster has no server")?;
        let token = text_of(user, "token").map(|token| Material::Text(Secret::new(token)));
        let token = file_of(user, "tokenFile").or(token);
        let certificate = material(user, "client-certificate")?;
        let identity = match (certificate, material(user, "client-key")?) {
            (Some(certificate), Some(key)) => Some([certificate, key]),
            (None, None) => None,
            (Some(_), None) => {
                return Err("its user has a client-certificate and no client-key".to_owned());
            }
            (None, Some(_)) => {
                return Err("its user has a client-key and no client-certificate".to_owned());
            }
        };
        if token.is_none() && identity.is_none() {
            return Err("its user has neither a token nor a client-certificate".to_owned());
        }
        Ok(Self {
            server: server.trim_end_matches('/').to_owned(),
            authority: material(cluster, "certificate-authority")?,
            token,
            identity,
        })
    }

    /// Returns every credential and certificate.
    pub fn materials(&mut self) -> impl Iterator<Item = &mut Material> {
        let identity = self.identity.iter_mut().flatten();
        self.authority
            .iter_mut()
            .chain(&mut self.token)
            .chain(identity)
    }
}

/// Returns the value of a list's entry with this name.
fn entry<'a>(file: &'a Value, list: &str, field: &str, name: &str) -> Result<&'a Value, String> {
    let entries = file[list].as_array().into_iter().flatten();
    let mut found = entries.filter(|entry| text_of(entry, "name") == Some(name));
    let entry = found
        .next()
        .ok_or_else(|| format!("it has no {field} named '{name:.80}'"))?;
    Ok(&entry[field])
}

fn refuse(object: &Value, fields: &[(&str, &str)]) -> Result<(), String> {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    let refused = fields.iter().find(|(name, _)| is_set(&object[*name]));
    match refused {
        Some((name, instead)) => Err(format!("{name} is not supported: {instead}")),
        None => Ok(()),
    }
}

fn text_of<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object[name].as_str().filter(|text| !text.is_empty())
}

fn file_of(object: &Value, name: &str) -> Option<Material> {
    text_of(object, name).map(|path| Material::File(path.into()))
}

/// Returns a certificate or key: the text in the field `NAME-data`, else the file in the field `NAME`.
fn material(object: &Value, name: &str) -> Result<Option<Material>, String> {
    let data_name = format!("{name}-data");
    let Some(encoded) = text_of(object, &data_name) else {
        return Ok(file_of(object, name));
    };
    // kubectl accepts base64 that is wrapped into lines, as the program base64 writes it.
    let encoded = encoded.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let text = BASE64.decode(&encoded.collect::<Vec<u8>>()).ok();
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(|| format!("{data_name} is not a PEM text in base64"))?;
    Ok(Some(Material::Text(Secret::new(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a kubeconfig file with these fields of its cluster and its user, one per line.
    fn file(cluster: &str, user: &str) -> String {
        format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters:\n- name: other\n  cluster: {{server: x}}\n- name: k\n  cluster:\n    {}\n\
             users:\n- name: u\n  user:\n    {}\n",
            cluster.replace('\n', "\n    "),
            user.replace('\n', "\n    ")
        )
    }

    fn secret(text: &str) -> Option<Material> {
        Some(Material::Text(Secret::new(text)))
    }

    #[test]
    fn reads_tokens_certificates_and_files() {
        let access = ClusterAccess::parse(&file("server: https://k:6443/", "token: abc")).unwrap();
        let expected = ClusterAccess {
            server: "https://k:6443".to_owned(),
            authority: None,
            token: secret("abc"),
            identity: None,
        };
        assert_eq!(access, expected);

        let cluster =
            "server: https://k\ncertificate-authority-data: Y2E=\ncertificate-authority: ca.crt";
        let user = "token: abc\ntokenFile: token\nclient-certificate: c.crt\nclient-key-data: a2V5";
        let mut access = ClusterAccess::parse(&file(cluster, user)).unwrap();
        assert_eq!(access.authority, secret("ca"), "data precedes a file");
        let in_file = |path: &str| Material::File(path.into());
        assert_eq!(
            access.token,
            Some(in_file("token")),
            "a file precedes the token"
        );
        let identity = [in_file("c.crt"), secret("key").unwrap()];
        assert_eq!(access.identity, Some(identity));
        assert_eq!(access.materials().count(), 4);
    }

    #[test]
    fn base64_may_be_wrapped_into_lines() {
        let wrapped =
            "server: https://k\ncertificate-authority-data: |\n  Y2Vy\n  dGlm\n  aWNhdGU=";
        let access = ClusterAccess::parse(&file(wrapped, "token: t")).unwrap();
        assert_eq!(access.authority, secret("certificate"));
    }

    #[test]
    fn states_what_is_missing_invalid_or_refused() {
        let (server, token) = ("server: https://k", "token: t");
        let rows = [
            ("- [".to_owned(), "it is not valid YAML"),
            ("{}".to_owned(), "it has no current-context"),
            (
                file(server, token).replace("contexts: [{name: c", "contexts: [{name: d"),
                "it has no context named 'c'",
            ),
            (
                file(server, token).replace("cluster: k, ", ""),
                "its current context names no cluster",
            ),
            (
                file(server, token).replace("name: u\n", "name: v\n"),
                "it has no user named 'u'",
            ),
            (file("x: y", token), "its cluster has no server"),
            (
                file(server, "x: y"),
                "its user has neither a token nor a client-certificate",
            ),
            (
                file(server, "client-certificate: c"),
                "its user has a client-certificate and no client-key",
            ),
            (
                file(server, "client-key: c"),
                "its user has a client-key and no client-certificate",
            ),
            (
                file(server, "client-key-data: '*'\nclient-certificate: c"),
                "client-key-data is not a PEM text in base64",
            ),
            (
                file("server: https://k\ninsecure-skip-tls-verify: true", token),
                "insecure-skip-tls-verify is not supported: anyone",
            ),
            (
                file("server: https://k\nproxy-url: http://p", token),
                "proxy-url is not supported: set HTTPS_PROXY",
            ),
            (
                file("server: https://k\ntls-server-name: k", token),
                "tls-server-name is not supported",
            ),
            (
                file(server, "exec: {command: aws}"),
                "exec is not supported: the service starts no program",
            ),
            (
                file(server, "auth-provider: {name: gcp}"),
                "auth-provider is not supported",
            ),
            (
                file(server, "username: a\npassword: b"),
                "username is not supported: Kubernetes removed passwords",
            ),
            (file(server, "as: root\ntoken: t"), "as is not supported"),
            (
                " ".repeat(MAX_KUBECONFIG + 1),
                "it is larger than 1048576 bytes",
            ),
        ];
        for (text, expected) in rows {
            let reason = ClusterAccess::parse(&text).unwrap_err();
            assert!(reason.starts_with(expected), "{expected}: {reason}");
        }
        let unset = file(
            "server: https://k\ninsecure-skip-tls-verify: false\nproxy-url: ''",
            "token: t\npassword: ''\nas-groups: []\nexec: null",
        );
        assert!(ClusterAccess::parse(&unset).is_ok());
    }
}

//! The files of a release: what they contain, and that the program runs on the oldest supported systems.
//!
//! `packaging/build.sh` makes them; `AGENT_IMPLEMENT_PACKAGES` names their folder. `AGENT_IMPLEMENT_OLD_SYSTEMS`
//! names a folder with a root folder of each old system (`tests/old_systems.sh`).

mod name_server;
mod tls_server;

use std::collections::BTreeSet;
use std::env::var_os;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use requires::requires;
use tempfile::TempDir;

use crate::requirements::require;
use name_server::NameServer;
use tls_server::TlsServer;

/// Name that only the test's name server knows.
const VENDOR: &str = "tickets.vendor.test";

fn folder(requirement: &str, variable: &str) -> PathBuf {
    let value = var_os(variable).ok_or_else(|| format!("{variable} is not set"));
    let path = PathBuf::from(require(requirement, value));
    require(requirement, path.canonicalize())
}

/// The one file of the release with this ending.
fn release_file(ending: &str) -> PathBuf {
    let folder = folder("package", "AGENT_IMPLEMENT_PACKAGES");
    let entries = require("package", fs::read_dir(&folder));
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    assert_eq!(found.len(), 1, "{ending} in {}", folder.display());
    found.remove(0)
}

fn output(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(file).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Paths of files (not of folders) in the Debian package, without the leading `./`.
fn files_of_package(package: &Path) -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let extracted = Command::new("dpkg-deb")
        .arg("-x")
        .args([package, dir.path()])
        .status();
    assert!(extracted.unwrap().success());
    files_below(dir.path())
}

fn files_below(folder: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                let path = path.strip_prefix(folder).unwrap();
                files.insert(path.to_string_lossy().into_owned());
            }
        }
    }
    files
}

/// Files of the repository, as paths below `to`.
fn expected_files(from: &str, ending: &str, to: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(from);
    let files = files_below(&folder).into_iter();
    let kept: BTreeSet<String> = files
        .filter(|file| file.ends_with(ending))
        .map(|file| format!("{to}/{file}"))
        .collect();
    assert!(!kept.is_empty(), "{from}");
    kept
}

/// Unpacks the archive into a temporary folder. Returns that folder and the archive's own one.
fn unpack_archive() -> (TempDir, PathBuf) {
    let archive = release_file(".tar.gz");
    let dir = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(dir.path())
        .status();
    assert!(unpacked.unwrap().success());
    let name = archive.file_name().unwrap().to_string_lossy().into_owned();
    let inner = dir.path().join(name.trim_end_matches(".tar.gz"));
    (dir, inner)
}

#[requires("package")]
#[test]
fn package_contains_pages_completions_templates_and_documents() {
    let files = files_of_package(&release_file(".deb"));
    let mut expected = BTreeSet::new();
    for file in [
        "usr/bin/agent-implement",
        "usr/lib/systemd/system/agent-implement.service",
        "usr/lib/sysusers.d/agent-implement.conf",
        "etc/agent-implement/agent-implement.env",
        "usr/share/man/man1/agent-implement.1.gz",
        "usr/share/man/man1/agent-implement-serve.1.gz",
        "usr/share/bash-completion/completions/agent-implement",
        "usr/share/zsh/vendor-completions/_agent-implement",
        "usr/share/fish/vendor_completions.d/agent-implement.fish",
        "usr/share/doc/agent-implement/README.md",
        "usr/share/doc/agent-implement/CHANGELOG.md",
        "usr/share/doc/agent-implement/copyright",
        "usr/share/agent-implement/next-steps.txt",
    ] {
        expected.insert(file.to_owned());
    }
    let shared = "usr/share/agent-implement";
    expected.extend(expected_files(
        "templates",
        "",
        &format!("{shared}/templates"),
    ));
    let monitoring = format!("{shared}/prometheus");
    expected.extend(expected_files("packaging/prometheus", "", &monitoring));
    let manifests = format!("{shared}/kubernetes");
    expected.extend(expected_files("packaging/kubernetes", "", &manifests));
    expected.extend(expected_files(
        "docs",
        ".md",
        "usr/share/doc/agent-implement/docs",
    ));
    let missing: Vec<&String> = expected.difference(&files).collect();
    assert!(missing.is_empty(), "{missing:#?} of {files:#?}");
}

#[requires("package")]
#[test]
fn archive_contains_the_shared_files_of_the_package() {
    let (_dir, archive) = unpack_archive();
    let of_archive = files_below(&archive.join("share"));
    let of_package: BTreeSet<String> = files_of_package(&release_file(".deb"))
        .iter()
        .filter_map(|file| file.strip_prefix("usr/share/"))
        .filter(|file| {
            // What only Debian reads; in the archive, the examples are beside `install.sh`.
            let debian = ["lintian/", "doc/agent-implement/examples/"];
            let debian_file = ["copyright", "changelog.Debian.gz"];
            !debian.iter().any(|start| file.starts_with(start))
                && !debian_file.iter().any(|end| file.ends_with(end))
        })
        .map(|file| match file.starts_with("man/") {
            true => file.trim_end_matches(".gz").to_owned(),
            false => file.to_owned(),
        })
        .collect();
    assert_eq!(of_archive, of_package);
}

/// The C library that the package depends on is the one of Debian 11 and Ubuntu 20.04, or an older one.
#[requires("package")]
#[test]
fn package_depends_on_the_library_of_old_systems() {
    let package = release_file(".deb");
    let depends = Command::new("dpkg-deb")
        .arg("-f")
        .arg(&package)
        .arg("Depends")
        .output();
    let depends = String::from_utf8(depends.unwrap().stdout).unwrap();
    let (_, library) = depends.split_once("libc6 (>= 2.").unwrap();
    let (minor, _) = library.split_once(')').unwrap();
    assert!(minor.parse::<u32>().unwrap() <= 31, "{depends}");
    let script = output("dpkg-deb", &["-I"], &package);
    assert!(script.contains("postinst"), "{script}");
}

/// Root folder of an old system, and the program of the release in a folder that is mounted at `/mnt` there.
struct OldSystem {
    root: PathBuf,
    mounted: TempDir,
}

impl OldSystem {
    fn new(name: &str) -> Self {
        let root = folder("old-systems", "AGENT_IMPLEMENT_OLD_SYSTEMS").join(name);
        let root = require("old-systems", root.canonicalize());
        let (_dir, archive) = unpack_archive();
        let mounted = tempfile::tempdir().unwrap();
        let program = mounted.path().join("agent-implement");
        fs::copy(archive.join("agent-implement"), program).unwrap();
        fs::copy(
            root.join("etc/resolv.conf"),
            mounted.path().join("resolv.conf"),
        )
        .unwrap();
        Self { root, mounted }
    }

    /// Runs a script in the root folder. The mounts are in a namespace that ends with it.
    fn run(&self, script: &str) -> Output {
        let outer = "mount --bind \"$FOLDER\" \"$ROOT/mnt\"
            mount --bind \"$FOLDER/resolv.conf\" \"$ROOT/etc/resolv.conf\"
            mount -t proc proc \"$ROOT/proc\"
            mount -t tmpfs tmpfs \"$ROOT/tmp\"
            mount --rbind /dev \"$ROOT/dev\"
            exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp chroot \"$ROOT\" /bin/sh -euc \"$SCRIPT\"";
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-euc", outer])
            .env("ROOT", &self.root)
            .env("FOLDER", self.mounted.path())
            .env("SCRIPT", script)
            .output();
        output.unwrap()
    }

    fn run_successfully(&self, script: &str) -> String {
        let output = self.run(script);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
        stdout
    }
}

/// Starts the service, stops it when it is ready, and prints its log. Fails if its exit code is not 0.
const SERVE: &str = "ADMIN_ACCESS_CODE=code-of-the-test /mnt/agent-implement serve --port 0 --data-dir /tmp/data 2>/tmp/log &
    service=$!
    for attempt in $(seq 600); do
        if grep -q 'is running' /tmp/log; then break; fi
        sleep 0.1
    done
    cat /tmp/log
    kill $service
    wait $service";

/// The service runs, and a vendor is found by its name and reached over TLS.
fn check_old_system(name: &str, release: &str) {
    let system = OldSystem::new(name);
    let files = system.run_successfully("cat /etc/os-release; ldd --version");
    assert!(
        files.contains(release) && files.contains(" 2.31"),
        "{files}"
    );
    let version = system.run_successfully("/mnt/agent-implement --version");
    let expected = format!("agent-implement {}", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&expected), "{version}");
    let log = system.run_successfully(SERVE);
    assert!(log.contains("Agent Implement is running."), "{log}");

    let vendor = TlsServer::start(VENDOR, system.mounted.path());
    let names = NameServer::start(VENDOR);
    let resolver = format!("nameserver {}\noptions timeout:5\n", names.address());
    fs::write(system.mounted.path().join("resolv.conf"), resolver).unwrap();
    let doctor = |certificates: &str| {
        let (key, port) = ("LINEAR_API_KEY=lin_api_of_the_test", vendor.port());
        let url = format!("LINEAR_API_URL=https://{VENDOR}:{port}");
        let command = "/mnt/agent-implement doctor --json --port 0 --data-dir /tmp/data";
        let output = system.run(&format!("{certificates} {key} {url} {command}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let refused = doctor("SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt");
    assert_eq!(vendor.requests(), Vec::<String>::new(), "{refused}");
    let report = doctor("SSL_CERT_FILE=/mnt/certificate.pem");
    assert!(names.answered() > 0, "{report}");
    let asks_with_key = |request: &String| {
        request.starts_with("POST /graphql HTTP/1.1\r\n")
            && request.contains("authorization: lin_api_of_the_test\r\n")
            && request.contains(&format!("host: {VENDOR}:{}\r\n", vendor.port()))
    };
    let requests = vendor.requests();
    assert!(requests.iter().any(asks_with_key), "{requests:?} {report}");
}

#[requires("package", "old-systems")]
#[test]
fn program_runs_on_debian_11() {
    check_old_system("bullseye", "VERSION_CODENAME=bullseye");
}

#[requires("package", "old-systems")]
#[test]
fn program_runs_on_ubuntu_20_04() {
    check_old_system("focal", "VERSION_CODENAME=focal");
}

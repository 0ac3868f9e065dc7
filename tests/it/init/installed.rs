//! A machine with the package, whose settings are in `/etc`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

use requires::requires;

use super::NewMachine;
use crate::process::{command, exit_and_output};
use crate::requirements::require;

const MOUNT: &str = "mount --bind etc /etc";

impl NewMachine {
    /// Runs `init --yes` as root of a machine with the package. The test mounts its own `/etc` in a mount namespace, so
    /// that this machine stays unchanged. `mount` is a command that mounts it.
    fn init_installed(
        &self,
        mount: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> (i32, String) {
        self.run_installed(mount, &self.command(arguments, &[]), variables)
    }

    /// Runs a command like `init_installed`.
    fn run_installed(
        &self,
        mount: &str,
        installed: &Command,
        variables: &[(&str, &str)],
    ) -> (i32, String) {
        let etc = self.folder.path().join("etc");
        let data = self.path("data");
        fs::create_dir_all(etc.join("agent-implement")).unwrap();
        let settings = format!("DATA_DIR={}\n", data.display());
        fs::write(etc.join("agent-implement/agent-implement.env"), settings).unwrap();
        let script = format!("{mount} && echo ready && exec \"$@\"");
        let mut unshare = Command::new("unshare");
        unshare
            .args(["-m", "sh", "-c", &script, "sh"])
            .arg(installed.get_program())
            .args(installed.get_args())
            .env_clear()
            .envs(
                installed
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .envs(variables.iter().copied())
            .current_dir(self.folder.path());
        let (code, stdout, stderr) = exit_and_output(&unshare.output().unwrap());
        let ready = stdout.strip_prefix("ready\n").ok_or(stderr.clone());
        let text = require("namespaces", ready).to_owned() + &stderr;
        self.assert_no_secret(&text);
        (code, text)
    }
}

#[requires("namespaces")]
#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_the_unit_hides_from_the_service_is_refused() {
    let machine = NewMachine::start().await;
    let cluster = machine.vendors.kubernetes();
    let kubeconfig = cluster.kubeconfig();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let socket = machine.vendors.docker_socket();
    let kubernetes = [
        ("KUBECONFIG", kubeconfig),
        ("KUBERNETES_NAMESPACE", cluster.namespace()),
        ("RUNNER_CALLBACK_BASE_URL", "https://agents.test"),
    ];
    let local = [("DOCKER_HOST", socket.as_str())];
    for (runner, variables, hidden) in [
        ("kubernetes", &kubernetes[..], kubeconfig),
        ("local", &local, socket.trim_start_matches("unix://")),
    ] {
        let arguments = ["--runner", runner, "--system", "github"];
        let (code, text) =
            tokio::task::block_in_place(|| machine.init_installed(MOUNT, &arguments, variables));
        assert_eq!(code, 1, "{text}");
        let refusal = format!("the unit of the service hides {hidden}");
        assert!(text.contains(&refusal), "{text}");
        assert!(!text.contains("Stored "), "{text}");
    }
}

#[requires("namespaces")]
#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_change_the_service_is_sent_to_root() {
    let machine = NewMachine::start().await;
    let read_only = format!("{MOUNT} && mount -o remount,bind,ro /etc");
    let arguments = ["--runner", "ci", "--system", "github"];
    let (code, text) =
        tokio::task::block_in_place(|| machine.init_installed(&read_only, &arguments, &[]));
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("sudo agent-implement init"), "{text}");
    assert!(!machine.path("").exists());
}

#[requires("namespaces")]
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_a_data_folder_that_the_unit_does_not_permit() {
    let machine = NewMachine::start().await;
    let bin = machine.folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let systemctl = bin.join("systemctl");
    fs::write(&systemctl, "#!/bin/sh\necho \"$PERMITTED\"\n").unwrap();
    fs::set_permissions(&systemctl, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let permitted = format!("/srv -{}", machine.path("").display());
    for (permitted, is_found) in [("", true), ("/srv", true), (&permitted, false)] {
        let variables = [("PATH", path.as_str()), ("PERMITTED", permitted)];
        let doctor = command(&["doctor"]);
        let (_, text) =
            tokio::task::block_in_place(|| machine.run_installed(MOUNT, &doctor, &variables));
        let problem = "the unit of the service does not permit writing to";
        assert_eq!(text.contains(problem), is_found, "{text}");
    }
}

/// Root sets up a service that runs as its own user.
#[requires("mount")]
#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_data_folder_belong_to_the_user_of_the_service() {
    const USER: u32 = 65_534;
    let machine = NewMachine::start().await;
    let data = machine.path("data");
    fs::create_dir_all(&data).unwrap();
    chown(&data, Some(USER), Some(USER)).unwrap();
    let arguments = ["--runner", "local", "--system", "linear", "--team", "ENG"];
    let (_, text) = machine.init(&arguments, &[]).await;
    assert!(text.contains("Stored project ENG."), "{text}");
    for entry in fs::read_dir(&data).unwrap() {
        let entry = entry.unwrap();
        let owner = entry.metadata().unwrap().uid();
        assert_eq!(owner, USER, "{}", entry.path().display());
    }
    assert!(data.join("secrets.key").exists());
}

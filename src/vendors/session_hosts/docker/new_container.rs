//! Request for a new container, and its isolation: read-only root file system, home and temporary directory on tmpfs, an
//! unprivileged user without a way to gain privileges, no capabilities, and limits on memory, processes
//! and CPUs. An isolated container has no network: no service of the host, no neighbour and no metadata address
//! answers it. The only host directories that may be mounted, read-only, are the folder with the sockets of the
//! service and the mirror of the run's repository. The engine's socket never is, because access to it is root access to the host. See
//! docs/behaviour.md#container-isolation.
//!
//! The run is process 1 of the container. An init process or an image entrypoint before it would run as
//! the same user and keep the original environment, where the agent could read the credentials that the
//! run has removed from its own.

use serde_json::{Value, json};

use domain::git_mirror;
use domain::machine::MachineSpec;
use domain::run_socket::MOUNT_POINT;

/// User and group id of the run. They need not exist in the image.
const USER: &str = "1000:1000";

/// Home directory of the run. Besides `/tmp` the only writable directory.
const HOME: &str = "/home/agent";

/// Mount options of `/tmp`. It holds work trees and build output, so programs in it must be executable.
/// Its content counts against the container's memory.
const TMP_OPTIONS: &str = "rw,exec,nosuid,nodev,mode=1777";
/// Mount options of `HOME`. Its content counts against the container's memory.
const HOME_OPTIONS: &str = "rw,exec,nosuid,nodev,mode=0700,uid=1000,gid=1000";

/// Maximum number of processes and threads in a container.
const MAX_PROCESSES: u32 = 1_024;

/// Host name under which a container reaches its host. The same name as in Docker Desktop.
const HOST_NAME: &str = "host.docker.internal";

/// Placeholder that the engine replaces with the host's address. Podman supports it since 4.7. Older
/// versions reject it, and provide the name `host.containers.internal` in every container instead.
pub(super) const HOST_GATEWAY_IP: &str = "host-gateway";

/// Builds the body of the request that creates a container.
pub(super) fn body(spec: &MachineSpec) -> Value {
    let environment: Vec<String> = spec
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        // The image may have no account, and so no home directory, for this user.
        .chain([format!("HOME={HOME}")])
        .collect();
    let memory = i64::from(spec.memory_mb) << 20;
    let mut body = json!({
        "Image": spec.image,
        // Podman takes an empty list for a missing one, and runs the entrypoint of the image.
        "Entrypoint": [""],
        "Cmd": crate::session_hosts::SESSION_COMMAND,
        "Env": environment,
        "User": USER,
        "WorkingDir": HOME,
        "Labels": spec.labels.to_map(),
        "HostConfig": {
            // The default is a setting of the engine.
            "Init": false,
            "ReadonlyRootfs": true,
            "Tmpfs": {"/tmp": TMP_OPTIONS, HOME: HOME_OPTIONS},
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Privileged": false,
            "PidsLimit": MAX_PROCESSES,
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": i64::from(spec.cpus) * 1_000_000_000,
            "ExtraHosts": [format!("{HOST_NAME}:{HOST_GATEWAY_IP}")],
            "RestartPolicy": {"Name": "no"},
            "AutoRemove": false,
        },
    });
    if spec.is_isolated {
        body["HostConfig"]["NetworkMode"] = json!("none");
        body["HostConfig"]["ExtraHosts"] = json!([]);
    }
    let mounts = [
        (&spec.socket_folder, MOUNT_POINT),
        (&spec.mirror_folder, git_mirror::MOUNT_POINT),
    ];
    // Unlike `Binds`, a mount is refused if its source does not exist.
    let mounts: Vec<Value> = mounts
        .into_iter()
        .filter_map(|(folder, target)| {
            let folder = folder.as_ref()?;
            Some(json!({"Type": "bind", "Source": folder, "Target": target, "ReadOnly": true}))
        })
        .collect();
    if !mounts.is_empty() {
        body["HostConfig"]["Mounts"] = json!(mounts);
    }
    body
}

/// Removes the host-gateway entry from the body, for an engine that does not support it.
pub(super) fn without_host_gateway(mut body: Value) -> Value {
    body["HostConfig"]["ExtraHosts"] = json!([]);
    body
}

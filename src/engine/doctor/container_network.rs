//! Check of the network of local containers.

use crate::config::{Config, ContainerNetwork};
use domain::check_result::CheckResult;

/// Warns if containers have the network of their engine and nobody has chosen that. `is_needed` states whether runs of a
/// project execute in containers.
pub(super) fn examine(config: &Config, is_needed: bool) -> Option<CheckResult> {
    let containers = &config.containers;
    let is_open = is_needed && containers.network == ContainerNetwork::OpenByDefault;
    is_open.then(|| {
        let what = format!(
            "local containers have the network of {}, because it cannot mount the socket of the proxy",
            containers.engine
        );
        CheckResult::warning("container-network", what)
            .with_impact("Runs can connect to that machine, its network and its metadata service.")
            .with_remedy("Set DATA_DIR_ON_HOST to the path of DATA_DIR on that machine, or LOCAL_EGRESS=open if this is intended.")
    })
}

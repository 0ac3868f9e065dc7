use crate::config::ContainerNetwork;

use super::read;

/// Containers are isolated unless nobody asks for it and it is impossible.
#[test]
fn containers_have_no_network_unless_that_is_chosen_or_impossible() {
    let elsewhere = "--docker-host=tcp://engine:2375";
    let shared = "--data-dir-on-host=/srv/data";
    let (proxy, open) = ("--local-egress=proxy", "--local-egress=open");
    let hosts = "--local-egress-hosts=registry.example";
    let network = |flags: &[&str]| {
        let config = read(flags, &[]);
        config.map(|config| match config.containers.network {
            ContainerNetwork::Proxy(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                hosts.join(",")
            }
            network => format!("{network:?}"),
        })
    };
    let rows: [(&[&str], &str); 10] = [
        (&[], "*"),
        (&[hosts], "registry.example"),
        (&["--local-egress-hosts="], ""),
        (&[open], "Open"),
        (&[open, hosts], "Open"),
        (&[elsewhere], "OpenByDefault"),
        (&[elsewhere, open], "Open"),
        (&[elsewhere, shared], "*"),
        (&[elsewhere, shared, hosts, proxy], "registry.example"),
        (&["--docker-host=tcp://127.0.0.1:2375"], "*"),
    ];
    for (flags, expected) in rows {
        assert_eq!(network(flags).unwrap(), expected, "{flags:?}");
    }
    for flags in [
        &[elsewhere, proxy][..],
        &[elsewhere, hosts],
        &[elsewhere, "--local-egress-hosts="],
    ] {
        let problem = network(flags).unwrap_err().to_string();
        assert!(
            problem.contains("need DATA_DIR_ON_HOST"),
            "{flags:?}: {problem}"
        );
    }
}

//! Rules for private keys, seeds and wallets.

use super::{Rule, RuleKind, format, rule, vendor_keyword};
use crate::sensitive_files::SecretCategory::{Cloud, KeysAndCertificates as Keys};

/// Rules of this module in order of precedence.
#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    // Comes first: a service account file is reported as a cloud credential, not as a private key.
    rule(RuleKind::Setting, Cloud, "Google service account key", &["private_key_id"], &["{hex:40}"]),
    rule(RuleKind::ArmoredKey, Keys, "private key", &["PRIVATE KEY"], &[]),
    rule(RuleKind::PrivateKey, Keys, "PuTTY private key", &[], &["PuTTY-User-Key-File-2: ssh-{lower:3-8}", "PuTTY-User-Key-File-3: ssh-{lower:3-8}", "PuTTY-User-Key-File-2: ecdsa-sha2-nistp{dig:3}", "PuTTY-User-Key-File-3: ecdsa-sha2-nistp{dig:3}"]),
    rule(RuleKind::PrivateKey, Keys, "age secret key", &[], &["AGE-SECRET-KEY-1{upper:58}"]),
    rule(RuleKind::PrivateKey, Keys, "age secret key", &[], &["AGE-SECRET-KEY-PQ-1{upper:58}"]),
    rule(RuleKind::JsonWebKey, Keys, "private JSON web key", &["kty"], &[]),
    vendor_keyword(Keys, "WireGuard private key", &["privatekey", "presharedkey", "wireguard", "wg_private"], &["{b64:43}="]),
    vendor_keyword(Keys, "Ethereum private key", &["ethereum", "eth_", "private_key", "privatekey", "private-key", "deployer", "wallet", "metamask", "hardhat", "mnemonic"], &["0x{xdig:64}", "{xdig:64}"]),
    rule(RuleKind::Setting, Keys, "Ethereum private key", &["ethers.wallet", "new wallet", "privatekeytoaccount", "accounts", "privkey", "priv_key", "const pk", "let pk", "var pk"], &["0x{xdig:64}", "{xdig:64}"]),
    rule(RuleKind::Setting, Keys, "wallet recovery phrase", &["mnemonic", "seed_phrase", "seedphrase", "recovery_phrase"], &[]),
    format(Keys, "Bitcoin extended private key", &["xprv{alnum:107-108}"]),
    format(Keys, "Nostr private key", &["nsec1{lower:58}"]),
    format(Keys, "minisign secret key", &["RWRTY0Iy{b64:204}"]),
    format(Keys, "NATS seed", &["SUA{b32:55}", "SAA{b32:55}", "SOA{b32:55}"]),
];

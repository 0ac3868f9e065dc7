//! Archives of files that are part of the executable, written by `build.rs`.

use std::collections::BTreeMap;

use flate2::read::GzDecoder;

/// Files of the panel.
pub(crate) const PANEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/assets.json.gz"));

/// OpenAPI document, or the parts that it is generated from.
pub(crate) const OPENAPI: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// Reads an archive: texts by path.
pub(crate) fn unpack(archive: &[u8]) -> Result<BTreeMap<String, String>, String> {
    serde_json::from_reader(GzDecoder::new(archive)).map_err(|error| error.to_string())
}

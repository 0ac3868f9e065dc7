//! Archives of files that are part of the executable, written by `build.rs`.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;

/// Files of the panel.
pub(crate) const PANEL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/assets.json.gz"));

/// OpenAPI document, or the parts that it is generated from.
pub(crate) const OPENAPI: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// Reads an archive: texts by path.
pub(crate) fn unpack(archive: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let mut json = Vec::new();
    let read = GzDecoder::new(archive).read_to_end(&mut json);
    read.map_err(|error| error.to_string())?;
    serde_json::from_slice(&json).map_err(|error| error.to_string())
}

//! Compresses the files that the program embeds: those of the panel, and the OpenAPI document or the parts that it is
//! generated from. Each archive is a gzip file of a JSON object from paths to texts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let target = PathBuf::from(std::env::var("OUT_DIR")?);
    let openapi = match std::env::var_os("CARGO_FEATURE_OPENAPI_GENERATOR") {
        Some(_) => (Path::new("openapi"), Some("yml")),
        None => (Path::new("../../docs/openapi.json"), None),
    };
    for (name, (source, ending)) in [
        ("assets.json.gz", (Path::new("../../assets"), None)),
        ("openapi.json.gz", openapi),
    ] {
        println!("cargo::rerun-if-changed={}", source.display());
        let mut files = BTreeMap::new();
        match source.is_dir() {
            true => collect(source, source, ending, &mut files)?,
            false => {
                let name = source.file_name().unwrap_or_default();
                let document: Value = serde_json::from_str(&read(source)?)?;
                files.insert(name.to_string_lossy().into_owned(), document.to_string());
            }
        }
        let mut archive = GzEncoder::new(File::create(target.join(name))?, Compression::best());
        serde_json::to_writer(&mut archive, &files)?;
        archive.finish()?;
    }
    Ok(())
}

/// Reads the files of a folder and the folders below it, of one ending or all.
fn collect(
    root: &Path,
    folder: &Path,
    ending: Option<&str>,
    files: &mut BTreeMap<String, String>,
) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, ending, files)?;
        } else if ending.is_none_or(|ending| path.extension().is_some_and(|own| own == ending)) {
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            files.insert(name, read(&path)?);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

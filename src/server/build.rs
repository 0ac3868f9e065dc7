//! Compresses the files that the program embeds: those of the panel, and the parts of the OpenAPI document. Each
//! archive is a gzip file of a JSON object from paths to texts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    let target = PathBuf::from(std::env::var("OUT_DIR")?);
    for (name, folder, ending) in [
        ("assets.json.gz", Path::new("../../assets"), None),
        ("openapi.json.gz", Path::new("openapi"), Some("yml")),
    ] {
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut files = BTreeMap::new();
        collect(folder, folder, ending, &mut files)?;
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
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            files.insert(name, text);
        }
    }
    Ok(())
}

//! Packs the folder `catalogue/` into one compact file that the library includes.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Map, Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let catalogue = root.join("catalogue");
    println!("cargo::rerun-if-changed={}", catalogue.display());
    let mut records = Vec::new();
    let mut sides = Map::new();
    for folder in sorted(&catalogue)?.into_iter().filter(|path| path.is_dir()) {
        let is_side = folder.ends_with("side");
        for file in sorted(&folder)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "json"))
        {
            let text = fs::read_to_string(&file)?;
            let value: Value =
                serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
            match value {
                Value::Object(entries) if is_side => sides.extend(entries),
                record => {
                    let at = file.strip_prefix(&catalogue)?.display().to_string();
                    records.push(json!({ "at": at, "record": record }));
                }
            }
        }
    }
    let packed = json!({
        "records": records,
        "sides": sides,
        "kinds": toml_file(&catalogue.join("kinds.toml"))?,
        "evidence": toml_file(&catalogue.join("evidence.toml"))?,
        "versions": toml_file(&catalogue.join("versions.toml"))?,
        "lines": own_lines(&root, &records)?,
    });
    fs::write(Path::new(&env::var("OUT_DIR")?).join("catalogue.json"), serde_json::to_string(&packed)?)?;
    Ok(())
}

fn toml_file(path: &Path) -> Result<Value, Box<dyn Error>> {
    Ok(toml::from_str(&fs::read_to_string(path)?).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// For each code of kvferry's own the line of its file on which it stands in this source tree.
///
/// Records of our own are stored without line numbers, which every change would make wrong.
fn own_lines(root: &Path, records: &[Value]) -> Result<BTreeMap<String, usize>, Box<dyn Error>> {
    let mut lines = BTreeMap::new();
    for record in records.iter().map(|entry| &entry["record"]) {
        if record["analyzedSha"].is_null() {
            let (Some(code), Some(path)) = (record["errorCode"].as_str(), record["filePath"].as_str()) else {
                return Err(format!("{record}: no code or file").into());
            };
            let file = root.join(path);
            println!("cargo::rerun-if-changed={}", file.display());
            let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            if let Some(line) = text.lines().position(|line| line.contains(code)) {
                lines.insert(code.to_owned(), line + 1);
            }
        }
    }
    Ok(lines)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let entries: Result<Vec<_>, _> = fs::read_dir(folder)?.collect();
    let mut paths: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

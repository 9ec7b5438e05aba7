// Finds libsluice: SLUICE_LIB_DIR, else pkg-config, else the linker's own folders.
// SPDX-License-Identifier: Apache-2.0
use std::process::Command;

fn library_folder() -> Option<String> {
    println!("cargo:rerun-if-env-changed=SLUICE_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if let Ok(folder) = std::env::var("SLUICE_LIB_DIR") {
        return Some(folder);
    }
    let asked = Command::new("pkg-config").args(["--variable=libdir", "sluice"]).output().ok()?;
    let folder = String::from_utf8(asked.stdout).ok()?.trim().to_string();
    (asked.status.success() && !folder.is_empty()).then_some(folder)
}

fn main() {
    if let Some(folder) = library_folder() {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo:folder={folder}");
    }
    println!("cargo:rustc-link-lib=dylib=sluice");
}

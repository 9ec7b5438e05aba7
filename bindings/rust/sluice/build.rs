// Programs and tests find libsluice where sluice-sys has found it.
// SPDX-License-Identifier: Apache-2.0
fn main() {
    if let Ok(folder) = std::env::var("DEP_SLUICE_FOLDER") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}

//! Leaves the unwind tables out of release builds.
//!
//! A release build aborts on panic and is stripped, so nothing reads them, and they are an eighth of the
//! binary. Cargo has no stable setting for it: `-C force-unwind-tables=no` cannot be given to one profile.

#![allow(clippy::disallowed_methods, reason = "Cargo's variables, not settings")]

use std::path::PathBuf;
use std::{env, fs, io};

/// For GNU ld and LLD: the sections of the tables, and nothing else, are discarded.
const SCRIPT: &str = "\
SECTIONS { /DISCARD/ : { *(.eh_frame) *(.eh_frame_hdr) *(.gcc_except_table*) } } INSERT AFTER .bss;
";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        let script = PathBuf::from(env::var("OUT_DIR").expect("Cargo names it")).join("tables.ld");
        fs::write(&script, SCRIPT)?;
        println!("cargo::rustc-link-arg-bin=tenure=-Wl,--no-eh-frame-hdr,-T,{}", script.display());
    }
    Ok(())
}

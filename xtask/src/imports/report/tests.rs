//! Upward arrows and cycles are marked.

use super::*;
use crate::files::File;

fn crates() -> BTreeMap<String, Imports> {
    let file = |module: &str, text: &str| {
        let path = format!("crates/ubtrfs/src/{module}.rs");
        File::new(Path::new(&path), text.to_owned())
    };
    of_crates(&[
        file("metadata", "use crate::{file::A, subvolume::B};"),
        file("file", "use crate::paths::{A, B};"),
        file("paths", "use crate::{metadata::A, error::B};"),
        file("subvolume", ""),
        file("error", ""),
    ])
}

#[test]
fn text_marks_arrows() {
    assert_eq!(
        text(&crates()),
        "ubtrfs\n  \
           file -> paths 2  up  circle\n  \
           metadata -> file 1  up  circle\n  \
           metadata -> subvolume 1  up\n  \
           paths -> error 1\n  \
           paths -> metadata 1  circle\n"
    );
}

#[test]
fn dot_colours_arrows() {
    let dot = dot(&crates());
    let upward = "\"ubtrfs/file\" -> \"ubtrfs/paths\" [label=2, color=red, style=bold];";
    assert!(dot.contains(upward), "{dot}");
    let downward = "\"ubtrfs/paths\" -> \"ubtrfs/error\" [label=1];";
    assert!(dot.contains(downward), "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

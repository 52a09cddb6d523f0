//! Arrows up and circles are marked.

use super::*;
use crate::files::File;

fn crates() -> BTreeMap<String, Imports> {
    let file = |module: &str, text: &str| {
        let path = format!("crates/ubtrfs/src/{module}.rs");
        File::new(Path::new(&path), text.to_owned())
    };
    of_crates(&[
        file("open", "use crate::{file::A, subvolumes::B};"),
        file("file", "use crate::paths::{A, B};"),
        file("paths", "use crate::{open::A, error::B};"),
        file("subvolumes", ""),
        file("error", ""),
    ])
}

#[test]
fn text_marks_arrows() {
    assert_eq!(
        text(&crates()),
        "ubtrfs\n  \
           file -> paths 2  up  circle\n  \
           open -> file 1  up  circle\n  \
           open -> subvolumes 1  up\n  \
           paths -> error 1\n  \
           paths -> open 1  circle\n"
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

//! Arrows up and circles are marked.

use super::*;
use crate::files::File;

fn crates() -> BTreeMap<String, Imports> {
    let file = |module: &str, text: &str| {
        let path = format!("crates/fuse/src/{module}.rs");
        File::new(Path::new(&path), text.to_owned())
    };
    of_crates(&[
        file("request", "use crate::{transport::A, stats::B};"),
        file("transport", "use crate::adapter::{A, B};"),
        file("adapter", "use crate::{request::A, caller::B};"),
        file("stats", ""),
        file("caller", ""),
    ])
}

#[test]
fn text_marks_arrows() {
    assert_eq!(
        text(&crates()),
        "fuse\n  \
           adapter -> caller 1\n  \
           adapter -> request 1  circle\n  \
           request -> stats 1  up\n  \
           request -> transport 1  up  circle\n  \
           transport -> adapter 2  up  circle\n"
    );
}

#[test]
fn dot_colours_arrows() {
    let dot = dot(&crates());
    let upward = "\"fuse/transport\" -> \"fuse/adapter\" [label=2, color=red, style=bold];";
    assert!(dot.contains(upward), "{dot}");
    let downward = "\"fuse/adapter\" -> \"fuse/caller\" [label=1];";
    assert!(dot.contains(downward), "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}
